//! Second step of a choice: how well each candidate suits, in `[0, 1]`, more is better.
//!
//! | scorer | formula |
//! |---|---|
//! | [`Prefix`] | (device tokens + 0.8 · tokens in lower tiers only) / prompt tokens |
//! | [`QueueDepth`] | (max − d) / (max − min), d = requests without a first token |
//! | [`ReportedQueue`] | the same, d = requests that wait by the replica's own report |
//! | [`KvFree`] | 1 − KV utilisation |
//! | [`Cost`] | − predicted TTFT and what it costs others, in seconds: not in `[0, 1]` |
//! | [`Home`] | 1 for the replica of the conversation's last turn, unless that is saturated |
//! | [`InFlightScorer`] | (max − w) / (max − min), w = requests, then prefill tokens as fraction |
//!
//! Doubtful tokens count half: see [`DOUBTFUL_WEIGHT`]. A min-max score tells the order, not the
//! distance: one waiting request against none counts as much as a hundred against none.
//!
//! Source: llm-d's prefix, queue and KV-utilisation scorers and its tier weights. Differences:
//! counted in tokens, so that replicas of different block sizes compare; the router's own
//! reservations count before any report. [`InFlightScorer`] is least outstanding requests, with
//! ties broken by the prompt tokens to compute.

mod cost;

use crate::filter::{Filter, SaturationFilter};
use crate::request::RouteRequest;
use crate::view::ReplicaView;

pub use cost::Cost;
pub(crate) use cost::{predicted_ttft_s, work_s};

/// Worth of a token that must be loaded from a lower tier first, against one on the device.
/// Published value (llm-d, for host memory).
pub const LOWER_TIER_WEIGHT: f64 = 0.8;

/// Worth of a doubtful token against a trusted one. Ours: of what a replica held before its events
/// were lost, an unknown part is gone.
pub const DOUBTFUL_WEIGHT: f64 = 0.5;

/// KV utilisation of a replica that does not say: neither favoured nor shunned.
pub const UNKNOWN_KV_USAGE: f64 = 0.5;

/// Rates candidates.
pub trait Scorer: Send {
    /// One score in `[0, 1]` per candidate, in their order. The candidates passed all filters and
    /// there is at least one.
    fn score(&self, candidates: &[ReplicaView], request: &RouteRequest<'_>) -> Vec<f64>;
}

/// The share of the prompt that need not be computed.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    /// Leading tokens of the prompt that count, as if it ended there.
    pub at_most: usize,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { at_most: usize::MAX }
    }
}

impl Scorer for Prefix {
    fn score(&self, candidates: &[ReplicaView], request: &RouteRequest<'_>) -> Vec<f64> {
        let total = request.prompt_tokens().min(self.at_most).max(1) as f64;
        let worth = |view: &ReplicaView| {
            let device = view.device_tokens.min(self.at_most);
            // `at_most` cuts both, and device tokens are never more than those of any tier.
            let lower = view.any_tier_tokens.min(self.at_most) - device;
            // Loading from a lower tier costs less than computing, but more than nothing.
            let worth = device as f64 + LOWER_TIER_WEIGHT * lower as f64;
            worth * trust(view) / total
        };
        candidates.iter().map(worth).collect()
    }
}

/// The mean weight of a held token.
fn trust(view: &ReplicaView) -> f64 {
    let held = view.any_tier_tokens.max(1) as f64;
    let doubtful = view.any_tier_tokens.saturating_sub(view.trusted_tokens) as f64;
    1.0 - (1.0 - DOUBTFUL_WEIGHT) * doubtful / held
}

/// The shortest queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueDepth;

impl Scorer for QueueDepth {
    fn score(&self, candidates: &[ReplicaView], _request: &RouteRequest<'_>) -> Vec<f64> {
        fewest(candidates, |view| view.queue_depth as f64)
    }
}

/// The shortest queue, as the replicas themselves tell: what was sent there since is not seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportedQueue;

impl Scorer for ReportedQueue {
    fn score(&self, candidates: &[ReplicaView], _request: &RouteRequest<'_>) -> Vec<f64> {
        fewest(candidates, |view| view.reported_waiting.unwrap_or(0) as f64)
    }
}

/// The most free KV memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvFree;

impl Scorer for KvFree {
    fn score(&self, candidates: &[ReplicaView], _request: &RouteRequest<'_>) -> Vec<f64> {
        let free = |view: &ReplicaView| 1.0 - view.kv_usage.unwrap_or(UNKNOWN_KV_USAGE);
        candidates.iter().map(free).collect()
    }
}

/// The fewest requests; among equals, the fewest prompt tokens to compute.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFlightScorer;

impl Scorer for InFlightScorer {
    fn score(&self, candidates: &[ReplicaView], _request: &RouteRequest<'_>) -> Vec<f64> {
        let tokens = candidates.iter().map(|view| view.prefill_tokens);
        // One more than any, so that all tokens together weigh less than one request.
        let scale = tokens.max().unwrap_or(0) as f64 + 1.0;
        fewest(candidates, |view| view.requests as f64 + view.prefill_tokens as f64 / scale)
    }
}

/// The replica of the conversation's last turn, unless it is saturated.
///
/// Leaving it costs the tokens by which it leads: another replica computes them again. Staying
/// costs the tokens in front. So a replica is saturated for a conversation when there are more in
/// front than it leads by, and more than an engine's step besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Home;

/// Prompt tokens in front that are no reason to leave: what an engine computes in one step by
/// default (vLLM, 8,192 for a server), some tenths of a second.
pub const HOME_SLACK: usize = 8_192;

impl Scorer for Home {
    fn score(&self, candidates: &[ReplicaView], request: &RouteRequest<'_>) -> Vec<f64> {
        let is_home = |view: &ReplicaView| {
            let is_near = |lead| view.prefill_tokens <= lead + HOME_SLACK;
            view.home_lead.is_some_and(is_near) && SaturationFilter.admits(view, request)
        };
        let score = |view| f64::from(u8::from(is_home(view)));
        candidates.iter().map(score).collect()
    }
}

/// 1 for the least, 0 for the most, linear between; 1 for all when they are equal.
fn fewest(candidates: &[ReplicaView], measure: impl Fn(&ReplicaView) -> f64) -> Vec<f64> {
    let values: Vec<f64> = candidates.iter().map(measure).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Equal values would divide by 0.
    if most <= least {
        return vec![1.0; values.len()];
    }
    let scaled = values.iter().map(|value| (most - value) / (most - least));
    scaled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::ReplicaId;

    fn view(change: impl Fn(&mut ReplicaView)) -> ReplicaView {
        let mut view = ReplicaView::idle(ReplicaId(0));
        change(&mut view);
        view
    }

    /// Scores for a prompt of 100 tokens.
    fn check(scorer: &dyn Scorer, candidates: &[ReplicaView], expected: &[f64]) {
        let request = RouteRequest { tokens: Some(&[0; 100]), ..RouteRequest::default() };
        let scores = scorer.score(candidates, &request);
        assert_eq!(scores.len(), expected.len());
        for (score, expected) in scores.iter().zip(expected) {
            assert!((score - expected).abs() < 1e-9, "{scores:?}");
        }
    }

    #[test]
    fn the_prefix_counts_in_tokens_and_by_tier() {
        let held = |device, any, trusted| {
            view(|view| {
                view.device_tokens = device;
                (view.any_tier_tokens, view.trusted_tokens) = (any, trusted);
            })
        };
        let (hot, warm) = (held(50, 50, 50), held(10, 60, 60));
        let prefix = Prefix::default();
        check(&prefix, &[hot, warm, view(|_| ())], &[0.5, 0.5, 0.0]);
        check(&prefix, &[held(50, 50, 0), held(40, 40, 20)], &[0.25, 0.3]);
        let leading = Prefix { at_most: 20 };
        check(&leading, &[hot, warm, view(|_| ())], &[1.0, 0.9, 0.0]);
    }

    #[test]
    fn queues_compare_among_the_candidates() {
        let depth = |depth| view(|view| view.queue_depth = depth);
        check(&QueueDepth, &[depth(4), depth(1), depth(2)], &[0.0, 1.0, 2.0 / 3.0]);
        check(&QueueDepth, &[depth(4), depth(4)], &[1.0, 1.0]);
    }

    #[test]
    fn a_reported_queue_is_what_the_replica_says() {
        let says = |waiting, depth| {
            view(|view| (view.reported_waiting, view.queue_depth) = (waiting, depth))
        };
        let candidates = [says(Some(2), 9), says(None, 5), says(Some(1), 0)];
        check(&ReportedQueue, &candidates, &[0.0, 1.0, 0.5]);
    }

    #[test]
    fn unknown_kv_memory_is_in_the_middle() {
        let usage = |usage| view(|view| view.kv_usage = usage);
        check(&KvFree, &[usage(Some(0.9)), usage(None), usage(Some(0.0))], &[0.1, 0.5, 1.0]);
    }

    #[test]
    fn requests_come_before_tokens() {
        let busy = |requests, tokens| {
            view(|view| (view.requests, view.prefill_tokens) = (requests, tokens))
        };
        let scorer = InFlightScorer;
        check(&scorer, &[busy(1, 9), busy(2, 0), busy(1, 9)], &[1.0, 0.0, 1.0]);
        check(&scorer, &[busy(1, 9), busy(1, 0), busy(1, 9)], &[0.0, 1.0, 0.0]);
    }

    #[test]
    fn a_conversation_stays_until_its_replica_is_saturated() {
        let view = |home_lead, queue_depth, prefill_tokens| ReplicaView {
            home_lead,
            queue_depth,
            prefill_tokens,
            ..ReplicaView::idle(ReplicaId(1))
        };
        let stays = |view: ReplicaView| Home.score(&[view], &RouteRequest::default()) == [1.0];
        assert!(!stays(view(None, 0, 0)), "another replica");
        assert!(stays(view(Some(0), 3, HOME_SLACK)), "a step in front");
        assert!(stays(view(Some(9_000), 50, HOME_SLACK + 9_000)), "no more than it leads by");
        assert!(!stays(view(Some(7_000), 50, HOME_SLACK + 7_001)));
        let full = ReplicaView { kv_usage: Some(0.95), ..view(Some(9_000), 1, 0) };
        assert!(!stays(full), "no memory, and a queue for it");
    }
}
