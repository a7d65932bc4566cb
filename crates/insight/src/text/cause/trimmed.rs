//! The front of a history cut off to make it fit: messages went, with little or nothing in their
//! place, and all that stood behind them stayed.

use super::Spans;
use crate::text::divergence::{Aligned, count};
use crate::text::word::Class;

/// Equal words right behind what went.
const AGREES_WORDS: usize = 12;

pub(super) fn find(aligned: &Aligned<'_>) -> Option<Spans> {
    let region = aligned.regions.first()?;
    let (old, new) = aligned.span(region);
    let roles = count(&aligned.old[old.clone()], |class| class == Class::Role);
    let is_cut = roles > 0 && new.len() * 2 <= old.len() && region.agrees >= AGREES_WORDS;
    (is_cut && aligned.keeps_old(old.end)).then_some(Spans { old, new })
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    fn chat(first: u64, last: u64, system: &str) -> String {
        let shown = (first..last).map(|seed| {
            let role = if seed % 2 == 0 { "user" } else { "assistant" };
            format!("<|im_start|>{role}\n{}<|im_end|>\n", prose(seed + 10, 30))
        });
        let shown = shown.collect::<String>();
        format!(
            "<|im_start|>system\n{}{system}<|im_end|>\n{shown}<|im_start|>assistant\n",
            prose(1, 60)
        )
    }

    #[test]
    fn a_front_cut_off_is_told() {
        for (old, new) in [
            (chat(0, 7, ""), chat(2, 9, "")),
            (chat(0, 9, ""), chat(4, 11, "")),
            (chat(0, 9, ""), chat(4, 9, "")),
            (
                chat(0, 9, ""),
                chat(4, 9, " Earlier messages were left out."),
            ),
        ] {
            let (cause, one, other) = found(&old, &new).expect("a cause");
            assert_eq!(cause, "trimmed");
            assert!(one.contains(prose(11, 30).trim()), "{one}");
            assert!(other.len() < 60, "{other}");
        }
    }

    #[test]
    fn another_conversation_is_no_cut() {
        check(&chat(0, 7, ""), &chat(20, 27, ""), None);
        check(&chat(0, 7, ""), &chat(0, 9, ""), None);
        // Gone back some messages to ask otherwise.
        check(&chat(0, 9, ""), &(chat(0, 5, "") + &prose(77, 90)), None);
    }
}
