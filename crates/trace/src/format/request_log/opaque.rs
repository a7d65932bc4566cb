//! Images, sound and files that stand within a request, as base64: a short name in their place.
//!
//! What a model makes of them is not their text: a picture is some hundreds of tokens, its base64
//! some hundred thousand. What counts for a cache is whether it is the same. So its kind, length
//! and a hash of it stand for it, which are some 30 tokens.

use serde_json::{Map, Value};

/// Shorter texts stay as they are, bytes.
const LENGTH_MIN: usize = 64;

/// Puts names in place of what is opaque in `value`, at any depth.
pub(super) fn name_opaque(value: &mut Value) {
    match value {
        Value::String(text) if is_data_url(text) => *text = name(text, kind_of_url(text)),
        Value::Array(items) => items.iter_mut().for_each(name_opaque),
        Value::Object(fields) => {
            name_data(fields);
            fields.values_mut().for_each(name_opaque);
        }
        _ => {}
    }
}

/// `data` of an Anthropic source (`type` is `base64`), of OpenAI's `input_audio` (with a `format`),
/// and of OpenAI's files (`file_data`).
fn name_data(fields: &mut Map<String, Value>) {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let is_data = text("type") == Some("base64") || text("format").is_some();
    let kind = text("media_type").or(text("format")).unwrap_or("data");
    let kind = kind.chars().take(32).collect::<String>();
    let field = if is_data { "data" } else { "file_data" };
    if let Some(Value::String(data)) = fields.get_mut(field)
        && data.len() >= LENGTH_MIN
    {
        *data = name(data, &kind);
    }
}

fn is_data_url(text: &str) -> bool {
    let head = text.split_once(',').map_or("", |(head, _)| head);
    text.len() >= LENGTH_MIN && head.starts_with("data:") && head.ends_with(";base64")
}

/// What stands before the first comma, less its parameters.
fn kind_of_url(text: &str) -> &str {
    let head = text.split_once(',').map_or(text, |(head, _)| head);
    let kind = head.strip_prefix("data:").unwrap_or(head);
    kind.split(';').next().unwrap_or(kind)
}

/// FNV-1a over 128 bits: a million different contents have one name with a chance of 1 in 10²⁶.
fn name(content: &str, kind: &str) -> String {
    let hash = content.bytes().fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b),
    );
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
        assert!(
            url.starts_with("[image/png of 16022 bytes, ") && url.len() < 80,
            "{url}"
        );
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
            assert!(
                text.len() < 200 && text.contains(" of 4"),
                "{text} of {part}"
            );
        }
    }

    #[test]
    fn what_is_no_picture_stays() {
        for value in [
            json!("data: the quarterly figures, in words, which are long enough, as it happens"),
            json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
            json!({"type": "base64", "data": "short"}),
            json!({"data": "x".repeat(100), "type": "note"}),
        ] {
            assert_eq!(named(value.clone()), value);
        }
    }
}
