//! Prometheus metrics: all names in one place. vLLM's names where the meaning is the same, so
//! that its dashboards work; `headstart_` for the rest. Kinds, labels and help texts stand in
//! `metrics/table.txt`.

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
        MetricEntry::all().collect()
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
        Self {
            cache_queries: make.counter("vllm:prefix_cache_queries_total"),
            cache_hits: make.counter("vllm:prefix_cache_hits_total"),
            prompt_tokens: make.counter("vllm:prompt_tokens_total"),
            generation_tokens: make.counter("vllm:generation_tokens_total"),
            successes: make.counter("vllm:request_success_total"),
            ttft: make.histogram("vllm:time_to_first_token_seconds", &SECONDS),
            e2e: make.histogram("vllm:e2e_request_latency_seconds", &SECONDS),
            routed: make.counter("headstart_routed_requests_total"),
            retries: make.counter("headstart_retries_total"),
            errors: make.counter("headstart_errors_total"),
            normalized: make.counter("headstart_normalized_requests_total"),
        }
    }
}

impl ReplicaMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            running: make.gauge(load::RUNNING),
            waiting: make.gauge(load::WAITING),
            kv_usage: make.ratio(load::KV_USAGE),
            kv_capacity: make.gauge(load::KV_CAPACITY),
            preemptions: make.counter("vllm:num_preemptions_total"),
            up: make.gauge("headstart_replica_up"),
            info: make.gauge("headstart_replica_info"),
            panics: make.counter("headstart_replica_panics_total"),
            kv_events: make.counter("headstart_kv_events_total"),
            stream_state: make.gauge("headstart_kv_stream_state"),
            index_entries: make.gauge("headstart_index_entries"),
            tier_units: make.gauge("headstart_tier_units"),
            tier_moves: make.counter("headstart_tier_units_total"),
        }
    }

    /// Says what a replica's lower tier holds and has done.
    pub fn set_tier(&self, replica: &str, tier: &TierSummary) {
        let TierCounts { stored, declined, dropped, evicted, unstored, lost, loaded, failed } =
            tier.counts;
        let labels = |what| [replica, tier.tier.name(), what];
        set_one(&self.tier_units, &labels("readable"), tier.units as i64);
        set_one(&self.tier_units, &labels("capacity"), tier.capacity_units as i64);
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
            raise_one(&self.tier_moves, &labels(what), count);
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
        set_one(&self.running, labels, i64::from(report.running));
        set_one(&self.waiting, labels, i64::from(report.waiting));
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
                Some(status) => set_one(&self.stream_state, &labels, i64::from(state == status)),
                // An error says that it was not there.
                None => drop(self.stream_state.remove_label_values(&labels)),
            }
        }
    }
}

/// Sets the gauge of these labels.
pub(crate) fn set_one(gauges: &IntGaugeVec, labels: &[&str], value: i64) {
    gauges.with_label_values(labels).set(value);
}

/// Brings the counter of these labels up to a count that is kept elsewhere.
pub(crate) fn raise_one(counters: &IntCounterVec, labels: &[&str], count: u64) {
    raise(&counters.with_label_values(labels), count);
}

/// Brings a counter up to a count that is kept elsewhere.
pub(crate) fn raise(counter: &prometheus::IntCounter, count: u64) {
    // A count that started again at 0 leaves the counter where it is: a counter never falls.
    counter.inc_by(count.saturating_sub(counter.get()));
}
