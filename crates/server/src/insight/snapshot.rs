//! The sums as they stand, for display.

use headstart_insight::Waterfall;
use headstart_insight::loss::{self, Errors, HotPrefix, Memory};

use super::records::InsightSums;

/// Prediction errors and memory use: the values that need no copy of the sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct InsightGauges {
    /// Predicted less actual cached tokens.
    pub cached_tokens: ErrorSummary,
    /// Predicted less actual time to the first token, seconds.
    pub ttft_s: ErrorSummary,
    /// Memory use of the attributor.
    pub memory: Memory,
}

/// All sums since the start.
#[derive(Clone, Debug, Default)]
pub struct InsightSnapshot {
    /// Tokens of all requests that could be explained, by bucket.
    pub total: Waterfall,
    /// By tenant's tag, `""` for requests without a salt, `"other"` last where there are too many.
    pub tenants: Vec<(String, Waterfall)>,
    /// By model.
    pub models: Vec<(String, Waterfall)>,
    /// By the prefixes that most requests begin with, those first.
    pub prefixes: Vec<HotPrefix>,
    /// Prediction errors and memory use.
    pub gauges: InsightGauges,
}

/// Errors of a prediction, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ErrorSummary {
    /// Predictions.
    pub count: u64,
    /// Mean error; above 0 where too much was predicted.
    pub bias: f64,
    /// Median of the latest absolute errors.
    pub p50: f64,
    /// Their 90th percentile.
    pub p90: f64,
}

impl InsightGauges {
    pub(super) fn of(errors: &loss::Outlook, memory: Memory) -> Self {
        Self {
            cached_tokens: ErrorSummary::of(&errors.cached_tokens),
            ttft_s: ErrorSummary::of(&errors.ttft_s),
            memory,
        }
    }
}

impl InsightSnapshot {
    pub(super) fn of(sums: InsightSums, memory: Memory) -> Self {
        let rows = |tally: &headstart_insight::loss::WaterfallTally<String>| {
            let rows = tally.rows();
            let mut rows: Vec<_> = rows.map(|(key, row)| (key.clone(), row.clone())).collect();
            // Tenants or models beyond the limit share this row; it is left out while it is empty.
            if tally.other().requests() > 0 {
                rows.push(("other".to_owned(), tally.other().clone()));
            }
            rows
        };
        Self {
            total: sums.total,
            tenants: rows(&sums.tenants),
            models: rows(&sums.models),
            prefixes: sums.prefixes.rows(),
            gauges: InsightGauges::of(&sums.outlook, memory),
        }
    }
}

impl ErrorSummary {
    fn of(errors: &Errors) -> Self {
        Self {
            count: errors.count(),
            bias: errors.bias(),
            p50: errors.absolute(0.5),
            p90: errors.absolute(0.9),
        }
    }
}
