//! Spaces, line ends or indentation that changed while the words stayed.

use std::ops::Range;

use crate::text::divergence::{PromptAlignment, bytes_of};
use crate::text::sketch::Sketch;
use crate::text::word::Word;

/// Equal words behind the first difference: with fewer, something else changed there too.
const AGREES_WORDS: usize = 16;

/// Most words that were one word, or became one.
const PARTS_MAX: usize = 8;

/// The bytes of the white space on both sides, or of the words that it parts on one side only.
pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<(Range<usize>, Range<usize>)> {
    between(aligned).or_else(|| within(aligned))
}

fn between(aligned: &PromptAlignment<'_>) -> Option<(Range<usize>, Range<usize>)> {
    let at = aligned.shared;
    // Both have a word here: `PromptAlignment::new` refuses prompts of which one begins the other.
    let is_space = |sketch: &Sketch| !sketch.words()[at].is_ink();
    if !is_space(aligned.old_sketch) && !is_space(aligned.new_sketch) {
        return None;
    }
    let before = aligned.new_sketch.ink_in(0..at);
    // `lead` counts equal words past white space, while `shared` ends at the difference.
    if aligned.lead - before < AGREES_WORDS {
        return None;
    }
    let bytes = |sketch: &Sketch| {
        let word = &sketch.words()[at];
        let end = if word.is_ink() { word.start } else { word.end() };
        word.start as usize..end as usize
    };
    Some((bytes(aligned.old_sketch), bytes(aligned.new_sketch)))
}

/// Finds a word that odd white space splits on one side only: the parts are as long together.
fn within(aligned: &PromptAlignment<'_>) -> Option<(Range<usize>, Range<usize>)> {
    let region = aligned.regions.first()?;
    let (old, new) = aligned.span(region);
    let (one, other) = (&aligned.old[old.clone()], &aligned.new[new.clone()]);
    let len = |words: &[Word]| words.iter().map(|word| usize::from(word.len)).sum::<usize>();
    let is_parted = match (one.len(), other.len()) {
        (1, 2..=PARTS_MAX) => has_odd_spaces(aligned.new_sketch, other),
        (2..=PARTS_MAX, 1) => has_odd_spaces(aligned.old_sketch, one),
        _ => false,
    };
    (is_parted && len(one) == len(other) && region.agrees >= AGREES_WORDS)
        .then(|| (bytes_of(&aligned.old, old), bytes_of(&aligned.new, new)))
}

/// Whether white space stands between all of `words`, and none of it is ASCII's.
fn has_odd_spaces(sketch: &Sketch, words: &[Word]) -> bool {
    let (start, end) = (words[0].start, words[words.len() - 1].end());
    let first = sketch.words().partition_point(|word| word.start < start);
    let inside = sketch.words()[first..].iter().take_while(|word| word.start < end);
    let is_parted = words.windows(2).all(|pair| pair[0].end() < pair[1].start);
    let mut spaces = inside.filter(|word| !word.is_ink());
    // ASCII white space has a space or a line end as its character.
    is_parted && spaces.all(|space| space.character == 0)
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    #[test]
    fn white_space_alone_is_told() {
        let body = prose(1, 120);
        let (old, new) = (format!("Rules:\n\n{body}"), format!("Rules:\n{body}"));
        check(&old, &new, Some(("white-space", "\n\n", "\n")));
        let windows = body.replace('\n', "\r\n");
        check(&body, &windows, Some(("white-space", "\n", "\r\n")));
        let indented = body.replace('\n', "\n    ");
        check(&body, &indented, Some(("white-space", "\n", "\n    ")));
        let led = format!(" {body}");
        check(&body, &led, Some(("white-space", "", " ")));
        let json = format!("{{\"a\": 1, \"b\": [2, 3], \"c\": \"{body}\"}}");
        let dense = json.replace("\": ", "\":").replace(", ", ",");
        check(&json, &dense, Some(("white-space", " ", "")));
    }

    #[test]
    fn other_spaces_are_white_space() {
        let body = prose(4, 120);
        for (one, other) in [
            ("10 %", "10\u{A0}%"),
            ("10 %", "10\u{202F}%"),
            ("10 %", "10\u{3000}%"),
            ("key word", "key\u{200B}word"),
            ("key word", "key \u{2060}word"),
            ("line\nend", "line\u{2028}end"),
            ("keyword", "key\u{200B}word"),
            ("keyword", "key\u{AD}word"),
        ] {
            let (old, new) = (format!("Rule: {one}. {body}"), format!("Rule: {other}. {body}"));
            assert_eq!(found(&old, &new).map(|cause| cause.0), Some("white-space"), "{other:?}");
        }
        for (one, other) in
            [("key word", "keyhole"), ("Robin", "Jo Lee"), ("ab+cd", "abxcd"), ("a-b", "ab")]
        {
            let (old, new) = (format!("Rule: {one}. {body}"), format!("Rule: {other}. {body}"));
            check(&old, &new, None);
        }
    }

    #[test]
    fn other_words_behind_white_space_are_something_else() {
        let (front, body) = (prose(2, 80), prose(3, 120));
        check(&format!("{front}\n\nOne. {body}"), &format!("{front}\nTwo. {body}"), None);
        check(&format!("{front} "), &format!("{front}\n\nMore."), None);
    }
}
