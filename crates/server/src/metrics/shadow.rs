//! Metrics of shadow mode; there only where other fleets are played.

use super::Metrics;
use crate::shadow::ShadowReport;

impl Metrics {
    /// Brings the prompt tokens, the simulated hits and the dropped requests up to date.
    pub fn set_shadow(&self, report: &ShadowReport) {
        let arms = report.arms.iter();
        let arms = arms.map(|arm| (&arm.strategy[..], arm.blocks.to_string(), arm.found));
        let upstream = ("upstream", String::new(), report.upstream);
        for (strategy, blocks, found) in arms.chain([upstream]) {
            let labels = [strategy, &blocks];
            let (prompt, cached) = (found.prompt_tokens as f64, found.cached_tokens as f64);
            self.set("headstart_shadow_prompt_tokens_total", &labels, prompt);
            self.set("headstart_shadow_cached_tokens_total", &labels, cached);
        }
        self.set("headstart_shadow_left_out_total", &[], report.left_out as f64);
    }
}
