//! Messages of OpenTelemetry's GenAI conventions, and of OpenInference's, as OpenAI's.

use serde_json::{Value, json};

use super::attributes::Attributes;

/// The messages of `gen_ai.input.messages` (conventions of 1.37 and later): `parts` by type.
pub(super) fn messages(system: Option<&Value>, list: &Value) -> Option<Value> {
    let mut messages = Vec::new();
    if let Some(parts) = system.and_then(Value::as_array) {
        messages.push(json!({"role": "system", "content": contents(parts)}));
    }
    for message in list.as_array()? {
        let role = message["role"].as_str().unwrap_or("user");
        let Some(parts) = message["parts"].as_array() else {
            messages.push(message.clone());
            continue;
        };
        for part in parts.iter().filter(|part| part["type"] == "tool_call_response") {
            let result = part.get("response").or_else(|| part.get("result"));
            let result = result.cloned().unwrap_or_default();
            messages.push(json!({"role": "tool", "tool_call_id": part["id"], "content": result}));
        }
        let calls = parts.iter().filter(|part| part["type"] == "tool_call");
        let calls: Vec<Value> = calls.map(call).collect();
        let rest: Vec<Value> = parts
            .iter()
            .filter(|part| {
                !matches!(part["type"].as_str(), Some("tool_call" | "tool_call_response"))
            })
            .cloned()
            .collect();
        if !calls.is_empty() {
            let content = contents(&rest);
            messages.push(json!({"role": role, "content": content, "tool_calls": calls}));
        } else if !rest.is_empty() {
            messages.push(json!({"role": role, "content": contents(&rest)}));
        }
    }
    Some(Value::Array(messages))
}

/// Text parts: one is a text, several are a list.
fn contents(parts: &[Value]) -> Value {
    let part = |part: &Value| match part["type"].as_str() {
        Some("text" | "reasoning") => json!({"type": "text", "text": part["content"]}),
        _ => part.clone(),
    };
    match parts {
        [] => Value::Null,
        [only] if only["type"] == "text" => only["content"].clone(),
        several => several.iter().map(part).collect(),
    }
}

fn call(part: &Value) -> Value {
    let arguments = match &part["arguments"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    json!({
        "id": part["id"],
        "type": "function",
        "function": {"name": part["name"], "arguments": arguments},
    })
}

/// The messages of one attribute for each part of a message: OpenLLMetry's `gen_ai.prompt.0.role`,
/// and OpenInference's `llm.input_messages.0.message.role`.
pub(super) fn indexed(items: &[Attributes]) -> Option<Value> {
    let messages: Vec<Value> = items.iter().filter_map(indexed_message).collect();
    (!messages.is_empty()).then_some(Value::Array(messages))
}

fn indexed_message(item: &Attributes) -> Option<Value> {
    let role = item.text(&["role", "message.role"])?;
    let mut message = json!({"role": role});
    let parts = item.items("message.contents");
    let content = match item.get(&["content", "message.content"]) {
        Some(content) => content.clone(),
        None if parts.is_empty() => Value::Null,
        None => parts.iter().map(content_part).collect(),
    };
    message["content"] = content;
    let lists = ["tool_calls", "message.tool_calls"];
    let calls = lists.iter().flat_map(|list| item.items(list));
    let calls: Vec<Value> = calls.map(|call| indexed_call(&call)).collect();
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    if let Some(id) = item.get(&["tool_call_id", "message.tool_call_id"]) {
        message["tool_call_id"] = id.clone();
    }
    Some(message)
}

fn content_part(part: &Attributes) -> Value {
    match part.text(&["message_content.text"]) {
        Some(text) => json!({"type": "text", "text": text}),
        None => {
            let url = part.get(&["message_content.image.image.url", "message_content.image"]);
            json!({"type": "image_url", "image_url": {"url": url}})
        }
    }
}

fn indexed_call(call: &Attributes) -> Value {
    json!({
        "id": call.get(&["id", "tool_call.id"]),
        "type": "function",
        "function": {
            "name": call.get(&["name", "tool_call.function.name"]),
            "arguments": call.get(&["arguments", "tool_call.function.arguments"]),
        },
    })
}
