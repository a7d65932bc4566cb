//! The latest requests, and sums over all.

use std::collections::VecDeque;
use std::sync::Arc;

use headstart_core::{ReplicaId, RouteKey};
use headstart_index_sync::clock::unix_seconds;
use headstart_insight::loss::{FirstEviction, HotPrefixes, Outlook, WaterfallTally};
use headstart_insight::{BucketTokens, Waterfall};
use headstart_router::Candidate;

use super::AnswerFacts;

/// Requests that are remembered one by one: minutes of a busy gateway, some megabytes.
const RECORDS: usize = 4_096;

/// Tenants with a waterfall of their own, those of most requests; further ones share a row.
const TENANTS: usize = 1_000;

/// Models with a waterfall of their own.
const MODELS: usize = 100;

/// Candidates of a decision that are remembered.
const CANDIDATES: usize = 8;

/// Prefixes that are followed.
const PREFIXES: usize = 100;

/// One request that was answered.
#[derive(Clone, Debug, Default)]
pub struct RequestRecord {
    /// The answer's id, such as `chatcmpl-…`.
    pub id: String,
    /// The client's own id of it (`x-request-id`).
    pub request_id: Option<String>,
    /// When it was explained, seconds since 1970.
    pub at_unix_s: f64,
    /// The model asked for.
    pub model: String,
    /// A keyed tag of its tenant; none without a salt.
    pub tenant: Option<String>,
    /// The replica that computed the request.
    pub replica: u32,
    /// Candidates of the choice: the chosen one, and the seven others of the highest scores.
    pub candidates: Vec<CandidateRecord>,
    /// Length of the prompt.
    pub prompt_tokens: u32,
    /// Tokens that the replica was expected to hold; none where the prompt's tokens were not known.
    pub predicted_cached_tokens: Option<u32>,
    /// Tokens that were not computed; none where the engine does not say.
    pub cached_tokens: Option<u32>,
    /// Predicted time to the first token.
    pub predicted_ttft_s: Option<f64>,
    /// Time to the first token; none where only the whole answer came.
    pub ttft_s: Option<f64>,
    /// Prompt tokens by bucket; none where the engine does not say what was cached.
    pub split: Option<BucketTokens>,
    /// Certainty of the split, 0 to 1.
    pub certainty: f32,
    /// Of what was evicted, where something was.
    pub evicted: Option<FirstEviction>,
}

impl RequestRecord {
    /// Of a request that `replica` answered, as far as its answer tells.
    pub(super) fn of(replica: ReplicaId, answered: &AnswerFacts<'_>) -> Self {
        // Engines may leave the id out of an answer. The client's own id still finds the request.
        let id = answered.id.or(answered.request_id).unwrap_or_default();
        Self {
            id: id.to_owned(),
            request_id: answered.request_id.map(str::to_owned),
            at_unix_s: unix_seconds(),
            model: answered.model.to_owned(),
            replica: replica.0,
            ttft_s: answered.ttft_s,
            ..Self::default()
        }
    }
}

/// One replica at a decision.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct CandidateRecord {
    /// The replica.
    pub replica: u32,
    /// Leading tokens that it was thought to hold.
    pub overlap_tokens: u32,
    /// Prompt tokens in front of the request there.
    pub prefill_tokens: u32,
    /// Its score.
    pub score: f64,
    /// Predicted time to the first token there.
    pub predicted_ttft_s: f64,
}

impl From<&Candidate> for CandidateRecord {
    fn from(candidate: &Candidate) -> Self {
        Self {
            replica: candidate.replica.0,
            overlap_tokens: candidate.overlap_tokens as u32,
            prefill_tokens: u32::try_from(candidate.prefill_tokens).unwrap_or(u32::MAX),
            score: candidate.score,
            predicted_ttft_s: candidate.ttft_s,
        }
    }
}

/// The chosen one of the candidates and those of the highest scores, in their order.
pub(super) fn foremost(chosen: ReplicaId, candidates: &[Candidate]) -> Vec<CandidateRecord> {
    let mut kept: Vec<&Candidate> = candidates.iter().collect();
    // Most fleets have fewer replicas, and then nothing needs sorting.
    if candidates.len() > CANDIDATES {
        let is_other = |one: &Candidate| one.replica != chosen;
        // Stable: of many equal scores the first ones.
        kept.sort_by(|one, other| {
            let by_score = other.score.total_cmp(&one.score);
            is_other(one).cmp(&is_other(other)).then(by_score)
        });
        kept.truncate(CANDIDATES);
        let is_kept = |one: &&Candidate| kept.iter().any(|kept| kept.replica == one.replica);
        kept = candidates.iter().filter(is_kept).collect();
    }
    kept.into_iter().map(Into::into).collect()
}

/// The latest answered requests, and sums over all of them.
#[derive(Default)]
pub(super) struct RequestHistory {
    latest: VecDeque<Arc<RequestRecord>>,
    pub(super) sums: InsightSums,
}

/// Sums over all requests.
#[derive(Clone)]
pub(super) struct InsightSums {
    pub(super) total: Waterfall,
    pub(super) tenants: WaterfallTally<String>,
    pub(super) models: WaterfallTally<String>,
    pub(super) prefixes: HotPrefixes,
    pub(super) outlook: Outlook,
}

impl Default for InsightSums {
    fn default() -> Self {
        Self {
            total: Waterfall::default(),
            tenants: WaterfallTally::new(TENANTS),
            models: WaterfallTally::new(MODELS),
            prefixes: HotPrefixes::new(PREFIXES),
            outlook: Outlook::default(),
        }
    }
}

impl RequestHistory {
    /// Adds a request that begins with the block `prefix`, where that is known.
    pub(super) fn add(&mut self, record: RequestRecord, prefix: Option<RouteKey>) {
        let sums = &mut self.sums;
        if let Some(split) = &record.split {
            sums.total.add(split);
            sums.models.add(&record.model[..], split);
            let tenant = record.tenant.as_deref();
            sums.tenants.add(tenant.unwrap_or_default(), split);
            // A prompt without known blocks has no prefix to count.
            if let Some(prefix) = prefix {
                sums.prefixes.add(prefix, split);
            }
        }
        let outlook = record.predicted_cached_tokens.zip(record.cached_tokens);
        if let Some((predicted, cached)) = outlook {
            let (predicted, cached) = (f64::from(predicted), f64::from(cached));
            sums.outlook.cached_tokens.add(predicted, cached);
        }
        if let (Some(predicted), Some(ttft_s)) = (record.predicted_ttft_s, record.ttft_s) {
            sums.outlook.ttft_s.add(predicted, ttft_s);
        }
        if self.latest.len() == RECORDS {
            self.latest.pop_front();
        }
        self.latest.push_back(Arc::new(record));
    }

    pub(super) fn recent(&self, limit: usize) -> Vec<Arc<RequestRecord>> {
        self.latest.iter().rev().take(limit).cloned().collect()
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<RequestRecord>> {
        let is_it = |record: &&Arc<RequestRecord>| {
            record.id == id || record.request_id.as_deref() == Some(id)
        };
        // The newest first, because a client may reuse an id. Operators ask for single requests, so
        // a scan is fast enough.
        self.latest.iter().rev().find(is_it).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_candidates_the_chosen_and_the_best_are_remembered() {
        for (count, scores) in [(3, 1), (8, 5), (9, 1), (100, 1), (100, 7), (100, 1000)] {
            let candidate = |replica: u32| Candidate {
                replica: ReplicaId(replica),
                overlap_tokens: 0,
                prefill_tokens: 0,
                score: f64::from(replica * 7919 % scores),
                ttft_s: 0.0,
            };
            let all: Vec<_> = (0..count).map(candidate).collect();
            for chosen in [0, count / 2, count - 1] {
                let kept = foremost(ReplicaId(chosen), &all);
                assert_eq!(kept.len(), all.len().min(CANDIDATES), "{count} {scores} {chosen}");
                assert!(kept.iter().any(|one| one.replica == chosen));
                assert!(kept.is_sorted_by_key(|one| one.replica));
                let worst = kept.iter().filter(|one| one.replica != chosen);
                let worst = worst.map(|one| one.score).fold(f64::INFINITY, f64::min);
                let is_kept =
                    |one: &Candidate| kept.iter().any(|record| record.replica == one.replica.0);
                let missed = all.iter().filter(|one| one.score > worst && !is_kept(one));
                assert_eq!(missed.count(), 0, "{count} {scores} {chosen}");
            }
        }
    }

    #[test]
    fn equal_scores_leave_room_for_higher_ones_behind_them() {
        let candidate = |replica: u32| Candidate {
            replica: ReplicaId(replica),
            overlap_tokens: 0,
            prefill_tokens: 0,
            score: if replica < 8 { 5.0 } else { 9.0 },
            ttft_s: 0.0,
        };
        let all: Vec<_> = (0..10).map(candidate).collect();
        let kept = foremost(ReplicaId(9), &all);
        let kept: Vec<u32> = kept.iter().map(|one| one.replica).collect();
        assert_eq!(kept, [0, 1, 2, 3, 4, 5, 8, 9]);
    }
}
