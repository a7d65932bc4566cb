//! Thinning a trace by session: each is kept whole or dropped whole.
//!
//! Dropping single requests would cut what a conversation finds of its own earlier turns, and
//! with it most of the hits. A session's fate is a seeded hash of its id, so it does not depend
//! on the order of the requests, and what a smaller scale keeps, a larger one keeps too.
//! Arrivals stay as they are: a quarter of the sessions is about a quarter of the load.
//!
//! What sessions share with one another (a system prompt) is found less often than before, by
//! as much as fewer sessions share it.
//!
//! A request without a session is judged by its last block, which only an equal prompt has, and
//! one without blocks by its number: such traces are thinned request by request, and lose hits.
//! Infer their sessions first.

use headstart_core::{Rng, TraceRequest};

/// A random choice of sessions to keep, always the same for a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    scale: f64,
    session_key: u64,
    block_key: u64,
    number_key: u64,
}

impl Sample {
    /// Keeps about `scale` of the sessions; which ones, `seed` says. `None` unless
    /// `0 < scale ≤ 1`.
    #[must_use]
    pub fn new(scale: f64, seed: u64) -> Option<Self> {
        let is_share = scale > 0.0 && scale <= 1.0;
        // A key per kind, so that equal ids of different kinds are judged independently.
        let mut keys = Rng::new(seed);
        is_share.then(|| Self {
            scale,
            session_key: keys.next_u64(),
            block_key: keys.next_u64(),
            number_key: keys.next_u64(),
        })
    }

    /// Whether `request`, the trace's `number`th from 0, stays.
    #[must_use]
    pub fn keeps(&self, number: u64, request: &TraceRequest) -> bool {
        let last_run = request.blocks.runs().last();
        let hashed = match (request.session, last_run) {
            (Some(session), _) => self.session_key ^ session.0,
            (None, Some(run)) => self.block_key ^ (run.start + u64::from(run.count - 1)),
            (None, None) => self.number_key ^ number,
        };
        // Below 1 always, so a scale of 1 keeps everything.
        Rng::new(hashed).next_f64() < self.scale
    }

    /// The requests that stay, in order; errors stay too.
    pub fn thin<E>(
        self,
        requests: impl Iterator<Item = Result<TraceRequest, E>>,
    ) -> impl Iterator<Item = Result<TraceRequest, E>> {
        let numbered = (0..).zip(requests);
        let kept = numbered.filter(move |(number, request)| match request {
            Ok(request) => self.keeps(*number, request),
            Err(_) => true,
        });
        kept.map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use headstart_core::SessionId;

    use super::*;

    /// 4,000 sessions of one to five turns, interleaved; every tenth request has no session.
    fn trace() -> Vec<TraceRequest> {
        let mut rng = Rng::new(3);
        let mut requests = Vec::new();
        for session in 0..4000 {
            for turn in 0..=rng.below(5) {
                let block = requests.len() as u64;
                requests.push(TraceRequest {
                    blocks: [block].into_iter().collect(),
                    session: (!block.is_multiple_of(10)).then_some(SessionId(session)),
                    turn: turn as u16,
                    ..TraceRequest::default()
                });
            }
        }
        rng.shuffle(&mut requests);
        requests
    }

    fn thinned(requests: &[TraceRequest], scale: f64, seed: u64) -> Vec<TraceRequest> {
        let sample = Sample::new(scale, seed).expect("a share");
        let requests = requests.iter().cloned().map(Ok::<_, ()>);
        sample.thin(requests).map(Result::unwrap).collect()
    }

    fn sizes(requests: &[TraceRequest]) -> BTreeMap<SessionId, usize> {
        let mut sizes = BTreeMap::new();
        for session in requests.iter().filter_map(|request| request.session) {
            *sizes.entry(session).or_insert(0) += 1;
        }
        sizes
    }

    fn check(scale: f64, seed: u64) {
        let all = trace();
        let kept = thinned(&all, scale, seed);
        assert_eq!(kept, thinned(&all, scale, seed), "the same seed, the same");
        for (whole, part) in [(sizes(&all).len(), sizes(&kept).len()), (all.len(), kept.len())] {
            let share = part as f64 / whole as f64;
            // Five standard deviations of a draw of 4,000, in order of requests.
            let slack = 5.0 * (scale * (1.0 - scale) / 4000.0).sqrt();
            assert!((share - scale).abs() <= slack, "{share} of {scale}");
        }
        let whole = sizes(&all);
        for (session, size) in sizes(&kept) {
            assert_eq!(size, whole[&session], "{session:?} is cut");
        }
    }

    #[test]
    fn sessions_are_kept_or_dropped_whole_at_about_the_scale() {
        for scale in [0.01, 0.25, 0.5, 0.9] {
            check(scale, 1);
            check(scale, 2);
        }
    }

    #[test]
    fn a_smaller_scale_keeps_a_part_of_a_larger_one() {
        let all = trace();
        let blocks = |scale, seed| -> BTreeSet<u64> {
            let kept = thinned(&all, scale, seed);
            kept.iter().flat_map(|r| r.blocks.iter()).collect()
        };
        let (quarter, half) = (blocks(0.25, 1), blocks(0.5, 1));
        assert!(quarter.is_subset(&half) && quarter.len() < half.len());
        assert!(!blocks(0.25, 2).is_subset(&half), "another seed, another part");
    }

    #[test]
    fn a_scale_of_one_keeps_all_and_the_order() {
        let all = trace();
        assert_eq!(thinned(&all, 1.0, 1), all);
    }

    #[test]
    fn only_shares_are_scales() {
        for scale in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Sample::new(scale, 1), None, "{scale}");
        }
    }

    #[test]
    fn errors_pass_and_requests_without_blocks_are_thinned_too() {
        let bare = (0..1000).map(|number| match number {
            500 => Err("bad line"),
            _ => Ok(TraceRequest::default()),
        });
        let sample = Sample::new(0.5, 1).expect("a share");
        let kept: Vec<_> = sample.thin(bare).collect();
        assert!((400..600).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept.iter().filter(|request| request.is_err()).count(), 1);
    }
}
