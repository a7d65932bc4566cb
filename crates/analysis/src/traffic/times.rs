//! Provenance of request times.

use std::time::Duration;

use headstart_core::figures::counted;
use headstart_core::{Nanos, TraceRequest};

/// Smallest tick of coarse times: a remark says that equal times count as simultaneous.
const COARSE: Duration = Duration::from_secs(1);

/// Time step that readers use per request if there are no times.
const PLACE: Duration = Duration::from_millis(1);

/// Of a log's requests, the least per cent that have a time, for times to be believed in.
const DATED_PERCENT_MIN: u64 = 90;

/// Provenance of request times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampProvenance {
    /// Only in which order.
    Unknown(Why),
    /// All of them.
    Known {
        /// Greatest time that divides all gaps.
        tick: Duration,
        /// Requests with the time of the one before.
        shared: u64,
    },
}

/// Why nothing is known of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too few have one that can be read.
    Dates(Dates),
    /// All have the same.
    OneTime,
}

/// Counts of requests with and without a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    pub(super) requests: u64,
    pub(super) dated: u64,
    /// Requests whose time field does not hold a time.
    pub(super) unread: u64,
}

impl TimestampProvenance {
    /// Classifies the times of requests in order; `dates` counts the requests with a time.
    pub(super) fn of(requests: &[TraceRequest], dates: Dates) -> Self {
        // Times of a few requests would make gaps that are file order for the rest.
        if !dates.are_enough() {
            return Self::Unknown(Why::Dates(dates));
        }
        let between = requests.windows(2);
        // Requests are sorted by time, so no gap is negative.
        let between = between.map(|pair| pair[1].arrival.0 - pair[0].arrival.0);
        let shared = between.clone().filter(|&gap| gap == 0).count() as u64;
        // The greatest common divisor finds ticks of any size, such as a log in tenths of a second.
        let tick = Duration::from_nanos(between.fold(0, divisor));
        // Many requests with one time tell nothing; a single request has no gap to judge by.
        if tick.is_zero() && requests.len() > 1 {
            Self::Unknown(Why::OneTime)
        } else {
            Self::Known { tick, shared }
        }
    }

    /// Whether they say what was computed at once.
    pub(super) fn tell_what_is_at_once(self) -> bool {
        matches!(self, Self::Known { tick, .. } if !tick.is_zero())
    }

    /// Tells the reader why or how far the times cannot be trusted.
    pub(super) fn remark(self) -> Option<String> {
        let why = match self {
            Self::Known { tick, shared } => {
                return (tick >= COARSE && shared > 0).then(|| {
                    format!(
                        "times are no finer than {} s: {} with the time of the one before, taken \
                         to come at once with it",
                        tick.as_secs_f64(),
                        counted(shared, "request")
                    )
                });
            }
            Self::Unknown(Why::OneTime) => "all requests have one and the same time".to_owned(),
            Self::Unknown(Why::Dates(dates)) => dates.complaint(),
        };
        Some(format!("{why}: their order takes the place of times, and durations are left out"))
    }
}

impl Dates {
    /// Of a trace, whose requests have times or have not.
    pub(super) fn of_trace(requests: &[TraceRequest]) -> Self {
        let all = requests.len() as u64;
        // A trace gives times to all of its requests or to none.
        Self { requests: all, dated: if are_given(requests) { all } else { 0 }, unread: 0 }
    }

    /// Whether what is missing can be filled in.
    pub(super) fn are_enough(self) -> bool {
        self.dated > 0 && self.dated * 100 >= self.requests * DATED_PERCENT_MIN
    }

    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.dated += other.dated;
        self.unread += other.unread;
    }

    /// Tells the reader which times were filled in.
    pub(super) fn remark(self) -> Option<String> {
        let without = self.requests - self.dated;
        (self.are_enough() && without > 0).then(|| {
            format!(
                "{} of {} without a time that can be read ({}): taken to come with the one before \
                 in the file",
                without,
                counted(self.requests, "request"),
                match self.unread {
                    0 => "they have none".to_owned(),
                    unread => format!("{unread} have something else for one"),
                }
            )
        })
    }

    fn complaint(self) -> String {
        let expected = "expected RFC 3339, or a number since 1970";
        match (self.dated, self.unread) {
            (0, 0) => "the requests have no times".to_owned(),
            (0, unread) => {
                let those = counted(unread, "request");
                format!("the times of {those} cannot be read ({expected})")
            }
            (dated, _) => {
                let all = counted(self.requests, "request");
                format!("only {dated} of {all} have a time that can be read ({expected})")
            }
        }
    }
}

/// Whether a trace's requests have times of their own: otherwise each comes a millisecond after
/// the one before.
fn are_given(requests: &[TraceRequest]) -> bool {
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
        let request =
            |ms: &u64| TraceRequest { arrival: Nanos(ms * 1_000_000), ..TraceRequest::default() };
        millis.iter().map(request).collect()
    }

    fn dates(requests: u64, dated: u64, unread: u64) -> Dates {
        Dates { requests, dated, unread }
    }

    fn check(millis: &[u64], tick_ms: u64, shared: u64, remark: &str) {
        let len = millis.len() as u64;
        let times = TimestampProvenance::of(&at(millis), dates(len, len, 0));
        let tick = Duration::from_millis(tick_ms);
        assert_eq!(times, TimestampProvenance::Known { tick, shared });
        assert_eq!(times.tell_what_is_at_once(), tick_ms > 0, "{millis:?}");
        let said = times.remark().unwrap_or_default();
        assert!(said.contains(remark), "{said}");
        assert_eq!(said.is_empty(), remark.is_empty(), "{said}");
    }

    #[test]
    fn coarse_times_are_told_where_requests_share_one() {
        check(&[0, 7, 7, 10_000], 1, 1, "");
        check(&[0, 250, 1_000], 250, 0, "");
        check(&[0, 7_000, 14_000], 7_000, 0, "");
        check(
            &[5_000, 6_000, 6_000, 9_000],
            1_000,
            1,
            "no finer than 1 s: 1 request with the time",
        );
        check(&[0, 0, 3_000, 9_000], 3_000, 1, "no finer than 3 s");
        check(&[5], 0, 0, "");
    }

    fn check_unknown(times: TimestampProvenance, remark: &str) {
        assert!(!times.tell_what_is_at_once());
        let said = times.remark().unwrap_or_default();
        assert!(said.starts_with(remark), "{said}");
    }

    #[test]
    fn why_there_are_no_times_is_said() {
        let of = |dates| TimestampProvenance::of(&at(&[0, 1, 2]), dates);
        check_unknown(of(dates(3, 0, 0)), "the requests have no times: their order");
        check_unknown(of(dates(3, 0, 3)), "the times of 3 requests cannot be read");
        check_unknown(of(dates(3, 2, 1)), "only 2 of 3 requests have a time");
        let one = TimestampProvenance::of(&at(&[0, 0, 0]), dates(3, 3, 0));
        check_unknown(one, "all requests have one and the same time");
    }

    #[test]
    fn a_few_missing_times_are_filled_in_and_counted() {
        let few = dates(302, 300, 2);
        assert!(few.are_enough());
        let said = few.remark().expect("two are missing");
        assert!(said.starts_with("2 of 302 requests without a time"), "{said}");
        assert_eq!(dates(302, 302, 0).remark(), None);
        assert!(!dates(10, 8, 0).are_enough() && !dates(0, 0, 0).are_enough());
    }

    #[test]
    fn a_place_in_the_file_is_no_time() {
        assert!(!are_given(&at(&[0, 1, 2, 3])));
        assert!(are_given(&at(&[0, 1, 2, 4])));
        assert!(are_given(&at(&[0, 0])));
    }
}
