//! A text as its words, hashed under a secret.
//!
//! One pass over the bytes. Beside the words a sketch holds what [`Neighbours`] look up:
//!
//! - **marks**: the hash of all words up to every 32nd, for prompts that begin alike;
//! - **anchors**: hashes of windows of five words, those whose hash says so (one in eight), for
//!   prompts that agree further in. The same words give the same anchors wherever they stand.
//!
//! Both leave white space out. Source: content-defined sampling of windows as in LBFS (SOSP'01)
//! and winnowing (SIGMOD'03). Difference: windows of words, and a keyed hash.
//!
//! [`Neighbours`]: super::Neighbours

use std::ops::Range;

use headstart_core::TokenId;
use twox_hash::XxHash3_64;

use super::scan::{ScannedWord, Scanner};
use super::word::{Class, Word};

/// Most words of a text that are kept unless told otherwise: some two megabytes of prompt.
pub const WORDS_MAX: usize = 1 << 19;

/// Bytes of XXH3's secret, as its default one has.
const SECRET_BYTES: usize = 192;

/// Words without white space between two marks.
pub(super) const MARK_WORDS: usize = 32;

/// Words without white space in an anchor's window.
const ANCHOR_WORDS: usize = 5;

/// A window is an anchor if its hash without this many bits is 0: one in eight.
const ANCHOR_SHIFT: u32 = 64 - 3;

/// Windows in a row without an anchor, after which the one with the least hash becomes one. A text
/// that repeats a few words has few different windows, and perhaps no other anchor.
const ANCHOR_GAP: usize = 32;

/// Makes sketches that can be compared with one another: those of one secret.
#[derive(Clone)]
pub struct Sketcher {
    secret: [u8; SECRET_BYTES],
    bytes: [u64; 256],
    words_max: usize,
}

/// A text as its words; nothing of the text itself.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    words: Vec<Word>,
    marks: Vec<u64>,
    anchors: Vec<u64>,
    text_bytes: usize,
    is_cut: bool,
    is_of_tokens: bool,
}

impl std::fmt::Debug for Sketcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sketcher").finish_non_exhaustive()
    }
}

impl Sketcher {
    /// Creates a sketcher for `secret`, which should be drawn at random once per process or file.
    /// Without it, words cannot be tried against the hashes.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        let mut wide = [0; SECRET_BYTES];
        for (number, part) in (0u64..).zip(wide.chunks_exact_mut(8)) {
            let hash = XxHash3_64::oneshot_with_seed(number, secret);
            part.copy_from_slice(&hash.to_le_bytes());
        }
        let mut sketcher = Self { secret: wide, bytes: [0; 256], words_max: WORDS_MAX };
        // Single bytes are hashed in advance: most spaces and all punctuation are one byte.
        sketcher.bytes = std::array::from_fn(|byte| sketcher.slow_hash(&[byte as u8]));
        sketcher
    }

    /// The same with another bound on the words of a text; what stands behind them is left out.
    #[cfg(test)]
    fn with_words_max(mut self, words_max: usize) -> Self {
        self.words_max = words_max;
        self
    }

    /// The sketch of `text`. Texts beyond 4 GiB are cut there.
    #[must_use]
    pub fn sketch(&self, text: &str) -> Sketch {
        let bytes = text.as_bytes();
        // Words store their offsets in 32 bits.
        let bytes = &bytes[..bytes.len().min(u32::MAX as usize)];
        let mut sketch = Sketch {
            words: Vec::with_capacity((bytes.len() / 3).min(self.words_max)),
            text_bytes: text.len(),
            ..Sketch::default()
        };
        let mut windows = WordWindow::default();
        let mut scanner = Scanner::new(bytes);
        while let Some(scanned) = scanner.next() {
            if sketch.words.len() == self.words_max {
                sketch.is_cut = true;
                break;
            }
            let word = self.word(bytes, &scanned);
            sketch.words.push(word);
            if word.is_ink() {
                windows.push(word.hash, &mut sketch.marks, &mut sketch.anchors);
            }
        }
        // The capacity was a guess from the length, and a sketch may be kept for long.
        sketch.words.shrink_to_fit();
        sketch
    }

    /// The sketch of a prompt that came as token ids: each is a number and nothing more, and
    /// whatever counts bytes of a text counts ids of this.
    #[must_use]
    pub fn sketch_tokens(&self, tokens: &[TokenId]) -> Sketch {
        let kept = tokens.len().min(self.words_max);
        let mut sketch = Sketch {
            words: Vec::with_capacity(kept),
            text_bytes: tokens.len(),
            is_cut: kept < tokens.len(),
            is_of_tokens: true,
            ..Sketch::default()
        };
        let mut windows = WordWindow::default();
        for (start, token) in (0u32..).zip(&tokens[..kept]) {
            let hash = self.slow_hash(&token.to_le_bytes());
            sketch.words.push(Word { hash, start, len: 1, class: Class::Number, character: 0 });
            windows.push(hash, &mut sketch.marks, &mut sketch.anchors);
        }
        sketch
    }

    /// The keyed hash of any bytes.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        match bytes {
            [byte] => self.bytes[usize::from(*byte)],
            _ => self.slow_hash(bytes),
        }
    }

    fn word(&self, bytes: &[u8], scanned: &ScannedWord) -> Word {
        Word {
            hash: self.hash(&bytes[scanned.start..scanned.end]),
            start: scanned.start as u32,
            len: (scanned.end - scanned.start) as u16,
            class: scanned.class,
            character: scanned.character,
        }
    }

    fn slow_hash(&self, bytes: &[u8]) -> u64 {
        let hash = XxHash3_64::oneshot_with_secret(&self.secret, bytes);
        hash.expect("the secret is longer than the 136 bytes that are wanted")
    }
}

impl Sketch {
    /// Its words, white space among them, in order.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// Whether it is of token ids, and not of a text.
    #[must_use]
    pub fn is_of_tokens(&self) -> bool {
        self.is_of_tokens
    }

    /// Length of the text, bytes; of a prompt of token ids, their number.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Whether the text had more words than are kept.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Counts the words that `self` and `other` have in common from the start.
    #[must_use]
    pub fn common_words(&self, other: &Self) -> usize {
        common(&self.words, &other.words)
    }

    /// Returns the start of word `index`, bytes; past the last word, the end of that word.
    #[must_use]
    pub fn byte_of(&self, index: usize) -> usize {
        let behind = || self.words.last().map_or(0, Word::end);
        self.words.get(index).map_or_else(behind, |word| word.start) as usize
    }

    /// The hashes of all words up to every 32nd.
    pub(super) fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// The hashes of the chosen windows, in order, repeats included.
    pub(super) fn anchors(&self) -> &[u64] {
        &self.anchors
    }

    /// The anchors of what stands behind the first `words` of them.
    pub(super) fn anchors_behind(&self, words: usize) -> Vec<u64> {
        let (mut windows, mut marks, mut anchors) = (WordWindow::default(), Vec::new(), Vec::new());
        let behind = self.words[words.min(self.words.len())..].iter();
        for word in behind.filter(|word| word.is_ink()) {
            windows.push(word.hash, &mut marks, &mut anchors);
        }
        anchors
    }

    /// Words without white space in the first `words` of them.
    pub(super) fn ink_in(&self, words: Range<usize>) -> usize {
        self.words[words].iter().filter(|word| word.is_ink()).count()
    }
}

/// Counts the leading words that both have in common.
pub(super) fn common(one: &[Word], other: &[Word]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one.hash == other.hash).count()
}

/// The last words, as marks and anchors need them.
#[derive(Default)]
struct WordWindow {
    count: usize,
    chain: u64,
    window: u64,
    last: [u64; ANCHOR_WORDS],
    /// Index of the oldest word in `last`.
    oldest: usize,
    /// Windows since the last anchor; of these the least hash, and its window.
    gap: usize,
    least: (u64, u64),
}

/// An odd number without a pattern: that of SplitMix64.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Factor of the word that leaves a window, once another is added.
const OLDEST_FACTOR: u64 = FACTOR.wrapping_pow(ANCHOR_WORDS as u32);

impl WordWindow {
    #[inline]
    fn push(&mut self, hash: u64, marks: &mut Vec<u64>, anchors: &mut Vec<u64>) {
        self.chain = (self.chain.rotate_left(29) ^ hash).wrapping_mul(FACTOR);
        let oldest = std::mem::replace(&mut self.last[self.oldest], hash);
        self.oldest = (self.oldest + 1) % ANCHOR_WORDS;
        let gone = oldest.wrapping_mul(OLDEST_FACTOR);
        // After this multiplication the oldest word has the fifth power of the factor, which `gone`
        // takes off.
        self.window = self.window.wrapping_mul(FACTOR).wrapping_add(hash);
        self.window = self.window.wrapping_sub(gone);
        self.count += 1;
        if self.count.is_multiple_of(MARK_WORDS) {
            marks.push(mixed(self.chain));
        }
        // `last` still holds zeros in place of words.
        if self.count < ANCHOR_WORDS {
            return;
        }
        let hash = (self.window ^ (self.window >> 32)).wrapping_mul(FACTOR);
        if self.gap == 0 || hash < self.least.0 {
            self.least = (hash, self.window);
        }
        self.gap += 1;
        if hash >> ANCHOR_SHIFT == 0 || self.gap == ANCHOR_GAP {
            // The choice needs a hash with leading zeros. The stored one is mixed, because tables
            // take it as its own hash.
            anchors.push(mixed(self.least.1));
            self.gap = 0;
        }
    }
}

/// Spreads a change of any bit over all of them. Source: the finalizer of SplitMix64.
pub(super) fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketcher() -> Sketcher {
        Sketcher::new(&[7; 32])
    }

    #[test]
    fn words_cover_the_text_without_a_gap() {
        let texts = [
            "",
            "a",
            "Hello, world!\n\n  It is 2026-11-23T17:35:02Z now.",
            "naïve café — “quoted” 東京は晴れ 🎉 end",
            "<|im_start|>user\nhi<|im_end|>\n<think>\nso</think> [INST] x [/INST]",
        ];
        for text in texts {
            let sketch = sketcher().sketch(text);
            let mut at = 0;
            for word in sketch.words() {
                assert_eq!(word.start, at, "{text}");
                assert!(text.is_char_boundary(word.end() as usize), "{text}");
                at = word.end();
            }
            assert_eq!(at as usize, text.len(), "{text}");
            assert_eq!(sketch.text_bytes(), text.len());
            assert!(!sketch.is_cut());
        }
    }

    #[test]
    fn hashes_depend_on_the_secret_and_on_nothing_else() {
        let text = "the same words, again";
        let hashes = |sketcher: &Sketcher| {
            let sketch = sketcher.sketch(text);
            sketch.words().iter().map(|word| word.hash).collect::<Vec<_>>()
        };
        assert_eq!(hashes(&sketcher()), hashes(&sketcher()));
        let other = hashes(&Sketcher::new(&[8; 32]));
        assert!(hashes(&sketcher()).iter().zip(&other).all(|(one, two)| one != two));
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let sketch = sketcher().with_words_max(3).sketch("one two three");
        assert_eq!(sketch.words().len(), 3);
        assert!(sketch.is_cut());
        let long = "x".repeat(70_000) + &" ".repeat(70_000);
        let sketch = sketcher().sketch(&long);
        assert_eq!(sketch.byte_of(usize::MAX), 140_000);
        assert!(sketch.words().iter().any(|word| word.class == Class::Space));
    }

    #[test]
    fn of_token_ids_each_is_a_word_and_counts_one() {
        let ids: Vec<TokenId> = (0..200).map(|n| n * n).collect();
        let sketch = sketcher().sketch_tokens(&ids);
        assert_eq!((sketch.words().len(), sketch.text_bytes()), (200, 200));
        assert_eq!((sketch.byte_of(17), sketch.byte_of(999)), (17, 200));
        assert!(sketch.is_of_tokens() && !sketcher().sketch("1 4 9").is_of_tokens());
        let other = sketcher().sketch_tokens(&[&ids[..150], &[7; 50]].concat());
        assert_eq!(sketch.common_words(&other), 150);
        let cut = sketcher().with_words_max(10).sketch_tokens(&ids);
        assert!(cut.is_cut() && cut.words().len() == 10);
    }

    #[test]
    fn a_text_that_repeats_itself_has_anchors_under_any_secret() {
        for words in ["word ", "yes no ", "a b c d e f g "] {
            let body = words.repeat(600);
            for secret in 0..40 {
                let sketcher = Sketcher::new(&[secret; 32]);
                let one = sketcher.sketch(&format!("It is 9:41. {body}"));
                let two = sketcher.sketch(&format!("It is half past nine. {body}"));
                let is_known = |anchor: &u64| two.anchors().contains(anchor);
                assert!(one.anchors().iter().any(is_known), "{words} {secret}");
            }
        }
    }

    #[test]
    fn anchors_do_not_depend_on_where_words_stand() {
        let body = (0..400).map(|n| format!("word{} ", n * n)).collect::<String>();
        let one = sketcher().sketch(&body);
        let two = sketcher().sketch(&format!("In front: {}", body.replace(' ', "\n  ")));
        assert!(one.anchors().len() > 20);
        let known = one.anchors().iter().filter(|anchor| two.anchors().contains(anchor));
        assert_eq!(known.count(), one.anchors().len());
        assert_ne!(one.marks()[0], two.marks()[0]);
    }
}
