//! Responses of the Messages API.
//!
//! ```text
//! message_start · content_block_start · content_block_delta … · content_block_stop ·
//! message_delta (why it ended, counts) · message_stop
//! ```
//!
//! Counts in Anthropic's meaning: `cache_read_input_tokens` were found in the cache,
//! `cache_creation_input_tokens` were computed and are now in cached blocks, and `input_tokens` is
//! the rest: the prompt's last, incomplete block. The three add up to the prompt.

use serde_json::{Value, json};

use crate::answer::Finish;
use crate::openai::ApiError;
use crate::shape::{AnswerWriter, Events, Usage};

/// One answer of `/v1/messages`: a message with one text block.
#[derive(Clone, Debug)]
pub struct MessageShape {
    /// The answer's id.
    pub id: String,
    /// The model's name.
    pub model: String,
}

impl MessageShape {
    fn message(&self, content: Value, finish: Option<&Finish>, usage: Usage) -> Value {
        let (reason, sequence) = finish.map_or((None, None), stop_reason);
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": reason, "stop_sequence": sequence,
            "usage": usage_json(usage),
        })
    }
}

impl AnswerWriter for MessageShape {
    fn open(&mut self, usage: Usage, events: &mut Events) {
        let message = self.message(json!([]), None, usage);
        events.push_named(&json!({"type": "message_start", "message": message}));
        events.push_named(&json!({
            "type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""},
        }));
        events.push_named(&json!({"type": "ping"}));
    }

    fn text(&mut self, text: &str, _: Usage, events: &mut Events) {
        events.push_named(&json!({
            "type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text},
        }));
    }

    fn close(&mut self, finish: &Finish, usage: Usage, events: &mut Events) {
        let (reason, sequence) = stop_reason(finish);
        events.push_named(&json!({"type": "content_block_stop", "index": 0}));
        events.push_named(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage_json(usage),
        }));
        events.push_named(&json!({"type": "message_stop"}));
    }

    fn fail(&mut self, error: &ApiError, events: &mut Events) {
        events.push_named(&super::error::body(error));
    }

    fn whole(&mut self, text: &str, finish: &Finish, usage: Usage) -> String {
        let content = json!([{"type": "text", "text": text}]);
        self.message(content, Some(finish), usage).to_string()
    }
}

/// Anthropic's word for the end, and the stop string where there is one.
fn stop_reason(finish: &Finish) -> (Option<&str>, Option<&str>) {
    match finish {
        Finish::EndToken => (Some("end_turn"), None),
        Finish::StopString(text) => (Some("stop_sequence"), Some(text)),
        Finish::Length => (Some("max_tokens"), None),
    }
}

fn usage_json(usage: Usage) -> Value {
    let known = usage.cached + usage.created;
    json!({
        "input_tokens": usage.prompt.saturating_sub(known),
        "cache_creation_input_tokens": usage.created,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_counts_add_up_and_ends_have_anthropics_names() {
        let shape = || MessageShape { id: "msg_1".to_owned(), model: "m".to_owned() };
        let usage = Usage { prompt: 100, cached: 32, created: 64, completion: 5 };
        for (finish, reason, sequence) in [
            (Finish::EndToken, "end_turn", Value::Null),
            (Finish::Length, "max_tokens", Value::Null),
            (Finish::StopString("x".to_owned()), "stop_sequence", json!("x")),
        ] {
            let whole = shape().whole("hi", &finish, usage);
            let whole: Value = serde_json::from_str(&whole).expect("JSON");
            assert_eq!(
                (&whole["stop_reason"], &whole["stop_sequence"]),
                (&json!(reason), &sequence)
            );
            let expected = json!({
                "input_tokens": 4, "cache_creation_input_tokens": 64,
                "cache_read_input_tokens": 32, "output_tokens": 5,
            });
            assert_eq!(whole["usage"], expected);
        }
    }

    #[test]
    fn a_failure_ends_a_stream_with_an_error() {
        let mut events = Events::default();
        let mut shape = MessageShape { id: "msg_1".to_owned(), model: "m".to_owned() };
        shape.fail(&ApiError::replica_gone("gone"), &mut events);
        let expected = "event: error\ndata: {\"type\":\"error\",\"error\":\
                        {\"type\":\"overloaded_error\",\"message\":\"gone\",\
                        \"code\":\"replica_gone\",\"param\":null}}\n\n";
        assert_eq!(events.take(), expected);
    }
}
