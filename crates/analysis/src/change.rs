//! Two prompts around the place where they part.

use std::ops::Range;

use headstart_insight::Cause;

use crate::prompt::{PromptBody, PromptRecord};

/// Characters shown in front of a change and behind it.
const CONTEXT_CHARS: usize = 60;

/// Most bytes of a character.
const LETTER_BYTES: usize = 4;

/// Token ids shown in front of a change and behind it.
const CONTEXT_IDS: usize = 10;

/// Longest change that is kept as the example of a finding, bytes or token ids: a list of tools.
const EXAMPLE_MAX: usize = 64 << 10;

/// The texts around a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeContext {
    /// Text before the change, the same or nearly so in both prompts.
    pub before: String,
    /// Changed text of the earlier prompt.
    pub old: ChangedText,
    /// Changed text of the later prompt.
    pub new: ChangedText,
    /// Kind of the change, shown if the text is redacted.
    pub kind: &'static str,
    /// Unit of lengths: bytes, or token ids.
    pub unit: &'static str,
}

/// Changed text of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedText {
    /// The text; a very long one is cut.
    pub text: String,
    /// Length of the whole text.
    pub len: usize,
    /// Text after the change.
    pub after: String,
}

impl ChangeContext {
    /// The texts around `spans` of both prompts, which differ for `cause` if that is known.
    pub fn of(
        old: &PromptRecord,
        new: &PromptRecord,
        spans: (Range<usize>, Range<usize>),
        cause: Option<Cause>,
    ) -> Self {
        Self::with_most(old, new, spans, cause, usize::MAX)
    }

    /// The same of an example that is kept: a very long change is cut.
    pub(crate) fn example(
        old: &PromptRecord,
        new: &PromptRecord,
        spans: (Range<usize>, Range<usize>),
        cause: Option<Cause>,
    ) -> Self {
        Self::with_most(old, new, spans, cause, EXAMPLE_MAX)
    }

    fn with_most(
        old: &PromptRecord,
        new: &PromptRecord,
        spans: (Range<usize>, Range<usize>),
        cause: Option<Cause>,
        most: usize,
    ) -> Self {
        let (old_span, new_span) = spans;
        Self {
            before: last(&new.body, new_span.start),
            old: ChangedText::of(&old.body, old_span, most),
            new: ChangedText::of(&new.body, new_span, most),
            kind: match &new.body {
                PromptBody::Text(_) => cause.map_or("text", Cause::kind),
                PromptBody::Ids(_) => "tokens",
            },
            unit: new.body.unit(),
        }
    }
}

impl ChangedText {
    fn of(body: &PromptBody, span: Range<usize>, most: usize) -> Self {
        // `most` may be `usize::MAX`, so the sum saturates.
        let kept = span.start..span.end.min(span.start.saturating_add(most));
        Self { text: body.cut(kept).to_string(), len: span.len(), after: first(body, span.end) }
    }
}

/// Returns the excerpt of `body` from `at` onwards.
fn first(body: &PromptBody, at: usize) -> String {
    match body {
        PromptBody::Text(_) => {
            // This number of bytes holds the characters even if each has four; the surplus is
            // dropped below.
            let rest = body.cut(at..at + CONTEXT_CHARS * LETTER_BYTES).to_string();
            rest.chars().take(CONTEXT_CHARS).collect()
        }
        PromptBody::Ids(_) => match body.cut(at..at + CONTEXT_IDS).to_string() {
            ids if ids.is_empty() => ids,
            // A blank separates the ids of the excerpt from those of the change.
            ids => format!(" {ids}"),
        },
    }
}

/// Returns the excerpt of `body` up to `at`.
fn last(body: &PromptBody, at: usize) -> String {
    match body {
        PromptBody::Text(_) => {
            // The cut may begin inside a character; `cut` moves it to a boundary.
            let front = at.saturating_sub(CONTEXT_CHARS * LETTER_BYTES)..at;
            let front = body.cut(front).to_string();
            let left = front.chars().count().saturating_sub(CONTEXT_CHARS);
            front.chars().skip(left).collect()
        }
        PromptBody::Ids(_) => match body.cut(at.saturating_sub(CONTEXT_IDS)..at).to_string() {
            ids if ids.is_empty() => ids,
            ids => format!("{ids} "),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> PromptRecord {
        PromptRecord {
            name: String::new(),
            body: PromptBody::Text(text.to_owned()),
            logged_tokens: None,
        }
    }

    #[test]
    fn long_texts_and_other_characters_are_cut_well() {
        let long = text(&"é".repeat(400));
        assert_eq!(first(&long.body, 0).chars().count(), CONTEXT_CHARS);
        assert_eq!(last(&long.body, 400).chars().count(), CONTEXT_CHARS);
        let wide = text(&"🎉".repeat(400));
        assert_eq!(first(&wide.body, 4).chars().count(), CONTEXT_CHARS);
        assert_eq!(last(&wide.body, 400).chars().count(), CONTEXT_CHARS);
        let long = text(&"x".repeat(1 << 20));
        let whole = (0..1 << 20, 0..1 << 20);
        let kept = ChangeContext::example(&long, &long, whole, None);
        assert_eq!((kept.old.text.len(), kept.old.len), (EXAMPLE_MAX, 1 << 20));
    }
}
