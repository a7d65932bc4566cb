//! Whether it is a Headstart gateway that answers: it is known by the shape of what it says. A
//! summary names entries and replicas, an entry its replica and key.

use std::io;

use serde_json::Value;

/// Longest line of an entry: some 100 bytes, and room for what later versions may add.
const ENTRY_BYTES_MAX: usize = 4096;

/// Parses the summary of `/debug/index`; `None` for any other answer.
pub(super) fn summary(body: &[u8]) -> Option<Value> {
    let summary: Value = serde_json::from_slice(body).ok()?;
    let replicas = summary.get("replicas")?.as_array()?;
    let is_replica = |replica: &Value| replica["replica"].is_u64();
    // `all` accepts an empty list: a gateway may have no replicas yet.
    let is_ours = summary["entries"].is_u64() && replicas.iter().all(is_replica);
    is_ours.then_some(summary)
}

/// Holds a dump's first line back until it has shown to be one.
#[derive(Default)]
pub(super) struct FirstLine {
    held: Vec<u8>,
    is_ours: bool,
}

impl FirstLine {
    /// The bytes that may be passed on, of all that came so far and were not yet.
    ///
    /// # Errors
    /// When they are no dump's; [`Self::foreign`] has them then.
    pub(super) fn take<'a>(&'a mut self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        if self.is_ours {
            return Ok(bytes);
        }
        self.held.extend_from_slice(bytes);
        let line = self.held.split(|&byte| byte == b'\n').next();
        let is_whole = line.is_some_and(|line| line.len() < self.held.len());
        // Bytes come in pieces; a line longer than any entry cannot be one.
        if !is_whole && self.held.len() <= ENTRY_BYTES_MAX {
            return Ok(&[]);
        }
        // An answer that ends without a line break never gets here, and is foreign unless it is
        // empty.
        self.is_ours = line.is_some_and(is_entry);
        if self.is_ours { Ok(&self.held) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Returns the bytes received in place of a dump. An empty answer is an empty dump.
    pub(super) fn foreign(&self) -> Option<&[u8]> {
        (!self.is_ours && !self.held.is_empty()).then_some(&self.held)
    }
}

fn is_entry(line: &[u8]) -> bool {
    let entry: Option<Value> = serde_json::from_slice(line).ok();
    entry.is_some_and(|entry| entry["replica"].is_u64() && entry["key"].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_summary_is_one() {
        let ours = [
            r#"{"entries": 0, "replicas": []}"#,
            r#"{"entries": 3, "replicas": [{"replica": 0}], "more": 1}"#,
        ];
        for body in ours {
            assert!(summary(body.as_bytes()).is_some(), "{body}");
        }
        let others = [
            "",
            "{}",
            "[]",
            "null",
            "<html>",
            r#"{"entries": 0}"#,
            r#"{"replicas": []}"#,
            r#"{"entries": "0", "replicas": []}"#,
            r#"{"entries": 0, "replicas": {}}"#,
            r#"{"entries": 0, "replicas": [{"id": 0}]}"#,
            r#"{"entries": 0, "replicas": []}{"#,
        ];
        for body in others {
            assert!(summary(body.as_bytes()).is_none(), "{body}");
        }
    }

    /// Whatever the pieces are, all is passed on, or nothing.
    fn check_dump(body: &str, is_ours: bool) {
        for piece in [1, 2, 7, body.len().max(1)] {
            let mut first = FirstLine::default();
            let mut passed = Vec::new();
            for bytes in body.as_bytes().chunks(piece) {
                match first.take(bytes) {
                    Ok(bytes) => passed.extend_from_slice(bytes),
                    Err(_) => break,
                }
            }
            assert_eq!(first.foreign().is_none(), is_ours, "{body}");
            let expected = if is_ours { body } else { "" };
            assert_eq!(String::from_utf8_lossy(&passed), expected);
        }
    }

    #[test]
    fn nothing_but_a_dump_is_passed_on() {
        let entry = r#"{"replica":0,"key":"00ab","group":0,"tier":"device","doubtful":false}"#;
        check_dump("", true);
        check_dump(&format!("{entry}\n"), true);
        check_dump(&format!("{entry}\n{entry}\nand so on"), true);
        check_dump("{}\n", false);
        check_dump("{}", false);
        check_dump("\n", false);
        check_dump("<html>\n<body>\n", false);
        check_dump(&"x".repeat(ENTRY_BYTES_MAX + 1), false);
        check_dump(entry, false);
    }
}
