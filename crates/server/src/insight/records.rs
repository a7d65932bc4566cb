//! The latest requests, and sums over all.

use std::collections::VecDeque;
use std::sync::Arc;

use headstart_core::RouteKey;
use headstart_insight::loss::{Evicted, HotPrefixes, Outlook, Tally};
use headstart_insight::{Split, Waterfall};
use headstart_router::Candidate;

/// Requests that are remembered one by one: minutes of a busy gateway, some megabytes.
const RECORDS: usize = 4_096;

/// Tenants with a waterfall of their own; further ones share a row.
const TENANTS: usize = 1_000;

/// Models with a waterfall of their own.
const MODELS: usize = 100;

/// Prefixes that are followed.
const PREFIXES: usize = 100;

/// One request that was answered.
#[derive(Clone, Debug)]
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
    /// Who computed.
    pub replica: u32,
    /// All that the choice was made among.
    pub candidates: Vec<CandidateRecord>,
    /// Length of the prompt.
    pub prompt_tokens: u32,
    /// Tokens that the replica was expected to hold.
    pub predicted_cached_tokens: u32,
    /// Tokens that were not computed; none where the engine does not say.
    pub cached_tokens: Option<u32>,
    /// Predicted time to the first token.
    pub predicted_ttft_s: Option<f64>,
    /// Time to the first token; none where only the whole answer came.
    pub ttft_s: Option<f64>,
    /// Prompt tokens by bucket; none where the engine does not say what was cached.
    pub split: Option<Split>,
    /// How sure the split is, 0 to 1.
    pub certainty: f32,
    /// Of what was evicted, where something was.
    pub evicted: Option<Evicted>,
}

/// One replica at a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateRecord {
    /// The replica.
    pub replica: u32,
    /// Leading tokens that it was thought to hold.
    pub overlap_tokens: u32,
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
            score: candidate.score,
            predicted_ttft_s: candidate.ttft_s,
        }
    }
}

/// What is remembered of answered requests.
pub(super) struct Records {
    latest: VecDeque<Arc<RequestRecord>>,
    pub(super) total: Waterfall,
    pub(super) tenants: Tally<String>,
    pub(super) models: Tally<String>,
    pub(super) prefixes: HotPrefixes,
    pub(super) outlook: Outlook,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            latest: VecDeque::new(),
            total: Waterfall::default(),
            tenants: Tally::new(TENANTS),
            models: Tally::new(MODELS),
            prefixes: HotPrefixes::new(PREFIXES),
            outlook: Outlook::default(),
        }
    }
}

impl Records {
    /// Adds a request that begins with the block `prefix`.
    pub(super) fn add(&mut self, record: RequestRecord, prefix: Option<RouteKey>) {
        if let Some(split) = &record.split {
            self.total.add(split);
            self.models.add(record.model.clone(), split);
            self.tenants
                .add(record.tenant.clone().unwrap_or_default(), split);
            if let Some(prefix) = prefix {
                self.prefixes.add(prefix, split);
            }
        }
        if let Some(cached) = record.cached_tokens {
            let predicted = f64::from(record.predicted_cached_tokens);
            self.outlook.cached_tokens.add(predicted, f64::from(cached));
        }
        if let (Some(predicted), Some(ttft_s)) = (record.predicted_ttft_s, record.ttft_s) {
            self.outlook.ttft_s.add(predicted, ttft_s);
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
        self.latest.iter().rev().find(is_it).cloned()
    }
}
