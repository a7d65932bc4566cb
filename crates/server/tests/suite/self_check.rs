//! A gateway compares the tokens that it routes by with those that its engines compute.

use crate::support;

use std::path::{Path, PathBuf};

use headstart_server::{RunningServer, UpstreamConfig};
use serde_json::json;
use support::{chat, embedded, eventually, get, post, proxy, start, text};

const TOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/toy-tokenizer");

/// A gateway with this tokenizer before an engine of ours.
async fn behind(engine: &RunningServer, tokenizer: &Path) -> RunningServer {
    let endpoints = &engine.event_endpoints()[0];
    let upstream = UpstreamConfig {
        url: format!("http://{}", engine.address()),
        kv_events: Some(endpoints.events.clone()),
        kv_replay: endpoints.replay.clone(),
        data_parallel_size: 1,
        tokenizer: Some(tokenizer.to_owned()),
    };
    start(proxy(vec![upstream])).await
}

async fn metric(server: &RunningServer, name: &str) -> f64 {
    let body = get(server, "/metrics").await.body;
    let values = body.lines().filter(|line| line.starts_with(name));
    values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

async fn checks(server: &RunningServer, outcome: &str) -> f64 {
    let labels = format!("model_name=\"toy\",outcome=\"{outcome}\",replica=\"0\"");
    metric(server, &format!("headstart_prompt_drift_checks_total{{{labels}}}")).await
}

fn ask(messages: &[serde_json::Value]) -> serde_json::Value {
    json!({"model": "toy", "messages": messages, "max_tokens": 4})
}

/// Two turns of one conversation. Returns the second one's cached tokens.
async fn converse(gateway: &RunningServer) -> f64 {
    let mut messages = vec![json!({"role": "user", "content": text(100, 1)})];
    let first = chat(gateway, &ask(&messages)).await;
    messages.push(first.json()["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "more"}));
    let mut body = ask(&messages);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let second = chat(gateway, &body).await;
    let usage = second.events().iter().rev().find_map(|event| {
        let event: serde_json::Value = serde_json::from_str(event).ok()?;
        event["usage"]["prompt_tokens_details"]["cached_tokens"].as_f64()
    });
    usage.expect("the stream's usage")
}

/// A toy tokenizer whose chat template greets first.
fn another_template(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("headstart-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(Path::new(TOY).join(file), folder.join(file)).expect("the toy's files");
    }
    let template = "Welcome. {% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    std::fs::write(folder.join("chat_template.jinja"), template).expect("a template");
    folder
}

#[tokio::test]
async fn equal_tokens_are_found_equal_and_predictions_are_measured() {
    let engine = start(embedded(1, 256)).await;
    let gateway = behind(&engine, Path::new(TOY)).await;
    let cached = converse(&gateway).await;
    assert!(cached >= 96.0, "{cached}");
    for _ in 0..200 {
        if checks(&gateway, "equal").await > 0.0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(checks(&gateway, "equal").await, 1.0, "once, then it is known");
    assert_eq!(checks(&gateway, "differs").await, 0.0);
    let realised = metric(&gateway, "headstart_realised_cached_tokens_total").await;
    let predicted = metric(&gateway, "headstart_predicted_cached_tokens_total").await;
    assert_eq!(realised, cached);
    assert!((predicted - realised).abs() < 32.0, "{predicted} {realised}");
    assert_eq!(metric(&gateway, "headstart_cached_tokens_error_count").await, 2.0);
    assert!(metric(&gateway, "headstart_index_lookup_seconds_count").await >= 2.0);
    gateway.shutdown().await;
    engine.shutdown().await;
}

#[tokio::test]
async fn another_template_is_told() {
    let engine = start(embedded(1, 256)).await;
    let folder = another_template("drift");
    let gateway = behind(&engine, &folder).await;
    converse(&gateway).await;
    for _ in 0..200 {
        if checks(&gateway, "differs").await > 0.0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(checks(&gateway, "differs").await >= 1.0);
    assert_eq!(checks(&gateway, "equal").await, 0.0);
    eventually("the comparison to end", || gateway.gateway().router().stats().reservations == 0)
        .await;
    gateway.shutdown().await;
    engine.shutdown().await;
    std::fs::remove_dir_all(folder).expect("the temporary folder");
}

#[tokio::test]
async fn tokenize_answers_as_the_engine_counts() {
    let engine = start(embedded(1, 256)).await;
    let messages = json!([{"role": "user", "content": text(40, 2)}]);
    let body = json!({"model": "toy", "messages": messages, "max_tokens": 1});
    let counted = chat(&engine, &body).await.json()["usage"]["prompt_tokens"].clone();
    let tokens = post(&engine, "/tokenize", &json!({"messages": messages})).await;
    assert_eq!(tokens.status, 200);
    assert_eq!(tokens.json()["count"], counted);
    let listed = tokens.json()["tokens"].as_array().map(Vec::len);
    assert_eq!(listed, counted.as_u64().map(|count| count as usize));
    let text = post(&engine, "/tokenize", &json!({"prompt": "Hello there"})).await;
    assert!(text.json()["count"].as_u64() > Some(0));
    for wrong in [json!({}), json!({"prompt": 3}), json!([])] {
        assert_eq!(post(&engine, "/tokenize", &wrong).await.status, 400, "{wrong}");
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn the_index_is_told_whole_and_in_part() {
    let engine = start(embedded(1, 256)).await;
    let body = json!({
        "model": "toy", "messages": [{"role": "user", "content": text(100, 3)}], "max_tokens": 2,
    });
    assert_eq!(chat(&engine, &body).await.status, 200);
    let entries = || engine.gateway().router().stats().index.entries;
    eventually("the prompt's blocks", || entries() >= 6).await;
    let index = get(&engine, "/debug/index").await.json();
    assert_eq!(index["replicas"][0]["stream"]["state"], "complete");
    let lines = |dump: &support::Answer| dump.body.lines().count() as u64;
    let all = get(&engine, "/debug/index/entries").await;
    assert_eq!(index["replicas"][0]["blocks"]["device"], lines(&all));
    let some = get(&engine, "/debug/index/entries?replica=0&limit=2").await;
    assert_eq!(lines(&some), 2);
    for (query, param, part) in [
        ("limit=x", "limit", "`limit` must be a whole number"),
        ("limit=1&limit=2", "limit", "given twice"),
        ("replica=9", "replica", "no replica 9; there is only 0"),
        ("key=1", "key", "known are `replica` and `limit`"),
    ] {
        let refused = get(&engine, &format!("/debug/index/entries?{query}")).await;
        assert_eq!((refused.status, &refused.error_code()[..]), (400, "invalid_value"));
        let error = &refused.json()["error"];
        assert_eq!(error["param"], param);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{message}");
    }
    engine.shutdown().await;
}
