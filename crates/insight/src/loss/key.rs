//! The secret that sets this memory's names apart from another's.

use headstart_core::{RouteKey, TokenId};
use twox_hash::XxHash3_64;

/// Names what is remembered; whoever does not know it cannot tell contents from the names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64);

/// Tokens per call, as many as stay an input of middle length with the state before them.
const PIECE: usize = 58;

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

    /// The name of the block `tokens` behind the chain named `parent`, whatever its namespace.
    pub(super) fn of_tokens(self, parent: u64, tokens: &[TokenId]) -> u64 {
        let mut state = parent;
        let mut bytes = [0; 8 + 4 * PIECE];
        for piece in tokens.chunks(PIECE) {
            let (before, behind) = bytes.split_at_mut(8);
            before.copy_from_slice(&state.to_le_bytes());
            for (slot, token) in behind.chunks_exact_mut(4).zip(piece) {
                slot.copy_from_slice(&token.to_le_bytes());
            }
            state = XxHash3_64::oneshot_with_seed(self.0, &bytes[..8 + 4 * piece.len()]);
        }
        state
    }
}
