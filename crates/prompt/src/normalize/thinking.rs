//! Earlier answers without what the model thought before them.

use serde_json::Value;

use super::{change_each, replace};

/// Tags that stand around thinking.
const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// Fields of a message that hold thinking.
const FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Drops the thinking of all earlier answers, also of those since the last question: only so is a
/// prompt's front the same whether another question followed or not. A model that thinks between
/// the calls of tools loses what it thought in between. A last message that is the beginning of an
/// answer stays: what stands there was put there for the model to go on from.
pub(super) fn drop(request: &mut Value) -> bool {
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    let Some((_, earlier)) = messages.and_then(|messages| messages.split_last_mut()) else {
        return false;
    };
    let answers = earlier.iter_mut().filter(|message| {
        let role = message.get("role").and_then(Value::as_str);
        role == Some("assistant")
    });
    change_each(answers, from_answer)
}

fn from_answer(answer: &mut Value) -> bool {
    let is_cut = match answer.get_mut("content") {
        Some(Value::String(text)) => from_text(text),
        Some(Value::Array(parts)) => from_parts(parts),
        _ => false,
    };
    let Some(fields) = answer.as_object_mut() else {
        return is_cut;
    };
    is_cut
        | change_each(FIELDS, |name| {
            // Other types are not understood here and stay.
            let value = fields.get(name);
            let is_known = value.is_some_and(|value| value.is_string() || value.is_null());
            is_known && fields.shift_remove(name).is_some()
        })
}

fn from_parts(parts: &mut Vec<Value>) -> bool {
    let mut changed = false;
    let is_text = |part: &Value| part.get("type").is_some_and(|kind| kind == "text");
    // Thinking comes before the answer, so only the first text can begin with it.
    if let Some(part) = parts.iter_mut().find(|part| is_text(part))
        && let Some(Value::String(text)) = part.get_mut("text")
    {
        changed |= from_text(text);
    }
    let before = parts.len();
    let is_thinking = |part: &Value| {
        let kind = part.get("type").and_then(Value::as_str);
        matches!(kind, Some("thinking" | "reasoning"))
    };
    // A message of nothing but thinking keeps it, or its content would be empty.
    if parts.iter().any(|part| !is_thinking(part)) {
        parts.retain(|part| !is_thinking(part));
    }
    changed | (parts.len() < before)
}

/// Blocks at the front of an answer, with the white space behind them.
fn from_text(text: &mut String) -> bool {
    let mut rest = text.as_str();
    while let Some(behind) = behind_block(rest) {
        rest = behind;
    }
    let rest = rest.to_owned();
    replace(text, Some(rest))
}

fn behind_block(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let (open, close) = TAGS.into_iter().find(|(open, _)| text.starts_with(open))?;
    let (_, rest) = text[open.len()..].split_once(close)?;
    Some(rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::super::{Normalizer, check};
    use serde_json::{Value, json};

    fn request(answer: Value) -> Value {
        json!({"messages": [
            {"role": "user", "content": "<think>mine</think> stays"},
            answer,
            {"role": "user", "content": "?"},
        ]})
    }

    #[test]
    fn thinking_goes_from_earlier_answers() {
        let check = |text: &str, expected: &str| {
            let answer = |text: &str| request(json!({"role": "assistant", "content": text}));
            check(Normalizer::Thinking, answer(text), answer(expected));
        };
        check("<think>\nHm.\n</think>\n\nYes.", "Yes.");
        check("<think>\n\n</think>\n\nYes.", "Yes.");
        check("<thinking>Hm.</thinking>\nYes.", "Yes.");
        check("<think>a</think><think>b</think>", "");
        check("Yes. <think>quoted</think>", "Yes. <think>quoted</think>");
        check("<think>never closed", "<think>never closed");
        check("  Yes.", "  Yes.");
    }

    #[test]
    fn fields_and_parts_go_too() {
        let with = json!({"role": "assistant", "reasoning_content": "Hm.", "content": "Yes."});
        let without = json!({"role": "assistant", "content": "Yes."});
        check(Normalizer::Thinking, request(with), request(without));
        let text = json!({"type": "text", "text": "Yes."});
        let parts = json!([{"type": "thinking", "thinking": "Hm.", "signature": "x"}, text]);
        let with = json!({"role": "assistant", "content": parts});
        let without = json!({"role": "assistant", "content": [text]});
        check(Normalizer::Thinking, request(with), request(without));
    }

    #[test]
    fn the_beginning_of_an_answer_stays() {
        let begun = json!({"messages": [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "<think>\n\n</think>\n\n"},
        ]});
        check(Normalizer::Thinking, begun.clone(), begun);
    }
}
