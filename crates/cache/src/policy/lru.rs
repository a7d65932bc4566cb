//! LRU: the least recently released candidate goes first.
//!
//! Source: the rule of vLLM and SGLang; recency is the order of *release* (not of arrival), and
//! a request releases its tail before its head.
//!
//! Invariant: among unpinned blocks, the least recently released is a leaf.
//!
//! When not to use it: it is the reference that others must beat. It keeps what was used once as
//! long as what returns every minute, so long prompts that never come back flush the rest.

use headstart_core::{Access, BlockId};

use super::keyed::{KeyedPolicy, Priority};
use crate::queues::Key64;
use crate::recency::Recency;

/// Least recently released.
pub type Lru = KeyedPolicy<LruOrder>;

/// The order of [`Lru`].
#[derive(Debug)]
pub struct LruOrder {
    recency: Recency,
}

impl Lru {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let order = LruOrder { recency: Recency::new(capacity) };
        Self::over(capacity, order)
    }
}

impl Priority for LruOrder {
    type Key = Key64;

    fn insert(&mut self, block: BlockId) {
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        self.recency.release(blocks);
    }

    fn key(&self, block: BlockId) -> Key64 {
        self.recency.of(block).into()
    }
}
