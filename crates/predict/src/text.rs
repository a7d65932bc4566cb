//! Text that a prediction reads: the current prompt and a few before it, under one budget.
//!
//! ```text
//! prompts   1   2  [3   4   5   6]  7 ← current          window 4: five prompts, a fifth each
//!                   └── each: whole, or "first half … last half" ──┘ joined, oldest first
//! ```
//!
//! Source: Yang et al., "Learned Prefix Caching", NeurIPS 2025: window 4, 512 words, halves from
//! both ends, prompts joined by a fixed phrase, answers left out. We differ in one thing: words
//! beyond `WORD_CHARS` characters count more than once, so that text without spaces is cut too.

use serde::{Deserialize, Serialize};

use crate::Situation;

/// Stands before every prompt but the first.
const NEXT_PROMPT: &str = "\nThe next user query is: ";
/// Stands before an answer.
const NEXT_ANSWER: &str = "\nThe answer is: ";
/// Stands for what was cut out.
const ELLIPSIS: &str = " ... ";
/// Characters that a share of the budget allows for each of its words: three times an English
/// word with its space, so that only text which is not words is cut by it.
const WORD_CHARS: usize = 16;

/// Texts read from a conversation. The default is the published choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextOptions {
    /// Prompts before the current one.
    pub window: usize,
    /// Words in all; each prompt of the window has an equal share.
    pub budget_words: usize,
    /// Whether answers are read too, each with a share of its own.
    pub answers: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { window: 4, budget_words: 512, answers: false }
    }
}

/// The text that `options` read of `situation`. Costs time in the length of the result, not of
/// the prompts; at most 16 characters per word of the budget, and the phrases between.
#[must_use]
pub fn compose(situation: &Situation, options: &TextOptions) -> String {
    let prompts = &situation.prompts;
    let first = prompts.len().saturating_sub(options.window + 1);
    let shown = prompts.len() - first;
    // No answer follows the current prompt.
    let pieces = if options.answers { (2 * shown).saturating_sub(1) } else { shown };
    let share = options.budget_words / pieces.max(1);
    let mut text = String::new();
    for (index, prompt) in prompts.iter().enumerate().skip(first) {
        if index > first {
            text.push_str(NEXT_PROMPT);
        }
        push_shortened(&mut text, prompt, share);
        let answer = situation.answers.get(index);
        // Behind the current prompt there is no answer yet.
        if let Some(answer) = answer.filter(|_| options.answers && index + 1 < prompts.len()) {
            text.push_str(NEXT_ANSWER);
            push_shortened(&mut text, answer, share);
        }
    }
    text
}

/// The current prompt alone, shortened to the whole budget.
#[must_use]
pub fn current(situation: &Situation, options: &TextOptions) -> String {
    let mut text = String::new();
    if let Some(prompt) = situation.prompts.last() {
        push_shortened(&mut text, prompt, options.budget_words);
    }
    text
}

/// Appends `prompt`, or its two ends where it has more than `share` words.
fn push_shortened(text: &mut String, prompt: &str, share: usize) {
    let prompt = prompt.trim();
    // `nth` stops at the budget: a prompt of megabytes is not read to its end.
    let fits_words = prompt.split_whitespace().nth(share).is_none();
    let fits_chars = prompt.char_indices().nth(share * WORD_CHARS).is_none();
    if fits_words && fits_chars {
        text.push_str(prompt);
        return;
    }
    // A budget of one word still shows both ends.
    let half = (share / 2).max(1);
    text.push_str(head(prompt, half));
    text.push_str(ELLIPSIS);
    text.push_str(tail(prompt, half));
}

/// The first `words` words, or characters for as many.
fn head(prompt: &str, words: usize) -> &str {
    let limit = prompt.char_indices().nth(words * WORD_CHARS);
    let prompt = &prompt[..limit.map_or(prompt.len(), |(at, _)| at)];
    let mut spaces = prompt.char_indices().filter(|(_, c)| c.is_whitespace());
    // A word ends at the space that follows it directly.
    let mut ends = std::iter::from_fn(|| spaces.next().map(|(at, _)| at))
        .filter(|&at| prompt[..at].ends_with(|c: char| !c.is_whitespace()));
    let end = ends.nth(words.saturating_sub(1));
    &prompt[..end.unwrap_or(prompt.len())]
}

/// The last `words` words, or characters for as many.
fn tail(prompt: &str, words: usize) -> &str {
    let limit = prompt.char_indices().rev().nth(words * WORD_CHARS - 1);
    let prompt = &prompt[limit.map_or(0, |(at, _)| at)..];
    let spaces = prompt.char_indices().rev();
    let starts = spaces.filter(|(_, c)| c.is_whitespace()).map(|(at, c)| at + c.len_utf8());
    let mut starts = starts.filter(|&at| prompt[at..].starts_with(|c: char| !c.is_whitespace()));
    let start = starts.nth(words.saturating_sub(1));
    &prompt[start.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(prompts: &[&str], answers: &[&str]) -> Situation {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Situation {
            prompts: owned(prompts),
            answers: owned(answers),
            turn: prompts.len() as u16,
            ..Situation::default()
        }
    }

    fn check(prompts: &[&str], options: TextOptions, expected: &str) {
        let situation = situation(prompts, &["one", "two", "three", "four"]);
        assert_eq!(compose(&situation, &options), expected);
    }

    fn options(window: usize, budget_words: usize, answers: bool) -> TextOptions {
        TextOptions { window, budget_words, answers }
    }

    #[test]
    fn the_window_is_joined_oldest_first_and_each_prompt_has_its_share() {
        let published = TextOptions::default();
        check(&["hello"], published, "hello");
        check(&[], published, "");
        check(&[" a  b "], published, "a  b");
        let joined = "b\nThe next user query is: c";
        check(&["a", "b", "c"], options(1, 512, false), joined);
        check(&["a b c d e"], options(4, 4, false), "a b ... d e");
        // Two prompts share eight words: four each.
        let joined = "a b ... d e\nThe next user query is: x y z";
        check(&["a b c d e", "x y z"], options(4, 8, false), joined);
        check(&["a b c"], options(4, 0, false), "a ... c");
    }

    #[test]
    fn answers_stand_between_their_prompts_where_asked_for() {
        let joined = "a\nThe answer is: one\nThe next user query is: b";
        check(&["a", "b"], options(4, 512, true), joined);
        let joined = "b\nThe answer is: two\nThe next user query is: c";
        check(&["a", "b", "c"], options(1, 512, true), joined);
    }

    #[test]
    fn text_without_spaces_is_cut_by_characters() {
        let long = "語".repeat(100_000);
        let text = compose(&situation(&[&long], &[]), &options(4, 512, false));
        assert_eq!(text.chars().count(), 512 * WORD_CHARS + ELLIPSIS.len());
        let spaces = format!("a{}b", " ".repeat(1_000_000));
        let text = compose(&situation(&[&spaces], &[]), &options(4, 10, false));
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["a", "...", "b"]);
    }
}
