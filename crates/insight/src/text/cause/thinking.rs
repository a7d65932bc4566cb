//! A thinking block that was dropped from the history, put in, or rewritten, as templates do with
//! all but the last one.

use super::WordSpans;
use crate::text::divergence::{PromptAlignment, count};
use crate::text::word::{Class, Word};

/// Words before a change among which a thinking block may have begun.
const BACK_WORDS: usize = 1 << 15;

/// Words of a change before the block begins in it.
const FRONT_WORDS: usize = 8;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let region = aligned.regions.first()?;
    let (old, new) = aligned.span(region);
    let (one, other) = (&aligned.old[old.clone()], &aligned.new[new.clone()]);
    // The words before the difference are the same in both, so one prompt answers for both.
    let is_inside = is_open(&aligned.new[aligned.lead.saturating_sub(BACK_WORDS)..aligned.lead]);
    let is_change = |words: &[Word]| is_inside || begins(words);
    let is_block = match (one.is_empty(), other.is_empty()) {
        (false, true) => is_change(one),
        (true, false) => is_change(other),
        _ => is_change(one) || is_change(other),
    };
    if !is_block || has_messages(one) || has_messages(other) {
        return None;
    }
    // Where both have thoughts, they are rewritten only if the rest of the history stayed.
    let is_dropped = begins(one) != begins(other) && !is_inside;
    (is_dropped || aligned.keeps_old(old.end)).then_some(WordSpans { old, new })
}

/// Whether a thinking block begins or ends in the first of `words`.
fn begins(words: &[Word]) -> bool {
    let first = &words[..words.len().min(FRONT_WORDS)];
    let is_thought = |class| matches!(class, Class::ThinkOpen | Class::ThinkClose);
    count(first, is_thought) > 0
}

/// Whether the last thinking block of `words` is still open at their end.
fn is_open(words: &[Word]) -> bool {
    let is_tag =
        |word: &Word| matches!(word.class, Class::ThinkOpen | Class::ThinkClose | Class::Role);
    let Some(at) = words.iter().rposition(is_tag) else {
        return false;
    };
    // Of a thought in plain text, nothing tells where it ends.
    let is_label = words.get(at + 1).is_some_and(|word| word.is(b':'));
    words[at].class == Class::ThinkOpen && !is_label
}

/// Whether `words` hold more of the chat than one block: its roles stand between messages.
fn has_messages(words: &[Word]) -> bool {
    count(words, |class| class == Class::Role) > 1
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    fn chat(thoughts: &str) -> String {
        format!(
            "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n\
             <|im_start|>assistant\n{thoughts}{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n",
            prose(1, 60),
            prose(2, 60),
            prose(3, 40)
        )
    }

    #[test]
    fn a_dropped_block_is_told_in_full() {
        let block = format!("<think>\n{}\n</think>\n\n", prose(4, 50).trim());
        let (with, without) = (chat(&block), chat(""));
        let tagged = block.trim();
        check(&with, &without, Some(("thinking", tagged, "")));
        check(&without, &with, Some(("thinking", "", tagged)));
        let empty = chat("<think>\n\n</think>\n\n");
        assert_eq!(found(&empty, &without).map(|cause| cause.0), Some("thinking"));
    }

    #[test]
    fn a_rewritten_block_is_told() {
        let one = chat(&format!("<think>\n{}\n</think>\n\n", prose(5, 50).trim()));
        let other = chat(&format!("<think>\n{}\n</think>\n\n", prose(6, 30).trim()));
        assert_eq!(found(&one, &other).map(|cause| cause.0), Some("thinking"));
        let emptied = chat("<think>\n\n</think>\n\n");
        assert_eq!(found(&one, &emptied).map(|cause| cause.0), Some("thinking"));
    }

    #[test]
    fn a_dropped_thought_in_plain_text_is_told() {
        let block = format!("Thought: {}\n", prose(4, 50).trim());
        let (with, without) = (chat(&block), chat(""));
        assert_eq!(found(&with, &without).map(|cause| cause.0), Some("thinking"));
    }

    #[test]
    fn dropped_blocks_in_other_markup_are_told() {
        for (open, close) in [
            ("◁think▷", "◁/think▷"),
            ("<|begin_of_thought|>", "<|end_of_thought|>"),
            ("<reflection>", "</reflection>"),
            ("[THINK]", "[/THINK]"),
            ("## Reasoning\n", "\n\n"),
        ] {
            let block = format!("{open}{}{close}", prose(4, 50).trim());
            let (with, without) = (chat(&block), chat(""));
            assert_eq!(found(&with, &without).map(|cause| cause.0), Some("thinking"), "{open}");
        }
    }

    #[test]
    fn a_dropped_channel_is_told() {
        let chat = |thoughts: &str| {
            format!(
                "<|start|>user<|message|>Why?<|end|><|start|>assistant{thoughts}<|channel|>final\
                 <|message|>{}<|end|><|start|>user<|message|>{}<|end|><|start|>assistant",
                prose(7, 60),
                prose(8, 30)
            )
        };
        let block =
            format!("<|channel|>analysis<|message|>{}<|end|><|start|>assistant", prose(9, 40));
        let (with, without) = (chat(&block), chat(""));
        assert_eq!(found(&with, &without).map(|cause| cause.0), Some("thinking"));
    }

    #[test]
    fn two_ways_of_thinking_about_the_same_are_none() {
        let chat = |seed: u64| {
            format!(
                "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>{}</think>{}\
                 <|im_end|>\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n<think>{}\
                 </think>{}<|im_end|>\n",
                prose(1, 60),
                prose(seed, 40),
                prose(seed + 1, 10),
                prose(2, 60),
                prose(seed + 2, 40),
                prose(seed + 3, 40)
            )
        };
        check(&chat(20), &chat(30), None);
    }
}
