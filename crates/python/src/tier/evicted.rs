//! The names of blocks that a tier evicted not long ago.

use std::collections::{HashSet, VecDeque};

use headstart_core::BlockHash;

/// At most `capacity` names; the oldest ones are forgotten.
pub(super) struct EvictedNames {
    capacity: usize,
    names: HashSet<BlockHash>,
    /// The same names, oldest first.
    order: VecDeque<BlockHash>,
}

impl EvictedNames {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, names: HashSet::new(), order: VecDeque::new() }
    }

    pub(super) fn insert(&mut self, name: BlockHash) {
        if self.names.insert(name) {
            self.order.push_back(name);
        }
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, name: BlockHash) -> bool {
        self.names.contains(&name)
    }
}
