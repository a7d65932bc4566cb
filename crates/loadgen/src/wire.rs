//! The JSON of OpenAI's API, as far as a client that measures needs it.

use bytes::Bytes;
use headstart_core::TokenId;
use headstart_trace::format::completions;
use headstart_trace::format::conversation::Role;
use headstart_trace::materialize::TokenPrompt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ChatApiRequest, LoadgenError};

/// Characters of an error body that is not JSON: enough to recognize a proxy's error page.
const RAW_ERROR_CHARS: usize = 200;

#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: Vec<BodyMessage<'a>>,
    max_tokens: u32,
    temperature: f32,
    #[serde(flatten)]
    streamed: StreamingFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_salt: Option<&'a str>,
}

#[derive(Serialize)]
struct BodyMessage<'a> {
    role: Role,
    content: &'a str,
}

#[derive(Serialize)]
struct CompletionBody<'a> {
    #[serde(flatten)]
    body: completions::Body<'a>,
    #[serde(flatten)]
    streamed: StreamingFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_salt: Option<&'a str>,
}

/// Asks for an answer piece by piece, with the token counts behind it.
#[derive(Serialize)]
struct StreamingFields {
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

const STREAMED: StreamingFields =
    StreamingFields { stream: true, stream_options: StreamOptions { include_usage: true } };

/// The body of a streamed conversation, greedy so that equal prompts get equal answers.
pub(crate) fn chat_body(model: &str, request: &ChatApiRequest<'_>) -> Bytes {
    let messages =
        request.messages.iter().map(|turn| BodyMessage { role: turn.role, content: &turn.text });
    let body = ChatBody {
        model,
        messages: messages.collect(),
        max_tokens: request.max_tokens,
        temperature: 0.0,
        streamed: STREAMED,
        cache_salt: request.cache_salt,
    };
    bytes(&body)
}

/// The body of a streamed answer to `prompt`.
pub(crate) fn completion_body(
    model: &str,
    prompt: &TokenPrompt,
    cache_salt: Option<&str>,
) -> Bytes {
    let body = completions::Body::of(prompt, model);
    bytes(&CompletionBody { body, streamed: STREAMED, cache_salt })
}

/// The token ids of an answer to `POST /tokenize`.
pub(crate) fn tokens(body: &[u8]) -> Result<Vec<TokenId>, LoadgenError> {
    #[derive(Deserialize)]
    struct TokenizeAnswer {
        tokens: Vec<TokenId>,
    }
    let answer: Result<TokenizeAnswer, _> = serde_json::from_slice(body);
    answer.map(|answer| answer.tokens).map_err(|error| LoadgenError::NoTokens {
        reason: format!("the answer of /tokenize has no list `tokens` ({error})"),
    })
}

fn bytes(body: &impl Serialize) -> Bytes {
    let body = serde_json::to_vec(body);
    body.expect("text and numbers are JSON").into()
}

/// One event of the stream.
#[derive(Deserialize)]
pub(crate) struct StreamChunk {
    // An event that reports an error has no choices.
    #[serde(default)]
    pub(crate) choices: Vec<ChunkChoice>,
    pub(crate) usage: Option<ReportedUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
pub(crate) struct ChunkChoice {
    delta: Option<Delta>,
    text: Option<String>,
    pub(crate) finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

impl ChunkChoice {
    /// The text that it adds: a chat's `delta.content`, a plain completion's `text`.
    pub(crate) fn content(self) -> Option<String> {
        let content = self.delta.and_then(|delta| delta.content).or(self.text);
        // Empty text comes with the role and with the end; counted, it would end TTFT too early.
        content.filter(|content| !content.is_empty())
    }
}

/// Token counts reported by the server.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct ReportedUsage {
    pub(crate) prompt_tokens: u32,
    pub(crate) completion_tokens: u32,
    prompt_tokens_details: Option<PromptTokensDetails>,
}

#[derive(Clone, Copy, Deserialize)]
struct PromptTokensDetails {
    cached_tokens: Option<u32>,
}

impl ReportedUsage {
    /// Cached prompt tokens; 0 where the server does not say, as vLLM does not when there
    /// are none.
    pub(crate) fn cached_tokens(&self) -> u32 {
        let details = self.prompt_tokens_details;
        details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

impl StreamChunk {
    /// Reads one event's payload.
    ///
    /// # Errors
    /// [`LoadgenError::GaveUp`] for an event with an `error`, [`LoadgenError::Malformed`] for what
    /// is no chunk at all.
    pub(crate) fn parse(payload: &str) -> Result<Self, LoadgenError> {
        let chunk: Self =
            serde_json::from_str(payload).map_err(|error| LoadgenError::Malformed {
                reason: format!("an event that is no completion chunk ({error})"),
            })?;
        // An engine that fails mid-stream has already sent its status line, so the failure comes as
        // an event.
        match &chunk.error {
            Some(error) => Err(LoadgenError::GaveUp { message: message_of(error) }),
            None => Ok(chunk),
        }
    }
}

/// Makes an error of an HTTP error status and its body.
pub(crate) fn refusal(status: u16, body: &[u8]) -> LoadgenError {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    // OpenAI nests the error; older vLLM sends its fields at the top.
    let error = parsed.as_ref().map(|body| body.get("error").unwrap_or(body));
    LoadgenError::Refused {
        status,
        // Older vLLM puts the HTTP status here as a number, which is no code word.
        code: error.and_then(|error| Some(error.get("code")?.as_str()?.to_owned())),
        message: error.map_or_else(|| beginning(&String::from_utf8_lossy(body)), message_of),
    }
}

/// The error's `message`; the error itself where it has none.
fn message_of(error: &Value) -> String {
    match error.get("message").unwrap_or(error) {
        Value::String(message) => message.clone(),
        // An error without a message may be any JSON, of any length.
        other => beginning(&other.to_string()),
    }
}

fn beginning(text: &str) -> String {
    text.trim().chars().take(RAW_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected_code: Option<&str>, expected_message: &str) {
        match refusal(400, body.as_bytes()) {
            LoadgenError::Refused { code, message, .. } => {
                assert_eq!(code.as_deref(), expected_code);
                assert_eq!(message, expected_message);
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_message_is_found_wherever_it_stands() {
        check(r#"{"error": {"message": "m", "code": "c"}}"#, Some("c"), "m");
        check(r#"{"object": "error", "message": "m", "code": 400}"#, None, "m");
        check(r#"{"error": "m"}"#, None, "m");
        check(r#"{"error": {"type": "t"}}"#, None, r#"{"type":"t"}"#);
        check(" <h1>Bad Gateway</h1>\n", None, "<h1>Bad Gateway</h1>");
        check(&"x".repeat(1000), None, &"x".repeat(RAW_ERROR_CHARS));
    }
}
