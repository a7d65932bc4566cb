//! Bodies and token counts that are written as JSON within a text, or lie deeper than a request log
//! has them: LiteLLM's spend rows, access logs of proxies, exports of databases.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::provider;

/// Levels below the record that are searched.
const DEPTH: usize = 4;

/// Names of token counts, by any of which a usage is known.
const COUNTS: [&str; 4] = ["prompt_tokens", "input_tokens", "promptTokenCount", "inputTokenCount"];

/// Whether the request of a record cannot be read as it stands, and its body lies deeper.
pub(super) fn is_nested(value: &Value) -> bool {
    // LiteLLM's rows have their token counts deeper.
    let is_row = value.get("call_type").is_some() && value.get("metadata").is_some();
    is_row || (!has_plain_body(value) && body(value, DEPTH).is_some())
}

/// Whether the parser of request logs finds the body itself.
fn has_plain_body(value: &Value) -> bool {
    let places = crate::format::request_log::BODIES.iter().filter_map(|name| value.get(name));
    std::iter::once(value).chain(places).any(|place| {
        let asks = ["messages", "prompt", "input", "prompt_token_ids"];
        asks.iter().any(|name| matches!(&place[name], Value::Array(list) if !list.is_empty()))
            || matches!(&place["prompt"], Value::String(_))
    })
}

/// The record with its body, and its token counts, where a request log has them.
pub(super) fn request(record: &Value) -> Vec<Value> {
    let Value::Object(fields) = record else {
        return Vec::new();
    };
    let mut request = fields.clone();
    if !has_plain_body(record)
        && let Some(body) = body(record, DEPTH)
    {
        // An empty one would be read before it.
        for name in ["messages", "prompt", "input", "body", "request", "proxy_server_request"] {
            request.remove(name);
        }
        request.insert("body".to_owned(), body);
    }
    if let Some(usage) = usage(record, DEPTH).or_else(|| usage_of_row(&request)) {
        request.insert("usage".to_owned(), usage);
    }
    let mut request = Value::Object(request);
    provider::as_openai(&mut request);
    vec![request]
}

/// LiteLLM's own columns.
fn usage_of_row(row: &Map<String, Value>) -> Option<Value> {
    let count = |name: &str| row.get(name).filter(|count| count.is_number());
    let (prompt, output) = (count("prompt_tokens")?, count("completion_tokens"));
    Some(json!({"prompt_tokens": prompt, "completion_tokens": output}))
}

/// The nearest object that asks a model.
fn body(value: &Value, depth: usize) -> Option<Value> {
    find(value, depth, &|_| true, &provider::is_asking)
}

/// The nearest object with token counts, outside the prompt.
fn usage(value: &Value, depth: usize) -> Option<Value> {
    let is_prompt = |name: &str| matches!(name, "messages" | "prompt" | "input" | "tools");
    let has_counts = |object: &Value| {
        let is_count = |name: &str| object.get(name).is_some_and(Value::is_number);
        // A row's own columns lack the cached ones.
        COUNTS.iter().any(|name| is_count(name)) && object.get("call_type").is_none()
    };
    find(value, depth, &|name| !is_prompt(name), &has_counts)
}

/// The first object at or below `value` that `is_wanted`, nearest first, through the fields that
/// are `open`. A text that is JSON counts as what it says.
fn find(
    value: &Value,
    depth: usize,
    open: &dyn Fn(&str) -> bool,
    is_wanted: &dyn Fn(&Value) -> bool,
) -> Option<Value> {
    let mut level = vec![Cow::Borrowed(value)];
    for _ in 0..=depth {
        if let Some(found) = level.iter().find(|value| value.is_object() && is_wanted(value)) {
            return Some(found.as_ref().clone());
        }
        let below = level.into_iter().flat_map(|value| match value {
            Cow::Borrowed(value) => children(value, open),
            // Parsed from a text, so it is small beside the record.
            Cow::Owned(value) => {
                let below = children(&value, open).into_iter();
                below.map(|child| Cow::Owned(child.into_owned())).collect()
            }
        });
        level = below.collect();
    }
    None
}

fn children<'a>(value: &'a Value, open: &dyn Fn(&str) -> bool) -> Vec<Cow<'a, Value>> {
    let Value::Object(fields) = value else {
        return Vec::new();
    };
    let child = |value: &'a Value| match value {
        Value::Object(_) => Some(Cow::Borrowed(value)),
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let inner: Value = serde_json::from_str(text).ok()?;
            // A list of messages by itself.
            Some(Cow::Owned(if inner.is_array() { json!({"messages": inner}) } else { inner }))
        }
        Value::Array(list) if provider::are_messages(list) => {
            Some(Cow::Owned(json!({"messages": list})))
        }
        _ => None,
    };
    let fields = fields.iter().filter(|(name, _)| open(name));
    fields.filter_map(|(_, value)| child(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_within_a_text_is_found() {
        let asks = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        let text = asks.to_string();
        for record in [
            json!({"request_body": text, "status": 200}),
            json!({"http": {"request": {"body": text}}}),
            json!({"messages": "{}", "proxy_server_request": text}),
            json!({"messages": {}, "proxy_server_request": {"body": text}}),
            json!({"proxy_server_request": asks, "messages": []}),
        ] {
            assert!(is_nested(&record), "{record}");
            assert_eq!(request(&record)[0]["body"], asks, "{record}");
        }
        assert!(!is_nested(&asks) && !is_nested(&json!({"body": asks})));
        assert!(!is_nested(&json!({"status": 200})));
    }

    #[test]
    fn token_counts_are_found_where_the_tool_has_them() {
        let counts = json!({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}});
        for record in [
            json!({"prompt": "x", "metadata": {"usage_object": counts}}),
            json!({"prompt": "x", "metadata": json!({"usage_object": counts}).to_string()}),
            json!({"prompt": "x", "response": json!({"usage": counts}).to_string()}),
            json!({"prompt": "x", "usage": counts}),
        ] {
            assert_eq!(request(&record)[0]["usage"], counts, "{record}");
        }
        let row =
            json!({"call_type": "acompletion", "prompt_tokens": 9, "metadata": {}, "prompt": "x"});
        assert_eq!(request(&row)[0]["usage"]["prompt_tokens"], 9);
    }
}
