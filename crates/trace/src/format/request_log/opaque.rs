//! Images, sound and files that stand within a request, as base64: a short name in their place.
//!
//! What a model makes of them is not their text: a picture is some hundreds of tokens, its base64
//! some hundred thousand. What counts for a cache is whether it is the same. So its kind, length
//! and a hash of it stand for it, which are some 30 tokens.

use serde_json::{Map, Value};

/// Shorter texts stay as they are, bytes.
const LENGTH_MIN: usize = 64;

/// Letters of a kind that a name shows: `application/pdf` and its like.
const KIND_LETTERS_MAX: usize = 32;

/// Puts names in place of what is opaque in `value`, at any depth.
pub(super) fn name_opaque(value: &mut Value) {
    match value {
        Value::String(text) if is_data_url(text) => *text = name(text, kind_of_url(text)),
        Value::Array(items) => items.iter_mut().for_each(name_opaque),
        Value::Object(fields) => {
            // By the names of fields first, because bare base64 does not show what it is.
            name_data(fields);
            fields.values_mut().for_each(name_opaque);
        }
        _ => {}
    }
}

/// `data` of an Anthropic source (`type` is `base64`) and of OpenAI's `input_audio`, and
/// `file_data` of OpenAI's files.
fn name_data(fields: &mut Map<String, Value>) {
    // `data` is a common name, so only the type makes it base64.
    if fields.get("type").and_then(Value::as_str) == Some("base64") {
        name_field(fields, "data", "media_type");
    }
    name_field(fields, "file_data", "media_type");
    if let Some(Value::Object(audio)) = fields.get_mut("input_audio") {
        name_field(audio, "data", "format");
    }
}

/// Puts a name in place of `field`, whose kind another field tells. What cannot be base64 is text,
/// of a tool's arguments for one, and stays.
fn name_field(fields: &mut Map<String, Value>, field: &str, kind: &str) {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let data = text(field).filter(|data| data.len() >= LENGTH_MIN && is_base64(data));
    let named = data.map(|data| name(data, text(kind).unwrap_or("data")));
    if let Some(named) = named {
        fields.insert(field.to_owned(), Value::String(named));
    }
}

/// Whether all of it is of either alphabet of base64 (RFC 4648), which has no spaces.
fn is_base64(text: &str) -> bool {
    let mut digits = text.trim_end_matches('=').bytes();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
    digits.all(is_digit)
}

fn is_data_url(text: &str) -> bool {
    let (head, data) = text.split_once(',').unwrap_or_default();
    let is_head = head.starts_with("data:") && head.ends_with(";base64");
    // The cheap tests come first: nearly every text fails one of them.
    text.len() >= LENGTH_MIN && is_head && is_base64(data)
}

/// Returns the media type of a data URL: the text before the first comma, without parameters.
fn kind_of_url(text: &str) -> &str {
    let head = text.split_once(',').map_or(text, |(head, _)| head);
    let kind = head.strip_prefix("data:").unwrap_or(head);
    kind.split(';').next().unwrap_or(kind)
}

/// FNV-1a over 128 bits: a million different contents have one name with a chance of 1 in 10²⁶.
fn name(content: &str, kind: &str) -> String {
    let hash =
        content.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b)
        });
    let kind: String = kind.chars().take(KIND_LETTERS_MAX).collect();
    format!("[{kind} of {} bytes, {hash:032x}]", content.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(mut value: Value) -> Value {
        name_opaque(&mut value);
        value
    }

    #[test]
    fn the_same_picture_has_one_short_name_and_another_has_another() {
        let part = |data: &str| {
            let url = format!("data:image/png;base64,{}", data.repeat(4_000));
            named(json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}}))
        };
        let (one, other) = (part("abcd"), part("abce"));
        let url = one["image_url"]["url"].as_str().expect("a text");
        assert!(url.starts_with("[image/png of 16022 bytes, ") && url.len() < 80, "{url}");
        assert_eq!(one["image_url"]["detail"], "low");
        assert_eq!(one, part("abcd"));
        assert_ne!(one, other);
    }

    #[test]
    fn every_dialect_of_opaque_data_is_known() {
        let data = "QUJD".repeat(100);
        for part in [
            json!({"type": "input_image", "image_url": format!("data:image/jpeg;base64,{data}")}),
            json!({"type": "image", "source":
                {"type": "base64", "media_type": "image/webp", "data": data}}),
            json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}),
            json!({"type": "file", "file": {"filename": "f", "file_data": data}}),
        ] {
            let text = named(json!([part])).to_string();
            assert!(text.len() < 200 && text.contains(" of 4"), "{text} of {part}");
        }
    }

    #[test]
    fn a_long_kind_is_cut() {
        let (kind, data) = ("k".repeat(10_000), "QUJD".repeat(100));
        let url = named(json!(format!("data:{kind};base64,{data}")));
        let source = named(json!({"type": "base64", "media_type": kind, "data": data}));
        for name in [&url, &source["data"]] {
            let name = name.as_str().expect("a text");
            assert_eq!(name.matches('k').count(), KIND_LETTERS_MAX, "{name}");
        }
    }

    #[test]
    fn what_is_no_picture_stays() {
        let (words, letters) = ("plain words, ".repeat(100), "QUJD".repeat(100));
        for value in [
            json!("data: the quarterly figures, in words, which are long enough, as it happens"),
            json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
            json!({"type": "base64", "data": "short"}),
            json!({"data": "x".repeat(100), "type": "note"}),
            json!({"type": "tool_use", "name": "write",
                "input": {"format": "markdown", "data": words}}),
            json!({"format": "hex", "data": letters}),
            json!({"type": "base64", "data": words}),
            json!({"filename": "f", "file_data": words}),
            json!({"input_audio": {"format": "wav", "data": words}}),
            json!(format!("data:image/png;base64,{letters} is the start of which picture?")),
        ] {
            assert_eq!(named(value.clone()), value);
        }
    }
}
