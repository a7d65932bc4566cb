//! `headstart bench trace` with lower tiers: a live server beside the same decisions in virtual
//! time.

use crate::support;

use serde_json::{Value, json};
use support::{Scratch, output, text};

/// Prefixes in turn, in Mooncake's form, each time with something new behind them: two that come
/// back soon, four that come back later, and eight that come back when memory has forgotten them.
fn trace(requests: usize) -> String {
    let line = |at: usize| {
        let round = at / 3;
        let prefix = [round % 2, 2 + round % 4, 6 + round % 8][at % 3];
        let mut ids: Vec<usize> = (0..24).map(|block| 100 * prefix + block).collect();
        ids.extend((0..4).map(|block| 100_000 + 4 * at + block));
        let request = json!({
            "timestamp": at * 50,
            "input_length": ids.len() * 512,
            "output_length": 4,
            "hash_ids": ids,
        });
        format!("{request}\n")
    };
    (0..requests).map(line).collect()
}

fn arguments<'a>(trace: &'a str, store: &'a str) -> Vec<&'a str> {
    vec![
        "bench",
        "trace",
        trace,
        "--id-tokens",
        "16",
        "--output-tokens",
        "1",
        // Its decisions depend on the order of requests alone, and not on their times.
        "--policy",
        "lru",
        "--cache-blocks",
        "200",
        "--context-cache",
        store,
        "--context-cache-gib",
        "0.2",
        "--host-cache-gib",
        "0.04",
        "--json",
    ]
}

#[test]
fn each_tier_is_hit_as_often_as_in_virtual_time() {
    let scratch = Scratch::new("points");
    let trace = scratch.write("trace.jsonl", trace(120).as_bytes());
    let store = scratch.path("kv");
    let out = output(arguments(&trace, &store));
    assert!(out.status.success(), "{}", text(&out.stderr));
    let told: Value = serde_json::from_str(&text(&out.stdout)).expect("JSON");
    assert!(told["replay"].is_null() && told["report"]["failed"] == 0);
    let tiers = &told["tiers"];
    let rows = tiers["rows"].as_array().expect("rows");
    let mut sources = Vec::new();
    for row in rows {
        let points = row["points"].as_f64().expect("a number");
        assert!(points.abs() < 2.0, "{tiers}");
        sources.push(row["source"].as_str().expect("a name"));
        assert!(row["live_tokens"].as_u64().expect("a count") > 500, "{tiers}");
    }
    assert_eq!(sources, ["device", "host", "disk", "computed"]);
    let live: u64 = rows.iter().filter_map(|row| row["live_tokens"].as_u64()).sum();
    assert_eq!(told["report"]["prompt_tokens"], live, "all of them came from somewhere");

    // The folder is not new any more.
    let out = output(arguments(&trace, &store));
    let told = text(&out.stderr);
    assert!(!out.status.success() && told.contains("give a new folder"), "{told}");
}
