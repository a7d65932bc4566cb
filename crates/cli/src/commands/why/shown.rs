//! Two prompts around the place where they part, as people and programs see them.

use std::ops::Range;

use headstart_core::shown::is_hidden;
use headstart_insight::Cause;

use super::walk::Prompt;

/// Characters shown in front of a change and behind it.
const CONTEXT_CHARS: usize = 60;

/// Longest change that people are shown in full, characters.
const CHANGE_CHARS: usize = 160;

/// The texts around a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// What stands in front of it, in both prompts alike or nearly.
    pub(crate) before: String,
    /// What stood there.
    pub(crate) old: String,
    /// What stands there.
    pub(crate) new: String,
    /// What follows in the newer prompt.
    pub(crate) after: String,
    /// What follows in the older one.
    old_after: String,
}

/// What kind of text a change is, for those who may not see it.
pub(crate) fn kind(cause: Option<Cause>) -> &'static str {
    match cause {
        Some(Cause::Clock) => "time-like",
        Some(Cause::Nonce) => "id-like",
        Some(Cause::WhiteSpace) => "white space",
        Some(Cause::ToolOrder) => "tools",
        Some(Cause::JsonKeys) => "JSON",
        Some(Cause::Thinking) => "thinking",
        Some(Cause::DocumentOrder) => "documents",
        Some(Cause::Template) => "markup",
        Some(Cause::Trimmed) => "messages",
        Some(Cause::Seam) | None => "text",
    }
}

impl Shown {
    /// The texts around `spans` of both prompts.
    pub(crate) fn of(old: &Prompt, new: &Prompt, spans: (Range<usize>, Range<usize>)) -> Self {
        let (old_span, new_span) = spans;
        Self {
            before: last(cut(&new.text, 0..new_span.start)).to_owned(),
            after: first(cut(&new.text, new_span.end..new.text.len())).to_owned(),
            old_after: first(cut(&old.text, old_span.end..old.text.len())).to_owned(),
            old: cut(&old.text, old_span).to_owned(),
            new: cut(&new.text, new_span).to_owned(),
        }
    }

    /// Lines that show both, one above the other, with the change marked.
    pub(crate) fn side_by_side(
        &self,
        old_name: &str,
        new_name: &str,
        kind: &str,
        show_text: bool,
    ) -> Vec<String> {
        let (old_name, new_name) = (visible(old_name), visible(new_name));
        let width = old_name.chars().count().max(new_name.chars().count());
        let sides = [
            (old_name, &self.old, &self.old_after),
            (new_name, &self.new, &self.after),
        ];
        let lines = sides.into_iter().flat_map(|(name, change, after)| {
            let change = match show_text {
                true => shortened(&visible(change)),
                false => redacted(change, kind),
            };
            let (before, after) = match show_text {
                true => (format!("…{}", visible(&self.before)), visible(after) + "…"),
                false => ("…".to_owned(), "…".to_owned()),
            };
            let indent = " ".repeat(before.chars().count());
            let caret = "^".repeat(change.chars().count().max(1));
            let marks = show_text.then(|| format!("  {:>width$} │ {indent}{caret}", ""));
            [
                Some(format!("  {name:>width$} │ {before}{change}{after}")),
                marks,
            ]
        });
        lines.flatten().collect()
    }
}

/// What stands for a text that may not be seen.
pub(crate) fn redacted(text: &str, kind: &str) -> String {
    match text.len() {
        0 => "[nothing]".to_owned(),
        bytes => format!("[redacted: {bytes} bytes, {kind}]"),
    }
}

/// The part of `text` in `range`; as much of it as there is, on boundaries of characters.
fn cut(text: &str, range: Range<usize>) -> &str {
    let boundary = |at: usize| {
        let at = at.min(text.len());
        (0..=at)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0)
    };
    let (start, end) = (boundary(range.start), boundary(range.end));
    &text[start..end.max(start)]
}

fn first(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(CONTEXT_CHARS)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

fn last(text: &str) -> &str {
    let start = text
        .char_indices()
        .rev()
        .nth(CONTEXT_CHARS - 1)
        .map_or(0, |(at, _)| at);
    &text[start..]
}

/// On one line, without what a terminal obeys and what nobody sees: one character each.
pub(crate) fn visible(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' => '⏎',
        '\t' => '⇥',
        '\r' => '␍',
        ' ' => ' ',
        wide if wide.is_whitespace() && !wide.is_control() => '⍽',
        hidden if is_hidden(hidden) => '·',
        other => other,
    };
    text.chars().map(shown).collect()
}

/// The start and the end of what is too long.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= CHANGE_CHARS {
        return text.to_owned();
    }
    let half = CHANGE_CHARS / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!("{head} … {tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(name: &str, text: &str) -> Prompt {
        Prompt {
            name: name.to_owned(),
            text: text.to_owned(),
            logged_tokens: None,
        }
    }

    fn shown() -> Shown {
        let old = prompt("a", "It is\n9:41 now.");
        let new = prompt("bcd", "It is\n11:02 now, or so.");
        Shown::of(&old, &new, (6..10, 6..11))
    }

    #[test]
    fn both_texts_stand_above_each_other_with_the_change_marked() {
        let lines = shown().side_by_side("a", "bcd", "time-like", true);
        assert_eq!(
            lines,
            [
                "    a │ …It is⏎9:41 now.…",
                "      │        ^^^^",
                "  bcd │ …It is⏎11:02 now, or so.…",
                "      │        ^^^^^",
            ]
        );
    }

    #[test]
    fn nothing_of_a_text_is_shown_unless_asked_for() {
        let lines = shown().side_by_side("a", "bcd", "time-like", false);
        assert_eq!(
            lines,
            [
                "    a │ …[redacted: 4 bytes, time-like]…",
                "  bcd │ …[redacted: 5 bytes, time-like]…",
            ]
        );
        assert_eq!(redacted("", "text"), "[nothing]");
        assert!(!lines.join("").contains("now"));
    }

    #[test]
    fn long_texts_and_other_characters_are_cut_well() {
        let long = "é".repeat(400);
        assert_eq!(first(&long).chars().count(), CONTEXT_CHARS);
        assert_eq!(last(&long).chars().count(), CONTEXT_CHARS);
        assert_eq!(shortened(&long).chars().count(), CHANGE_CHARS + 3);
        assert_eq!(cut("aé", 0..2), "a");
        assert_eq!(cut("aé", 5..9), "");
        assert_eq!(visible("a\tb\u{1b}[0m"), "a⇥b·[0m");
        assert_eq!(visible("10\u{A0}%\u{202E}x\u{2028}"), "10⍽%·x⍽");
    }
}
