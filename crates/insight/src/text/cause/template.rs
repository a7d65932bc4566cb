//! The same messages in other markup: all that changed are markers, roles and signs, and a few
//! words that a template adds.

use super::WordSpans;
use crate::text::divergence::{PromptAlignment, count};
use crate::text::word::{Class, Word};

/// Words that a template may add of its own, such as the date of its knowledge.
const OWN_WORDS: usize = 24;

/// Most words of closing markup that may follow a prompt's continuation.
const END_WORDS: usize = 4;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let first = aligned.changes.first()?;
    let (mut markup, mut others) = (0, 0);
    for change in &aligned.changes {
        let is_end = change.old.end + END_WORDS >= aligned.old.len()
            || change.new.end + END_WORDS >= aligned.new.len();
        if is_end && change != first {
            // The newer prompt's continuation.
            continue;
        }
        for words in [&aligned.old[change.old.clone()], &aligned.new[change.new.clone()]] {
            markup += count(words, Class::is_markup);
            others += count(words, is_content);
        }
    }
    let begins = |words: &[Word]| count(words, Class::is_markup) > 0;
    let region = aligned.regions.first()?;
    let (old, new) = aligned.span(region);
    let is_markup = begins(&aligned.old[old.clone()]) || begins(&aligned.new[new.clone()]);
    // A little markup may bring four own words each, up to `OWN_WORDS`; much of it, a quarter as
    // many.
    let few = OWN_WORDS.min(markup * 4).max(markup / 4);
    (is_markup && others <= few && aligned.keeps_old(old.end))
        .then(|| whole(aligned, WordSpans { old, new }))
}

/// With the signs that touch the markup on both sides: `USER:`, and not `USER`.
fn whole(aligned: &PromptAlignment<'_>, mut spans: WordSpans) -> WordSpans {
    let is_form = |words: &[Word], at: usize| {
        words.get(at).is_some_and(|word| word.class == Class::Punctuation)
    };
    let touches = |words: &[Word], at: usize| {
        at > 0 && at < words.len() && words[at - 1].end() == words[at].start
    };
    let goes_on = |words: &[Word], at: usize| is_form(words, at) && touches(words, at);
    // Signs are taken only where both prompts have them, so that both spans end alike.
    while goes_on(&aligned.old, spans.old.end) && goes_on(&aligned.new, spans.new.end) {
        (spans.old.end, spans.new.end) = (spans.old.end + 1, spans.new.end + 1);
    }
    let begins = |words: &[Word], at: usize| at > 0 && is_form(words, at - 1) && touches(words, at);
    while begins(&aligned.old, spans.old.start) && begins(&aligned.new, spans.new.start) {
        (spans.old.start, spans.new.start) = (spans.old.start - 1, spans.new.start - 1);
    }
    spans
}

fn is_content(class: Class) -> bool {
    class != Class::Punctuation && !class.is_tag() && !class.is_markup()
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    fn chatml(messages: &[(&str, String)]) -> String {
        let shown = messages.iter();
        let shown = shown.map(|(role, text)| format!("<|im_start|>{role}\n{text}<|im_end|>\n"));
        shown.collect::<String>() + "<|im_start|>assistant\n"
    }

    fn llama(messages: &[(&str, String)]) -> String {
        let shown = messages.iter().map(|(role, text)| {
            format!("<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>")
        });
        let shown = shown.collect::<String>();
        format!("<|begin_of_text|>{shown}<|start_header_id|>assistant<|end_header_id|>\n\n")
    }

    fn plain(messages: &[(&str, String)]) -> String {
        messages.iter().map(|(role, text)| format!("{role}: {text}\n\n")).collect()
    }

    fn alpaca(messages: &[(&str, String)], goes_on: bool) -> String {
        let shown = messages.iter().map(|(role, text)| match *role {
            "system" => format!("{text}\n\n"),
            "user" => format!("### Instruction:\n{text}\n\n"),
            _ => format!("### Response:\n{text}\n\n"),
        });
        let end = if goes_on { "### Response:\n" } else { "" };
        shown.collect::<String>() + end
    }

    fn vicuna(messages: &[(&str, String)]) -> String {
        let shown = messages.iter().map(|(role, text)| match *role {
            "system" => format!("{text}\n\n"),
            "user" => format!("USER: {text}\n"),
            _ => format!("ASSISTANT: {text}</s>\n"),
        });
        shown.collect::<String>() + "ASSISTANT: "
    }

    #[test]
    fn a_turn_more_in_other_markup_is_told() {
        let messages = messages();
        let mut longer = messages.clone();
        longer.push(("assistant", prose(5, 40)));
        longer.push(("user", prose(6, 20)));
        let found = found(&alpaca(&messages, true), &vicuna(&longer)).map(|cause| cause.0);
        assert_eq!(found, Some("template"));
    }

    fn messages() -> Vec<(&'static str, String)> {
        vec![
            ("system", prose(1, 80)),
            ("user", prose(2, 20)),
            ("assistant", prose(3, 40)),
            ("user", prose(4, 20)),
        ]
    }

    #[test]
    fn other_markup_around_the_same_messages_is_told() {
        let messages = messages();
        let texts = [chatml(&messages), llama(&messages), plain(&messages)];
        for one in &texts {
            for other in texts.iter().filter(|other| *other != one) {
                let found = found(one, other).map(|cause| cause.0);
                assert_eq!(found, Some("template"), "{one}\n{other}");
            }
        }
        let doubled = format!("<|begin_of_text|>{}", texts[1]);
        let behind = doubled.len() - texts[1].len();
        let token = &doubled[..behind];
        check(&texts[1], &doubled, Some(("seam", "", token)));
    }

    #[test]
    fn other_messages_in_the_same_markup_are_none() {
        let mut other = messages();
        other[1] = ("user", prose(12, 20));
        other[2] = ("assistant", prose(13, 40));
        other[3] = ("user", prose(14, 20));
        check(&chatml(&messages()), &chatml(&other), None);
    }
}
