//! LRU as one would explain it: a list in order of release, searched from the front.

use headstart_core::{Access, BlockId, Nanos};

use crate::Policy;

/// The obvious LRU; every call is linear.
#[derive(Debug, Default)]
pub struct SortedListLru {
    /// Least recently released first; the flag says whether the block is offered.
    order: Vec<(BlockId, bool)>,
}

impl SortedListLru {
    fn set(&mut self, block: BlockId, offered: bool) {
        let entry = self.order.iter_mut().find(|entry| entry.0 == block);
        entry
            .expect("only resident blocks are offered or withdrawn")
            .1 = offered;
    }
}

impl Policy for SortedListLru {
    fn insert(&mut self, block: BlockId, _: &Access) {
        self.order.insert(0, (block, false));
    }

    fn release(&mut self, block: BlockId, _: &Access) {
        let position = self.order.iter().position(|entry| entry.0 == block);
        let entry = self
            .order
            .remove(position.expect("only resident blocks are released"));
        self.order.push(entry);
    }

    fn offer(&mut self, block: BlockId) {
        self.set(block, true);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.set(block, false);
    }

    fn victim(&mut self, _: Nanos) -> Option<BlockId> {
        self.order.iter().find(|entry| entry.1).map(|entry| entry.0)
    }

    fn remove(&mut self, block: BlockId) {
        self.order.retain(|entry| entry.0 != block);
    }
}
