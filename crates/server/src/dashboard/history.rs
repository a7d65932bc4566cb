//! The last quarter of an hour, second by second, so that a page that opens shows what was.

use std::collections::VecDeque;

use super::snapshot::LatelyPart;
use crate::metrics::{FOUND_IN, Totals};

/// Seconds that are kept: a quarter of an hour, 64 bytes each.
pub(super) const POINTS_MAX: usize = 900;

/// Seconds that a point of the times to the first token covers.
const TTFT_S: u64 = 5;

/// Of these points as many as cover the same time: 24 bytes each.
const TTFT_POINTS_MAX: usize = POINTS_MAX / TTFT_S as usize;

/// Seconds that "lately" means.
pub(super) const LATELY_S: usize = 60;

/// The names of a point's numbers.
pub(super) const COLUMNS: [&str; 3 + FOUND_IN.len()] =
    ["at", "requests", "computed", "device", "host", "disk", "remote", "upstream"];

/// One second of history, in the order of [`COLUMNS`]. `at` is its end, seconds since 1970.
pub(super) type HistoryPoint = [u64; COLUMNS.len()];

/// The end of some seconds, since 1970, and of the requests in these the median time to the first
/// token and the 95th percentile, milliseconds.
pub(super) type TtftPoint = [f64; 3];

/// The last seconds.
#[derive(Debug, Default)]
pub(super) struct History {
    ttft: VecDeque<TtftPoint>,
    /// First tokens when the time under way began, and which one that is.
    ttft_from: Option<(u64, Vec<(f64, u64)>)>,
    points: VecDeque<HistoryPoint>,
    /// Totals at the end of each second of the last minute, the oldest first.
    totals: VecDeque<Totals>,
}

impl History {
    /// A second has ended. No two end at the same time, whatever a clock says.
    pub(super) fn end_second(&mut self, at: u64, totals: Totals) {
        let last = self.points.back().map_or(0, |point| point[0]);
        let at = at.max(last + 1);
        if let Some(before) = self.totals.back() {
            let more = |after: u64, before: u64| after.saturating_sub(before);
            let mut point = [0; COLUMNS.len()];
            point[0] = at;
            point[1] = more(totals.requests, before.requests);
            point[2] = more(totals.computed, before.computed);
            for (place, found) in point[3..].iter_mut().enumerate() {
                *found = more(totals.found[place], before.found[place]);
            }
            self.points.push_back(point);
        }
        self.note_first_tokens(at, &totals.first_tokens);
        self.totals.push_back(totals);
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
        if self.totals.len() > LATELY_S + 1 {
            self.totals.pop_front();
        }
    }

    /// Adds a point of the times to the first token where the seconds of one are over.
    fn note_first_tokens(&mut self, at: u64, now: &[(f64, u64)]) {
        let part = at / TTFT_S;
        match &self.ttft_from {
            Some((since, _)) if *since == part => return,
            Some((_, before)) => {
                let [median, most] = [0.5, 0.95].map(|share| quantile(before, now, share));
                if let (Some(median), Some(most)) = (median, most) {
                    self.ttft.push_back([at as f64, median * 1e3, most * 1e3]);
                }
            }
            None => {}
        }
        self.ttft_from = Some((part, now.to_vec()));
        if self.ttft.len() > TTFT_POINTS_MAX {
            self.ttft.pop_front();
        }
    }

    /// Times to the first token in the last `seconds`, the oldest first.
    pub(super) fn ttft(&self, seconds: usize) -> Vec<TtftPoint> {
        let now = self.points.back().map_or(0, |point| point[0]);
        let since = now.saturating_sub(seconds as u64) as f64;
        let points = self.ttft.iter().filter(|point| point[0] > since);
        points.copied().collect()
    }

    /// The last `count` seconds, the oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<HistoryPoint> {
        let skipped = self.points.len().saturating_sub(count);
        self.points.iter().skip(skipped).copied().collect()
    }

    /// Figures of the last minute.
    pub(super) fn lately(&self) -> LatelyPart {
        let (Some(first), Some(last)) = (self.totals.front(), self.totals.back()) else {
            return LatelyPart::default();
        };
        // There is one entry at least, by the check above.
        let seconds = (self.totals.len() - 1).max(1) as f64;
        // Counters only grow, so these differences are not negative.
        let tokens = last.prompt_tokens() - first.prompt_tokens();
        let found = last.cached_tokens() - first.cached_tokens();
        let ttft_ms = |share| {
            let seconds = quantile(&first.first_tokens, &last.first_tokens, share)?;
            Some(seconds * 1e3)
        };
        LatelyPart {
            requests_per_s: (last.requests - first.requests) as f64 / seconds,
            prompt_tokens_per_s: tokens as f64 / seconds,
            hit_rate: (tokens > 0).then(|| found as f64 / tokens as f64),
            ttft_ms_p50: ttft_ms(0.5),
            ttft_ms_p95: ttft_ms(0.95),
        }
    }
}

/// Quantile `share` of the observations between two histogram states, seconds. Interpolates
/// linearly within a bucket; beyond the last bound it returns that bound.
fn quantile(before: &[(f64, u64)], after: &[(f64, u64)], share: f64) -> Option<f64> {
    let count = |place: usize| {
        let earlier = before.get(place).map_or(0, |bucket| bucket.1);
        after[place].1.saturating_sub(earlier) as f64
    };
    let all = after.len().checked_sub(1).map(count)?;
    if all == 0.0 {
        return None;
    }
    let wanted = all * share;
    let place = (0..after.len()).find(|&place| count(place) >= wanted)?;
    let (bound, below) = match place {
        0 => (0.0, 0.0),
        _ => (after[place - 1].0, count(place - 1)),
    };
    let upper = after[place].0;
    if !upper.is_finite() {
        return Some(bound);
    }
    let inside = (wanted - below) / (count(place) - below).max(1.0);
    Some(bound + (upper - bound) * inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64, found: u64, computed: u64) -> Totals {
        Totals {
            requests,
            found: [found, 0, 0, 0, 0],
            computed,
            first_tokens: vec![(0.1, requests / 2), (0.2, requests), (f64::INFINITY, requests)],
            ..Totals::default()
        }
    }

    #[test]
    fn a_point_is_what_one_second_added() {
        let mut history = History::default();
        assert_eq!(history.lately(), LatelyPart::default());
        for second in 0..1000 {
            history.end_second(second, totals(second * 10, second * 60, second * 40));
        }
        let last = history.last(2);
        assert_eq!(last[1], [999, 10, 40, 60, 0, 0, 0, 0]);
        assert_eq!(last.len(), 2);
        assert_eq!(history.last(usize::MAX).len(), POINTS_MAX);
        let lately = history.lately();
        assert_eq!(lately.requests_per_s, 10.0);
        assert_eq!(lately.prompt_tokens_per_s, 100.0);
        assert_eq!(lately.hit_rate, Some(0.6));
        let figures = [lately.ttft_ms_p50, lately.ttft_ms_p95];
        let [median, most] = figures.map(|value| value.expect("observed"));
        assert!((median - 100.0).abs() < 1e-6 && (most - 190.0).abs() < 1e-6, "{median} {most}");
    }

    #[test]
    fn times_to_the_first_token_are_kept_for_as_long() {
        let mut history = History::default();
        for second in 1..=985 {
            // In the first half of each minute.
            let requests = second / 60 * 30 + (second % 60).min(30);
            history.end_second(second, totals(requests * 10, 0, 0));
        }
        let points = history.ttft(POINTS_MAX);
        assert!((80..=100).contains(&points.len()), "half of 180: {}", points.len());
        assert!(points.len() <= TTFT_POINTS_MAX);
        assert!(points.iter().all(|[at, ..]| (at % 5.0) == 0.0 && *at > 85.0));
        let [_, median, most] = points[0];
        assert!((median - 100.0).abs() < 1.0 && (most - 190.0).abs() < 1.0);
        assert_eq!(history.ttft(10).len(), 2);
    }

    #[test]
    fn no_second_is_there_twice() {
        let mut history = History::default();
        for at in [5, 6, 6, 7, 3, 10] {
            history.end_second(at, totals(at, 0, 0));
        }
        let ends: Vec<u64> = history.last(9).iter().map(|point| point[0]).collect();
        assert_eq!(ends, [6, 7, 8, 9, 10]);
    }

    #[test]
    fn without_requests_there_is_no_rate() {
        let mut history = History::default();
        for second in 0..100 {
            history.end_second(second, totals(50, 300, 100));
        }
        let lately = history.lately();
        assert_eq!((lately.requests_per_s, lately.hit_rate), (0.0, None));
        assert_eq!((lately.ttft_ms_p50, lately.ttft_ms_p95), (None, None));
    }
}
