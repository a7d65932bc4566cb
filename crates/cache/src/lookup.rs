//! A hash map keyed by block names, which are already hashes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use headstart_core::BlockHash;

/// Map from block name to `V`; iteration order is never used.
pub(crate) type BlockMap<V> = HashMap<BlockHash, V, BuildHasherDefault<FoldHasher>>;

/// Folds the 16 bytes of a name into 64 bits. Names are keyed BLAKE3 (uniform already) or, in
/// replay, plain numbers, which the multiplication spreads.
#[derive(Default)]
pub(crate) struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.0 = (self.0.rotate_left(5) ^ u64::from_be_bytes(word))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, _length_prefix: usize) {}

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
