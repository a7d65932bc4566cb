//! The secret that sets this memory's names apart from another's.

use headstart_core::{RouteKey, TokenId};

/// Names what is remembered; whoever does not know it cannot tell contents from the names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(secret: u64) -> Self {
        Self(secret)
    }

    /// A token's part in a rolling hash.
    pub(super) fn of_token(self, token: TokenId) -> u64 {
        let mixed = (u64::from(token) ^ self.0).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 32)
    }

    /// A block's name here.
    pub(super) fn of_block(self, key: RouteKey, model: u64) -> u64 {
        let mixed = (key.0 ^ self.0 ^ model).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }

    /// The name of the block `tokens` behind the chain named `parent`, whatever its namespace: two
    /// tokens a multiplication of 64 by 64 bits, whose halves are folded together (as in wyhash).
    pub(super) fn of_tokens(self, parent: u64, tokens: &[TokenId]) -> u64 {
        let mut state = parent ^ self.0;
        for pair in tokens.chunks(2) {
            let second = pair.get(1).copied().unwrap_or(TokenId::MAX);
            let word = u64::from(pair[0]) | u64::from(second) << 32;
            state = fold(state ^ word ^ 0xa076_1d64_78bd_642f);
        }
        state
    }
}

fn fold(word: u64) -> u64 {
    let product = u128::from(word) * 0xe703_7ed1_a0b4_28db;
    (product as u64) ^ (product >> 64) as u64
}
