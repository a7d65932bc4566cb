//! Spans of OpenTelemetry: its GenAI conventions, OpenLLMetry's flat attributes, OpenInference.

use serde_json::{Value, json};

use super::attributes::Attributes;
use super::genai;

/// Prefixes of attributes that only a model's span has.
const OF_A_MODEL: [&str; 3] = ["gen_ai.", "llm.", "openinference."];

/// An OTLP export: spans of resources and scopes, in one object.
pub(super) fn is_batch(value: &Value) -> bool {
    resources(value).is_some()
}

pub(super) fn batch(value: &Value) -> Vec<Value> {
    let list = |value: &Value, names: [&str; 2]| {
        let found = names.iter().find_map(|name| value.get(name)?.as_array().cloned());
        found.unwrap_or_default()
    };
    let resources = resources(value).cloned().unwrap_or_default();
    let scopes = resources.iter().flat_map(|one| list(one, ["scopeSpans", "scope_spans"]));
    let spans = scopes.flat_map(|scope| list(&scope, ["spans", "spans"]));
    spans.flat_map(|span| requests(&span)).collect()
}

fn resources(value: &Value) -> Option<&Vec<Value>> {
    ["resourceSpans", "resource_spans"].iter().find_map(|name| value.get(name)?.as_array())
}

/// A span by itself, as a file exporter or a dashboard writes it.
pub(super) fn is_span(value: &Value) -> bool {
    let Some(attributes) = value.get("attributes") else {
        return false;
    };
    let attributes = Attributes::of(attributes);
    let is_model = OF_A_MODEL.iter().any(|prefix| attributes.contains_prefix(prefix));
    // The first span of a file may be a step without a model.
    is_model || value.get("context").is_some_and(|context| context.get("span_id").is_some())
}

/// The request of a model's span; other spans have none.
pub(super) fn requests(span: &Value) -> Vec<Value> {
    let attributes = Attributes::of(&span["attributes"]);
    let Some((mut request, messages)) = body(&attributes, span) else {
        return Vec::new();
    };
    if let Some(messages) = messages {
        request["messages"] = messages;
    }
    let put = |request: &mut Value, name: &str, value: Option<&Value>| {
        if let (Some(value), true) = (value, request.get(name).is_none()) {
            request[name] = value.clone();
        }
    };
    let times = ["startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"];
    put(&mut request, "timestamp", times.iter().find_map(|name| span.get(name)));
    let ids = [&span["spanId"], &span["span_id"], &span["context"]["span_id"]];
    put(&mut request, "request_id", ids.into_iter().find(|id| id.is_string()));
    for (name, sources) in [
        ("model", &["gen_ai.request.model", "llm.model_name", "llm.request.model"][..]),
        (
            "session_id",
            &[
                "gen_ai.conversation.id",
                "session.id",
                "traceloop.association.properties.session_id",
            ],
        ),
        ("user", &["user.id", "enduser.id", "llm.user"]),
        ("ttft_s", &["gen_ai.server.time_to_first_token", "gen_ai.response.time_to_first_chunk"]),
        ("finish_reason", &["gen_ai.completion.0.finish_reason", "llm.response.finish_reason"]),
    ] {
        put(&mut request, name, attributes.get(sources));
    }
    if let Some(tools) = tools(&attributes).filter(|_| request.get("tools").is_none()) {
        request["tools"] = tools;
    }
    request["usage"] = usage(&attributes);
    vec![request]
}

/// The body of the request, or its messages alone.
fn body(attributes: &Attributes, span: &Value) -> Option<(Value, Option<Value>)> {
    let from_parts = || {
        let list = attributes.json(&["gen_ai.input.messages"]).or_else(|| of_events(span))?;
        let system = attributes.json(&["gen_ai.system_instructions"]);
        genai::messages(system.as_ref(), &list)
    };
    // The body itself has what the attributes leave out.
    if let Some(body) = attributes.json(&["input.value", "gen_ai.request.body", "llm.request.body"])
        && body.get("messages").is_some_and(Value::is_array)
        && attributes.text(&["openinference.span.kind"]).is_none_or(|kind| kind == "LLM")
    {
        return Some((body, None));
    }
    let lists = ["gen_ai.prompt", "llm.input_messages", "llm.prompts"];
    let indexed = || lists.iter().find_map(|list| genai::indexed(&attributes.items(list)));
    Some((json!({}), Some(from_parts().or_else(indexed)?)))
}

/// The messages in a span's event, as the conventions allow beside attributes.
fn of_events(span: &Value) -> Option<Value> {
    span["events"]
        .as_array()?
        .iter()
        .find_map(|event| Attributes::of(&event["attributes"]).json(&["gen_ai.input.messages"]))
}

fn tools(attributes: &Attributes) -> Option<Value> {
    if let Some(tools) = attributes.json(&["gen_ai.tool.definitions", "gen_ai.request.tools"]) {
        return Some(tools);
    }
    let schemas = attributes.items("llm.tools").into_iter();
    let mut tools: Vec<Value> =
        schemas.filter_map(|tool| tool.json(&["tool.json_schema"])).collect();
    if tools.is_empty() {
        tools = attributes
            .items("llm.request.functions")
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": tool.get(&["name"]),
                    "description": tool.get(&["description"]),
                    "parameters": tool.json(&["parameters"]),
                }})
            })
            .collect();
    }
    (!tools.is_empty()).then_some(Value::Array(tools))
}

fn usage(attributes: &Attributes) -> Value {
    let cached = attributes.get(&[
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.cached_tokens",
        "llm.token_count.prompt_details.cache_read",
        "llm.usage.cache_read_input_tokens",
    ]);
    let prompt = attributes.get(&[
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
    ]);
    let output = attributes.get(&[
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
    ]);
    json!({"prompt_tokens": prompt, "completion_tokens": output, "cached_tokens": cached})
}
