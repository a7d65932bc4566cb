//! The secret that sets this memory's names apart from another's.

use headstart_core::{RouteKey, TokenId};

/// Names what is remembered; whoever does not know it cannot tell contents from the names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(secret: u64) -> Self {
        Self(secret)
    }

    /// A token's part in a rolling hash, whose uppermost byte is its mark: 64 bits of it, all over.
    pub(super) fn of_token(self, token: TokenId) -> u64 {
        fold(u64::from(token) ^ self.0)
    }

    /// A block's name here.
    pub(super) fn of_block(self, key: RouteKey, model: u64) -> u64 {
        let mixed = (key.0 ^ self.0 ^ model).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

fn fold(word: u64) -> u64 {
    let product = u128::from(word) * 0xe703_7ed1_a0b4_28db;
    (product as u64) ^ (product >> 64) as u64
}
