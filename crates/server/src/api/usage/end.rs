//! The end of an engine's answer, in a whole answer or in an event of its stream.

use headstart_core::FinishKind;
use serde::Deserialize;
use serde_json::Value;

/// The end in each of the APIs: in a choice of a chat or completion, in a message of Anthropic's or
/// the delta that ends it, and as the status of a response.
#[derive(Default, Deserialize)]
struct EndEnvelope {
    // Flattening would copy the whole answer, which may be megabytes of embeddings.
    #[serde(default)]
    choices: Vec<EndedPart>,
    #[serde(default)]
    stop_reason: Value,
    #[serde(default)]
    delta: Option<EndedPart>,
    #[serde(default)]
    response: Option<EndedResponse>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    output: Vec<ResponseItem>,
}

#[derive(Default, Deserialize)]
struct EndedPart {
    #[serde(default)]
    finish_reason: Option<String>,
    /// Of vLLM's choices the token or text that ended them.
    #[serde(default)]
    stop_reason: Value,
}

#[derive(Default, Deserialize)]
struct EndedResponse {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    output: Vec<ResponseItem>,
}

#[derive(Deserialize)]
struct ResponseItem {
    #[serde(rename = "type", default)]
    kind: String,
}

/// Whether an event says how its answer ended: most have a null in that place.
pub(super) fn is_in(event: &[u8]) -> bool {
    let is_text = |at: usize, mark: &[u8]| {
        let behind = event[at + mark.len()..].trim_ascii_start();
        let value = behind.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"\""))
    };
    let reason: &[u8] = b"_reason\"";
    memchr::memmem::find_iter(event, reason).any(|at| is_text(at, reason))
        || memchr::memmem::find(event, b"\"response.completed\"").is_some()
        || memchr::memmem::find(event, b"\"response.incomplete\"").is_some()
}

/// The end that an answer or an event says; of anything else unknown.
pub(super) fn of(json: &[u8]) -> FinishKind {
    let Ok(answer) = serde_json::from_slice::<EndEnvelope>(json) else {
        return FinishKind::Unknown;
    };
    let parts = answer.choices.iter().chain(&answer.delta);
    let reasons =
        parts.filter_map(|part| part.finish_reason.as_deref().or(part.stop_reason.as_str()));
    match reasons.chain(answer.stop_reason.as_str()).next() {
        Some(reason) => FinishKind::from_reason(reason),
        None => {
            let itself = EndedResponse { status: answer.status, output: answer.output };
            of_response(&answer.response.unwrap_or(itself))
        }
    }
}

fn of_response(response: &EndedResponse) -> FinishKind {
    let calls = response.output.iter().any(|item| item.kind.ends_with("_call"));
    match response.status.as_deref() {
        Some("completed") if calls => FinishKind::ToolCalls,
        Some("completed") => FinishKind::Stop,
        // The only other reason is a filter of contents, which vLLM does not have.
        Some("incomplete") => FinishKind::Length,
        _ => FinishKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_says_how_an_answer_ends() {
        let check = |json: &str, expected| {
            assert!(is_in(json.as_bytes()) || json.contains("status"), "{json}");
            assert_eq!(of(json.as_bytes()), expected, "{json}");
        };
        check(r#"{"choices": [{"finish_reason": "length"}]}"#, FinishKind::Length);
        check(
            r#"{"choices": [{"finish_reason": "stop", "stop_reason": 128001}]}"#,
            FinishKind::Stop,
        );
        check(r#"{"type": "message", "stop_reason": "tool_use"}"#, FinishKind::ToolCalls);
        check(
            r#"{"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}"#,
            FinishKind::Length,
        );
        check(
            r#"{"type": "response.completed", "response": {"status": "completed",
                "output": [{"type": "reasoning"}, {"type": "function_call"}]}}"#,
            FinishKind::ToolCalls,
        );
        check(r#"{"status": "completed", "output": []}"#, FinishKind::Stop);
        check(r#"{"status": "incomplete"}"#, FinishKind::Length);
    }

    #[test]
    fn what_says_no_end_is_unknown() {
        let null =
            r#"{"choices": [{"delta": {"content": "\"_reason\":\"x"}, "finish_reason": null}]}"#;
        assert!(!is_in(null.as_bytes()));
        for json in [null, "[DONE]", "", "[]", r#"{"choices": 7}"#, r#"{"status": 3}"#] {
            assert_eq!(of(json.as_bytes()), FinishKind::Unknown, "{json}");
        }
    }
}
