//! What clients get.

use serde_json::{Value, json};

/// Which API an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Text,
    /// `/v1/messages`, Anthropic's
    Messages,
    /// `/v1/responses`
    Responses,
}

/// What is the same in every piece of an answer.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// Which API.
    pub kind: Kind,
    /// The answer's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: usize,
    /// Of them, taken from the cache.
    pub cached: usize,
    /// Answer tokens, the end token included.
    pub completion: usize,
}

impl Usage {
    /// OpenAI's `usage` object.
    #[must_use]
    pub fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "prompt_cache_hit_tokens": self.cached,
            "prompt_cache_miss_tokens": self.prompt.saturating_sub(self.cached),
        })
    }
}

impl Envelope {
    /// A whole answer.
    #[must_use]
    pub fn whole(&self, text: &str, finish_reason: &str, usage: Usage) -> Value {
        let (object, mut choice) = match self.kind {
            Kind::Chat => (
                "chat.completion",
                json!({"message": {"role": "assistant", "content": text}}),
            ),
            _ => ("text_completion", json!({"text": text})),
        };
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish_reason.into();
        let mut body = self.head(object);
        body["choices"] = json!([choice]);
        body["usage"] = usage.to_json();
        body
    }

    /// The first piece of a stream; plain completions have none.
    #[must_use]
    pub fn opening(&self) -> Option<Value> {
        let delta = json!({"delta": {"role": "assistant", "content": ""}});
        (self.kind == Kind::Chat).then(|| self.piece(delta, None))
    }

    /// Some text.
    #[must_use]
    pub fn text(&self, text: &str) -> Value {
        match self.kind {
            Kind::Chat => self.piece(json!({"delta": {"content": text}}), None),
            _ => self.piece(json!({"text": text}), None),
        }
    }

    /// The end of the text.
    #[must_use]
    pub fn end(&self, finish_reason: &str) -> Value {
        match self.kind {
            Kind::Chat => self.piece(json!({"delta": {}}), Some(finish_reason)),
            _ => self.piece(json!({"text": ""}), Some(finish_reason)),
        }
    }

    /// The token counts, after the end.
    #[must_use]
    pub fn usage(&self, usage: Usage) -> Value {
        let mut body = self.head(self.piece_object());
        body["choices"] = json!([]);
        body["usage"] = usage.to_json();
        body
    }

    fn piece(&self, mut choice: Value, finish_reason: Option<&str>) -> Value {
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish_reason.into();
        let mut body = self.head(self.piece_object());
        body["choices"] = json!([choice]);
        body
    }

    fn piece_object(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "chat.completion.chunk",
            _ => "text_completion",
        }
    }

    fn head(&self, object: &str) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
        })
    }
}
