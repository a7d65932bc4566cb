//! The items of a request's `input` as messages in OpenAI's chat form. vLLM makes the same ones:
//! reasoning, text and calls that follow each other are one answer.

use serde_json::{Value, json};

use crate::conversation::{text_message, tool_call, tool_result};
use crate::openai::ApiError;
use crate::openai::messages::{argument_object, flat_content};

/// Adds the messages of `input`, a string or an array of items.
///
/// # Errors
/// When an item is of a kind that is not supported, or lacks what its kind needs.
pub(super) fn push_input(list: &mut Vec<Value>, input: Value) -> Result<(), ApiError> {
    match input {
        Value::String(text) => list.push(text_message("user", &text)),
        Value::Array(items) => {
            for (index, item) in items.into_iter().enumerate() {
                push_item(list, item, &format!("input[{index}]"))?;
            }
        }
        _ => {
            let error = "`input` must be a string or an array of items";
            return Err(ApiError::invalid("input", error));
        }
    }
    Ok(())
}

fn push_item(list: &mut Vec<Value>, mut item: Value, at: &str) -> Result<(), ApiError> {
    let kind = item["type"].as_str().unwrap_or("message").to_owned();
    match &kind[..] {
        "message" => {
            let role = field(&item, "role", at)?.to_owned();
            let text = flat_content(item["content"].take(), at)?;
            if role == "assistant" {
                set_or_push(list, "content", text.into());
            } else {
                list.push(text_message(&role, &text));
            }
        }
        "function_call" | "custom_tool_call" => {
            let arguments = match &kind[..] {
                "function_call" => argument_object(item["arguments"].take()),
                // As the tool was shown to the model: a function with one text.
                _ => json!({"input": item["input"].as_str().unwrap_or_default()}),
            };
            let (id, name) = (field(&item, "call_id", at)?, field(&item, "name", at)?);
            push_call(list, tool_call(id, name, arguments));
        }
        "function_call_output" | "custom_tool_call_output" => {
            let text = match item["output"].take() {
                Value::Null => String::new(),
                output => flat_content(output, at)?,
            };
            list.push(tool_result(field(&item, "call_id", at)?, &text));
        }
        "reasoning" => {
            if let Some(text) = reasoning_text(&item) {
                set_or_push(list, "reasoning", text.into());
            }
        }
        _ => return Err(ApiError::unsupported(&format!("{at}: {kind}"), "")),
    }
    Ok(())
}

fn field<'a>(item: &'a Value, name: &str, at: &str) -> Result<&'a str, ApiError> {
    item[name].as_str().ok_or_else(|| {
        let at = format!("{at}.{name}");
        ApiError::invalid(&at, format!("`{at}` must be a string"))
    })
}

/// The text of a reasoning item. One that only its maker can read (`encrypted_content`) has none.
fn reasoning_text(item: &Value) -> Option<String> {
    let texts = |name: &str| {
        let parts = item[name].as_array().into_iter().flatten();
        let texts = parts.filter_map(|part| part["text"].as_str());
        texts.collect::<Vec<_>>().join("\n")
    };
    let text = Some(texts("content")).filter(|text| !text.is_empty());
    text.or_else(|| Some(texts("summary"))).filter(|text| !text.is_empty())
}

/// Sets `name` of the answer that the list ends with, unless it has one; else adds an answer.
fn set_or_push(list: &mut Vec<Value>, name: &str, value: Value) {
    if let Some(last) = last_answer(list)
        && last[name].as_str().is_none_or(str::is_empty)
        && (name == "content" || last["content"] == "")
        && last["tool_calls"].is_null()
    {
        last[name] = value;
        return;
    }
    let mut answer = text_message("assistant", "");
    answer[name] = value;
    list.push(answer);
}

fn push_call(list: &mut Vec<Value>, call: Value) {
    if last_answer(list).is_none() {
        list.push(text_message("assistant", ""));
    }
    if let Some(answer) = last_answer(list) {
        match answer["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => answer["tool_calls"] = json!([call]),
        }
    }
}

fn last_answer(list: &mut [Value]) -> Option<&mut Value> {
    list.last_mut().filter(|last| last["role"] == "assistant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: Value, expected: Value) {
        let mut list = Vec::new();
        push_input(&mut list, input).expect("an input");
        assert_eq!(Value::from(list), expected);
    }

    #[test]
    fn texts_are_messages() {
        check(json!("hi"), json!([{"role": "user", "content": "hi"}]));
        let input = json!([
            {"role": "developer", "content": "be kind"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"},
            ]},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        ]);
        check(
            input,
            json!([
                {"role": "developer", "content": "be kind"},
                {"role": "user", "content": "a\nb"},
                {"role": "assistant", "content": "c"},
            ]),
        );
    }

    #[test]
    fn an_answer_is_one_message_with_its_calls() {
        let call = |id: &str| {
            json!({"type": "function_call", "call_id": id, "name": "f",
                   "arguments": "{\"x\": 1}"})
        };
        let output =
            |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "sunny"});
        let input = json!([
            {"role": "user", "content": "weather?"},
            {"type": "reasoning", "id": "rs_1", "summary": [],
             "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"role": "assistant", "content": "I look."},
            call("1"), call("2"), output("1"), output("2"),
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "zzz"},
            {"type": "custom_tool_call", "call_id": "3", "name": "p", "input": "text"},
        ]);
        let read = |id: &str| {
            json!({"id": id, "type": "function",
                   "function": {"name": "f", "arguments": {"x": 1}}})
        };
        check(
            input,
            json!([
                {"role": "user", "content": "weather?"},
                {"role": "assistant", "content": "I look.", "reasoning": "hm",
                 "tool_calls": [read("1"), read("2")]},
                {"role": "tool", "tool_call_id": "1", "content": "sunny"},
                {"role": "tool", "tool_call_id": "2", "content": "sunny"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "3", "type": "function",
                     "function": {"name": "p", "arguments": {"input": "text"}}},
                ]},
            ]),
        );
    }

    #[test]
    fn what_is_no_text_is_refused_by_name() {
        let refused = |input: Value| {
            let error = push_input(&mut Vec::new(), input).expect_err("refused");
            error.param.expect("a name")
        };
        let image = json!([{"role": "user", "content": [{"type": "input_image"}]}]);
        assert_eq!(refused(image), "input[0].content: input_image");
        let reference = json!([{"type": "item_reference", "id": "x"}]);
        assert_eq!(refused(reference), "input[0]: item_reference");
        assert_eq!(refused(json!([{"content": "x"}])), "input[0].role");
        assert_eq!(refused(json!(5)), "input");
    }
}
