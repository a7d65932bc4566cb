//! Detection of a trace's format by its first line.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::{BY_FIELDS, Format};

/// The format whose lines look like `first`.
///
/// # Errors
/// Why it looks like none of them.
pub(crate) fn sniff(first: &str) -> Result<Format, String> {
    // The header is the only known first line that is no JSON.
    if super::azure::is_header(first) {
        return Ok(Format::Azure);
    }
    if !first.starts_with('{') {
        return Err(unknown("is neither a JSON object nor Azure's CSV header"));
    }
    let mut fields = LineFields::default();
    let parsed = serde_json::Deserializer::from_str(first).deserialize_map(&mut fields);
    if let Err(error) = parsed {
        return Err(unknown(&format!(
            "is not a JSON object ({error}); write one object per line (`jq -c .` does)"
        )));
    }
    let has_one = |names: &&[&str]| names.iter().any(|&name| fields.0.contains(name));
    let found = BY_FIELDS.iter().find(|(_, lists)| lists.iter().all(has_one));
    found.map(|&(format, _)| format).ok_or_else(|| unknown("has no field that identifies a format"))
}

fn unknown(what: &str) -> String {
    let fields = Format::all().map(|format| format.about().1).collect::<Vec<_>>().join("; ");
    format!(
        "the first line {what}; name the format with --format, one of {}. The fields that \
         identify one: {fields}; see docs/reference/formats.md",
        Format::names()
    )
}

/// The fields of a line's object.
#[derive(Default)]
struct LineFields(BTreeSet<String>);

impl<'de> Visitor<'de> for &mut LineFields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            self.0.insert(name);
            // Skipped without a copy, as a first line can have megabytes.
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::request_log::BODIES;
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
        check(r#"{"conversations": [], "prompt": "x"}"#, Ok(Format::Conversation));
        check(r#"{"messages": [], "model": "m"}"#, Ok(Format::Requests));
        for body in BODIES {
            let line = format!(r#"{{"{body}": {{}}, "id": 1}}"#);
            check(&line, Ok(Format::Requests));
        }
        check(r#"{"inputs": {}, "run_type": "llm"}"#, Ok(Format::Requests));
        check(r#"{"messages": [], "startTime": 1}"#, Ok(Format::Requests));
        check(r#"{"custom_id": "a", "body": {"messages": []}}"#, Ok(Format::Requests));
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
