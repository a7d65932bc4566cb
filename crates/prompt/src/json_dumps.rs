//! JSON in Python's spelling, for the templates' `tojson`.
//!
//! `transformers` prints tools and arguments with Python's `json.dumps`, whose output differs
//! from any Rust serializer's in ways that change tokens:
//!
//! ```text
//! json.dumps                 serde_json
//! {"a": 1, "b": [2, 3]}      {"a":1,"b":[2,3]}
//! 1e-05, 1e+16               0.00001, 1e16
//! ```
//!
//! Keys keep their order, and nothing is escaped for HTML.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::python_number::dumped;
use crate::python_surrogate::half_of;
use crate::size_limit::{LimitedText, limited_width};

/// `value | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(crate) fn tojson(value: &Value, options: &Kwargs) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let dumps = Dumps::new(options)?;
    // An option that is not known must fail: ignored, it would change tokens.
    options.assert_all_used()?;
    // Marked numbers lose their quotation marks after the serializer wrote them, by `dumped`.
    dumps
        .to_string(value)
        .map(dumped)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// The arguments of `json.dumps` that templates use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dumps {
    /// One level of indentation; `None` keeps everything on one line.
    indent: Option<String>,
    /// Between items, without the line break of an indented text.
    item_separator: String,
    /// Between key and value.
    key_separator: String,
    /// Whether all but printable ASCII is written as `\uXXXX`.
    ensure_ascii: bool,
    /// Whether keys are sorted by code point; otherwise they come as the request sent them.
    sort_keys: bool,
}

impl Dumps {
    fn new(options: &Kwargs) -> Result<Self, Error> {
        let indent = match options.get::<Option<Value>>("indent")? {
            Some(indent) if !indent.is_none() => Some(match indent.as_str() {
                Some(text) => {
                    limited_width(text.len() as u128)?;
                    text.to_owned()
                }
                None => " ".repeat(limited_width(u128::try_from(indent)?)?),
            }),
            _ => None,
        };
        let separators: Option<Vec<String>> = options.get("separators")?;
        let (item_separator, key_separator) = match separators.as_deref() {
            Some([item, key]) => (item.as_str(), key.as_str()),
            Some(_) => return Err(ErrorKind::CannotUnpack.into()),
            // Python writes no space after a comma where the line ends.
            None if indent.is_some() => (",", ": "),
            None => (", ", ": "),
        };
        let is_set = |name| Ok::<_, Error>(options.get::<Option<bool>>(name)?.unwrap_or(false));
        Ok(Self {
            indent,
            item_separator: item_separator.to_owned(),
            key_separator: key_separator.to_owned(),
            ensure_ascii: is_set("ensure_ascii")?,
            sort_keys: is_set("sort_keys")?,
        })
    }

    /// `value` as JSON text. Even a small indentation makes a long text of deep lists.
    fn to_string(&self, value: &impl Serialize) -> Result<String, serde_json::Error> {
        let mut text = LimitedText::default();
        let formatter = PythonFormatter { dumps: self, depth: 0, has_items: false };
        let mut serializer = Serializer::with_formatter(&mut text, formatter);
        if self.sort_keys {
            // The serializer writes maps in their own order, so sorted keys need a copy.
            let mut sorted = serde_json::to_value(value)?;
            sorted.sort_all_objects();
            sorted.serialize(&mut serializer)?;
        } else {
            value.serialize(&mut serializer)?;
        }
        Ok(text.into_string())
    }
}

/// Tells serde_json how Python would write each part.
struct PythonFormatter<'a> {
    dumps: &'a Dumps,
    /// Containers around the present place.
    depth: usize,
    /// Whether the innermost of them has an item already.
    has_items: bool,
}

impl PythonFormatter<'_> {
    fn open(&mut self, writer: &mut (impl ?Sized + Write), bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        writer.write_all(bracket)
    }

    fn before_item(&self, writer: &mut (impl ?Sized + Write), first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.dumps.item_separator.as_bytes())?;
        }
        self.line_break(writer)
    }

    fn close(&mut self, writer: &mut (impl ?Sized + Write), bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        // An empty container has no line break in it.
        if self.has_items {
            self.line_break(writer)?;
        }
        writer.write_all(bracket)
    }

    fn line_break(&self, writer: &mut (impl ?Sized + Write)) -> io::Result<()> {
        let Some(indent) = &self.dumps.indent else {
            return Ok(());
        };
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(indent.as_bytes()))
    }
}

impl Formatter for PythonFormatter<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.before_item(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.before_item(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.dumps.key_separator.as_bytes())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float_repr(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        text: &str,
    ) -> io::Result<()> {
        if self.dumps.ensure_ascii {
            write_ascii(writer, text)
        } else {
            writer.write_all(text.as_bytes())
        }
    }
}

/// The shortest digits that read back as `value`, with an exponent where Python's `repr` has one:
/// below 1e-4 and from 1e16, of at least two digits.
pub(crate) fn float_repr(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`e` formatting has an e");
    let exponent: i32 = exponent.parse().expect("and an integer behind it");
    if (-4..16).contains(&exponent) {
        // `Debug` writes `1.0` for a whole number, as Python does.
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Writes all but printable ASCII as UTF-16 escapes.
fn write_ascii<W: ?Sized + Write>(writer: &mut W, text: &str) -> io::Result<()> {
    for character in text.chars() {
        if matches!(character, ' '..='~') {
            writer.write_all(&[character as u8])?;
            continue;
        }
        // A half of a pair has no UTF-16 of its own; its code is the escape.
        if let Some(half) = half_of(character) {
            write!(writer, "\\u{half:04x}")?;
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(writer, "\\u{unit:04x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ONE_LINE: (&str, &str) = (", ", ": ");

    /// Expected texts are the output of CPython 3.11's `json.dumps`.
    fn check(
        value: &serde_json::Value,
        indent: Option<&str>,
        separators: (&str, &str),
        expected: &str,
    ) {
        let dumps = Dumps {
            indent: indent.map(str::to_owned),
            item_separator: separators.0.to_owned(),
            key_separator: separators.1.to_owned(),
            ensure_ascii: false,
            sort_keys: false,
        };
        assert_eq!(dumps.to_string(value).unwrap(), expected);
    }

    #[test]
    fn separators_and_indents_are_pythons() {
        let value = json!({"b": [1, [], {}], "a": {"c": null}});
        check(&value, None, ONE_LINE, r#"{"b": [1, [], {}], "a": {"c": null}}"#);
        check(&value, None, (",", ":"), r#"{"b":[1,[],{}],"a":{"c":null}}"#);
        check(
            &value,
            Some("  "),
            (",", ": "),
            "{\n  \"b\": [\n    1,\n    [],\n    {}\n  ],\n  \"a\": {\n    \"c\": null\n  }\n}",
        );
        check(&json!([true, 1]), Some(""), (",", ": "), "[\ntrue,\n1\n]");
    }

    #[test]
    fn strings_are_escaped_as_json_demands_and_no_further() {
        let value = json!("<a href='/'>\" \\ \u{8}\u{c}\n\r\t\u{1f}\u{7f} é 你 🎉");
        let expected = "\"<a href='/'>\\\" \\\\ \\b\\f\\n\\r\\t\\u001f\u{7f} é 你 🎉\"";
        check(&value, None, ONE_LINE, expected);
    }

    #[test]
    fn floats_are_spelled_as_in_python() {
        let value = json!([0.0001, 0.00001, -2.5e-7, 1e15, 1e16, 1.5e300, 1.0, -0.0, 0.1, 5e-324]);
        let expected = "[0.0001, 1e-05, -2.5e-07, 1000000000000000.0, 1e+16, 1.5e+300, 1.0, \
                        -0.0, 0.1, 5e-324]";
        check(&value, None, ONE_LINE, expected);
    }

    #[test]
    fn ascii_and_sorted_keys_on_request() {
        let dumps = Dumps {
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            ensure_ascii: true,
            sort_keys: true,
        };
        let value = json!({"b": "é 🎉\u{7f}", "a": [{"d": 1, "c": 2}]});
        let expected = r#"{"a": [{"c": 2, "d": 1}], "b": "\u00e9 \ud83c\udf89\u007f"}"#;
        assert_eq!(dumps.to_string(&value).unwrap(), expected);
    }
}
