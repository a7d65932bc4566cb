//! Troubles as the gateway shows them: its debug page, its metrics, and refusals at the start.

#[path = "../../../kv-events/tests/suite/troubles/odd_publisher.rs"]
mod odd_publisher;
use crate::support;

use std::time::Duration;

use headstart_core::{CacheEvent, ReplicaId};
use headstart_kv_events::encode_batch;
use headstart_router::stream::StreamStatus;
use headstart_server::UpstreamConfig;
use zeromq::{PubSocket, Socket};

use odd_publisher::{bound, free_address, of_type, send};
use support::fake_engine::FakeEngine;
use support::{PATIENCE, eventually, get, proxy, start};

/// An upstream that answers at one place, and has its events at another.
fn patched(engine: &FakeEngine, kv: &str, replay: Option<&str>) -> UpstreamConfig {
    UpstreamConfig {
        kv_events: Some(kv.to_owned()),
        kv_replay: replay.map(str::to_owned),
        ..engine.upstream()
    }
}

#[tokio::test]
async fn the_debug_page_says_what_is_wrong() {
    let engine = FakeEngine::start(1, Some(10)).await;
    let dead = free_address();
    let gateway = start(proxy(vec![patched(&engine, &dead, None), engine.upstream()])).await;
    let stream = |replica: u32| gateway.gateway().stream_reporter(ReplicaId(replica));
    let problem = || stream(0).and_then(|stream| stream.problem());
    eventually("a problem", || problem().is_some()).await;
    let replicas = get(&gateway, "/debug/index").await.json()["replicas"].clone();
    let told = replicas[0]["stream"]["problem"].as_str().expect("a text");
    assert!(told.contains(&dead) && told.contains("nothing listens"), "{told}");
    assert!(replicas[1]["stream"]["problem"].is_null(), "{replicas}");
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_stream_whose_engine_is_down_is_not_complete() {
    let (engine, other) =
        (FakeEngine::start(1, Some(10)).await, FakeEngine::start(1, Some(10)).await);
    let UpstreamConfig { kv_events, kv_replay, .. } = other.upstream();
    let kv = kv_events.expect("it publishes");
    let mut config = proxy(vec![patched(&engine, &kv, kv_replay.as_deref())]);
    config.limits.health_interval = Duration::from_millis(20);
    let gateway = start(config).await;
    let replica = ReplicaId(0);
    let status = || gateway.gateway().stream_report(replica).map(|report| report.status);
    eventually("all", || status() == Some(StreamStatus::Complete)).await;
    let state = |state: &str, value: u32| {
        format!("headstart_kv_stream_state{{replica=\"0\",state=\"{state}\"}} {value}\n")
    };
    let metrics = get(&gateway, "/metrics").await.body;
    assert!(metrics.contains(&state("complete", 1)), "{metrics}");
    // The process that answers is gone, the one that publishes is not.
    drop(engine);
    eventually("down", || gateway.gateway().is_down(replica)).await;
    let metrics = get(&gateway, "/metrics").await.body;
    assert!(metrics.contains("headstart_replica_up{replica=\"0\"} 0\n"), "{metrics}");
    assert!(metrics.contains(&state("complete", 0)), "{metrics}");
    assert!(metrics.contains(&state("down", 1)), "{metrics}");
    eventually("nobody follows", || status() == Some(StreamStatus::Down)).await;
    gateway.shutdown().await;
}

#[tokio::test]
async fn stamps_ahead_of_time_and_events_left_out_are_counted_by_what_they_are() {
    let engine = FakeEngine::start(1, Some(10)).await;
    let mut live = PubSocket::new();
    let kv = bound(&mut live).await;
    let gateway = start(proxy(vec![patched(&engine, &kv, None)])).await;
    let replica = ReplicaId(0);
    let applied = || {
        let report = gateway.gateway().stream_report(replica);
        report.map_or(0, |report| report.applied_batches)
    };
    let ahead = headstart_index_sync::clock::unix_seconds() + 3600.0;
    let mut seq = 0;
    while applied() == 0 {
        let removed = CacheEvent::Cleared;
        send(&mut live, seq, encode_batch(ahead + seq as f64, &[removed], None)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        seq += 1;
    }
    send(&mut live, seq, of_type("BlockPinned")).await;
    let by_reason = "headstart_kv_events_skipped_total{reason=\"unknown_type\",replica=\"0\"} 2\n";
    let metrics = async || get(&gateway, "/metrics").await.body;
    let counted = async {
        while !metrics().await.contains(by_reason) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("counted");
    let metrics = metrics().await;
    let stamps = "headstart_kv_event_implausible_stamps_total{direction=\"ahead\",replica=\"0\"} ";
    assert!(metrics.contains(stamps), "{metrics}");
    assert!(!metrics.contains("headstart_kv_event_lag_seconds_count{replica=\"0\"}"), "{metrics}");
    gateway.shutdown().await;
}

/// Addresses that only a listener can use, and port 0, are refused.
#[tokio::test]
async fn an_address_to_listen_on_is_refused_with_what_to_write() {
    let engine = FakeEngine::start(1, Some(10)).await;
    let good = engine.upstream().kv_events.expect("it publishes");
    for (kv, replay, part) in [
        ("tcp://*:5557", None, "in its place"),
        (&good[..], Some("tcp://*:5567"), "in its place"),
        ("tcp://127.0.0.1:0", None, "port 0"),
        (&good[..], Some("tcp://127.0.0.1:0"), "port 0"),
    ] {
        let refused = headstart_server::serve(proxy(vec![patched(&engine, kv, replay)])).await;
        let error = refused.err().expect("no address").to_string();
        assert!(error.contains(part), "{error}");
    }
}
