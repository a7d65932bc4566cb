//! The sums as they stand, for display.

use headstart_insight::Waterfall;
use headstart_insight::loss::{self, Errors, HotPrefix, Memory};

use super::records::InsightSums;

/// Prediction errors and memory use: the values that need no copy of the sums.
#[derive(Clone, Copy, Debug)]
pub struct InsightGauges {
    /// Predicted less actual cached tokens.
    pub cached_tokens: ErrorSummary,
    /// Predicted less actual time to the first token, seconds.
    pub ttft_s: ErrorSummary,
    /// Memory use of the attributor.
    pub memory: Memory,
}

/// All sums since the start.
#[derive(Clone, Debug)]
pub struct InsightSnapshot {
    /// Prompt tokens by bucket.
    pub waterfalls: Waterfalls,
    /// Prediction errors and memory use.
    pub gauges: InsightGauges,
}

/// Waterfalls by key.
#[derive(Clone, Debug)]
pub struct Waterfalls {
    /// All requests that could be explained.
    pub total: Waterfall,
    /// By tenant's tag, `""` for requests without a salt, `"other"` last where there are too many.
    pub tenants: Vec<(String, Waterfall)>,
    /// By model.
    pub models: Vec<(String, Waterfall)>,
    /// By the prefixes that most requests begin with, those first.
    pub prefixes: Vec<PrefixRow>,
}

/// A prefix that many requests begin with.
#[derive(Clone, Debug)]
pub struct PrefixRow {
    /// The key of an early block, 16 digits.
    pub key: String,
    /// Requests that begin so, at most.
    pub requests: u64,
    /// Most requests by which `requests` may be too high.
    pub requests_error: u64,
    /// Its requests' tokens.
    pub waterfall: Waterfall,
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
            waterfalls: Waterfalls {
                total: sums.total,
                tenants: rows(&sums.tenants),
                models: rows(&sums.models),
                prefixes: sums.prefixes.rows().into_iter().map(prefix).collect(),
            },
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

fn prefix(row: HotPrefix) -> PrefixRow {
    PrefixRow {
        key: format!("{:016x}", row.key.0),
        requests: row.requests,
        requests_error: row.missed,
        waterfall: row.waterfall,
    }
}
