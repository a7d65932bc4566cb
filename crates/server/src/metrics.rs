//! Prometheus metrics: all names in one place. vLLM's names where the meaning is the same, so
//! that its dashboards work; `headstart_` for the rest.

mod importance;
mod index;
mod insight;
pub(crate) mod load;
mod maker;
mod prediction;
mod prompts;
mod savings;
mod shadow;
mod shared_index;
mod tiers;
mod totals;

use std::sync::{Arc, OnceLock};

use headstart_cache::tiers::{TierCounts, TierSummary};
use headstart_insight::prices::PriceTable;
use headstart_router::ReportedLoad;
use headstart_router::stream::StreamStatus;
use prometheus::{Encoder, GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, TextEncoder};

pub use importance::ImportanceMetrics;
pub use index::IndexMetrics;
pub use insight::InsightMetrics;
pub use maker::MetricEntry;
use maker::MetricFactory;
pub use prediction::PredictionMetrics;
pub use prompts::PromptMetrics;
pub use savings::{PromptSources, SavingsMetrics};
pub use shadow::ShadowMetrics;
pub use shared_index::SharedIndexMetrics;
pub(crate) use tiers::TimedMover;
pub use tiers::{TierMetrics, TierReport};
pub use totals::{FOUND_IN, Totals};

/// Seconds; from a cached toy prompt to a queue of minutes.
const SECONDS: [f64; 14] =
    [0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Metrics of one server.
pub struct Metrics {
    make: MetricFactory,
    /// Tokens, outcomes and latencies of requests.
    pub requests: RequestMetrics,
    /// Load, health and cache state of replicas.
    pub replicas: ReplicaMetrics,
    /// Accuracy and latency of the router's index; shared with the code that measures it.
    pub index: Arc<IndexMetrics>,
    /// Prompts whose tokens the gateway does not know by itself.
    pub prompts: PromptMetrics,
    /// Savings from caches.
    pub savings: SavingsMetrics,
    /// State and traffic of the tiers below host memory; shared with the code that times loads.
    pub tiers: Arc<TierMetrics>,
    /// Partial loads of stored prefixes.
    pub importance: ImportanceMetrics,
    shared_index: OnceLock<SharedIndexMetrics>,
    shadow: OnceLock<ShadowMetrics>,
}

/// Tokens, outcomes and latencies of requests.
pub struct RequestMetrics {
    /// Prompt tokens looked up in the prefix cache.
    pub cache_queries: IntCounterVec,
    /// Prompt tokens found there.
    pub cache_hits: IntCounterVec,
    /// Prompt tokens.
    pub prompt_tokens: IntCounterVec,
    /// Generated tokens.
    pub generation_tokens: IntCounterVec,
    /// Requests that ended well, by reason.
    pub successes: IntCounterVec,
    /// Time to first token.
    pub ttft: HistogramVec,
    /// Whole request time.
    pub e2e: HistogramVec,
    /// Requests sent to a replica.
    pub routed: IntCounterVec,
    /// Requests moved to another replica before their first token.
    pub retries: IntCounterVec,
    /// Errors given to clients, by status.
    pub errors: IntCounterVec,
    /// Requests that a normalizer changed, by the cause that it undoes.
    pub normalized: IntCounterVec,
}

/// Load, health and cache state of replicas.
pub struct ReplicaMetrics {
    /// Running requests.
    pub running: IntGaugeVec,
    /// Waiting requests.
    pub waiting: IntGaugeVec,
    /// Share of KV blocks in use.
    pub kv_usage: GaugeVec,
    /// Of an embedded replica, how much fits its KV memory.
    pub kv_capacity: IntGaugeVec,
    /// Preemptions.
    pub preemptions: IntCounterVec,
    /// Whether a replica takes requests.
    pub up: IntGaugeVec,
    /// Upstream of a replica, and its data-parallel rank there.
    pub info: IntGaugeVec,
    /// Engine panics.
    pub panics: IntCounterVec,
    /// KV events applied, batches lost, events skipped, clears.
    pub kv_events: IntCounterVec,
    /// State of a replica's event stream: 1 for the state that it is in.
    pub stream_state: IntGaugeVec,
    /// Blocks in the router's index.
    pub index_entries: IntGaugeVec,
    /// Units that a replica knows of in a lower tier, and how many there may be.
    pub tier_units: IntGaugeVec,
    /// Units in a lower tier, by what happened to them.
    pub tier_moves: IntCounterVec,
}

/// Labels of what one replica did for one model.
const BY_REPLICA: &[&str] = &["model_name", "replica"];

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Fresh metrics in a registry of their own.
    #[must_use]
    pub fn new() -> Self {
        let make = MetricFactory::default();
        let requests = RequestMetrics::new(&make);
        let replicas = ReplicaMetrics::new(&make);
        let index = Arc::new(IndexMetrics::new(&make));
        let prompts = PromptMetrics::new(&make);
        let savings = SavingsMetrics::new(&make);
        let tiers = Arc::new(TierMetrics::new(&make));
        let importance = ImportanceMetrics::new(&make);
        Self {
            make,
            requests,
            replicas,
            index,
            prompts,
            savings,
            tiers,
            importance,
            shared_index: OnceLock::new(),
            shadow: OnceLock::new(),
        }
    }

    /// The same where what caches save is money as well, if there are prices.
    #[must_use]
    pub fn priced(prices: Option<PriceTable>) -> Self {
        let mut metrics = Self::new();
        if let Some(prices) = prices {
            metrics.savings.set_prices(&metrics.make, prices);
        }
        metrics
    }

    /// Every metric that a server can have, by name.
    #[must_use]
    pub fn catalog() -> Vec<MetricEntry> {
        let metrics = Self::priced(Some(PriceTable::default()));
        drop(metrics.with_insight());
        drop(metrics.with_predictions());
        metrics.with_shared_index();
        metrics.with_shadow();
        metrics.make.entries()
    }

    /// The text exposition format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        match TextEncoder::new().encode(&self.make.gather(), &mut text) {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("# metrics could not be written: {error}\n"),
        }
    }
}

impl RequestMetrics {
    fn new(make: &MetricFactory) -> Self {
        let counter = |name, help| make.counter(name, help, BY_REPLICA);
        let histogram = |name, help| make.histogram(name, help, BY_REPLICA);
        Self {
            cache_queries: counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up."),
            cache_hits: counter("vllm:prefix_cache_hits_total", "Prompt tokens found cached."),
            prompt_tokens: counter("vllm:prompt_tokens_total", "Prompt tokens."),
            generation_tokens: counter("vllm:generation_tokens_total", "Generated tokens."),
            successes: make.counter(
                "vllm:request_success_total",
                "Finished requests.",
                &["model_name", "replica", "finished_reason"],
            ),
            ttft: histogram(
                "vllm:time_to_first_token_seconds",
                "From the request's arrival at the gateway to its first token; of an upstream's \
                 answers those that are streams.",
            ),
            e2e: histogram(
                "vllm:e2e_request_latency_seconds",
                "From the request's arrival at the gateway to its last token.",
            ),
            routed: make.counter(
                "headstart_routed_requests_total",
                "Requests sent to a replica.",
                &["strategy", "replica"],
            ),
            retries: make.counter(
                "headstart_retries_total",
                "Requests moved to another replica before their first token.",
                &["replica"],
            ),
            errors: make.counter(
                "headstart_errors_total",
                "Errors given to clients' API requests, which are POSTs.",
                &["status"],
            ),
            normalized: make.counter(
                "headstart_normalized_requests_total",
                "Requests changed before they were answered, by what was undone.",
                &["cause"],
            ),
        }
    }
}

impl ReplicaMetrics {
    fn new(make: &MetricFactory) -> Self {
        let gauge = |name, help| make.gauge(name, help, BY_REPLICA);
        let plain = |name, help| make.gauge(name, help, &["replica"]);
        Self {
            running: gauge(load::RUNNING, "Running requests."),
            waiting: gauge(load::WAITING, "Waiting requests."),
            kv_usage: make.ratio(
                load::KV_USAGE,
                "Share of KV blocks held by running requests, 0 to 1.",
                BY_REPLICA,
            ),
            kv_capacity: make.gauge(
                load::KV_CAPACITY,
                "1, for the blocks of the KV memory and the tokens of a block.",
                &["model_name", "replica", "block_size", "num_gpu_blocks"],
            ),
            preemptions: make.counter("vllm:num_preemptions_total", "Preemptions.", BY_REPLICA),
            up: plain("headstart_replica_up", "1 while the replica takes requests."),
            info: make.gauge(
                "headstart_replica_info",
                "1, for the upstream that a replica is, and its data-parallel rank where it has \
                 several.",
                &["replica", "upstream", "rank"],
            ),
            panics: make.counter("headstart_replica_panics_total", "Engine panics.", &["replica"]),
            kv_events: make.counter(
                "headstart_kv_events_total",
                "KV events applied, batches lost, events skipped, clears.",
                &["replica", "outcome"],
            ),
            stream_state: make.gauge(
                "headstart_kv_stream_state",
                "1 for the state that a replica's stream of KV events is in.",
                &["replica", "state"],
            ),
            index_entries: make.gauge(
                "headstart_index_entries",
                "Entries of the router's index.",
                &["strategy"],
            ),
            tier_units: make.gauge(
                "headstart_tier_units",
                "Units of 64 tokens in a lower tier: those that can be read, and how many may be.",
                &["replica", "tier", "what"],
            ),
            tier_moves: make.counter(
                "headstart_tier_units_total",
                "Units of a lower tier that were stored, declined, dropped because too many were \
                 on their way, evicted, lost, loaded, could not be stored (unstored) or loaded \
                 (failed).",
                &["replica", "tier", "what"],
            ),
        }
    }
}

impl ReplicaMetrics {
    /// Says what a replica's lower tier holds and has done.
    pub fn set_tier(&self, replica: &str, tier: &TierSummary) {
        let TierCounts { stored, declined, dropped, evicted, unstored, lost, loaded, failed } =
            tier.counts;
        let labels = |what| [replica, tier.tier.name(), what];
        let units = [("readable", tier.units), ("capacity", tier.capacity_units)];
        for (what, units) in units {
            let gauge = self.tier_units.with_label_values(&labels(what));
            gauge.set(units as i64);
        }
        for (what, count) in [
            ("stored", stored),
            ("declined", declined),
            ("dropped", dropped),
            ("evicted", evicted),
            ("unstored", unstored),
            ("lost", lost),
            ("loaded", loaded),
            ("failed", failed),
        ] {
            raise(&self.tier_moves.with_label_values(&labels(what)), count);
        }
    }

    /// Forgets what replicas said of their load.
    pub fn forget_loads(&self) {
        self.running.reset();
        self.waiting.reset();
        self.kv_usage.reset();
    }

    /// Passes on what a replica said of its load.
    pub fn set_load(&self, labels: &[&str; 2], report: ReportedLoad) {
        let set = |gauge: &IntGaugeVec, value: u32| {
            gauge.with_label_values(labels).set(i64::from(value));
        };
        set(&self.running, report.running);
        set(&self.waiting, report.waiting);
        // NaN means that the engine does not report its share.
        if report.kv_usage.is_finite() {
            self.kv_usage.with_label_values(labels).set(report.kv_usage);
        }
    }

    /// Sets the state of a replica's event stream; `None` removes it.
    pub fn set_stream(&self, replica: &str, status: Option<StreamStatus>) {
        for state in StreamStatus::ALL {
            let labels = [replica, state.name()];
            match status {
                Some(status) => {
                    let gauge = self.stream_state.with_label_values(&labels);
                    gauge.set(i64::from(state == status));
                }
                // An error says that it was not there.
                None => drop(self.stream_state.remove_label_values(&labels)),
            }
        }
    }
}

/// Brings a counter up to a count that is kept elsewhere.
pub(crate) fn raise(counter: &prometheus::IntCounter, count: u64) {
    // A count that started again at 0 leaves the counter where it is: a counter never falls.
    counter.inc_by(count.saturating_sub(counter.get()));
}
