//! Keys that assign a request to a conversation.
//!
//! In this order: the header `x-session-id`, `prompt_cache_key`, `previous_response_id`,
//! `conversation`, Anthropic's `metadata.user_id`, `user`.

use serde_json::Value;

use super::routed::RawBodyFields;
use crate::gateway::Pin;
use crate::openai::ApiError;

/// The keys of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionKeys {
    pub(super) prompt_cache_key: Option<String>,
    pub(super) previous_response_id: Option<String>,
    pub(super) conversation: Option<String>,
    pub(super) metadata_user: Option<String>,
    pub(super) user: Option<String>,
}

impl SessionKeys {
    /// Reads a request's fields.
    ///
    /// # Errors
    /// When `user` is no string. What else has another type is for the engine to refuse.
    pub(super) fn read(raw: &RawBodyFields<'_>) -> Result<Self, ApiError> {
        let value = |name: &str| -> Value {
            raw.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let user = match value("user") {
            Value::Null => None,
            Value::String(user) => Some(user),
            _ => return Err(ApiError::invalid("user", "`user` must be a string")),
        };
        let conversation = value("conversation");
        Ok(Self {
            prompt_cache_key: text(&value("prompt_cache_key")),
            previous_response_id: text(&value("previous_response_id")),
            // A conversation is named by its id, or by an object that has the id.
            conversation: text(&conversation).or_else(|| text(&conversation["id"])),
            metadata_user: text(&value("metadata")["user_id"]),
            user,
        })
    }

    /// The first key that there is. `pin`: the place of the previous response, whose root stands
    /// for the whole chain.
    pub(super) fn first<'a>(&'a self, pin: Option<&'a Pin>) -> Option<&'a str> {
        let previous = match pin {
            Some(pin) => Some(&*pin.root),
            None => self.previous_response_id.as_deref(),
        };
        let keys = [
            self.prompt_cache_key.as_deref(),
            previous,
            self.conversation.as_deref(),
            self.metadata_user.as_deref(),
            self.user.as_deref(),
        ];
        // An empty key would put unrelated requests into one conversation.
        keys.into_iter().flatten().find(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::ReplicaId;

    use super::*;

    fn check(body: &str, expected: Option<&str>) {
        let raw: RawBodyFields<'_> = serde_json::from_str(body).expect("an object");
        let keys = SessionKeys::read(&raw).expect("no wrong user");
        assert_eq!(keys.first(None), expected, "{body}");
    }

    #[test]
    fn the_first_key_of_the_order_counts() {
        check(
            r#"{"user": "u", "metadata": {"user_id": "m"}, "conversation": {"id": "c"},
                "previous_response_id": "p", "prompt_cache_key": "k"}"#,
            Some("k"),
        );
        check(r#"{"user": "u", "conversation": "c", "previous_response_id": "p"}"#, Some("p"));
        check(r#"{"user": "u", "conversation": "c"}"#, Some("c"));
        check(r#"{"user": "u", "conversation": {"id": "c"}}"#, Some("c"));
        check(r#"{"user": "u", "metadata": {"user_id": "m"}}"#, Some("m"));
        check(r#"{"user": "u", "metadata": [1], "prompt_cache_key": ""}"#, Some("u"));
        check(r#"{"prompt_cache_key": 5}"#, None);
    }

    #[test]
    fn a_chain_of_responses_is_one_session() {
        let raw: RawBodyFields<'_> =
            serde_json::from_str(r#"{"previous_response_id": "r3"}"#).expect("JSON");
        let keys = SessionKeys::read(&raw).expect("no user");
        let pin = Pin { replica: ReplicaId(0), root: "r1".into() };
        assert_eq!(keys.first(Some(&pin)), Some("r1"));
    }
}
