//! One JSON object a line and cell, complete in itself.

use headstart_core::stats::HitCount;
use headstart_sim::{HitTally, ReplayOutcome};
use serde_json::{Value, json};

use super::{ReplayReport, ReplayRow};

/// One line per row.
pub fn json_lines(report: &ReplayReport) -> String {
    let knees = report.policies().into_iter().map(|policy| {
        let curve = report.curve(policy);
        (policy, curve.knee().map(|index| curve.rows[index].blocks))
    });
    let knees: Vec<_> = knees.collect();
    let line = |row: &ReplayRow| {
        let knee = knees.iter().find(|(policy, _)| *policy == row.policy);
        let mut line = cell(report, row);
        line["knee_blocks"] = json!(knee.and_then(|(_, blocks)| *blocks));
        line.to_string()
    };
    report.rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn cell(report: &ReplayReport, row: &ReplayRow) -> Value {
    let ReplayRow { policy, asked, blocks, outcome } = row;
    let all = outcome.all();
    let capacity_bytes = report.block_bytes().map(|block| u128::from(*blocks) * block);
    let trace = &report.trace;
    json!({
        "policy": policy,
        "capacity": asked,
        "capacity_blocks": blocks,
        "capacity_bytes": capacity_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
        "requests": all.requests,
        "lookups": all.blocks.lookups,
        "hits": all.blocks.hits,
        "block_hit_rate": all.blocks.rate(),
        "tokens": count(all.tokens),
        "token_hit_rate": all.tokens.rate(),
        "cold": tally(&outcome.cold),
        "steady": tally(&outcome.steady),
        "share_of_belady": report.share_of_yardstick(row),
        "insertions": outcome.insertions,
        "evictions": outcome.evictions,
        "full_at": outcome.full_at.map(|request| request + 1),
        "classes": classes(report, outcome),
        "infinite": tally(&report.infinite.all()),
        "trace": {
            "file": trace.name,
            "block_tokens": trace.info.block_tokens,
            "distinct_blocks": trace.distinct_blocks,
            "seconds": trace.seconds,
            "sessions": trace.info.sessions.to_string(),
            "turns": trace.info.turns.to_string(),
            "types": trace.info.types_from.to_string(),
            "remarks": trace.remarks,
        },
    })
}

fn classes(report: &ReplayReport, outcome: &ReplayOutcome) -> Vec<Value> {
    let class = |(class, counts): (&_, &_)| {
        let headstart_sim::RequestClass { turn, .. } = *class;
        let mut line = json!({"type": report.class_name(*class), "turn": turn});
        if let (Value::Object(line), Value::Object(counts)) = (&mut line, tally(counts)) {
            line.extend(counts);
        }
        line
    };
    outcome.classes.iter().map(class).collect()
}

fn tally(tally: &HitTally) -> Value {
    json!({
        "requests": tally.requests,
        "blocks": count(tally.blocks),
        "tokens": count(tally.tokens),
    })
}

fn count(count: HitCount) -> Value {
    json!({"lookups": count.lookups, "hits": count.hits, "hit_rate": count.rate()})
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn a_line_holds_counts_and_what_they_count() {
        let report = testing::report(&[("lru", &[(50, 200)]), ("belady", &[(50, 400)])]);
        let lines = json_lines(&report);
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let lru = &lines[0];
        assert_eq!(lru["block_hit_rate"], 0.2);
        assert_eq!(lru["share_of_belady"], 0.5);
        assert_eq!(lru["steady"]["blocks"]["hit_rate"], 0.25);
        assert_eq!(lru["cold"]["requests"], 20);
        assert_eq!(lru["classes"][0]["turn"], 10);
        assert_eq!(lru["classes"][0]["tokens"]["hits"], 3_200);
        assert_eq!(lru["infinite"]["blocks"]["hit_rate"], 0.9);
        assert_eq!(lru["trace"]["sessions"], "absent");
        assert_eq!(lines[1]["share_of_belady"], 1.0);
    }
}
