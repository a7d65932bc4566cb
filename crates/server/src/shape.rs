//! Output formats of the APIs. The text, its end and its counts are the same for all; only the JSON
//! around them differs.

use serde_json::Value;

use crate::answer::Finish;
use crate::openai::ApiError;

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: usize,
    /// Of them, taken from the cache.
    pub cached: usize,
    /// Of them, computed and now in cached blocks; apart from `cached`. What is in neither is the
    /// prompt's last, incomplete block.
    pub created: usize,
    /// Answer tokens, the end token included.
    pub completion: usize,
}

impl Usage {
    /// Prompt and answer tokens.
    #[must_use]
    pub fn total(self) -> usize {
        self.prompt + self.completion
    }
}

/// Writes one answer, whole or as a stream of events. A stream is `open`, any number of `text`, and
/// then `close` or `fail`.
pub trait AnswerWriter: Send {
    /// Writes the start of a stream. The prompt's token counts are known by then.
    fn open(&mut self, usage: Usage, events: &mut Events);

    /// Some more text.
    fn text(&mut self, text: &str, usage: Usage, events: &mut Events);

    /// The regular end of a stream.
    fn close(&mut self, finish: &Finish, usage: Usage, events: &mut Events);

    /// The end of a stream that cannot be continued.
    fn fail(&mut self, error: &ApiError, events: &mut Events);

    /// The whole answer at once: the JSON of the response's body.
    fn whole(&mut self, text: &str, finish: &Finish, usage: Usage) -> String;
}

/// Server-sent events, ready to be written.
#[derive(Debug, Default)]
pub struct Events(String);

impl Events {
    /// Adds an event without a name.
    pub fn push(&mut self, data: &Value) {
        self.push_text(&data.to_string());
    }

    /// Adds an event without a name whose data is no JSON.
    pub fn push_text(&mut self, data: &str) {
        self.0.push_str("data: ");
        self.0.push_str(data);
        self.0.push_str("\n\n");
    }

    /// Adds an event that has its `type` as its name.
    pub fn push_named(&mut self, data: &Value) {
        self.0.push_str("event: ");
        self.0.push_str(data["type"].as_str().unwrap_or("message"));
        self.0.push('\n');
        self.push(data);
    }

    /// Takes what was added; empty when nothing was.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}
