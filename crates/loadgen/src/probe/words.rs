//! Made-up text of common words: its length in tokens is predictable, its content never repeats.

use headstart_core::Rng;

/// Words in a sentence.
const SENTENCE_WORDS: usize = 12;

/// Short and common, so that nearly every tokenizer has each as one token.
const WORDS: [&str; 96] = [
    "river", "stone", "garden", "window", "yellow", "market", "silver", "winter", "summer",
    "bridge", "forest", "island", "letter", "mirror", "number", "orange", "paper", "planet",
    "pocket", "radio", "school", "shadow", "street", "table", "ticket", "tower", "valley",
    "village", "water", "wheel", "animal", "apple", "beach", "bottle", "bread", "camera", "castle",
    "chair", "circle", "cloud", "coffee", "corner", "desert", "doctor", "dream", "engine",
    "family", "farmer", "finger", "flower", "friend", "glass", "guitar", "hammer", "harbor",
    "horse", "hotel", "house", "kitchen", "ladder", "leader", "lemon", "light", "metal", "money",
    "morning", "mountain", "music", "night", "ocean", "office", "painter", "palace", "people",
    "picture", "piano", "plant", "queen", "rabbit", "road", "salt", "season", "sister", "snow",
    "song", "spring", "station", "story", "sugar", "teacher", "train", "tree", "uncle", "voice",
    "wagon", "writer",
];

/// Draws texts; the same seed gives the same ones.
pub(super) struct TextGenerator {
    rng: Rng,
}

impl TextGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }

    /// The next text of `count` words, in sentences.
    pub(super) fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for position in 0..count {
            if position > 0 {
                let ends = position % SENTENCE_WORDS == 0;
                text.push_str(if ends { ". " } else { " " });
            }
            text.push_str(WORDS[self.rng.below(WORDS.len())]);
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
        assert_eq!(HashSet::from(WORDS).len(), WORDS.len());
    }
}
