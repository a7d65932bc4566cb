//! LFU: the candidate that the fewest requests have used since its insertion goes first, ties
//! to the least recently released.
//!
//! Source: the textbook rule ("in-cache" LFU: an evicted block's count is forgotten).
//!
//! Invariant: a request counts once for a block, however often its chain repeats it.
//!
//! When not to use it: where popularity changes. Counts never fade, so what was popular an hour
//! ago stays; on conversations it keeps dead ones with many turns.

use headstart_core::{Access, BlockId};

use super::keyed::{KeyedPolicy, Priority};
use crate::queues::RankedKey;
use crate::recency::Recency;

/// Least frequently used.
pub type Lfu = KeyedPolicy<LfuOrder>;

/// The order of [`Lfu`].
#[derive(Debug)]
pub struct LfuOrder {
    uses: Vec<u32>,
    recency: Recency,
}

impl Lfu {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let order = LfuOrder { uses: vec![0; capacity], recency: Recency::new(capacity) };
        Self::over(capacity, order)
    }
}

impl Priority for LfuOrder {
    type Key = RankedKey;

    fn insert(&mut self, block: BlockId) {
        self.uses[block.index()] = 0;
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        let uses = &mut self.uses;
        self.recency.release_once(blocks, |slot| uses[slot] = uses[slot].saturating_add(1));
    }

    fn key(&self, block: BlockId) -> RankedKey {
        RankedKey::new(self.uses[block.index()], self.recency.of(block))
    }
}
