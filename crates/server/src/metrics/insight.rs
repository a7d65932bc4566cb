//! Metrics of what became of prompt tokens, and of what was predicted.

use headstart_insight::Waterfall;
use prometheus::{GaugeVec, IntCounter, IntCounterVec};

use super::{MetricFactory, Metrics, raise};
use crate::insight::{ErrorSummary, GhostAnswer, InsightGauges};

/// Prompt tokens by bucket, prediction errors and ghost hit rates.
#[derive(Clone, Debug)]
pub struct InsightMetrics {
    tokens: IntCounterVec,
    cached_error: GaugeVec,
    ttft_error: GaugeVec,
    ghosts: GaugeVec,
    blocks: IntCounter,
    forgotten: IntCounter,
}

impl Metrics {
    /// Adds the metrics of insight; once.
    #[must_use]
    pub fn with_insight(&self) -> InsightMetrics {
        InsightMetrics::new(&self.make)
    }
}

impl InsightMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            tokens: make.counter("headstart_prompt_tokens_total"),
            cached_error: make.ratio("headstart_cached_tokens_prediction_error"),
            ttft_error: make.ratio("headstart_ttft_prediction_error_seconds"),
            ghosts: make.ratio("headstart_ghost_hit_rate"),
            blocks: make.plain_counter("headstart_insight_blocks_total"),
            forgotten: make.plain_counter("headstart_insight_forgotten_blocks_total"),
        }
    }

    /// Requests for a model were explained.
    pub fn note(&self, model: &str, tokens: &Waterfall) {
        for (bucket, tokens) in tokens.iter().filter(|(_, tokens)| *tokens > 0) {
            let counter = self.tokens.with_label_values(&[model, bucket.name()]);
            counter.inc_by(tokens);
        }
    }

    /// Says what caches of other sizes would have hit.
    pub fn set_ghosts(&self, answers: &[GhostAnswer]) {
        for answer in answers {
            let replica = answer.replica.to_string();
            for (size, rate) in sizes(answer) {
                self.ghosts.with_label_values(&[&replica[..], size]).set(rate);
            }
        }
    }

    /// Brings the gauges up to date.
    pub fn set(&self, outlook: &InsightGauges) {
        set_error(&self.cached_error, &outlook.cached_tokens);
        set_error(&self.ttft_error, &outlook.ttft_s);
        raise(&self.blocks, outlook.memory.blocks);
        raise(&self.forgotten, outlook.memory.forgotten_blocks);
    }
}

fn sizes(answer: &GhostAnswer) -> [(&'static str, f64); 4] {
    [
        ("1", answer.as_it_is),
        ("1.25", answer.plus_25),
        ("2", answer.plus_100),
        ("infinite", answer.infinite),
    ]
}

fn set_error(gauge: &GaugeVec, error: &ErrorSummary) {
    // Without a prediction, an error of 0 would say that all were right.
    if error.count > 0 {
        let values = [("bias", error.bias), ("p50", error.p50), ("p90", error.p90)];
        for (statistic, value) in values {
            gauge.with_label_values(&[statistic]).set(value);
        }
    }
}
