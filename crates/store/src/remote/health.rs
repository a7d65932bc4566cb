//! Whether the store can be reached and written to: from what happens to what is reported.
//!
//! ```text
//!            too many in a row cannot reach it              it answers a probe
//!   well ────────────────────────────────────────▶ gone ───────────────────────▶ well
//! ```
//!
//! Beside it, writing may be refused while reading works; one write is let through now and then to
//! see. Does not know what a request is; `now` is an argument.

use std::time::Duration;

use headstart_core::Nanos;

use super::backoff::Backoff;
use crate::backend::{Condition, Failure};

/// Time for which writes are refused before another attempt. People repair permissions and full
/// disks, and a refused write costs its whole transfer.
const WRITES_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The state of a store.
#[derive(Debug)]
pub(super) struct RemoteHealth {
    /// Requests in a row that fail to reach the store before it counts as gone.
    offline_after: u32,
    /// Waits between looks whether it is back.
    probes: Backoff,
    /// In a row.
    failures: u32,
    gone: Option<StoreOutage>,
    writes: Option<WriteRefusal>,
}

#[derive(Debug)]
struct StoreOutage {
    probe_at: Nanos,
    probes: u32,
}

#[derive(Debug)]
struct WriteRefusal {
    why: Failure,
    again_at: Nanos,
}

impl RemoteHealth {
    pub(super) fn new(offline_after: u32, probes: Backoff) -> Self {
        Self { offline_after, probes, failures: 0, gone: None, writes: None }
    }

    /// Whether it cannot be reached.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// When to look whether it is back, while it is gone.
    pub(super) fn probe_at(&self) -> Option<Nanos> {
        self.gone.as_ref().map(|gone| gone.probe_at)
    }

    /// Whether a write may be tried. Where writes are refused one is let through now and then.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn may_write(&mut self, now: Nanos) -> Result<(), Failure> {
        match &mut self.writes {
            Some(refused) if now < refused.again_at => Err(refused.why),
            Some(refused) => {
                // One write is enough to see; those after it are refused until
                // its outcome is known.
                refused.again_at = now + WRITES_AGAIN_AFTER;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// It answered, whatever it said.
    pub(super) fn answered(&mut self) {
        self.failures = 0;
    }

    /// A write worked.
    pub(super) fn wrote(&mut self) -> Option<Condition> {
        self.failures = 0;
        self.writes.take()?;
        // If the store is gone, `back` reports the condition later.
        (!self.is_gone()).then_some(Condition::Well)
    }

    /// It answered a write by refusing it.
    pub(super) fn refused(&mut self, now: Nanos, why: Failure) -> Option<Condition> {
        self.failures = 0;
        let again_at = now + WRITES_AGAIN_AFTER;
        let before = self.writes.replace(WriteRefusal { why, again_at });
        let is_known = before.is_some_and(|before| before.why == why);
        (!is_known && !self.is_gone()).then_some(Condition::WritesFail(why))
    }

    /// A request did not reach it; `jitter` is in `[0, 1)`.
    pub(super) fn unreachable(&mut self, now: Nanos, jitter: f64) -> Option<Condition> {
        self.failures = self.failures.saturating_add(1);
        (self.failures >= self.offline_after).then(|| self.give_up(now, jitter))?
    }

    /// It is gone, without counting.
    pub(super) fn give_up(&mut self, now: Nanos, jitter: f64) -> Option<Condition> {
        if self.is_gone() {
            return None;
        }
        let probe_at = now + self.probes.steady_wait(1, jitter);
        self.gone = Some(StoreOutage { probe_at, probes: 0 });
        Some(Condition::Gone(Failure::Offline))
    }

    /// A probe was not answered.
    pub(super) fn still_gone(&mut self, now: Nanos, jitter: f64) {
        if let Some(gone) = &mut self.gone {
            gone.probes = gone.probes.saturating_add(1);
            let wait = self.probes.steady_wait(gone.probes + 1, jitter);
            gone.probe_at = now + wait;
        }
    }

    /// A probe was answered.
    pub(super) fn back(&mut self) -> Option<Condition> {
        self.failures = 0;
        self.gone.take()?;
        // An answer to a probe does not show that writes work again.
        let refused = self.writes.as_ref();
        Some(refused.map_or(Condition::Well, |refused| Condition::WritesFail(refused.why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> RemoteHealth {
        let probes = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
        RemoteHealth::new(3, probes)
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_gone_after_failures_in_a_row_and_says_so_once() {
        let mut health = health();
        assert_eq!(health.unreachable(at(0), 1.0), None);
        assert_eq!(health.unreachable(at(0), 1.0), None);
        health.answered();
        assert_eq!(health.unreachable(at(1), 1.0), None);
        assert_eq!(health.unreachable(at(1), 1.0), None);
        assert!(!health.is_gone());
        let gone = Some(Condition::Gone(Failure::Offline));
        assert_eq!(health.unreachable(at(1), 1.0), gone);
        assert_eq!(health.unreachable(at(1), 1.0), None, "said once");
        assert!(health.is_gone());
    }

    #[test]
    fn probes_come_less_often_and_an_answer_ends_it() {
        let mut health = health();
        health.give_up(at(0), 1.0);
        let mut now = at(0);
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            let next = health.probe_at().expect("it is gone");
            assert_eq!(next.since(now), Duration::from_secs(wait));
            now = next;
            health.still_gone(now, 1.0);
        }
        assert_eq!(health.back(), Some(Condition::Well));
        assert_eq!((health.back(), health.probe_at()), (None, None));
    }

    #[test]
    fn refused_writes_are_tried_now_and_then() {
        let mut health = health();
        let refused = Some(Condition::WritesFail(Failure::ReadOnly));
        assert_eq!(health.refused(at(0), Failure::ReadOnly), refused);
        assert_eq!(health.refused(at(0), Failure::ReadOnly), None, "said once");
        assert_eq!(health.may_write(at(29)), Err(Failure::ReadOnly));
        assert_eq!(health.may_write(at(30)), Ok(()));
        assert_eq!(health.may_write(at(31)), Err(Failure::ReadOnly), "one only");
        assert_eq!(health.wrote(), Some(Condition::Well));
        assert_eq!((health.wrote(), health.may_write(at(31))), (None, Ok(())));
    }

    #[test]
    fn coming_back_does_not_hide_that_writes_are_refused() {
        let mut health = health();
        health.refused(at(0), Failure::Full);
        health.give_up(at(1), 0.0);
        assert_eq!(health.back(), Some(Condition::WritesFail(Failure::Full)));
    }
}
