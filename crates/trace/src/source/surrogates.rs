//! Halves of surrogate pairs in JSON, which are no characters: `"\ud83d"` alone.
//!
//! They come from clients that cut a text in the middle of an emoji. Each counts as U+FFFD, as in
//! whatever encodes such a text anyway; the line stays a line.

use std::borrow::Cow;

/// `json` with U+FFFD in place of every half that stands alone.
pub(super) fn mended(json: &str) -> Cow<'_, str> {
    // Nearly every line passes here and is not copied.
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return json.into();
    }
    let bytes = json.as_bytes();
    let (mut at, mut taken, mut mended) = (0, 0, String::new());
    while let Some(found) = json[at..].find('\\') {
        at += found;
        let len = match half(&bytes[at..]) {
            // Two signs, so the second half of an escaped backslash begins no escape.
            None => 2,
            // `half` has seen six bytes, so this slice lies within the text.
            Some(Half::High) if half(&bytes[at + 6..]) == Some(Half::Low) => 12,
            Some(_) => {
                mended.push_str(&json[taken..at]);
                mended.push_str("\\ufffd");
                taken = at + 6;
                6
            }
        };
        // The character behind a backslash may be longer than a byte.
        at = json.ceil_char_boundary(at + len);
    }
    match taken {
        0 => json.into(),
        _ => (mended + &json[taken..]).into(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// The half that is escaped at the start of `text`.
fn half(text: &[u8]) -> Option<Half> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    match u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()? {
        0xD800..0xDC00 => Some(Half::High),
        0xDC00..0xE000 => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        assert_eq!(mended(json), expected);
        let is_mended = serde_json::from_str::<String>(expected).is_ok();
        assert!(is_mended, "{expected}");
    }

    #[test]
    fn halves_alone_are_replaced() {
        check(r#""\ud83d lone""#, r#""\ufffd lone""#);
        check(r#""a\uDC00""#, r#""a\ufffd""#);
        check(r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#);
        check(r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#);
    }

    #[test]
    fn everything_else_stays() {
        for json in [
            r#""\ud83d\ude00""#,
            r#""\\ud83d is what they wrote""#,
            r#""\\\\ud83d, \u00e9, \ud83d\ude00""#,
            r#""plain""#,
        ] {
            check(json, json);
        }
        // No JSON, and no panic.
        for text in ["\\", "\\ud8", "\\ud83", "\\é\\ud83x", "\\ud83d\\"] {
            mended(text);
        }
    }
}
