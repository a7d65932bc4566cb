//! Requests of OpenAI's Responses API as the chat requests that vLLM makes of them.
//!
//! Items of one answer (reasoning, text, calls) join the assistant's message in front of them, if
//! that lacks such a part. A chain by `previous_response_id` is known to its engine alone.
//!
//! Source: vLLM 0.30 to 0.32, `entrypoints/openai/responses/utils.py`.

use serde_json::{Map, Value, json};

use super::VllmVersion;
use crate::dialect::{NoExactTokens, function_tool, refuse, set, take};

/// The chat request of `request`.
///
/// # Errors
/// When vLLM refuses the request, or makes of it what is not known here.
pub(super) fn to_chat(
    mut request: Map<String, Value>,
    version: VllmVersion,
) -> Result<Map<String, Value>, NoExactTokens> {
    // These refer to state that only the engine holds.
    refuse(&mut request, &["previous_response_id", "conversation", "prompt"])?;
    let mut messages = Vec::new();
    if let Some(Value::String(text)) = take(&mut request, "instructions")
        && !text.is_empty()
    {
        messages.push(json!({"role": "system", "content": text}));
    }
    let mut continues = false;
    match take(&mut request, "input") {
        Some(text @ Value::String(_)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) => {
            // The items are consumed below, so the last one is looked at first.
            continues = items.last().is_some_and(is_unfinished);
            for item in items {
                add_item(item, &mut messages, version)?;
            }
        }
        _ => return Err(NoExactTokens::Malformed("input")),
    }
    let mut fields = Map::new();
    set(&mut fields, "messages", Value::Array(messages));
    if continues {
        set(&mut fields, "continue_final_message", Value::Bool(true));
        set(&mut fields, "add_generation_prompt", Value::Bool(false));
    }
    if let Some(Value::Array(tools)) = take(&mut request, "tools") {
        set(&mut fields, "tools", chat_tools(tools, version)?);
    }
    let effort = take(&mut request, "reasoning").map(|reasoning| reasoning["effort"].clone());
    set(&mut fields, "reasoning_effort", effort.filter(|effort| !effort.is_null()));
    set(&mut fields, "chat_template_kwargs", take(&mut request, "chat_template_kwargs"));
    Ok(fields)
}

fn is_unfinished(item: &Value) -> bool {
    let is_answer = item["type"] == "reasoning" || item["role"] == "assistant";
    is_answer && (item["status"] == "incomplete" || item["status"] == "in_progress")
}

fn add_item(
    mut item: Value,
    messages: &mut Vec<Value>,
    version: VllmVersion,
) -> Result<(), NoExactTokens> {
    let malformed = NoExactTokens::Malformed("input");
    let kind = item["type"].as_str().unwrap_or("message").to_owned();
    match kind.as_str() {
        "function_call" => {
            if let Some(namespace) = item["namespace"].as_str().filter(|name| !name.is_empty()) {
                let name = item["name"].as_str().unwrap_or_default();
                item["name"] = flat_name(namespace, name).into();
            }
            let arguments = item["arguments"].take();
            add_call(&item, arguments, messages);
        }
        "custom_tool_call" if version.has_custom_tools() => {
            let input = item["input"].as_str().unwrap_or_default();
            let arguments = json!({"input": input}).to_string();
            add_call(&item, arguments.into(), messages);
        }
        "function_call_output" | "custom_tool_call_output" => messages.push(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": item["output"],
        })),
        "reasoning" => {
            if item["encrypted_content"].is_string() {
                return Err(malformed);
            }
            // vLLM reads the first entry only.
            let text = |list: &Value| list[0]["text"].as_str().map(str::to_owned);
            let text = text(&item["content"]).or_else(|| text(&item["summary"]));
            join(messages, "reasoning", text.unwrap_or_default().into());
        }
        "message" => match item["role"].as_str() {
            Some("assistant") => {
                let text = match &item["content"] {
                    Value::String(text) => text.clone(),
                    parts => {
                        // Only the first part counts, as in vLLM.
                        let part = &parts[0];
                        let text = part["text"].as_str().or(part["refusal"].as_str());
                        text.ok_or(malformed)?.to_owned()
                    }
                };
                join(messages, "content", text.into());
            }
            Some(_) => messages.push(item),
            None => return Err(malformed),
        },
        _ => return Err(malformed),
    }
    Ok(())
}

/// Sets a part of the assistant's message in front, if it lacks that part; else of a new one.
fn join(messages: &mut Vec<Value>, part: &str, value: Value) {
    match messages.last_mut() {
        // Indexing an absent field gives `null`, so this also tells a field that is not there.
        Some(last) if last["role"] == "assistant" && last[part].is_null() => last[part] = value,
        _ => {
            let mut message = json!({"role": "assistant"});
            message[part] = value;
            messages.push(message);
        }
    }
}

fn add_call(item: &Value, arguments: Value, messages: &mut Vec<Value>) {
    let call = json!({
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": arguments},
    });
    match messages.last_mut() {
        Some(last) if last["role"] == "assistant" => match last["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => last["tool_calls"] = json!([call]),
        },
        _ => messages.push(json!({"role": "assistant", "tool_calls": [call]})),
    }
}

/// The tools that the template sees: functions, and custom tools as functions of one text.
fn chat_tools(tools: Vec<Value>, version: VllmVersion) -> Result<Option<Value>, NoExactTokens> {
    let mut chat = Vec::new();
    for mut tool in tools {
        match tool["type"].as_str() {
            Some("function") => chat.push(chat_function(tool)?),
            Some("custom") if version.has_custom_tools() => {
                tool["parameters"] = json!({
                    "type": "object",
                    "properties": {"input": {
                        "type": "string",
                        "description": "The freeform text payload for this tool.",
                    }},
                    "required": ["input"],
                    "additionalProperties": false,
                });
                for name in ["strict", "defer_loading"] {
                    tool[name] = Value::Null;
                }
                chat.push(chat_function(tool)?);
            }
            Some("namespace") => {
                let Value::Array(inner) = tool["tools"].take() else {
                    return Err(NoExactTokens::Malformed("tools"));
                };
                let namespace = tool["name"].as_str().ok_or(NoExactTokens::Malformed("tools"))?;
                for mut tool in inner {
                    if tool["type"] == "function" {
                        let name = tool["name"].as_str().unwrap_or_default();
                        tool["name"] = flat_name(namespace, name).into();
                        chat.push(chat_function(tool)?);
                    }
                }
            }
            Some("mcp") => return Err(NoExactTokens::Unsupported("tools")),
            // Built-in tools are the engine's affair, and not shown.
            Some(_) => {}
            None => return Err(NoExactTokens::Malformed("tools")),
        }
    }
    Ok(Some(chat).filter(|tools| !tools.is_empty()).map(Value::from))
}

/// The name by which the model sees a function of a namespace.
fn flat_name(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

fn chat_function(mut tool: Value) -> Result<Value, NoExactTokens> {
    let mut function = json!({});
    for name in ["name", "description", "parameters", "strict", "defer_loading"] {
        function[name] = tool[name].take();
    }
    if function["name"].is_string() {
        Ok(function_tool(function).into())
    } else {
        Err(NoExactTokens::Malformed("tools"))
    }
}
