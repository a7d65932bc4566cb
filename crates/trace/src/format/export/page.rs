//! Objects that hold many requests: captures of browsers and proxies (HAR), pages of results,
//! AIPerf's inputs; and the observations of Langfuse and LangSmith.

use serde_json::{Value, json};

use super::{nested, provider, span};

/// Fields of a page's list.
const LISTS: [&str; 6] = ["data", "observations", "runs", "items", "results", "records"];

/// The types of Langfuse's observations.
const OBSERVATIONS: [&str; 12] = [
    "GENERATION",
    "SPAN",
    "EVENT",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
    "TRACE",
    "SCORE",
];

/// A capture in the HTTP Archive format 1.2.
pub(super) fn is_har(value: &Value) -> bool {
    value["log"]["entries"].is_array()
}

pub(super) fn har(value: &Value) -> Vec<Value> {
    let entries = value["log"]["entries"].as_array().map_or(&[][..], Vec::as_slice);
    entries.iter().filter_map(har_entry).collect()
}

fn har_entry(entry: &Value) -> Option<Value> {
    let body: Value = serde_json::from_str(entry["request"]["postData"]["text"].as_str()?).ok()?;
    let content = &entry["response"]["content"];
    let text = content["text"].as_str().unwrap_or_default();
    let mut request = json!({"timestamp": entry["startedDateTime"], "body": body});
    let is_stream = content["mimeType"].as_str().is_some_and(|kind| kind.contains("event-stream"));
    if is_stream {
        request["ttft_ms"] = entry["timings"]["wait"].clone();
    }
    if let Some(answer) = answer(text) {
        request["response"] = answer;
    }
    provider::is_asking(&request["body"]).then(|| nested::request(&request))?.pop()
}

/// The answer in a text: JSON, or the event of a stream with its token counts.
fn answer(text: &str) -> Option<Value> {
    if let Ok(answer) = serde_json::from_str(text) {
        return Some(answer);
    }
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut events = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    events.rfind(|event| event["usage"].is_object() || event["message"]["usage"].is_object())
}

/// A line of AIPerf's traces with texts in place of block ids.
pub(super) fn is_text_trace(value: &Value) -> bool {
    value["text_input"].is_string()
}

pub(super) fn text_trace(value: &Value) -> Vec<Value> {
    // Milliseconds from the start, which a request log would take for seconds.
    let seconds = value["timestamp"].as_f64().map(|ms| ms / 1e3);
    vec![json!({
        "timestamp": seconds,
        "session_id": value["session_id"],
        "prompt": value["text_input"],
        "output_tokens": value["output_length"],
    })]
}

/// A page of results: a list of objects under one of some names, and no request by itself.
pub(super) fn is_page(value: &Value) -> bool {
    list(value).is_some() && !provider::is_asking(value)
}

fn list(value: &Value) -> Option<&Vec<Value>> {
    let is_list = |list: &&Vec<Value>| list.first().is_some_and(Value::is_object);
    LISTS.iter().find_map(|name| value.get(name)?.as_array().filter(is_list))
}

pub(super) fn items(value: &Value) -> Vec<Value> {
    let items = list(value).map_or(&[][..], Vec::as_slice);
    items.iter().flat_map(item).collect()
}

fn item(item: &Value) -> Vec<Value> {
    // AIPerf: the requests of a session, in order and without times.
    if let Some(payloads) = item["payloads"].as_array() {
        let session = &item["session_id"];
        return payloads.iter().map(|body| json!({"session_id": session, "body": body})).collect();
    }
    if is_observation(item) {
        observation(item)
    } else if span::is_span(item) {
        span::requests(item)
    } else {
        nested::request(item)
    }
}

/// An observation of Langfuse, or a run of LangSmith.
pub(super) fn is_observation(value: &Value) -> bool {
    let kind = value["type"].as_str().unwrap_or_default();
    let is_langfuse = OBSERVATIONS.contains(&kind) && value.get("traceId").is_some();
    is_langfuse || value["run_type"].is_string()
}

/// The request of a call to a model; other observations have none.
pub(super) fn observation(value: &Value) -> Vec<Value> {
    let is_call = match value["run_type"].as_str() {
        Some(kind) => matches!(kind, "llm" | "chat_model"),
        None => value["type"] == "GENERATION",
    };
    if !is_call {
        return Vec::new();
    }
    let mut made = nested::request(value);
    for request in &mut made {
        let details = &value["usageDetails"];
        if let Some(fresh) = details["input"].as_u64() {
            // Langfuse counts cached tokens beside the others.
            let cached = ["input_cached_tokens", "cache_read_input_tokens", "input_cache_read"];
            let cached = cached.iter().find_map(|name| details[name].as_u64());
            let written = details["cache_creation_input_tokens"].as_u64().unwrap_or(0);
            request["usage"] = json!({
                "prompt_tokens": fresh + cached.unwrap_or(0) + written,
                "cached_tokens": cached,
                "completion_tokens": details["output"],
            });
        }
        messages_of_langchain(request);
    }
    made
}

/// LangChain's messages within LangSmith's `inputs`: a list in a list, of serialized classes.
fn messages_of_langchain(request: &mut Value) {
    let Some(Value::Array(list)) = request.pointer_mut("/inputs/messages") else {
        return;
    };
    if let [Value::Array(only)] = &mut list[..] {
        *list = std::mem::take(only);
    }
    for message in list {
        let class = message["id"].as_array().and_then(|path| path.last()?.as_str());
        let role = match class.or(message["type"].as_str()) {
            Some("SystemMessage" | "system") => "system",
            Some("HumanMessage" | "human") => "user",
            Some("AIMessage" | "AIMessageChunk" | "ai") => "assistant",
            Some("ToolMessage" | "tool") => "tool",
            _ => continue,
        };
        let fields = message.get("kwargs").or_else(|| message.get("data")).unwrap_or(message);
        let mut plain = json!({"role": role, "content": fields["content"]});
        for name in ["tool_calls", "tool_call_id"] {
            if let Some(value) = fields.get(name) {
                plain[name] = value.clone();
            }
        }
        *message = plain;
    }
}
