//! Explanations of requests, as clients can query them.

use crate::support;

use headstart_server::RunningServer;
use serde_json::{Value, json};
use support::{
    chat, drained, embedded, eventually, exchange, get, proxy, request, start, text, toy_tokenizer,
};

async fn asked(server: &RunningServer, path: &str) -> Value {
    let answer = get(server, path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn question(seed: usize, stream: bool) -> Value {
    json!({
        "model": "toy", "messages": [{"role": "user", "content": text(200, seed)}],
        "max_tokens": 2, "temperature": 0, "stream": stream,
        "stream_options": if stream { json!({"include_usage": true}) } else { Value::Null },
    })
}

/// The record's buckets are its prompt; and one of them.
fn tokens(record: &Value, bucket: &str) -> u64 {
    let buckets = record["buckets"].as_object().expect("it was explained");
    let sum: u64 = buckets.values().filter_map(Value::as_u64).sum();
    assert_eq!(Some(sum), record["prompt_tokens"].as_u64(), "{record}");
    record["buckets"][bucket].as_u64().unwrap_or(0)
}

#[tokio::test]
async fn a_request_is_explained_by_its_answers_id() {
    let server = start(embedded(2, 256)).await;
    let first = chat(&server, &question(1, false)).await.json();
    let id = first["id"].as_str().expect("an id");
    let record = asked(&server, &format!("/debug/requests/{id}")).await;
    assert!(tokens(&record, "never-seen") > 100, "{record}");
    assert_eq!(record["cached_tokens"], 0);
    assert_eq!(record["candidates"].as_array().map(Vec::len), Some(2));
    assert!(record["predicted_ttft_s"].as_f64() > Some(0.0), "{record}");
    let second = chat(&server, &question(1, false)).await.json();
    let id = second["id"].as_str().expect("an id");
    let record = asked(&server, &format!("/debug/requests/{id}")).await;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(Some(tokens(&record, "device")), cached);
    assert_eq!(tokens(&record, "never-seen"), 0, "{record}");
    let recent = asked(&server, "/debug/requests?limit=1").await;
    assert_eq!(recent["requests"][0]["id"], id);
    assert_eq!(recent["requests"].as_array().map(Vec::len), Some(1));
    let sums = asked(&server, "/debug/waterfall").await;
    let rows = sums["waterfall"].as_array().expect("rows");
    let sum: u64 = rows.iter().filter_map(|row| row["tokens"].as_u64()).sum();
    assert_eq!((rows.len(), Some(sum)), (15, sums["prompt_tokens"].as_u64()));
    assert_eq!(sums["predictions"]["cached_tokens"]["count"], 2);
    assert_eq!(sums["models"][0]["model"], "toy");
    let ghost = &sums["ghosts"][0];
    assert_eq!((&ghost["capacity_blocks"], &ghost["requests"]), (&json!(256), &json!(2)));
    // The second of two equal prompts would be found, but for its tail.
    let infinite = ghost["hit_rate"]["infinite"].as_f64().expect("a rate");
    assert!((0.4..=0.5).contains(&infinite), "{ghost}");
    let metrics = get(&server, "/metrics").await.body;
    let name = "headstart_prompt_tokens_total{bucket=\"device\",model_name=\"toy\"}";
    assert!(metrics.contains(name), "{metrics}");
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_tenant_is_a_tag_and_its_split_has_a_bucket() {
    let server = start(embedded(1, 256)).await;
    chat(&server, &question(2, false)).await;
    let mut body = question(2, false);
    body["cache_salt"] = "acme".into();
    let raw =
        request("POST", "/v1/chat/completions", "x-request-id: mine-17\r\n", &body.to_string());
    assert_eq!(exchange(&server, &raw).await.status, 200);
    let record = asked(&server, "/debug/requests/mine-17").await;
    assert!(tokens(&record, "namespace") > 100, "{record}");
    let tag = record["tenant"].as_str().expect("a tag");
    assert_eq!(tag.len(), 12);
    let all = get(&server, "/debug/waterfall").await;
    assert!(!format!("{all:?}").contains("acme"), "no salt is shown");
    drained(&server).await;
    server.shutdown().await;
}

/// Without a tokenizer texts are compared, so that a cause is named although no bucket tells.
#[tokio::test]
async fn a_gateway_without_a_tokenizer_names_causes() {
    let engine = start(embedded(1, 256)).await;
    let upstream = headstart_server::UpstreamConfig {
        url: format!("http://{}", engine.address()),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: None,
    };
    let gateway = start(proxy(vec![upstream])).await;
    let mut last = Value::Null;
    for minute in 0..3 {
        let mut body = question(4, false);
        let content = format!("It is 2026-11-25T17:0{minute}:00Z. {}", text(200, 4));
        body["messages"][0]["content"] = content.into();
        let answer = chat(&gateway, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        last = answer.json();
    }
    let path = format!("/debug/requests/{}", last["id"].as_str().expect("an id"));
    let mut record = Value::Null;
    for _ in 0..200 {
        record = asked(&gateway, &path).await;
        if record["cause"].is_string() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(tokens(&record, "no-tokens") > 100, "{record}");
    assert_eq!(record["cause"], "clock", "{record}");
    assert!(record["fix"].is_string(), "{record}");
    gateway.shutdown().await;
    engine.shutdown().await;
}

#[tokio::test]
async fn an_upstreams_requests_are_explained_whole_and_streamed() {
    let engine = start(embedded(1, 256)).await;
    let upstream = headstart_server::UpstreamConfig {
        url: format!("http://{}", engine.address()),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: Some(toy_tokenizer()),
    };
    let gateway = start(proxy(vec![upstream])).await;
    for stream in [true, false] {
        let answer = chat(&gateway, &question(3, stream)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        eventually("no reservation", || gateway.gateway().router().stats().reservations == 0).await;
    }
    let recent = asked(&gateway, "/debug/requests").await;
    let [whole, streamed] = &recent["requests"].as_array().expect("records")[..] else {
        panic!("two requests: {recent}");
    };
    assert!(streamed["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")));
    assert!(streamed["ttft_s"].is_number() && whole["ttft_s"].is_null());
    assert!(tokens(streamed, "never-seen") > 100, "{streamed}");
    assert!(tokens(whole, "device") > 100, "{whole}");
    // An empty id is answered here, where an engine that is gone could not.
    engine.shutdown().await;
    assert_eq!(get(&gateway, "/debug/requests/").await.status, 404);
    gateway.shutdown().await;
}

#[tokio::test]
async fn nothing_is_kept_where_it_is_off() {
    let mut config = embedded(1, 256);
    config.insight = false;
    let server = start(config).await;
    chat(&server, &question(4, false)).await;
    for path in ["/debug/requests", "/debug/waterfall", "/debug/requests/x"] {
        let answer = get(&server, path).await;
        assert_eq!(answer.status, 404);
        assert!(format!("{answer:?}").contains("--insight off"), "{answer:?}");
    }
    drained(&server).await;
    server.shutdown().await;
}
