//! Numbers that stand for a request's text, where the tokens of its prompt are not known: a router
//! can still send equal beginnings to the same replica.
//!
//! One number is four bytes of the request's JSON, about as much as a token. Fields come in the
//! order in which engines put them into a prompt, so that the next turn of a conversation begins
//! with the numbers of the last one. Images and other long data count by a hash of them.

use std::borrow::Cow;
use std::collections::HashMap;

use headstart_core::TokenId;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use twox_hash::XxHash3_64;

/// Fields that make a prompt, in the order of their places in it, whichever API they belong to.
const FIELDS: [&str; 7] =
    ["tools", "instructions", "system", "documents", "messages", "input", "prompt"];

/// Longest text that is looked at, bytes.
const TEXT_BYTES: usize = 2 << 20;

/// Length of a string without a space that is taken for data, bytes.
const DATA_BYTES: usize = 2048;

/// The numbers of a request's body; none where it is no JSON object.
#[must_use]
pub fn text_tokens(body: &[u8]) -> Vec<TokenId> {
    let fields: HashMap<Cow<'_, str>, &RawValue> = match serde_json::from_slice(body) {
        Ok(fields) => fields,
        Err(_) => return Vec::new(),
    };
    let mut text = Vec::new();
    for name in FIELDS {
        if let Some(raw) = fields.get(name) {
            // The name keeps equal texts of different fields apart.
            text.extend_from_slice(name.as_bytes());
            write_without_data(raw.get().as_bytes(), &mut text);
        }
        if text.len() >= TEXT_BYTES {
            break;
        }
    }
    text.truncate(TEXT_BYTES);
    let number = |bytes: &[u8; 4]| TokenId::from_le_bytes(*bytes);
    // Up to three bytes at the end are left out: with the next turn they would become another
    // number.
    text.as_chunks().0.iter().map(number).collect()
}

/// The text of a request's prompt, message by message; empty where the body is no JSON object.
#[must_use]
pub fn plain_text(body: &[u8]) -> String {
    let fields: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut text = String::new();
    for name in FIELDS {
        match &fields[name] {
            Value::Null => {}
            Value::Array(messages) if matches!(name, "messages" | "input") => {
                messages.iter().for_each(|message| write_message(message, &mut text));
            }
            value => write_message(&json!({ "role": name, "content": value }), &mut text),
        }
        if text.len() >= TEXT_BYTES {
            text.truncate(text.floor_char_boundary(TEXT_BYTES));
            break;
        }
    }
    text
}

/// A message between markers, as chat templates write it.
fn write_message(message: &Value, text: &mut String) {
    let role = message["role"].as_str().unwrap_or("user");
    text.extend(["<|im_start|>", role, "\n"]);
    write_content(message.get("content").unwrap_or(message), text);
    if let Some(calls) = message.get("tool_calls") {
        write_content(calls, text);
    }
    text.push_str("<|im_end|>\n");
}

/// Texts as they stand, all else as JSON without long data.
fn write_content(content: &Value, text: &mut String) {
    match content {
        Value::String(one) if one.len() <= DATA_BYTES || one.contains(' ') => text.push_str(one),
        Value::Array(parts) if parts.iter().all(|part| part["text"].is_string()) => {
            for part in parts {
                write_content(&part["text"], text);
                text.push('\n');
            }
        }
        other => {
            let mut json = Vec::new();
            write_without_data(other.to_string().as_bytes(), &mut json);
            text.push_str(&String::from_utf8_lossy(&json));
        }
    }
}

/// Copies JSON, long data in strings as their hash.
fn write_without_data(json: &[u8], text: &mut Vec<u8>) {
    let mut at = 0;
    while at < json.len() && text.len() < TEXT_BYTES {
        let end = match json[at] {
            b'"' => end_of_string(json, at),
            _ => (json[at..].iter().position(|&byte| byte == b'"')).map_or(json.len(), |n| at + n),
        };
        let piece = &json[at..end];
        let is_data = piece[0] == b'"' && piece.len() > DATA_BYTES && !piece.contains(&b' ');
        if is_data {
            text.extend_from_slice(&XxHash3_64::oneshot(piece).to_le_bytes());
        } else {
            text.extend_from_slice(piece);
        }
        at = end;
    }
}

/// The place behind the string that begins at `start`.
fn end_of_string(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < json.len() && json[at] != b'"' {
        // An escaped quote does not end the string.
        at += if json[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(json.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(a: &serde_json::Value, b: &serde_json::Value) -> usize {
        let (a, b) = (a.to_string(), b.to_string());
        let (a, b) = (text_tokens(a.as_bytes()), text_tokens(b.as_bytes()));
        a.iter().zip(&b).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn a_next_turn_begins_as_the_last_one() {
        let data = "A".repeat(1 << 20);
        let first = json!({"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}},
        ]});
        let answer = json!({"role": "assistant", "content": "a cat"});
        let one = json!({"model": "m", "messages": [first], "stream": true});
        let two = json!({"messages": [first, answer], "tools": null, "seed": 4});
        let length = text_tokens(one.to_string().as_bytes()).len();
        assert!(length < 100, "data is hashed: {length}");
        // `tools` comes first, and was not there.
        let two = json!({"messages": two["messages"], "seed": 4});
        assert!(common(&one, &two) >= length - 1);
        let other = json!({"messages": [{"role": "user", "content": [first["content"][0], {
            "type": "image_url", "image_url": {"url": format!("data:image/png;base64,B{data}")},
        }]}]});
        assert!(common(&one, &other) < length - 1, "another image is another prompt");
    }

    #[test]
    fn a_text_has_the_prompt_message_by_message() {
        let image = "A".repeat(1 << 20);
        let body = json!({
            "model": "m",
            "system": "s",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"}]},
                {"role": "user", "content": [{"type": "image", "data": image}]},
            ],
        });
        let text = plain_text(body.to_string().as_bytes());
        let front = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na\n<|im_end|>\n";
        assert!(text.starts_with(front), "{text}");
        assert!(text.len() < 300, "data is hashed: {}", text.len());
        assert_eq!(plain_text(b"[1]"), "");
    }

    #[test]
    fn what_is_no_object_has_no_numbers() {
        for body in ["", "[1]", "{", "null", "\"\\"] {
            assert!(text_tokens(body.as_bytes()).is_empty());
        }
        assert!(text_tokens(b"{\"messages\": \"\\\"\\\\\"}").len() > 2);
    }
}
