//! When a stream's sessions start and go on.

use std::collections::BTreeMap;

use headstart_core::{Nanos, Rng};

use super::draw::exponential;

/// Starts of a Poisson process, and open sessions that wait for their next request. The only
/// thing that grows while a trace is generated: one entry per open session.
#[derive(Clone, Debug)]
pub(super) struct SessionTimeline<S> {
    mean_between_starts_s: f64,
    next_start: Nanos,
    /// By time, and among equal times by the wait's number.
    open: BTreeMap<(Nanos, u64), S>,
    /// Waits so far: breaks ties in the order in which they began.
    waits: u64,
}

/// The next event of a stream.
pub(super) enum Event<S> {
    /// A new session.
    Start(Nanos),
    /// An open one continues.
    Resume(Nanos, S),
}

impl<S> SessionTimeline<S> {
    /// `starts_per_s` sessions start every second on average.
    pub(super) fn new(starts_per_s: f64, rng: &mut Rng) -> Self {
        let mean_between_starts_s = 1.0 / starts_per_s;
        Self {
            mean_between_starts_s,
            next_start: later(Nanos(0), exponential(rng, mean_between_starts_s)),
            open: BTreeMap::new(),
            waits: 0,
        }
    }

    /// When the next event is.
    pub(super) fn next_at(&self) -> Nanos {
        let open = self.open.first_key_value().map_or(Nanos(u64::MAX), |(key, _)| key.0);
        self.next_start.min(open)
    }

    /// Takes the next event.
    pub(super) fn next(&mut self, rng: &mut Rng) -> Event<S> {
        let now = self.next_at();
        // A start wins a tie, so that equal times have one order in every run.
        if now == self.next_start {
            self.next_start = later(now, exponential(rng, self.mean_between_starts_s));
            return Event::Start(now);
        }
        match self.open.pop_first() {
            Some((_, session)) => Event::Resume(now, session),
            // A time that is no start's is that of an open session, so this is never taken.
            None => Event::Start(now),
        }
    }

    /// Lets `session` go on `seconds` after `now`.
    pub(super) fn wait(&mut self, now: Nanos, seconds: f64, session: S) {
        self.open.insert((later(now, seconds), self.waits), session);
        self.waits += 1;
    }
}

fn later(now: Nanos, seconds: f64) -> Nanos {
    Nanos(now.0.saturating_add(Nanos::from_secs_f64(seconds).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_starts_at_their_rate() {
        let mut rng = Rng::new(3);
        let mut timeline = SessionTimeline::new(2.0, &mut rng);
        let (mut last, mut starts, mut resumed) = (Nanos(0), 0, 0);
        while timeline.next_at() < Nanos::from_secs_f64(5_000.0) {
            let now = match timeline.next(&mut rng) {
                Event::Start(now) => {
                    starts += 1;
                    timeline.wait(now, 3.0, 1);
                    now
                }
                Event::Resume(now, more) => {
                    resumed += more;
                    now
                }
            };
            assert!(now >= last);
            last = now;
        }
        assert!((9_700..10_300).contains(&starts), "{starts}");
        assert!((starts - 20..starts).contains(&resumed), "{resumed}");
    }
}
