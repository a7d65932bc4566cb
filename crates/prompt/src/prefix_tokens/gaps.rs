//! Boundaries inside of a message: the gap between a word and what follows it.
//!
//! For byte-level tokenizers of the recognised [`patterns`](super::patterns): right behind a
//! letter or digit and right before a space, a line end, or one of three marks of Chinese and
//! Japanese. What had to be checked, in the order in which a tokenizer works:
//!
//! 1. *Added tokens* are looked up in the text first. None may reach across, so followers that
//!    stand behind a word character within an added token are not used. Nor those that a token
//!    with `rstrip` would swallow, or that start a token with `single_word`, which looks at its
//!    neighbours; none of our characters is swallowed leftwards, since `lstrip` takes white space
//!    and stops at the word.
//! 2. *Normalization*: none, or NFC. The followers are starters that never combine with what is
//!    before them and are their own NFC, so both sides are normalized alike, and so are the word
//!    characters before a follower. Tokens that are looked up in the normalized text must be
//!    ASCII where there is NFC, so that they too are their own.
//! 3. *Pieces*: by [`ends_words`].
//! 4. *The model* sees one piece at a time.
//!
//! Word characters are those whose class is the same in every Unicode version that a tokenizer
//! may have been built with; the table is short of many letters, which costs boundaries only.

use std::ops::RangeInclusive;

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{AddedToken, Tokenizer};

use super::patterns::ends_words;

/// Characters before which a text may be cut.
const FOLLOWERS: [char; 5] = [' ', '\n', '、', '。', '，'];

/// Letters beyond ASCII (Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Kana, Han,
/// Hangul): of class L since Unicode 6 at the latest, and each its own NFC.
const LETTERS: &[RangeInclusive<char>] = &[
    'À'..='Ö',
    'Ø'..='ö',
    'ø'..='\u{24f}',
    'Α'..='Ρ',
    'Σ'..='ώ',
    'Ѐ'..='ҁ',
    'א'..='ת',
    '\u{621}'..='\u{64a}',
    'अ'..='ह',
    'ก'..='ะ',
    'ぁ'..='ゖ',
    'ァ'..='ヺ',
    '㐀'..='\u{4db5}',
    '一'..='\u{9fa5}',
    '가'..='\u{d7a3}',
];

/// The gaps at which a tokenizer's texts may be cut.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    followers: Vec<char>,
}

impl Gaps {
    /// Returns the gaps of `tokenizer`; `None` where none is known to be safe.
    pub(super) fn of(tokenizer: &Tokenizer, added: &[AddedToken]) -> Option<Self> {
        if !tokenizer.get_pre_tokenizer().is_some_and(ends_words) {
            return None;
        }
        let composes = match tokenizer.get_normalizer() {
            Some(normalizer) => composes(normalizer)?,
            None => false,
        };
        let changes = |token: &AddedToken| token.normalized && !token.content.is_ascii();
        if composes && added.iter().any(changes) {
            return None;
        }
        let mut followers = FOLLOWERS.to_vec();
        followers.retain(|&follower| added.iter().all(|token| leaves(token, follower)));
        (!followers.is_empty()).then_some(Self { followers })
    }

    /// All gaps, whatever the tokenizer; for the test of the self-test.
    #[cfg(test)]
    pub(super) fn unchecked() -> Self {
        Self { followers: FOLLOWERS.to_vec() }
    }

    /// The first gap at `from` or behind it.
    pub(super) fn next(&self, text: &str, from: usize) -> Option<usize> {
        let bytes = text.as_bytes().get(from..)?;
        let candidates = bytes.iter().enumerate().filter(|&(_, &byte)| {
            // The first bytes of the followers: none is in the middle of a character.
            matches!(byte, b' ' | b'\n' | 0xe3 | 0xef)
        });
        candidates.map(|(at, _)| from + at).find(|&at| {
            let (before, behind) = text.split_at(at);
            behind.starts_with(self.followers.as_slice()) && before.ends_with(is_word)
        })
    }
}

/// Whether `token` never takes in, or looks at, a gap before `follower`.
fn leaves(token: &AddedToken, follower: char) -> bool {
    let content = &token.content;
    let across = content.match_indices(follower).any(|(at, _)| content[..at].ends_with(is_word));
    let swallowed = token.rstrip && follower.is_whitespace() && content.ends_with(is_word);
    let looked_at = token.single_word && content.starts_with(follower);
    !across && !swallowed && !looked_at
}

/// Whether a normalizer composes or does nothing at all; `None` for any other.
fn composes(normalizer: &NormalizerWrapper) -> Option<bool> {
    match normalizer {
        NormalizerWrapper::NFC(_) => Some(true),
        NormalizerWrapper::Sequence(sequence) => {
            let stages: Option<Vec<bool>> = sequence.as_ref().iter().map(composes).collect();
            stages.map(|stages| stages.contains(&true))
        }
        _ => None,
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || !character.is_ascii() && LETTERS.iter().any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(text: &str) -> Vec<usize> {
        let next = |&at: &usize| Gaps::unchecked().next(text, at + 1);
        std::iter::successors(Gaps::unchecked().next(text, 0), next).collect()
    }

    #[test]
    fn a_gap_is_behind_a_word_and_before_a_follower() {
        assert_eq!(gaps("two  words.\n3\n x"), [3, 13]);
        assert_eq!(gaps("你好，世界。 да нет\r\n"), [6, 15, 23]);
        assert!(gaps("").is_empty() && gaps(" a").is_empty() && gaps("a").is_empty());
        assert!(gaps("e\u{301} _ ² Ⅷ ").is_empty());
    }

    #[test]
    fn added_tokens_forbid_the_gaps_that_they_touch() {
        let token = |content: &str| AddedToken::from(content, true);
        assert!(leaves(&token("<|im_end|>"), ' '));
        assert!(!leaves(&token("end of"), ' '));
        assert!(leaves(&token("end of"), '\n'));
        assert!(leaves(&token("  \n"), ' '));
        assert!(!leaves(&token("end").rstrip(true), '\n'));
        assert!(leaves(&token("end").rstrip(true), '，'));
        assert!(leaves(&token("<end>").rstrip(true), '\n'));
        assert!(!leaves(&token(" end").single_word(true), ' '));
        assert!(leaves(&token("end").single_word(true), ' '));
        assert!(leaves(&token(" end").lstrip(true), ' '));
    }
}
