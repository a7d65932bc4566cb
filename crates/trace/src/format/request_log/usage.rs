//! Token counts and the end of the answer, as the server reported them.

use headstart_core::{FinishKind, ToolClass};
use serde_json::Value;

use super::fields::RawFields;
use super::names::{
    ANSWERS, CACHE_READ, CACHE_WRITTEN, CACHED_TOKENS, CHOICES, DETAILS, FINISHES, INPUT_TOKENS,
    OUTPUT_TOKENS, PROMPT_TOKENS,
};

/// Tokens as the server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedUsage {
    pub(super) prompt: Option<u32>,
    pub(super) cached: Option<u32>,
    pub(super) output: Option<u32>,
}

/// The usage in `line`: its own, its answer's, or that of the answer in a batch's file.
pub(super) fn of(line: &RawFields<'_>) -> LoggedUsage {
    let [answer, body] = answers(line);
    let nested = [line, &answer, &body].map(|place| place.object("usage"));
    // Some logs have the counts beside the prompt, without a `usage`.
    let found = nested.iter().flatten().next().unwrap_or(line);
    counts(found)
}

/// The end of the answer in `line`.
pub(super) fn finish(line: &RawFields<'_>) -> FinishKind {
    let [answer, body] = answers(line);
    let reason = |fields: &RawFields<'_>| FINISHES.iter().find_map(|name| fields.name(name));
    let of_choice = |fields: &RawFields<'_>| {
        let choices = fields.list(CHOICES)?;
        let mut names = FINISHES.iter();
        names.find_map(|name| Some(choices.get(0)?.get(name)?.as_str()?.to_owned()))
    };
    let places = [line, &answer, &body];
    let found = places.into_iter().find_map(|place| reason(place).or_else(|| of_choice(place)));
    found.as_deref().map_or(FinishKind::Unknown, FinishKind::from_reason)
}

/// The tools that the answer in `line` calls: those of a chat completion's first choice, of a
/// response's output, or of a message's content.
pub(super) fn tool(line: &RawFields<'_>) -> ToolClass {
    let [answer, body] = answers(line);
    let names = [line, &answer, &body].into_iter().map(tool_names);
    let names = names.into_iter().find(|names| !names.is_empty()).unwrap_or_default();
    ToolClass::of_names(names.iter().map(String::as_str))
}

fn tool_names(answer: &RawFields<'_>) -> Vec<String> {
    let calls = |list: &Value, name: &str| -> Vec<String> {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(|call| Some(call.pointer(name)?.as_str()?.to_owned())).collect()
    };
    if let Some(choices) = answer.list(CHOICES) {
        let listed = choices.pointer("/0/message/tool_calls");
        return listed.map_or_else(Vec::new, |listed| calls(listed, "/function/name"));
    }
    // Other parts have no name.
    let parts = ["output", "content"].into_iter().find_map(|name| answer.list(name));
    parts.map_or_else(Vec::new, |parts| calls(&parts, "/name"))
}

/// The answer in `line`, and the answer's body in a batch's file. One that is absent has no fields.
fn answers<'a>(line: &RawFields<'a>) -> [RawFields<'a>; 2] {
    let answer = ANSWERS.iter().find_map(|name| line.object(name)).unwrap_or_default();
    let body = answer.object("body").unwrap_or_default();
    [answer, body]
}

fn counts(usage: &RawFields<'_>) -> LoggedUsage {
    let first = |names: &[&str]| names.iter().find_map(|name| usage.count(name));
    let details = DETAILS.iter().find_map(|name| usage.object(name));
    let cached = details.and_then(|details| details.count(CACHED_TOKENS));
    let prompt = PROMPT_TOKENS.iter().find_map(|name| {
        let count = usage.count(name)?;
        let beside: &[&str] =
            if *name == INPUT_TOKENS { &[CACHE_READ, CACHE_WRITTEN] } else { &[] };
        let beside = beside.iter().filter_map(|name| usage.count(name));
        Some(beside.fold(count, u32::saturating_add))
    });
    let cached = cached.or_else(|| first(&[CACHED_TOKENS, CACHE_READ]));
    LoggedUsage {
        prompt,
        // More than the whole prompt cannot be cached: such a count means something else.
        cached: cached.filter(|&cached| prompt.is_none_or(|prompt| cached <= prompt)),
        output: first(OUTPUT_TOKENS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: [Option<u32>; 3]) {
        let usage = of(&RawFields::parse(line).expect("an object"));
        assert_eq!([usage.prompt, usage.cached, usage.output], expected, "{line}");
    }

    #[test]
    fn every_dialect_is_understood() {
        let all = [Some(9), Some(4), Some(2)];
        let openai = r#"{"prompt_tokens": 9, "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 4}}"#;
        check(&format!(r#"{{"usage": {openai}}}"#), all);
        check(&format!(r#"{{"response": {{"usage": {openai}}}}}"#), all);
        check(&format!(r#"{{"response": {{"body": {{"usage": {openai}}}}}}}"#), all);
        check(openai, all);
        check(
            r#"{"usage": {"input_tokens": 9, "output_tokens": 2,
                "input_tokens_details": {"cached_tokens": 4}}}"#,
            all,
        );
        check(
            r#"{"usage": {"input_tokens": 3, "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 2, "output_tokens": 2}}"#,
            all,
        );
        check(r#"{"prompt_tokens": 9, "cached_tokens": 4, "output_tokens": 2}"#, all);
    }

    #[test]
    fn the_end_of_an_answer_is_found() {
        let kind = |line: &str| finish(&RawFields::parse(line).expect("an object"));
        let tool = FinishKind::ToolCalls;
        assert_eq!(kind(r#"{"finish_reason": "tool_calls"}"#), tool);
        assert_eq!(kind(r#"{"response": {"stop_reason": "tool_use"}}"#), tool);
        let chat = r#"{"choices": [{"message": {}, "finish_reason": "tool_calls"}]}"#;
        assert_eq!(kind(&format!(r#"{{"response": {chat}}}"#)), tool);
        assert_eq!(kind(&format!(r#"{{"response": {{"body": {chat}}}}}"#)), tool);
        for without in [r#"{"choices": []}"#, r#"{"choices": 7, "finish_reason": 3}"#] {
            assert_eq!(kind(without), FinishKind::Unknown, "{without}");
        }
    }

    #[test]
    fn called_tools_are_found() {
        let class = |line: &str| tool(&RawFields::parse(line).expect("an object"));
        let expected = ToolClass::of_names(["bash", "read"]);
        let call = |name: &str| format!(r#"{{"function": {{"name": "{name}"}}}}"#);
        let calls = format!("[{}, {}]", call("read"), call("bash"));
        let chat = format!(r#"{{"choices": [{{"message": {{"tool_calls": {calls}}}}}]}}"#);
        assert_eq!(class(&format!(r#"{{"response": {chat}}}"#)), expected);
        assert_eq!(class(&format!(r#"{{"response": {{"body": {chat}}}}}"#)), expected);
        let parts = r#"[{"type": "text", "text": "so"}, {"type": "tool_use", "name": "bash"},
            {"type": "tool_use", "name": "read"}]"#;
        assert_eq!(class(&format!(r#"{{"response": {{"content": {parts}}}}}"#)), expected);
        assert_eq!(class(&format!(r#"{{"response": {{"output": {parts}}}}}"#)), expected);
        let text = r#"{"choices": [{"message": {"content": "so", "tool_calls": null}}]}"#;
        for without in [text, r#"{"choices": 7}"#, r#"{"content": [3]}"#, "{}"] {
            assert_eq!(class(without), ToolClass::default(), "{without}");
        }
    }

    #[test]
    fn what_cannot_be_is_not_taken() {
        check(r#"{"usage": {"prompt_tokens": 9, "cached_tokens": 10}}"#, [Some(9), None, None]);
        check(r#"{"usage": "none", "response": 7}"#, [None; 3]);
        check(r#"{"usage": {"prompt_tokens": -1}}"#, [None; 3]);
    }
}
