//! A key for each message of a request, by which a router finds the conversation's last turn.
//!
//! Keys are made of the request's own JSON, so that a conversation keeps them whether or not the
//! tokens of its prompts are known. A key covers all messages up to its own.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;

use headstart_core::RouteKey;
use memchr::memmem;
use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use twox_hash::XxHash3_64;

/// Fields in front of the messages.
const HEADS: [&str; 2] = ["system", "instructions"];

/// Fields with messages; `input` may be one string.
const LISTS: [&str; 2] = ["messages", "input"];

/// Messages with a key; later ones have none, and their turn is found by an earlier one.
const MESSAGES_MAX: usize = 1 << 14;

/// A client's hint where to cache. Clients move it to the latest message with every turn.
const HINT: &[u8] = b"\"cache_control\"";

/// The keys of a request's messages; empty where it has no messages. Requests for other models and
/// of other salts have other keys. Costs two fast passes over the messages.
#[must_use]
pub fn message_keys(
    fields: &HashMap<Cow<'_, str>, &RawValue>,
    model: &str,
    salt: Option<&str>,
) -> Vec<RouteKey> {
    let Some(list) = LISTS.iter().find_map(|&name| fields.get(name)) else {
        return Vec::new();
    };
    let mut chain = ChainHash::default();
    // First, so that equal messages of another model or tenant have other keys.
    chain.add(model.as_bytes());
    chain.add(salt.unwrap_or_default().as_bytes());
    for head in HEADS.iter().filter_map(|&name| fields.get(name)) {
        chain.add(&without_hints(head.get().as_bytes()));
    }
    let mut keys = MessageKeyBuilder { chain, keys: Vec::new() };
    if !list.get().starts_with('[') {
        keys.add(list);
        return keys.keys;
    }
    let mut list = serde_json::Deserializer::from_str(list.get());
    match list.deserialize_seq(&mut keys) {
        Ok(()) => keys.keys,
        Err(_) => Vec::new(),
    }
}

/// A hash of all that came so far.
#[derive(Default)]
struct ChainHash(XxHash3_64);

impl ChainHash {
    fn add(&mut self, piece: &[u8]) -> RouteKey {
        // The length keeps pieces apart that join to the same bytes.
        self.0.write_u64(piece.len() as u64);
        self.0.write(piece);
        RouteKey(self.0.finish())
    }
}

struct MessageKeyBuilder {
    chain: ChainHash,
    keys: Vec<RouteKey>,
}

impl MessageKeyBuilder {
    fn add(&mut self, message: &RawValue) {
        if self.keys.len() < MESSAGES_MAX {
            let message = without_hints(message.get().as_bytes());
            self.keys.push(self.chain.add(&message));
        }
    }
}

impl<'de> Visitor<'de> for &mut MessageKeyBuilder {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<(), A::Error> {
        while let Some(message) = messages.next_element::<&RawValue>()? {
            self.add(message);
        }
        Ok(())
    }
}

/// JSON without the fields that say where to cache, each with one comma beside it.
fn without_hints(json: &[u8]) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    let mut rest = json;
    while let Some(at) = memmem::find(rest, HINT) {
        let (before, hint) = rest.split_at(at);
        let Some(after) = behind_hint(hint) else {
            // The word may belong to a value of another form, which is kept.
            kept.extend_from_slice(before);
            kept.extend_from_slice(HINT);
            rest = &hint[HINT.len()..];
            continue;
        };
        let before = before.trim_ascii_end();
        // One comma goes with the field: the one before it, or else the one after it.
        match before.strip_suffix(b",") {
            Some(before) => {
                kept.extend_from_slice(before);
                rest = after;
            }
            None => {
                kept.extend_from_slice(before);
                let after = after.trim_ascii_start();
                rest = after.strip_prefix(b",").unwrap_or(after).trim_ascii_start();
            }
        }
    }
    if rest.len() == json.len() {
        return Cow::Borrowed(json);
    }
    kept.extend_from_slice(rest);
    Cow::Owned(kept)
}

/// Returns the JSON after a hint, if the hint's value is an object without nested objects.
fn behind_hint(hint: &[u8]) -> Option<&[u8]> {
    let value = hint[HINT.len()..].trim_ascii_start().strip_prefix(b":")?;
    let value = value.trim_ascii_start().strip_prefix(b"{")?;
    let end = memchr::memchr2(b'{', b'}', value)?;
    (value[end] == b'}').then(|| &value[end + 1..])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn keys(body: &str) -> Vec<RouteKey> {
        let fields = serde_json::from_str(body).expect("an object");
        message_keys(&fields, "m", None)
    }

    fn said(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    #[test]
    fn a_next_turn_begins_with_the_keys_of_the_last() {
        let (user, answer, more) = (said("user", "a"), said("assistant", "b"), said("user", "c"));
        for (head, list) in [("model", "messages"), ("system", "messages"), ("model", "input")] {
            let one = keys(&json!({list: [user], head: "s"}).to_string());
            let two = keys(&json!({list: [user, answer, more], head: "s", "seed": 4}).to_string());
            assert_eq!((one.len(), two.len()), (1, 3));
            assert_eq!(one[0], two[0]);
            let other = keys(&json!({list: [said("user", "other"), answer]}).to_string());
            assert!(!two.contains(&other[0]) && !two.contains(&other[1]));
        }
    }

    #[test]
    fn models_salts_and_instructions_set_conversations_apart() {
        let body = r#"{"system": "s", "messages": [1]}"#;
        let fields = serde_json::from_str(body).expect("an object");
        let mut found = vec![
            message_keys(&fields, "m", None),
            message_keys(&fields, "m2", None),
            message_keys(&fields, "m", Some("salt")),
            message_keys(&fields, "msalt", None),
            keys(r#"{"system": "t", "messages": [1]}"#),
        ];
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn hints_that_move_change_no_key() {
        let plain =
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}"#;
        for marked in [
            r#"{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}"#,
            r#"{"type": "text", "cache_control": {"type": "ephemeral", "ttl": "1h"}, "text": "a"}"#,
            r#"{"cache_control" : {} , "type": "text", "text": "a"}"#,
        ] {
            let marked = plain.replace(r#"{"type": "text", "text": "a"}"#, marked);
            assert_eq!(keys(&marked), keys(plain), "{marked}");
        }
        for kept in [
            r#"{"type": "text", "text": "a", "cache_control": null}"#,
            r#"{"type": "text", "text": "\"cache_control\": {}"}"#,
            r#"{"type": "text", "text": "a", "cache_control": {"a": {}}}"#,
        ] {
            let kept = plain.replace(r#"{"type": "text", "text": "a"}"#, kept);
            assert_ne!(keys(&kept), keys(plain), "{kept}");
            assert_eq!(without_hints(kept.as_bytes()), kept.as_bytes());
        }
    }

    #[test]
    fn any_shape_of_messages_is_taken() {
        for (body, count) in [
            ("{}", 0),
            (r#"{"prompt": "a"}"#, 0),
            (r#"{"input": "a"}"#, 1),
            (r#"{"messages": []}"#, 0),
            (r#"{"messages": [null, [[]], "\"", 4]}"#, 4),
            (r#"{"messages": {"a": [1]}}"#, 1),
        ] {
            assert_eq!(keys(body).len(), count, "{body}");
        }
        let many = vec!["1"; MESSAGES_MAX + 9].join(",");
        let many = keys(&format!("{{\"messages\": [{many}]}}"));
        assert_eq!(many.len(), MESSAGES_MAX);
    }
}
