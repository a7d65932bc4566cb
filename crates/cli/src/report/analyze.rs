//! What `analyze` found, and the forms in which it is told: text, JSON, a page.

mod characterization;
mod json;
mod page;
mod text;

use headstart_insight::Bucket;
use headstart_trace::TraceInfo;
use headstart_trace::characterize::Characterization;

use crate::kv_bytes::KvBytes;

pub(crate) use super::thousands;
pub(crate) use json::json;
pub(crate) use page::page;
pub(crate) use text::text;

/// Everything there is to say.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// Names of the inputs.
    pub(crate) files: Vec<String>,
    /// Their formats.
    pub(crate) formats: Vec<String>,
    pub(crate) info: TraceInfo,
    /// What was inferred, left out or approximate, one sentence each.
    pub(crate) remarks: Vec<String>,
    /// From the first arrival to the last.
    pub(crate) span_s: f64,
    /// Memory that the requests took, estimated, and its bound.
    pub(crate) held_bytes: u64,
    pub(crate) held_bytes_max: u64,
    /// The fleet that the waterfall is of.
    pub(crate) replicas: usize,
    /// Blocks of one replica.
    pub(crate) capacity_blocks: u64,
    pub(crate) capacity_from: String,
    pub(crate) seconds_from: String,
    pub(crate) currency: Option<String>,
    /// Requests whose log says what was cached.
    pub(crate) said: u64,
    pub(crate) kv: Option<KvBytes>,
    /// Every bucket, in order.
    pub(crate) waterfall: Vec<Step>,
    /// The point of the curve at which it bends.
    pub(crate) knee: Option<usize>,
    pub(crate) routing: Routing,
    /// Tokens that reuse without order would add; `None` where there is no text.
    pub(crate) order_free_tokens: Option<u64>,
    /// By tokens lost, most first.
    pub(crate) findings: Vec<FindingRow>,
    /// Three to five sentences.
    pub(crate) headlines: Vec<String>,
    pub(crate) characterization: Characterization,
}

/// One bucket of the waterfall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) bucket: Bucket,
    /// Seconds and money: of computed tokens what they took, of served ones what they saved.
    pub(crate) amount: Amount,
}

/// Seconds and money of some tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    pub(crate) tokens: u64,
    pub(crate) seconds: f64,
    /// `None` where nobody said what anything costs.
    pub(crate) money: Option<f64>,
}

impl Amount {
    /// Adds `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.seconds += other.seconds;
        self.money = match (self.money, other.money) {
            (Some(one), Some(more)) => Some(one + more),
            (one, more) => one.or(more),
        };
    }
}

/// What routing changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routing {
    pub(crate) replicas: usize,
    /// Prompt tokens found where replicas are drawn by lot.
    pub(crate) random_tokens: u64,
    /// Prompt tokens found where requests go to what they share most with.
    pub(crate) precise_tokens: u64,
}

/// A named cause, summed over the requests that lost by it.
#[derive(Clone, Debug)]
pub(crate) struct FindingRow {
    pub(crate) cause: String,
    pub(crate) title: String,
    pub(crate) fix: String,
    pub(crate) requests: u64,
    pub(crate) amount: Amount,
    pub(crate) example: Option<Example>,
}

/// One request that lost by a cause.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) request: String,
    pub(crate) neighbour: String,
    /// The first token that differs, from 0.
    pub(crate) token: u64,
    /// Texts; `None` unless they were asked for.
    pub(crate) before: Option<String>,
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
}

impl Analysis {
    /// All prompt tokens.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.waterfall.iter().map(|step| step.amount.tokens).sum()
    }

    /// Those in a bucket.
    pub(crate) fn tokens_in(&self, bucket: Bucket) -> u64 {
        let steps = self.waterfall.iter().filter(|step| step.bucket == bucket);
        steps.map(|step| step.amount.tokens).sum()
    }

    /// Those that were not computed.
    pub(crate) fn served_tokens(&self) -> u64 {
        let served = self.waterfall.iter().filter(|step| step.bucket.is_served());
        served.map(|step| step.amount.tokens).sum()
    }

    /// ` (1.2 GB)`, where a model says how many bytes tokens take.
    pub(crate) fn in_bytes(&self, tokens: u64) -> String {
        let Some(kv) = &self.kv else {
            return String::new();
        };
        let gb = tokens as f64 * kv.per_token as f64 / 1e9;
        format!(" ({gb:.1} GB)")
    }

    /// The name of a request type.
    pub(crate) fn type_name(&self, index: u16) -> &str {
        let name = self.info.types.get(usize::from(index));
        name.map_or("unknown", String::as_str)
    }
}

impl Routing {
    /// Share of the found tokens that drawing by lot loses.
    pub(crate) fn lost_share(&self) -> f64 {
        let lost = self.precise_tokens.saturating_sub(self.random_tokens);
        lost as f64 / self.precise_tokens.max(1) as f64
    }
}

/// `0.4213` as `42.1 %`; as much as a reader wants to know.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        all if all >= 99.95 => "100 %".to_owned(),
        most if most >= 10.0 => format!("{most:.0} %"),
        some => format!("{some:.1} %"),
    }
}

/// `3700` seconds as `1 h 2 min`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        some if some < 0.1 => format!("{:.1} ms", some * 1e3),
        some if some < 100.0 => format!("{some:.1} s"),
        some if some < 6_000.0 => format!("{:.0} min", some / 60.0),
        some if some < 360_000.0 => format!("{:.1} h", some / 3_600.0),
        some => format!("{:.1} days", some / 86_400.0),
    }
}
