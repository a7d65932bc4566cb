//! The front of a history cut off to make it fit: messages went, with little or nothing in their
//! place, and all that stood behind them stayed. A note of how much is gone may stand in front of
//! the gap, and change with it. Of a prompt that is one text, its very beginning goes; of a long
//! message in the history, its content, with a few words in its place.

use std::ops::Range;

use super::WordSpans;
use crate::text::diff;
use crate::text::divergence::{LOSS_WORDS, PromptAlignment, Region, count};
use crate::text::hashed::Hashes;
use crate::text::word::{Class, Word};

/// Equal words right behind what went.
const AGREES_WORDS: usize = 24;

/// Words of a run that is looked for elsewhere.
const MOVED_RUN: usize = 6;

/// Words of what went beside its markup: with fewer, only the form changed.
const GONE_WORDS: usize = 4;

/// Most words in the place of a message's content.
const NOTE_WORDS: usize = 16;

/// Equal words right behind what went, where a summary in front of it changed too.
const SUMMARY_AGREES_WORDS: usize = 128;

/// Most words of a summary of what is gone, and words that changed in it.
const SUMMARY_WORDS: usize = 400;

/// Least role words in front of an emptied message: instructions, a question, an answer.
const HISTORY_ROLES: usize = 3;

/// Messages, more than came instead, that went in a gap with a long summary in its place.
const GONE_TURNS: usize = 2;

/// Most words in common in front of a text that is cut from the left: chance.
const LEAD_WORDS: usize = 4;

/// Least words with which the newer prompt continues behind all that the older one had.
const GOES_ON_WORDS: usize = 8;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let first = aligned.regions.first()?;
    let gap = if is_gap(aligned, first) || is_cut(aligned, first) {
        first
    } else {
        behind_note(aligned)?
    };
    let (start, end) = (aligned.span(first), aligned.span(gap));
    aligned
        .keeps_old(end.0.end)
        .then_some(WordSpans { old: start.0.start..end.0.end, new: start.1.start..end.1.end })
}

/// The gap behind a note or a summary that changed with it.
fn behind_note<'a>(aligned: &'a PromptAlignment<'_>) -> Option<&'a Region> {
    let first = aligned.span(aligned.regions.first()?);
    let (mut changed, mut agrees) = (0, 0);
    for (number, region) in aligned.regions.iter().enumerate() {
        let (old, new) = aligned.span(region);
        // A note changes in one place in front of the gap, so the gap is the second region.
        let is_note = number == 1 && changed <= NOTE_WORDS && agrees < LOSS_WORDS;
        if is_note && is_gap(aligned, region) {
            return Some(region);
        }
        // A summary may quote what it stands for: all up to where both agree for long is one gap.
        let whole = WordSpans { old: first.0.start..old.end, new: first.1.start..new.end };
        if region.agrees >= SUMMARY_AGREES_WORDS {
            return is_gone(aligned, &whole, region).then_some(region);
        }
        let is_replaced = || is_summed_up(aligned, &whole.old, &whole.new, region);
        if region.agrees >= AGREES_WORDS && is_replaced() {
            return Some(region);
        }
        changed += old.len().max(new.len());
        agrees += region.agrees;
        // More changed, or agreed, than a summary has words: the prompts differ in another way.
        if changed.max(agrees) > SUMMARY_WORDS {
            return None;
        }
    }
    None
}

/// Whether messages went, or the beginning of all, or what an earlier message held, such as the
/// result of a tool.
fn is_gap(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let (old, new) = aligned.span(region);
    region.agrees >= AGREES_WORDS && is_gone(aligned, &WordSpans { old, new }, region)
}

/// The same of the words from a difference up to where both agree.
fn is_gone(aligned: &PromptAlignment<'_>, spans: &WordSpans, region: &Region) -> bool {
    let WordSpans { old, new } = spans;
    let (gone, instead) = (&aligned.old[old.clone()], &aligned.new[new.clone()]);
    let is_word = |class: Class| class != Class::Punctuation && !class.is_markup();
    let has_roles = count(gone, |class| class == Class::Role) > 0
        || has_speakers(gone, &aligned.old[old.end..old.end + region.agrees]);
    let is_front = new.start <= LEAD_WORDS && old.len() >= AGREES_WORDS && new.len() <= LEAD_WORDS;
    let is_emptied = gone.len() >= LOSS_WORDS
        && instead.len() <= NOTE_WORDS
        && count(&aligned.new[..new.start], |class| class == Class::Role) >= HISTORY_ROLES;
    // Another message instead may be another conversation with the same closing words.
    let kept = &aligned.new[new.end..new.end + region.agrees];
    let has_roles = has_roles && (count(instead, is_word) == 0 || turns(kept) >= GONE_TURNS);
    let is_less = (has_roles || is_front || is_emptied) && instead.len() * 2 <= gone.len();
    (is_less || is_summed_up(aligned, old, new, region)) && count(gone, is_word) >= GONE_WORDS
}

fn turns(words: &[Word]) -> usize {
    count(words, Class::is_turn)
}

/// Whether a speaker of the removed words speaks again behind them.
fn has_speakers(gone: &[Word], kept: &[Word]) -> bool {
    let is_speaker = |word: &&Word| word.class == Class::Speaker;
    let goes_on =
        |word: &Word| kept.iter().filter(is_speaker).any(|speaker| speaker.hash == word.hash);
    gone.iter().filter(is_speaker).any(goes_on)
}

/// Whether a summary, be it long, stands in the place of several messages, and others stayed.
fn is_summed_up(
    aligned: &PromptAlignment<'_>,
    old: &Range<usize>,
    new: &Range<usize>,
    region: &Region,
) -> bool {
    let (gone, instead) = (&aligned.old[old.clone()], &aligned.new[new.clone()]);
    let kept = &aligned.new[new.end..new.end + region.agrees];
    instead.len() <= SUMMARY_WORDS
        && turns(kept) >= GONE_TURNS
        && (turns(gone) >= turns(instead) + GONE_TURNS
            || is_shorter(gone, instead) && kept.len() >= SUMMARY_AGREES_WORDS)
}

/// Whether fewer messages with fewer words stand there instead.
fn is_shorter(gone: &[Word], instead: &[Word]) -> bool {
    turns(gone) > turns(instead) && gone.len() > instead.len()
}

/// Whether the front of a growing history was cut off behind fixed instructions: the newer prompt
/// has the rest of the older one, and continues behind its end.
fn is_cut(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let (old, new) = aligned.span(region);
    let behind = old.end + region.agrees;
    // Markup that closes a message, and the cue to answer.
    let is_form = |word: &&Word| {
        word.class.is_markup() || word.class.is_turn() || word.class == Class::Punctuation
    };
    let form = aligned.old.iter().rev().take_while(is_form).count();
    let end = aligned.old.len() - form;
    let goes_on = match aligned.regions.get(1) {
        Some(next) => aligned.span(next).1.len() >= GOES_ON_WORDS,
        None => false,
    };
    old.len() >= AGREES_WORDS
        && new.len() <= LEAD_WORDS
        && region.agrees >= LOSS_WORDS
        && behind >= end
        && goes_on
        // Text that moved elsewhere was not cut off.
        && !is_elsewhere(aligned, &old, new.end)
}

/// Whether most of the words that went stand elsewhere in the newer prompt, from `from` on.
fn is_elsewhere(aligned: &PromptAlignment<'_>, gone: &Range<usize>, from: usize) -> bool {
    let runs: Hashes = diff::run_hashes(&aligned.new[from..], MOVED_RUN).collect();
    let gone: Vec<u64> = diff::run_hashes(&aligned.old[gone.clone()], MOVED_RUN).collect();
    let there = gone.iter().filter(|run| runs.contains(run)).count();
    // Fewer words than a run have no hashes; then nothing is elsewhere.
    there * 2 >= gone.len().max(1)
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
            (chat(0, 9, ""), chat(4, 9, " Earlier messages were left out.")),
        ] {
            let (cause, one, other) = found(&old, &new).expect("a cause");
            assert_eq!(cause, "trimmed");
            assert!(one.contains(prose(11, 30).trim()), "{one}");
            assert!(other.len() < 60, "{other}");
        }
    }

    #[test]
    fn a_note_of_how_many_are_gone_changes_with_the_gap() {
        let note = |gone: u32| format!("<|im_end|>\n<|im_start|>user\n[{gone} messages left out]");
        let (old, new) = (chat(2, 9, &note(2)), chat(4, 11, &note(4)));
        let (cause, one, other) = found(&old, &new).expect("a cause");
        assert_eq!(cause, "trimmed");
        assert!(one.starts_with("2 messages left out]"), "{one}");
        assert!(other.starts_with("4 messages left out]"), "{other}");
        assert!(other.len() < 80, "{other}");
    }

    #[test]
    fn an_old_result_that_was_emptied_is_told() {
        let text = |result: &str| {
            let (front, behind) = (chat(0, 3, ""), chat(4, 8, ""));
            format!("{front}<|im_end|>\n<|im_start|>tool\n{result}<|im_end|>\n{behind}")
        };
        let result = prose(9, 120);
        let (old, new) = (text(&result), text("[Old result removed]"));
        let (cause, one, other) = found(&old, &new).expect("a cause");
        assert_eq!((cause, other), ("trimmed", "[Old result removed]"));
        assert_eq!(one, result.trim());
    }

    #[test]
    fn a_summary_that_grows_with_the_gap_is_told() {
        let summary = |words: usize| {
            let text = prose(8, words);
            format!("<|im_end|>\n<|im_start|>user\nSo far: {text}")
        };
        let (old, new) = (chat(2, 9, &summary(20)), chat(4, 11, &summary(40)));
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("trimmed"));
    }

    #[test]
    fn a_text_cut_from_the_left_is_told() {
        let text = prose(5, 300);
        let lines: Vec<_> = text.lines().collect();
        let (old, new) = (lines.join("\n"), lines[5..].join("\n"));
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("trimmed"));
        // Another beginning is another text.
        let other = format!("{}\n{new}", prose(6, 40));
        check(&old, &other, None);
    }

    /// A transcript in one message, from message `first` to before `last`.
    fn transcript(first: u64, last: u64, names: [&str; 2]) -> String {
        let says =
            |seed: u64| format!("{}: {}\n", names[(seed % 2) as usize], prose(seed + 40, 24));
        (first..last).map(says).collect()
    }

    #[test]
    fn a_transcript_cut_behind_its_instructions_is_told() {
        let front = format!("<|im_start|>user\n{}\n", prose(3, 60));
        let (close, cue) = ("<|im_end|>\n<|im_start|>assistant\n", prose(4, 40));
        for names in [["Guest", "Desk"], ["Ann Lee", "Bo"]] {
            let (one, other) = (transcript(0, 8, names), transcript(4, 12, names));
            for behind in [close.to_owned(), format!("{cue}{close}")] {
                let (old, new) =
                    (format!("{front}{one}{behind}"), format!("{front}{other}{behind}"));
                let (cause, gone, _) = found(&old, &new).expect("a cause");
                assert_eq!(cause, "trimmed");
                assert!(gone.contains(prose(41, 24).trim()), "{gone}");
            }
        }
        // By characters, in the middle of a word, whatever the speakers.
        let (one, other) = (transcript(0, 8, ["-", "+"]), transcript(0, 12, ["-", "+"]));
        let other = &other[263..];
        let (old, new) = (format!("{front}{one}{close}"), format!("{front}{other}{close}"));
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("trimmed"));
    }

    #[test]
    fn records_that_come_and_go_are_none() {
        let record =
            |seed: u64| format!("Title: {}Text: {}\n", prose(seed, 8), prose(seed + 90, 40));
        let text = |records: [u64; 3]| {
            format!(
                "{}\n{}\nQuestion: {}",
                prose(3, 60),
                records.map(record).concat(),
                prose(4, 60)
            )
        };
        check(&text([1, 2, 3]), &text([2, 3, 4]), None);
        check(&text([1, 2, 3]), &text([2, 3, 3]), None);
    }

    #[test]
    fn a_summary_longer_than_half_of_what_it_stands_for_is_told() {
        let summary = |seed: u64, words: usize| {
            format!("<|im_end|>\n<|im_start|>user\nSo far: {}", prose(seed, words))
        };
        for (old, new) in [
            (chat(0, 9, ""), chat(4, 11, &summary(8, 90))),
            (chat(2, 9, &summary(7, 70)), chat(4, 11, &summary(8, 110))),
        ] {
            assert_eq!(found(&old, &new).map(|cause| cause.0), Some("trimmed"), "{new}");
        }
    }

    #[test]
    fn another_conversation_with_the_same_closing_words_is_no_cut() {
        let closing = |text: String| format!("{text}{}", prose(70, 60));
        check(&closing(chat(0, 6, "")), &closing(chat(20, 21, "")), None);
    }

    #[test]
    fn another_conversation_is_no_cut() {
        check(&chat(0, 7, ""), &chat(20, 27, ""), None);
        check(&chat(0, 7, ""), &chat(0, 9, ""), None);
        // Gone back some messages to ask otherwise.
        check(&chat(0, 9, ""), &(chat(0, 5, "") + &prose(77, 90)), None);
    }
}
