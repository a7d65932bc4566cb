//! FIFO: the candidate that became resident first goes first.
//!
//! Source: the textbook rule, over leaves only, so that a head never goes before its tail.
//!
//! Invariant: a block's place is fixed when it is inserted; no use and no pin moves it.
//!
//! When not to use it: for chats and agents, whose oldest blocks (system prompts, first turns)
//! are the most reused ones. It stands here to be compared with.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::queues::{Key64, Queues};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    /// Per slot: when its block was inserted, by a counter.
    inserted: Vec<u64>,
    clock: u64,
    candidates: Queues<Key64>,
}

impl Fifo {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            inserted: vec![0; capacity],
            clock: 0,
            candidates: Queues::new(capacity, 1),
        }
    }
}

impl Policy for Fifo {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.clock += 1;
        self.inserted[block.index()] = self.clock;
    }

    fn release(&mut self, _: &[BlockId], _: &Access) {}

    fn offer(&mut self, block: BlockId) {
        let inserted = self.inserted[block.index()];
        self.candidates.push(0, block, inserted.into());
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
