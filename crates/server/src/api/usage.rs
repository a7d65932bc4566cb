//! What an engine says of a prompt in its answer: how long it was, and how much was cached.

use serde::Deserialize;
use serde_json::Value;

/// Longest line of a stream that is read; what is longer is an answer's text, not its usage.
const LINE_BYTES_MAX: usize = 256 << 10;

/// Longest id of an answer that is kept.
const ID_BYTES_MAX: usize = 200;

/// How the line with the usage is recognized before it is parsed.
const MARK: &[u8] = b"\"usage\":{";

/// The engine's own count of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Prompt tokens.
    pub(super) prompt_tokens: Option<usize>,
    /// Those of them that were taken from its cache.
    pub(super) cached_tokens: Option<usize>,
    /// Tokens of the answer.
    pub(super) completion_tokens: Option<usize>,
}

/// Of an answer, what is of interest.
#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    usage: Value,
}

impl Usage {
    /// Of a whole answer as JSON, with its id; of anything else none.
    pub(super) fn of_answer(json: &[u8]) -> (Self, Option<String>) {
        let answer: Answer = serde_json::from_slice(json).unwrap_or_default();
        (Self::of(&answer.usage), answer_id(&answer))
    }

    fn of(usage: &Value) -> Self {
        let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
        let prompt_tokens = count(&usage["prompt_tokens"]);
        let completion_tokens = count(&usage["completion_tokens"]);
        let cached_tokens = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        Self {
            prompt_tokens,
            // An engine that found more than there was says nothing that can be counted.
            cached_tokens: cached_tokens
                .filter(|cached| prompt_tokens.is_none_or(|all| *cached <= all)),
            completion_tokens,
        }
    }
}

/// An answer's id, which engines keep short.
fn answer_id(answer: &Answer) -> Option<String> {
    let id = answer.id.as_str().filter(|id| id.len() <= ID_BYTES_MAX);
    id.map(str::to_owned)
}

/// Finds the usage in a stream that passes by in pieces.
#[derive(Debug, Default)]
pub(super) struct UsageScan {
    line: Vec<u8>,
    is_too_long: bool,
    found: Usage,
    id: Option<String>,
}

impl UsageScan {
    /// Looks at the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|&byte| byte == b'\n') {
            self.is_too_long |= self.line.len() + part.len() > LINE_BYTES_MAX;
            if !self.is_too_long {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// What was found so far; the last one counts.
    pub(super) fn found(&self) -> Usage {
        self.found
    }

    /// The answer's id, which every event of a stream has.
    pub(super) fn take_id(&mut self) -> Option<String> {
        self.id.take()
    }

    fn end_line(&mut self) {
        let has_mark = self.line.windows(MARK.len()).any(|window| window == MARK);
        let is_wanted = has_mark || self.id.is_none();
        if is_wanted
            && !self.is_too_long
            && let Some(data) = self.line.strip_prefix(b"data:")
            && let Ok(event) = serde_json::from_slice::<Answer>(data)
        {
            if has_mark {
                self.found = Usage::of(&event.usage);
            }
            self.id = self.id.take().or_else(|| answer_id(&event));
        }
        self.line.clear();
        self.is_too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{ is a word\"}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":4,",
        "\"total_tokens\":44,\"prompt_tokens_details\":{\"cached_tokens\":32}}}\r\n\r\n",
        "data: [DONE]\n\n",
    );

    const EXPECTED: Usage = Usage {
        prompt_tokens: Some(40),
        cached_tokens: Some(32),
        completion_tokens: Some(4),
    };

    #[test]
    fn the_usage_is_found_however_the_stream_is_cut() {
        for cut in 1..STREAM.len() {
            let mut scan = UsageScan::default();
            STREAM
                .as_bytes()
                .chunks(cut)
                .for_each(|piece| scan.feed(piece));
            assert_eq!(scan.found(), EXPECTED, "pieces of {cut}");
        }
    }

    #[test]
    fn a_line_without_end_costs_a_bounded_memory() {
        let mut scan = UsageScan::default();
        for _ in 0..100 {
            scan.feed(&[b'x'; 10_000]);
        }
        assert!(scan.line.capacity() <= 2 * LINE_BYTES_MAX);
        scan.feed(b"\n");
        scan.feed(STREAM.as_bytes());
        assert_eq!(scan.found(), EXPECTED);
    }

    #[test]
    fn engines_may_say_less() {
        let check = |json: &str, prompt_tokens, cached_tokens| {
            let (usage, _) = Usage::of_answer(json.as_bytes());
            assert_eq!(
                (usage.prompt_tokens, usage.cached_tokens),
                (prompt_tokens, cached_tokens)
            );
        };
        check(r#"{"id": 1, "usage": {"prompt_tokens": 3}}"#, Some(3), None);
        check(r#"{"usage": null}"#, None, None);
        check("[]", None, None);
        check("<html>", None, None);
        let found = |cached: &str| {
            format!(
                r#"{{"usage": {{"prompt_tokens": 3,
                "prompt_tokens_details": {{"cached_tokens": {cached}}}}}}}"#
            )
        };
        check(&found("2"), Some(3), Some(2));
        check(&found("4"), Some(3), None);
    }
}
