//! Names that stand for something else: an image, a link, a pseudonym.

use std::collections::BTreeSet;
use std::ops::Range;

use super::floor;

/// Longest name of an image, as logs are read, bytes.
const IMAGE_BYTES: usize = 160;

/// Longest link, bytes.
const LINK_BYTES: usize = 4 << 10;

/// Longest word of a pseudonym, bytes, and fewest letters that all pseudonyms begin with.
const PSEUDONYM_BYTES: usize = 64;
const KIND_LETTERS: usize = 3;

/// Whether the change at these bytes is of an image's content, which stands there as a short name.
pub(super) fn is_image(old: &str, old_at: usize, new: &str, new_at: usize) -> bool {
    let has_name = |text: &str, at: usize| {
        let from = floor(text, at.saturating_sub(IMAGE_BYTES));
        let Some(open) = text[from..at].rfind('[').map(|open| from + open) else {
            return false;
        };
        let name = text[open + 1..].split(']').next().unwrap_or_default();
        let is_there = open + 1 + name.len() >= at && name.len() <= IMAGE_BYTES;
        let hash = name.rsplit(' ').next().unwrap_or_default();
        let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_there && is_hash && name.contains(" bytes, ")
    };
    has_name(old, old_at) && has_name(new, new_at)
}

/// Whether the change at these bytes is in the query of a link to the same document.
pub(super) fn is_signed_link(old: &str, old_at: usize, new: &str, new_at: usize) -> bool {
    let (old, new) = (link_around(old, old_at), link_around(new, new_at));
    match (old.and_then(|link| link.split_once('?')), new.and_then(|link| link.split_once('?'))) {
        (Some((one, query)), Some((other, other_query))) => one == other && query != other_query,
        _ => false,
    }
}

fn link_around(text: &str, at: usize) -> Option<&str> {
    let is_end = |c: char| c.is_whitespace() || "\"'<>()[]".contains(c);
    let from = floor(text, at.saturating_sub(LINK_BYTES));
    let start = text[from..at].rfind(is_end).map_or(from, |end| {
        let width = text[from + end..].chars().next().map_or(1, char::len_utf8);
        from + end + width
    });
    let link = text[start..].split(is_end).next().unwrap_or_default();
    (link.contains("://") && start + link.len() >= at).then_some(link)
}

/// The letters that pseudonyms begin with, where several words of one kind (`PERSON_3f2a`) changed
/// into others of that kind; not for ids in fields.
pub(super) fn pseudonyms<'c>(
    old: &str,
    new: &str,
    changes: impl Iterator<Item = (&'c Range<usize>, &'c Range<usize>)>,
) -> Option<String> {
    let mut kind: Option<String> = None;
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (old_span, new_span) in changes {
        let (Some(one), Some(other)) = (name_at(old, old_span), name_at(new, new_span)) else {
            continue;
        };
        let (was, is) = (kind_of(one), kind_of(other));
        if was != is || one == other || is.is_empty() {
            continue;
        }
        if kind.get_or_insert_with(|| is.to_owned()) == is {
            names.insert(other);
        }
    }
    // One word that is there several times is a mark and no pseudonym.
    kind.filter(|_| names.len() >= 2)
}

/// The word around a change, if it stands in a text and not as the value of a field.
fn name_at<'t>(text: &'t str, span: &Range<usize>) -> Option<&'t str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let at = floor(text, span.start);
    let from = floor(text, at.saturating_sub(PSEUDONYM_BYTES));
    let front: usize =
        text[from..at].chars().rev().take_while(|c| is_part(*c)).map(char::len_utf8).sum();
    let start = at - front;
    // Signs in front belong to the change where words of both kinds stand alone.
    let skipped = text[start..].chars().take(2).take_while(|c| !is_part(*c));
    let start = start + skipped.map(char::len_utf8).sum::<usize>();
    let len: usize = text[start..].chars().take_while(|c| is_part(*c)).map(char::len_utf8).sum();
    let is_value = text[..start].ends_with(['"', '\'', '=', ':', '#', '/', '.']);
    (len > 0 && len <= PSEUDONYM_BYTES && !is_value).then(|| &text[start..start + len])
}

/// The letters in front of a word's own part, with the sign between; empty for other words.
fn kind_of(word: &str) -> &str {
    let letters = word.chars().take_while(char::is_ascii_alphabetic).count();
    let Some(own) = word[letters..].strip_prefix(['_', '-']) else {
        return "";
    };
    let is_own = own.len() >= 2 && own.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if letters >= KIND_LETTERS && is_own { &word[..=letters] } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_and_a_link_are_told_from_other_text() {
        let image =
            |hash: char| format!("see [image/png of 900 bytes, {}]", String::from(hash).repeat(32));
        let (one, other) = (image('a'), image('b'));
        assert!(is_image(&one, 40, &other, 40));
        assert!(!is_image(&one, 2, &other, 2));
        let link = |query: &str| format!("look at https://a.example/x.png?sig={query} now");
        let (one, other) = (link("11"), link("22"));
        assert!(is_signed_link(&one, 36, &other, 36));
        assert!(!is_signed_link(&one, 2, &other, 2));
        let other = "look at https://b.example/x.png?sig=11 now";
        assert!(!is_signed_link(&one, 16, other, 16));
    }

    fn found(old: &str, new: &str, words: [&str; 2], others: [&str; 2]) -> Option<String> {
        let span = |text: &str, word: &str| {
            let at = text.find(word).expect("the word");
            at..at + word.len()
        };
        let changes = [0, 1].map(|at| (span(old, words[at]), span(new, others[at])));
        pseudonyms(old, new, changes.iter().map(|(old, new)| (old, new)))
    }

    #[test]
    fn pseudonyms_have_one_kind_and_several_names() {
        let (old, new) =
            ("[PERSON_3f2a] meets [PERSON_77aa].", "[PERSON_9c1b] meets [PERSON_0d1e].");
        let told = found(old, new, ["3f2a", "77aa"], ["9c1b", "0d1e"]);
        assert_eq!(told.as_deref(), Some("PERSON_"));
        // The same mark twice, and ids in fields.
        let (old, new) = ("<mark-3f2a> text <mark-3f2a>", "<mark-9c1b> text <mark-9c1b>");
        assert_eq!(found(old, new, ["3f2a", "3f2a"], ["9c1b", "9c1b"]), None);
        let (old, new) = (
            r#"{"id": "call_3f2a", "to": "call_77aa"}"#,
            r#"{"id": "call_9c1b", "to": "call_0d1e"}"#,
        );
        assert_eq!(found(old, new, ["3f2a", "77aa"], ["9c1b", "0d1e"]), None);
    }
}
