//! Sessions into one stream of requests, in order of time.
//!
//! Some traces record sessions one by one, each with times of its own. What is between them is
//! not recorded, so it is chosen ([`Arrivals`]):
//!
//! ```text
//! file order   s0 ─a──b─c─ s1 ─a─b─ s2 …         a session begins with the last request of
//!                                                  the one before
//! drawn        s0 ─a──b─────c────                  starts are drawn; what overlaps is merged
//!                    s1 ─a─b────
//!                         s2 ─a …
//! ```
//!
//! Only the sessions under way are held: one in file order; with drawn starts those that the
//! starts make overlap, within [`OPEN_BYTES_MAX`].
//!
//! Requests of one session keep their order; between sessions equal times go by file order.

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_core::{Nanos, Rng, TraceRequest};

/// Memory for sessions under way, estimated: a thousand times what the longest agent session
/// needs. More are an error, because a trace that starts all at once would otherwise be held
/// whole.
pub const OPEN_BYTES_MAX: usize = 256 << 20;

/// When the sessions of a trace start that does not say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// One after another in file order: a session starts when the last request of the one
    /// before arrives.
    #[default]
    FileOrder,
    /// A Poisson process: the first session starts at 0, the others after exponential gaps.
    Poisson {
        /// Mean time between two starts.
        mean_gap: Duration,
        /// Fixes every gap.
        seed: u64,
    },
}

/// A session as its format hands it over.
pub(crate) struct RecordedSession<'a> {
    /// The requests in order of time, which is counted from the session's start; or what is
    /// wrong with the next one, which ends it.
    pub(crate) requests: Box<dyn Iterator<Item = Result<TraceRequest, String>> + 'a>,
    /// Estimated memory until its last request.
    pub(crate) bytes: usize,
}

/// The sessions under way.
pub(crate) struct Schedule<'a> {
    gaps: Option<(Rng, f64)>,
    next_start: Nanos,
    next_number: u64,
    open_bytes: usize,
    /// By the time of the next request, then by the session's place in the file.
    open: BTreeMap<(Nanos, u64), OpenSession<'a>>,
}

struct OpenSession<'a> {
    next: Result<TraceRequest, String>,
    session: RecordedSession<'a>,
    start: Nanos,
    line: usize,
}

impl<'a> Schedule<'a> {
    pub(crate) fn new(arrivals: Arrivals) -> Self {
        let gaps = match arrivals {
            Arrivals::FileOrder => None,
            Arrivals::Poisson { mean_gap, seed } => Some((Rng::new(seed), mean_gap.as_secs_f64())),
        };
        Self { gaps, next_start: Nanos(0), next_number: 0, open_bytes: 0, open: BTreeMap::new() }
    }

    /// Starts the session that `line` holds.
    ///
    /// # Errors
    /// When the sessions under way need more memory than they may.
    pub(crate) fn add(
        &mut self,
        mut session: RecordedSession<'a>,
        line: usize,
    ) -> Result<(), String> {
        // Before the draw: a session without requests leaves the other starts as they are.
        let Some(next) = session.requests.next() else {
            return Ok(());
        };
        // A session alone is accepted at any size, because it must be held in any case.
        if session.bytes > OPEN_BYTES_MAX - self.open_bytes && !self.open.is_empty() {
            return Err(format!(
                "{} sessions under way at once need more than {} MiB; draw their starts further \
                 apart",
                self.open.len(),
                OPEN_BYTES_MAX >> 20
            ));
        }
        self.open_bytes = self.open_bytes.saturating_add(session.bytes);
        let start = self.next_start;
        if let Some((rng, mean)) = &mut self.gaps {
            let gap = -mean.max(0.0) * (1.0 - rng.next_f64()).ln();
            self.next_start = start + Duration::try_from_secs_f64(gap).unwrap_or(Duration::MAX);
        }
        let number = self.next_number;
        self.next_number += 1;
        let open = OpenSession { next, session, start, line };
        self.open.insert((open.time(), number), open);
        Ok(())
    }

    /// The next request, unless a session that was not read yet may come before it; errors
    /// come with the line of their session. After the last session `is_last`.
    pub(crate) fn next(&mut self, is_last: bool) -> Option<Result<TraceRequest, (usize, String)>> {
        let entry = self.open.first_entry()?;
        let (time, number) = *entry.key();
        // The next session begins at `next_start` at the earliest, possibly before this request.
        if !is_last && self.gaps.is_some() && time > self.next_start {
            return None;
        }
        let OpenSession { next, mut session, start, line } = entry.remove();
        if self.gaps.is_none() {
            self.next_start = self.next_start.max(time);
        }
        // An error ends its session.
        let following = session.requests.next().filter(|_| next.is_ok());
        match following {
            Some(next) => {
                let open = OpenSession { next, session, start, line };
                // Recorded times may go back within a session; its order wins.
                self.open.insert((open.time().max(time), number), open);
            }
            None => self.open_bytes = self.open_bytes.saturating_sub(session.bytes),
        }
        Some(match next {
            Ok(mut request) => {
                // The key, which unlike the recorded time never goes back.
                request.arrival = time;
                Ok(request)
            }
            Err(reason) => Err((line, reason)),
        })
    }
}

impl OpenSession<'_> {
    /// When the next request arrives; an error comes out at once.
    fn time(&self) -> Nanos {
        match &self.next {
            Ok(request) => self.start + Duration::from_nanos(request.arrival.0),
            Err(_) => self.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::SessionId;

    use super::*;

    /// A session whose requests come at `times`, in seconds; a negative one is an error.
    fn session<'a>(number: u64, times: &[i64], bytes: usize) -> RecordedSession<'a> {
        let requests: Vec<_> = times
            .iter()
            .map(|&seconds| match u64::try_from(seconds) {
                Ok(seconds) => Ok(TraceRequest {
                    arrival: Nanos(seconds * 1_000_000_000),
                    session: Some(SessionId(number)),
                    ..TraceRequest::default()
                }),
                Err(_) => Err("bad".to_owned()),
            })
            .collect();
        RecordedSession { requests: Box::new(requests.into_iter()), bytes }
    }

    /// All requests as (session, time in seconds), read as a reader reads them.
    fn run(arrivals: Arrivals, sessions: &[&[i64]]) -> (Vec<(u64, f64)>, usize) {
        let mut schedule = Schedule::new(arrivals);
        let mut unread = (0..).zip(sessions);
        let (mut got, mut most_open, mut is_last) = (Vec::new(), 0, false);
        loop {
            match schedule.next(is_last) {
                Some(Ok(request)) => {
                    let seconds = request.arrival.0 as f64 / 1e9;
                    got.push((request.session.expect("set").0, seconds));
                }
                Some(Err((line, _))) => got.push((line as u64, f64::NAN)),
                None if is_last => return (got, most_open),
                None => match unread.next() {
                    Some((number, times)) => {
                        let added = schedule.add(session(number, times, 1), number as usize);
                        added.expect("little");
                    }
                    None => is_last = true,
                },
            }
            most_open = most_open.max(schedule.open.len());
        }
    }

    #[test]
    fn in_file_order_a_session_begins_with_the_end_of_the_one_before() {
        let (got, most_open) = run(Arrivals::FileOrder, &[&[0, 5], &[], &[1, 2, 2], &[0]]);
        let expected = [(0, 0.0), (0, 5.0), (2, 6.0), (2, 7.0), (2, 7.0), (3, 7.0)];
        assert_eq!(got, expected);
        assert_eq!(most_open, 1);
    }

    const SESSION: &[i64] = &[0, 10, 20];

    fn drawn(mean_s: u64, seed: u64) -> (Vec<(u64, f64)>, usize) {
        let arrivals = Arrivals::Poisson { mean_gap: Duration::from_secs(mean_s), seed };
        run(arrivals, &[SESSION; 1000])
    }

    #[test]
    fn drawn_starts_are_merged_by_time_and_only_what_overlaps_is_held() {
        let (got, most_open) = drawn(5, 1);
        assert!(got.is_sorted_by(|a, b| a.1 <= b.1));
        for session in 0..1000 {
            let times: Vec<_> = got.iter().filter(|r| r.0 == session).map(|r| r.1).collect();
            assert_eq!(times.len(), SESSION.len());
            assert!((times[2] - times[0] - 20.0).abs() < 1e-6, "{times:?}");
        }
        // Twenty seconds are four mean gaps.
        assert!((5..20).contains(&most_open), "{most_open}");
    }

    #[test]
    fn starts_are_exponential_and_fixed_by_the_seed() {
        let (got, _) = drawn(5, 1);
        let mut starts: Vec<f64> = vec![f64::INFINITY; 1000];
        for &(session, time) in &got {
            let start = &mut starts[session as usize];
            *start = start.min(time);
        }
        assert_eq!(starts[0], 0.0);
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let short = gaps.iter().filter(|gap| **gap < 5.0 * f64::ln(2.0)).count();
        assert!((4.5..5.5).contains(&mean), "{mean}");
        assert!((450..550).contains(&short), "half is below the median: {short}");
        assert_eq!(drawn(5, 1), drawn(5, 1));
        assert_ne!(drawn(5, 1), drawn(5, 2));
    }

    #[test]
    fn an_error_ends_its_session_and_no_other() {
        let (got, _) = run(Arrivals::FileOrder, &[&[0, -1, 5], &[1]]);
        assert_eq!((got.len(), got[0], got[2]), (3, (0, 0.0), (1, 1.0)));
        assert!(got[1].1.is_nan());
    }

    #[test]
    fn too_many_sessions_at_once_are_refused() {
        let mut schedule = Schedule::new(Arrivals::Poisson { mean_gap: Duration::ZERO, seed: 0 });
        let half = OPEN_BYTES_MAX / 2;
        for number in 0..2 {
            let added = schedule.add(session(number, SESSION, half), 0);
            added.expect("as much as there may be");
        }
        let error = schedule.add(session(2, SESSION, half), 0).expect_err("full");
        assert!(error.contains("further apart"), "{error}");
        while schedule.next(true).is_some() {}
        assert_eq!(schedule.open_bytes, 0);
    }
}
