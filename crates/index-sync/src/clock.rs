//! The one clock of a server process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headstart_core::Nanos;

/// The clock's value at the start, so that restored events have a time before it. One hour is far
/// longer than the age of anything restored.
const START: Duration = Duration::from_secs(3600);

/// Time since shortly before the server's start, for decisions; wall time, for what is printed.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time, which has no meaning but by its differences.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(0) + (START + self.start.elapsed())
    }

    /// The time when something happened so long ago; of what was before the clock's zero, zero.
    #[must_use]
    pub fn ago(&self, age: Duration) -> Nanos {
        // A restored event may be older than the clock's zero.
        Nanos(0) + (START + self.start.elapsed()).saturating_sub(age)
    }
}

/// Seconds since 1970.
#[must_use]
pub fn unix_seconds() -> f64 {
    // A machine clock before 1970 reads as 0: the server starts, and a saved index is from the
    // future.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_the_start_has_a_time() {
        let clock = Clock::start();
        let earlier = clock.ago(Duration::from_secs(100));
        let apart = clock.now().since(earlier).as_secs_f64();
        assert!((100.0..200.0).contains(&apart), "{apart}");
        assert_eq!(clock.ago(Duration::MAX), Nanos(0));
    }
}
