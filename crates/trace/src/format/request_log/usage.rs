//! Token counts that a server reported in its answer.

use super::fields::RawFields;

/// Tokens as the server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedUsage {
    pub(super) prompt: Option<u32>,
    pub(super) cached: Option<u32>,
    pub(super) output: Option<u32>,
}

/// The usage in `line`: its own, its answer's, or that of the answer in a batch's file.
pub(super) fn of(line: &RawFields<'_>) -> LoggedUsage {
    let names = ["response", "response_body", "responseBody"];
    let answer = names.iter().find_map(|name| line.object(name));
    let answer = answer.unwrap_or_default();
    let body = answer.object("body").unwrap_or_default();
    let nested = [line, &answer, &body].map(|place| place.object("usage"));
    // Some logs have the counts beside the prompt, without a `usage`.
    let found = nested.iter().flatten().next().unwrap_or(line);
    counts(found)
}

/// OpenAI's names, then those of its Responses API and of Anthropic, whose `input_tokens` leave
/// out what the cache served and what was written to it.
fn counts(usage: &RawFields<'_>) -> LoggedUsage {
    let details = ["prompt_tokens_details", "input_tokens_details"];
    let details = details.into_iter().find_map(|name| usage.object(name));
    let read = usage.count("cache_read_input_tokens");
    let written = usage.count("cache_creation_input_tokens");
    let cached = details.and_then(|details| details.count("cached_tokens"));
    let cached = cached.or_else(|| usage.count("cached_tokens")).or(read);
    let input = usage.count("input_tokens").map(|input| {
        // Anthropic counts these two beside `input_tokens`, not within it.
        let beside = [read, written].into_iter().flatten();
        beside.fold(input, u32::saturating_add)
    });
    // Langfuse's `usage` has shorter names.
    let prompt = usage.count("prompt_tokens").or(input);
    let prompt = prompt.or_else(|| usage.count("input"));
    let output = usage.count("completion_tokens");
    let output = output.or_else(|| usage.count("output_tokens"));
    LoggedUsage {
        prompt,
        // More than the whole prompt cannot be cached: such a count means something else.
        cached: cached.filter(|&cached| prompt.is_none_or(|prompt| cached <= prompt)),
        output: output.or_else(|| usage.count("output")),
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
    fn what_cannot_be_is_not_taken() {
        check(r#"{"usage": {"prompt_tokens": 9, "cached_tokens": 10}}"#, [Some(9), None, None]);
        check(r#"{"usage": "none", "response": 7}"#, [None; 3]);
        check(r#"{"usage": {"prompt_tokens": -1}}"#, [None; 3]);
    }
}
