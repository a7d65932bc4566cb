//! Compares prompts with what the engines make of them; see [`crate::drift`].

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Release};

use std::time::Duration;

use bytes::Bytes;
use headstart_core::TokenId;
use serde_json::Value;

use super::HttpGateway;
use crate::drift::{Difference, Subject, TokenComparison};

/// Longest wait for an engine to tokenize a prompt for a comparison, which no request waits for.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(10);

/// A prompt that was sent, to be compared.
pub struct Comparison {
    /// The prompt's tokens as made by this gateway.
    pub tokens: Vec<TokenId>,
    /// The engine's count of them, where it told.
    pub counted: Option<usize>,
    /// The path of the request.
    pub path: String,
    /// Its body.
    pub body: Bytes,
}

impl HttpGateway {
    /// Compares a prompt's tokens with the engine's where that is due. No request waits for it, and
    /// it is skipped while another comparison runs.
    pub fn self_check(
        self: &Arc<Self>,
        subject: Subject,
        counts_differ: bool,
        make: impl FnOnce() -> Comparison,
    ) {
        // A question that another one keeps from being asked stays due.
        if self.is_comparing.swap(true, AcqRel) {
            return;
        }
        let turn = ComparisonGuard(self.clone());
        if !(self.drift).is_due(&subject, counts_differ, self.clock.now()) {
            return;
        }
        // The tokens and the body are copied only now: most requests are not compared.
        let comparison = make();
        tokio::spawn(async move { turn.0.compare(subject, comparison).await });
    }

    async fn compare(&self, subject: Subject, comparison: Comparison) {
        let Comparison { tokens, counted, path, body } = comparison;
        let (model, replica, shape) = &subject;
        let Some(upstream) = self.upstream(*replica) else {
            return;
        };
        let theirs = upstream.render(&path, &body, COMPARE_TIMEOUT).await;
        let theirs = theirs.map(|rendered| rendered.tokens);
        let verdict = match (TokenComparison::of(&tokens, theirs.as_deref()), counted) {
            // An engine that does not tell its tokens still counted them.
            (TokenComparison::Unavailable, Some(count)) if count != tokens.len() => {
                // Without the engine's ids only the lengths differ. The prompts part at the end of
                // the shorter one at the latest.
                TokenComparison::Differs(Difference {
                    position: count.min(tokens.len()),
                    ours: None,
                    theirs: None,
                })
            }
            (verdict, _) => verdict,
        };
        let labels = [&model[..], &replica.to_string(), verdict.name()];
        self.metrics.index.drift_checks.with_label_values(&labels).inc();
        if let Some(difference) = self.drift.note(&subject, verdict) {
            // Its token ids would tell a piece of the prompt.
            let position = difference.position;
            let text = |tokens: &[TokenId]| self.prompt_tokens()?.text_of(tokens);
            let (ours_text, theirs_text) = (text(&tokens), text(&theirs.unwrap_or_default()));
            // Only the text in front of the difference is looked at, to find the message that it is
            // in.
            let before = text(&tokens[..position.min(tokens.len())]);
            tracing::warn!(
                model,
                %replica,
                %shape,
                position,
                num_tokens = counted.unwrap_or(tokens.len()),
                part = part_behind(&before.unwrap_or_default(), &body),
                reason = if ours_text.is_some() && ours_text == theirs_text {
                    "the tokenizer splits the same text otherwise"
                } else {
                    "the chat template, or what prepares requests for it, writes another text"
                },
                "the engine makes other tokens of such requests than its tokenizer= does; they are \
                 routed by the engine's tokens instead. Give the gateway the tokenizer and chat \
                 template that the engine uses"
            );
        }
    }
}

/// The one comparison that may run; over when dropped, however it ended.
struct ComparisonGuard(Arc<HttpGateway>);

impl Drop for ComparisonGuard {
    fn drop(&mut self) {
        self.0.is_comparing.store(false, Release);
    }
}

/// Characters of a message by which it is found in a prompt.
const FOUND_BY: usize = 40;

/// The part of a request that the end of `before`, the beginning of its prompt, belongs to.
fn part_behind(before: &str, body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = body["messages"].as_array().or(body["input"].as_array());
    // Each search starts after the message before it, so two equal messages have two places.
    let (mut rest, mut last) = (before, None);
    for (number, message) in messages.into_iter().flatten().enumerate() {
        let content = &message["content"];
        let text = content.as_str().or(content[0]["text"].as_str()).unwrap_or_default();
        // The beginning is enough to find it, and templates may trim messages.
        let begin: String = text.trim().chars().take(FOUND_BY).collect();
        if !begin.is_empty()
            && let Some(place) = rest.find(&begin)
        {
            rest = &rest[place + begin.len()..];
            last = Some((number, message["role"].as_str().unwrap_or("message")));
        }
    }
    match last {
        Some((number, role)) => format!("in or behind message {number} ({role})"),
        None => "in front of the first message: tools, or the template's own text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_part_that_differs_is_found_by_messages() {
        let body = json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
            {"role": "user", "content": "Weather?"},
        ]});
        let part = |before: &str| part_behind(before, body.to_string().as_bytes());
        assert!(part("<|im_start|>tools").starts_with("in front of the first message"));
        assert_eq!(part("<s>Be brief.</s>"), "in or behind message 0 (system)");
        assert_eq!(part("Be brief. Weather? x"), "in or behind message 1 (user)");
        assert_eq!(part("Be brief. Weather? Weather?"), "in or behind message 2 (user)");
        assert!(part_behind("x", b"{").starts_with("in front"));
    }
}
