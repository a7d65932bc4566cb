//! The same documents in another order, as a search by likeness ranks them. Found also where not
//! all documents are the same, if some changed places.

use super::Spans;
use super::order::{Block, is_tools, shuffled};
use crate::text::divergence::Aligned;

/// Words of documents that moved; a sentence turned round has fewer.
const MOVED_WORDS: usize = 24;

pub(super) fn find(aligned: &Aligned<'_>) -> Option<Spans> {
    let whole = Block::find(aligned).filter(|block| block.moved_whole(aligned));
    let spans = match whole {
        Some(block) => block.spans(),
        None => shuffled(aligned)?,
    };
    let is_enough = spans.new.len() >= MOVED_WORDS && spans.old.len() >= MOVED_WORDS;
    (is_enough && !is_tools(aligned, &spans)).then_some(spans)
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
            assert_eq!(
                found(&old, &new).map(|it| it.0),
                Some("document-order"),
                "{old}"
            );
        }
        let (old, new) = (text(&[11, 12, 13], by_name), text(&[13, 11, 14], by_name));
        assert_eq!(found(&old, &new).map(|it| it.0), Some("document-order"));
    }

    #[test]
    fn other_documents_in_the_same_order_are_none() {
        let by_name = |_: usize, seed: u64| format!("## Source {seed}.md\n");
        for (one, other) in [([11, 12, 13], [12, 13, 14]), ([11, 12, 13], [11, 13, 15])] {
            check(&text(&one, by_name), &text(&other, by_name), None);
        }
        check(&text(&[11, 12], by_name), &text(&[15], by_name), None);
    }
}
