//! Cached tokens of an engine with lower tiers, split by tier as its events told.

use crate::support;

use headstart_core::Tier;
use headstart_server::RunningServer;
use serde_json::Value;
use support::fake_engine::{BLOCK, FakeEngine};
use support::{eventually, get, post, proxy, start};

/// Blocks of each prompt.
const BLOCKS: usize = 10;

/// A prompt that shares no block with another seed's.
fn prompt(seed: u32) -> Vec<u32> {
    (0..(BLOCKS * BLOCK) as u32).map(|at| 100 * seed + at % 97).collect()
}

fn entries(gateway: &RunningServer) -> usize {
    gateway.gateway().router().stats().index.entries
}

/// The record of a request whose engine says that it found `cached` blocks.
async fn record(gateway: &RunningServer, engine: &FakeEngine, seed: u32, cached: usize) -> Value {
    engine.tell_cached(cached * BLOCK);
    let answer = post(gateway, "/v1/completions", &engine.ask(&prompt(seed))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    eventually("no reservation", || gateway.gateway().router().stats().reservations == 0).await;
    get(gateway, "/debug/requests?limit=1").await.json()["requests"][0].clone()
}

fn blocks(record: &Value, bucket: &str) -> u64 {
    record["buckets"][bucket].as_u64().unwrap_or(0) / BLOCK as u64
}

#[tokio::test]
async fn cached_tokens_are_split_by_the_tiers_that_events_told_of() {
    let engine = FakeEngine::start(1, Some(1000)).await;
    let gateway = start(proxy(vec![engine.upstream()])).await;
    for seed in 1..4 {
        let before = entries(&gateway);
        // Tiers overlap, as an engine demotes copies.
        engine.store_in(0, &prompt(seed), 0..2, Tier::Device);
        engine.store_in(0, &prompt(seed), 1..4, Tier::Host);
        engine.store_in(0, &prompt(seed), 0..1, Tier::Disk);
        engine.store_in(0, &prompt(seed), 3..7, Tier::Disk);
        eventually("its blocks", || entries(&gateway) == before + 10).await;
    }
    for (seed, cached, expected) in [
        (1, 7, [2, 2, 3, 0]),
        // Fewer than predicted: two blocks on disk were not loaded.
        (2, 5, [2, 2, 1, 2]),
        // More than the index knew.
        (3, 8, [3, 2, 3, 0]),
        // Nothing is known of this one.
        (4, 6, [6, 0, 0, 0]),
    ] {
        let record = record(&gateway, &engine, seed, cached).await;
        let found = ["device", "host", "disk", "load-failed"].map(|name| blocks(&record, name));
        assert_eq!(found, expected, "{record}");
        let buckets = record["buckets"].as_object().expect("it was explained");
        let sum: u64 = buckets.values().filter_map(Value::as_u64).sum();
        assert_eq!(sum, (BLOCKS * BLOCK) as u64, "{record}");
    }
    // What is under way counts as held by the device, since the engine loads it.
    let record = record(&gateway, &engine, 1, 7).await;
    assert_eq!(blocks(&record, "device"), 7, "{record}");
    let metrics = get(&gateway, "/metrics").await.body;
    for (bucket, blocks) in [("device", 20), ("host", 6), ("disk", 7)] {
        let labels = format!("{{bucket=\"{bucket}\",model_name=\"m\"}}");
        let line = format!("headstart_prompt_tokens_total{labels} {}\n", blocks * BLOCK);
        assert!(metrics.contains(&line), "{line} {metrics}");
    }
    gateway.shutdown().await;
}
