//! Report of a sweep, as table, JSON lines, CSV or HTML page.
//!
//! [`ReplayReport`] holds counts only. Rates, shares and sentences are made where they are shown.
//! Every form says whether it means blocks or tokens.

mod csv;
mod html;
mod json;
mod table;
#[cfg(test)]
mod testing;
mod words;

use headstart_analysis::kv_bytes::KvBytes;
use headstart_sim::{ReplayOutcome, RequestClass, knee};

pub use csv::csv;
pub use html::page;
pub use json::json_lines;
pub use table::{per_class, table};
pub use words::words;

use crate::TraceFacts;

/// The policy that the others are measured by.
const YARDSTICK: &str = "belady";

/// A trace, replayed.
#[derive(Debug)]
pub struct ReplayReport {
    /// Facts about the replayed trace.
    pub trace: TraceFacts,
    /// KV bytes per token, if a model is named.
    pub kv: Option<KvBytes>,
    /// Hits of a cache that never evicts.
    pub infinite: ReplayOutcome,
    /// One row per policy and capacity, policy by policy.
    pub rows: Vec<ReplayRow>,
}

/// One policy at one capacity.
#[derive(Debug)]
pub struct ReplayRow {
    /// The policy as it was asked for.
    pub policy: String,
    /// The capacity as requested; `None` for a default size.
    pub asked: Option<String>,
    /// The capacity.
    pub blocks: u64,
    /// Hits of the policy.
    pub outcome: ReplayOutcome,
}

/// A policy's rows by growing capacity, as far as more room changes something.
struct Curve<'a> {
    policy: &'a str,
    rows: Vec<&'a ReplayRow>,
}

impl ReplayReport {
    /// The policies, in the order of the rows.
    fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !policies.contains(&row.policy.as_str()) {
                policies.push(&row.policy);
            }
        }
        policies
    }

    fn curve<'a>(&'a self, policy: &'a str) -> Curve<'a> {
        let distinct = self.trace.distinct_blocks;
        let rows = self.rows.iter().filter(|row| row.policy == policy);
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| row.blocks);
        rows.dedup_by_key(|row| row.blocks.min(distinct));
        Curve { policy, rows }
    }

    /// The yardstick's row for the capacity of `row`.
    fn yardstick(&self, row: &ReplayRow) -> Option<&ReplayRow> {
        let mut rows = self.rows.iter();
        rows.find(|other| other.policy == YARDSTICK && other.blocks == row.blocks)
    }

    /// Block hits of `row` over those of the yardstick; `None` where that was not replayed.
    fn share_of_yardstick(&self, row: &ReplayRow) -> Option<f64> {
        let best = self.yardstick(row)?.outcome.all().blocks.hits;
        let hits = row.outcome.all().blocks.hits;
        (best > 0).then(|| hits as f64 / best as f64)
    }

    /// Bytes of keys and values in a block.
    fn block_bytes(&self) -> Option<u128> {
        let kv = self.kv.as_ref().filter(|_| self.trace.info.block_tokens > 0)?;
        Some(u128::from(kv.per_token) * u128::from(self.trace.info.block_tokens))
    }

    fn class_name(&self, class: RequestClass) -> &str {
        let types = &self.trace.info.types;
        let name = types.get(usize::from(class.request_type));
        name.map_or("unknown", String::as_str)
    }

    /// Whether the cache of `row` was still filling when the cold part was over.
    fn filled_late(&self, row: &ReplayRow) -> bool {
        let full_at = row.outcome.full_at;
        full_at.is_none_or(|request| request >= self.trace.cold_requests)
    }
}

impl ReplayRow {
    fn block_rate(&self) -> f64 {
        self.outcome.all().blocks.rate()
    }
}

impl<'a> Curve<'a> {
    /// The row at which the block hit rate bends.
    fn knee(&self) -> Option<usize> {
        let points = self.rows.iter().map(|row| (row.blocks, row.block_rate()));
        knee::knee(&points.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_more_room_changes_nothing() {
        let report = testing::report(&[("lru", &[(5, 1), (200, 9), (90, 7), (100, 9), (5, 1)])]);
        let curve = report.curve("lru");
        let sizes: Vec<_> = curve.rows.iter().map(|row| row.blocks).collect();
        assert_eq!(sizes, [5, 90, 100], "the trace has 100 distinct blocks");
    }
}
