//! Hints for the eviction policies inside an engine, in a request's `kv_transfer_params`.
//!
//! The Python package's policies and tiers inside vLLM read it. Other engines ignore it or refuse
//! it, so the operator must ask for it.

use std::borrow::Cow;
use std::hash::Hasher;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use twox_hash::XxHash3_64;

use super::routed::RawBodyFields;
use crate::openai::response::ApiKind;
use crate::request_type::{CHAT, COMPLETION};

/// The field of a request that engines hand to their KV connector.
const FIELD: &str = "kv_transfer_params";

/// Hints, as `headstart.vllm.hints` reads them.
#[derive(Debug, Serialize)]
struct EngineHints {
    kind: u16,
    /// Number of user messages, at least 1; 0 without messages.
    turn: u16,
    /// A hash: engines need no names of conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
}

/// The body with hints at its end. A body with such a field of its own stays as it is, and so does
/// one that is no JSON object. O(body).
pub(super) fn with_hints(body: &Bytes, kind: ApiKind, session: Option<&str>) -> Bytes {
    let Ok(fields) = serde_json::from_slice::<RawBodyFields<'_>>(body) else {
        return body.clone();
    };
    // An engine behind a disaggregated one gets its own parameters from a proxy.
    if fields.contains_key(FIELD) || fields.is_empty() {
        return body.clone();
    }
    let turn = turn(&fields);
    let hints = EngineHints {
        kind: if kind == ApiKind::Text { COMPLETION } else { CHAT },
        turn,
        session: session.map(session_number),
    };
    let (Some(end), Ok(hints)) = (body.iter().rposition(|&byte| byte == b'}'), to_json(&hints))
    else {
        return body.clone();
    };
    let mut hinted = BytesMut::with_capacity(body.len() + hints.len());
    hinted.put(&body[..end]);
    hinted.put(hints.as_bytes());
    hinted.put(&body[end..]);
    hinted.freeze()
}

fn to_json(hints: &EngineHints) -> serde_json::Result<String> {
    Ok(format!(",\"{FIELD}\":{{\"headstart\":{}}}", serde_json::to_string(hints)?))
}

/// The number of user messages.
fn turn(fields: &RawBodyFields<'_>) -> u16 {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow, default)]
        role: Option<Cow<'a, str>>,
    }

    let Some(list) = ["messages", "input"].iter().find_map(|&name| fields.get(name)) else {
        return 0;
    };
    let messages: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
    let is_of_user = |message: &&&RawValue| {
        let message = serde_json::from_str::<Message<'_>>(message.get());
        message.is_ok_and(|message| message.role.as_deref() == Some("user"))
    };
    let of_user = messages.iter().filter(is_of_user).count();
    u16::try_from(of_user).unwrap_or(u16::MAX).max(1)
}

fn session_number(session: &str) -> u64 {
    let mut hash = XxHash3_64::default();
    hash.write(session.as_bytes());
    hash.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hinted(body: &str, kind: ApiKind, session: Option<&str>) -> Option<Value> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let hinted = with_hints(&body, kind, session);
        if hinted == body {
            return None;
        }
        let mut value: Value = serde_json::from_slice(&hinted).expect("it is JSON");
        let hints = value.as_object_mut().expect("an object").remove(FIELD);
        let before: Value = serde_json::from_slice(&body).expect("it is JSON");
        assert_eq!(value, before, "nothing else changes");
        hints.map(|mut hints| hints["headstart"].take())
    }

    #[test]
    fn a_chat_has_the_turn_of_its_user_messages() {
        let body = r#"{"model": "m", "messages": [{"role": "system", "content": "}"},
            {"role": "user", "content": [{"type": "text"}]}, {"role": "assistant"},
            {"content": "", "role": "us\u0065r"}, {}, 3]} "#;
        let expected = json!({"kind": CHAT, "turn": 2});
        assert_eq!(hinted(body, ApiKind::Chat, None), Some(expected));
    }

    #[test]
    fn a_completion_has_no_turn_and_its_session_is_a_number() {
        let body = r#"{"model": "m", "prompt": "Tell me."}"#;
        let hints = hinted(body, ApiKind::Text, Some("anna@example.org")).expect("hints");
        assert_eq!((&hints["kind"], &hints["turn"]), (&json!(COMPLETION), &json!(0)));
        assert_eq!(hints["session"], json!(session_number("anna@example.org")));
        assert_ne!(hints["session"], json!(session_number("ben@example.org")));
    }

    #[test]
    fn parameters_of_a_client_and_broken_bodies_stay() {
        for body in [
            r#"{"model": "m", "kv_transfer_params": {"do_remote_decode": true}}"#,
            r#"{"model": "m", "kv_transfer_params": null}"#,
            "{}",
            "[1, 2]",
            r#"{"model": "m""#,
            "",
        ] {
            assert_eq!(hinted(body, ApiKind::Chat, Some("s")), None, "{body}");
        }
        // A string in place of messages is one message.
        let body = r#"{"model": "m", "input": "Tell me."}"#;
        assert_eq!(hinted(body, ApiKind::Responses, None), Some(json!({"kind": CHAT, "turn": 1})));
    }
}
