//! Usage in an engine's answer: prompt, cached and completion tokens; and how the answer ended.

mod end;

use headstart_core::FinishKind;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest line of a stream that is read. The last event of `/v1/responses` repeats the whole
/// answer, its instructions and its tools beside the usage.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Longest id of an answer that is kept.
const ID_BYTES_MAX: usize = 200;

/// Marker of a line with usage, searched for before the line is parsed.
const MARK: &[u8] = b"\"usage\"";

/// Places in a usage of the prompt's tokens, those cached and stored, and those of the answer: in
/// OpenAI's chats and completions, in its Responses API, and in Anthropic's Messages API.
const CHAT: [&str; 4] = [
    "/prompt_tokens",
    "/prompt_tokens_details/cached_tokens",
    "/prompt_tokens_details/created_cache_tokens",
    "/completion_tokens",
];
const RESPONSES: [&str; 4] = [
    "/input_tokens",
    "/input_tokens_details/cached_tokens",
    "/input_tokens_details/cache_write_tokens",
    "/output_tokens",
];
const MESSAGES: [&str; 4] =
    ["/input_tokens", "/cache_read_input_tokens", "/cache_creation_input_tokens", "/output_tokens"];

/// The engine's own count of a prompt, and the end of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EngineUsage {
    /// Prompt tokens.
    pub(super) prompt_tokens: Option<usize>,
    /// Prompt tokens taken from its cache.
    pub(super) cached_tokens: Option<usize>,
    /// Prompt tokens stored in its cache.
    pub(super) created_tokens: Option<usize>,
    /// Tokens of the answer.
    pub(super) completion_tokens: Option<usize>,
    /// The end of the answer.
    pub(super) finish: FinishKind,
}

/// Of an answer or an event, what is of interest. Anthropic's `message_start` has it one level
/// below in `message`, and the events of `/v1/responses` in `response`.
#[derive(Default, Deserialize)]
struct UsageEnvelope<'a> {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    usage: Value,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

impl UsageEnvelope<'_> {
    /// From JSON; of anything else nothing.
    fn of(json: &[u8]) -> Option<Self> {
        let answer: UsageEnvelope<'_> = serde_json::from_slice(json).ok()?;
        let inner = answer.message.or(answer.response);
        let inner =
            inner.and_then(|inner| serde_json::from_str::<UsageEnvelope<'_>>(inner.get()).ok());
        let (id, usage) = inner.map_or_else(Default::default, |inner| (inner.id, inner.usage));
        let or = |value: Value, other: Value| if value.is_null() { other } else { value };
        let (id, usage) = (or(answer.id, id), or(answer.usage, usage));
        Some(UsageEnvelope { id, usage, ..UsageEnvelope::default() })
    }
}

impl EngineUsage {
    /// Of a whole answer as JSON, with its id; of anything else none.
    pub(super) fn of_answer(json: &[u8]) -> (Self, Option<String>) {
        let answer = UsageEnvelope::of(json).unwrap_or_default();
        let usage = Self { finish: end::of(json), ..Self::of(&answer.usage) };
        (usage, answer_id(&answer))
    }

    fn of(usage: &Value) -> Self {
        // `prompt_tokens` is the word of OpenAI's chats and completions, `input_tokens_details`
        // that of its Responses API. The third form is Anthropic's.
        let is_chat = usage.get("prompt_tokens").is_some();
        let found = if is_chat {
            Self::read(usage, CHAT)
        } else if usage.get("input_tokens_details").is_some() {
            Self::read(usage, RESPONSES)
        } else {
            Self::of_messages(usage)
        };
        found.possible()
    }

    /// The same with the cached tokens that a header says, or none.
    pub(super) fn with_cached(self, cached_tokens: Option<usize>) -> Self {
        Self { cached_tokens, ..self }.possible()
    }

    /// An engine that found more than there was says nothing that can be counted.
    fn possible(self) -> Self {
        let is_possible = |part: &usize| self.prompt_tokens.is_none_or(|all| *part <= all);
        Self {
            cached_tokens: self.cached_tokens.filter(is_possible),
            created_tokens: self.created_tokens.filter(is_possible),
            ..self
        }
    }

    /// Anthropic's `input_tokens` are those that were neither read from the cache nor written to
    /// it: all three together are the prompt.
    fn of_messages(usage: &Value) -> Self {
        let found = Self::read(usage, MESSAGES);
        let parts = [found.cached_tokens, found.created_tokens].into_iter().flatten();
        let in_cache = parts.fold(0, usize::saturating_add);
        Self {
            prompt_tokens: found.prompt_tokens.map(|rest| rest.saturating_add(in_cache)),
            ..found
        }
    }

    fn read(usage: &Value, [prompt, cached, created, completion]: [&str; 4]) -> Self {
        Self {
            prompt_tokens: count(usage, prompt),
            cached_tokens: count(usage, cached),
            created_tokens: count(usage, created),
            completion_tokens: count(usage, completion),
            finish: FinishKind::Unknown,
        }
    }

    /// Merges the usage of a later event of the same stream. A later one without a prompt count
    /// changes only the completion tokens.
    fn then(self, later: Self) -> Self {
        // The end may come in an event before the one with the counts.
        let finish = self.finish;
        match later.prompt_tokens {
            Some(_) => Self { finish, ..later },
            None => Self {
                completion_tokens: later.completion_tokens.or(self.completion_tokens),
                ..self
            },
        }
    }
}

/// A count of tokens, if it is one. No prompt has as many as 32 bits can count, and sums of larger
/// numbers would overflow.
fn count(usage: &Value, place: &str) -> Option<usize> {
    u32::try_from(usage.pointer(place)?.as_u64()?).ok().map(|count| count as usize)
}

/// Whether a line has a usage that is an object: many events say that it is null.
fn has_usage(line: &[u8]) -> bool {
    memchr::memmem::find_iter(line, MARK).any(|at| {
        let behind = line[at + MARK.len()..].trim_ascii_start();
        let value = behind.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"{"))
    })
}

/// An answer's id, which engines keep short.
fn answer_id(answer: &UsageEnvelope<'_>) -> Option<String> {
    let id = answer.id.as_str().filter(|id| id.len() <= ID_BYTES_MAX);
    id.map(str::to_owned)
}

/// Finds the usage in a stream that passes by in pieces.
#[derive(Debug, Default)]
pub(super) struct UsageScan {
    line: Vec<u8>,
    is_too_long: bool,
    found: EngineUsage,
    id: Option<String>,
}

impl UsageScan {
    /// Looks at the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|&byte| byte == b'\n') {
            // A line beyond the limit is passed over to its end. The next one is read again.
            self.is_too_long |= self.line.len() + part.len() > LINE_BYTES_MAX;
            if !self.is_too_long {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Usage found so far; later events override earlier ones.
    pub(super) fn found(&self) -> EngineUsage {
        self.found
    }

    /// The answer's id, which every event of a stream has, or the first one.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn end_line(&mut self) {
        if !self.is_too_long
            && let Some(data) = self.line.strip_prefix(b"data:")
            && end::is_in(data)
        {
            // An event of another form says nothing.
            self.found.finish = match end::of(data) {
                FinishKind::Unknown => self.found.finish,
                finish => finish,
            };
        }
        let has_mark = has_usage(&self.line);
        // Every event is parsed until the id is known, and afterwards only those with a usage.
        let is_wanted = has_mark || self.id.is_none();
        if is_wanted
            && !self.is_too_long
            && let Some(data) = self.line.strip_prefix(b"data:")
            && let Some(event) = UsageEnvelope::of(data)
        {
            if has_mark {
                self.found = self.found.then(EngineUsage::of(&event.usage));
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

    const EXPECTED: EngineUsage = EngineUsage {
        prompt_tokens: Some(40),
        cached_tokens: Some(32),
        created_tokens: None,
        completion_tokens: Some(4),
        finish: FinishKind::Unknown,
    };

    /// The usage and the id that a stream of these events says.
    fn streamed(events: &[&str]) -> (EngineUsage, Option<String>) {
        let mut scan = UsageScan::default();
        for event in events {
            scan.feed(format!("event: x\ndata: {event}\n\n").as_bytes());
        }
        (scan.found(), scan.id().map(str::to_owned))
    }

    fn usage(prompt: usize, cached: usize, created: usize, completion: usize) -> EngineUsage {
        EngineUsage {
            prompt_tokens: Some(prompt),
            cached_tokens: Some(cached),
            created_tokens: Some(created),
            completion_tokens: Some(completion),
            finish: FinishKind::Unknown,
        }
    }

    #[test]
    fn anthropics_parts_are_added_up() {
        let body = r#"{"id": "msg_1", "usage": {"input_tokens": 3, "output_tokens": 5,
            "cache_read_input_tokens": 32, "cache_creation_input_tokens": 16}}"#;
        let (found, id) = EngineUsage::of_answer(body.as_bytes());
        assert_eq!((found, id.as_deref()), (usage(51, 32, 16, 5), Some("msg_1")));
        let start = r#"{"type":"message_start","message":{"id":"msg_2","usage":{"input_tokens":51,
            "output_tokens":0}}}"#
            .replace('\n', "");
        let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{
            "input_tokens":3,"output_tokens":5,"cache_read_input_tokens":32,
            "cache_creation_input_tokens":16}}"#
            .replace('\n', "");
        let (found, id) = streamed(&[&start, &delta]);
        let expected = EngineUsage { finish: FinishKind::Stop, ..usage(51, 32, 16, 5) };
        assert_eq!((found, id.as_deref()), (expected, Some("msg_2")));
        let start = r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1,
            "cache_read_input_tokens":2,"cache_creation_input_tokens":4,"output_tokens":1}}}"#
            .replace('\n', "");
        let delta = r#"{"type":"message_delta","usage":{"output_tokens":9}}"#;
        assert_eq!(streamed(&[&start, delta]).0, usage(7, 2, 4, 9));
    }

    #[test]
    fn the_last_event_of_a_response_has_its_usage() {
        let created = r#"{"type": "response.created", "response": {"id": "r1", "usage": null}}"#;
        let text =
            r#"{"type": "response.output_text.delta", "item_id": "i", "delta": "\"usage\":{"}"#;
        let end = r#"{"type": "response.completed", "response": {"id": "r1", "usage": {
            "input_tokens": 40, "input_tokens_details": {"cached_tokens": 32,
            "cache_write_tokens": 0}, "output_tokens": 4}}}"#
            .replace('\n', "");
        let (found, id) = streamed(&[created, text, &end]);
        assert_eq!((found, id.as_deref()), (usage(40, 32, 0, 4), Some("r1")));
        let whole = r#"{"id": "r1", "usage": {"input_tokens": 40, "output_tokens": 4,
            "input_tokens_details": {"cached_tokens": 32, "cache_write_tokens": 0}}}"#;
        assert_eq!(EngineUsage::of_answer(whole.as_bytes()).0, usage(40, 32, 0, 4));
        assert_eq!(streamed(&[created, text]).0, EngineUsage::default());
    }

    #[test]
    fn the_end_comes_before_the_counts() {
        let text = r#"{"choices":[{"delta":{"content":"so"},"finish_reason":null}]}"#;
        let end = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
        let counts = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
        let (found, _) = streamed(&[text, end, counts]);
        assert_eq!((found.finish, found.prompt_tokens), (FinishKind::ToolCalls, Some(9)));
        assert_eq!(streamed(&[text, counts]).0.finish, FinishKind::Unknown);
    }

    #[test]
    fn what_an_engine_stored_is_read() {
        let body = r#"{"usage": {"prompt_tokens": 9, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4, "created_cache_tokens": 5}}}"#;
        assert_eq!(EngineUsage::of_answer(body.as_bytes()).0, usage(9, 4, 5, 1));
    }

    #[test]
    fn the_usage_is_found_however_the_stream_is_cut() {
        for cut in 1..STREAM.len() {
            let mut scan = UsageScan::default();
            STREAM.as_bytes().chunks(cut).for_each(|piece| scan.feed(piece));
            assert_eq!(scan.found(), EXPECTED, "pieces of {cut}");
        }
    }

    #[test]
    fn a_line_without_end_costs_a_bounded_memory() {
        let mut scan = UsageScan::default();
        for _ in 0..1000 {
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
            let (usage, _) = EngineUsage::of_answer(json.as_bytes());
            assert_eq!((usage.prompt_tokens, usage.cached_tokens), (prompt_tokens, cached_tokens));
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
        check(&found("18446744073709551615"), Some(3), None);
        let huge = r#"{"usage": {"prompt_tokens": 4294967296, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4294967297}}}"#;
        check(huge, None, None);
    }

    #[test]
    fn a_header_says_no_more_cached_tokens_than_the_prompt_has() {
        let body = r#"{"usage": {"prompt_tokens": 3}}"#;
        let (usage, _) = EngineUsage::of_answer(body.as_bytes());
        for (told, kept) in [(Some(3), Some(3)), (Some(4), None), (None, None)] {
            assert_eq!(usage.with_cached(told).cached_tokens, kept);
        }
    }
}
