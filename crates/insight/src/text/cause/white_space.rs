//! Spaces, line ends or indentation that changed while the words stayed.

use std::ops::Range;

use crate::text::divergence::Aligned;
use crate::text::sketch::Sketch;

/// Equal words behind the first difference: with fewer, something else changed there too.
const AGREES_WORDS: usize = 16;

/// The bytes of the white space on both sides.
pub(super) fn find(aligned: &Aligned<'_>) -> Option<(Range<usize>, Range<usize>)> {
    let at = aligned.shared;
    let is_space = |sketch: &Sketch| !sketch.words()[at].is_ink();
    if !is_space(aligned.old_sketch) && !is_space(aligned.new_sketch) {
        return None;
    }
    let before = aligned.new_sketch.ink_in(0..at);
    if aligned.lead - before < AGREES_WORDS {
        return None;
    }
    let bytes = |sketch: &Sketch| {
        let word = &sketch.words()[at];
        let end = if word.is_ink() {
            word.start
        } else {
            word.end()
        };
        word.start as usize..end as usize
    };
    Some((bytes(aligned.old_sketch), bytes(aligned.new_sketch)))
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::check;
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
    fn other_words_behind_white_space_are_something_else() {
        let (front, body) = (prose(2, 80), prose(3, 120));
        check(
            &format!("{front}\n\nOne. {body}"),
            &format!("{front}\nTwo. {body}"),
            None,
        );
        check(&format!("{front} "), &format!("{front}\n\nMore."), None);
    }
}
