//! Answers of the Responses API, whole or streamed.
//!
//! ```text
//! response.created · .in_progress · .output_item.added · .content_part.added ·
//! .output_text.delta … · .output_text.done · .content_part.done · .output_item.done ·
//! response.completed (or .incomplete where the limit ended it, or .failed)
//! ```

use std::sync::Arc;

use headstart_core::Nanos;
use serde_json::{Map, Value, json};

use super::{ResponseStore, StoredResponse};
use crate::answer::Finish;
use crate::conversation::text_message;
use crate::openai::ApiError;
use crate::shape::{AnswerWriter, Events, Usage};

/// One answer of `/v1/responses`: one message with one text.
#[derive(Debug)]
pub struct ResponseShape {
    /// The answer's id.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The fields of the request that its answer repeats.
    pub echo: Map<String, Value>,
    /// Store and context for the answer; `None` if the client does not want it kept.
    pub keeping: Option<Keeping>,
    /// Events and text streamed so far.
    pub progress: ResponseProgress,
}

/// Store of an answer, and the context to keep with it.
#[derive(Debug)]
pub struct Keeping {
    /// The store to write to.
    pub store: Arc<ResponseStore>,
    /// The messages before the answer.
    pub history: Vec<Value>,
    /// The conversation's session key.
    pub session: Option<String>,
    /// When the request arrived.
    pub now: Nanos,
}

/// Events and text streamed so far.
#[derive(Debug, Default)]
pub struct ResponseProgress {
    num_events: u64,
    text: String,
}

/// The state of a response and of its message.
#[derive(Clone, Copy, PartialEq)]
enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

impl ResponseStatus {
    fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

impl AnswerWriter for ResponseShape {
    fn open(&mut self, _: Usage, events: &mut Events) {
        for event in ["response.created", "response.in_progress"] {
            let response = self.response(ResponseStatus::InProgress, json!([]), None);
            self.push(event, json!({"response": response}), events);
        }
        let mut item = self.item(ResponseStatus::InProgress, "");
        // The part comes as an event of its own.
        item["content"] = json!([]);
        let added = json!({"output_index": 0, "item": item});
        self.push("response.output_item.added", added, events);
        let added = self.place(json!({"part": part("")}));
        self.push("response.content_part.added", added, events);
    }

    fn text(&mut self, text: &str, _: Usage, events: &mut Events) {
        self.progress.text.push_str(text);
        let delta = self.place(json!({"delta": text, "logprobs": []}));
        self.push("response.output_text.delta", delta, events);
    }

    fn close(&mut self, finish: &Finish, usage: Usage, events: &mut Events) {
        let text = std::mem::take(&mut self.progress.text);
        let status = status(finish);
        let done = self.place(json!({"text": text, "logprobs": []}));
        self.push("response.output_text.done", done, events);
        let done = self.place(json!({"part": part(&text)}));
        self.push("response.content_part.done", done, events);
        let item = self.item(status, &text);
        let done = json!({"output_index": 0, "item": item});
        self.push("response.output_item.done", done, events);
        let response = self.response(status, json!([item]), Some(usage));
        // Before the last event, because a client may continue the response as soon as it reads
        // that.
        self.keep(&text, &response);
        let name = format!("response.{}", status.name());
        self.push(&name, json!({"response": response}), events);
    }

    fn fail(&mut self, error: &ApiError, events: &mut Events) {
        let mut response = self.response(ResponseStatus::Failed, json!([]), None);
        response["error"] = json!({"code": "server_error", "message": error.message});
        self.push("response.failed", json!({"response": response}), events);
    }

    fn whole(&mut self, text: &str, finish: &Finish, usage: Usage) -> String {
        let status = status(finish);
        let output = json!([self.item(status, text)]);
        let response = self.response(status, output, Some(usage));
        self.keep(text, &response);
        response.to_string()
    }
}

impl ResponseShape {
    fn push(&mut self, kind: &str, mut data: Value, events: &mut Events) {
        data["type"] = kind.into();
        data["sequence_number"] = self.progress.num_events.into();
        self.progress.num_events += 1;
        events.push_named(&data);
    }

    /// `data` with the place in the answer that it is about.
    fn place(&self, mut data: Value) -> Value {
        data["item_id"] = self.item_id().into();
        data["output_index"] = 0.into();
        data["content_index"] = 0.into();
        data
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.id.trim_start_matches("resp_"))
    }

    fn item(&self, status: ResponseStatus, text: &str) -> Value {
        json!({
            "id": self.item_id(), "type": "message", "role": "assistant",
            "status": status.name(), "content": [part(text)],
        })
    }

    fn response(&self, status: ResponseStatus, output: Value, usage: Option<Usage>) -> Value {
        let is_incomplete = status == ResponseStatus::Incomplete;
        let incomplete = is_incomplete.then(|| json!({"reason": "max_output_tokens"}));
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created,
            "model": self.model, "status": status.name(), "error": null,
            "incomplete_details": incomplete, "output": output,
            "usage": usage.map(usage_json), "background": false, "service_tier": "default",
        });
        for (name, value) in &self.echo {
            response[name] = value.clone();
        }
        response
    }

    fn keep(&mut self, text: &str, response: &Value) {
        if let Some(keeping) = self.keeping.take() {
            let mut messages = keeping.history;
            messages.push(text_message("assistant", text));
            let stored =
                StoredResponse { response: response.clone(), messages, session: keeping.session };
            keeping.store.put(self.id.clone(), stored, keeping.now);
        }
    }
}

fn status(finish: &Finish) -> ResponseStatus {
    match finish {
        Finish::EndToken | Finish::StopString(_) => ResponseStatus::Completed,
        Finish::Length => ResponseStatus::Incomplete,
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cached, "cache_write_tokens": usage.created,
        },
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(store: &Arc<ResponseStore>) -> ResponseShape {
        ResponseShape {
            id: "resp_1".to_owned(),
            model: "m".to_owned(),
            created: 7,
            echo: Map::new(),
            keeping: Some(Keeping {
                store: store.clone(),
                history: vec![text_message("user", "hi")],
                session: None,
                now: Nanos(0),
            }),
            progress: ResponseProgress::default(),
        }
    }

    #[test]
    fn a_failed_response_says_so_and_is_not_kept() {
        let store = Arc::new(ResponseStore::default());
        let (mut shape, mut events) = (shape(&store), Events::default());
        shape.open(Usage::default(), &mut events);
        shape.text("par", Usage::default(), &mut events);
        events.take();
        shape.fail(&ApiError::replica_gone("gone"), &mut events);
        let event = events.take();
        let data = event.strip_prefix("event: response.failed\ndata: ");
        let data: Value = serde_json::from_str(data.expect("its name")).expect("JSON");
        assert_eq!(data["sequence_number"], 5);
        assert_eq!(data["response"]["status"], "failed");
        assert_eq!(data["response"]["error"]["message"], "gone");
        assert_eq!(store.get("resp_1", Nanos(0)), None);
    }

    #[test]
    fn a_kept_response_has_its_conversation() {
        let store = Arc::new(ResponseStore::default());
        let whole = shape(&store).whole("yes", &Finish::EndToken, Usage::default());
        let stored = store.get("resp_1", Nanos(0)).expect("kept");
        assert_eq!(stored.response.to_string(), whole);
        assert_eq!(stored.response["status"], "completed");
        let messages = [text_message("user", "hi"), text_message("assistant", "yes")];
        assert_eq!(stored.messages, messages);
    }
}
