//! Requests that a gateway of upstreams passes on: any path, to one engine or to all.

use crate::support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::http_engine::{Fleet, HttpEngine};
use support::{eventually, exchange, exchange_bytes, get, post, request, request_bytes};

#[tokio::test]
async fn any_method_and_path_reaches_an_engine_with_its_query() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    for (method, target) in [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/rerank"),
        ("POST", "/rerank"),
        ("POST", "/v2/rerank"),
        ("POST", "/v1/score"),
        ("POST", "/score"),
        ("POST", "/v1/messages/count_tokens?beta=true"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
        ("POST", "/pooling"),
        ("POST", "/classify?a=1&b=%2F&b=2"),
        ("GET", "/version"),
        ("GET", "/is_sleeping"),
        ("DELETE", "/v1/models/m"),
        ("PUT", "/v1/files/7"),
        ("GET", "/v1/completions?limit=3"),
        ("OPTIONS", "/v1/embeddings"),
    ] {
        let body = if method == "POST" { r#"{"model": "m"}"# } else { "" };
        let answer = exchange(&fleet.gateway, &request(method, target, "", body)).await;
        assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
        let echo = answer.json();
        assert_eq!((&echo["method"], &echo["target"]), (&json!(method), &json!(target)));
        let last = fleet.engine(&answer).last();
        assert_eq!((last.target.as_str(), &last.body[..]), (target, body.as_bytes()));
        assert!(answer.header("x-headstart-replica").is_some(), "{answer:?}");
    }
    let own = fleet.received();
    let head = exchange(&fleet.gateway, &request("HEAD", "/version", "", "")).await;
    assert_eq!((head.status, &head.body[..]), (200, ""));
    assert_ne!(head.header("content-length"), Some("0"), "the length of GET");
    for path in ["/health", "/debug/index", "/metrics", "/v1/models", "/openapi.json"] {
        assert_eq!(get(&fleet.gateway, path).await.status, 200, "{path}");
    }
    assert_eq!(fleet.received(), own + 1, "the gateway answers its own paths");
    let card = get(&fleet.gateway, "/v1/models/m").await;
    assert_eq!((card.status, &card.json()["id"]), (200, &json!("m")));
    let wrong = exchange(&fleet.gateway, &request("POST", "/debug/index", "", "")).await;
    assert_eq!((wrong.status, fleet.received()), (405, own + 1));
    eventually("no reservation", || fleet.gateway.gateway().router().stats().reservations == 0)
        .await;
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn a_form_passes_byte_for_byte_to_an_engine_with_its_model() {
    let fleet = Fleet::start([&["chat"], &["whisper"]]).await;
    let sound: Vec<u8> = (0..=255u8).cycle().take(70_000).collect();
    let form = [
        b"--B\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
            .to_vec(),
        sound,
        b"\r\n--B\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--B--\r\n"
            .to_vec(),
    ]
    .concat();
    let kind = "multipart/form-data; boundary=B";
    for _ in 0..4 {
        let raw =
            request_bytes("/v1/audio/transcriptions", &format!("content-type: {kind}\r\n"), &form);
        let answer = exchange_bytes(&fleet.gateway, &raw).await;
        assert_eq!((answer.status, &answer.json()["engine"]), (200, &json!("e1")));
        let last = fleet.engines[1].last();
        assert_eq!(last.body, form);
        assert_eq!(last.header("content-type"), Some(kind));
    }
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn requests_go_to_engines_that_serve_their_model_also_when_it_is_new() {
    let fleet = Fleet::start([&["m"], &["m", "n"]]).await;
    for _ in 0..6 {
        let answer = post(&fleet.gateway, "/v1/embeddings", &json!({"model": "n"})).await;
        assert_eq!((answer.status, &answer.json()["engine"]), (200, &json!("e1")));
    }
    // Without a model, or with a body that is no JSON, any engine will do.
    let answer = exchange(&fleet.gateway, &request("POST", "/pooling", "", "not JSON")).await;
    assert_eq!((answer.status, &answer.json()["bytes"]), (200, &json!(8)));
    let answer = post(&fleet.gateway, "/v1/embeddings", &json!({"model": "new"})).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (404, "model_not_found"));
    fleet.engines[0].add_model("new");
    let begin = Instant::now();
    let new = json!({"model": "new"});
    let ask = || post(&fleet.gateway, "/v1/embeddings", &new);
    for answer in futures::future::join_all((0..20).map(|_| ask())).await {
        assert_eq!(answer.status, 200, "the engines are asked before a refusal: {answer:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    // One that no request names is found as well.
    fleet.engines[1].add_model("quiet");
    eventually("the list to be read again", || {
        fleet.gateway.gateway().models().contains(&"quiet".to_owned())
    })
    .await;
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn an_adapter_is_loaded_by_every_engine_once_and_known_at_once() {
    let fleet = Fleet::with([&["m"], &["m"]], |config| {
        if let headstart_server::EngineBackend::Upstreams(upstreams) = &mut config.backend {
            upstreams[0].data_parallel_size = 2;
        }
    })
    .await;
    let load = json!({"lora_name": "a1", "lora_path": "/x"});
    let answer = post(&fleet.gateway, "/v1/load_lora_adapter", &load).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let engines = answer.json()["engines"].as_array().expect("a list").clone();
    assert_eq!(engines.len(), 2);
    for (engine, said) in fleet.engines.iter().zip(&engines) {
        assert_eq!(said["upstream"], engine.url());
        assert_eq!((&said["status"], engine.received().len()), (&json!(200), 1));
        assert_eq!(engine.last().header("x-data-parallel-rank"), None);
    }
    let answer = post(&fleet.gateway, "/v1/embeddings", &json!({"model": "a1"})).await;
    assert_eq!(answer.status, 200);
    fleet.engines[1].refuse_adapters();
    let load = json!({"lora_name": "a2", "lora_path": "/x"});
    let answer = post(&fleet.gateway, "/v1/load_lora_adapter", &load).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (400, "engines_failed"));
    let said = &answer.json()["engines"][1];
    assert_eq!((&said["status"], &said["text"]), (&json!(400), &json!("no room for adapters")));
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn what_administers_an_engine_needs_an_option() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    for path in [
        "/sleep",
        "/%73leep?level=2",
        "/wake_up",
        "/reset_prefix_cache",
        "/start_profile",
        "/collective_rpc",
        "/flush_cache",
        "/update_weights_from_disk",
    ] {
        let answer = exchange(&fleet.gateway, &request("POST", path, "", "")).await;
        let code = answer.error_code();
        assert_eq!((answer.status, &code[..]), (403, "admin_route"), "{path}");
        assert!(answer.body.contains("--pass-admin-routes"), "{}", answer.body);
    }
    let star = exchange(&fleet.gateway, &request("OPTIONS", "*", "", "")).await;
    assert_eq!((star.status, fleet.received()), (400, 0));
    fleet.gateway.shutdown().await;

    let fleet = Fleet::with([&["m"], &["m"]], |config| {
        config.edge.pass_admin_routes = true;
    })
    .await;
    let answer = exchange(&fleet.gateway, &request("POST", "/sleep?level=1", "", "")).await;
    assert_eq!((answer.status, fleet.received()), (200, 2), "all engines sleep");
    assert_eq!(fleet.engines[0].last().target, "/sleep?level=1");
    let answer = get(&fleet.gateway, "/server_info").await;
    assert_eq!((answer.status, fleet.received()), (200, 3), "one engine is read");
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn a_chain_of_responses_stays_on_its_engine_while_that_is_up() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    let mut homes = std::collections::HashSet::new();
    for round in 0..4 {
        let mut previous = Value::Null;
        let mut home = Value::Null;
        for turn in 0..4 {
            let body = json!({
                "model": "m", "input": "x", "previous_response_id": previous,
                "stream": turn % 2 == 1,
            });
            let answer = post(&fleet.gateway, "/v1/responses", &body).await;
            assert_eq!(answer.status, 200, "round {round}, turn {turn}: {answer:?}");
            let whole: Value = match turn % 2 {
                0 => answer.json(),
                _ => {
                    let last = answer.events().pop().expect("an end");
                    serde_json::from_str::<Value>(&last).expect("JSON")["response"].clone()
                }
            };
            if turn > 0 {
                assert_eq!(whole["engine"], home, "round {round}, turn {turn}");
            }
            (home, previous) = (whole["engine"].clone(), whole["id"].clone());
        }
        let id = previous.as_str().expect("an id");
        for _ in 0..4 {
            let stored = get(&fleet.gateway, &format!("/v1/responses/{id}?stream=false")).await;
            assert_eq!((stored.status, &stored.json()["engine"]), (200, &home));
        }
        let cancel = request("POST", &format!("/v1/responses/{id}/cancel"), "", "");
        assert_eq!(exchange(&fleet.gateway, &cancel).await.status, 200);
        homes.insert(home.to_string());
    }
    assert_eq!(homes.len(), 2, "new chains are spread");
    fleet.gateway.shutdown().await;
}

/// Another gateway, or this one when it starts again, did not pass the responses on.
#[tokio::test]
async fn a_gateway_asks_engines_for_responses_that_it_does_not_know() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    let upstreams = fleet.engines.iter().map(HttpEngine::upstream);
    let other = support::start(support::proxy(upstreams.collect())).await;
    let body = json!({"model": "m", "input": "x"});
    for _ in 0..6 {
        let first = post(&fleet.gateway, "/v1/responses", &body).await.json();
        let id = first["id"].as_str().expect("an id");
        let stored = get(&other, &format!("/v1/responses/{id}")).await;
        assert_eq!((stored.status, &stored.json()["engine"]), (200, &first["engine"]));
    }
    for _ in 0..6 {
        let first = post(&fleet.gateway, "/v1/responses", &body).await.json();
        let next = json!({"model": "m", "input": "y", "previous_response_id": first["id"]});
        let answer = post(&other, "/v1/responses", &next).await;
        assert_eq!((answer.status, &answer.json()["engine"]), (200, &first["engine"]));
    }
    let unknown = json!({"model": "m", "input": "y", "previous_response_id": "../../sleep"});
    assert_eq!(post(&other, "/v1/responses", &unknown).await.status, 404);
    assert!(fleet.engines.iter().all(|engine| !engine.last().target.contains("sleep")));
    other.shutdown().await;
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn a_refusal_in_the_engines_words_reaches_the_client() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    fleet.engines[0].refuse_chats();
    for _ in 0..4 {
        let answer = post(&fleet.gateway, "/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "the other engine answers");
    }
    fleet.engines[1].refuse_chats();
    let answer = post(&fleet.gateway, "/v1/chat/completions", &body).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")));
    assert_eq!(answer.json()["error"]["message"], "your quota is used up");
    eventually("no reservation", || fleet.gateway.gateway().router().stats().reservations == 0)
        .await;
    fleet.gateway.shutdown().await;
}

/// vLLM without `--enable-prompt-tokens-details` does not tell cached tokens.
#[tokio::test]
async fn an_engine_that_tells_no_cached_tokens_is_named() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    fleet.engines.iter().for_each(HttpEngine::hide_usage);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    post(&fleet.gateway, "/v1/chat/completions", &body).await;
    let notices = fleet.gateway.gateway().notices();
    let is_told = |notice: &String| notice.contains("--enable-force-include-usage");
    assert!(notices.iter().any(is_told), "{notices:?}");
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn a_chain_waits_for_its_engine_and_leaves_it_only_when_that_is_gone() {
    let mut fleet = Fleet::start([&["m"], &["m"]]).await;
    let first = post(&fleet.gateway, "/v1/responses", &json!({"model": "m", "input": "x"})).await;
    let home = usize::from(first.json()["engine"] == "e1");
    let body = json!({"model": "m", "input": "x", "previous_response_id": first.json()["id"]});
    let other = fleet.engines[1 - home].received().len();
    fleet.engines[home].fill();
    let answer = post(&fleet.gateway, "/v1/responses", &body).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (429, "queue_full"));
    assert_eq!(fleet.engines[1 - home].received().len(), other, "it knows nothing of it");
    // Its memory is gone with it: another engine says so in its own words.
    let idle = HttpEngine::start("gone", &[]).await;
    drop(std::mem::replace(&mut fleet.engines[home], idle));
    eventually("it to be down", || {
        fleet.gateway.gateway().is_down(headstart_core::ReplicaId(home as u32))
    })
    .await;
    let answer = post(&fleet.gateway, "/v1/responses", &body).await;
    assert_eq!((answer.status, &answer.body[..]), (404, "no such response"));
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn usage_of_all_apis_is_counted() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    for stream in [false, true] {
        let body = json!({"model": "m", "messages": [], "max_tokens": 5, "stream": stream});
        let answer = post(&fleet.gateway, "/v1/messages?beta=true", &body).await;
        assert_eq!(answer.status, 200);
        if !stream {
            assert_eq!(answer.header("x-headstart-cached-tokens"), Some("32"));
        }
        let body = json!({"model": "m", "input": "x", "stream": stream});
        assert_eq!(post(&fleet.gateway, "/v1/responses", &body).await.status, 200);
    }
    let body = json!({"model": "m", "messages": []});
    assert_eq!(post(&fleet.gateway, "/v1/chat/completions", &body).await.status, 200);
    let all = fleet.engines.iter().flat_map(HttpEngine::received);
    let targets: Vec<String> = all.map(|request| request.target).collect();
    assert!(targets.contains(&"/v1/messages?beta=true".to_owned()), "{targets:?}");
    eventually("no reservation", || fleet.gateway.gateway().router().stats().reservations == 0)
        .await;
    let metrics = get(&fleet.gateway, "/metrics").await.body;
    let sum = |name: &str, label: &str| -> f64 {
        let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let by_source = "headstart_prompt_tokens_by_source_total{";
    // Two answers each of 32 of 52 and of 16 of 30 tokens, and one of 16 of 20.
    assert_eq!(sum(by_source, "\"upstream\""), f64::from(2 * 32 + 2 * 16 + 16));
    assert_eq!(sum(by_source, "\"computed\""), f64::from(2 * 20 + 2 * 14 + 4));
    assert_eq!(sum("headstart_prompt_tokens_stored_total{", ""), f64::from(2 * 16 + 4));
    fleet.gateway.shutdown().await;
}
