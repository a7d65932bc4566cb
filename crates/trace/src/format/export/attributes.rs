//! Attributes of a span by their dotted names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Attributes, however they were nested: `{"a": {"b": 1}}`, `{"a.b": 1}`, and OTLP's
/// `[{"key": "a.b", "value": {"intValue": "1"}}]` are the same.
#[derive(Debug, Default)]
pub(super) struct Attributes(BTreeMap<String, Value>);

impl Attributes {
    pub(super) fn of(value: &Value) -> Self {
        let mut found = Self::default();
        match value {
            Value::Array(pairs) => {
                for pair in pairs {
                    if let Some(key) = pair["key"].as_str() {
                        found.put(key.to_owned(), &plain(&pair["value"]));
                    }
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    found.put(name.clone(), value);
                }
            }
            _ => {}
        }
        found
    }

    /// Each level is kept, so that a list can be read whole or by its items.
    fn put(&mut self, name: String, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (inner, value) in fields {
                    self.put(format!("{name}.{inner}"), value);
                }
            }
            Value::Array(items) if items.iter().all(Value::is_object) => {
                for (index, value) in items.iter().enumerate() {
                    self.put(format!("{name}.{index}"), value);
                }
            }
            _ => {}
        }
        if !value.is_null() {
            self.0.insert(name, value.clone());
        }
    }

    /// The first of `names` that is there.
    pub(super) fn get(&self, names: &[&str]) -> Option<&Value> {
        names.iter().find_map(|&name| self.0.get(name))
    }

    pub(super) fn text(&self, names: &[&str]) -> Option<&str> {
        self.get(names)?.as_str()
    }

    /// A value that is JSON, or JSON written as a text.
    pub(super) fn json(&self, names: &[&str]) -> Option<Value> {
        match self.get(names)? {
            Value::String(text) => serde_json::from_str(text).ok(),
            value => Some(value.clone()),
        }
    }

    /// The items of a list: the attributes `prefix.0.…`, `prefix.1.…`, without those words.
    pub(super) fn items(&self, prefix: &str) -> Vec<Self> {
        let start = format!("{prefix}.");
        let below = || {
            let from = self.0.range(start.clone()..);
            let below = from.map_while(|(name, value)| Some((name.strip_prefix(&start)?, value)));
            below.filter_map(|(rest, value)| {
                let (index, name) = rest.split_once('.')?;
                Some((index.parse::<u32>().ok()?, name, value))
            })
        };
        let indices: BTreeSet<u32> = below().map(|(index, ..)| index).collect();
        let mut items: BTreeMap<u32, Self> =
            indices.into_iter().map(|index| (index, Self::default())).collect();
        for (index, name, value) in below() {
            if let Some(item) = items.get_mut(&index) {
                item.0.insert(name.to_owned(), value.clone());
            }
        }
        items.into_values().collect()
    }

    pub(super) fn contains_prefix(&self, prefix: &str) -> bool {
        let mut from = self.0.range(prefix.to_owned()..);
        from.next().is_some_and(|(name, _)| name.starts_with(prefix))
    }
}

/// OTLP's typed value as JSON.
fn plain(value: &Value) -> Value {
    let Some((kind, inner)) = value.as_object().and_then(|fields| fields.iter().next()) else {
        return value.clone();
    };
    match (kind.as_str(), inner) {
        // A 64-bit number is a text in OTLP's JSON.
        ("intValue" | "int_value", Value::String(text)) => {
            text.parse::<i64>().map_or_else(|_| inner.clone(), Value::from)
        }
        ("arrayValue" | "array_value", _) => {
            let values = inner["values"].as_array().map_or(&[][..], Vec::as_slice);
            values.iter().map(plain).collect()
        }
        ("kvlistValue" | "kvlist_value", _) => {
            let values = inner["values"].as_array().map_or(&[][..], Vec::as_slice);
            let pairs = values
                .iter()
                .filter_map(|pair| Some((pair["key"].as_str()?.to_owned(), plain(&pair["value"]))));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        _ => inner.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_ways_to_nest_are_one() {
        let string = |text: &str| json!({"stringValue": text});
        for value in [
            json!({"a.0.b": "x", "a.1.b": "y", "n": 7}),
            json!({"a": [{"b": "x"}, {"b": "y"}], "n": 7}),
            json!([{"key": "a.0.b", "value": string("x")}, {"key": "a.1.b", "value": string("y")},
                {"key": "n", "value": {"intValue": "7"}}]),
            json!([{"key": "a", "value": {"arrayValue": {"values": [
                {"kvlistValue": {"values": [{"key": "b", "value": string("x")}]}},
                {"kvlistValue": {"values": [{"key": "b", "value": string("y")}]}}]}}},
                {"key": "n", "value": {"intValue": "7"}}]),
        ] {
            let attributes = Attributes::of(&value);
            let items = attributes.items("a");
            let texts: Vec<_> = items.iter().filter_map(|item| item.text(&["b"])).collect();
            assert_eq!(texts, ["x", "y"], "{value}");
            assert_eq!(attributes.get(&["m", "n"]), Some(&json!(7)));
        }
    }

    #[test]
    fn items_come_in_the_order_of_their_numbers() {
        let attributes =
            Attributes::of(&json!({"a.10.b": "k", "a.2.b": "c", "a.x.b": "", "ab": 1}));
        let items = attributes.items("a");
        let texts: Vec<_> = items.iter().filter_map(|item| item.text(&["b"])).collect();
        assert_eq!(texts, ["c", "k"]);
        assert!(attributes.contains_prefix("a.1") && !attributes.contains_prefix("a.3"));
    }
}
