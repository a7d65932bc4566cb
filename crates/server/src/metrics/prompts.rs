//! Metrics of prompts whose tokens the gateway does not know by itself.

use prometheus::IntCounterVec;

use super::MetricFactory;

/// Counters of prompts whose tokens the gateway cannot compute.
pub struct PromptMetrics {
    /// Prompts that were routed by their text.
    without_tokens: IntCounterVec,
    /// Prompts whose tokens the engine told.
    rendered: IntCounterVec,
}

impl PromptMetrics {
    pub(super) fn new(make: &MetricFactory) -> Self {
        Self {
            without_tokens: make.counter("headstart_prompts_without_tokens_total"),
            rendered: make.counter("headstart_prompts_rendered_by_engine_total"),
        }
    }

    /// Counts a prompt that is routed by its text.
    pub fn note_without_tokens(&self, model: &str, reason: &str) {
        self.without_tokens.with_label_values(&[model, reason]).inc();
    }

    /// Counts a prompt whose tokens an engine told.
    pub fn note_rendered(&self, model: &str, reason: &str) {
        self.rendered.with_label_values(&[model, reason]).inc();
    }
}
