//! Whether it is a Headstart gateway that answers, and what to do where it is not or will not.
//!
//! It knows answers by their shape: a summary names entries and replicas, an entry its replica and
//! key, an error has a code. What others say is shown as one short line.

use std::io;
use std::path::Path;

use anyhow::{Error, anyhow};
use headstart_loadgen::LoadError;
use serde_json::Value;

use crate::config::UsageError;

/// Longest line of an entry: some 100 bytes, and room for what later versions may add.
const ENTRY_BYTES_MAX: usize = 4096;

/// Characters of a foreign answer that are shown: enough to know it by.
const SHOWN_CHARS: usize = 100;

/// What was asked of whom.
pub(super) struct Asked<'a> {
    pub(super) url: &'a str,
    pub(super) path: &'static str,
    /// The value of `--api-key-file`.
    pub(super) key_file: Option<&'a Path>,
}

impl Asked<'_> {
    /// An error in words that name what to change.
    pub(super) fn explained(&self, error: LoadError) -> Error {
        let LoadError::Refused {
            status,
            code,
            message,
        } = error
        else {
            // It names its innermost cause itself; those between tell a reader nothing.
            return anyhow!("{error}");
        };
        let (url, path) = (self.url, self.path);
        match (status, code) {
            (401 | 403, _) => UsageError(self.unauthorized()).into(),
            (400, Some(_)) => UsageError(one_line(&message)).into(),
            (404, _) | (..500, None) => self.not_ours(&format!("HTTP status {status}"), &message),
            (_, None) => anyhow!(
                "{url} answers {path} with HTTP status {status}{}; if a Headstart gateway is \
                 behind it, is that running?",
                shown(&message)
            ),
            (_, Some(_)) => anyhow!("{url}: HTTP status {status}{}", shown(&message)),
        }
    }

    /// An answer of somebody else.
    pub(super) fn foreign(&self, body: &[u8]) -> Error {
        let beginning = &body[..body.len().min(ENTRY_BYTES_MAX)];
        self.not_ours("something else", &String::from_utf8_lossy(beginning))
    }

    fn not_ours(&self, what: &str, body: &str) -> Error {
        anyhow!(
            "{} is not a Headstart gateway, or an older one: it answers {} with {what}{}; name \
             another --url",
            self.url,
            self.path,
            shown(body)
        )
    }

    fn unauthorized(&self) -> String {
        let url = self.url;
        match self.key_file {
            None => format!(
                "{url} wants an API key: give --api-key-file FILE, the one that its `headstart \
                 serve` has"
            ),
            Some(file) => format!(
                "{url} refuses the API key: is {} what its `headstart serve` has as \
                 --api-key-file?",
                file.display()
            ),
        }
    }
}

/// Whatever may stand in an error's words: a colon and one short line in quotes, or nothing.
fn shown(body: &str) -> String {
    let line = one_line(body);
    let mut chars = line.chars();
    let short: String = chars.by_ref().take(SHOWN_CHARS).collect();
    match (short.is_empty(), chars.next()) {
        (true, _) => String::new(),
        (false, None) => format!(": `{short}`"),
        (false, Some(_)) => format!(": `{short}…`"),
    }
}

/// A text on one line, without anything that a terminal would obey.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = String::new();
    for letter in words.join(" ").chars() {
        match letter {
            '"' | '\'' | '\\' => line.push(letter),
            _ => line.extend(letter.escape_debug()),
        }
    }
    line
}

/// What `/debug/index` says, if that is what this is.
pub(super) fn summary(body: &[u8]) -> Option<Value> {
    let summary: Value = serde_json::from_slice(body).ok()?;
    let replicas = summary.get("replicas")?.as_array()?;
    let is_replica = |replica: &Value| replica["replica"].is_u64();
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
        if !is_whole && self.held.len() <= ENTRY_BYTES_MAX {
            return Ok(&[]);
        }
        self.is_ours = line.is_some_and(is_entry);
        match self.is_ours {
            true => Ok(&self.held),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// What came in place of a dump. Nothing at all is a dump of nothing.
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

    const ASKED: Asked<'static> = Asked {
        url: "http://h:1",
        path: "/debug/index",
        key_file: None,
    };

    fn check(status: u16, code: Option<&str>, message: &str, expected: &str) {
        let error = ASKED.explained(LoadError::Refused {
            status,
            code: code.map(str::to_owned),
            message: message.to_owned(),
        });
        assert_eq!(error.to_string(), expected);
        let is_usage = error.downcast_ref::<UsageError>().is_some();
        assert_eq!(
            is_usage,
            [400, 401, 403].contains(&status) && code.is_some()
        );
    }

    #[test]
    fn errors_say_what_to_change() {
        let page = "<html>\r\n<head><title>404 Not Found</title></head>\n<body>\u{1b}[2J";
        let line = "<html> <head><title>404 Not Found</title></head> <body>\\u{1b}[2J";
        let foreign = "http://h:1 is not a Headstart gateway, or an older one: it answers \
                       /debug/index with HTTP status";
        let other = "name another --url";
        check(
            404,
            None,
            page,
            &format!("{foreign} 404: `{line}`; {other}"),
        );
        check(
            404,
            Some("not_found"),
            "no",
            &format!("{foreign} 404: `no`; {other}"),
        );
        check(302, None, "", &format!("{foreign} 302; {other}"));
        check(400, None, "a\tb", &format!("{foreign} 400: `a b`; {other}"));
        let long = format!("{foreign} 405: `{}…`; {other}", "x".repeat(SHOWN_CHARS));
        check(405, None, &"x".repeat(SHOWN_CHARS + 1), &long);
        let key = "http://h:1 wants an API key: give --api-key-file FILE, the one that its \
                   `headstart serve` has";
        check(401, Some("invalid_api_key"), "send `Authorization`", key);
        check(
            400,
            Some("invalid_value"),
            "there is no\nreplica 9",
            "there is no replica 9",
        );
        check(
            500,
            Some("internal_error"),
            "oh",
            "http://h:1: HTTP status 500: `oh`",
        );
        let behind = "http://h:1 answers /debug/index with HTTP status 502: `Bad`; if a Headstart \
                      gateway is behind it, is that running?";
        check(502, None, "Bad", behind);
    }

    #[test]
    fn a_key_that_is_refused_is_named_by_its_file() {
        let asked = Asked {
            key_file: Some(Path::new("some/key")),
            ..ASKED
        };
        let said = asked.unauthorized();
        assert!(said.contains("is some/key what"), "{said}");
    }

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
