//! Labels, headings and items: the forms of lines.

use std::ops::Range;

use super::{floor, line_at, line_begin, slice};

/// Longest label, characters.
const LABEL_CHARS: usize = 48;

/// Words that stand for a label where a line has none.
const LABEL_WORDS: usize = 5;

/// Longest value behind a label, bytes.
pub(super) const VALUE_BYTES: usize = 200;

/// Lines that are searched for a heading.
const HEADING_LINES: usize = 120;

/// The label at the end of the front of a line.
pub(super) fn label(front: &str) -> Option<String> {
    let front = front.trim_start_matches(['-', '*', '•', '#', '>', ' ', '\t']);
    let is_name = |text: &str| {
        let chars = text.chars().count();
        chars > 0 && chars <= LABEL_CHARS && text.chars().any(char::is_alphabetic)
    };
    // The last separator with a short value behind it.
    let separators = [(": ", true), (":", true), ("：", true), ("=\"", false), ("=", false)];
    let colon =
        separators.iter().filter_map(|(separator, _)| Some((front.rfind(separator)?, separator)));
    if let Some((at, _)) = colon.max_by_key(|(at, _)| *at)
        && front.len() - at <= VALUE_BYTES
    {
        let before = front[..at].trim_end_matches([' ', '"', '\'', '*']);
        let start = before.rfind([
            '"', '\'', ',', ';', '|', '(', '{', '<', '，', '；', '（', '。', '.', '?', '!',
        ]);
        let name = start.map_or(before, |start| {
            let width = before[start..].chars().next().map_or(1, char::len_utf8);
            &before[start + width..]
        });
        let name = name.trim().trim_matches(['"', '*', '`', '[', ']', '【']);
        let last = name.split_whitespace().rev().take(5).collect::<Vec<_>>();
        let name = last.into_iter().rev().collect::<Vec<_>>().join(" ");
        if is_name(&name) {
            // An object on one line has a name of its own in front.
            let outer = before.split_once(['{', '[']).map(|(outer, _)| outer);
            let outer = outer.map(|outer| outer.trim_matches([' ', ':', '：', '"', ',']));
            let outer = outer.filter(|outer| is_name(outer));
            return Some(outer.map_or_else(|| name.clone(), |outer| format!("{outer}: {name}")));
        }
    }
    // No label: the words in front, without figures that belong to the value.
    let words = front.split_whitespace().rev();
    let words = words.skip_while(|word| word.contains(|c: char| c.is_ascii_digit()));
    let words = words.take(LABEL_WORDS).collect::<Vec<_>>();
    let words = words.into_iter().rev().collect::<Vec<_>>().join(" ");
    let name = words.trim_matches(['"', '(', '[', ',', '{', '【', ' ']).to_owned();
    is_name(&name).then_some(name)
}

/// The label of a change: in front of it, or else letters of the value that stay the same, or the
/// word behind it, as in `453 seconds ago`.
pub(super) fn label_near(
    old: &str,
    new: &str,
    spans: &(Range<usize>, Range<usize>),
) -> Option<String> {
    let at = floor(new, spans.1.start);
    let in_front = label(&new[line_begin(new, at)..at]);
    in_front.or_else(|| {
        let (went, came) = (slice(old, &spans.0), slice(new, &spans.1));
        let same = came.chars().zip(went.chars()).take_while(|(one, other)| one == other);
        let letters = same.map(|(char, _)| char).take_while(|char| char.is_alphabetic());
        let name: String = letters.take(LABEL_CHARS).collect();
        let behind = new.get(spans.1.end..).unwrap_or_default();
        let letters = behind.chars().skip_while(|char| *char == ' ').take(LABEL_CHARS);
        let behind: String = letters.take_while(|char| char.is_alphabetic()).collect();
        [name, behind].into_iter().find(|name| name.chars().count() >= 2)
    })
}

/// The field of a call's id, by the JSON in front of it: APIs name it in several ways.
pub(super) fn call_id(front: &str) -> Option<String> {
    let is_id = ["\"id\":", "\"id\": ", "\"tool_use_id\":", "\"call_id\":"]
        .iter()
        .any(|field| front.trim_end().trim_end_matches('"').trim_end().ends_with(field.trim_end()));
    let is_call = ["tool_use", "tool_result", "tool_calls", "\"function\"", "function_call"]
        .iter()
        .any(|kind| front.contains(kind));
    (is_id && is_call).then(|| "tool_call_id".to_owned())
}

/// Whether a line is an item of a list: a bullet, a number, a box, or a path.
pub(crate) fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let is_bullet = ["- ", "* ", "• ", "– ", "+ ", "· ", "[x]", "[ ]", "[~]", "☐", "☑", "✓", "✗"];
    let digits =
        line.trim_start_matches(['[', '(']).chars().take_while(char::is_ascii_digit).count();
    let after = line.trim_start_matches(['[', '(']).chars().nth(digits);
    let is_name = |char: char| char.is_ascii_alphanumeric() || "._-/~@+".contains(char);
    let is_path = line.contains(['/', '.']) && line.chars().all(is_name);
    is_bullet.iter().any(|bullet| line.starts_with(bullet))
        || (digits > 0 && digits < 4 && matches!(after, Some('.' | ')' | ']' | '、' | '．')))
        || is_path
}

/// The heading above a byte, within its message: of a list the line above its items, or else the
/// nearest line that looks like one, or the first line of the paragraph.
pub(super) fn heading(text: &str, at: usize, start: usize) -> Option<String> {
    let above = text.get(start..line_begin(text, at))?;
    let mut items = above.lines().rev().take(HEADING_LINES).skip_while(|line| is_item(line));
    if is_item(line_at(text, at))
        && let Some(name) = items.next().and_then(short_line)
    {
        return Some(name);
    }
    let paragraph =
        above.lines().rev().take(HEADING_LINES).take_while(|line| !line.trim().is_empty());
    let paragraph: Vec<&str> = paragraph.collect();
    let marked = paragraph.iter().find_map(|line| heading_of(line));
    let first = || paragraph.last().copied().and_then(short_line);
    let any = || {
        let lines: Vec<&str> = above.lines().rev().take(HEADING_LINES).collect();
        let marked = lines.iter().find_map(|line| heading_of(line));
        // Or a short line that a paragraph begins with.
        marked.or_else(|| {
            let is_first = |at: usize| lines.get(at + 1).is_none_or(|line| line.trim().is_empty());
            let firsts = (0..lines.len()).filter(|&at| is_first(at));
            firsts.filter(|&at| !is_item(lines[at])).find_map(|at| short_line(lines[at]))
        })
    };
    marked.or_else(first).or_else(any).or_else(|| {
        // The line itself may begin with one.
        let (front, _) = line_at(text, at).split_once([':', '：'])?;
        heading_of(&format!("{front}:")).filter(|name| !name.contains(['{', '"']))
    })
}

/// A line that may be a heading without a mark: short, and no sentence.
fn short_line(line: &str) -> Option<String> {
    let line = line.trim();
    let is_sentence = line.ends_with(['.', '。', '!', '?', ';', ',']);
    let name =
        line.trim_matches(['#', ':', '：', '*', '<', '>', '=', '[', ']', '-', '【', '】', ' ']);
    let chars = name.chars().count();
    (!is_sentence && chars > 0 && chars <= LABEL_CHARS && !line.contains("|>"))
        .then(|| name.to_owned())
}

/// The name in a line that is a heading.
pub(crate) fn heading_name(line: &str) -> Option<String> {
    short_line(line).or_else(|| heading_of(line))
}

fn heading_of(line: &str) -> Option<String> {
    let line = line.trim();
    if is_item(line) {
        return None;
    }
    let is_marked = line.starts_with('#')
        || line.ends_with([':', '：'])
        || (line.starts_with("**") && line.ends_with("**"))
        || (line.starts_with('<')
            && line.ends_with('>')
            && !line.starts_with("</")
            && !line.contains("|>"))
        || (line.starts_with("==") && line.ends_with("=="))
        || (line.starts_with('[') && line.ends_with(']'))
        || (line.starts_with("--") && line.ends_with("--"))
        || (line.starts_with('【') && line.ends_with('】'));
    let name =
        line.trim_matches(['#', ':', '：', '*', '<', '>', '=', '[', ']', '-', '【', '】', ' ']);
    let chars = name.chars().count();
    (is_marked && chars > 0 && chars <= LABEL_CHARS).then(|| name.to_owned())
}
