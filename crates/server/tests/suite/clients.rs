//! The embedded server as agents' own packages meet it: what they send is under `clients`.

use crate::support;

use headstart_server::RunningServer;
use serde_json::{Value, json};
use support::{Answer, drained, embedded, exchange, get, post, request, start, text};

/// A request as a client's package sent it.
fn captured(name: &str) -> (String, Value) {
    let file = format!("{}/tests/suite/clients/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read_to_string(file).expect("a captured request");
    let mut request: Value = serde_json::from_str(&file).expect("JSON");
    let path = request["path"].as_str().expect("a path").to_owned();
    (path, request["body"].take())
}

async fn send(server: &RunningServer, name: &str) -> Answer {
    let (path, body) = captured(name);
    let answer = post(server, &path, &body).await;
    assert_eq!(answer.status, 200, "{name}: {answer:?}");
    answer
}

/// The events of a stream, each of which has its type as its name.
fn named_events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events = answer.body.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').expect("a name and data");
        let data = data.strip_prefix("data: ").expect("data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        let kind = data["type"].as_str().expect("a type");
        assert_eq!(name, format!("event: {kind}"));
        data
    });
    events.collect()
}

/// The types of events, several of one type in a row once.
fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    kinds.dedup();
    kinds
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a count: {value}"))
}

/// Anthropic's three counts of a prompt: read, created, the rest.
fn prompt_counts(usage: &Value) -> [u64; 3] {
    ["cache_read", "cache_creation", ""].map(|name| {
        let name = format!("{name}_input_tokens");
        count(&usage[name.trim_start_matches('_')])
    })
}

#[tokio::test]
async fn histories_with_tool_calls_are_taken_by_all_apis() {
    let server = start(embedded(1, 256)).await;
    let chat = send(&server, "chat_agent").await.json();
    assert_eq!(chat["object"], "chat.completion");
    let responses = send(&server, "responses_agent").await.json();
    assert_eq!(responses["object"], "response");
    assert_eq!(responses["metadata"]["origin"], "headstart");
    let counted = send(&server, "messages_count").await.json();
    let messages = send(&server, "messages_agent").await.json();
    assert_eq!(messages["type"], "message");
    let sum = prompt_counts(&messages["usage"]).iter().sum::<u64>();
    assert_eq!(sum, count(&counted["input_tokens"]));
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn tools_are_part_of_the_prompt() {
    let server = start(embedded(1, 256)).await;
    for (name, count_at) in [
        ("chat_agent", "/usage/prompt_tokens"),
        ("responses_agent", "/usage/input_tokens"),
        ("messages_count", "/input_tokens"),
    ] {
        let (path, mut body) = captured(name);
        let mut tokens = async |change: Value| {
            body["tools"] = change;
            let answer = post(&server, &path, &body).await.json();
            count(answer.pointer(count_at).expect("a count"))
        };
        let given = captured(name).1["tools"].take();
        let (with, without) = (tokens(given).await, tokens(json!([])).await);
        assert!(with > without + 10, "{name}: {with} against {without}");
    }
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn errors_name_the_parameter_of_their_api() {
    let server = start(embedded(1, 20)).await;
    let refused = async |change: Value| {
        let mut body = json!({"model": "toy", "input": "hi"});
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let answer = post(&server, "/v1/responses", &body).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        answer.json()["error"]["param"].clone()
    };
    let wizard = json!([{"role": "wizard", "content": "x"}]);
    assert_eq!(refused(json!({"input": wizard})).await, "input");
    let long = json!({"max_output_tokens": 5_000});
    assert_eq!(refused(long).await, "max_output_tokens");
    server.shutdown().await;
}

/// All values inside `value`, as JSON pointers.
fn places(value: &Value, at: &str, places: &mut Vec<String>) {
    places.push(at.to_owned());
    match value {
        Value::Array(values) => {
            for (index, inner) in values.iter().enumerate() {
                self::places(inner, &format!("{at}/{index}"), places);
            }
        }
        Value::Object(fields) => {
            for (name, inner) in fields {
                self::places(inner, &format!("{at}/{name}"), places);
            }
        }
        _ => {}
    }
}

/// Whatever is put in a captured request's place is read or refused, and the server lives.
#[tokio::test]
async fn no_value_in_no_place_breaks_the_server() {
    let server = start(embedded(1, 256)).await;
    for name in ["chat_agent", "responses_agent", "messages_agent", "messages_count"] {
        let (path, body) = captured(name);
        let mut all = Vec::new();
        places(&body, "", &mut all);
        for place in all {
            for value in [json!(null), json!(-7), json!("x"), json!([]), json!({}), json!([{}])] {
                let mut body = body.clone();
                *body.pointer_mut(&place).expect("a place") = value.clone();
                let answer = post(&server, &path, &body).await;
                let is_known = answer.status == 200 || (400..=404).contains(&answer.status);
                assert!(is_known, "{name} {place} {value}: {answer:?}");
                let error = &answer.json()["error"];
                assert!(
                    answer.status == 200 || error["message"].as_str().is_some(),
                    "{name} {place} {value}: {answer:?}"
                );
            }
        }
    }
    drained(&server).await;
    server.shutdown().await;
}

/// The same conversation has the same prompt, whichever API it comes by.
#[tokio::test]
async fn one_conversation_is_one_prompt() {
    let server = start(embedded(1, 256)).await;
    let prompt = text(100, 1);
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let turns = [turn("user", &prompt), turn("assistant", "yes"), turn("user", "go on")];
    let system = [turn("system", "be kind")];
    let with_system: Vec<_> = system.into_iter().chain(turns.clone()).collect();
    let body = json!({"model": "toy", "messages": with_system, "max_tokens": 2});
    let chat = post(&server, "/v1/chat/completions", &body).await.json();
    let details = &chat["usage"]["prompt_tokens_details"];
    let (all, created) = (&chat["usage"]["prompt_tokens"], &details["created_cache_tokens"]);
    assert_eq!(count(created), count(all) / 16 * 16);
    assert_eq!(details["cached_tokens"], 0);

    let body = json!({
        "model": "toy", "input": turns, "instructions": "be kind", "max_output_tokens": 2,
    });
    let responses = post(&server, "/v1/responses", &body).await.json();
    let usage = &responses["usage"];
    assert_eq!(&usage["input_tokens"], all);
    assert_eq!(&usage["input_tokens_details"]["cached_tokens"], created);
    assert_eq!(usage["input_tokens_details"]["cache_write_tokens"], 0);

    let body = json!({"model": "toy", "messages": turns, "system": "be kind", "max_tokens": 2});
    let messages = post(&server, "/v1/messages", &body).await.json();
    let [read, written, rest] = prompt_counts(&messages["usage"]);
    assert_eq!((read, written), (count(created), 0));
    assert_eq!(read + rest, count(all));
    server.shutdown().await;
}

#[tokio::test]
async fn messages_stream_as_anthropic_documents() {
    let server = start(embedded(1, 128)).await;
    let (path, mut body) = captured("messages_stream");
    let events = named_events(&send(&server, "messages_stream").await);
    assert_eq!(
        kinds(&events),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    body["stream"] = false.into();
    let whole = post(&server, &path, &body).await.json();
    let pieces = events.iter().filter_map(|event| event["delta"]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), whole["content"][0]["text"]);
    let opening = &events[0]["message"];
    assert_eq!((&opening["content"], &opening["stop_reason"]), (&json!([]), &Value::Null));
    let end = &events[events.len() - 2];
    assert_eq!(end["delta"]["stop_reason"], "max_tokens");
    assert_eq!(end["usage"]["output_tokens"], 12);
    assert_eq!(prompt_counts(&end["usage"]), prompt_counts(&opening["usage"]));

    let said = whole["content"][0]["text"].as_str().expect("text");
    let third = said.split_whitespace().nth(2).expect("some words");
    body["stop_sequences"] = json!(["never said", third]);
    let stopped = post(&server, &path, &body).await.json();
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert_eq!(stopped["stop_sequence"], third);
    server.shutdown().await;
}

#[tokio::test]
async fn responses_stream_as_openai_documents() {
    let server = start(embedded(1, 128)).await;
    let events = named_events(&send(&server, "responses_stream").await);
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let last = &events[events.len() - 1]["response"];
    let text = &last["output"][0]["content"][0]["text"];
    let pieces = events.iter().filter_map(|event| event["delta"].as_str());
    assert_eq!(&Value::from(pieces.collect::<String>()), text);
    assert_eq!(last["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(last["usage"]["output_tokens"], 24);
    let id = last["id"].as_str().expect("an id");
    let kept = get(&server, &format!("/v1/responses/{id}")).await.json();
    assert_eq!(&kept, last);
    server.shutdown().await;
}

#[tokio::test]
async fn a_chain_of_responses_is_one_conversation() {
    let server = start(embedded(1, 256)).await;
    let create = async |extra: Value| {
        let mut body = json!({"model": "toy", "max_output_tokens": 20});
        for (name, value) in extra.as_object().expect("an object") {
            body[name] = value.clone();
        }
        post(&server, "/v1/responses", &body).await
    };
    let first = create(json!({"input": text(100, 1), "temperature": 0})).await.json();
    let id = first["id"].as_str().expect("an id");
    let next = json!({"input": "And then?", "previous_response_id": id});
    let second = create(next.clone()).await.json();
    assert_eq!(second["previous_response_id"], id);
    // All full blocks of prompt and answer; the answer's last token was never computed.
    let seen = count(&first["usage"]["total_tokens"]) - 1;
    let cached = &second["usage"]["input_tokens_details"]["cached_tokens"];
    assert_eq!(count(cached), seen / 16 * 16);

    let path = format!("/v1/responses/{id}");
    let deleted = exchange(&server, &request("DELETE", &path, "", "")).await;
    assert_eq!((deleted.status, deleted.json()["deleted"].clone()), (200, json!(true)));
    assert_eq!(get(&server, &path).await.status, 404);
    let lost = create(next).await;
    assert_eq!((lost.status, &lost.error_code()[..]), (404, "previous_response_not_found"));
    let unkept = create(json!({"input": "hi", "store": false})).await.json();
    let path = format!("/v1/responses/{}", unkept["id"].as_str().expect("an id"));
    assert_eq!(get(&server, &path).await.status, 404);
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn errors_of_messages_have_anthropics_shape() {
    let mut config = embedded(1, 20);
    config.limits.body_bytes = 20_000;
    config.api_key = Some("sesame".to_owned());
    let server = start(config).await;
    let check = async |path: &str, key: &str, body: &str, (status, kind): (u16, &str)| {
        let headers = format!("authorization: Bearer {key}\r\n");
        let answer = exchange(&server, &request("POST", path, &headers, body)).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let error = answer.json();
        assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!(kind)));
        assert!(error["error"]["message"].as_str().is_some_and(|message| message.len() > 10));
    };
    let hello = |model: &str, content: &str| {
        let messages = json!([{"role": "user", "content": content}]);
        json!({"model": model, "max_tokens": 4, "messages": messages}).to_string()
    };
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let invalid = (400, "invalid_request_error");
        check(path, "sesame", "{", invalid).await;
        check(path, "sesame", "{}", invalid).await;
        check(path, "wrong", "{}", (401, "authentication_error")).await;
        check(path, "sesame", &hello("gpt-9", "x"), (404, "not_found_error")).await;
        let large = hello("toy", &"x".repeat(20_001));
        check(path, "sesame", &large, (413, "request_too_large")).await;
    }
    let long = hello("toy", &text(2_000, 1));
    let invalid = (400, "invalid_request_error");
    check("/v1/messages", "sesame", &long, invalid).await;
    let headers = "authorization: Bearer sesame\r\n";
    let other = exchange(&server, &request("POST", "/v1/responses", headers, "{}")).await;
    assert_eq!(other.error_code(), "missing_required_parameter");
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn chat_streams_count_as_vllm_does() {
    let server = start(embedded(1, 128)).await;
    let (path, mut body) = captured("chat_stream");
    body["stream_options"]["continuous_usage_stats"] = true.into();
    let events = post(&server, &path, &body).await.events();
    let (done, chunks) = events.split_last().expect("events");
    assert_eq!(done, "[DONE]");
    let counts = chunks.iter().map(|chunk| {
        let chunk: Value = serde_json::from_str(chunk).expect("JSON");
        count(&chunk["usage"]["completion_tokens"])
    });
    let counts: Vec<_> = counts.collect();
    assert!(counts.is_sorted() && counts[0] == 0, "{counts:?}");
    assert_eq!(counts.last(), Some(&12));
    server.shutdown().await;
}
