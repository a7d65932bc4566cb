//! The report of `headstart validate`, as text and as JSON.

use std::fmt::Write;

use headstart_core::figures::{counted, thousands};
use headstart_loadgen::Validation;
use headstart_terminal::{aligned, headings};
use serde_json::{Value, json};

use super::LeftOut;
use super::prediction::CacheModel;
use crate::engine::{CacheCounters, EngineKind};

/// The outcome of a run.
pub(super) struct ValidationReport {
    pub(super) engine: EngineKind,
    /// The model's name in the API.
    pub(super) asked: String,
    /// The cache that was predicted.
    pub(super) model: CacheModel,
    pub(super) validation: Validation,
    /// Counters of the engine's metrics, from before to after the run.
    pub(super) counted: Option<CacheCounters>,
    pub(super) left_out: LeftOut,
    /// Greatest difference of the hit rates, percentage points.
    pub(super) tolerance: f64,
}

impl ValidationReport {
    /// The reason to exit with 1, if there is one.
    pub(super) fn complaint(&self) -> Option<String> {
        let points = self.validation.points();
        (points.abs() > self.tolerance).then(|| {
            format!(
                "the engine's hit rate is {:.2} points {} the predicted one (--tolerance {})",
                points.abs(),
                if points < 0.0 { "below" } else { "above" },
                self.tolerance
            )
        })
    }

    /// The report for a terminal.
    pub(super) fn to_text(&self) -> String {
        let told = &self.validation;
        let percent = |tokens: u64| format!("{:.2} %", 100.0 * told.rate(tokens));
        let mut rows = vec![headings(&["cached tokens", "", "of the prompts"])];
        let mut row = |name: &str, tokens: u64| {
            rows.push(vec![name.to_owned(), thousands(tokens), percent(tokens)]);
        };
        row("reported in the answers", told.reported_tokens);
        if let Some(counted) = self.counted {
            row("counted in /metrics", counted.hits);
        }
        row("predicted", told.predicted_tokens);
        row("without a limit", told.unlimited_tokens);
        let mut text = format!("{}\n\n{}", self.cache(), aligned(&rows));
        for difference in &told.differences {
            let first = &difference.first;
            // Writing to a `String` cannot fail.
            let _ = write!(
                text,
                "\n\n{}: {}, {:+} tokens. {}\n  first: request {}, {} reported, {} predicted, {} \
                 without a limit",
                difference.reason.name(),
                counted(difference.requests as u64, "request"),
                difference.tokens,
                capitalized(difference.sentence),
                first.name,
                thousands(u64::from(first.reported)),
                thousands(u64::from(first.predicted)),
                thousands(u64::from(first.unlimited)),
            );
        }
        let LeftOut { too_long, failed, first } = &self.left_out;
        if *too_long > 0 {
            let _ = write!(text, "\n\n{too_long} longer than the engine's context were left out.");
        }
        if let Some(first) = first {
            let _ = write!(text, "\n\n{failed} failed, the first: {first}");
        }
        let _ = write!(
            text,
            "\n\n{} of {} equal; {:+.2} points of hit rate.",
            thousands(told.equal as u64),
            counted(told.requests as u64, "request"),
            told.points(),
        );
        text
    }

    /// The cache that was predicted, in a sentence.
    fn cache(&self) -> String {
        let CacheModel { block_size, blocks, policy } = &self.model;
        let size = match blocks {
            Some(blocks) => format!(
                "{} of {block_size} tokens, {}",
                counted(*blocks as u64, "block"),
                policy.as_deref().unwrap_or("vLLM's order")
            ),
            None => format!(
                "blocks of {block_size} tokens without a limit (the engine does not say its \
                 blocks; pass --cache-blocks)"
            ),
        };
        format!("{} ({}): {size}", capitalized(self.engine.name()), self.asked)
    }

    /// The report for programs.
    pub(super) fn to_json(&self) -> Value {
        let told = &self.validation;
        json!({
            "engine": self.engine.name(),
            "model": self.asked,
            "block_size": self.model.block_size,
            "cache_blocks": self.model.blocks,
            "policy": self.model.policy,
            "hit_rate": {
                "reported": told.rate(told.reported_tokens),
                "predicted": told.rate(told.predicted_tokens),
                "unlimited": told.rate(told.unlimited_tokens),
            },
            "points": told.points(),
            "validation": told,
            "metrics": self.counted.map(|counted| json!({
                "queries": counted.queries, "hits": counted.hits,
            })),
            "too_long": self.left_out.too_long,
            "failed": self.left_out.failed,
        })
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    // A name such as vLLM keeps its letters.
    match letters.next() {
        Some(first) if !text.starts_with("vLLM") => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
