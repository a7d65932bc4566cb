//! A replica as filters, scorers and pickers see it: figures of one moment, no handles.

use headstart_core::cost::Work;
use headstart_core::{EngineModel, ReplicaId};

/// Whether a replica may be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    #[default]
    Healthy,
    /// It does not; what it held counts as lost.
    Down,
}

/// One replica at the time of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaView {
    /// The replica.
    pub replica: ReplicaId,
    /// Whether it may be chosen.
    pub health: Health,
    /// Leading prompt tokens that its device holds, or is assumed to hold soon.
    pub device_tokens: usize,
    /// Leading prompt tokens that it holds in any tier; at least `device_tokens`.
    pub any_tier_tokens: usize,
    /// Leading prompt tokens that it holds in any tier, as far as no event of it was lost since;
    /// at most `any_tier_tokens`.
    pub trusted_tokens: usize,
    /// Tokens by which it leads the next replica, if it served the prompt's last turn and no other
    /// holds more of the prompt.
    pub home_lead: Option<usize>,
    /// Requests whose first token has not come.
    pub queue_depth: usize,
    /// Requests that have not ended.
    pub requests: usize,
    /// Prompt tokens still to compute for this router's requests.
    pub prefill_tokens: usize,
    /// Requests that wait there by its own report, when there is a fresh one.
    pub reported_waiting: Option<usize>,
    /// Share of the KV memory in use, when known.
    pub kv_usage: Option<f64>,
    /// Estimated engine model.
    pub engine: EngineModel,
    /// Seconds of prompts in front of one more.
    pub backlog_s: f64,
    /// Prompt tokens that were sent there in the last minutes.
    pub placed_tokens: f64,
    /// Prompt tokens of those prompts that were mostly new to it.
    pub placed_new_tokens: f64,
    /// Work per step for sequences that decode.
    pub decoding: Work,
}

impl ReplicaView {
    /// A healthy, idle replica that holds nothing.
    #[must_use]
    pub fn idle(replica: ReplicaId) -> Self {
        Self {
            replica,
            health: Health::Healthy,
            device_tokens: 0,
            any_tier_tokens: 0,
            trusted_tokens: 0,
            home_lead: None,
            queue_depth: 0,
            requests: 0,
            prefill_tokens: 0,
            reported_waiting: None,
            kv_usage: None,
            engine: EngineModel::default_engine(),
            backlog_s: 0.0,
            placed_tokens: 0.0,
            placed_new_tokens: 0.0,
            decoding: Work::default(),
        }
    }
}
