//! The same content in another form: lines or fields in another order, characters or numbers that
//! are written otherwise.

use std::collections::HashMap;

use super::label::is_item;

/// Longest part that is compared, bytes: an order takes a table of its lines.
const BYTES_MAX: usize = 256 << 10;

/// Fewest lines that both texts must have in common if not all are the same.
const LINES_MIN: usize = 4;

/// Longest list on one line, bytes.
const LIST_BYTES_MAX: usize = 800;

/// Fewest fields or words of a list on one line.
const PIECES_MIN: usize = 3;

/// Fewest letters of a line whose characters are compared.
const LETTERS_MIN: usize = 4;

/// A kind of parts that changed their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderedParts {
    /// Items of a list, each on a line or all on one.
    Items,
    /// Fields with a name each.
    Fields,
}

/// The kind of parts that are the same in both texts, in another order; `None` for other texts, and
/// for parts such as documents and sections that have a detector of their own.
pub(super) fn reordered(old: &str, new: &str) -> Option<OrderedParts> {
    if old.len().max(new.len()) > BYTES_MAX {
        return None;
    }
    let (old, new) = differing_lines(old, new);
    if old.len() == 1 && new.len() == 1 {
        return reordered_in_line(old[0], new[0]);
    }
    let is_order = is_permutation(&keys(&old), &keys(&new));
    let is_field = |line: &&&str| field_name(line).is_some();
    let mostly = |count: usize| count * 4 >= new.len() * 3;
    if !is_order {
        // Fields of an object that is printed over lines end in a comma, except the last one.
        return reordered_in_line(&old.join("\n"), &new.join("\n"))
            .filter(|parts| *parts == OrderedParts::Fields && mostly(new.len()));
    }
    if mostly(new.iter().filter(|line| is_item(line)).count()) {
        Some(OrderedParts::Items)
    } else if mostly(new.iter().filter(is_field).count()) && has_distinct_names(&new) {
        Some(OrderedParts::Fields)
    } else {
        None
    }
}

/// The lines of both without those that they begin and end with; blank ones are left out.
fn differing_lines<'t>(old: &'t str, new: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
    let lines = |text: &'t str| -> Vec<&'t str> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
    };
    let (mut old, mut new) = (lines(old), lines(new));
    while old.last().is_some_and(|line| Some(line) == new.last()) {
        old.pop();
        new.pop();
    }
    let front = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    (old.split_off(front), new.split_off(front))
}

/// The lines without their figures: numbers of items and scores change with the order.
fn keys(lines: &[&str]) -> Vec<String> {
    let key = |line: &&str| {
        let letters = line.chars().filter(|c| c.is_alphabetic());
        letters.collect::<String>()
    };
    lines.iter().map(key).filter(|key| key.chars().count() >= 2).collect()
}

/// Whether most parts are in both, and those that are stand in another order.
fn is_permutation(old: &[String], new: &[String]) -> bool {
    let mut counts: HashMap<&str, [usize; 2]> = HashMap::new();
    for (side, parts) in [old, new].into_iter().enumerate() {
        for part in parts {
            counts.entry(part).or_default()[side] += 1;
        }
    }
    let common: usize = counts.values().map(|[one, other]| one.min(other)).sum();
    let is_same = common == old.len() && common == new.len();
    let is_most = common >= LINES_MIN && common * 4 >= old.len().max(new.len()) * 3;
    let unique = |parts: &'_ [String]| -> Vec<String> {
        let is_unique = |part: &&String| counts[part.as_str()] == [1, 1];
        parts.iter().filter(is_unique).cloned().collect()
    };
    (is_same || is_most) && unique(old) != unique(new)
}

/// The same for one line: fields with names, or words between commas.
fn reordered_in_line(old: &str, new: &str) -> Option<OrderedParts> {
    let pieces = |text: &str, is_end: fn(char) -> bool| -> Vec<String> {
        let pieces = text.split(is_end).map(|piece| piece.trim_matches(is_edge));
        pieces.filter(|piece| !piece.is_empty()).map(str::to_owned).collect()
    };
    let is_order = |old: &[String], new: &[String]| {
        let mut sorted = [old.to_vec(), new.to_vec()];
        sorted.iter_mut().for_each(|parts| parts.sort_unstable());
        old.len() >= PIECES_MIN && old != new && sorted[0] == sorted[1]
    };
    let of_list: fn(char) -> bool = |c| ",;|，；、\n".contains(c);
    let (one, other) = (pieces(old, of_list), pieces(new, of_list));
    let with_name = |parts: &[String]| parts.iter().filter(|p| field_name(p).is_some()).count();
    // Longer lines are records or documents.
    if old.len().max(new.len()) <= LIST_BYTES_MAX && is_order(&one, &other) {
        let is_fields = with_name(&one) * 4 >= one.len() * 3;
        return Some(if is_fields { OrderedParts::Fields } else { OrderedParts::Items });
    }
    let of_fields: fn(char) -> bool = |c| c.is_whitespace() || ",;|{}<>".contains(c);
    let (one, other) = (pieces(old, of_fields), pieces(new, of_fields));
    // Names and values may be apart, as in `"a": 1`.
    let is_fields = with_name(&one) * 4 >= one.len() || one.iter().any(|p| p.ends_with(':'));
    let parts: Vec<&str> = one.iter().map(String::as_str).collect();
    // A name that comes twice is one of several records, which are documents.
    let is_one_record = has_distinct_names(&parts);
    (is_order(&one, &other) && is_fields && is_one_record).then_some(OrderedParts::Fields)
}

fn is_edge(c: char) -> bool {
    c.is_whitespace() || "{}[]<>()/".contains(c)
}

/// Whether no name of a field comes twice, as it does in texts of several records.
fn has_distinct_names(lines: &[&str]) -> bool {
    let mut names: Vec<&str> = lines.iter().filter_map(|line| field_name(line)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    names.len() == count
}

/// The name of a field: a short text in front of a colon or an equals sign.
fn field_name(piece: &str) -> Option<&str> {
    let (name, _) = piece.split_once([':', '=', '：'])?;
    let name = name.trim_matches([' ', '"', '\'', '-', '*', '•', '{', '<']);
    let is_name = !name.is_empty() && name.chars().count() <= 40 && !name.contains(['.', '?']);
    (is_name && name.split_whitespace().count() <= 4).then_some(name)
}

/// Whether two texts are the same but for the way that characters are written: composed or not, as
/// wide forms, other quotation marks and dashes, escapes.
pub(super) fn is_other_characters(old: &str, new: &str) -> bool {
    let without_space =
        |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (one, other) = (unescaped(&without_space(old)), unescaped(&without_space(new)));
    let was_escaped = one == other && without_space(old) != without_space(new);
    let rare = |text: &str| text.chars().filter(|c| !c.is_ascii()).collect::<String>();
    let (folded, folded_other) = (folded(&one), folded(&other));
    folded.len() >= LETTERS_MIN
        && folded == folded_other
        && (was_escaped || rare(&one) != rare(&other))
}

/// Letters and digits in a form that does not depend on how they are encoded. Letters with marks
/// are left out together with their marks: no table of compositions is needed.
fn folded(text: &str) -> Vec<char> {
    let mut folded: Vec<char> = Vec::with_capacity(text.len());
    for char in text.chars() {
        match char {
            // A combining mark: its letter is before it.
            '\u{300}'..='\u{36f}' => {
                folded.pop_if(|letter| letter.is_ascii_alphabetic());
            }
            '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => {}
            '\u{ff01}'..='\u{ff5e}' => {
                let ascii = char::from_u32(u32::from(char) - 0xfee0);
                folded.extend(ascii.filter(char::is_ascii_alphanumeric));
            }
            _ if char.is_alphanumeric() => folded.push(char),
            _ => {}
        }
    }
    folded
}

/// Escapes of HTML and JSON as the characters that they stand for.
fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    // Last the one that may make others, so that a text escaped twice is equal to its source.
    for (escape, plain) in [
        ("&amp;", "&"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&nbsp;", ""),
        ("\\n", ""),
        ("\\t", ""),
        ("\\\"", "\""),
        ("\\/", "/"),
    ] {
        if text.contains(escape) {
            text = text.replace(escape, plain);
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("\\u") {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 2..at + 6).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(char) => {
                out.push(char);
                rest = &rest[at + 6..];
            }
            None => {
                out.push_str("\\u");
                rest = &rest[at + 2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Whether both are the same number, printed in another form: `678.26` and `678,26`.
pub(super) fn is_same_number(old: &str, new: &str) -> bool {
    let values = |text: &str| -> Vec<f64> {
        let text = text.trim_matches(|c: char| !c.is_ascii_digit() && c != '-');
        let plain = |c: char| !matches!(c, '\'' | '_' | ' ' | '\u{a0}' | '\u{202f}');
        let text: String = text.chars().filter(|c| plain(*c)).collect();
        // Either sign may be that of the decimals.
        let readings = [text.replace(',', ""), text.replace('.', "").replace(',', ".")];
        readings.iter().filter_map(|reading| reading.parse().ok()).collect()
    };
    let (one, other) = (values(old), values(new));
    old != new && one.iter().any(|one| other.iter().any(|other| (one - other).abs() <= 1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_another_order_are_told_by_their_form() {
        use OrderedParts::{Fields, Items};
        for (old, new, expected) in [
            ("- Leeds\n- York\n- Hull", "- York\n- Hull\n- Leeds", Some(Items)),
            ("1. Leeds\n2. York", "1. York\n2. Leeds", Some(Items)),
            ("Known: tea, coffee, milk", "Known: tea, coffee, milk", None),
            ("tea, coffee, milk", "milk, tea, coffee", Some(Items)),
            ("region: a\nmanager: b\nunit: c", "unit: c\nregion: a\nmanager: b", Some(Fields)),
            (r#"{"a": 1, "b": 2, "c": 3}"#, r#"{"c": 3, "a": 1, "b": 2}"#, Some(Fields)),
            (r#"<s a="1" b="2" c="3"/>"#, r#"<s c="3" a="1" b="2"/>"#, Some(Fields)),
            // Other items, and one more, are no other order.
            ("- Leeds\n- York\n- Hull", "- Bath\n- Leeds\n- York\n- Hull", None),
            ("- Leeds\n- York", "- Bath\n- Ely", None),
            ("Be kind and short.", "Be short and kind.", None),
        ] {
            assert_eq!(reordered(old, new), expected, "{old} {new}");
        }
    }

    #[test]
    fn characters_may_be_written_in_several_ways() {
        for (old, new, expected) in [
            ("l'\u{e9}quipe des r\u{e9}ponses", "l'e\u{301}quipe des re\u{301}ponses", true),
            ("say \u{201c}hello\u{201d}", "say \"hello\"", true),
            ("order\u{ff1a} ABC12", "order: \u{ff21}BC12", true),
            ("this &amp; that", "this & that", true),
            ("J\\u00fcrgen Wei\u{df}", "J\u{fc}rgen Wei\u{df}", true),
            ("**order** now", "order now", false),
            ("order  now", "order now", false),
            ("order now", "order later", false),
            ("\u{4f60}\u{597d}\u{4e16}\u{754c}", "\u{518d}\u{89c1}\u{4e16}\u{754c}", false),
        ] {
            assert_eq!(is_other_characters(old, new), expected, "{old} {new}");
        }
    }

    #[test]
    fn numbers_may_be_printed_in_several_ways() {
        for (old, new, expected) in [
            ("678.26", "\"678,26\"", true),
            ("780.38", "780.380000", true),
            ("1234.5", "1,234.50", true),
            ("678.26", "678.27", false),
            ("678.26", "678.26", false),
            ("", "5", false),
        ] {
            assert_eq!(is_same_number(old, new), expected, "{old} {new}");
        }
    }
}
