//! Estimated wait before a replica starts one more prompt, seconds.
//!
//! ```text
//!            add 3 s            first token of the first one
//! wait  0 ──────────► 3, 2, 1, … ──────────► what the others need ──► …
//! ```
//!
//! The estimate drains with time, and every first token corrects it: prompts are served in turn, so
//! what is left is the work of the others. It never falls below a part of that work, because a
//! request that waits longer than estimated is still in front.

use std::time::Duration;

use headstart_core::Nanos;

/// Share of the work in front that is left at least, however long ago it should have been done.
const LEFT: f64 = 0.3;

/// Upper bound of the work, seconds: beyond any queue, and far from where times end.
const WORK_MAX_S: f64 = 1e9;

/// Weight of the newest request in the moving average of the work.
const NEWEST: f64 = 0.1;

/// Seconds of work that were sent to one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Of all requests without a first token.
    queued_s: f64,
    /// When all of it should be done.
    done_at: Nanos,
    /// Mean work of a request.
    mean_s: Option<f64>,
}

impl Backlog {
    /// A request that takes `work_s` is sent.
    pub fn add(&mut self, work_s: f64, now: Nanos) {
        self.queued_s += work_s;
        // An idle replica begins now, a busy one after the work in front.
        let from = self.done_at.0.max(now.0);
        self.done_at = Nanos(from) + duration(work_s);
        let note = |mean: f64| mean + NEWEST * (work_s - mean);
        self.mean_s = Some(self.mean_s.map_or(work_s, note));
    }

    /// The first token of one that takes `work_s` has come, or never will.
    pub fn remove(&mut self, work_s: f64, now: Nanos) {
        // Rounding must not go below nothing.
        self.queued_s = (self.queued_s - work_s).max(0.0);
        self.done_at = now + duration(self.queued_s);
    }

    /// Seconds until one more prompt is begun, as far as this router knows.
    #[must_use]
    pub fn wait_s(&self, now: Nanos) -> f64 {
        let left = self.done_at.since(now).as_secs_f64();
        left.max(LEFT * self.queued_s)
    }

    /// Mean work of a request; 0 before the first.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        self.mean_s.unwrap_or(0.0)
    }
}

fn duration(work_s: f64) -> Duration {
    // `from_secs_f64` panics for negative numbers, and for those beyond its range.
    Duration::from_secs_f64(work_s.clamp(0.0, WORK_MAX_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: f64) -> Nanos {
        Nanos::from_secs_f64(seconds)
    }

    #[test]
    fn it_drains_and_is_set_right() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.wait_s(second(5.0)), 0.0);
        backlog.add(2.0, second(10.0));
        backlog.add(4.0, second(11.0));
        assert_eq!(backlog.wait_s(second(11.0)), 5.0);
        // Late: a share of both is still in front.
        assert!((backlog.wait_s(second(20.0)) - 1.8).abs() < 1e-9);
        backlog.remove(2.0, second(20.0));
        assert_eq!(backlog.wait_s(second(21.0)), 3.0);
        backlog.remove(4.0, second(22.0));
        assert_eq!(backlog.wait_s(second(22.0)), 0.0);
        assert!((backlog.mean_s() - 2.2).abs() < 1e-9);
    }
}
