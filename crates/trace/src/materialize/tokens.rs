//! Tokens of a block: a pure function of the seed and the block's id.
//!
//! ```text
//! id ─ xor key ─► name   digits of the name, base |vocabulary|, lowest first │ drawn from the name
//!                        ╰───────────── enough for any 64 bits ─────────────╯
//! ```
//!
//! Invariant: different ids have different tokens within the first [`BlockTokens::digits`], with
//! certainty and not only likely, because the digits can be read back. The lowest digit comes
//! first, so ids that follow one another differ in their first token already: a cache that
//! matches token by token finds no more than one that matches blocks.

use std::ops::Range;

use headstart_core::{Rng, TokenId};

/// Gives ids their tokens.
#[derive(Clone, Debug)]
pub(super) struct BlockTokens {
    key: u64,
    vocabulary: Range<TokenId>,
}

impl BlockTokens {
    /// Tokens of `vocabulary`, which has at least two, as `key` says.
    pub(super) fn new(key: u64, vocabulary: Range<TokenId>) -> Self {
        Self { key, vocabulary }
    }

    /// Tokens that tell any two ids apart, in a vocabulary of `len`, at least two.
    pub(super) fn digits(len: u32) -> usize {
        let base = u128::from(len);
        let mut reach = base;
        let mut digits = 1;
        // A reach below 2^64 times a 32-bit base fits 128 bits.
        while reach <= u128::from(u64::MAX) {
            reach *= base;
            digits += 1;
        }
        digits
    }

    /// The first `len` tokens of the block `id`.
    pub(super) fn of(&self, id: u64, len: usize) -> impl Iterator<Item = TokenId> + use<> {
        let Range { start, end } = self.vocabulary;
        let base = end - start;
        // XOR can be undone, so different ids keep different names.
        let name = id ^ self.key;
        let mut rest = name;
        let mut drawn = Rng::new(name);
        let digits = Self::digits(base);
        (0..len).map(move |position| {
            if position >= digits {
                // Drawn from the name, so equal ids agree beyond the digits too.
                return start + drawn.below(base as usize) as TokenId;
            }
            let digit = rest % u64::from(base);
            rest /= u64::from(base);
            start + digit as TokenId
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Reads every id back out of its first tokens.
    fn check(vocabulary: Range<TokenId>, digits: usize) {
        let len = vocabulary.end - vocabulary.start;
        assert_eq!(BlockTokens::digits(len), digits);
        let tokens = BlockTokens::new(0x1234_5678_9abc_def0, vocabulary.clone());
        let mut rng = Rng::new(5);
        let ids = (0..300).chain((0..300).map(|_| rng.next_u64()));
        for id in ids.chain([u64::MAX - 1, u64::MAX]) {
            let block: Vec<_> = tokens.of(id, digits + 9).collect();
            assert!(block.iter().all(|token| vocabulary.contains(token)));
            let read = block[..digits].iter().rev().fold(0u128, |value, token| {
                value * u128::from(len) + u128::from(token - vocabulary.start)
            });
            assert_eq!(read, u128::from(id ^ tokens.key), "{block:?}");
            let start: Vec<_> = tokens.of(id, 3).collect();
            assert_eq!(start, block[..3], "a cut block is the start of the whole one");
        }
    }

    #[test]
    fn the_id_can_be_read_back_from_its_tokens() {
        check(7..9, 64);
        check(0..16, 16);
        check(512..4093, 6);
        check(1000..151_000, 4);
        check(0..TokenId::MAX, 3);
    }

    #[test]
    fn another_key_gives_other_tokens() {
        let blocks: HashSet<Vec<_>> =
            (0..100).map(|key| BlockTokens::new(key << 32, 0..4096).of(7, 16).collect()).collect();
        assert_eq!(blocks.len(), 100);
    }
}
