//! A page with curves that opens without a network: `page.html` with the data in it.

use headstart_core::stats::HitCount;
use headstart_sim::ReplayOutcome;
use serde_json::{Value, json};

use super::{ReplayReport, ReplayRow, words};
use headstart_page::{ReportPage, ReportProvenance};

const PAGE: ReportPage = ReportPage {
    kind: "Cache replay",
    body: include_str!("page.html"),
    script: include_str!("page.js"),
};

/// The whole page.
pub fn page(report: &ReplayReport, made: &ReportProvenance) -> String {
    PAGE.with(made, &data(report))
}

fn data(report: &ReplayReport) -> Value {
    let trace = &report.trace;
    let policies = report.policies().into_iter().map(|policy| {
        let mut rows: Vec<_> = report.rows.iter().filter(|row| row.policy == policy).collect();
        rows.sort_by_key(|row| row.blocks);
        rows.dedup_by_key(|row| row.blocks);
        let points = rows.into_iter().map(|row| point(report, row));
        json!({"name": policy, "points": points.collect::<Vec<_>>()})
    });
    let all = report.infinite.all();
    json!({
        "trace": trace.name,
        "requests": trace.requests,
        "cold_requests": trace.cold_requests,
        "seconds": trace.seconds,
        "lookups": all.blocks.lookups,
        "prompt_tokens": all.tokens.lookups,
        "distinct_blocks": trace.distinct_blocks,
        "block_tokens": trace.info.block_tokens,
        "kv": report.kv.as_ref().map(|kv| format!("{} bytes ({})", kv.per_token, kv.shape)),
        "provenance": {
            "sessions": trace.info.sessions.to_string(),
            "turns": trace.info.turns.to_string(),
            "types": trace.info.types_from.to_string(),
        },
        "remarks": trace.remarks,
        "words": words(report),
        "policies": policies.collect::<Vec<_>>(),
        "infinite": rates(&report.infinite),
    })
}

fn point(report: &ReplayReport, row: &ReplayRow) -> Value {
    let mut point = rates(&row.outcome);
    let bytes = report.block_bytes();
    point["blocks"] = json!(row.blocks);
    point["gb"] = json!(bytes.map(|bytes| bytes as f64 * row.blocks as f64 / 1e9));
    point["full_at"] = json!(row.outcome.full_at.map(|request| u64::from(request) + 1));
    point["share"] = json!(report.share_of_yardstick(row));
    point
}

/// Hit rates by unit and part; `null` where nothing was looked up.
fn rates(outcome: &ReplayOutcome) -> Value {
    let rate = |count: HitCount| (count.lookups > 0).then(|| count.rate());
    let all = outcome.all();
    json!({
        "blocks_rate": {
            "all": rate(all.blocks),
            "cold": rate(outcome.cold.blocks),
            "steady": rate(outcome.steady.blocks),
        },
        "tokens_rate": {
            "all": rate(all.tokens),
            "cold": rate(outcome.cold.tokens),
            "steady": rate(outcome.steady.tokens),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use headstart_page as frame;

    #[test]
    fn the_page_holds_its_data_and_needs_nothing_else() {
        let report = testing::report(&[("lru", &[(50, 200)]), ("belady", &[(50, 400)])]);
        let page = page(&report, &frame::testing::made());
        assert!(page.contains("\"name\":\"lru\""));
        frame::testing::check(&page);
    }
}
