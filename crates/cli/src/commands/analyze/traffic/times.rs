//! What is known of when requests came.

use std::time::Duration;

use headstart_core::{Nanos, TraceRequest};

/// Of times that are as coarse or coarser the reader is told what they are taken for.
const COARSE: Duration = Duration::from_secs(1);

/// What stands for a time where nobody gave one, see the readers: the place in the file.
const PLACE: Duration = Duration::from_millis(1);

/// What is known of when requests came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Only in which order.
    Unknown,
    /// All of them, in multiples of this.
    InTicks(Duration),
}

impl Times {
    /// Of requests that have times, in order.
    pub(super) fn of(requests: &[TraceRequest]) -> Self {
        let between = requests.windows(2);
        let between = between.map(|pair| pair[1].arrival.0 - pair[0].arrival.0);
        Self::InTicks(Duration::from_nanos(between.fold(0, divisor)))
    }

    /// Whether they say what was computed at once: not if all are one.
    pub(super) fn tell_what_is_at_once(self) -> bool {
        matches!(self, Self::InTicks(tick) if !tick.is_zero())
    }

    /// What the reader must know of them.
    pub(super) fn remark(self) -> Option<String> {
        match self {
            Self::Unknown => Some(
                "the requests have no times, so their order stands for them: nothing is said of \
                 durations, nor of what was computed at once"
                    .to_owned(),
            ),
            Self::InTicks(tick) if tick >= COARSE => Some(format!(
                "times are multiples of {} s: requests of one time are taken to come at once",
                tick.as_secs_f64()
            )),
            Self::InTicks(_) => None,
        }
    }
}

/// Whether a trace's requests have times of their own: otherwise each comes a millisecond after
/// the one before.
pub(super) fn are_given(requests: &[TraceRequest]) -> bool {
    let place = |(index, request): (usize, &TraceRequest)| {
        request.arrival == Nanos(index as u64 * PLACE.as_nanos() as u64)
    };
    !requests.iter().enumerate().all(place)
}

/// The greatest common divisor.
fn divisor(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => divisor(other, one % other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: &[u64]) -> Vec<TraceRequest> {
        let request = |ms: &u64| TraceRequest {
            arrival: Nanos(ms * 1_000_000),
            ..TraceRequest::default()
        };
        millis.iter().map(request).collect()
    }

    fn check(millis: &[u64], tick_ms: u64, tells: bool, remark: &str) {
        let times = Times::of(&at(millis));
        assert_eq!(times, Times::InTicks(Duration::from_millis(tick_ms)));
        assert_eq!(times.tell_what_is_at_once(), tells, "{millis:?}");
        let said = times.remark().unwrap_or_default();
        assert!(said.contains(remark), "{said}");
    }

    #[test]
    fn coarse_times_are_told_and_one_time_tells_nothing() {
        check(&[0, 7, 7, 10_000], 1, true, "");
        check(&[0, 250, 1_000], 250, true, "");
        check(
            &[5_000, 6_000, 6_000, 9_000],
            1_000,
            true,
            "multiples of 1 s",
        );
        check(&[0, 0, 3_000, 9_000], 3_000, true, "multiples of 3 s");
        check(&[0, 0, 0], 0, false, "");
        check(&[], 0, false, "");
        assert!(!Times::Unknown.tell_what_is_at_once());
        assert!(Times::Unknown.remark().is_some());
    }

    #[test]
    fn a_place_in_the_file_is_no_time() {
        assert!(!are_given(&at(&[0, 1, 2, 3])));
        assert!(are_given(&at(&[0, 1, 2, 4])));
        assert!(are_given(&at(&[0, 0])));
    }
}
