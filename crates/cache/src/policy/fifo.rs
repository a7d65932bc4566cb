//! FIFO: the candidate that became resident first goes first.
//!
//! Source: the textbook rule, over leaves only, so that a head never goes before its tail.
//!
//! Invariant: a block's place is fixed when it is inserted; no use and no pin moves it.
//!
//! When not to use it: for chats and agents, whose oldest blocks (system prompts, first turns)
//! are the most reused ones. It stands here to be compared with.

use headstart_core::{Access, BlockId};

use super::keyed::{KeyedPolicy, Priority};
use crate::queues::Key64;

/// First in, first out.
pub type Fifo = KeyedPolicy<FifoOrder>;

/// The order of [`Fifo`].
#[derive(Debug)]
pub struct FifoOrder {
    /// Per slot: when its block was inserted, by a counter.
    inserted: Vec<u64>,
    clock: u64,
}

impl Fifo {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let order = FifoOrder { inserted: vec![0; capacity], clock: 0 };
        Self::over(capacity, order)
    }
}

impl Priority for FifoOrder {
    type Key = Key64;

    fn insert(&mut self, block: BlockId) {
        self.clock += 1;
        self.inserted[block.index()] = self.clock;
    }

    fn release(&mut self, _: &[BlockId], _: &Access) {}

    fn key(&self, block: BlockId) -> Key64 {
        self.inserted[block.index()].into()
    }
}
