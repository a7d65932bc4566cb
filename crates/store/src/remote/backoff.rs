//! Waits before another attempt: twice as long each time, and random, so that clients that failed
//! together do not retry together.
//!
//! Does not sleep and draws nothing itself. Source: M. Brooker, "Exponential Backoff And Jitter",
//! AWS Architecture Blog, 2015 ("full jitter").

use std::time::Duration;

/// A row of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    /// Longest first wait.
    pub(super) first: Duration,
    /// Longest wait at all.
    pub(super) most: Duration,
}

impl Backoff {
    /// The wait after `failed` attempts, anywhere up to its longest; `jitter` is in `[0, 1)`.
    pub(super) fn wait(&self, failed: u32, jitter: f64) -> Duration {
        self.longest(failed).mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// The same, at least half of its longest: for who knocks for a long time.
    pub(super) fn steady_wait(&self, failed: u32, jitter: f64) -> Duration {
        self.wait(failed, 0.5 + jitter / 2.0)
    }

    fn longest(&self, failed: u32) -> Duration {
        // An overflow means that the longest wait was passed before.
        let factor = 1_u32.checked_shl(failed.saturating_sub(1));
        let wait = factor.and_then(|factor| self.first.checked_mul(factor));
        wait.unwrap_or(self.most).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_jitter_shortens_them() {
        let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(1) };
        let check = |failed, jitter, wait_ms| {
            assert_eq!(backoff.wait(failed, jitter), Duration::from_millis(wait_ms));
        };
        check(1, 1.0, 100);
        check(2, 1.0, 200);
        check(4, 1.0, 800);
        check(5, 1.0, 1000);
        check(40, 1.0, 1000);
        check(u32::MAX, 1.0, 1000);
        check(2, 0.0, 0);
        check(2, 0.5, 100);
        assert_eq!(backoff.steady_wait(5, 0.0), Duration::from_millis(500));
    }
}
