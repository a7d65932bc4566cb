//! A JSON array as lines: its elements one to a line, as if it had been written so.
//!
//! Exports of dashboards are often one array, over one line or over many. Each byte becomes one
//! byte, so nothing is held: commas between elements become line ends, line ends within elements
//! blanks. The reader of the lines checks that they are JSON.

use std::io::{self, BufRead, Read};

/// Reads an array.
pub(super) struct Elements<R> {
    inner: R,
    depth: usize,
    is_text: bool,
    is_escaped: bool,
}

impl<R: BufRead> Elements<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, depth: 0, is_text: false, is_escaped: false }
    }

    /// Returns the byte that replaces the next `byte`.
    fn next(&mut self, byte: u8) -> u8 {
        if self.is_text {
            match byte {
                // An escaped quote does not end the text.
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_text = false,
                _ => {}
            }
            return byte;
        }
        match byte {
            b'"' => self.is_text = true,
            b'[' | b'{' => {
                self.depth += 1;
                // The array's own bracket becomes a blank, so that each byte stays one byte.
                if self.depth == 1 {
                    return b' ';
                }
            }
            b']' | b'}' => {
                // A stray bracket must not wrap. The reader of the lines reports it.
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return b'\n';
                }
            }
            // Deeper commas belong to an element.
            b',' if self.depth == 1 => return b'\n',
            // An element over several lines must become one line.
            b'\n' | b'\r' if self.depth > 0 => return b' ',
            _ => {}
        }
        byte
    }
}

impl<R: BufRead> Read for Elements<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let raw = self.inner.fill_buf()?;
        let len = raw.len().min(out.len());
        out[..len].copy_from_slice(&raw[..len]);
        for byte in &mut out[..len] {
            *byte = self.next(*byte);
        }
        self.inner.consume(len);
        Ok(len)
    }
}

/// Whether `start`, the first bytes of a text, begins an array.
pub(super) fn begins(start: &[u8]) -> bool {
    let start = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    start.trim_ascii_start().first() == Some(&b'[')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut got = String::new();
        let mut elements = Elements::new(text.as_bytes());
        elements.read_to_string(&mut got).expect("memory");
        assert_eq!(got.len(), text.len(), "a byte for a byte");
        let lines = got.lines().map(str::trim).filter(|line| !line.is_empty());
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn elements_are_lines() {
        check(r#"[{"a": 1}, {"b": [2, {"c": 3}]}]"#, &[r#"{"a": 1}"#, r#"{"b": [2, {"c": 3}]}"#]);
        check("[\n  {\n    \"a\": 1\n  },\n  {}\n]\n", &["{     \"a\": 1   }", "{}"]);
        check(r#"["a, [b", "c\"],{d"]"#, &[r#""a, [b""#, r#""c\"],{d""#]);
        check("[]", &[]);
        check("[1, 2", &["1", "2"]);
    }

    #[test]
    fn arrays_are_told_by_their_bracket() {
        assert!(begins(b"[{") && begins(b" \n[") && begins("\u{feff}[".as_bytes()));
        assert!(!begins(b"{\"a\": []}") && !begins(b"") && !begins(b"a[0]"));
    }
}
