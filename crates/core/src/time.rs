//! Time as the decisions see it: an argument, never read from a clock.

use std::time::Duration;

/// A point in time: nanoseconds since an arbitrary start that one process (or one simulation)
/// keeps. Points of different processes do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The point `seconds` after the start.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9) as u64)
    }

    /// The point so long before this one; the start where that would be before it.
    #[must_use]
    pub fn before(self, ago: Duration) -> Self {
        let nanos = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Nanos {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        let nanos = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_wraps_nor_goes_negative() {
        let second = Nanos::from_secs_f64(1.0);
        assert_eq!(second + Duration::from_millis(500), Nanos(1_500_000_000));
        assert_eq!(Nanos(5).since(Nanos(9)), Duration::ZERO);
        assert_eq!(Nanos(9).before(Duration::from_nanos(4)), Nanos(5));
        assert_eq!(Nanos(9).before(Duration::MAX), Nanos(0));
        assert_eq!(Nanos(u64::MAX) + Duration::MAX, Nanos(u64::MAX));
    }
}
