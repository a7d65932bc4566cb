//! What a gateway reads of a request that it passes on: the fields that say where it goes, and the
//! prompt's tokens. The rest is the engine's affair and stays text.
//!
//! Short prompts are tokenized where they are read: handing them to another thread costs more than
//! most of them take. Long ones would hold up everybody else on the thread.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::embedded::plain_tokens;
use super::proxied::chat_tokens;
use crate::openai::response::Kind;
use crate::openai::{ApiError, fields, request};
use crate::prompt_tokens::{PromptTokens, Prompted};

/// Longest body whose prompt is tokenized at once, bytes: below a millisecond or two.
const SHORT_BYTES: usize = 16 << 10;

/// The fields of a body, unread.
type Raw<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// What says where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Routed {
    pub(super) model: String,
    pub(super) salt: Option<String>,
    pub(super) user: Option<String>,
}

impl Routed {
    /// Reads a request's body.
    ///
    /// # Errors
    /// When it is not a JSON object, names no model, or a field is no string.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let raw: Raw<'_> = match serde_json::from_slice(body) {
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
        Ok(Self {
            model,
            salt: string("cache_salt")?,
            user: string("user")?,
        })
    }
}

/// The tokens of a request's prompt. Whatever cannot be tokenized here is routed without its
/// prefix: the engine will say what is wrong with it.
pub(super) async fn tokens(
    prompt: Option<&std::sync::Arc<PromptTokens>>,
    kind: Kind,
    salt: Option<&str>,
    body: &Bytes,
) -> Option<Prompted> {
    let prompt = prompt?;
    if body.len() <= SHORT_BYTES {
        // A defect of the tokenizer must cost the prefix and not the connection.
        let tokens = catch_unwind(AssertUnwindSafe(|| tokenized(prompt, kind, salt, body)));
        return tokens.ok().flatten();
    }
    let (prompt, body) = (prompt.clone(), body.clone());
    let salt = salt.map(str::to_owned);
    let tokens = move || tokenized(&prompt, kind, salt.as_deref(), &body);
    tokio::task::spawn_blocking(tokens).await.ok().flatten()
}

fn tokenized(
    prompt: &PromptTokens,
    kind: Kind,
    salt: Option<&str>,
    body: &[u8],
) -> Option<Prompted> {
    let raw: Raw<'_> = serde_json::from_slice(body).ok()?;
    let value = |name: &str| -> Option<Value> { serde_json::from_str(raw.get(name)?.get()).ok() };
    match kind {
        Kind::Chat => {
            let names = [
                "messages",
                "tools",
                "add_generation_prompt",
                "chat_template_kwargs",
            ];
            let fields = names
                .into_iter()
                .filter_map(|it| Some((it.to_owned(), value(it)?)));
            chat_tokens(prompt, Value::Object(fields.collect::<Map<_, _>>()), salt)
        }
        Kind::Text => {
            let input = request::prompt(value("prompt")).ok()?;
            plain_tokens(prompt, input, salt).ok()
        }
        Kind::Messages | Kind::Responses => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Result<(&str, Option<&str>, Option<&str>), &str>) {
        let got = Routed::parse(body.as_bytes());
        match (got, expected) {
            (Ok(got), Ok((model, salt, user))) => {
                assert_eq!(got.model, model, "{body}");
                assert_eq!(
                    (got.salt.as_deref(), got.user.as_deref()),
                    (salt, user),
                    "{body}"
                );
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{body}: {error:?}"),
            (got, expected) => panic!("{body}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn only_what_says_where_it_goes_is_read() {
        check(
            r#"{"model": "m", "messages": [{"role": 5}]}"#,
            Ok(("m", None, None)),
        );
        check(
            r#"{"mod\u0065l": "\u006d", "cache_salt": "s\"", "user": null}"#,
            Ok(("m", Some("s\""), None)),
        );
        check(
            r#"{"user": "u", "model": "m", "model": "n"}"#,
            Ok(("n", None, Some("u"))),
        );
        check(r#"{"messages": []}"#, Err("GET /v1/models"));
        check(r#"{"model": null}"#, Err("GET /v1/models"));
        check(r#"{"model": 5}"#, Err("`model` must be a string"));
        check(
            r#"{"model": "m", "user": []}"#,
            Err("`user` must be a string"),
        );
        check("[]", Err("not an object"));
        check(r#"{"model": "m", "prompt": [}"#, Err("not valid JSON"));
        check("", Err("not valid JSON"));
        check("\u{1}", Err("not valid JSON"));
    }
}
