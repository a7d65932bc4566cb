//! Gemini's and Bedrock's bodies as OpenAI's.

use serde_json::{Value, json};

/// Fields that only Bedrock's bodies have.
pub(super) const MARKS: [&str; 2] = ["\"modelId\"", "\"toolConfig\""];

/// Whether an object asks a model, in any API's shape.
pub(super) fn is_asking(value: &Value) -> bool {
    let is_list = |name: &str, is_it: fn(&[Value]) -> bool| {
        value.get(name).and_then(Value::as_array).is_some_and(|list| is_it(list))
    };
    // JSON within a text is another object's affair.
    let is_text = |text: &str| !text.trim_start().starts_with(['[', '{']);
    let has_text = |name: &str| value.get(name).and_then(Value::as_str).is_some_and(is_text);
    is_list("messages", are_messages)
        || is_list("contents", are_messages)
        || (is_list("input", are_messages) && value.get("model").is_some())
        || has_text("prompt")
        || (has_text("input") && value.get("model").is_some())
        || is_list("prompt_token_ids", |list| list.first().is_some_and(Value::is_number))
}

/// Whether these are messages: objects with a role, or a type of the Responses API.
pub(super) fn are_messages(list: &[Value]) -> bool {
    let is_message = |item: &Value| {
        item.get("role").is_some() || item.get("parts").is_some() || item.get("type").is_some()
    };
    !list.is_empty() && list.iter().all(is_message)
}

/// A record with Gemini's or Bedrock's body, in a field or by itself.
pub(super) fn is_body(value: &Value) -> bool {
    is_foreign(value)
        || ["body", "request", "input"].iter().any(|name| is_foreign(&value[name]))
        || value["input"]["inputBodyJson"].is_object()
}

fn is_foreign(body: &Value) -> bool {
    let is_gemini = body["contents"].as_array().is_some_and(|list| are_messages(list));
    // Converse has parts without a type.
    let first = body["messages"][0]["content"][0].as_object();
    let part = ["text", "toolUse", "toolResult", "image", "document"];
    let is_untyped = first.is_some_and(|first| {
        !first.contains_key("type") && part.iter().any(|name| first.contains_key(*name))
    });
    is_gemini || is_untyped || body.get("toolConfig").is_some()
}

pub(super) fn requests(record: &Value) -> Vec<Value> {
    let mut request = record.clone();
    // A record of Bedrock's invocation log.
    if let Some(body) = record["input"].get("inputBodyJson") {
        request = json!({
            "timestamp": record["timestamp"],
            "request_id": record["requestId"],
            "model": record["modelId"],
            "body": body,
            "response": record["output"]["outputBodyJson"],
        });
        let count = |name: &str| &record["input"][name];
        let parts = ["inputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount"];
        if parts.iter().any(|name| count(name).is_number()) {
            request["usage"] = json!({
                "input_tokens": count(parts[0]),
                "cache_read_input_tokens": count(parts[1]),
                "cache_creation_input_tokens": count(parts[2]),
                "output_tokens": record["output"]["outputTokenCount"],
            });
        }
    }
    as_openai(&mut request);
    vec![request]
}

/// Rewrites the body of a record, and the token counts of its answer.
pub(super) fn as_openai(record: &mut Value) {
    for name in ["body", "request", "input"] {
        if is_foreign(&record[name]) {
            rewrite(&mut record[name]);
        }
    }
    if is_foreign(record) {
        rewrite(record);
    }
    if let Some(usage) = usage(record) {
        record["usage"] = usage;
    }
}

/// The token counts of Gemini's or Converse's answer.
fn usage(record: &Value) -> Option<Value> {
    let answers = [record, &record["response"], &record["output"]];
    let gemini = answers.iter().map(|answer| &answer["usageMetadata"]);
    let gemini = gemini.chain([&record["usage"]]);
    if let Some(counts) = gemini.into_iter().find(|counts| counts["promptTokenCount"].is_number()) {
        return Some(json!({
            "prompt_tokens": counts["promptTokenCount"],
            "cached_tokens": counts["cachedContentTokenCount"],
            "completion_tokens": counts["candidatesTokenCount"],
        }));
    }
    // Converse counts the cached ones beside the others.
    let mut converse = answers.iter().map(|answer| &answer["usage"]);
    let counts = converse.find(|counts| counts["inputTokens"].is_number())?;
    Some(json!({
        "input_tokens": counts["inputTokens"],
        "cache_read_input_tokens": counts["cacheReadInputTokens"],
        "cache_creation_input_tokens": counts["cacheWriteInputTokens"],
        "output_tokens": counts["outputTokens"],
    }))
}

fn rewrite(body: &mut Value) {
    if let Some(contents) = body["contents"].as_array() {
        let mut messages = Vec::new();
        let system = ["systemInstruction", "system_instruction"];
        if let Some(system) = system.iter().find_map(|name| body.get(name)) {
            messages.extend(gemini_message("system", &system["parts"]));
        }
        for content in contents {
            let role = if content["role"] == "model" { "assistant" } else { "user" };
            messages.extend(gemini_message(role, &content["parts"]));
        }
        let declared = body["tools"].as_array().into_iter().flatten().flat_map(|tool| {
            let names = ["functionDeclarations", "function_declarations"];
            names.iter().find_map(|name| tool[name].as_array().cloned()).unwrap_or_default()
        });
        let tools: Vec<Value> =
            declared.map(|tool| json!({"type": "function", "function": tool})).collect();
        body["messages"] = Value::Array(messages);
        body["tools"] = if tools.is_empty() { Value::Null } else { Value::Array(tools) };
        return;
    }
    if let Some(messages) = body["messages"].as_array_mut() {
        messages.iter_mut().filter_map(|message| message.get_mut("content")).for_each(typed_parts);
    }
    if let Some(system) = body.get_mut("system") {
        typed_parts(system);
    }
    if let Some(tools) = body["toolConfig"]["tools"].as_array() {
        let tools = tools.iter().map(|tool| {
            let spec = &tool["toolSpec"];
            json!({"name": spec["name"], "description": spec["description"],
                "input_schema": spec["inputSchema"]["json"]})
        });
        body["tools"] = tools.collect();
    }
    if body.get("model").is_none() {
        body["model"] = body["modelId"].clone();
    }
}

fn gemini_message(role: &str, parts: &Value) -> Vec<Value> {
    let mut messages = Vec::new();
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    // One part may be by itself.
    let list = parts.as_array().map_or(std::slice::from_ref(parts), Vec::as_slice);
    for part in list {
        if let Some(answer) = part.get("functionResponse") {
            let content = answer["response"].to_string();
            messages.push(json!({"role": "tool", "name": answer["name"], "content": content}));
        } else if let Some(call) = part.get("functionCall") {
            let arguments = call["args"].to_string();
            calls.push(json!({"type": "function",
                "function": {"name": call["name"], "arguments": arguments}}));
        } else if let Some(text) = part["text"].as_str() {
            texts.push(json!({"type": "text", "text": text}));
        } else if part.is_object() {
            texts.push(part.clone());
        }
    }
    let content = match &texts[..] {
        [] => Value::Null,
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => Value::Array(texts),
    };
    if !calls.is_empty() {
        messages.push(json!({"role": role, "content": content, "tool_calls": calls}));
    } else if !content.is_null() {
        messages.push(json!({"role": role, "content": content}));
    }
    messages
}

/// Converse's parts, `{"text": …}`, with the types that other APIs give them.
fn typed_parts(content: &mut Value) {
    let Some(parts) = content.as_array_mut() else {
        return;
    };
    for part in parts {
        if part.get("type").is_some() {
            continue;
        }
        let typed = if let Some(text) = part.get("text") {
            json!({"type": "text", "text": text})
        } else if let Some(call) = part.get("toolUse") {
            json!({"type": "tool_use", "id": call["toolUseId"], "name": call["name"],
                "input": call["input"]})
        } else if let Some(result) = part.get("toolResult") {
            let mut content = result["content"].clone();
            typed_parts(&mut content);
            json!({"type": "tool_result", "tool_use_id": result["toolUseId"], "content": content})
        } else if part.get("cachePoint").is_some() {
            json!({"type": "text", "text": "", "cache_control": {"type": "ephemeral"}})
        } else {
            continue;
        };
        *part = typed;
    }
}
