//! Reading JSON text as Python's `json.loads` does, as far as tool arguments notice.
//!
//! Python takes `NaN` and the infinities, and integers of any length; `serde_json` refuses the
//! first and rounds the second. Arguments with either are rare, and a prompt that prints them is
//! not exact here.

use serde_json::{Map, Value};

/// What `json.loads` makes of a tool call's arguments.
#[derive(Debug, PartialEq)]
pub(super) enum Arguments {
    /// An object. A key that occurs twice keeps its first place and its last value.
    Object(Map<String, Value>),
    /// Something else, or no JSON.
    NoObject,
    /// Numbers that cannot be kept here.
    Inexact,
}

/// Reads `text`.
pub(super) fn arguments(text: &str) -> Arguments {
    match serde_json::from_str(text) {
        Ok(Value::Object(_)) if has_long_integer(text) => Arguments::Inexact,
        Ok(Value::Object(fields)) => Arguments::Object(fields),
        Ok(_) => Arguments::NoObject,
        // Python reads these words as numbers.
        Err(_) if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) => Arguments::Inexact,
        // Python takes halves of surrogate pairs, which no text here can hold.
        Err(_) if text.contains("\\u") => Arguments::Inexact,
        Err(_) => Arguments::NoObject,
    }
}

/// Whether a run of digits may exceed 64 bits. Digits inside of strings count, too: rarely wrong,
/// and then only slower.
fn has_long_integer(text: &str) -> bool {
    let mut run = 0;
    text.bytes().any(|byte| {
        run = if byte.is_ascii_digit() { run + 1 } else { 0 };
        run > 18
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_keep_the_first_place_and_the_last_value() {
        let Arguments::Object(fields) = arguments(r#"{"a": 1.0, "b": 1e3, "a": 2}"#) else {
            panic!("an object");
        };
        assert_eq!(json!(fields).to_string(), r#"{"a":2,"b":1000.0}"#);
    }

    #[test]
    fn other_texts_are_no_objects() {
        for text in ["[1]", "42", "null", "", "{", "{'a': 1}", "nope"] {
            assert_eq!(arguments(text), Arguments::NoObject, "{text}");
        }
    }

    #[test]
    fn numbers_that_python_alone_keeps_are_inexact() {
        for text in [
            r#"{"a": NaN}"#,
            r#"{"a": -Infinity}"#,
            r#"{"a": 123456789012345678901234}"#,
            r#"{"a": "\ud800"}"#,
        ] {
            assert_eq!(arguments(text), Arguments::Inexact, "{text}");
        }
    }
}
