//! Fields that a gateway reads of a request it passes on: those that decide the route, and the
//! prompt's tokens. It passes the rest on unparsed.
//!
//! Short prompts are tokenized where they are read: handing them to another thread costs more than
//! most of them take. Long ones would hold up everybody else on the thread.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use headstart_core::RouteKey;
use headstart_prompt::{Api, Dialect, NoExactTokens};
use serde_json::Map;
use serde_json::value::RawValue;

use super::embedded::plain_tokens;
use super::session::SessionKeys;
use crate::message_keys::message_keys;
use crate::openai::response::ApiKind;
use crate::openai::{ApiError, fields, request};
use crate::prompt_tokens::{PromptTokens, TokenizedPrompt};

/// Longest body whose prompt is tokenized at once, bytes: below a millisecond or two.
const SHORT_BYTES: usize = 16 << 10;

/// The fields that the prompt of a chat request depends on.
const CHAT_FIELDS: &[&str] = &[
    "messages",
    "tools",
    "tool_choice",
    "documents",
    "reasoning",
    "reasoning_effort",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
    "mm_processor_kwargs",
    "media_io_kwargs",
];

/// The same of Anthropic's Messages API.
const MESSAGES_FIELDS: &[&str] =
    &["system", "messages", "tools", "thinking", "output_config", "chat_template_kwargs"];

/// The same of OpenAI's Responses API.
const RESPONSES_FIELDS: &[&str] = &[
    "instructions",
    "input",
    "tools",
    "reasoning",
    "previous_response_id",
    "conversation",
    "prompt",
    "chat_template_kwargs",
];

/// The fields of a body, unread.
pub(super) type RawBodyFields<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// Fields that decide the route of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RouteFields {
    pub(super) model: String,
    pub(super) salt: Option<String>,
    pub(super) keys: SessionKeys,
    pub(super) messages: Vec<RouteKey>,
}

impl RouteFields {
    /// Reads a request's body.
    ///
    /// # Errors
    /// When it is not a JSON object, names no model, or a field is no string.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let raw: RawBodyFields<'_> = match serde_json::from_slice(body) {
            Ok(raw) => raw,
            // What is wrong with it is found again, in words.
            Err(error) => {
                fields::Fields::parse(body)?;
                return Err(fields::no_json(&error.to_string()));
            }
        };
        let string = |name: &str| match raw.get(name) {
            None => Ok(None),
            Some(raw) => serde_json::from_str::<Option<String>>(raw.get())
                .map_err(|_| ApiError::invalid(name, format!("`{name}` must be a string"))),
        };
        let model = string("model")?;
        let model =
            model.ok_or_else(|| request::missing("model", "GET /v1/models lists the names"))?;
        let salt = string("cache_salt")?;
        Ok(Self {
            messages: message_keys(&raw, &model, salt.as_deref()),
            keys: SessionKeys::read(&raw)?,
            model,
            salt,
        })
    }
}

/// The tokens of a request's prompt, as far as they can be made here.
///
/// # Errors
/// Why they cannot.
pub(super) async fn tokens(
    prompt: &Arc<PromptTokens>,
    dialect: Dialect,
    kind: ApiKind,
    salt: Option<&str>,
    body: &Bytes,
) -> Result<TokenizedPrompt, NoExactTokens> {
    let panicked = || NoExactTokens::Failed("the tokenizer panicked".to_owned());
    if body.len() <= SHORT_BYTES {
        // A defect of the tokenizer must cost the prefix and not the connection.
        let tokens = || tokenized(prompt, dialect, kind, salt, body);
        return catch_unwind(AssertUnwindSafe(tokens)).unwrap_or_else(|_| Err(panicked()));
    }
    let (prompt, body) = (prompt.clone(), body.clone());
    let salt = salt.map(str::to_owned);
    let tokens = move || tokenized(&prompt, dialect, kind, salt.as_deref(), &body);
    let tokens = tokio::task::spawn_blocking(tokens).await;
    tokens.unwrap_or_else(|_| Err(panicked()))
}

fn tokenized(
    prompt: &PromptTokens,
    dialect: Dialect,
    kind: ApiKind,
    salt: Option<&str>,
    body: &[u8],
) -> Result<TokenizedPrompt, NoExactTokens> {
    let raw: RawBodyFields<'_> =
        serde_json::from_slice(body).map_err(|_| NoExactTokens::Malformed("body"))?;
    let value = |name: &'static str| match raw.get(name) {
        Some(raw) => headstart_prompt::read_json(raw.get())
            .map(Some)
            .map_err(|_| NoExactTokens::Malformed(name)),
        None => Ok(None),
    };
    let (api, names) = match kind {
        ApiKind::Chat => (Api::Chat, CHAT_FIELDS),
        ApiKind::Messages => (Api::Messages, MESSAGES_FIELDS),
        ApiKind::Responses => (Api::Responses, RESPONSES_FIELDS),
        ApiKind::Text => {
            let malformed = |_| NoExactTokens::Malformed("prompt");
            let input = request::prompt(value("prompt")?).map_err(malformed)?;
            let failed = |error: ApiError| NoExactTokens::Failed(error.message);
            return plain_tokens(prompt, input, salt).map_err(failed);
        }
    };
    // The other fields stay unparsed: they may have megabytes and change no token.
    let mut fields = Map::new();
    for &name in names {
        if let Some(value) = value(name)? {
            fields.insert(name.to_owned(), value);
        }
    }
    prompt.request(dialect, api, fields, salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Result<(&str, Option<&str>, Option<&str>), &str>) {
        let got = RouteFields::parse(body.as_bytes());
        match (got, expected) {
            (Ok(got), Ok((model, salt, user))) => {
                assert_eq!(got.model, model, "{body}");
                assert_eq!((got.salt.as_deref(), got.keys.user.as_deref()), (salt, user), "{body}");
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{body}: {error:?}"),
            (got, expected) => panic!("{body}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn only_what_says_where_it_goes_is_read() {
        check(r#"{"model": "m", "messages": [{"role": 5}]}"#, Ok(("m", None, None)));
        check(
            r#"{"mod\u0065l": "\u006d", "cache_salt": "s\"", "user": null}"#,
            Ok(("m", Some("s\""), None)),
        );
        check(r#"{"user": "u", "model": "m", "model": "n"}"#, Ok(("n", None, Some("u"))));
        check(r#"{"messages": []}"#, Err("GET /v1/models"));
        check(r#"{"model": null}"#, Err("GET /v1/models"));
        check(r#"{"model": 5}"#, Err("`model` must be a string"));
        check(r#"{"model": "m", "user": []}"#, Err("`user` must be a string"));
        check("[]", Err("not an object"));
        check(r#"{"model": "m", "prompt": [}"#, Err("not valid JSON"));
        check("", Err("not valid JSON"));
        check("\u{1}", Err("not valid JSON"));
    }
}
