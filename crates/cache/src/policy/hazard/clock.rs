//! The policy's clock: half of it is time, half is requests.
//!
//! Times that stop, jump or run backwards must neither stop ageing nor age everything at once.

use headstart_core::Nanos;

use super::age::TICKS;

/// Least mean gap between requests, seconds: a trace without times ages by its requests.
const LEAST_GAP_S: f64 = 0.01;

/// Seconds and requests in equal parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestClock {
    first: Option<Nanos>,
    last: Nanos,
    num_requests: u64,
    /// The clock's time, seconds.
    seconds: f64,
}

impl RequestClock {
    /// Counts a request at `now`, and returns the time in ticks. Ticks wrap after two years.
    pub(super) fn advance(&mut self, now: Nanos) -> u32 {
        let first = *self.first.get_or_insert(now);
        let last = if self.num_requests == 0 { now } else { self.last };
        self.last = now.max(last);
        if self.num_requests > 0 {
            let elapsed_s = self.last.since(first).as_secs_f64();
            let mean_gap_s = (elapsed_s / self.num_requests as f64).max(LEAST_GAP_S);
            let gap_s = self.last.since(last).as_secs_f64();
            self.seconds += f64::midpoint(gap_s, mean_gap_s);
        }
        self.num_requests += 1;
        (self.seconds * TICKS) as u64 as u32
    }

    /// Requests so far.
    pub(super) fn num_requests(&self) -> u64 {
        self.num_requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(times_s: &[f64]) -> Vec<u32> {
        let mut clock = RequestClock::default();
        times_s.iter().map(|&time| clock.advance(Nanos::from_secs_f64(time))).collect()
    }

    #[test]
    fn runs_half_by_time_and_half_by_requests() {
        assert_eq!(ticks(&[100.0, 101.0, 102.0]), [0, 64, 128]);
        // A gap of 9 s at a mean of 4 s: 6.5 s.
        assert_eq!(ticks(&[0.0, 1.0, 10.0]), [0, 64, 64 + 7 * 64]);
    }

    #[test]
    fn goes_on_where_times_stop_or_step_back() {
        let stopped = ticks(&[5.0; 1_000]);
        assert!(stopped.is_sorted() && stopped[999] > 64, "{}", stopped[999]);
        assert!(ticks(&[5.0, 9.0, 3.0, 9.5]).is_sorted());
    }
}
