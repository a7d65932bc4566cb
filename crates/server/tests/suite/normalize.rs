//! Requests that are rewritten on their way, where the operator asked for it.

use crate::support;

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::State;
use axum::routing::{get as getting, post};
use headstart_prompt::Normalizers;
use headstart_server::{ServeConfig, UpstreamConfig};
use serde_json::{Value, json};
use support::{chat, embedded, get, proxy, start, text};

/// Bodies that an engine received, in order.
type Got = Arc<Mutex<Vec<String>>>;

async fn complete(State(got): State<Got>, body: String) -> Json<Value> {
    got.lock().expect("no panic").push(body);
    Json(json!({"choices": [{"message": {"role": "assistant", "content": "x"}}]}))
}

/// An engine that notes what it gets; it ends with its test.
async fn engine() -> (Got, UpstreamConfig) {
    let got = Got::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let router = axum::Router::new()
        .route("/health", getting(|| async {}))
        .route("/v1/models", getting(|| async { Json(json!({"data": [{"id": "m"}]})) }))
        .route("/v1/chat/completions", post(complete))
        .with_state(got.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let upstream = UpstreamConfig {
        url,
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: None,
    };
    (got, upstream)
}

fn with(normalizers: &str, config: ServeConfig) -> ServeConfig {
    let normalizers: Normalizers = normalizers.parse().expect("names");
    ServeConfig { normalizers, ..config }
}

fn question(system: &str, tools: [&str; 2]) -> Value {
    let tools = tools.map(|name| json!({"type": "function", "function": {"name": name}}));
    json!({"model": "m", "seed": 7, "tools": tools, "messages": [
        {"role": "system", "content": system},
        {"role": "user", "content": "It is 2025-03-03 14:05 now."},
    ]})
}

#[tokio::test]
async fn an_engine_gets_equal_requests_and_clients_are_told() {
    let (got, upstream) = engine().await;
    let gateway = start(with("tools,clock", proxy(vec![upstream]))).await;
    let one = question("Now: 2025-03-03 14:05.  \n", ["b", "a"]);
    let other = question("Now: 2025-03-03 14:06.  \n", ["a", "b"]);
    let one = chat(&gateway, &one).await;
    assert_eq!((one.status, one.header("x-headstart-normalized")), (200, Some("tools,clock")));
    let other = chat(&gateway, &other).await;
    assert_eq!(other.header("x-headstart-normalized"), Some("clock"));
    let plain = question("Be brief.", ["a", "b"]);
    assert_eq!(chat(&gateway, &plain).await.header("x-headstart-normalized"), None);
    let got = got.lock().expect("no panic").clone();
    assert_eq!(got[0], got[1]);
    assert_eq!(got[0], question("Now: 2025-03-03.  \n", ["a", "b"]).to_string());
    assert_eq!(got[2], plain.to_string());
    // What is refused was not rewritten for anybody.
    let mut refused = question("Now: 2025-03-03 14:05.", ["b", "a"]);
    refused["messages"] = json!([]);
    refused["model"] = json!("nobody");
    assert_ne!(chat(&gateway, &refused).await.status, 200);
    let metrics = get(&gateway, "/metrics").await.body;
    for line in [
        "headstart_normalized_requests_total{cause=\"tool-order\"} 1",
        "headstart_normalized_requests_total{cause=\"clock\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    gateway.shutdown().await;
}

#[tokio::test]
async fn nothing_is_rewritten_unasked() {
    let (got, upstream) = engine().await;
    let gateway = start(proxy(vec![upstream])).await;
    let asked = question("Now: 2025-03-03 14:05.  \n", ["b", "a"]);
    assert_eq!(chat(&gateway, &asked).await.header("x-headstart-normalized"), None);
    assert_eq!(*got.lock().expect("no panic"), [asked.to_string()]);
    gateway.shutdown().await;
}

/// A prompt that one client cached is a hit for another with other white space; a long body is
/// rewritten on another thread.
#[tokio::test]
async fn replicas_of_ours_find_what_another_client_wrote() {
    let server = start(with("all", embedded(1, 512))).await;
    for (seed, blanks) in [(1, "  \r\n \r\n".to_owned()), (5, "\n".repeat(20_000))] {
        let ask = |blanks: &str, question: &str| {
            let lines = [text(100, seed), text(100, seed + 1)];
            json!({"model": "toy", "max_tokens": 1, "messages": [
                {"role": "system", "content": lines.join(blanks)},
                {"role": "user", "content": question},
            ]})
        };
        let first = chat(&server, &ask("\n\n", "One?")).await;
        assert_eq!(first.header("x-headstart-normalized"), None);
        let second = chat(&server, &ask(&blanks, "Two?")).await;
        assert_eq!(second.header("x-headstart-normalized"), Some("white-space"));
        let cached = second.header("x-headstart-cached-tokens").expect("said");
        let cached: usize = cached.parse().expect("a count");
        assert!(cached >= 150, "{cached} of some 200 words");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn engines_hear_of_kind_turn_and_session_where_the_operator_asked() {
    let (got, upstream) = engine().await;
    let config = ServeConfig { has_engine_hints: true, ..proxy(vec![upstream]) };
    let gateway = start(config).await;
    let mut asked = question("Be brief.", ["a", "b"]);
    asked["user"] = json!("anna");
    assert_eq!(chat(&gateway, &asked).await.status, 200);
    let mut own = asked.clone();
    own["kv_transfer_params"] = json!({"do_remote_decode": true});
    assert_eq!(chat(&gateway, &own).await.status, 200);
    let got = got.lock().expect("no panic").clone();
    let mut hinted: Value = serde_json::from_str(&got[0]).expect("JSON");
    let hints = hinted["kv_transfer_params"]["headstart"].take();
    assert_eq!((&hints["kind"], &hints["turn"]), (&json!(1), &json!(1)));
    assert!(hints["session"].is_u64(), "{hints}");
    hinted.as_object_mut().expect("an object").remove("kv_transfer_params");
    assert_eq!(hinted, asked);
    assert_eq!(got[1], own.to_string());
    gateway.shutdown().await;
}
