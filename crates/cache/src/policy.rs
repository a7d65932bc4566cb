//! Eviction policies: who goes first among the blocks that may go.
//!
//! The cache decides *who may go* (not pinned, no resident child); the policy orders them. A
//! pin must not change its order: a block that is withdrawn and offered again stands where its
//! own key says. Blocks that may not go are in no queue, or leave it when a sweep first meets
//! them, so a pinned chain of thousands of blocks does not slow the search for a victim.
//!
//! One file per published policy; [`by_name`] makes those that need no knowledge of the future,
//! [`offline`] those that do.

mod arc;
mod belady;
mod continuation;
mod fifo;
mod gdsf;
mod importance;
mod learned;
mod lfu;
mod lru;
mod random;
mod s3fifo;
mod sieve;
mod tlru;
mod workload_aware;

use headstart_core::{Access, BlockHash, BlockId, Nanos};

pub use crate::names::{
    NAMES, OFFLINE_NAMES, PolicyError, Setting, by_name, offline, reads_predictions, split_charge,
};
pub use arc::Arc;
pub use belady::Belady;
pub use continuation::ContinuationOracle;
pub use fifo::Fifo;
pub use gdsf::Gdsf;
pub use importance::Importance;
pub use learned::{Lpc, LpcOptions, Pooling};
pub use lfu::Lfu;
pub use lru::Lru;
pub use random::Random;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use tlru::TailLru;
pub use workload_aware::{Life, Shape, WaOptions, WorkloadAware};

/// An eviction policy. Calls for one block come in the order
/// `insert (release | offer | withdraw)* (remove | forget)`; `offer` and `withdraw` alternate, and
/// a block is released, or forgotten, only while it is not offered.
pub trait Policy: Send {
    /// The block named `hash` became resident (pinned: not yet a candidate).
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access);

    /// A request lets go of the resident prefix that it used: one use of each of `blocks`, which
    /// stand in prompt order (a block's index is its offset). Recency runs tail first: the last
    /// block counts as released before the one in front of it.
    fn release(&mut self, blocks: &[BlockId], access: &Access);

    /// The block may be evicted from now on.
    fn offer(&mut self, block: BlockId);

    /// The block must not be evicted until offered again.
    fn withdraw(&mut self, block: BlockId);

    /// The candidate to evict first, to make room for `newcomer` where that is known. `None`
    /// when nothing is offered, or when the policy would rather not admit the newcomer; without
    /// a newcomer it may not decline. Asked twice in a row it gives the same answer.
    fn victim(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId>;

    /// The block named `hash`, which [`Policy::victim`] has just named, is evicted; all but its
    /// ghost may be forgotten.
    fn remove(&mut self, block: BlockId, hash: BlockHash);

    /// The block named `hash`, which is not offered, is gone though the policy did not choose it:
    /// its bytes are lost, or its owner had to give one up. Those that keep something of what is
    /// not offered (lengths, places in a queue) let go of it; it leaves no ghost.
    fn forget(&mut self, block: BlockId, hash: BlockHash);
}

/// A block that wants to become resident.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// Its name.
    pub hash: BlockHash,
    /// The use that wants it; `offset` is the block's.
    pub access: Access,
}
