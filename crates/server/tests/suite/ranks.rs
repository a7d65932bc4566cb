//! Engines with data-parallel ranks behind one address: each rank has a cache of its own, and is
//! asked by number.

use crate::support;

use std::time::Duration;

use headstart_core::{Nanos, ReplicaId};
use headstart_router::stream::StreamReport;
use headstart_server::{RunningServer, UpstreamConfig};
use serde_json::Value;
use support::fake_engine::{BLOCK, FakeEngine};
use support::{Answer, eventually, exchange, get, post, proxy, request, start};

/// Returns a prompt of `blocks` blocks that shares none with another seed's.
fn prompt(seed: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * BLOCK) as u32).map(|at| 100 * seed + at % 97).collect()
}

async fn gateway(upstreams: Vec<UpstreamConfig>) -> RunningServer {
    let mut config = proxy(upstreams);
    config.limits.health_interval = Duration::from_millis(20);
    start(config).await
}

async fn ask(gateway: &RunningServer, engine: &FakeEngine, tokens: &[u32]) -> Answer {
    let answer = post(gateway, "/v1/completions", &engine.ask(tokens)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

fn entries(gateway: &RunningServer) -> usize {
    gateway.gateway().router().stats().index.entries
}

fn report(gateway: &RunningServer, replica: u32) -> StreamReport {
    let report = gateway.gateway().stream_report(ReplicaId(replica));
    report.unwrap_or_default()
}

async fn debug(gateway: &RunningServer) -> Value {
    get(gateway, "/debug/index").await.json()["replicas"].clone()
}

#[tokio::test]
async fn a_prompt_goes_to_the_rank_that_holds_it() {
    let engine = FakeEngine::start(2, Some(1000)).await;
    let gateway = gateway(vec![engine.upstream()]).await;
    for (seed, rank) in [(1, 1), (2, 0), (3, 1), (4, 0)] {
        let before = entries(&gateway);
        engine.store(rank, &prompt(seed, 4));
        eventually("the rank's blocks", || entries(&gateway) == before + 4).await;
    }
    for (seed, rank) in [(1, "1"), (2, "0"), (3, "1"), (4, "0")] {
        let answer = ask(&gateway, &engine, &prompt(seed, 6)).await;
        assert_eq!(answer.header("x-headstart-replica"), Some(rank));
        assert_eq!(engine.ranks_asked().last(), Some(&Some(rank.to_owned())));
    }
    let replicas = debug(&gateway).await;
    for rank in 0..2 {
        assert_eq!(replicas[rank]["rank"], rank);
        assert_eq!(replicas[rank]["upstream"], engine.upstream().url);
        assert_eq!(replicas[rank]["blocks"]["device"], 8);
    }
    let metrics = get(&gateway, "/metrics").await.body;
    for rank in ["0", "1"] {
        let url = engine.upstream().url;
        let labels = format!("{{rank=\"{rank}\",replica=\"{rank}\",upstream=\"{url}\"}} 1");
        assert!(metrics.contains(&format!("headstart_replica_info{labels}")), "{metrics}");
    }
    // The fake says rank 0 in all its batches, which the subscriber of rank 1 does not expect.
    assert_eq!(report(&gateway, 0).rank_mismatches, 0);
    assert!(report(&gateway, 1).rank_mismatches >= 8);
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_rank_whose_stream_breaks_is_doubted_alone() {
    let mut engine = FakeEngine::start(2, None).await;
    let gateway = gateway(vec![engine.upstream()]).await;
    // Without replays nothing tells that a subscription is in place but its first message.
    for rank in 0..2 {
        let held = |gateway: &RunningServer| report(gateway, rank as u32).applied_batches > 0;
        for _ in 0..500 {
            engine.store(rank, &prompt(rank as u32, 4));
            if held(&gateway) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        engine.store(rank, &prompt(rank as u32, 4));
    }
    eventually("all blocks", || entries(&gateway) == 8).await;
    engine.restart_publisher(1).await;
    let doubtful = || gateway.gateway().router().stats().index.doubtful;
    eventually("doubt", || doubtful() > 0).await;
    let replicas = debug(&gateway).await;
    assert_eq!(replicas[0]["doubtful_blocks"], 0);
    assert_eq!(replicas[1]["doubtful_blocks"], 4);
    assert!(replicas[0]["healthy"] == true && replicas[1]["healthy"] == true);
    gateway.shutdown().await;
}

#[tokio::test]
async fn health_is_asked_once_for_all_ranks() {
    let (four, one) = (FakeEngine::start(4, Some(10)).await, FakeEngine::start(1, Some(10)).await);
    let gateway = gateway(vec![four.upstream(), one.upstream()]).await;
    eventually("checks", || one.health_checks() >= 20).await;
    // Both are asked at the same pace, whatever their ranks.
    let asked = four.health_checks();
    assert!(asked <= 2 * one.health_checks(), "{asked}");
    gateway.shutdown().await;
}

#[tokio::test]
async fn ranks_of_a_dead_engine_go_down_together() {
    let (four, one) = (FakeEngine::start(4, Some(10)).await, FakeEngine::start(1, Some(10)).await);
    let mut config = proxy(vec![four.upstream(), one.upstream()]);
    // Only the request itself notices.
    config.limits.health_interval = Duration::from_secs(3600);
    let gateway = start(config).await;
    let num_up = || {
        let ranks = (0..4).map(ReplicaId);
        ranks.filter(|&rank| !gateway.gateway().is_down(rank)).count()
    };
    four.store(3, &prompt(1, 4));
    eventually("the rank's blocks", || entries(&gateway) == 4).await;
    assert_eq!(num_up(), 4);
    drop(four);
    // The first choice is the dead rank; the second is not one of its siblings.
    let answer = ask(&gateway, &one, &prompt(1, 4)).await;
    assert_eq!(answer.header("x-headstart-replica"), Some("4"));
    assert_eq!((num_up(), entries(&gateway)), (0, 0));
    assert!(!gateway.gateway().is_down(ReplicaId(4)));
    gateway.shutdown().await;
}

#[tokio::test]
async fn the_header_is_the_gateways_where_there_are_ranks_and_the_clients_elsewhere() {
    let (two, one) = (FakeEngine::start(2, Some(10)).await, FakeEngine::start(1, Some(10)).await);
    for (engine, expected) in [(&two, "1"), (&one, "7")] {
        let gateway = gateway(vec![engine.upstream()]).await;
        let tokens = prompt(1, 4);
        if engine.upstream().data_parallel_size > 1 {
            engine.store(1, &tokens);
            eventually("the rank's blocks", || entries(&gateway) == 4).await;
        }
        let body = engine.ask(&tokens).to_string();
        let header = "x-data-parallel-rank: 7\r\n";
        let raw = request("POST", "/v1/completions", header, &body);
        assert_eq!(exchange(&gateway, &raw).await.status, 200);
        assert_eq!(engine.ranks_asked(), [Some(expected.to_owned())]);
        gateway.shutdown().await;
    }
    let gateway = gateway(vec![one.upstream()]).await;
    ask(&gateway, &one, &prompt(1, 4)).await;
    assert_eq!(one.ranks_asked().last(), Some(&None), "no header of its own");
    let replicas = debug(&gateway).await;
    assert!(replicas[0]["rank"].is_null());
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_port_that_no_rank_can_have_is_said_at_once() {
    let mut config = FakeEngine::start(1, Some(10)).await.upstream();
    config.kv_events = Some("tcp://127.0.0.1:65535".to_owned());
    config.data_parallel_size = 2;
    let refused = headstart_server::serve(proxy(vec![config])).await;
    let error = refused.err().expect("there is no port 65536").to_string();
    assert!(error.contains("rank 1") && error.contains("65535"), "{error}");
}

/// Engines' reports of their load decide where nothing else does.
#[tokio::test]
async fn a_cold_prompt_goes_where_the_engine_says_there_is_room() {
    let engine = FakeEngine::start(2, None).await;
    let page = |waiting: [u32; 2]| {
        let of = |rank: usize| {
            format!(
                "vllm:num_requests_waiting{{engine=\"{rank}\"}} {}\n\
                 vllm:num_requests_running{{engine=\"{rank}\"}} 3\n\
                 vllm:kv_cache_usage_perc{{engine=\"{rank}\"}} 0.5\n",
                waiting[rank]
            )
        };
        of(0) + &of(1)
    };
    engine.tell_metrics(&page([0, 7]));
    let gateway = gateway(vec![engine.upstream()]).await;
    let waiting = |rank: u32| {
        // A report counts for seconds; at time 0 any is fresh.
        let report = gateway.gateway().router().report_of(ReplicaId(rank), Nanos(0));
        report.map(|report| report.waiting)
    };
    eventually("both loads", || (waiting(0), waiting(1)) == (Some(0), Some(7))).await;
    for seed in 1..6 {
        let answer = ask(&gateway, &engine, &prompt(seed, 2)).await;
        assert_eq!(answer.header("x-headstart-replica"), Some("0"));
    }
    let metrics = get(&gateway, "/metrics").await.body;
    let line = "vllm:num_requests_waiting{model_name=\"m\",replica=\"1\"} 7";
    assert!(metrics.contains(line), "{metrics}");
    engine.tell_metrics(&page([9, 0]));
    eventually("new loads", || (waiting(0), waiting(1)) == (Some(9), Some(0))).await;
    for seed in 11..16 {
        let answer = ask(&gateway, &engine, &prompt(seed, 2)).await;
        assert_eq!(answer.header("x-headstart-replica"), Some("1"));
    }
    gateway.shutdown().await;
}
