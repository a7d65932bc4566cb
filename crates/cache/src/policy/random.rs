//! Random: any candidate, with equal chance.
//!
//! Source: the textbook rule; the null policy. A seed fixes the choices.
//!
//! Invariant: the choice depends on the seed and on the calls, nothing else.
//!
//! When not to use it: to serve. It is the floor: a policy that does not beat it on your traffic
//! has learnt nothing from it.

use headstart_core::{Access, BlockHash, BlockId, Nanos, Rng};

use super::{Newcomer, Policy};

/// Not offered.
const NOWHERE: u32 = u32::MAX;

/// A uniformly random candidate.
#[derive(Debug)]
pub struct Random {
    rng: Rng,
    candidates: Vec<BlockId>,
    /// Per slot: its index among the candidates.
    positions: Vec<u32>,
    /// The choice already made, until it goes.
    chosen: Option<BlockId>,
}

impl Random {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            candidates: Vec::new(),
            positions: vec![NOWHERE; capacity],
            chosen: None,
        }
    }
}

impl Policy for Random {
    fn insert(&mut self, _: BlockId, _: BlockHash, _: &Access) {}

    fn release(&mut self, _: &[BlockId], _: &Access) {}

    fn offer(&mut self, block: BlockId) {
        self.positions[block.index()] = self.candidates.len() as u32;
        self.candidates.push(block);
        // The draw is over all candidates, so it is repeated when their set changes.
        self.chosen = None;
    }

    fn withdraw(&mut self, block: BlockId) {
        let position = self.positions[block.index()] as usize;
        self.positions[block.index()] = NOWHERE;
        self.candidates.swap_remove(position);
        // The last candidate has moved into the gap, unless it was the one that left.
        if let Some(moved) = self.candidates.get(position) {
            self.positions[moved.index()] = position as u32;
        }
        self.chosen = None;
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        if self.chosen.is_none() && !self.candidates.is_empty() {
            let index = self.rng.below(self.candidates.len());
            self.chosen = Some(self.candidates[index]);
        }
        self.chosen
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.withdraw(block);
    }

    /// Nothing is kept of what is not offered.
    fn forget(&mut self, _: BlockId, _: BlockHash) {}
}
