//! The texts of a request's system and developer messages.

use serde_json::Value;

/// A text, and whether it is all that its message says: parts are put together without anything
/// between, so what stands at their ends has a meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemText<'a> {
    pub(super) text: &'a str,
    pub(super) is_whole: bool,
}

/// Calls `change` with each text of the system's and the developer's messages; whether it changed
/// one. A text that becomes empty goes with its part, where the message has other parts.
pub(super) fn each_text(
    request: &mut Value,
    change: impl Fn(SystemText<'_>) -> Option<String>,
) -> bool {
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    let messages = messages.into_iter().flatten();
    let system = messages.filter(|message| {
        let role = message.get("role").and_then(Value::as_str);
        matches!(role, Some("system" | "developer"))
    });
    let mut changed = false;
    for message in system {
        match message.get_mut("content") {
            Some(Value::String(text)) => changed |= replace(text, true, &change),
            Some(Value::Array(parts)) => changed |= each_part(parts, &change),
            _ => {}
        }
    }
    changed
}

fn each_part(parts: &mut Vec<Value>, change: impl Fn(SystemText<'_>) -> Option<String>) -> bool {
    let mut changed = false;
    let mut index = 0;
    while index < parts.len() {
        let is_text = parts[index].get("type").is_some_and(|kind| kind == "text");
        let others = parts.len() > 1;
        let text = parts[index].get_mut("text").filter(|_| is_text);
        let Some(Value::String(text)) = text else {
            index += 1;
            continue;
        };
        let is_new = replace(text, !others, &change);
        let is_gone = is_new && text.is_empty() && others;
        changed |= is_new;
        if is_gone {
            // The next part moves to this index.
            parts.remove(index);
        } else {
            index += 1;
        }
    }
    changed
}

fn replace(
    text: &mut String,
    is_whole: bool,
    change: impl Fn(SystemText<'_>) -> Option<String>,
) -> bool {
    let said = SystemText { text, is_whole };
    let new = change(said).filter(|new| new != text);
    let is_new = new.is_some();
    if let Some(new) = new {
        *text = new;
    }
    is_new
}
