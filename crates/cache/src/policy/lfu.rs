//! LFU: the candidate that the fewest requests have used since its insertion goes first, ties
//! to the least recently released.
//!
//! Source: the textbook rule ("in-cache" LFU: an evicted block's count is forgotten).
//!
//! Invariant: a request counts once for a block, however often its chain repeats it.
//!
//! When not to use it: where popularity changes. Counts never fade, so what was popular an hour
//! ago stays; on conversations it keeps dead ones with many turns.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::queues::{Queues, RankedKey};
use crate::recency::Recency;

/// Least frequently used.
#[derive(Debug)]
pub struct Lfu {
    uses: Vec<u32>,
    recency: Recency,
    candidates: Queues<RankedKey>,
}

impl Lfu {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            uses: vec![0; capacity],
            recency: Recency::new(capacity),
            candidates: Queues::new(capacity, 1),
        }
    }
}

impl Policy for Lfu {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.uses[block.index()] = 0;
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        let before = self.recency.clock();
        for &block in blocks.iter().rev() {
            let is_repeated = self.recency.of(block) > before;
            self.recency.release(&[block]);
            if !is_repeated {
                let uses = &mut self.uses[block.index()];
                *uses = uses.saturating_add(1);
            }
        }
    }

    fn offer(&mut self, block: BlockId) {
        let key = RankedKey::new(self.uses[block.index()], self.recency.of(block));
        self.candidates.push(0, block, key);
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
