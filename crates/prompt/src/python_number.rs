//! Numbers that Python keeps and `serde_json` does not: integers beyond 64 bits, `NaN`, infinities.
//!
//! Python's `json.loads` reads them, and templates print them digit by digit. Here they travel
//! through JSON values as marked texts, and become numbers again where a template prints them:
//!
//! ```text
//! {"a": 123456789012345678901} ─ read ─ {"a": "‹123456789012345678901›"} ─ tojson ─ {"a": 12345…}
//! ```
//!
//! A template that computes with such a number fails or goes wrong; none is known that does.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// In front of a marked number; from a private-use area of Unicode.
const OPEN: &str = "\u{f8ff}\u{f8fd}";

/// Behind a marked number.
const CLOSE: &str = "\u{f8fe}";

/// Digits that surely fit into 64 bits.
const SAFE_DIGITS: usize = 18;

/// Reads JSON as Python does. Where a key occurs twice, its first place and its last value count.
///
/// # Errors
/// Where Python refuses the text, too, or it holds half of a surrogate pair
/// (`python_surrogate`).
pub fn read_json(text: &str) -> Result<Value, serde_json::Error> {
    match serde_json::from_str(text) {
        // Nearly all texts end here; only suspect ones are read a second time.
        Ok(value) if !may_be_rounded(&value) => Ok(value),
        Ok(_) => serde_json::from_str(&marked(text)),
        Err(error) => match marked(text) {
            // Nothing was marked, so the text has another fault.
            Cow::Borrowed(_) => Err(error),
            Cow::Owned(text) => serde_json::from_str(&text),
        },
    }
}

/// Whether `value` holds a float that may have been an integer: one of more than 64 bits, or `-0`.
fn may_be_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let is_suspect = |float: f64| float.abs() >= 2f64.powi(63) || float == 0.0;
            number.is_f64() && number.as_f64().is_some_and(is_suspect)
        }
        Value::Array(items) => items.iter().any(may_be_rounded),
        Value::Object(fields) => fields.values().any(may_be_rounded),
        _ => false,
    }
}

/// JSON text with numbers that only Python keeps as marked strings.
fn marked(text: &str) -> Cow<'_, str> {
    let mut output = String::new();
    let mut copied = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            // Digits inside of a string are text.
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' | b'N' | b'I' => {
                let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = bytes[at..].iter().take_while(|byte| is_token(byte)).count();
                let token = &text[at..at + length];
                if token == "-0" {
                    // An integer there, a float to `serde_json`.
                    output += &text[copied..at];
                    output.push('0');
                    copied = at + length;
                } else if needs_mark(token) {
                    output += &text[copied..at];
                    output.extend(["\"", OPEN, token, CLOSE, "\""]);
                    copied = at + length;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(output + &text[copied..]),
    }
}

/// The place behind the string that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn needs_mark(token: &str) -> bool {
    if matches!(token, "NaN" | "Infinity" | "-Infinity") {
        return true;
    }
    let digits = token.strip_prefix('-').unwrap_or(token);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // A leading zero is an error in JSON and must stay one.
        return digits.len() > SAFE_DIGITS && !digits.starts_with('0');
    }
    // A float beyond all floats is infinite in Python.
    token.parse::<f64>().is_ok_and(f64::is_infinite)
}

/// A float, as Python writes it, as a marked number.
pub(crate) fn marked_float(text: &str) -> String {
    [OPEN, text, CLOSE].concat()
}

/// A marked number at the start of `text`, and the rest.
fn split_mark(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(OPEN)?.split_once(CLOSE)
}

/// `value` as a reader with floats alone for long integers has it (`orjson`); `None` where that
/// refuses it: not a number, infinities.
pub(crate) fn with_floats(value: Value) -> Option<Value> {
    Some(match value {
        Value::String(text) => match split_mark(&text) {
            Some((number, "")) => serde_json::from_str(number).ok()?,
            _ => text.into(),
        },
        Value::Array(items) => {
            items.into_iter().map(with_floats).collect::<Option<Vec<_>>>()?.into()
        }
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| Some((name, with_floats(value)?)))
            .collect::<Option<Map<_, _>>>()?
            .into(),
        other => other,
    })
}

/// Whether `text` is a marked number.
pub(crate) fn is_marked(text: &str) -> bool {
    split_mark(text).is_some_and(|(_, rest)| rest.is_empty())
}

/// Whether `text` is a marked integer.
pub(crate) fn is_marked_integer(text: &str) -> bool {
    split_mark(text).is_some_and(|(number, rest)| rest.is_empty() && as_float(number).is_none())
}

/// Printed text with its marked numbers as Python's `str` writes them.
pub(crate) fn printed(text: String) -> String {
    replaced(text, OPEN, CLOSE, ["nan", "inf", "-inf"])
}

/// JSON text with its marked numbers as `json.dumps` writes them.
pub(crate) fn dumped(text: String) -> String {
    let names = ["NaN", "Infinity", "-Infinity"];
    let text = replaced(text, &format!("\"{OPEN}"), &format!("{CLOSE}\""), names);
    // With `ensure_ascii` the marks are escaped as well.
    replaced(text, "\"\\uf8ff\\uf8fd", "\\uf8fe\"", names)
}

fn as_float(number: &str) -> Option<f64> {
    let is_integer = number.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    if is_integer { None } else { number.parse().ok() }
}

fn replaced(text: String, open: &str, close: &str, names: [&str; 3]) -> String {
    if !text.contains(open) {
        return text;
    }
    let (mut output, mut rest) = (String::with_capacity(text.len()), &text[..]);
    while let Some((before, marked)) = rest.split_once(open) {
        output += before;
        let Some((number, behind)) = marked.split_once(close) else {
            rest = marked;
            break;
        };
        output += match as_float(number) {
            Some(float) if float.is_nan() => names[0],
            Some(f64::INFINITY) => names[1],
            Some(f64::NEG_INFINITY) => names[2],
            _ => number,
        };
        rest = behind;
    }
    output + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_json_is_read_as_it_is() {
        let text = r#"{"a": [1, -2.5, 1e3], "b": "NaN 123456789012345678901", "a": 9}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read_json(text).unwrap(), value);
        for wrong in ["{", "01", "[1,]", "nan", "{'a': 1}", "1 2", "-", "1.", "\"\t\""] {
            assert!(read_json(wrong).is_err(), "{wrong}");
        }
    }

    /// Expected texts are Python 3.11's.
    #[test]
    fn numbers_that_only_python_keeps_come_out_again() {
        let check = |number: &str, json: &str, text: &str| {
            let value = read_json(&format!("{{\"a\": [{number}], \"b\": \"{number}\"}}")).unwrap();
            let written = dumped(value["a"].to_string());
            assert_eq!(written, format!("[{json}]"));
            let bare = value["a"][0].as_str().unwrap().to_owned();
            assert!(is_marked(&bare));
            assert_eq!(printed(format!("<{bare}>")), format!("<{text}>"));
            assert_eq!(value["b"], number, "texts stay");
        };
        let long = "12345678901234567890123";
        check(long, long, long);
        check("-12345678901234567890123", "-12345678901234567890123", "-12345678901234567890123");
        check("NaN", "NaN", "nan");
        check("-Infinity", "-Infinity", "-inf");
        check("1e400", "Infinity", "inf");
    }

    #[test]
    fn large_floats_stay_floats_and_zero_an_integer() {
        assert_eq!(read_json("[-0, -0.0, \"-0\"]").unwrap().to_string(), "[0,-0.0,\"-0\"]");
        assert_eq!(read_json("[1e20, 18446744073709551615]").unwrap()[0], 1e20);
    }

    #[test]
    fn escaped_marks_are_found() {
        let marked = "\"\\uf8ff\\uf8fd12345678901234567890123\\uf8fe\"".to_owned();
        assert_eq!(dumped(marked), "12345678901234567890123");
    }
}
