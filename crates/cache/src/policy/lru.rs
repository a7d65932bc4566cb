//! LRU: the least recently released candidate goes first.
//!
//! Source: the rule of vLLM and SGLang; recency is the order of *release* (not of arrival), and
//! a request releases its tail before its head, so a tail never outlives its head.
//!
//! Only candidates (leaves of the prefix tree that nobody pins) are in the ordered set, so its
//! size is the number of conversations, not of blocks: O(log candidates) per offer.

use std::collections::BTreeSet;

use headstart_core::{Access, BlockId, Nanos};

use super::Policy;

/// Least recently released.
#[derive(Debug, Default)]
pub struct Lru {
    /// Per slot: when it was last released, by a counter.
    released: Vec<u64>,
    candidates: BTreeSet<(u64, BlockId)>,
    clock: u64,
}

impl Lru {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            released: vec![0; capacity],
            ..Self::default()
        }
    }

    fn key(&self, block: BlockId) -> (u64, BlockId) {
        (self.released[block.index()], block)
    }
}

impl Policy for Lru {
    fn insert(&mut self, block: BlockId, _: &Access) {
        self.released[block.index()] = 0;
    }

    fn release(&mut self, block: BlockId, _: &Access) {
        self.clock += 1;
        self.released[block.index()] = self.clock;
    }

    fn offer(&mut self, block: BlockId) {
        self.candidates.insert(self.key(block));
    }

    fn withdraw(&mut self, block: BlockId) {
        self.candidates.remove(&self.key(block));
    }

    fn victim(&mut self, _: Nanos) -> Option<BlockId> {
        self.candidates.first().map(|&(_, block)| block)
    }

    fn remove(&mut self, block: BlockId) {
        self.candidates.remove(&self.key(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obeys_the_contract_and_its_sorted_list() {
        crate::conformance::policy(|capacity| Box::new(Lru::new(capacity)));
        crate::conformance::same_victims(
            |capacity| Box::new(Lru::new(capacity)),
            |_| Box::new(crate::reference::SortedListLru::default()),
        );
    }
}
