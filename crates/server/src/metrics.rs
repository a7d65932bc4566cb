//! Prometheus metrics: all names in one place. vLLM's names where the meaning is the same, so
//! that its dashboards work; `headstart_` for the rest. Kinds, labels and help texts stand in
//! `metrics/table.txt`.

mod importance;
mod index;
mod insight;
pub(crate) mod load;
mod maker;
mod prediction;
mod replicas;
mod savings;
mod shadow;
mod shared_index;
mod tiers;
mod totals;

use std::sync::Arc;

use headstart_insight::prices::PriceTable;
use prometheus::{Encoder, HistogramVec, IntCounterVec, TextEncoder};

pub use index::IndexMetrics;
pub use insight::InsightMetrics;
pub use maker::MetricEntry;
use maker::MetricFactory;
pub use prediction::PredictionMetrics;
pub use savings::{PromptSources, SavingsMetrics};
pub use tiers::TierReport;
pub(crate) use tiers::TimedMover;
pub use totals::{FOUND_IN, Totals};

/// Seconds; from a cached toy prompt to a queue of minutes.
const SECONDS: [f64; 14] =
    [0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Metrics of one server.
pub struct Metrics {
    make: MetricFactory,
    /// Tokens, outcomes and latencies of requests.
    pub requests: RequestMetrics,
    /// Accuracy and latency of the router's index; shared with the code that measures it.
    pub index: Arc<IndexMetrics>,
    /// Savings from caches.
    pub savings: SavingsMetrics,
    /// Times of loads from lower tiers.
    pub load_seconds: HistogramVec,
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
    /// Prompts whose tokens the gateway cannot make and that are routed by their text.
    pub without_tokens: IntCounterVec,
    /// Such prompts whose tokens an engine told.
    pub rendered: IntCounterVec,
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
        let index = Arc::new(IndexMetrics::new(&make));
        let savings = SavingsMetrics::new(&make);
        let load_seconds = tiers::load_seconds(&make);
        Self { make, requests, index, savings, load_seconds }
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

    /// Sets a gauge, or brings a counter up to a count that is kept elsewhere.
    fn set(&self, name: &'static str, labels: &[&str], figure: f64) {
        self.make.set(name, labels, figure);
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
            without_tokens: make.counter("headstart_prompts_without_tokens_total"),
            rendered: make.counter("headstart_prompts_rendered_by_engine_total"),
        }
    }
}
