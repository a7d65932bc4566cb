//! Detection of a trace's format by its first line.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::Format;
use super::request_log::BODIES;

/// The format whose lines look like `first`.
///
/// # Errors
/// Why it looks like none of them.
pub(crate) fn sniff(first: &str) -> Result<Format, String> {
    if super::azure::is_header(first) {
        return Ok(Format::Azure);
    }
    if !first.starts_with('{') {
        return Err(unknown("is neither a JSON object nor Azure's CSV header"));
    }
    let mut keys = SniffedKeys::default();
    let parsed = serde_json::Deserializer::from_str(first).deserialize_map(&mut keys);
    if let Err(error) = parsed {
        return Err(unknown(&format!(
            "is not a JSON object ({error}); write one object per line (`jq -c .` does)"
        )));
    }
    keys.format()
        .ok_or_else(|| unknown("has no field that identifies a format"))
}

fn unknown(what: &str) -> String {
    format!(
        "the first line {what}; name the format with --format, one of {}. The fields that \
         identify one: {FIELDS}; see docs/reference/formats.md",
        Format::names()
    )
}

/// The fields that formats are known by, for a message.
const FIELDS: &str = "`hash_ids`, `requests`, `turns`, `conversations`, `messages`, `prompt`, \
    `input`, `body`, `request`, `headstart_trace`";

/// The fields that formats are known by.
#[derive(Default)]
struct SniffedKeys {
    is_canonical: bool,
    is_agent: bool,
    is_chat: bool,
    has_ids: bool,
    has_turns: bool,
    has_messages: bool,
    has_prompt: bool,
    /// Something that a request says and a recorded dialogue does not.
    is_asked: bool,
}

impl SniffedKeys {
    fn note(&mut self, key: &str) {
        match key {
            "headstart_trace" => self.is_canonical = true,
            "requests" => self.is_agent = true,
            "chat_id" | "parent_chat_id" => self.is_chat = true,
            "hash_ids" => self.has_ids = true,
            "turns" | "conversations" => self.has_turns = true,
            "messages" => self.has_messages = true,
            "prompt" | "prompt_token_ids" | "proxy_server_request" => self.has_prompt = true,
            body if BODIES.contains(&body) => self.has_prompt = true,
            "model" | "usage" | "request_id" | "startTime" | "ttft_ms" => self.is_asked = true,
            _ => {}
        }
    }

    fn format(&self) -> Option<Format> {
        let known = [
            (self.is_canonical, Format::Canonical),
            (self.is_agent, Format::Agent),
            (self.has_ids && self.is_chat, Format::Bailian),
            (self.has_ids, Format::Mooncake),
            (self.has_turns, Format::Conversation),
            (self.has_messages && self.is_asked, Format::Requests),
            (self.has_prompt, Format::Requests),
            (self.has_messages, Format::Conversation),
        ];
        known
            .into_iter()
            .find_map(|(fits, format)| fits.then_some(format))
    }
}

impl<'de> Visitor<'de> for &mut SniffedKeys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            self.note(&key);
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(first: &str, expected: Result<Format, &str>) {
        match (sniff(first), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{first}"),
            (Err(error), Err(part)) => {
                assert!(error.contains(part), "{error}");
                assert!(error.contains("one of mooncake"), "{error}");
            }
            (got, expected) => panic!("{first}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn each_format_is_known_by_its_fields() {
        check(r#"{"hash_ids": [1]}"#, Ok(Format::Mooncake));
        check(r#"{"chat_id": 1, "hash_ids": [1]}"#, Ok(Format::Bailian));
        check(r#"{"id": "a", "requests": []}"#, Ok(Format::Agent));
        check(r#"{"messages": []}"#, Ok(Format::Conversation));
        check(r#"{"messages": [], "tools": []}"#, Ok(Format::Conversation));
        check(r#"{"turns": [], "model": "m"}"#, Ok(Format::Conversation));
        check(
            r#"{"conversations": [], "prompt": "x"}"#,
            Ok(Format::Conversation),
        );
        check(r#"{"messages": [], "model": "m"}"#, Ok(Format::Requests));
        for body in BODIES {
            let line = format!(r#"{{"{body}": {{}}, "id": 1}}"#);
            check(&line, Ok(Format::Requests));
        }
        check(r#"{"inputs": {}, "run_type": "llm"}"#, Ok(Format::Requests));
        check(r#"{"messages": [], "startTime": 1}"#, Ok(Format::Requests));
        check(
            r#"{"custom_id": "a", "body": {"messages": []}}"#,
            Ok(Format::Requests),
        );
        check(r#"{"session_id": "a", "input": "x"}"#, Ok(Format::Requests));
        check(r#"{"headstart_trace": 1}"#, Ok(Format::Canonical));
        check("TIMESTAMP,ContextTokens,GeneratedTokens", Ok(Format::Azure));
    }

    #[test]
    fn what_fits_no_format_is_told_the_known_ones() {
        check("[1]", Err("neither a JSON object"));
        check("{", Err("`jq -c .`"));
        check("{}", Err("--format"));
        check(r#"{"text": "x"}"#, Err("`messages`"));
    }
}
