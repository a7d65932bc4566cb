//! A seam that shows in the words: a marker that is missing, doubled or added where two parts of a
//! prompt meet, and nothing else. In a prompt of token ids: a few ids at a joint that were cut
//! otherwise. Other markup throughout is another template.

use super::WordSpans;
use crate::text::diff::DiffHunk;
use crate::text::divergence::{PromptAlignment, Region};
use crate::text::word::{Class, Word};

/// Words that must agree right behind the joint.
const AGREES_WORDS: usize = 12;

/// Most markers that are missing or added at one joint.
const MARKERS: usize = 2;

/// Most ids on either side of a joint.
const IDS: usize = 3;

/// Words at the start that tell whether a prompt is one of ids.
const LOOKED_AT: usize = 64;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let first = aligned.regions.first()?;
    let is_joint =
        // Prompts of ids have no markers: only the number of changed ids tells a joint there.
        if are_ids(&aligned.old) && are_ids(&aligned.new) { are_few_ids } else { are_markers };
    let joins = |region: &Region| {
        let changes = &aligned.changes[region.changes.clone()];
        changes.iter().all(|change| is_joint(aligned, change))
    };
    if first.agrees < AGREES_WORDS || !joins(first) {
        return None;
    }
    let body = aligned.body();
    let is_other = |region: &&Region| !joins(region) && has_markup(aligned, region);
    let is_template = body.iter().any(|region| is_other(&region));
    let (old, new) = aligned.span(first);
    (!is_template).then_some(WordSpans { old, new })
}

/// Whether a prompt is a list of numbers.
fn are_ids(words: &[Word]) -> bool {
    let looked_at = &words[..words.len().min(LOOKED_AT)];
    let is_number = |word: &Word| matches!(word.class, Class::Number | Class::Epoch);
    // A text may begin with a few numbers, so a shorter prompt decides nothing.
    looked_at.len() == LOOKED_AT && looked_at.iter().all(is_number)
}

/// Whether tokens came in or went, or others stand for them that are more or fewer. As many in
/// the place of others are another text, such as a time of day.
fn are_few_ids(_: &PromptAlignment<'_>, change: &DiffHunk) -> bool {
    let (old, new) = (change.old.len(), change.new.len());
    old != new && old.max(new) <= IDS
}

/// Whether markers came in or went.
fn are_markers(aligned: &PromptAlignment<'_>, change: &DiffHunk) -> bool {
    let (old, new) = (&aligned.old[change.old.clone()], &aligned.new[change.new.clone()]);
    let one = if old.is_empty() { new } else { old };
    (old.is_empty() || new.is_empty())
        && one.len() <= MARKERS
        && one.iter().all(|word| word.class == Class::Marker)
}

fn has_markup(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let (old, new) = aligned.span(region);
    let mut words = aligned.old[old].iter().chain(&aligned.new[new]);
    words.any(|word| word.class.is_markup())
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    fn chat(close: &str, next: &str) -> String {
        let (rules, file, more) = (prose(1, 60), prose(2, 60), prose(3, 60));
        format!(
            "<s>[SYSTEM_PROMPT]{rules}[/SYSTEM_PROMPT][INST]{file}[/INST]{more}{close}[INST]{next}"
        )
    }

    #[test]
    fn a_marker_more_or_less_at_a_joint_is_told() {
        let next = prose(4, 20);
        let (with, without) = (chat("</s>", &next), chat("", &next));
        check(&without, &with, Some(("seam", "", "</s>")));
        check(&with, &without, Some(("seam", "</s>", "")));
        let doubled = format!("<s>{with}");
        check(&with, &doubled, Some(("seam", "", "<s>")));
    }

    #[test]
    fn another_text_behind_a_joint_is_none() {
        check(&chat("", &prose(5, 20)), &chat("</s>", &prose(6, 20)), None);
    }

    #[test]
    fn ids_cut_otherwise_are_told_and_other_ids_are_not() {
        let ids = |seed: u64, joint: &str| {
            let mut rng = headstart_core::Rng::new(seed);
            let mut some = |count: usize| -> String {
                let ids = (0..count).map(|_| format!("{} ", 1000 + rng.below(90_000)));
                ids.collect()
            };
            format!("{}{joint} {}", some(70), some(100))
        };
        let cause =
            |one: &str, other: &str| found(&ids(1, one), &ids(1, other)).map(|cause| cause.0);
        assert_eq!(cause("13 271", "382"), Some("seam"));
        assert_eq!(cause("198", "198 198"), Some("seam"));
        assert_eq!(cause("198", "199"), None);
    }
}
