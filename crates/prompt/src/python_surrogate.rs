//! Halves of surrogate pairs, which a Python text may hold and a Rust text may not.
//!
//! Python's `json.loads` reads `"\ud800"`. Templates that print such a text as JSON or by `repr`
//! write its escape; printed bare, no engine can encode it. Here each half is a character of
//! Unicode's last private-use area until it is printed.

use std::borrow::Cow;

/// Code point of the first of the 2,048 halves here.
const FIRST: u32 = 0x0010_f800;

/// Code point of the first half in Unicode.
const FIRST_HALF: u32 = 0xd800;

/// The half that `character` is here.
pub(crate) fn half_of(character: char) -> Option<u32> {
    (u32::from(character).checked_sub(FIRST)).map(|place| place + FIRST_HALF)
}

/// First byte of a half in UTF-8, and of little else.
const LEAD: u8 = 0xf4;

/// Whether `text` holds a half. Costs one search for a byte in nearly all texts.
pub(crate) fn holds_half(text: &str) -> bool {
    text.as_bytes().contains(&LEAD) && text.chars().any(|character| half_of(character).is_some())
}

/// JSON text with its unpaired halves as characters.
pub(crate) fn read_halves(text: &str) -> Cow<'_, str> {
    let (mut output, mut copied, mut at) = (String::new(), 0, 0);
    let code = |at: usize| match text.get(at..at + 6)?.strip_prefix("\\u") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => None,
    };
    while let Some(escape) = text[at..].find('\\').map(|found| at + found) {
        let first = code(escape);
        // A complete pair is a character, which any reader of JSON takes.
        let is_pair = matches!(first, Some(0xd800..=0xdbff))
            && matches!(code(escape + 6), Some(0xdc00..=0xdfff));
        let half = first.filter(|half| (0xd800..=0xdfff).contains(half) && !is_pair);
        let length = match first {
            Some(_) if is_pair => 12,
            Some(_) => 6,
            // Another escape. Its second character may be a backslash, which begins no escape.
            None => 2,
        };
        if let Some(half) = half.and_then(|half| char::from_u32(half - FIRST_HALF + FIRST)) {
            output += &text[copied..escape];
            output.push(half);
            copied = escape + length;
        }
        at = text.len().min(escape + length);
        // In a text that is no JSON, any character may follow a backslash.
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(output + &text[copied..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpaired_halves_alone_become_characters() {
        let check = |text: &str, expected: &str| assert_eq!(read_halves(text), expected, "{text}");
        check(
            r#"{"a": "\ud83d\ude00 \\ud800 \n\u00e9"}"#,
            r#"{"a": "\ud83d\ude00 \\ud800 \n\u00e9"}"#,
        );
        check(r"x\ud800y", "x\u{10f800}y");
        check(r"\uD800\ud83d\ude00\uDFFF", "\u{10f800}\\ud83d\\ude00\u{10ffff}");
        check(r"\\\udc00\", "\\\\\u{10fc00}\\");
        check("\\é\\u12\\ud8é", "\\é\\u12\\ud8é");
        assert_eq!(half_of('\u{10fc00}'), Some(0xdc00));
        assert_eq!(half_of('\u{10f7ff}'), None);
        assert!(holds_half("a\u{10f800}") && holds_half("\u{10ffff}"));
        assert!(!holds_half("é\u{10f7ff}😀"));
    }
}
