//! Metrics of what became of prompt tokens, and of what was predicted.

use headstart_insight::Waterfall;
use prometheus::IntCounterVec;

use super::Metrics;
use crate::insight::{ErrorSummary, GhostAnswer, InsightGauges};

/// Prompt tokens by bucket.
#[derive(Clone, Debug)]
pub struct InsightMetrics {
    tokens: IntCounterVec,
}

impl InsightMetrics {
    /// Requests for a model were explained.
    pub fn note(&self, model: &str, tokens: &Waterfall) {
        for (bucket, tokens) in tokens.iter().filter(|(_, tokens)| *tokens > 0) {
            let counter = self.tokens.with_label_values(&[model, bucket.name()]);
            counter.inc_by(tokens);
        }
    }
}

impl Metrics {
    /// Adds the metrics of insight; once.
    #[must_use]
    pub fn with_insight(&self) -> InsightMetrics {
        InsightMetrics { tokens: self.make.counter("headstart_prompt_tokens_total") }
    }

    /// Brings the prediction errors, the memory and what caches of other sizes would have hit up to
    /// date.
    pub fn set_insight(&self, gauges: &InsightGauges, ghosts: &[GhostAnswer]) {
        let memory = &gauges.memory;
        self.set_error("headstart_cached_tokens_prediction_error", &gauges.cached_tokens);
        self.set_error("headstart_ttft_prediction_error_seconds", &gauges.ttft_s);
        self.set("headstart_insight_blocks_total", &[], memory.blocks as f64);
        self.set("headstart_insight_forgotten_blocks_total", &[], memory.forgotten_blocks as f64);
        for ghost in ghosts {
            let replica = ghost.replica.to_string();
            for (size, rate) in [
                ("1", ghost.as_it_is),
                ("1.25", ghost.plus_25),
                ("2", ghost.plus_100),
                ("infinite", ghost.infinite),
            ] {
                self.set("headstart_ghost_hit_rate", &[&replica, size], rate);
            }
        }
    }

    fn set_error(&self, name: &'static str, error: &ErrorSummary) {
        // Without a prediction, an error of 0 would say that all were right.
        if error.count > 0 {
            for (statistic, value) in [("bias", error.bias), ("p50", error.p50), ("p90", error.p90)]
            {
                self.set(name, &[statistic], value);
            }
        }
    }
}
