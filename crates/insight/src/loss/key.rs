//! The secret that sets this memory's names apart from another's.

use headstart_core::{RouteKey, TokenId};

/// The secret of all stored names: without it, contents cannot be told from the names.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameSecret(u64);

impl NameSecret {
    pub(super) fn new(secret: u64) -> Self {
        Self(secret)
    }

    /// A token's part in a rolling hash: 64 bits of it, all over. The two uppermost bytes are its
    /// mark.
    pub(super) fn of_token(self, token: TokenId) -> u64 {
        fold(u64::from(token) ^ self.0)
    }

    /// A block's name here.
    pub(super) fn of_block(self, key: RouteKey, model: u64) -> u64 {
        // A multiplication carries bits upwards only; the shift brings them down to those that pick
        // a set.
        let mixed = (key.0 ^ self.0 ^ model).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }

    /// The name of the block `tokens` behind the chain named `parent`, whatever its namespace: two
    /// tokens a multiplication of 64 by 64 bits, whose halves are folded together (as in wyhash).
    /// Each has an addend of its own, so that none waits for the one before; their sum is folded
    /// with the parent.
    pub(super) fn of_tokens(self, parent: u64, tokens: &[TokenId]) -> u64 {
        let mut sum = 0u64;
        let mut addend = self.0;
        let mut pairs = tokens.chunks_exact(2);
        for pair in &mut pairs {
            addend = addend.wrapping_add(0xa076_1d64_78bd_642f);
            let word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            sum = sum.wrapping_add(fold(word.wrapping_add(addend)));
        }
        for &last in pairs.remainder() {
            sum = sum.wrapping_add(fold(u64::from(last) ^ addend).rotate_left(32));
        }
        fold(parent.rotate_left(29) ^ self.0 ^ sum)
    }
}

fn fold(word: u64) -> u64 {
    let product = u128::from(word) * 0xe703_7ed1_a0b4_28db;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Whatever is changed, swapped, put elsewhere or left out: another name.
    #[test]
    fn like_blocks_have_names_of_their_own() {
        let (key, mut names) = (NameSecret::new(3), HashSet::new());
        let mut tokens: Vec<TokenId> = (0..16).collect();
        for parent in 0..20 {
            for at in 0..16 {
                for change in 1..50 {
                    tokens[at] ^= change;
                    assert!(names.insert(key.of_tokens(parent, &tokens)));
                    tokens[at] ^= change;
                }
                tokens.swap(at, (at + 2) % 16);
                assert!(names.insert(key.of_tokens(parent, &tokens)), "{at}");
                tokens.swap(at, (at + 2) % 16);
                assert!(names.insert(key.of_tokens(parent, &tokens[..at])), "{at}");
            }
        }
        assert!(!names.contains(&NameSecret::new(4).of_tokens(0, &tokens[..9])));
    }
}
