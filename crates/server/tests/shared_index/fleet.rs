//! Two whole gateways before the same engines: one listens, both know where prompts are.

#[path = "../suite/support/mod.rs"]
mod support;

use std::time::Duration;

use headstart_core::ReplicaId;
use headstart_index_sync::shared::{GatewayRole, SharedServer, Timing};
use headstart_router::Prompt;
use headstart_router::index::Overlaps;
use headstart_server::{RunningServer, ServeConfig, UpstreamConfig, serve};
use serde_json::json;
use support::fake_engine::{BLOCK, FakeEngine};
use support::{chat, embedded, eventually, get, proxy, start, text, toy_tokenizer};

use crate::gateway::hasty;
use crate::service::{Memory, Service};

fn shared(service: &Service, upstreams: Vec<UpstreamConfig>) -> ServeConfig {
    let mut config = proxy(upstreams);
    config.limits.health_interval = Duration::from_millis(50);
    config.index_secret = Some(4711);
    config.shared_index = Some(SharedServer {
        url: service.url(),
        timing: Timing { rebase_entries: 8_192, ..hasty() },
    });
    config
}

fn role(gateway: &RunningServer, replica: u32) -> GatewayRole {
    let shared = gateway.gateway().shared_index().expect("it shares");
    let report = shared.report(ReplicaId(replica)).expect("a seat");
    report.role
}

async fn owns(gateway: &RunningServer, replicas: u32) {
    eventually("an owner", || {
        (0..replicas).all(|replica| role(gateway, replica) == GatewayRole::Owning)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_turn_finds_its_first_through_another_gateway() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let engines = vec![start(embedded(1, 256)).await, start(embedded(1, 256)).await];
    let upstream = |engine: &RunningServer| UpstreamConfig {
        url: format!("http://{}", engine.address()),
        kv_events: Some(engine.event_endpoints()[0].events.clone()),
        kv_replay: engine.event_endpoints()[0].replay.clone(),
        data_parallel_size: 1,
        tokenizer: Some(toy_tokenizer()),
    };
    let upstreams: Vec<_> = engines.iter().map(upstream).collect();
    let a = start(shared(&service, upstreams.clone())).await;
    owns(&a, 2).await;
    let b = start(shared(&service, upstreams)).await;
    for seed in 0..6 {
        let mut messages = vec![json!({"role": "user", "content": text(100, seed)})];
        let body = json!({"model": "toy", "messages": messages, "max_tokens": 8});
        let first = chat(&a, &body).await;
        let home = first.header("x-headstart-replica").expect("named");
        messages.push(first.json()["choices"][0]["message"].clone());
        messages.push(json!({"role": "user", "content": "more"}));
        let body = json!({"model": "toy", "messages": messages, "max_tokens": 8});
        // The events are on their way through an engine, a gateway and a server.
        let entries = |gateway: &RunningServer| gateway.gateway().index().stats().entries;
        eventually("the same entries", || {
            entries(&b) >= 6 * (seed + 1) && entries(&a) == entries(&b)
        })
        .await;
        let second = chat(&b, &body).await;
        assert_eq!(second.header("x-headstart-replica"), Some(home));
        let cached = second.header("x-headstart-cached-tokens").expect("said");
        assert!(cached.parse::<u32>().expect("a count") >= 96, "{cached}");
    }
    let metrics = get(&b, "/metrics").await.body;
    for line in [
        "headstart_shared_index_connected 1",
        "headstart_shared_index_replicas{listener=\"other\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    for server in [a, b].into_iter().chain(engines) {
        server.shutdown().await;
    }
}

/// All that a gateway knows of a prompt at the one replica: tokens, and those without doubt.
fn overlap(gateway: &RunningServer, tokens: &[u32]) -> (usize, usize) {
    let index = gateway.gateway().index();
    let namespace = Default::default();
    let mut answer = Overlaps::default();
    let keys = index.hash(Prompt { tokens, namespace, ..Prompt::default() });
    index.overlaps(&keys, gateway.gateway().clock.now(), &mut answer);
    let overlap = answer.of(ReplicaId(0));
    let all = overlap.any_tier_tokens as usize;
    (all, overlap.trusted_tokens as usize)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_over_listens_from_the_start_and_is_exact_again() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let engine = FakeEngine::start(1, Some(1000)).await;
    let a = start(shared(&service, vec![engine.upstream()])).await;
    owns(&a, 1).await;
    let b = start(shared(&service, vec![engine.upstream()])).await;
    let prompt = |seed: u32| -> Vec<u32> {
        let tokens = 0..4 * BLOCK as u32;
        tokens.map(|at| 10_000 * (seed + 1) + at).collect()
    };
    let all = 4 * BLOCK;
    // It must be followed before anything is said: what came before is replayed, or lost.
    eventually("a stream", || {
        let report = a.gateway().stream_report(ReplicaId(0));
        report.is_some()
    })
    .await;
    engine.store(0, &prompt(1));
    engine.store(0, &prompt(2));
    eventually("both at the other", || {
        overlap(&b, &prompt(1)) == (all, all) && overlap(&b, &prompt(2)) == (all, all)
    })
    .await;
    let listens = b.gateway().stream_report(ReplicaId(0)).is_some();
    assert!(!listens, "one gateway listens for both");
    for (gateway, listener) in [(&a, "own"), (&b, "other")] {
        let told = get(gateway, "/debug/index").await.json();
        assert_eq!(told["shared_index"]["connected"], true);
        assert_eq!(told["shared_index"][listener], 1);
        let replica = &told["replicas"][0];
        assert_eq!(replica["listener"], listener);
        assert_eq!(replica["stream"].is_null(), listener == "other");
    }
    a.shutdown().await;
    owns(&b, 1).await;
    engine.remove(0, &prompt(2), 1);
    eventually("exactly what the engine holds", || {
        overlap(&b, &prompt(1)) == (all, all) && overlap(&b, &prompt(2)) == (BLOCK, BLOCK)
    })
    .await;
    let doubtful = || b.gateway().index().stats().doubtful;
    eventually("no doubt", || doubtful() == 0).await;
    b.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_shared_is_refused_before_anything_is_started() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let engine = UpstreamConfig {
        url: "http://127.0.0.1:1".to_owned(),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: None,
    };
    let good = || shared(&service, vec![engine.clone()]);
    let no_secret = ServeConfig { index_secret: None, ..good() };
    let own_engines = ServeConfig { backend: embedded(1, 64).backend, ..good() };
    let folder = ServeConfig {
        state_dir: Some(std::env::temp_dir().join("headstart-never-made")),
        ..good()
    };
    for (config, reason) in [
        (no_secret, "needs --index-secret"),
        (own_engines, "--upstream"),
        (folder, "leave --state-dir out"),
    ] {
        let error = serve(config).await.err().expect("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
    serve(good()).await.expect("it starts").shutdown().await;
}
