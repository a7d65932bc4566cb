//! A report with counts that a test wrote down.

use headstart_core::stats::HitCount;
use headstart_sim::{HitTally, ReplayOutcome, RequestClass};
use headstart_trace::TraceInfo;

use super::{ReplayReport, ReplayRow};
use crate::TraceFacts;

/// Look-ups of every row, in blocks.
pub(super) const LOOKUPS: u64 = 1_000;

/// A trace of 100 requests, 100 s and 100 distinct blocks of 16 tokens, and rows of each policy:
/// (blocks, block hits).
pub(super) fn report(policies: &[(&str, &[(u64, u64)])]) -> ReplayReport {
    let rows = policies.iter().flat_map(|&(policy, cells)| {
        let row = move |&(blocks, hits)| ReplayRow {
            policy: policy.to_owned(),
            asked: None,
            blocks,
            outcome: outcome(hits),
        };
        cells.iter().map(row)
    });
    ReplayReport {
        trace: TraceFacts {
            name: "trace.jsonl".to_owned(),
            info: TraceInfo::new(16),
            remarks: Vec::new(),
            requests: 100,
            cold_requests: 20,
            seconds: 100.0,
            distinct_blocks: 100,
        },
        kv: None,
        infinite: outcome(900),
        rows: rows.collect(),
    }
}

/// A fifth of the requests and look-ups is cold and hits nothing.
fn outcome(hits: u64) -> ReplayOutcome {
    let count = |lookups, hits| HitCount { lookups, hits };
    let tally = |requests, lookups, hits| HitTally {
        requests,
        blocks: count(lookups, hits),
        tokens: count(16 * lookups, 16 * hits),
    };
    let class = RequestClass { request_type: 0, turn: 10 };
    ReplayOutcome {
        cold: tally(20, LOOKUPS / 5, 0),
        steady: tally(80, LOOKUPS - LOOKUPS / 5, hits),
        classes: [(class, tally(100, LOOKUPS, hits))].into_iter().collect(),
        insertions: 50,
        evictions: 40,
        full_at: Some(30),
    }
}
