//! The checksum of everything stored: XXH3, 64 bits, seeded with where the bytes belong, so that
//! the right bytes in the wrong place are wrong.
//!
//! It protects against accidents (torn, flipped and misplaced bytes), of which one in 2^64 goes
//! unseen, and not against deliberate changes of the disk.

use headstart_core::BlockHash;
use twox_hash::XxHash3_64;

/// The checksum of part number `part` of the chunk called `name`.
#[must_use]
pub(crate) fn of_part(name: BlockHash, part: usize, bytes: &[u8]) -> u64 {
    let (first, _) = name.0.split_first_chunk().expect("a name has 16 bytes");
    // The factor (2^64 over the golden ratio) spreads the number over the seed, so that swapped
    // parts do not verify.
    let seed = u64::from_le_bytes(*first) ^ (part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The checksum of what describes other bytes, of the kind that `seed` tells.
#[must_use]
pub(crate) fn of_fields(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}
