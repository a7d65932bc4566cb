//! The name of an engine's key.

use headstart_core::BlockHash;

/// Bytes of a name.
const BYTES: usize = 16;

/// The name of a key: its bytes from the front, with the bytes behind them folded in from the end.
///
/// vLLM's offload keys are a SHA-256 of the block's prefix and four bytes for the group of layers:
/// the same prefix has another name in each group. Two keys of a cache with 2^32 blocks have one
/// name with a probability of 2^-64.
pub(crate) fn name_of(key: &[u8]) -> BlockHash {
    let mut name = [0; BYTES];
    let head = key.len().min(BYTES);
    name[..head].copy_from_slice(&key[..head]);
    let rest = key[head..].iter().rev();
    for (byte, more) in name.iter_mut().rev().zip(rest) {
        *byte ^= more;
    }
    BlockHash(name)
}
