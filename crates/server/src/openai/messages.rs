//! The messages of a chat request, as agents send them: with tool calls, without content, with
//! reasoning of earlier answers.

use serde_json::{Map, Value};

use super::ApiError;
use super::request::missing;

/// Messages as the chat template gets them. Every content is one string, tool calls have their
/// arguments as objects, and an empty list of calls is no list.
///
/// # Errors
/// When it is no array of messages, or a message has a content other than text.
pub fn messages(value: Option<Value>) -> Result<Value, ApiError> {
    let Some(value) = value else {
        return Err(missing("messages", "an array of messages"));
    };
    let Value::Array(mut messages) = value else {
        return Err(ApiError::invalid("messages", "`messages` must be an array"));
    };
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must hold at least one message"));
    }
    for (index, message) in messages.iter_mut().enumerate() {
        let at = format!("messages[{index}]");
        let Value::Object(message) = message else {
            return Err(ApiError::invalid(&at, format!("`{at}` must be an object")));
        };
        complete(message, &at)?;
    }
    Ok(Value::Array(messages))
}

/// Checks one message and writes what the template needs.
fn complete(message: &mut Map<String, Value>, at: &str) -> Result<(), ApiError> {
    let Some(role) = message.get("role").and_then(Value::as_str) else {
        let error = format!("`{at}.role` must be a string");
        return Err(ApiError::invalid(at, error));
    };
    // An answer may consist of tool calls or of a refusal, and a tool may return nothing.
    let may_be_absent = matches!(role, "assistant" | "tool" | "function");
    let content = message.get("content").cloned().unwrap_or(Value::Null);
    let content = match content {
        Value::Null if may_be_absent => {
            let refusal = message.get("refusal").and_then(Value::as_str);
            refusal.unwrap_or_default().to_owned()
        }
        content => flat_content(content, at)?,
    };
    message.insert("content".to_owned(), content.into());
    // Clients move this hint to the latest message with every turn: it must not become part of the
    // prompt.
    message.shift_remove("cache_control");
    tool_calls(message, at)
}

/// Reads a message's `tool_calls`.
fn tool_calls(message: &mut Map<String, Value>, at: &str) -> Result<(), ApiError> {
    let wrong = || {
        let at = format!("{at}.tool_calls");
        let error = format!("`{at}` must be an array of {{\"function\": {{\"name\": …}}}}");
        ApiError::invalid(&at, error)
    };
    match message.get_mut("tool_calls") {
        None => {}
        Some(Value::Null) => {
            message.shift_remove("tool_calls");
        }
        Some(Value::Array(calls)) if calls.is_empty() => {
            message.shift_remove("tool_calls");
        }
        Some(Value::Array(calls)) => {
            for call in calls {
                let function = call.get_mut("function").and_then(Value::as_object_mut);
                let function = function.ok_or_else(wrong)?;
                if !function.get("name").is_some_and(Value::is_string) {
                    return Err(wrong());
                }
                let arguments = function.entry("arguments").or_insert(Value::Null);
                *arguments = argument_object(arguments.take());
            }
        }
        Some(_) => return Err(wrong()),
    }
    Ok(())
}

/// A tool call's arguments as templates read them: JSON text of an object becomes that object.
/// Other text stays as it is.
#[must_use]
pub fn argument_object(arguments: Value) -> Value {
    match arguments {
        Value::Null => Map::new().into(),
        Value::String(text) if text.trim().is_empty() => Map::new().into(),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(fields)) => fields.into(),
            _ => text.into(),
        },
        other => other,
    }
}

/// Text parts become lines of one text, as vLLM does for templates that take strings: the same
/// tokens here and in an engine behind us.
///
/// # Errors
/// When a part is no text; `at` names the message.
pub fn flat_content(content: Value, at: &str) -> Result<String, ApiError> {
    let wrong = || {
        let message = format!("`{at}.content` must be a string or an array of text parts");
        ApiError::invalid(at, message)
    };
    let text = |part: Value| {
        let kind = part["type"].as_str();
        let text = match kind {
            // The Responses API has names of its own for what a user and a model write.
            Some("text" | "input_text" | "output_text") => &part["text"],
            Some("refusal") => &part["refusal"],
            Some(kind) => {
                let name = format!("{at}.content: {kind}");
                return Err(ApiError::unsupported(&name, ""));
            }
            None => return Err(wrong()),
        };
        text.as_str().map(str::to_owned).ok_or_else(wrong)
    };
    match content {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let lines: Result<Vec<_>, _> = parts.into_iter().map(text).collect();
            Ok(lines?.join("\n"))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(message: Value, expected: Result<Value, &str>) {
        let got = messages(Some(json!([message])));
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, json!([expected])),
            (Err(error), Err(param)) => assert_eq!(error.param.as_deref(), Some(param)),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn an_answer_may_be_tool_calls_alone() {
        let call = |arguments: Value| {
            json!({"id": "c", "type": "function",
                   "function": {"name": "f", "arguments": arguments}})
        };
        let with =
            |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
        let read = |calls: Value| json!({"role": "assistant", "content": "", "tool_calls": calls});
        for (sent, expected) in [
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1})),
            (json!(""), json!({})),
            (json!("[1]"), json!("[1]")),
            (json!("{"), json!("{")),
        ] {
            check(with(json!([call(sent)])), Ok(read(json!([call(expected)]))));
        }
        let plain = json!({"role": "assistant", "content": ""});
        check(with(json!([])), Ok(plain.clone()));
        check(with(Value::Null), Ok(plain.clone()));
        check(json!({"role": "assistant"}), Ok(plain));
        check(with(json!(7)), Err("messages[0].tool_calls"));
        check(with(json!([{"id": "c"}])), Err("messages[0].tool_calls"));
    }

    #[test]
    fn what_else_a_message_has_reaches_the_template() {
        let message = json!({
            "role": "assistant", "content": "x", "name": "n", "refusal": null,
            "reasoning_content": "r", "reasoning": "r",
        });
        check(message.clone(), Ok(message));
        let refusal = json!({"role": "assistant", "content": null, "refusal": "no"});
        let read = json!({"role": "assistant", "content": "no", "refusal": "no"});
        check(refusal, Ok(read));
        let part = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
        check(
            json!({"role": "tool", "tool_call_id": "c", "content": [part]}),
            Ok(json!({"role": "tool", "tool_call_id": "c", "content": "x"})),
        );
        for role in ["user", "system", "developer"] {
            check(json!({"role": role, "content": null}), Err("messages[0]"));
        }
    }
}
