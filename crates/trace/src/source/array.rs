//! A JSON array, or objects over several lines, with each element or object on one line.
//!
//! Exports of dashboards are often one array, over one line or over many. Each byte becomes one
//! byte, so nothing is held: commas between elements become line ends, line ends within elements
//! blanks. The reader of the lines checks that they are JSON.

use std::io::{self, BufRead, Read};

/// Reads an array, or objects.
pub(super) struct Elements<R> {
    inner: R,
    is_array: bool,
    depth: usize,
    is_text: bool,
    is_escaped: bool,
}

impl<R: BufRead> Elements<R> {
    /// The elements of an array.
    pub(super) fn of_array(inner: R) -> Self {
        Self { inner, is_array: true, depth: 0, is_text: false, is_escaped: false }
    }

    /// Objects, with their line ends within them.
    pub(super) fn of_objects(inner: R) -> Self {
        Self { is_array: false, ..Self::of_array(inner) }
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
                if self.is_array && self.depth == 1 {
                    return b' ';
                }
            }
            b']' | b'}' => {
                // A stray bracket must not wrap. The reader of the lines reports it.
                self.depth = self.depth.saturating_sub(1);
                if self.is_array && self.depth == 0 {
                    return b'\n';
                }
            }
            // Deeper commas belong to an element.
            b',' if self.is_array && self.depth == 1 => return b'\n',
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
    let Some(first) = start.trim_ascii_start().strip_prefix(b"[").map(<[u8]>::trim_ascii_start)
    else {
        return false;
    };
    // A line of a log may begin with a name or a time in brackets.
    let digits = first.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match first.get(digits) {
        Some(b'{' | b'[' | b']' | b'"') if digits == 0 => true,
        Some(byte) => digits > 0 && b",] \r\n".contains(byte),
        None => true,
    }
}

/// Whether `start` begins an object that continues in the next line.
pub(super) fn begins_object(start: &[u8]) -> bool {
    let start = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start).trim_ascii_start();
    if start.first() != Some(&b'{') {
        return false;
    }
    let mut state = Elements::of_objects(io::empty());
    // A line end within an object becomes a blank.
    start.iter().any(|&byte| state.next(byte) != byte && byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut got = String::new();
        let mut elements = Elements::of_array(text.as_bytes());
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
    fn objects_over_several_lines_are_lines() {
        let text = "{\n  \"a\": \"x, {\"\n}\n{\"b\":\r\n[1,\n2]}\n";
        assert!(begins_object(text.as_bytes()));
        let mut got = String::new();
        Elements::of_objects(text.as_bytes()).read_to_string(&mut got).expect("memory");
        let lines: Vec<_> = got.lines().collect();
        assert_eq!(lines, [r#"{   "a": "x, {" }"#, r#"{"b":  [1, 2]}"#]);
        for plain in ["{\"a\": 1}\n{\n", "{\"a\": [", "[\n1]", ""] {
            assert!(!begins_object(plain.as_bytes()) || plain.contains("\n{\n"), "{plain}");
        }
    }

    #[test]
    fn arrays_are_told_by_their_bracket() {
        assert!(begins(b"[{") && begins(b" \n[") && begins("\u{feff}[".as_bytes()));
        assert!(begins(b"[1, 2]") && begins(b"[]") && begins(b"["));
        assert!(!begins(b"[pod/a] x") && !begins(b"[2026-11-24 10:00:00] x"));
        assert!(!begins(b"{\"a\": []}") && !begins(b"") && !begins(b"a[0]"));
    }
}
