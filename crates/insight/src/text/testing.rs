//! Texts for tests.

use headstart_core::Rng;

use super::{Sketch, Sketcher};

/// The sketch of `text` under the tests' secret.
pub(super) fn sketch(text: &str) -> Sketch {
    Sketcher::new(&[3; 32]).sketch(text)
}

/// Returns `words` words that read like instructions, always the same for a seed.
pub(super) fn prose(seed: u64, words: usize) -> String {
    const STEMS: [&str; 24] = [
        "answer",
        "the",
        "question",
        "with",
        "care",
        "and",
        "check",
        "every",
        "step",
        "before",
        "you",
        "reply",
        "never",
        "invent",
        "facts",
        "quote",
        "sources",
        "when",
        "asked",
        "keep",
        "sentences",
        "short",
        "plain",
        "polite",
    ];
    let mut rng = Rng::new(seed);
    let word = |at: usize, rng: &mut Rng| {
        let stem = STEMS[rng.below(STEMS.len())];
        // Some words of its own make each text another one.
        let own = ["", "", "ing", "able", "ness", "wise", "less"][rng.below(7)];
        let end = if at % 12 == 11 { ".\n" } else { " " };
        format!("{stem}{own}{end}")
    };
    (0..words).map(|at| word(at, &mut rng)).collect()
}
