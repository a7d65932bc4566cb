//! JSON keys in one order.

mod text;

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{change_each, list, replace};

/// Keys of tools, functions and schemas in the order in which people write them; all others follow
/// by name.
const CUSTOMARY: [&str; 7] =
    ["type", "function", "name", "description", "parameters", "properties", "required"];

/// Keys whose values are objects with freely chosen names.
const NAMING: [&str; 5] =
    ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas"];

/// Keys whose values are data and no schemas.
const DATA: [&str; 4] = ["default", "const", "enum", "examples"];

/// Sorts the keys of the tools, and of the arguments of earlier calls. The latter are texts and
/// stay, but for the order, as they are: numbers, escapes and blanks.
///
/// A model mostly writes arguments in the order in which it was told the parameters. Both are
/// sorted by name, so that an engine that keeps what it generated mostly finds it again.
pub(super) fn sort(request: &mut Value) -> bool {
    let has_tools = change_each(list(request, "tools"), |tool| sort_in(tool, KeyKind::Schema));
    let calls = list(request, "messages").flat_map(|message| list(message, "tool_calls"));
    let has_calls = change_each(calls, |call| {
        let function = call.get_mut("function");
        match function.and_then(|function| function.get_mut("arguments")) {
            Some(Value::String(arguments)) => replace(arguments, text::sorted(arguments)),
            _ => false,
        }
    });
    has_tools | has_calls
}

/// Meaning of an object's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    /// Words of JSON Schema or of the API.
    Schema,
    /// Freely chosen names, of schemas.
    Names,
    /// Anything.
    Data,
}

/// Sorts all objects in it; whether one was not sorted.
fn sort_in(value: &mut Value, kind: KeyKind) -> bool {
    match value {
        Value::Array(items) => change_each(items, |item| sort_in(item, kind)),
        Value::Object(map) => {
            let is_sorted = sort_keys(map, kind);
            let below = |(key, value): (&String, _)| sort_in(value, kind_below(kind, key));
            is_sorted | change_each(map, below)
        }
        _ => false,
    }
}

fn kind_below(kind: KeyKind, key: &str) -> KeyKind {
    match kind {
        // Below data nothing is a schema again.
        KeyKind::Data => KeyKind::Data,
        KeyKind::Names => KeyKind::Schema,
        KeyKind::Schema if NAMING.contains(&key) => KeyKind::Names,
        KeyKind::Schema if DATA.contains(&key) => KeyKind::Data,
        KeyKind::Schema => KeyKind::Schema,
    }
}

fn sort_keys(map: &mut Map<String, Value>, kind: KeyKind) -> bool {
    // Checked first: keys in order must not be reported as a change.
    if map.keys().is_sorted_by(|a, b| order(kind, a, b).is_le()) {
        return false;
    }
    let mut entries: Vec<_> = std::mem::take(map).into_iter().collect();
    entries.sort_by(|(a, _), (b, _)| order(kind, a, b));
    map.extend(entries);
    true
}

fn order(kind: KeyKind, a: &str, b: &str) -> Ordering {
    let rank = |key: &str| {
        let known = CUSTOMARY.iter().position(|&known| known == key);
        known.filter(|_| kind == KeyKind::Schema).unwrap_or(CUSTOMARY.len())
    };
    (rank(a), a).cmp(&(rank(b), b))
}

#[cfg(test)]
mod tests {
    use super::super::{Normalizer, check};
    use serde_json::{Value, json};

    #[test]
    fn schemas_are_written_as_people_do_and_names_by_name() {
        let from = json!({"tools": [{"function": {
            "parameters": {
                "required": ["type", "a"],
                "additionalProperties": false,
                "properties": {
                    "type": {"description": "x", "type": "string", "default": {"z": 1, "b": 2}},
                    "a": {"enum": [{"type": 1, "name": 2}], "type": "object"},
                },
                "type": "object",
            },
            "name": "f",
        }, "type": "function"}]});
        let to = json!({"tools": [{"type": "function", "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "enum": [{"name": 2, "type": 1}]},
                    "type": {"type": "string", "description": "x", "default": {"b": 2, "z": 1}},
                },
                "required": ["type", "a"],
                "additionalProperties": false,
            },
        }}]});
        check(Normalizer::JsonKeys, from, to);
    }

    #[test]
    fn arguments_of_calls_are_sorted_and_other_texts_are_not() {
        let request = |arguments: &str| -> Value {
            json!({"messages": [
                {"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]},
                {"role": "tool", "content": r#"{"b": 1, "a": 2}"#},
            ]})
        };
        let check = |from: &str, to: &str| check(Normalizer::JsonKeys, request(from), request(to));
        check(r#"{"b": 1.0, "a": "x"}"#, r#"{"a": "x", "b": 1.0}"#);
        check(r#"{"a": 1}"#, r#"{"a": 1}"#);
        check("not JSON {", "not JSON {");
    }
}
