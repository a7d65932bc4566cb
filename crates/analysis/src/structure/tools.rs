//! The difference of two prompts' tools.
//!
//! Only the toy's rendering is known: with another model's template the tools are text.

use serde_json::Value;

use super::label::label;
use super::{ChangeForm, floor, line_start};

/// The words in front of a toy prompt's tools.
pub(super) const TOOLS_MARK: &str = "You may call these tools:\n";

/// The tools that differ: names that came or went, or the first difference within one.
pub(super) fn tools(old: &str, new: &str) -> Option<(ChangeForm, String)> {
    let listed = |text: &str| -> Option<Vec<Value>> {
        let (_, rest) = text.split_once(TOOLS_MARK)?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Vec<Value>>();
        values.next()?.ok()
    };
    let (old, new) = (listed(old).unwrap_or_default(), listed(new)?);
    let name = |tool: &Value| {
        let name = tool["function"]["name"].as_str().or_else(|| tool["name"].as_str());
        name.unwrap_or("?").to_owned()
    };
    let lacks = |list: &[Value], tool: &Value| !list.iter().any(|other| name(other) == name(tool));
    let came = new.iter().filter(|tool| lacks(&old, tool));
    let went = old.iter().filter(|tool| lacks(&new, tool));
    if let Some(tool) = came.chain(went).next() {
        return Some((ChangeForm::ToolSet, name(tool)));
    }
    // In another order they differ in more than one definition.
    if !old.iter().map(name).eq(new.iter().map(name)) {
        return None;
    }
    new.iter().find_map(|tool| {
        let before = old.iter().find(|other| name(other) == name(tool))?;
        let path = first_difference(before, tool)?;
        Some((ChangeForm::ToolDefinition, format!("{}{path}", name(tool))))
    })
}

/// The label in front of the first difference of two texts, behind a colon.
fn label_in(old: &str, new: &str) -> String {
    let same = old.bytes().zip(new.bytes()).take_while(|(one, other)| one == other).count();
    let label = label(line_start(new, floor(new, same)));
    label.map_or_else(String::new, |label| format!(": {label}"))
}

/// The path to the first field that differs, in the order of the newer value.
fn first_difference(old: &Value, new: &Value) -> Option<String> {
    match (old, new) {
        (Value::Object(one), Value::Object(other)) => {
            let names = other.keys().chain(one.keys().filter(|name| !other.contains_key(*name)));
            let mut names = names.filter_map(|name| {
                let null = Value::Null;
                let (one, other) =
                    (one.get(name).unwrap_or(&null), other.get(name).unwrap_or(&null));
                // `properties` and `function` say nothing to a reader.
                let step = if matches!(
                    name.as_str(),
                    "properties" | "function" | "parameters" | "input_schema"
                ) {
                    String::new()
                } else {
                    format!(".{name}")
                };
                Some(format!("{step}{}", first_difference(one, other)?))
            });
            names.next()
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).find_map(|(one, other)| first_difference(one, other))
        }
        (Value::String(one), Value::String(other)) if one != other => Some(label_in(one, other)),
        _ => (old != new).then(String::new),
    }
}
