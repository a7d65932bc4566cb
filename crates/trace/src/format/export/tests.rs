//! A small file of each tool, read as a request log.

use serde_json::{Value, json};

use crate::format::request_log::{LogOptions, LoggedRequest, PromptPart, read};

fn requests(file: &str) -> (Vec<LoggedRequest>, u64) {
    let mut requests = read("t", file.as_bytes(), LogOptions::default()).expect("readable");
    let read = requests.by_ref().collect::<Result<Vec<_>, _>>();
    (read.unwrap_or_else(|error| panic!("{error}: {file}")), requests.passed_over())
}

/// The only request of a file, which asks `x` behind the system prompt `s`.
fn check(file: &str) -> LoggedRequest {
    let (mut found, _) = requests(file);
    assert_eq!(found.len(), 1, "{file}");
    let request = found.remove(0);
    let PromptPart::Chat { messages, .. } = &request.prompt else {
        panic!("no chat: {:?}", request.prompt);
    };
    let text = |message: &Value| match &message["content"] {
        Value::Array(parts) => parts[0]["text"].clone(),
        text => text.clone(),
    };
    let messages = messages.as_array().expect("a list").iter();
    let said: Vec<_> = messages.map(|one| (one["role"].clone(), text(one))).collect();
    assert_eq!(said, [(json!("system"), json!("s")), (json!("user"), json!("x"))], "{file}");
    request
}

fn body() -> Value {
    json!({"model": "m", "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "x"}]})
}

const COUNTS: (Option<u32>, Option<u32>, Option<u32>) = (Some(9), Some(4), Some(2));

fn counts(request: &LoggedRequest) -> (Option<u32>, Option<u32>, Option<u32>) {
    (request.prompt_tokens, request.cached_tokens, request.output_tokens)
}

fn usage() -> Value {
    json!({"prompt_tokens": 9, "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4}})
}

#[test]
fn opentelemetry_with_parts() {
    let string = |text: &str| json!({"stringValue": text});
    let int = |count: u32| json!({"intValue": count.to_string()});
    let attribute = |key: &str, value: Value| json!({"key": key, "value": value});
    let attributes = [
        attribute("gen_ai.request.model", string("m")),
        attribute("gen_ai.system_instructions", string(r#"[{"type": "text", "content": "s"}]"#)),
        attribute(
            "gen_ai.input.messages",
            string(r#"[{"role": "user", "parts": [{"type": "text", "content": "x"}]}]"#),
        ),
        attribute("gen_ai.usage.input_tokens", int(9)),
        attribute("gen_ai.usage.output_tokens", int(2)),
        attribute("gen_ai.usage.cache_read.input_tokens", int(4)),
        attribute("gen_ai.conversation.id", string("c")),
    ];
    let span = json!({"spanId": "7", "startTimeUnixNano": "1760995776000000000",
        "attributes": attributes});
    let other = json!({"name": "retrieve", "attributes": []});
    let file = json!({"resourceSpans": [{"scopeSpans": [{"spans": [other, span]}]}]});
    for file in [file.to_string(), format!("{file:#}"), format!("[{file}]")] {
        let request = check(&file);
        assert_eq!(counts(&request), COUNTS);
        assert_eq!(request.session.as_deref(), Some("c"));
        assert_eq!(request.model.as_deref(), Some("m"));
        assert_eq!(request.arrival.map(|at| at.0), Some(1_760_995_776_000_000_000));
    }
}

#[test]
fn tool_calls_in_parts_are_openai_s() {
    let list = json!([
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f",
            "arguments": {"a": 1}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "result": "ok"}]},
    ]);
    let span = json!({"attributes": {"gen_ai.input.messages": list}});
    let PromptPart::Chat { messages, .. } = requests(&span.to_string()).0.remove(0).prompt else {
        panic!("messages make a chat");
    };
    assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], r#"{"a":1}"#);
    assert_eq!(messages[1], json!({"role": "tool", "tool_call_id": "1", "content": "ok"}));
}

#[test]
fn spans_with_an_attribute_for_each_part() {
    let flat = json!({"start_time": "2025-10-20T21:29:36Z", "attributes": {
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "s",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "x",
        "gen_ai.usage.prompt_tokens": 9, "gen_ai.usage.completion_tokens": 2,
        "gen_ai.usage.cache_read_input_tokens": 4}});
    assert_eq!(counts(&check(&flat.to_string())), COUNTS);
    let openinference = json!({"context": {"span_id": "7"}, "attributes": {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "s",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": "x",
        "llm.token_count.prompt": 9, "llm.token_count.completion": 2,
        "llm.token_count.prompt_details.cache_read": 4}});
    assert_eq!(counts(&check(&openinference.to_string())), COUNTS);
    let whole = json!({"attributes": {"input.value": body().to_string(), "llm.model_name": "m"}});
    check(&whole.to_string());
    let nested = json!({"attributes": {"llm": {"input_messages": [
        {"message": {"role": "system", "content": "s"}},
        {"message": {"role": "user", "content": "x"}}]}}});
    check(&nested.to_string());
}

#[test]
fn langfuse_and_langsmith() {
    let generation = json!({"id": "g", "type": "GENERATION", "traceId": "t", "model": "m",
        "startTime": "2025-10-20T21:29:36Z", "input": body()["messages"].to_string(),
        "usageDetails": {"input": 5, "input_cached_tokens": 4, "output": 2}});
    let span = json!({"id": "s", "type": "SPAN", "traceId": "t", "input": {"query": "q"}});
    for file in [
        json!([span, generation]).to_string(),
        json!({"data": [span, generation], "meta": {"page": 1}}).to_string(),
        format!("{span}\n{generation}\n"),
        format!("{:#}", json!([span, generation])),
    ] {
        assert_eq!(counts(&check(&file)), COUNTS, "{file}");
    }
    let class = |name: &str, text: &str| {
        json!({"lc": 1, "type": "constructor", "kwargs": {"content": text},
            "id": ["langchain", "schema", "messages", name]})
    };
    let list = [class("SystemMessage", "s"), class("HumanMessage", "x")];
    let run = json!({"run_type": "llm", "inputs": {"messages": [list]}});
    let chain = json!({"run_type": "chain", "inputs": {"question": "x"}});
    check(&format!("{chain}\n{run}\n"));
}

#[test]
fn litellm_s_rows() {
    let row = |fields: Value| {
        let mut row = json!({"request_id": "r", "call_type": "acompletion", "prompt_tokens": 9,
            "completion_tokens": 2, "startTime": "2025-10-20 21:29:36.5+00", "metadata":
            {"usage_object": usage()}});
        row.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("one"));
        row.to_string()
    };
    for fields in [
        json!({"messages": body()["messages"]}),
        json!({"messages": body()["messages"].to_string()}),
        json!({"messages": {}, "proxy_server_request": body()}),
        json!({"messages": "{}", "proxy_server_request": body().to_string()}),
        json!({"messages": {}, "proxy_server_request": {"body": body()}}),
    ] {
        let request = check(&row(fields.clone()));
        assert_eq!(counts(&request), COUNTS, "{fields}");
        assert!(request.arrival.is_some());
    }
    let empty = row(json!({"messages": {}, "proxy_server_request": {}}));
    let mut read = read("t", empty.as_bytes(), LogOptions::default()).expect("readable");
    let error = read.next().expect("a row").expect_err("no prompt").to_string();
    assert!(error.contains("store_prompts_in_spend_logs"), "{error}");
}

#[test]
fn captures_and_access_logs() {
    let entry = json!({"startedDateTime": "2025-10-20T21:29:36Z", "timings": {"wait": 250},
        "request": {"method": "POST", "postData": {"text": body().to_string()}},
        "response": {"content": {"mimeType": "text/event-stream",
            "text": format!("data: {}\n\ndata: [DONE]\n\n", json!({"usage": usage()}))}}});
    let get = json!({"request": {"method": "GET"}, "response": {"content": {}}});
    let request = check(&json!({"log": {"entries": [get, entry]}}).to_string());
    assert_eq!(counts(&request), COUNTS);
    assert_eq!(request.ttft.map(|ttft| ttft.as_millis()), Some(250));
    let nginx = json!({"time": "2025-10-20T21:29:36Z", "status": 200,
        "request": "POST /v1/chat/completions HTTP/1.1", "request_body": body().to_string()});
    assert!(check(&nginx.to_string()).arrival.is_some());
}

#[test]
fn containers_and_prefixes() {
    let docker = json!({"log": format!("{}\n", body()), "stream": "stdout",
        "time": "2025-10-20T21:29:36Z"});
    let start = json!({"log": "listening\n", "stream": "stderr", "time": "T"});
    for file in [
        docker.to_string(),
        format!("{start}\n{docker}\n"),
        format!("2025-10-20T21:29:36Z stdout F {}", body()),
        format!("2025-10-20T21:29:36Z {}", body()),
        format!("[pod/a/b] INFO started\n[pod/a/b] 2025-10-20T21:29:36Z {}", body()),
    ] {
        assert!(check(&file).arrival.is_some(), "{file}");
    }
}

#[test]
fn gemini_and_bedrock() {
    let gemini = json!({"request": {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [{"role": "user", "parts": [{"text": "x"}]}]},
        "response": {"usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 4,
            "candidatesTokenCount": 2}}});
    assert_eq!(counts(&check(&gemini.to_string())), COUNTS);
    let converse = json!({"modelId": "m", "system": [{"text": "s"}],
        "messages": [{"role": "user", "content": [{"text": "x"}]}],
        "response": {"usage": {"inputTokens": 5, "cacheReadInputTokens": 4, "outputTokens": 2}}});
    assert_eq!(counts(&check(&converse.to_string())), COUNTS);
    let invocation = json!({"schemaType": "ModelInvocationLog", "modelId": "m", "requestId": "r",
        "timestamp": "2025-10-20T21:29:36Z",
        "input": {"inputBodyJson": {"system": "s", "messages":
            [{"role": "user", "content": "x"}]}, "inputTokenCount": 5,
            "cacheReadInputTokenCount": 4},
        "output": {"outputBodyJson": {}, "outputTokenCount": 2}});
    assert_eq!(counts(&check(&invocation.to_string())), COUNTS);
}

#[test]
fn aiperf_s_inputs_and_traces() {
    let inputs = json!({"data": [{"session_id": "a", "payloads": [body(), body()]},
        {"session_id": "b", "payloads": [body()]}]});
    let (found, _) = requests(&inputs.to_string());
    let sessions: Vec<_> = found.iter().filter_map(|one| one.session.as_deref()).collect();
    assert_eq!(sessions, ["a", "a", "b"]);
    let trace =
        "{\"timestamp\": 0, \"text_input\": \"x\"}\n{\"timestamp\": 900, \"text_input\": \"y\"}";
    let (found, _) = requests(trace);
    assert_eq!(found[1].prompt, PromptPart::Text("y".to_owned()));
    assert_eq!(found[1].arrival.map(|at| at.0), Some(900_000_000));
}

#[test]
fn records_without_a_request_are_counted() {
    let log = "INFO 11-24 10:00:00 start\nINFO 11-24 10:00:01 Received request a: prompt: 'x', \
               params: P\nINFO 11-24 10:00:02 stop\n";
    let (found, passed_over) = requests(log);
    assert_eq!((found.len(), passed_over), (1, 2));
}

/// Whatever a line holds, it is read or told, and nothing panics.
#[test]
fn damaged_files_are_told() {
    let files = [
        json!({"resourceSpans": [{"scopeSpans": 7}]}),
        json!({"attributes": {"gen_ai.prompt.0.role": 7, "llm.x": []}}),
        json!({"log": {"entries": [7, {"request": {"postData": {"text": "{}"}}}]}}),
        json!({"data": [{"payloads": [7, null]}]}),
        json!({"type": "GENERATION", "traceId": "t", "input": 7, "usageDetails": 7}),
        json!({"run_type": "llm", "inputs": {"messages": [7, "x", [[]]]}}),
        json!({"contents": [{"role": 7, "parts": [7]}, 7]}),
        json!({"messages": ["x", {"role": "user", "content": [{"text": 7}, 7]}], "toolConfig": 7}),
        json!({"sessionId": 7, "uuid": 7, "type": "user", "message": []}),
        json!({"type": "session_meta", "payload": 7}),
        json!({"event": "request.finished", "obj": 7, "out": 7}),
        json!({"call_type": 7, "metadata": "{", "messages": 7}),
        json!({"log": "{", "stream": 7, "time": []}),
    ];
    for file in files {
        let text = format!("{file}\n{file}\n");
        let options = LogOptions { skip_bad: true };
        let read = read("t", text.as_bytes(), options).expect("readable");
        assert!(read.flatten().count() <= 2, "{file}");
    }
}
