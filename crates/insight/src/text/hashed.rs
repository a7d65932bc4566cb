//! Tables whose keys are hashes already: nothing is hashed again.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Values by a keyed hash.
pub(super) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// Keyed hashes.
pub(super) type Hashes = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// Takes a number for its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Keys are `u64`, so tables call `write_u64` only; this completes the trait.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
