//! Materialized prompts as JSON lines, for any client of OpenAI's API:
//!
//! ```text
//! {"custom_id": "request-0", "method": "POST", "url": "/v1/completions",
//!  "body": {"model": "m", "prompt": [701, …], "max_tokens": 30, "min_tokens": 30,
//!           "ignore_eos": true, "temperature": 0, "user": "session-4",
//!           "metadata": {"finish": "tool_calls"}},
//!  "arrival_s": 1.5, "session": 4}
//! ```
//!
//! The envelope is that of OpenAI's batch files, with the arrival and the session beside it;
//! `body` is what a server gets. `ignore_eos` and `min_tokens` are vLLM's and SGLang's names for
//! an answer that is exactly `max_tokens` long. `user` names the session, by which gateways keep
//! a conversation on one replica. `metadata.finish` is the recorded end of the answer, where the
//! trace has it: eviction policies learn from it, and a forced answer ends otherwise. Written only:
//! a run reads the trace and makes the same again.

use headstart_core::{FinishKind, TokenId};
use serde::Serialize;

use crate::materialize::TokenPrompt;

/// The body of `POST /v1/completions`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Body<'a> {
    /// The model's name in the API.
    pub model: &'a str,
    /// The prompt as token ids.
    pub prompt: &'a [TokenId],
    /// Longest answer, tokens.
    pub max_tokens: u32,
    /// Shortest answer, tokens.
    pub min_tokens: u32,
    /// Whether the end token is a token like others.
    pub ignore_eos: bool,
    /// 0: greedy.
    pub temperature: u32,
    /// The session, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The recorded end of the answer, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RecordedEnd>,
}

/// The recorded end of an answer, as a request's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedEnd {
    /// [`FinishKind::name`].
    pub finish: &'static str,
    /// [`ToolClass::number`](headstart_core::ToolClass::number); 0 without known tools.
    #[serde(skip_serializing_if = "is_zero")]
    pub tool: u8,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_zero(number: &u8) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct BatchLine<'a> {
    custom_id: String,
    method: &'static str,
    url: &'static str,
    body: Body<'a>,
    arrival_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
}

impl<'a> Body<'a> {
    /// Builds the body that sends `prompt` to a server of `model`.
    #[must_use]
    pub fn of(prompt: &'a TokenPrompt, model: &'a str) -> Self {
        Self {
            model,
            prompt: &prompt.tokens,
            max_tokens: prompt.output_tokens,
            min_tokens: prompt.output_tokens,
            ignore_eos: true,
            temperature: 0,
            user: prompt.session.map(|session| format!("session-{}", session.0)),
            metadata: (prompt.finish != FinishKind::Unknown)
                .then(|| RecordedEnd { finish: prompt.finish.name(), tool: prompt.tool.number() }),
        }
    }
}

/// The line of `prompt`, without its end.
#[must_use]
pub fn line(prompt: &TokenPrompt, model: &str) -> String {
    let line = BatchLine {
        custom_id: format!("request-{}", prompt.number),
        method: "POST",
        url: "/v1/completions",
        body: Body::of(prompt, model),
        arrival_s: prompt.arrival.0 as f64 / 1e9,
        session: prompt.session.map(|session| session.0),
    };
    serde_json::to_string(&line).expect("numbers and text are JSON")
}

#[cfg(test)]
mod tests {
    use headstart_core::{Nanos, SessionId, ToolClass};
    use serde_json::{Value, json};

    use super::*;

    fn check(session: Option<u64>, finish: FinishKind, envelope: &Value, body: &Value) {
        let prompt = TokenPrompt {
            number: 3,
            arrival: Nanos(1_500_000_000),
            session: session.map(SessionId),
            tokens: vec![700, 512],
            output_tokens: 9,
            finish,
            tool: ToolClass::default(),
            is_cut: false,
        };
        let mut expected = json!({
            "custom_id": "request-3", "method": "POST", "url": "/v1/completions",
            "body": {
                "model": "m", "prompt": [700, 512], "max_tokens": 9, "min_tokens": 9,
                "ignore_eos": true, "temperature": 0,
            },
            "arrival_s": 1.5,
        });
        let merge = |into: &mut Value, more: &Value| {
            for (name, value) in more.as_object().expect("an object") {
                into[name] = value.clone();
            }
        };
        merge(&mut expected, envelope);
        merge(&mut expected["body"], body);
        let line = line(&prompt, "m");
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), expected);
    }

    #[test]
    fn a_line_holds_a_body_that_can_be_posted() {
        check(None, FinishKind::Unknown, &json!({}), &json!({}));
        let more = json!({"user": "session-4", "metadata": {"finish": "stop"}});
        check(Some(4), FinishKind::Stop, &json!({"session": 4}), &more);
    }
}
