//! JSON contract of the snapshot that the page, `headstart top` and other clients get once a
//! second. `fixture.json` beside this file is a complete example.
//!
//! Ages are seconds before the snapshot, times to the first token milliseconds; shares and rates
//! are in `[0, 1]`. What is not known is null.

use serde::{Deserialize, Serialize};

/// Raised when something here changes its meaning or goes.
pub const VERSION: u32 = 1;

/// A server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// When, seconds since 1970.
    pub at_unix_s: f64,
    /// The server that made the snapshot.
    pub server: ServerPart,
    /// Since the start.
    pub totals: TotalsPart,
    /// In the last minute.
    pub lately: LatelyPart,
    /// Second by second.
    pub history: HistoryPart,
    /// Prompt tokens by bucket since the start; null if requests are not explained.
    pub waterfall: Option<WaterfallPart>,
    /// By ascending id.
    pub replicas: Vec<ReplicaPart>,
    /// The prefixes that prompts shared lately.
    pub tree: TreePart,
    /// The last requests that were answered, the newest first.
    pub requests: Vec<RequestPart>,
    /// Clients' requests that ended in an error.
    #[serde(default)]
    pub errors: ErrorsPart,
    /// Simulated hit rates of other cache sizes; null until known.
    pub ghosts: Option<GhostsPart>,
    /// Predicted and observed cached tokens and times to the first token.
    pub predictions: PredictionsPart,
    /// Savings by caches since the start.
    pub savings: SavingsPart,
}

/// The server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerPart {
    /// Version of the binary.
    pub version: String,
    /// Build profile and platform, such as `release, x86_64 linux`.
    #[serde(default)]
    pub build: String,
    /// Whether the costs of its engines are known, so that predicted times mean something.
    #[serde(default)]
    pub has_cost_model: bool,
    /// Models that can be asked for.
    pub models: Vec<String>,
    /// Name of the routing strategy.
    pub strategy: String,
    /// When it started.
    pub started_unix_s: u64,
    /// Seconds since then.
    pub uptime_s: f64,
    /// Whether it is shutting down.
    pub is_draining: bool,
    /// Notices for the operator: prompts without exact tokens, token mismatches, missing usage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsPart {
    /// Requests sent to a replica. One that went to another replica after a failure counts again.
    pub requests: u64,
    /// Errors to clients, streams that broke off among them. Requests that no replica got count
    /// here, and not in `requests`.
    pub errors: u64,
    /// Prompt tokens of which it is known whether they were cached.
    pub prompt_tokens: u64,
    /// Cached tokens among `prompt_tokens`.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub generation_tokens: u64,
}

/// Figures of the last minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatelyPart {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Prompt tokens per second.
    pub prompt_tokens_per_s: f64,
    /// Cached prompt tokens over prompt tokens.
    pub hit_rate: Option<f64>,
    /// Time to the first token, median.
    pub ttft_ms_p50: Option<f64>,
    /// Time to the first token, 95th percentile.
    pub ttft_ms_p95: Option<f64>,
}

/// The last quarter of an hour, or its last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryPart {
    /// Names of the numbers of a point: the second's end, requests, tokens by source.
    pub columns: Vec<String>,
    /// Whether these are all that there are, or only the last ones.
    pub is_whole: bool,
    /// One a second, the oldest first.
    pub points: Vec<Vec<u64>>,
    /// Times to the first token, each over some seconds in which there were any: the end, seconds
    /// since 1970, their median and what 95 of a hundred stay below, milliseconds.
    #[serde(default)]
    pub ttft: Vec<[f64; 3]>,
}

/// Prompt tokens by bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaterfallPart {
    /// Requests.
    pub requests: u64,
    /// Their prompt tokens: the sum of the buckets.
    pub tokens: u64,
    /// Currency of the buckets' `money`.
    pub currency: Option<String>,
    /// All buckets in the order of the waterfall.
    pub buckets: Vec<BucketPart>,
    /// Prompts that were compared with earlier ones.
    #[serde(default)]
    pub compared: u64,
    /// Why these differ from earlier ones that they share text with, the dearest first.
    #[serde(default)]
    pub causes: Vec<CausePart>,
}

/// Why prompts differ that share text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CausePart {
    /// Its name.
    pub cause: String,
    /// The cause as the subject of a sentence.
    pub title: String,
    /// The suggested fix for clients.
    pub fix: String,
    /// The value of `--normalize` with which this server undoes it too; null where none does.
    pub normalize: Option<String>,
    /// Requests, of those that were compared.
    pub requests: u64,
    /// Its share of what these recomputed behind a difference.
    pub share: f64,
}

/// One bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BucketPart {
    /// Its name.
    pub bucket: String,
    /// Meaning of a token in this bucket.
    pub meaning: String,
    /// Whether its tokens were not computed.
    pub is_served: bool,
    /// Tokens.
    pub tokens: u64,
    /// Prefill seconds that its tokens took, or saved if the bucket is served.
    pub seconds: Option<f64>,
    /// Extra cost because its tokens were not cached.
    pub money: Option<f64>,
}

/// One replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaPart {
    /// Its number.
    pub replica: u32,
    /// Its address, or that it is in this process.
    pub name: String,
    /// Whether it takes requests.
    pub is_healthy: bool,
    /// Why not, where that is known.
    #[serde(default)]
    pub trouble: Option<String>,
    /// State of its event stream; null if this gateway does not follow it.
    pub stream: Option<String>,
    /// Requests that run.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Share of its KV memory that running requests hold.
    pub kv_usage: Option<f64>,
    /// Blocks that its device holds, as the index knows it.
    pub cached_blocks: Option<u64>,
    /// Blocks that it may hold.
    pub capacity_blocks: Option<u64>,
    /// Tokens of a block, where that is known.
    pub block_tokens: Option<u64>,
    /// Its lower tiers.
    pub tiers: Vec<TierPart>,
    /// Cached prompt tokens over prompt tokens, since the start.
    pub hit_rate: Option<f64>,
}

/// One lower tier of a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierPart {
    /// The tier's name.
    pub tier: String,
    /// Units that can be read.
    pub units: u64,
    /// Units that it may hold.
    pub capacity_units: u64,
}

/// The prefix tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreePart {
    /// Tokens of a block.
    pub block_tokens: u64,
    /// Prompts that it was made of.
    pub prompts: u64,
    /// Prompts that came too fast to be looked at.
    pub skipped: u64,
    /// Branches that are known; the nodes are the hottest of them.
    pub branches: u64,
    /// Depth first, parents before their children, the hottest first.
    pub nodes: Vec<NodePart>,
}

/// One branch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePart {
    /// Its first block's route key, hexadecimal: a keyed hash.
    pub id: String,
    /// Its name, if `serve --label-prefix` gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Place of its parent among the nodes.
    pub parent: Option<u64>,
    /// Prompt tokens before it.
    pub start_tokens: u64,
    /// Its own.
    pub tokens: u64,
    /// Prompts that went through it.
    pub prompts: u64,
    /// Share of the last minutes' prompts that did.
    pub share: f64,
    /// Since the last one did.
    pub used_s: f64,
    /// Since the first one did.
    pub age_s: f64,
    /// Replicas that hold some of it and everything before it, by ascending replica.
    pub holders: Vec<HolderPart>,
}

/// A replica that holds leading tokens of a branch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HolderPart {
    /// The replica.
    pub replica: u32,
    /// Leading tokens of the branch, in whatever tier.
    pub tokens: u64,
    /// Tokens among `tokens` that are on the device.
    pub device_tokens: u64,
}

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestPart {
    /// Its answer's id, as `headstart why` takes it.
    pub id: String,
    /// A keyed tag of its tenant; null without a salt.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The model asked for.
    #[serde(default)]
    pub model: String,
    /// Status of its answer.
    #[serde(default)]
    pub status: u16,
    /// Since its answer was complete.
    pub age_s: f64,
    /// The chosen replica.
    pub replica: u32,
    /// Length of its prompt.
    pub prompt_tokens: u64,
    /// Cached tokens as predicted.
    pub predicted_tokens: Option<u64>,
    /// Cached tokens as the engine says.
    pub cached_tokens: Option<u64>,
    /// Time to the first token as predicted.
    pub predicted_ms: Option<f64>,
    /// As it came.
    pub ttft_ms: Option<f64>,
    /// The decision in words.
    pub decision: String,
    /// The outcome in words.
    pub outcome: Option<String>,
}

/// Requests that ended in an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorsPart {
    /// Error counts since the start, by ascending status.
    pub by_status: Vec<StatusPart>,
    /// The last ones, the newest first.
    pub latest: Vec<FailurePart>,
}

/// Errors of one status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusPart {
    /// The HTTP status.
    pub status: u16,
    /// Number of errors.
    pub count: u64,
}

/// One request that ended in an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailurePart {
    /// The client's id of the request (`x-request-id`).
    pub request_id: Option<String>,
    /// Since then.
    pub age_s: f64,
    /// Status of its answer; of a stream that broke off, of the error at its end.
    pub status: u16,
    /// The error's name; null where an engine gave it.
    pub code: Option<String>,
    /// The route, without what is variable in it.
    pub route: String,
}

/// Simulated hit rates of other cache sizes. Generated tokens count one turn late, so even an
/// infinite cache may be below the measured hit rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GhostsPart {
    /// Seconds that are looked at.
    pub seconds: f64,
    /// Requests in these.
    pub requests: u64,
    /// Hit rate of the cache as it is, by the same reckoning.
    pub hit_rate: f64,
    /// The others, the smallest first.
    pub sizes: Vec<GhostPart>,
}

/// A cache of another size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GhostPart {
    /// Such as `+25 %`.
    pub label: String,
    /// Simulated hit rate of this size.
    pub hit_rate: f64,
}

/// Predicted and observed cached tokens and times to the first token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictionsPart {
    /// Cached tokens; null until an engine said how many there were.
    pub cached: Option<CachedPart>,
    /// Times to the first token; null until there are some.
    pub ttft: Option<TtftPart>,
    /// Of the last requests, predicted and observed milliseconds.
    pub pairs: Vec<[f64; 2]>,
}

/// Cached tokens, predicted and actual.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CachedPart {
    /// As the index predicted them.
    pub predicted_tokens: u64,
    /// As the engines say.
    pub found_tokens: u64,
    /// By how much the two differed, request by request.
    pub off_tokens: u64,
}

/// By how much first tokens missed their time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtftPart {
    /// Requests.
    pub requests: u64,
    /// Half of them by less.
    pub error_ms_p50: f64,
    /// Nine of ten by less.
    pub error_ms_p90: f64,
}

/// Savings by caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavingsPart {
    /// Computing, as replicas with lower tiers have learned its cost.
    pub prefill_s: f64,
    /// Tokens by where they were found.
    pub by_source: Vec<SourcePart>,
    /// By currency.
    pub money: Vec<MoneyPart>,
}

/// Tokens found in one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourcePart {
    /// A tier, or an upstream's own cache.
    pub source: String,
    /// Tokens.
    pub tokens: u64,
}

/// Money saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MoneyPart {
    /// Currency, such as `EUR`.
    pub currency: String,
    /// Amount in this currency.
    pub amount: f64,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Example for trying the page without a server.
    const FIXTURE: &str = include_str!("fixture.json");

    #[test]
    fn the_example_is_the_contract() {
        let value: Value = serde_json::from_str(FIXTURE).expect("JSON");
        let snapshot: Snapshot = serde_json::from_str(FIXTURE).expect("all fields");
        assert_eq!(snapshot.version, VERSION);
        let again = serde_json::to_value(&snapshot).expect("JSON");
        assert_eq!(difference("", &value, &again), None);
    }

    /// The first place where two documents differ.
    fn difference(path: &str, a: &Value, b: &Value) -> Option<String> {
        match (a, b) {
            (Value::Object(first), Value::Object(second)) if first.len() == second.len() => first
                .iter()
                .find_map(|(name, a)| difference(&format!("{path}.{name}"), a, &second[name])),
            (Value::Array(first), Value::Array(second)) if first.len() == second.len() => {
                let mut pairs = first.iter().zip(second).enumerate();
                pairs.find_map(|(at, (a, b))| difference(&format!("{path}[{at}]"), a, b))
            }
            _ => (a != b).then(|| format!("{path}: {a} and {b}")),
        }
    }
}
