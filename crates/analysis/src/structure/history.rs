//! The change of a text of the history, in words.

use std::ops::Range;

use super::same::{is_other_characters, is_same_number};
use super::{floor, line_at, slice};

/// A text of the history that was escaped once more, or once less.
const ESCAPED: &str = "escaped in another way";
pub(super) const NUMBERS: &str = "numbers are written in another form";
const SPACE: &str = "white space differs";
const CHARACTERS: &str = "characters are written in another form";
const SERIALIZED: &str = "serialized again: white space or escapes differ";

/// A number that depends on the time of the request.
pub(super) const RECOUNTED: &str = "a number, such as a relative age, was recomputed";

/// Changes that leave the content as it is.
pub(super) const OTHER_WRITING: [&str; 5] = [ESCAPED, NUMBERS, SPACE, CHARACTERS, SERIALIZED];

/// Longest text that is looked at as a number, bytes.
const NUMBER_BYTES: usize = 40;

/// The change of `old` at a span to `new`, in words; empty where it has none.
pub(super) fn rewriting(
    old: &str,
    new: &str,
    spans: &(Range<usize>, Range<usize>),
) -> &'static str {
    let (went, came) = (slice(old, &spans.0), slice(new, &spans.1));
    let escapes = |text: &str| {
        ["&amp;", "&lt;", "&quot;", "\\\\", "\\u", "\\\""]
            .iter()
            .map(|escape| text.matches(escape).count())
            .sum::<usize>()
    };
    let ink = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let is_number = |text: &str| {
        let text = text.trim();
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_json = |line: &str| line.contains(['{', '[']) && line.contains('"');
    let lines = (line_at(old, floor(old, spans.0.start)), line_at(new, floor(new, spans.1.start)));
    if is_same_number(number_around(old, &spans.0), number_around(new, &spans.1)) {
        NUMBERS
    } else if is_number(went) && is_number(came) {
        RECOUNTED
    } else if is_json(lines.1) && compact(lines.0) == compact(lines.1) {
        SERIALIZED
    } else if went.trim().is_empty() {
        "text was put in"
    } else if came.trim().is_empty() {
        "text was removed"
    } else if ink(went) == ink(came) {
        SPACE
    } else if escapes(went) != escapes(came) || unescaped(lines.0) == unescaped(lines.1) {
        ESCAPED
    } else if is_other_characters(lines.0, lines.1) {
        CHARACTERS
    } else if came.len() * 2 < went.len() {
        "text was shortened"
    } else {
        ""
    }
}

/// A line with its escapes undone, however often they were done.
fn unescaped(line: &str) -> String {
    let mut line = line.to_owned();
    for (escaped, char) in [("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\"")] {
        let mut before = usize::MAX;
        // Each round makes the line shorter, or is the last one.
        while line.len() < before {
            before = line.len();
            line = line.replace(escaped, char);
        }
    }
    line
}

/// A line without white space, be it escaped or not, and without backslashes.
fn compact(line: &str) -> String {
    let line = line.replace("\\n", "").replace("\\t", "");
    line.chars().filter(|c| !c.is_whitespace() && *c != '\\').collect()
}

/// The number that a span is in.
fn number_around<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    let is_part = |c: &char| c.is_ascii_digit() || ".,_-'\"".contains(*c);
    let (start, end) = (floor(text, span.start), floor(text, span.end));
    let most = NUMBER_BYTES;
    let front = text[..start].chars().rev().take(most).take_while(is_part).count();
    let behind = text[end.max(start)..].chars().take(most).take_while(is_part).count();
    // All of these characters are of one byte.
    let number = &text[start - front..end.max(start) + behind];
    if number.len() <= 3 * most { number } else { "" }
}
