//! Two prompts around the place where they part, as people and programs see them.

use headstart_analysis::change::{ChangeContext, ChangedText};
use headstart_analysis::walk::WorstCase;
use headstart_core::figures::counted;
use headstart_core::shown::is_hidden;
use headstart_terminal::COLUMNS;
use serde_json::{Value, json};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of the spaces and the line around a name.
const FRAME: usize = 5;

/// Fewest columns for a text, however long the names are.
const ROOM_MIN: usize = 40;

/// Columns that a long change leaves for what is around it.
const CONTEXT_MIN: usize = 24;

/// Fields for programs, `null` where nothing parts: texts only if they are to be shown, kind and
/// lengths always.
pub(crate) fn fields(
    change: Option<&ChangeContext>,
    show_text: bool,
) -> [(&'static str, Value); 8] {
    let text = change.filter(|_| show_text);
    [
        ("before", json!(text.map(|change| &change.before))),
        ("old", json!(text.map(|change| &change.old.text))),
        ("new", json!(text.map(|change| &change.new.text))),
        ("after", json!(text.map(|change| &change.new.after))),
        ("kind", json!(change.map(|change| change.kind))),
        ("unit", json!(change.map(|change| change.unit))),
        ("old_length", json!(change.map(|change| change.old.len))),
        ("new_length", json!(change.map(|change| change.new.len))),
    ]
}

/// Lines that show both, one above the other, with the change marked. With texts they fit a
/// terminal, so that the marks stay below what they mark.
pub(crate) fn side_by_side(
    change: &ChangeContext,
    old_name: &str,
    new_name: &str,
    show_text: bool,
) -> Vec<String> {
    let (old_name, new_name) = (visible(old_name), visible(new_name));
    let width = old_name.width().max(new_name.width());
    let room = COLUMNS.saturating_sub(width + FRAME).max(ROOM_MIN);
    let changes = [&change.old, &change.new].map(|side| {
        if show_text {
            shortened(&visible(&side.text), room - CONTEXT_MIN)
        } else {
            redacted(change, side)
        }
    });
    let longest = changes.iter().map(|text| text.width()).max();
    // Two ellipses.
    let context = room.saturating_sub(longest.unwrap_or_default() + 2);
    let before =
        if show_text { end(&visible(&change.before), context * 2 / 3) } else { String::new() };
    let sides = [(old_name, &change.old), (new_name, &change.new)];
    let lines = sides.into_iter().zip(changes).flat_map(|((name, side), text)| {
        let after = if show_text {
            start(&visible(&side.after), context - before.width())
        } else {
            String::new()
        };
        let indent = " ".repeat(before.width() + 1);
        let caret = "^".repeat(text.width().max(1));
        let pad = " ".repeat(width - name.width());
        let marks = show_text.then(|| format!("  {:>width$} │ {indent}{caret}", ""));
        [Some(format!("  {pad}{name} │ …{before}{text}{after}…")), marks]
    });
    lines.flatten().collect()
}

/// Returns the placeholder for a redacted text.
fn redacted(change: &ChangeContext, side: &ChangedText) -> String {
    match (side.len, change.unit) {
        (0, _) => "[nothing]".to_owned(),
        (ids, "token ids") => format!("[redacted: {}]", counted(ids as u64, "token id")),
        (bytes, _) => {
            let bytes = counted(bytes as u64, "byte");
            format!("[redacted: {bytes}, {}]", change.kind)
        }
    }
}

/// The worst case of a finding as JSON, with texts only if they are to be shown.
pub(crate) fn worst_case(case: &WorstCase, show_text: bool) -> Value {
    let mut told = json!({
        "request": case.request,
        "neighbour": case.neighbour,
        "token": case.token,
    });
    for (name, value) in fields(Some(&case.shown), show_text) {
        told[name] = value;
    }
    told
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
    fitting(text.chars().rev(), columns).into_iter().rev().collect()
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
    use headstart_analysis::prompt::{PromptBody, PromptRecord};
    use headstart_insight::Cause;

    use super::*;

    fn prompt(name: &str, body: PromptBody) -> PromptRecord {
        PromptRecord { name: name.to_owned(), body, logged_tokens: None }
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
        let lines = side_by_side(&shown(), "a", "bcd", true);
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
        let lines = side_by_side(&shown, "a", "請求", true);
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
        let lines = side_by_side(&shown(), "a", "bcd", false);
        assert_eq!(
            lines,
            [
                "    a │ …[redacted: 4 bytes, time-like]…",
                "  bcd │ …[redacted: 5 bytes, time-like]…",
            ]
        );
        assert!(!lines.join("").contains("now"));
        let added = ChangeContext::of(&text("ab"), &text("axb"), (1..1, 1..2), None);
        let lines = side_by_side(&added, "a", "b", false);
        assert_eq!(lines[0], "  a │ …[nothing]…");
    }

    #[test]
    fn programs_are_told_kind_and_length_of_what_is_hidden() {
        let fields = |show_text| {
            let fields = super::fields(Some(&shown()), show_text);
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
            side_by_side(&shown, "a", "b", true)[2..],
            ["  b │ …1 2 5 66 4…", "    │      ^^^^"]
        );
        assert_eq!(side_by_side(&shown, "a", "b", false)[1], "  b │ …[redacted: 2 token ids]…");
    }

    #[test]
    fn long_texts_and_other_characters_are_cut_well() {
        let long = text(&"é".repeat(400));
        let wide = text(&"🎉".repeat(400));
        for (letter, width) in [("é", 43), ("🎉", 43)] {
            let shown = shortened(&letter.repeat(400), 44);
            assert!(shown.width() >= width && shown.width() <= 44, "{shown}");
        }
        let shown = ChangeContext::of(&long, &wide, (200..700, 400..900), None);
        let lines = side_by_side(&shown, "a", "b", true);
        assert!(lines.iter().all(|line| line.width() <= COLUMNS), "{lines:#?}");
        assert_eq!(visible("a\tb\u{1b}[0m"), "a⇥b·[0m");
        assert_eq!(visible("10\u{A0}%\u{202E}x\u{2028}"), "10⍽%·x⍽");
    }
}
