//! Messages as vLLM hands them to a template.
//!
//! Keys come in the order in which vLLM sets them: `role`, `content`, `tool_calls`, `reasoning`,
//! `reasoning_content`, `tool_call_id`, `name`, `task`, `tools`. Other keys are dropped.

use serde_json::{Map, Value};

use super::VllmVersion;
use crate::ChatTemplate;
use crate::dialect::parts::{self, ContentPart};
use crate::dialect::{
    ContentFormat, NoExactTokens, arguments, in_declared_order, object, set, take,
};

/// The start of the line that Claude Code puts in front of its system prompt.
pub(super) const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Field of a call's function that a template sees first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstOfCall {
    /// In chat requests, which are read into typed dictionaries.
    Arguments,
    /// In chat requests that vLLM made of another API's.
    Name,
}

/// Settings for reading messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) template: &'a ChatTemplate,
    pub(super) version: VllmVersion,
    pub(super) first_of_call: FirstOfCall,
}

/// Reads a message; notes whether some of its content is no text.
///
/// # Errors
/// When vLLM refuses it.
pub(super) fn read(
    message: Value,
    reading: Reading<'_>,
    has_media: &mut bool,
) -> Result<Value, NoExactTokens> {
    let mut message = object(message, "messages")?;
    let Some(Value::String(role)) = message.shift_remove("role") else {
        return Err(NoExactTokens::Malformed("messages"));
    };
    let content = message.shift_remove("content");
    let drops_header = role == "system" && reading.version.drops_billing_header();
    let parts = content_parts(content, drops_header)?;
    *has_media |= (parts.iter()).any(|part| matches!(part, ContentPart::Medium { .. }));
    let content: Value = match reading.template.vllm_content_format {
        ContentFormat::String => joined(parts, EmptyTexts::Drop).into(),
        // The results of tools are one text all the same.
        ContentFormat::Parts if role == "tool" && parts.iter().all(is_text) => {
            joined(parts, EmptyTexts::Keep).into()
        }
        ContentFormat::Parts => parts.into_iter().map(ContentPart::into_value).collect(),
    };
    let mut read = Map::new();
    set(&mut read, "role", Value::from(role.as_str()));
    set(&mut read, "content", content);
    match role.as_str() {
        "assistant" => read.extend(of_assistant(&mut message, reading.first_of_call)?),
        "tool" => set(&mut read, "tool_call_id", message.shift_remove("tool_call_id")),
        _ => {}
    }
    for name in ["name", "task"] {
        set(&mut read, name, message.shift_remove(name).filter(Value::is_string));
    }
    if role == "developer" {
        let tools = take(&mut message, "tools").map(developer_tools);
        set(&mut read, "tools", tools.unwrap_or(Value::Null));
    }
    Ok(read.into())
}

fn is_text(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Text { .. })
}

fn content_parts(
    content: Option<Value>,
    drops_header: bool,
) -> Result<Vec<ContentPart>, NoExactTokens> {
    let parts = match content {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(text @ Value::String(_)) => vec![text],
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(NoExactTokens::Malformed("content")),
    };
    let mut read = Vec::with_capacity(parts.len());
    for part in parts {
        // Asked first, because `parts::read` consumes the part.
        let may_have_header = drops_header && (part.is_string() || part["type"] == "text");
        let Some(mut part) = parts::read(part)? else {
            continue;
        };
        // A part that was nothing but the header goes as a whole.
        if may_have_header && !drop_header(&mut part) {
            continue;
        }
        read.push(part);
    }
    Ok(read)
}

/// Drops the line with the header from a part that begins with it. Whether something is left.
fn drop_header(part: &mut ContentPart) -> bool {
    let ContentPart::Text { text, .. } = part else {
        return true;
    };
    if !text.starts_with(BILLING_HEADER) {
        return true;
    }
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    *text = rest.to_owned();
    !text.is_empty()
}

/// Whether an empty text leaves an empty line.
#[derive(Clone, Copy, PartialEq)]
enum EmptyTexts {
    Keep,
    Drop,
}

/// One string of all parts. Media have no place in it that is known here.
fn joined(parts: Vec<ContentPart>, empty: EmptyTexts) -> String {
    let texts = parts.into_iter().filter_map(|part| match part {
        ContentPart::Text { text, .. } | ContentPart::ToolReference(text) => Some(text),
        ContentPart::Medium { .. } => None,
    });
    let texts = texts.filter(|text| empty == EmptyTexts::Keep || !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

fn of_assistant(
    message: &mut Map<String, Value>,
    first: FirstOfCall,
) -> Result<Map<String, Value>, NoExactTokens> {
    let mut read = Map::new();
    match take(message, "tool_calls") {
        None => {}
        // vLLM leaves an empty list out.
        Some(Value::Array(calls)) if calls.is_empty() => {}
        Some(Value::Array(calls)) => {
            let calls = calls.into_iter().map(|call| tool_call(call, first));
            set(&mut read, "tool_calls", calls.collect::<Result<Value, _>>()?);
        }
        Some(_) => return Err(NoExactTokens::Malformed("tool_calls")),
    }
    let deprecated = take(message, "reasoning_content");
    let reasoning = take(message, "reasoning").or(deprecated);
    // Templates use either name, so the text is set under both.
    set(&mut read, "reasoning", reasoning.clone());
    set(&mut read, "reasoning_content", reasoning);
    Ok(read)
}

/// A call with its keys in declared order and its arguments as an object.
fn tool_call(call: Value, first: FirstOfCall) -> Result<Value, NoExactTokens> {
    let mut call = object(call, "tool_calls")?;
    let mut function = object(take(&mut call, "function"), "tool_calls")?;
    let parsed = match function.shift_remove("arguments") {
        // Arguments that are no JSON object become an empty one.
        Some(Value::String(text)) => arguments(&text).unwrap_or_default(),
        _ => return Err(NoExactTokens::Malformed("tool_calls")),
    };
    set(&mut function, "arguments", Value::Object(parsed));
    let order = match first {
        FirstOfCall::Arguments => ["arguments", "name"],
        FirstOfCall::Name => ["name", "arguments"],
    };
    let function = in_declared_order(function, &order);
    set(&mut call, "function", Value::Object(function));
    Ok(in_declared_order(call, &["id", "function", "type"]).into())
}

/// Tools of a developer message, in the order of OpenAI's typed dictionaries.
fn developer_tools(tools: Value) -> Value {
    let Value::Array(tools) = tools else {
        return tools;
    };
    let ordered = tools.into_iter().map(|tool| match tool {
        Value::Object(mut tool) => {
            if let Some(Value::Object(function)) = tool.get_mut("function").map(Value::take) {
                let order = ["name", "description", "parameters", "strict"];
                tool["function"] = in_declared_order(function, &order).into();
            }
            in_declared_order(tool, &["function", "type"]).into()
        }
        other => other,
    });
    ordered.collect()
}

/// For a template without the role: developer messages become system messages, and all system
/// messages one, in front. Whether messages moved.
pub(super) fn make_system_of_developer(messages: &mut Vec<Value>) -> bool {
    if !messages.iter().any(|message| message["role"] == "developer") {
        return false;
    }
    for message in messages.iter_mut() {
        if message["role"] == "developer"
            && let Some(fields) = message.as_object_mut()
        {
            fields["role"] = "system".into();
            // A system message has no tools.
            fields.shift_remove("tools");
        }
    }
    let is_system = |message: &Value| message["role"] == "system";
    // A system message that is in front already needs no move.
    if !messages.iter().skip(1).any(is_system) {
        return false;
    }
    let (system, mut others): (Vec<_>, Vec<_>) = messages.drain(..).partition(is_system);
    let texts = system.into_iter().filter_map(|message| text_of(&message["content"]));
    let content = texts.collect::<Vec<_>>().join("\n\n");
    messages.push(serde_json::json!({"role": "system", "content": content}));
    messages.append(&mut others);
    true
}

/// A content as one text; `None` where it is empty.
fn text_of(content: &Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}
