//! Metrics of shadow mode; there only where other fleets are played.

use prometheus::{IntCounter, IntCounterVec};

use super::{MetricFactory, Metrics, raise};
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
        let by_arm = &["strategy", "blocks"];
        Self {
            prompt_tokens: make.counter(
                "headstart_shadow_prompt_tokens_total",
                "Prompt tokens played, by strategy and blocks per replica; strategy `upstream` is \
                 what the engine itself reported on.",
                by_arm,
            ),
            cached_tokens: make.counter(
                "headstart_shadow_cached_tokens_total",
                "Those of them that would have been found cached.",
                by_arm,
            ),
            left_out: make.plain_counter(
                "headstart_shadow_left_out_total",
                "Requests that were not played: the queue was full, or their prompt is not known \
                 as tokens.",
            ),
        }
    }

    /// Brings them up to date.
    pub fn set(&self, report: &ShadowReport) {
        let arms = report.arms.iter();
        let arms = arms.map(|arm| (&arm.strategy[..], arm.blocks.to_string(), arm.found));
        let upstream = ("upstream", String::new(), report.upstream);
        for (strategy, blocks, found) in arms.chain([upstream]) {
            let labels = [strategy, &blocks];
            let prompt = self.prompt_tokens.with_label_values(&labels);
            raise(&prompt, found.prompt_tokens);
            let cached = self.cached_tokens.with_label_values(&labels);
            raise(&cached, found.cached_tokens);
        }
        raise(&self.left_out, report.left_out);
    }
}
