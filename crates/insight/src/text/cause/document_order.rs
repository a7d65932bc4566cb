//! The same documents in another order, as a search by likeness ranks them. Found also where not
//! all documents are the same, if some changed places.

use super::WordSpans;
use super::order::{ReorderedSpan, shuffled};
use super::tool_order::is_tools;
use crate::text::divergence::PromptAlignment;

/// Words of documents that moved; a sentence turned round has fewer.
const MOVED_WORDS: usize = 24;

/// Documents that only changed places.
pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let block = ReorderedSpan::find(aligned).filter(|block| block.moved_whole(aligned))?;
    Some(block.spans()).filter(|spans| is_enough(aligned, spans))
}

/// Documents of which some changed places, and others are not the same.
pub(super) fn find_some(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    shuffled(aligned).filter(|spans| is_enough(aligned, spans))
}

fn is_enough(aligned: &PromptAlignment<'_>, spans: &WordSpans) -> bool {
    let is_long = spans.new.len() >= MOVED_WORDS && spans.old.len() >= MOVED_WORDS;
    // Tools have a cause of their own, with another fix.
    is_long && !is_tools(aligned, spans)
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    fn text(documents: &[u64], head: impl Fn(usize, u64) -> String) -> String {
        let documents = documents.iter().enumerate();
        let shown = documents.map(|(at, seed)| head(at, *seed) + &prose(*seed, 60));
        let shown = shown.collect::<Vec<_>>().join("\n");
        format!("Use the context.\n\n{shown}\n\nQuestion: {}", prose(9, 80))
    }

    #[test]
    fn documents_in_another_order_are_told() {
        let by_name = |_: usize, seed: u64| format!("## Source {seed}.md\n");
        let by_rank = |at: usize, _: u64| format!("[{}] ", at + 1);
        let by_tag = |at: usize, seed: u64| format!("<doc id=\"{seed}\" rank=\"{at}\">");
        let plain = |_: usize, _: u64| String::new();
        let heads: [&dyn Fn(usize, u64) -> String; 4] = [&by_name, &by_rank, &by_tag, &plain];
        for head in heads {
            let (old, new) = (text(&[11, 12, 13], head), text(&[13, 11, 12], head));
            assert_eq!(found(&old, &new).map(|cause| cause.0), Some("document-order"), "{old}");
        }
        let (old, new) = (text(&[11, 12, 13], by_name), text(&[13, 11, 14], by_name));
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("document-order"));
    }

    #[test]
    fn other_documents_in_the_same_order_are_none() {
        let by_name = |_: usize, seed: u64| format!("## Source {seed}.md\n");
        for (one, other) in [([11, 12, 13], [12, 13, 14]), ([11, 12, 13], [11, 13, 15])] {
            check(&text(&one, by_name), &text(&other, by_name), None);
        }
        check(&text(&[11, 12], by_name), &text(&[15], by_name), None);
    }

    #[test]
    fn documents_with_sentences_in_common_are_none() {
        let (notice, body) = (prose(31, 14), prose(32, 80));
        let text = |documents: [(u64, bool); 3]| {
            let shown = documents.map(|(seed, has)| {
                let notice = if has { notice.as_str() } else { "" };
                format!("## {seed}\n{}{notice}\n", prose(seed, 40))
            });
            format!("Use the context.\n\n{}\n{body}", shown.concat())
        };
        let (old, new) = (
            text([(11, true), (12, false), (14, false)]),
            text([(10, false), (12, false), (14, true)]),
        );
        check(&old, &new, None);
    }

    #[test]
    fn records_of_the_same_fields_are_none() {
        let values = ["Oslo", "a wrong part number", "stiff", "the finance desk", "heater"];
        let paste = |order: [usize; 5], seed: u64| {
            let members = order.map(|at| format!("  \"k{at}\": \"{}\",\n", values[at]));
            let own = prose(seed, 12);
            format!(
                "{}\n{own}\n```\n{{\n{}}}\n```\n{}",
                prose(1, 60),
                members.concat(),
                prose(seed + 1, 60)
            )
        };
        check(&paste([0, 1, 2, 3, 4], 50), &paste([3, 0, 4, 1, 2], 60), None);
    }
}
