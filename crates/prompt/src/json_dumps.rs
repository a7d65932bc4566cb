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

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// The arguments of `json.dumps` that templates use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dumps {
    /// One level of indentation; `None` keeps everything on one line.
    pub(crate) indent: Option<String>,
    /// Between items, without the line break of an indented text.
    pub(crate) item_separator: String,
    /// Between key and value.
    pub(crate) key_separator: String,
    /// Whether to write every character beyond ASCII as `\uXXXX`.
    pub(crate) escape: Escape,
    /// In which order an object's keys are written.
    pub(crate) keys: KeyOrder,
}

/// Which characters are written as escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Those that JSON demands.
    Required,
    /// All beyond printable ASCII as well.
    NonAscii,
}

/// The order of an object's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// As the request sent them.
    AsSent,
    /// By code point.
    Sorted,
}

impl Dumps {
    /// `value` as JSON text.
    pub(crate) fn to_string(&self, value: &impl Serialize) -> Result<String, serde_json::Error> {
        let mut bytes = Vec::new();
        let formatter = PythonFormatter {
            dumps: self,
            depth: 0,
        };
        let mut serializer = Serializer::with_formatter(&mut bytes, formatter);
        match self.keys {
            KeyOrder::AsSent => value.serialize(&mut serializer)?,
            KeyOrder::Sorted => {
                let mut sorted = serde_json::to_value(value)?;
                sorted.sort_all_objects();
                sorted.serialize(&mut serializer)?;
            }
        }
        Ok(String::from_utf8(bytes).expect("the serializer writes UTF-8"))
    }
}

struct PythonFormatter<'a> {
    dumps: &'a Dumps,
    depth: usize,
}

impl PythonFormatter<'_> {
    fn line_break<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        if let Some(indent) = &self.dumps.indent {
            writer.write_all(b"\n")?;
            for _ in 0..self.depth {
                writer.write_all(indent.as_bytes())?;
            }
        }
        Ok(())
    }

    fn before_item<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first {
            self.depth += 1;
        } else {
            writer.write_all(self.dumps.item_separator.as_bytes())?;
        }
        self.line_break(writer)
    }

    fn after_items<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.line_break(writer)
    }
}
