//! SGLang's way from a chat request to what its template sees.
//!
//! | field | what SGLang does |
//! |---|---|
//! | `messages` | typed objects without absent fields; text parts joined by spaces, or kept |
//! | a last assistant message | becomes a user message, or the answer's beginning if continued |
//! | `tools` | functions keep their keys' order; absent description and parameters are `null` |
//! | `tool_choice` | `none` leaves the tools out, a named function leaves the others out |
//! | `reasoning_effort` | a variable; sets `thinking` and `enable_thinking` where it is `none` |
//! | `chat_template_kwargs` | variables of the template |
//!
//! Source: SGLang 0.5.23, `entrypoints/openai/serving_chat.py`, `protocol.py` and
//! `parser/jinja_template_utils.py`. Models with an encoder of their own (DeepSeek V3.2, Kimi K3,
//! MiniMax M3, gpt-oss) are not done here.

use serde_json::{Map, Value};

use super::{
    ContentFormat, EngineConversation, NoExactTokens, arguments, boolean, object, read_messages,
    refuse, set, take,
};
use crate::python_number::with_floats;
use crate::{ChatTemplate, GenerationPrompt};

/// As [`super::Dialect::read`].
pub(super) fn read(
    mut request: Map<String, Value>,
    template: &ChatTemplate,
) -> Result<EngineConversation, NoExactTokens> {
    let continues_last =
        take(&mut request, "continue_final_message").is_some_and(|flag| boolean(flag) == true);
    refuse(&mut request, &["input_ids", "reasoning"])?;
    let format = template.sglang_content_format;
    let read = |one, has_media: &mut bool| message(one, format, has_media);
    let (mut messages, medium_in) = read_messages(&mut request, read)?;
    let mut answer_begins = String::new();
    if let Some(last) = messages.last_mut()
        && last["role"] == "assistant"
        // A content that was kept as parts is not rewritten.
        && let Some(text) = last["content"].as_str().map(str::to_owned)
    {
        if continues_last {
            answer_begins = text;
            messages.pop();
        } else {
            *last = serde_json::json!({"role": "user", "content": text});
        }
    }
    Ok(EngineConversation {
        messages: Value::Array(messages),
        tools: tools(&mut request)?,
        generation_prompt: GenerationPrompt::Add,
        // The beginning of the answer left the messages, so the template's text ends as usual.
        continues_last: false,
        answer_begins,
        variables: variables(&mut request)?,
        medium_in,
    })
}

/// Declared fields of a message behind its content, in the order in which they are written.
const MESSAGE_FIELDS: [&str; 7] =
    ["tool_call_id", "name", "phase", "reasoning_content", "tool_calls", "tools", "prefix"];

fn message(
    message: Value,
    format: ContentFormat,
    has_media: &mut bool,
) -> Result<Value, NoExactTokens> {
    let mut message = object(message, "messages")?;
    let Some(Value::String(role)) = take(&mut message, "role") else {
        return Err(NoExactTokens::Malformed("messages"));
    };
    let role = role.to_lowercase();
    let is_list = message.get("content").is_some_and(Value::is_array);
    let content = content(take(&mut message, "content"), format, has_media)?;
    let content = match content {
        // Results of tools become one text, also for a template that gets parts.
        Value::Array(parts) if role == "tool" && parts.iter().all(is_text) => joined(&parts),
        content => content,
    };
    let mut read = Map::new();
    set(&mut read, "role", Value::from(role.as_str()));
    // A list that is kept as one goes behind all other fields.
    let goes_last = is_list && format == ContentFormat::Parts;
    if !goes_last {
        set(&mut read, "content", content.clone());
    }
    // A user's message has no other declared fields.
    let fields = match role.as_str() {
        "user" => &[][..],
        _ => &MESSAGE_FIELDS[..],
    };
    for &name in fields {
        if let Some(value) = take(&mut message, name) {
            let value = match (name, value) {
                ("tool_calls", calls) => tool_calls(calls, role == "assistant")?,
                ("tools", Value::Array(tools)) => {
                    tools.into_iter().map(tool).collect::<Result<_, _>>()?
                }
                (_, value) => value,
            };
            set(&mut read, name, value);
        }
    }
    if goes_last {
        set(&mut read, "content", content);
    }
    Ok(read.into())
}

fn is_text(part: &Value) -> bool {
    part["type"] == "text"
}

/// A content as `format` wants it; an absent one is the empty text.
fn content(
    content: Option<Value>,
    format: ContentFormat,
    has_media: &mut bool,
) -> Result<Value, NoExactTokens> {
    let parts = match content {
        None => return Ok("".into()),
        Some(text @ Value::String(_)) => return Ok(text),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(NoExactTokens::Malformed("content")),
    };
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        kept.extend(content_part(part, has_media)?);
    }
    if format == ContentFormat::Parts {
        return Ok(kept.into());
    }
    Ok(joined(&kept))
}

/// The texts of parts, as one.
fn joined(parts: &[Value]) -> Value {
    let texts = parts.iter().filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join(" ").into()
}

/// A part with its declared fields; `None` where it is left out.
fn content_part(part: Value, has_media: &mut bool) -> Result<Option<Value>, NoExactTokens> {
    // Only the kind of a medium reaches the template, never its address.
    let mut medium = |modality: &str| {
        *has_media = true;
        Ok(Some(serde_json::json!({"type": modality})))
    };
    match part["type"].as_str() {
        Some("text") if part["text"].is_string() => {
            Ok(Some(serde_json::json!({"type": "text", "text": part["text"]})))
        }
        Some("tool_reference") if part["name"].is_string() => {
            Ok(Some(serde_json::json!({"type": "tool_reference", "name": part["name"]})))
        }
        Some("thinking" | "reasoning") => Ok(None),
        Some("image_url") => medium("image"),
        Some("video_url") => medium("video"),
        Some("audio_url" | "input_audio") => medium("audio"),
        _ => Err(NoExactTokens::Malformed("content.type")),
    }
}

fn tool_calls(calls: Value, parses_arguments: bool) -> Result<Value, NoExactTokens> {
    let Value::Array(calls) = calls else {
        return Err(NoExactTokens::Malformed("tool_calls"));
    };
    calls.into_iter().map(|call| tool_call(call, parses_arguments)).collect()
}

/// A call with all its declared fields, absent ones as `null`.
fn tool_call(call: Value, parses_arguments: bool) -> Result<Value, NoExactTokens> {
    let mut call = object(call, "tool_calls")?;
    let mut function = object(take(&mut call, "function"), "tool_calls")?;
    let arguments: Value = match take(&mut function, "arguments") {
        Some(Value::String(text)) if parses_arguments => {
            // SGLang parses arguments with orjson, which has floats for integers beyond 64 bits.
            let read = arguments(&text).and_then(|fields| with_floats(fields.into()));
            read.ok_or(NoExactTokens::Malformed("tool_calls"))?
        }
        other => other.into(),
    };
    let mut field = |name: &str| Value::from(take(&mut call, name));
    Ok(serde_json::json!({
        "id": field("id"),
        "index": field("index"),
        "type": "function",
        "function": {"name": Value::from(take(&mut function, "name")), "arguments": arguments},
    }))
}

/// The tools that a request's choice of them leaves.
fn tools(request: &mut Map<String, Value>) -> Result<Option<Value>, NoExactTokens> {
    let choice = take(request, "tool_choice");
    let Some(Value::Array(tools)) = take(request, "tools") else {
        return Ok(None);
    };
    if choice.as_ref().is_some_and(|choice| choice == "none") {
        return Ok(None);
    }
    let tools: Result<Vec<_>, _> = tools.into_iter().map(tool).collect();
    let mut tools = tools?;
    if let Some(Value::Object(choice)) = &choice {
        let name = choice.get("function").map(|function| &function["name"]);
        tools.retain(|tool| Some(&tool["function"]["name"]) == name);
    }
    Ok((!tools.is_empty()).then(|| tools.into()))
}

/// A tool with its declared fields; its function's keys keep the client's order.
fn tool(tool: Value) -> Result<Value, NoExactTokens> {
    let mut tool = object(tool, "tools")?;
    let mut function = object(take(&mut tool, "function"), "tools")?;
    let defers = take(&mut tool, "defer_loading").map(boolean);
    if let Some(strict) = function.get_mut("strict") {
        *strict = boolean(strict.take());
    }
    // In the place of a null, else behind all others.
    if let (Some(defers), Some(own @ Value::Null)) = (&defers, function.get_mut("defer_loading")) {
        *own = defers.clone();
    }
    // SGLang rewrites such a schema, and the result is not known here.
    if function.get("parameters").is_some_and(has_unusual_type) {
        return Err(NoExactTokens::Unsupported("tools"));
    }
    function.retain(|name, value| match name.as_str() {
        "description" | "name" | "parameters" => true,
        "strict" | "defer_loading" => !value.is_null(),
        _ => false,
    });
    // Fields that are absent go to the end; those that are there kept their places.
    for name in ["description", "parameters"] {
        function.entry(name).or_insert(Value::Null);
    }
    if let Some(defers) = &defers {
        function.entry("defer_loading").or_insert_with(|| defers.clone());
    }
    Ok(serde_json::json!({
        "type": take(&mut tool, "type").unwrap_or_else(|| "function".into()),
        "function": function,
        "defer_loading": Value::from(defers),
    }))
}

/// Whether a schema names a type that SGLang writes in another way, such as `int`.
fn has_unusual_type(schema: &Value) -> bool {
    const USUAL: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];
    let is_unusual = |kind: &Value| kind.as_str().is_some_and(|kind| !USUAL.contains(&kind));
    match schema {
        Value::Object(fields) => fields.iter().any(|(name, value)| match (name.as_str(), value) {
            ("type", Value::Array(kinds)) => kinds.iter().any(is_unusual),
            ("type", kind @ Value::String(_)) => is_unusual(kind),
            (_, value) => has_unusual_type(value),
        }),
        Value::Array(items) => items.iter().any(has_unusual_type),
        _ => false,
    }
}

fn variables(request: &mut Map<String, Value>) -> Result<Map<String, Value>, NoExactTokens> {
    let mut chosen = match take(request, "chat_template_kwargs") {
        None => Map::new(),
        chosen => object(chosen, "chat_template_kwargs")?,
    };
    let mut variables = Map::new();
    let effort = take(request, "reasoning_effort");
    if let Some(effort) = &effort {
        if effort.as_str().is_none_or(|effort| effort.parse::<f64>().is_ok()) {
            // Numbers are read into floats, which only SGLang knows.
            return Err(NoExactTokens::Unsupported("reasoning_effort"));
        }
        for name in ["thinking", "enable_thinking"] {
            // The request's own variables win.
            chosen.entry(name).or_insert((effort != "none").into());
        }
    }
    // A variable of that name wins over the field.
    set(&mut variables, "reasoning_effort", take(&mut chosen, "reasoning_effort").or(effort));
    variables.extend(chosen);
    Ok(variables)
}
