//! The texts of a request's system and developer messages.

use serde_json::Value;

use super::{change_each, list, replace};

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
    let system = list(request, "messages").filter(|message| {
        let role = message.get("role").and_then(Value::as_str);
        matches!(role, Some("system" | "developer"))
    });
    change_each(system, |message| match message.get_mut("content") {
        Some(Value::String(text)) => replace(text, change(SystemText { text, is_whole: true })),
        Some(Value::Array(parts)) => each_part(parts, &change),
        _ => false,
    })
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
        let is_new = replace(text, change(SystemText { text, is_whole: !others }));
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
