//! A streamed answer, put together event by event. Reads no clock: times are arguments.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::wire::{ReportedUsage, StreamChunk};
use crate::{Completion, LoadgenError};

/// The payload behind the last event.
const DONE: &str = "[DONE]";

/// The answer received so far.
#[derive(Default)]
pub(crate) struct StreamedAnswer {
    text: String,
    finish_reason: Option<String>,
    usage: Option<ReportedUsage>,
    first_content: Option<Instant>,
}

/// When an answer's request was sent and when its last event came.
#[derive(Clone, Copy)]
pub(crate) struct RequestInterval {
    pub(crate) sent: Instant,
    pub(crate) ended: Instant,
}

impl StreamedAnswer {
    /// Takes the payload of an event that arrived at `now`; breaks behind the last one.
    ///
    /// # Errors
    /// When the event reports an error or is no chunk.
    pub(crate) fn apply(
        &mut self,
        payload: &str,
        now: Instant,
    ) -> Result<ControlFlow<()>, LoadgenError> {
        // OpenAI ends a stream with this literal. It is not JSON, so the test comes before parsing.
        if payload == DONE {
            return Ok(ControlFlow::Break(()));
        }
        let chunk = StreamChunk::parse(payload)?;
        // Behind `include_usage` every chunk has the field; only a set one counts.
        self.usage = chunk.usage.or(self.usage);
        // No body asks for several answers (`n` is never sent), so the first choice has all the
        // text.
        if let Some(choice) = chunk.choices.into_iter().next() {
            let finish_reason = choice.finish_reason.clone();
            // A later chunk (the one with the usage, say) has no reason and must not clear an
            // earlier one.
            self.finish_reason = finish_reason.or(self.finish_reason.take());
            // The first event often names the role with an empty text; `content` drops it, so it
            // starts no TTFT.
            if let Some(content) = choice.content() {
                self.first_content.get_or_insert(now);
                self.text.push_str(&content);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The whole answer, timed. An answer without any text has its TTFT at its end.
    ///
    /// # Errors
    /// [`LoadgenError::Malformed`] when the end or the usage is missing, or the counts cannot be.
    pub(crate) fn finish(
        self,
        span: RequestInterval,
        replica: Option<String>,
    ) -> Result<Completion, LoadgenError> {
        let malformed = |reason| Err(LoadgenError::Malformed { reason });
        // A body can end cleanly without `[DONE]`; the missing reason then shows that it was cut.
        let Some(finish_reason) = self.finish_reason else {
            return malformed("it ended before any `finish_reason`".to_owned());
        };
        let Some(usage) = self.usage else {
            let reason = "it has no `usage`; does the server honour `stream_options`?";
            return malformed(reason.to_owned());
        };
        let (prompt_tokens, cached_tokens) = (usage.prompt_tokens, usage.cached_tokens());
        // Callers subtract the one from the other, so a server's nonsense must stop here.
        if cached_tokens > prompt_tokens {
            return malformed(format!(
                "{cached_tokens} of {prompt_tokens} prompt tokens are said to be cached"
            ));
        }
        Ok(Completion {
            text: self.text,
            // Both instants were read after `sent`, so neither subtraction can underflow.
            ttft: self.first_content.unwrap_or(span.ended) - span.sent,
            e2e: span.ended - span.sent,
            ended: span.ended,
            prompt_tokens,
            cached_tokens,
            output_tokens: usage.completion_tokens,
            finish_reason,
            replica,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const USAGE: &str = r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4}}}"#;

    /// Event i arrives i + 1 milliseconds after sending. `expected`: text, TTFT in ms, cached
    /// tokens; or a part of the error.
    fn check(events: &[&str], expected: Result<(&str, u64, u32), &str>) {
        let sent = Instant::now();
        let mut ended = sent;
        let mut answer = StreamedAnswer::default();
        let applied = events.iter().try_for_each(|event| {
            ended += Duration::from_millis(1);
            answer.apply(event, ended).map(drop)
        });
        let got = applied.and_then(|()| answer.finish(RequestInterval { sent, ended }, None));
        match (got, expected) {
            (Ok(got), Ok((text, ttft_ms, cached_tokens))) => {
                assert_eq!(got.text, text);
                assert_eq!(got.ttft, Duration::from_millis(ttft_ms));
                assert_eq!(got.e2e, Duration::from_millis(events.len() as u64));
                assert_eq!(got.ended, ended);
                assert_eq!(got.cached_tokens, cached_tokens);
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    fn content(text: &str) -> String {
        format!(r#"{{"choices": [{{"delta": {{"content": "{text}"}}}}], "usage": null}}"#)
    }

    const END: &str = r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#;

    #[test]
    fn the_first_token_is_the_first_text() {
        let role = r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#;
        let (a, b) = (content("a"), content("b"));
        check(&[role, &a, &b, END, USAGE, DONE], Ok(("ab", 2, 4)));
        check(&[role, END, USAGE, DONE], Ok(("", 4, 4)));
        let plain = r#"{"choices": [{"text": "c", "finish_reason": null}], "usage": null}"#;
        let plain_end = r#"{"choices": [{"text": "", "finish_reason": "length"}]}"#;
        check(&[plain, plain_end, USAGE, DONE], Ok(("c", 1, 4)));
        let silent = r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}"#;
        check(&[&a, END, silent], Ok(("a", 1, 0)));
    }

    #[test]
    fn an_incomplete_answer_is_none() {
        let a = content("a");
        check(&[&a, USAGE, DONE], Err("finish_reason"));
        check(&[&a, END, DONE], Err("usage"));
        check(&[], Err("finish_reason"));
        check(&[&a, "<html>"], Err("no completion chunk"));
        check(&[&a, r#"{"error": {"message": "oom"}}"#], Err("oom"));
        let odd = USAGE.replace("\"cached_tokens\": 4", "\"cached_tokens\": 10");
        check(&[&a, END, &odd], Err("10 of 9"));
    }
}
