//! Keys that no other process has.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Returns a key that no other process has, so that its memory dump reveals nothing about names of
/// texts here. The randomness is the standard library's.
#[must_use]
pub fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    for piece in key.chunks_exact_mut(8) {
        let random = RandomState::new().build_hasher().finish();
        piece.copy_from_slice(&random.to_le_bytes());
    }
    // Two states of one thread differ by a counter only, which the hash hides.
    *blake3::hash(&key).as_bytes()
}
