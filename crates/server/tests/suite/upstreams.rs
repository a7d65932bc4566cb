//! A gateway before upstream engines: here, servers of our own.

use crate::support;

use std::path::PathBuf;
use std::time::Duration;

use headstart_core::ReplicaId;
use headstart_server::{RunningServer, UpstreamConfig};
use serde_json::json;
use support::{chat, embedded, eventually, get, proxy, start, text};

fn upstream(url: String) -> UpstreamConfig {
    UpstreamConfig { url, kv_events: None, kv_replay: None, data_parallel_size: 1, tokenizer: None }
}

async fn pair() -> (Vec<RunningServer>, RunningServer) {
    let engines = vec![start(embedded(1, 256)).await, start(embedded(1, 256)).await];
    let urls = engines.iter().map(|engine| upstream(format!("http://{}", engine.address())));
    let mut config = proxy(urls.collect());
    config.limits.health_interval = Duration::from_millis(50);
    let gateway = start(config).await;
    (engines, gateway)
}

#[tokio::test]
async fn answers_pass_through_whole_and_streamed() {
    let (engines, gateway) = pair().await;
    let models = get(&gateway, "/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "toy");
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": text(40, 3)}],
        "max_tokens": 6, "temperature": 0,
    });
    let whole = chat(&gateway, &body).await;
    assert_eq!(whole.status, 200);
    assert!(whole.header("x-headstart-replica").is_some());
    assert_eq!(whole.header("x-headstart-cached-tokens"), Some("0"));
    body["stream"] = json!(true);
    let streamed = chat(&gateway, &body).await;
    assert_eq!(streamed.events().last().map(String::as_str), Some("[DONE]"));
    let metrics = get(&gateway, "/metrics").await.body;
    let ends = metrics.lines().filter(|line| line.starts_with("vllm:request_success_total{"));
    let ends = ends.filter(|line| line.contains(r#"finished_reason="length""#));
    let ended: f64 = ends.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert_eq!(ended, 2.0, "{metrics}");
    body["model"] = json!("other");
    let unknown = chat(&gateway, &body).await;
    assert_eq!((unknown.status, &unknown.error_code()[..]), (404, "model_not_found"));
    body["model"] = json!("toy");
    body["made_up"] = json!(1);
    assert_eq!(chat(&gateway, &body).await.error_code(), "unsupported_parameter");
    eventually("no reservation", || gateway.gateway().router().stats().reservations == 0).await;
    gateway.shutdown().await;
    for engine in engines {
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_dead_upstream_is_forgotten_and_its_requests_go_elsewhere() {
    let (mut engines, gateway) = pair().await;
    engines.remove(0).shutdown().await;
    for seed in 0..6 {
        let body = json!({
            "model": "toy", "messages": [{"role": "user", "content": text(20, seed)}],
            "max_tokens": 2,
        });
        let answer = chat(&gateway, &body).await;
        assert_eq!((answer.status, answer.header("x-headstart-replica")), (200, Some("1")));
    }
    eventually("the router to notice", || gateway.gateway().is_down(ReplicaId(0))).await;
    engines.remove(0).shutdown().await;
    eventually("both to be down", || !gateway.gateway().is_ready()).await;
    let body = json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = chat(&gateway, &body).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (503, "replica_gone"));
    assert_eq!(get(&gateway, "/ready").await.status, 503);
    gateway.shutdown().await;
}

/// The events of a replica of ours, read by another gateway as an engine's, lead the second turn
/// to the engine that holds the first.
#[tokio::test]
async fn a_tokenizer_and_events_make_upstream_routing_precise() {
    let toy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data/toy-tokenizer");
    let engines = vec![start(embedded(1, 256)).await, start(embedded(1, 256)).await];
    let described = engines.iter().map(|engine| UpstreamConfig {
        kv_events: Some(engine.event_endpoints()[0].events.clone()),
        kv_replay: engine.event_endpoints()[0].replay.clone(),
        tokenizer: Some(toy.clone()),
        ..upstream(format!("http://{}", engine.address()))
    });
    let gateway = start(proxy(described.collect())).await;
    let mut homes = std::collections::HashSet::new();
    for seed in 0..8 {
        let mut messages = vec![json!({"role": "user", "content": text(100, seed)})];
        let body = json!({"model": "toy", "messages": messages, "max_tokens": 8});
        let first = chat(&gateway, &body).await;
        let home = first.header("x-headstart-replica").expect("named").to_owned();
        messages.push(first.json()["choices"][0]["message"].clone());
        messages.push(json!({"role": "user", "content": "more"}));
        let body = json!({"model": "toy", "messages": messages, "max_tokens": 8});
        let second = chat(&gateway, &body).await;
        assert_eq!(second.header("x-headstart-replica"), Some(&home[..]));
        let cached = second.header("x-headstart-cached-tokens").expect("said");
        assert!(cached.parse::<u32>().expect("a count") >= 96, "{cached}");
        homes.insert(home);
    }
    assert_eq!(homes.len(), 2, "ties are spread");
    let entries = || gateway.gateway().router().stats().index.entries;
    eventually("events in the index", || entries() >= 8 * 6).await;
    gateway.shutdown().await;
    for engine in engines {
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn full_engines_are_429_not_503() {
    let small = || {
        let mut config = embedded(1, 64);
        if let headstart_server::EngineBackend::Embedded(fleet) = &mut config.backend {
            (fleet.engine.max_sequences, fleet.engine.max_waiting) = (1, 1);
        }
        config
    };
    let engines = [start(small()).await, start(small()).await];
    let urls = engines.iter().map(|engine| upstream(format!("http://{}", engine.address())));
    let gateway = start(proxy(urls.collect())).await;
    let body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 400,
        "ignore_eos": true,
    });
    let answers = futures::future::join_all((0..16).map(|_| chat(&gateway, &body))).await;
    let with = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert!(with(200) >= 4 && with(429) > 0 && with(200) + with(429) == 16, "{answers:?}");
    let full = answers.iter().find(|answer| answer.status == 429).expect("counted");
    assert_eq!((full.header("retry-after"), &full.error_code()[..]), (Some("1"), "queue_full"));
    gateway.shutdown().await;
    for engine in engines {
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_gateway_before_itself_is_a_loop_not_a_storm() {
    let placeholder = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = placeholder.local_addr().expect("an address");
    drop(placeholder);
    let mut config = proxy(vec![upstream(format!("http://{address}"))]);
    config.listen = address;
    let gateway = start(config).await;
    eventually("itself to be up", || gateway.gateway().is_ready()).await;
    let body = json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = chat(&gateway, &body).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (508, "loop_detected"));
    gateway.shutdown().await;
}

/// A returned engine is asked again for its models.
#[tokio::test]
async fn an_engine_that_comes_back_with_another_model_is_asked_again() {
    let engine = start(embedded(1, 64)).await;
    let address = engine.address();
    let mut config = proxy(vec![upstream(format!("http://{address}"))]);
    config.limits.health_interval = Duration::from_millis(50);
    let gateway = start(config).await;
    assert_eq!(gateway.gateway().models(), ["toy"]);
    engine.shutdown().await;
    eventually("it to be down", || gateway.gateway().is_down(ReplicaId(0))).await;
    let mut config = embedded(1, 64);
    config.listen = address;
    if let headstart_server::EngineBackend::Embedded(fleet) = &mut config.backend {
        fleet.name = "other".to_owned();
    }
    let engine = start(config).await;
    eventually("the new name", || gateway.gateway().models() == ["other"]).await;
    gateway.shutdown().await;
    engine.shutdown().await;
}

/// The ports of embedded replicas' events can be set, and are shown.
#[tokio::test]
async fn embedded_replicas_publish_on_the_ports_that_were_named() {
    let on = |port: u16| {
        let mut config = embedded(2, 64);
        if let headstart_server::EngineBackend::Embedded(fleet) = &mut config.backend {
            fleet.kv_events_port = Some(port);
        }
        headstart_server::serve(config)
    };
    for wrong in [0, 65_533] {
        let error = on(wrong).await.map(|_| ()).expect_err("not four ports");
        assert!(error.to_string().contains("--kv-events-port"), "{error}");
    }
    let mut free = None;
    for port in (30_000..31_000).step_by(4) {
        if let Ok(server) = on(port).await {
            free = Some((port, server));
            break;
        }
    }
    let (port, server) = free.expect("four free ports in a row");
    let taken = on(port).await.map(|_| ()).expect_err("it is taken");
    let taken = taken.to_string();
    assert!(taken.contains(&format!("127.0.0.1:{port}")), "{taken}");
    assert!(taken.contains("another --kv-events-port"), "{taken}");
    let index = get(&server, "/debug/index").await.json();
    for (at, endpoints) in server.event_endpoints().iter().enumerate() {
        let tcp = |port: usize| format!("tcp://127.0.0.1:{port}");
        let first = usize::from(port) + 2 * at;
        let (events, replay) = (tcp(first), tcp(first + 1));
        assert_eq!(endpoints.events, events);
        assert_eq!(endpoints.replay.as_deref(), Some(&replay[..]));
        let told = &index["replicas"][at];
        assert_eq!(told["kv_events"], events, "{told}");
        assert_eq!(told["kv_replay"], replay);
    }
    server.shutdown().await;
}
