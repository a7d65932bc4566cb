//! LRU: the least recently released candidate goes first.
//!
//! Source: the rule of vLLM and SGLang; recency is the order of *release* (not of arrival), and
//! a request releases its tail before its head.
//!
//! Invariant: among unpinned blocks, the least recently released is a leaf.
//!
//! When not to use it: it is the reference that others must beat. It keeps what was used once as
//! long as what returns every minute, so long prompts that never come back flush the rest.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::queues::{Key64, Queues};
use crate::recency::Recency;

/// Least recently released.
#[derive(Debug)]
pub struct Lru {
    recency: Recency,
    candidates: Queues<Key64>,
}

impl Lru {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            recency: Recency::new(capacity),
            candidates: Queues::new(capacity, 1),
        }
    }
}

impl Policy for Lru {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        self.recency.release(blocks);
    }

    fn offer(&mut self, block: BlockId) {
        self.candidates
            .push(0, block, self.recency.of(block).into());
    }

    fn withdraw(&mut self, block: BlockId) {
        self.candidates.remove(0, block);
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        self.candidates.first(0).map(|(_, block)| block)
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.candidates.remove(0, block);
    }

    /// Nothing is kept of what is not offered.
    fn forget(&mut self, _: BlockId, _: BlockHash) {}
}
