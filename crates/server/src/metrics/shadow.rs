//! Metrics of shadow mode; there only where other fleets are played.

use prometheus::{IntCounter, IntCounterVec};

use super::{MetricFactory, Metrics, raise, raise_one};
use crate::shadow::ShadowReport;

/// Prompt tokens, simulated hits and dropped requests of shadow mode.
#[derive(Clone, Debug)]
pub struct ShadowMetrics {
    prompt_tokens: IntCounterVec,
    cached_tokens: IntCounterVec,
    left_out: IntCounter,
}

impl Metrics {
    /// The metrics of shadow mode, made when they are first asked for.
    pub fn with_shadow(&self) -> &ShadowMetrics {
        self.shadow.get_or_init(|| ShadowMetrics::new(&self.make))
    }
}

impl ShadowMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            prompt_tokens: make.counter("headstart_shadow_prompt_tokens_total"),
            cached_tokens: make.counter("headstart_shadow_cached_tokens_total"),
            left_out: make.plain_counter("headstart_shadow_left_out_total"),
        }
    }

    /// Brings them up to date.
    pub fn set(&self, report: &ShadowReport) {
        let arms = report.arms.iter();
        let arms = arms.map(|arm| (&arm.strategy[..], arm.blocks.to_string(), arm.found));
        let upstream = ("upstream", String::new(), report.upstream);
        for (strategy, blocks, found) in arms.chain([upstream]) {
            let labels = [strategy, &blocks];
            raise_one(&self.prompt_tokens, &labels, found.prompt_tokens);
            raise_one(&self.cached_tokens, &labels, found.cached_tokens);
        }
        raise(&self.left_out, report.left_out);
    }
}
