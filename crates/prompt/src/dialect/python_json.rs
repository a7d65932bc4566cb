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
        Ok(value) if has_rounded_number(&value) => Arguments::Inexact,
        Ok(Value::Object(fields)) => Arguments::Object(fields),
        Ok(_) => Arguments::NoObject,
        // Python reads these words, and numbers beyond all floats, as numbers.
        Err(_) if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) => Arguments::Inexact,
        Err(error) if error.to_string().starts_with("number out of range") => Arguments::Inexact,
        // Python takes halves of surrogate pairs, which no text here can hold.
        Err(_) if text.contains("\\u") => Arguments::Inexact,
        Err(_) => Arguments::NoObject,
    }
}

/// Whether `value` holds a number that may have been an integer of more than 64 bits: it is a
/// float here, and Python would write all its digits.
pub(super) fn has_rounded_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64()
                && number
                    .as_f64()
                    .is_some_and(|float| float.abs() >= 2f64.powi(63))
        }
        Value::Array(items) => items.iter().any(has_rounded_number),
        Value::Object(fields) => fields.values().any(has_rounded_number),
        _ => false,
    }
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
