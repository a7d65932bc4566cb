//! Responses of OpenAI's chat and completions APIs.

use serde_json::{Value, json};

use super::ApiError;
use super::request::StreamUsage;
use crate::answer::Finish;
use crate::shape::{AnswerWriter, Events, Usage};

/// API that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiKind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Text,
    /// `/v1/messages`, Anthropic's
    Messages,
    /// `/v1/responses`
    Responses,
}

/// Fields common to all chunks of an answer of `/v1/chat/completions` or `/v1/completions`.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// Whether it is a chat; a plain completion otherwise.
    pub is_chat: bool,
    /// The answer's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Pieces of a stream that have token counts.
    pub stream_usage: StreamUsage,
}

impl Usage {
    /// OpenAI's `usage` object, with vLLM's `created_cache_tokens`.
    #[must_use]
    pub fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.total(),
            "prompt_tokens_details": {
                "cached_tokens": self.cached, "created_cache_tokens": self.created,
            },
            "prompt_cache_hit_tokens": self.cached,
            "prompt_cache_miss_tokens": self.prompt.saturating_sub(self.cached),
        })
    }
}

impl AnswerWriter for Envelope {
    fn open(&mut self, usage: Usage, events: &mut Events) {
        if self.is_chat {
            let delta = json!({"delta": {"role": "assistant", "content": ""}});
            events.push(&self.piece(delta, None, usage));
        }
    }

    fn text(&mut self, text: &str, usage: Usage, events: &mut Events) {
        let choice =
            if self.is_chat { json!({"delta": {"content": text}}) } else { json!({"text": text}) };
        events.push(&self.piece(choice, None, usage));
    }

    fn close(&mut self, finish: &Finish, usage: Usage, events: &mut Events) {
        let choice = if self.is_chat { json!({"delta": {}}) } else { json!({"text": ""}) };
        events.push(&self.piece(choice, Some(finish.name()), usage));
        // OpenAI's last chunk has the usage and no choices.
        if self.stream_usage != StreamUsage::Omit {
            let mut body = self.head(self.piece_object());
            body["choices"] = json!([]);
            body["usage"] = usage.to_json();
            events.push(&body);
        }
        events.push_text("[DONE]");
    }

    fn fail(&mut self, error: &ApiError, events: &mut Events) {
        events.push(&error.body());
    }

    fn whole(&mut self, text: &str, finish: &Finish, usage: Usage) -> String {
        let (object, mut choice) = if self.is_chat {
            ("chat.completion", json!({"message": {"role": "assistant", "content": text}}))
        } else {
            ("text_completion", json!({"text": text}))
        };
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish.name().into();
        let mut body = self.head(object);
        body["choices"] = json!([choice]);
        body["usage"] = usage.to_json();
        body.to_string()
    }
}

impl Envelope {
    fn piece(&self, mut choice: Value, finish_reason: Option<&str>, usage: Usage) -> Value {
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish_reason.into();
        let mut body = self.head(self.piece_object());
        body["choices"] = json!([choice]);
        if self.stream_usage == StreamUsage::Continuous {
            body["usage"] = usage.to_json();
        }
        body
    }

    fn piece_object(&self) -> &'static str {
        if self.is_chat { "chat.completion.chunk" } else { "text_completion" }
    }

    fn head(&self, object: &str) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
        })
    }
}
