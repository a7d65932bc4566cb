//! Two prompts around the place where they part, as people and programs see them.

use std::ops::Range;

use headstart_core::shown::is_hidden;
use headstart_insight::Cause;
use serde_json::{Value, json};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::prompt::{PromptBody, PromptRecord};
use crate::input::counted;
use crate::output::COLUMNS;

/// Characters shown in front of a change and behind it.
const CONTEXT_CHARS: usize = 60;

/// Most bytes of a character.
const LETTER_BYTES: usize = 4;

/// Token ids shown in front of a change and behind it.
const CONTEXT_IDS: usize = 10;

/// Columns of the spaces and the line around a name.
const FRAME: usize = 5;

/// Fewest columns for a text, however long the names are.
const ROOM_MIN: usize = 40;

/// Columns that a long change leaves for what is around it.
const CONTEXT_MIN: usize = 24;

/// Longest change that is kept as the example of a finding, bytes or token ids: a list of tools.
const EXAMPLE_MAX: usize = 64 << 10;

/// The texts around a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeContext {
    /// Text before the change, the same or nearly so in both prompts.
    before: String,
    old: ChangedText,
    new: ChangedText,
    /// Kind of the change, shown if the text is redacted.
    kind: &'static str,
    /// Unit of lengths.
    unit: &'static str,
}

/// Changed text of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChangedText {
    text: String,
    len: usize,
    /// Text after the change.
    after: String,
}

/// Returns the kind of the changed text, shown if the text is redacted.
fn kind(cause: Option<Cause>) -> &'static str {
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

impl ChangedText {
    fn of(body: &PromptBody, span: Range<usize>, most: usize) -> Self {
        let kept = span.start..span.end.min(span.start.saturating_add(most));
        Self {
            text: body.cut(kept).to_string(),
            len: span.len(),
            after: first(body, span.end),
        }
    }
}

impl ChangeContext {
    /// The texts around `spans` of both prompts, which differ for `cause` if that is known.
    pub(crate) fn of(
        old: &PromptRecord,
        new: &PromptRecord,
        spans: (Range<usize>, Range<usize>),
        cause: Option<Cause>,
    ) -> Self {
        Self::with_most((old, new), spans, cause, usize::MAX)
    }

    /// The same of an example that is kept: a very long change is cut.
    pub(crate) fn example(
        old: &PromptRecord,
        new: &PromptRecord,
        spans: (Range<usize>, Range<usize>),
        cause: Option<Cause>,
    ) -> Self {
        Self::with_most((old, new), spans, cause, EXAMPLE_MAX)
    }

    fn with_most(
        (old, new): (&PromptRecord, &PromptRecord),
        (old_span, new_span): (Range<usize>, Range<usize>),
        cause: Option<Cause>,
        most: usize,
    ) -> Self {
        Self {
            before: last(&new.body, new_span.start),
            old: ChangedText::of(&old.body, old_span, most),
            new: ChangedText::of(&new.body, new_span, most),
            kind: match &new.body {
                PromptBody::Text(_) => kind(cause),
                PromptBody::Ids(_) => "tokens",
            },
            unit: new.body.unit(),
        }
    }

    /// Fields for programs: texts only if they are to be shown, kind and lengths always.
    pub(crate) fn fields(&self, show_text: bool) -> [(&'static str, Value); 8] {
        let text = |text: &str| match show_text {
            true => json!(text),
            false => Value::Null,
        };
        [
            ("before", text(&self.before)),
            ("old", text(&self.old.text)),
            ("new", text(&self.new.text)),
            ("after", text(&self.new.after)),
            ("kind", json!(self.kind)),
            ("unit", json!(self.unit)),
            ("old_length", json!(self.old.len)),
            ("new_length", json!(self.new.len)),
        ]
    }

    /// The same fields, empty where nothing parts.
    pub(crate) fn fields_of(shown: Option<&Self>, show_text: bool) -> [(&'static str, Value); 8] {
        let names = [
            "before",
            "old",
            "new",
            "after",
            "kind",
            "unit",
            "old_length",
            "new_length",
        ];
        shown.map_or(names.map(|name| (name, Value::Null)), |it| {
            it.fields(show_text)
        })
    }

    /// Lines that show both, one above the other, with the change marked. With texts they fit a
    /// terminal, so that the marks stay below what they mark.
    pub(crate) fn side_by_side(
        &self,
        old_name: &str,
        new_name: &str,
        show_text: bool,
    ) -> Vec<String> {
        let (old_name, new_name) = (visible(old_name), visible(new_name));
        let width = old_name.width().max(new_name.width());
        let room = COLUMNS.saturating_sub(width + FRAME).max(ROOM_MIN);
        let changes = [&self.old, &self.new].map(|change| match show_text {
            true => shortened(&visible(&change.text), room - CONTEXT_MIN),
            false => self.redacted(change),
        });
        let longest = changes.iter().map(|text| text.width()).max();
        // Two ellipses.
        let context = room.saturating_sub(longest.unwrap_or_default() + 2);
        let before = match show_text {
            true => end(&visible(&self.before), context * 2 / 3),
            false => String::new(),
        };
        let sides = [(old_name, &self.old), (new_name, &self.new)];
        let lines = sides
            .into_iter()
            .zip(changes)
            .flat_map(|((name, change), text)| {
                let after = match show_text {
                    true => start(&visible(&change.after), context - before.width()),
                    false => String::new(),
                };
                let indent = " ".repeat(before.width() + 1);
                let caret = "^".repeat(text.width().max(1));
                let pad = " ".repeat(width - name.width());
                let marks = show_text.then(|| format!("  {:>width$} │ {indent}{caret}", ""));
                [
                    Some(format!("  {pad}{name} │ …{before}{text}{after}…")),
                    marks,
                ]
            });
        lines.flatten().collect()
    }

    /// Returns the placeholder for a redacted text.
    fn redacted(&self, change: &ChangedText) -> String {
        match (change.len, self.unit) {
            (0, _) => "[nothing]".to_owned(),
            (ids, "token ids") => format!("[redacted: {}]", counted(ids as u64, "token id")),
            (bytes, _) => {
                let bytes = counted(bytes as u64, "byte");
                format!("[redacted: {bytes}, {}]", self.kind)
            }
        }
    }
}

/// Returns the excerpt of `body` from `at` onwards.
fn first(body: &PromptBody, at: usize) -> String {
    match body {
        PromptBody::Text(_) => {
            let rest = body.cut(at..at + CONTEXT_CHARS * LETTER_BYTES).to_string();
            rest.chars().take(CONTEXT_CHARS).collect()
        }
        PromptBody::Ids(_) => match body.cut(at..at + CONTEXT_IDS).to_string() {
            ids if ids.is_empty() => ids,
            ids => format!(" {ids}"),
        },
    }
}

/// Returns the excerpt of `body` up to `at`.
fn last(body: &PromptBody, at: usize) -> String {
    match body {
        PromptBody::Text(_) => {
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

/// Returns `text` on one line, with one visible character for each control or hidden one.
fn visible(text: &str) -> String {
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

/// The start and the end of what is wider than `columns`.
fn shortened(text: &str, columns: usize) -> String {
    const GAP: &str = " … ";
    if text.width() <= columns {
        return text.to_owned();
    }
    let half = columns.saturating_sub(GAP.width()) / 2;
    start(text, half) + GAP + &end(text, half)
}

/// As much of the start as fits.
fn start(text: &str, columns: usize) -> String {
    fitting(text.chars(), columns).into_iter().collect()
}

/// As much of the end as fits.
fn end(text: &str, columns: usize) -> String {
    fitting(text.chars().rev(), columns)
        .into_iter()
        .rev()
        .collect()
}

fn fitting(characters: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut left = columns;
    let fits = |character: &char| {
        let width = character.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    characters.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(name: &str, body: PromptBody) -> PromptRecord {
        PromptRecord {
            name: name.to_owned(),
            body,
            logged_tokens: None,
        }
    }

    fn text(text: &str) -> PromptRecord {
        prompt("", PromptBody::Text(text.to_owned()))
    }

    fn shown() -> ChangeContext {
        let old = text("It is\n9:41 now.");
        let new = text("It is\n11:02 now, or so.");
        ChangeContext::of(&old, &new, (6..10, 6..11), Some(Cause::Clock))
    }

    #[test]
    fn both_texts_stand_above_each_other_with_the_change_marked() {
        let lines = shown().side_by_side("a", "bcd", true);
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

    /// A letter of Chinese takes two columns, an accent of its own none.
    #[test]
    fn carets_are_as_wide_as_the_text() {
        let old = text("時間は九時です");
        let new = text("時間は十一時e\u{301}です");
        let shown = ChangeContext::of(&old, &new, (9..12, 9..18), None);
        let lines = shown.side_by_side("a", "請求", true);
        assert_eq!(
            lines,
            [
                "     a │ …時間は九時です…",
                "       │        ^^",
                "  請求 │ …時間は十一時e\u{301}です…",
                "       │        ^^^^^^",
            ]
        );
    }

    #[test]
    fn nothing_of_a_text_is_shown_unless_asked_for() {
        let lines = shown().side_by_side("a", "bcd", false);
        assert_eq!(
            lines,
            [
                "    a │ …[redacted: 4 bytes, time-like]…",
                "  bcd │ …[redacted: 5 bytes, time-like]…",
            ]
        );
        assert!(!lines.join("").contains("now"));
        let added = ChangeContext::of(&text("ab"), &text("axb"), (1..1, 1..2), None);
        let lines = added.side_by_side("a", "b", false);
        assert_eq!(lines[0], "  a │ …[nothing]…");
    }

    #[test]
    fn programs_are_told_kind_and_length_of_what_is_hidden() {
        let fields = |show_text| {
            let fields = shown().fields(show_text);
            let fields = fields.map(|(name, value)| (name.to_owned(), value));
            Value::Object(fields.into_iter().collect())
        };
        let hidden = json!({
            "before": null, "old": null, "new": null, "after": null,
            "kind": "time-like", "unit": "bytes", "old_length": 4, "new_length": 5,
        });
        assert_eq!(fields(false), hidden);
        assert_eq!(fields(true)["old"], "9:41");
        assert_eq!(fields(true)["after"], " now, or so.");
    }

    #[test]
    fn token_ids_are_shown_as_ids() {
        let body = |ids: &[u32]| prompt("", PromptBody::Ids(ids.to_vec()));
        let (old, new) = (body(&[1, 2, 33, 4]), body(&[1, 2, 5, 66, 4]));
        let shown = ChangeContext::of(&old, &new, (2..3, 2..4), None);
        assert_eq!(
            shown.side_by_side("a", "b", true)[2..],
            ["  b │ …1 2 5 66 4…", "    │      ^^^^"]
        );
        assert_eq!(
            shown.side_by_side("a", "b", false)[1],
            "  b │ …[redacted: 2 token ids]…"
        );
    }

    #[test]
    fn long_texts_and_other_characters_are_cut_well() {
        let long = text(&"é".repeat(400));
        assert_eq!(first(&long.body, 0).chars().count(), CONTEXT_CHARS);
        assert_eq!(last(&long.body, 400).chars().count(), CONTEXT_CHARS);
        let wide = text(&"🎉".repeat(400));
        assert_eq!(first(&wide.body, 4).chars().count(), CONTEXT_CHARS);
        assert_eq!(last(&wide.body, 400).chars().count(), CONTEXT_CHARS);
        for (letter, width) in [("é", 43), ("🎉", 43)] {
            let shown = shortened(&letter.repeat(400), 44);
            assert!(shown.width() >= width && shown.width() <= 44, "{shown}");
        }
        let shown = ChangeContext::of(&long, &wide, (200..700, 400..900), None);
        let lines = shown.side_by_side("a", "b", true);
        assert!(
            lines.iter().all(|line| line.width() <= COLUMNS),
            "{lines:#?}"
        );
        assert_eq!(visible("a\tb\u{1b}[0m"), "a⇥b·[0m");
        assert_eq!(visible("10\u{A0}%\u{202E}x\u{2028}"), "10⍽%·x⍽");
        let long = text(&"x".repeat(1 << 20));
        let whole = (0..1 << 20, 0..1 << 20);
        let kept = ChangeContext::example(&long, &long, whole, None);
        assert_eq!((kept.old.text.len(), kept.old.len), (EXAMPLE_MAX, 1 << 20));
    }
}
