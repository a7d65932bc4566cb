//! The API as clients meet it: a real server, raw HTTP.

use crate::support;

use headstart_router::Profile;
use serde_json::{Value, json};
use support::{chat, drained, embedded, exchange, get, post, request, start, text};

fn hello(extra: Value) -> Value {
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8,
    });
    for (name, value) in extra.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_second_turn_starts_from_the_first() {
    let server = start(embedded(2, 256)).await;
    let question = text(200, 1);
    let mut messages = vec![json!({"role": "user", "content": question})];
    let body = json!({"model": "toy", "messages": messages, "max_tokens": 40, "temperature": 0});
    let first = chat(&server, &body).await;
    assert_eq!((first.status, first.header("x-headstart-cached-tokens")), (200, Some("0")));
    let answer = first.json()["choices"][0]["message"]["content"].clone();
    let used = first.json()["usage"].clone();
    assert_eq!(used["completion_tokens"], 40);
    messages.push(json!({"role": "assistant", "content": answer}));
    messages.push(json!({"role": "user", "content": "And then?"}));
    let body = json!({"model": "toy", "messages": messages, "max_tokens": 4});
    let second = chat(&server, &body).await;
    assert_eq!(second.header("x-headstart-replica"), first.header("x-headstart-replica"));
    let cached = second.json()["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    let cached = cached.as_u64().expect("a count");
    // All full blocks of prompt and answer; the answer's last token was never computed.
    let seen = used["total_tokens"].as_u64().expect("a count") - 1;
    assert_eq!(cached, seen / 16 * 16, "the generated text was found again as tokens");
    assert_eq!(second.header("x-headstart-cached-tokens"), Some(&cached.to_string()[..]));
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn no_tokens_make_a_prompt_ready() {
    let server = start(embedded(2, 256)).await;
    let messages = json!([{"role": "user", "content": text(200, 3)}]);
    for stream in [false, true] {
        let body = json!({
            "model": "toy", "messages": messages, "max_tokens": 0, "stream": stream,
            "temperature": 0,
        });
        let ready = chat(&server, &body).await;
        assert_eq!(ready.status, 200, "{ready:?}");
        if !stream {
            let answer = ready.json();
            assert_eq!(answer["choices"][0]["message"]["content"], "");
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
            assert_eq!(answer["usage"]["completion_tokens"], 0);
            assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        }
    }
    let body = json!({"model": "toy", "messages": messages, "max_tokens": 2, "temperature": 0});
    let asked = chat(&server, &body).await.json();
    let usage = &asked["usage"];
    let count = |value: &Value| value.as_u64().expect("a count");
    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    assert!(cached + 16 >= count(&usage["prompt_tokens"]), "{usage}");
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn streams_say_the_same_as_whole_answers() {
    let server = start(embedded(1, 128)).await;
    let whole = chat(&server, &hello(json!({"temperature": 0}))).await.json();
    let options = json!({"include_usage": true});
    let extra = json!({"temperature": 0, "stream": true, "stream_options": options});
    let streamed = chat(&server, &hello(extra)).await;
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    let events = streamed.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let pieces = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(pieces.collect::<String>(), whole["choices"][0]["message"]["content"]);
    let usage = &chunks[chunks.len() - 1];
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(8)));
    let end = &chunks[chunks.len() - 2]["choices"][0];
    assert_eq!(end["finish_reason"], "length");
    server.shutdown().await;
}

#[tokio::test]
async fn stop_strings_seeds_and_plain_completions() {
    let server = start(embedded(1, 128)).await;
    let greedy = chat(&server, &hello(json!({"temperature": 0, "max_tokens": 30}))).await.json();
    let text = greedy["choices"][0]["message"]["content"].as_str().expect("text");
    let third = text.split_whitespace().nth(2).expect("some words");
    let stopped = hello(json!({"temperature": 0, "max_tokens": 30, "stop": [third]}));
    let stopped = chat(&server, &stopped).await.json();
    let cut = text.find(third).expect("it was just there");
    assert_eq!(stopped["choices"][0]["message"]["content"], text[..cut]);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    drained(&server).await;

    let draw = async |seed: i64| {
        let body = hello(json!({"temperature": 1.5, "seed": seed}));
        chat(&server, &body).await.json()["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(draw(5).await, draw(5).await);
    assert_ne!(draw(5).await, draw(6).await);

    let plain = json!({"model": "toy", "prompt": "Once upon a time", "max_tokens": 5});
    let plain = post(&server, "/v1/completions", &plain).await.json();
    assert_eq!(
        (&plain["object"], &plain["usage"]["completion_tokens"]),
        (&json!("text_completion"), &json!(5))
    );
    let tokens = json!({"model": "toy", "prompt": [300, 301, 302], "max_tokens": 2});
    let tokens = post(&server, "/v1/completions", &tokens).await.json();
    assert_eq!(tokens["usage"]["prompt_tokens"], 3);
    server.shutdown().await;
}

#[tokio::test]
async fn every_bad_input_gets_a_clear_error() {
    let mut config = embedded(1, 20);
    config.limits.body_bytes = 20_000;
    let server = start(config).await;
    let check = async |path: &str, body: &str, status: u16, code: &str| {
        let answer = exchange(&server, &request("POST", path, "", body)).await;
        assert_eq!(
            (answer.status, &answer.error_code()[..]),
            (status, code),
            "{body:.60}: {answer:?}"
        );
        let error = &answer.json()["error"];
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{error}");
        assert!(error["type"].is_string() && error.get("param").is_some(), "{error}");
    };
    let path = "/v1/chat/completions";
    check(path, "{\"model\": ", 400, "invalid_json").await;
    check(path, "[]", 400, "invalid_json").await;
    check(path, "", 400, "invalid_json").await;
    check(path, &hello(json!({"model": "gpt-9"})).to_string(), 404, "model_not_found").await;
    check(path, &hello(json!({"messages": []})).to_string(), 400, "invalid_value").await;
    check(path, &hello(json!({"max_tokens": -1})).to_string(), 400, "invalid_value").await;
    check(path, &hello(json!({"logprobs": true})).to_string(), 400, "unsupported_parameter").await;
    let strange = hello(json!({"messages": [{"role": "wizard", "content": "x"}]}));
    check(path, &strange.to_string(), 400, "invalid_value").await;
    let long = hello(json!({"messages": [{"role": "user", "content": text(2_000, 1)}]}));
    check(path, &long.to_string(), 400, "context_length_exceeded").await;
    check(path, &hello(json!({"max_tokens": 500})).to_string(), 400, "context_length_exceeded")
        .await;
    check(path, &"x".repeat(20_001), 413, "body_too_large").await;
    check("/v1/completions", r#"{"model": "toy", "prompt": [999999]}"#, 400, "invalid_value").await;
    check("/v1/embeddings", "{}", 404, "not_found").await;
    let wrong_method = get(&server, path).await;
    assert_eq!((wrong_method.status, &wrong_method.error_code()[..]), (405, "method_not_allowed"));
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_full_queue_is_429_with_retry_after() {
    let mut config = embedded(1, 64);
    if let headstart_server::EngineBackend::Embedded(fleet) = &mut config.backend {
        (fleet.engine.max_sequences, fleet.engine.max_waiting) = (1, 1);
    }
    let server = start(config).await;
    let long = hello(json!({"max_tokens": 400, "ignore_eos": true}));
    let calls = (0..12).map(|_| chat(&server, &long));
    let answers = futures::future::join_all(calls).await;
    let full: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!full.is_empty() && answers.iter().any(|answer| answer.status == 200));
    assert!(full.iter().all(|answer| answer.header("retry-after") == Some("1")));
    assert_eq!(full[0].error_code(), "queue_full");
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn keys_health_models_and_metrics() {
    let mut config = embedded(2, 64);
    config.api_key = Some("sesame".to_owned());
    let server = start(config).await;
    assert_eq!(get(&server, "/health").await.status, 200);
    assert_eq!(get(&server, "/ready").await.status, 200);
    let refused = get(&server, "/v1/models").await;
    assert_eq!((refused.status, &refused.error_code()[..]), (401, "invalid_api_key"));
    for key in ["sesam", "sesame!", ""] {
        let headers = format!("authorization: Bearer {key}\r\n");
        assert_eq!(
            exchange(&server, &request("GET", "/v1/models", &headers, "")).await.status,
            401
        );
    }
    let key = "authorization: Bearer sesame\r\n";
    let models = exchange(&server, &request("GET", "/v1/models", key, "")).await.json();
    assert_eq!(models["data"][0]["id"], "toy");
    let body = hello(json!({})).to_string();
    let answer = exchange(&server, &request("POST", "/v1/chat/completions", key, &body)).await;
    assert_eq!(answer.status, 200);
    let metrics = get(&server, "/metrics").await.body;
    for name in
        ["vllm:prefix_cache_queries_total", "vllm:num_requests_running", "headstart_replica_up"]
    {
        assert!(metrics.contains(name), "{name}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn an_open_address_needs_a_key() {
    let mut config = embedded(1, 64);
    config.listen = ([0, 0, 0, 0], 0).into();
    let error = headstart_server::serve(config).await.err().expect("must not start");
    assert!(error.to_string().contains("--api-key-file"), "{error}");
}

/// The same conversation goes back to its replica under `session`, `precise` and `cost`, through
/// the index that the replicas' own events fill.
#[tokio::test]
async fn conversations_stay_where_they_are_cached() {
    for strategy in ["session", "precise", "cost"] {
        let mut config = embedded(3, 256);
        config.profile = strategy.parse::<Profile>().expect("known");
        let server = start(config).await;
        for conversation in 0..6 {
            let mut messages = vec![json!({"role": "user", "content": text(120, conversation)})];
            let mut homes = Vec::new();
            for _ in 0..3 {
                let body = json!({
                    "model": "toy", "messages": messages, "max_tokens": 20,
                    "user": conversation.to_string(),
                });
                let answer = chat(&server, &body).await;
                homes.push(answer.header("x-headstart-replica").expect("named").to_owned());
                let content = answer.json()["choices"][0]["message"]["content"].clone();
                messages.push(json!({"role": "assistant", "content": content}));
                messages.push(json!({"role": "user", "content": "go on"}));
                drained(&server).await;
            }
            assert!(homes.iter().all(|home| *home == homes[0]), "{strategy}: {homes:?}");
        }
        let entries = || server.gateway().router().stats().index.entries;
        support::eventually("events in the index", || entries() > 30).await;
        server.shutdown().await;
    }
}

/// `cost` accepts a valid objective and refuses any other.
#[tokio::test]
async fn an_objective_is_milliseconds() {
    let mut config = embedded(2, 128);
    config.profile = "cost".parse().expect("a known strategy");
    let server = start(config).await;
    let body = hello(json!({})).to_string();
    let ask = async |value: &str| {
        let header = format!("x-slo-ttft-ms: {value}\r\n");
        exchange(&server, &request("POST", "/v1/chat/completions", &header, &body)).await
    };
    for value in ["250", "0.5", " 3600000 "] {
        assert_eq!(ask(value).await.status, 200, "{value}");
    }
    for value in ["0", "-1", "soon", "nan", "3600001", ""] {
        let answer = ask(value).await;
        let message = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, 400, "{value}: {message}");
        assert!(message.contains("x-slo-ttft-ms"), "{value}: {message}");
    }
    drained(&server).await;
    server.shutdown().await;
}
