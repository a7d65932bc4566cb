//! Made-up text of common words: its length in tokens is predictable, its content never repeats.

use headstart_core::Rng;

/// Words in a sentence.
const SENTENCE_WORDS: usize = 12;

/// One a line, short and common, so that nearly every tokenizer has each as one token.
const WORDS: &str = include_str!("words.txt");

/// Draws texts; the same seed gives the same ones.
pub(super) struct TextGenerator {
    rng: Rng,
    words: Vec<&'static str>,
}

impl TextGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), words: WORDS.lines().collect() }
    }

    /// The next text of `count` words, in sentences.
    pub(super) fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for position in 0..count {
            if position > 0 {
                let ends = position % SENTENCE_WORDS == 0;
                text.push_str(if ends { ". " } else { " " });
            }
            text.push_str(self.words[self.rng.below(self.words.len())]);
        }
        text.push('.');
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn check(seed: u64, count: usize) {
        let text = TextGenerator::new(seed).text(count);
        assert_eq!(text.split_whitespace().count(), count);
        assert_eq!(text, TextGenerator::new(seed).text(count), "the same again");
    }

    #[test]
    fn texts_have_their_length_and_repeat_by_seed_only() {
        check(1, 1);
        check(2, 12);
        check(3, 2000);
        let mut words = TextGenerator::new(1);
        let texts: HashSet<String> = (0..100).map(|_| words.text(20)).collect();
        assert_eq!(texts.len(), 100);
    }

    #[test]
    fn no_word_is_listed_twice() {
        let words: HashSet<_> = WORDS.lines().collect();
        assert_eq!(words.len(), WORDS.lines().count());
    }
}
