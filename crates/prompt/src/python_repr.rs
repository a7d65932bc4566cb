//! Values as Python's `str` and `repr` write them: `{{ value }}` in a template.
//!
//! ```text
//! Python                          minijinja alone
//! [1e+20, 'it''s', None]          [1e20, "it's", None]
//! {'a': '\u2028'}                 {'a': ' '}
//! ```

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::json_dumps::float_repr;
use crate::python_number::is_marked;
use crate::python_surrogate::half_of;

/// Deepest nesting that is written; requests are read with less.
const DEPTH_MAX: usize = 256;

/// Python's `str(value)`.
///
/// # Errors
/// When containers are nested too deep.
pub(crate) fn str_of(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    match value.kind() {
        ValueKind::Seq | ValueKind::Map => write_repr(&mut text, value, 0)?,
        _ => text = float(value).map_or_else(|| value.to_string(), float_repr),
    }
    Ok(text)
}

/// Python's `repr(value)`.
///
/// # Errors
/// When containers are nested too deep.
pub(crate) fn repr_of(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    write_repr(&mut text, value, 0)?;
    Ok(text)
}

/// The number, where `value` is a float that Python writes otherwise.
fn float(value: &Value) -> Option<f64> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok().filter(|float| float.is_finite())
}

fn write_repr(text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        let message = "the value is nested too deep to be printed";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    match value.kind() {
        ValueKind::String => match value.as_str().unwrap_or_default() {
            number if is_marked(number) => text.push_str(number),
            content => write_str(text, content),
        },
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::Seq => {
            let is_tuple = value.downcast_object_ref::<Tuple>().is_some();
            let length = value.len().unwrap_or(0);
            text.push(if is_tuple { '(' } else { '[' });
            for (index, item) in value.try_iter()?.enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_repr(text, &item, depth + 1)?;
            }
            text.push_str(match (is_tuple, length) {
                // Python writes a comma after the only item of a tuple.
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            });
        }
        ValueKind::Map => {
            text.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_repr(text, &key, depth + 1)?;
                text.push_str(": ");
                write_repr(text, &value.get_item(&key)?, depth + 1)?;
            }
            text.push('}');
        }
        _ => text.push_str(&str_of(value)?),
    }
    Ok(())
}

/// A text in quotes: double ones where it holds single ones only.
fn write_str(text: &mut String, content: &str) {
    let quote = if content.contains('\'') && !content.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for character in content.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\\' => text.push_str("\\\\"),
            character if character == quote => text.extend(['\\', quote]),
            character if is_printable(character) => text.push(character),
            character => {
                let code = half_of(character).unwrap_or(character.into());
                text.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
        }
    }
    text.push(quote);
}

/// Whether Python prints a character as it is. Rust's `escape_debug` follows the same categories
/// of Unicode, apart from its release, and escapes combining marks only at the start.
fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\x7f' => false,
        // Only an escape such as `\u{200b}` ends with a brace here, because `}` is ASCII.
        _ => !format!("a{character}").escape_debug().to_string().ends_with('}'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts are Python 3.11's.
    #[test]
    fn containers_are_written_as_by_python() {
        let value = serde_json::json!([1e20, null, true, "it's", {"k": "v", "n": 1.0}, []]);
        let value = Value::from(minijinja::value::Serde(&value));
        let expected = "[1e+20, None, True, \"it's\", {'k': 'v', 'n': 1.0}, []]";
        assert_eq!(str_of(&value).unwrap(), expected);
    }

    #[test]
    fn texts_in_containers_are_quoted_and_escaped() {
        let check = |content: &str, expected: &str| {
            let value = Value::from(vec![Value::from(content)]);
            assert_eq!(str_of(&value).unwrap(), format!("[{expected}]"), "{content:?}");
        };
        check("a'b\"c", r#"'a\'b"c'"#);
        check(
            "\u{2028}\u{a0}\u{7f}é\u{301}",
            r"'\u2028\xa0\x7fé\u0301'".replace("\\u0301", "\u{301}").as_str(),
        );
        check("\u{e0001}😀\u{200b}", r"'\U000e0001😀\u200b'");
        check("\n\t\\", r"'\n\t\\'");
    }

    #[test]
    fn plain_values_are_written_bare() {
        assert_eq!(str_of(&Value::from("it's")).unwrap(), "it's");
        assert_eq!(str_of(&Value::from(1e-5)).unwrap(), "1e-05");
        assert_eq!(str_of(&Value::from(())).unwrap(), "None");
    }
}
