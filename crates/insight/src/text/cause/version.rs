//! Two versions of one prompt: the same texts under other labels, or other words for one of the
//! instructions, with all around them the same.

use std::collections::HashMap;

use super::WordSpans;
use crate::text::divergence::{LOSS_WORDS, PromptAlignment, Region, count};
use crate::text::word::{Class, Word};

/// Least times that one label must replace another.
const LABELS: usize = 3;

/// Other words that may change beside labels.
const OWN_WORDS: usize = 24;

/// Words of an instruction; a name has fewer, a document more.
const INSTRUCTION: std::ops::RangeInclusive<usize> = 5..=60;

/// Fewest words in its place, unless there are none.
const REPLACED_WORDS: usize = 3;

/// Messages in front of which instructions stand: a question and the cue to answer.
const TURNS_BEHIND: usize = 2;

/// The same texts under other labels, as `Source:` for `Document:`, or tags for headings.
pub(super) fn find_labels(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let body = aligned.body();
    let first = body.first()?;
    let (mut labels, mut others) = (0, 0);
    let mut times: HashMap<Vec<u64>, usize> = HashMap::new();
    for change in &aligned.changes[first.changes.start..body.last()?.changes.end] {
        let old = change.old.clone().map(|at| (&aligned.old, at));
        let new = change.new.clone().map(|at| (&aligned.new, at));
        let (form, content): (Vec<_>, Vec<_>) =
            old.chain(new).partition(|(words, at)| is_label(words, *at));
        (labels, others) = (labels + form.len(), others + content.len());
        let hashes = form.iter().map(|(words, at)| words[*at].hash);
        if content.is_empty() {
            // The count of the old ones tells `a` for `b` from `ab` for nothing.
            let old = change.old.len() as u64;
            *times.entry(hashes.chain([old]).collect()).or_default() += 1;
        }
    }
    // The same label must change many times; several labels that change once may be other text.
    let most = times.into_values().max().unwrap_or(0);
    let (old, new) = aligned.span(first);
    let is_form = most >= LABELS && others <= OWN_WORDS.max(labels / 2);
    (is_form && aligned.keeps_old(old.end)).then_some(WordSpans { old, new })
}

/// Whether a word is form and no content.
fn is_label(words: &[Word], at: usize) -> bool {
    let word = &words[at];
    let is_named = || {
        let behind = words.get(at + 1);
        behind.is_some_and(|next| next.is(b':') && next.start == word.end())
    };
    word.class == Class::Punctuation || word.class.is_tag() || word.class.is_markup() || is_named()
}

/// One of the instructions in other words, within the part that comes before all messages.
pub(super) fn find_wording(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let first = aligned.regions.first()?;
    let (old, new) = aligned.span(first);
    let (went, came) = (&aligned.old[old.clone()], &aligned.new[new.clone()]);
    let least = if went.is_empty() || came.is_empty() { 0 } else { REPLACED_WORDS };
    let (fewer, more) = match (letters(went)?, letters(came)?) {
        (one, other) if one < other => (one, other),
        (one, other) => (other, one),
    };
    let is_instruction = INSTRUCTION.contains(&more) && fewer >= least;
    let (front, behind) = (&aligned.new[..new.start], &aligned.new[new.end..]);
    (is_instruction
        // In front are at most the system message and one that lists the tools.
        && roles(front) <= roles_of_tools(front) + 1
        && roles(behind) >= TURNS_BEHIND
        && stays(aligned, behind))
    .then_some(WordSpans { old, new })
}

/// Counts the words of letters in prose; `None` where the text holds anything else.
fn letters(words: &[Word]) -> Option<usize> {
    let is_prose = |word: &Word| {
        let is_sign = word.class == Class::Punctuation && !b"{}[]\"<>".contains(&word.character);
        is_sign || word.class.is_letters() || word.class.may_be_of_time()
    };
    let letters = count(words, Class::is_letters);
    (words.iter().all(is_prose) && letters * 4 >= words.len() * 3).then_some(letters)
}

fn roles(words: &[Word]) -> usize {
    count(words, |class| class == Class::Role)
}

/// A message of its own that lists tools, if there is one.
fn roles_of_tools(front: &[Word]) -> usize {
    usize::from(count(front, |class| class == Class::ToolLabel) >= 2)
}

/// Whether the rest of the instructions stays as it is.
fn stays(aligned: &PromptAlignment<'_>, behind: &[Word]) -> bool {
    let start = aligned.new.len() - behind.len();
    let is_role = |word: &Word| word.class == Class::Role;
    let end = behind.iter().position(is_role).unwrap_or(behind.len()) + start;
    let within = |region: &&Region| aligned.span(region).1.start < end;
    let changed = aligned.regions.iter().skip(1).filter(within);
    let changed: usize = changed
        .map(|region| {
            let (old, new) = aligned.span(region);
            // A change may run past the instructions, and only its part inside of them counts.
            old.len().max(new.end.min(end) - new.start)
        })
        .sum();
    let first = aligned.regions.first().map_or(0, |region| region.agrees);
    first * 2 >= LOSS_WORDS && end - start >= LOSS_WORDS && changed * 4 <= end - start
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::check;
    use crate::text::testing::prose;

    fn chat(instruction: &str) -> String {
        let (front, rest) = (prose(1, 24), prose(2, 90));
        format!(
            "<|im_start|>system\n{front}\n{instruction}\n{rest}<|im_end|>\n<|im_start|>user\n\
             {}<|im_end|>\n<|im_start|>assistant\n",
            prose(instruction.len() as u64, 12)
        )
    }

    #[test]
    fn an_instruction_in_other_words_is_told() {
        let (one, other) = (
            "Use brief lists, no more than three of them.",
            "Keep to few lines and add what matters most, be friendly.",
        );
        let told = Some(("template", one.trim_end_matches('.'), other.trim_end_matches('.')));
        check(&chat(one), &chat(other), told);
    }

    #[test]
    fn a_name_is_no_other_wording() {
        check(&chat("You serve the bank of Ely."), &chat("You serve the bank of Rye."), None);
    }

    #[test]
    fn other_labels_around_the_same_texts_are_told() {
        let text = |label: &str| {
            let texts = (1..6).map(|seed| format!("{label}: {}\n\n", prose(seed, 40)));
            format!("{}\n\n{}", prose(9, 30), texts.collect::<String>())
        };
        check(&text("Input"), &text("Paragraph"), Some(("template", "Input", "Paragraph")));
    }

    #[test]
    fn another_name_throughout_is_no_label() {
        let text = |name: &str| {
            let texts =
                (1..6).map(|seed| format!("{} {name} {}\n", prose(seed, 30), prose(seed + 9, 30)));
            texts.collect::<String>()
        };
        check(&text("Ely"), &text("Rye"), None);
    }
}
