//! SIEVE as one would explain it: a list from the oldest block to the newest, and a hand.
//!
//! Source: Zhang et al., "SIEVE is Simpler than LRU", NSDI'24. What may not go is in the list like
//! any other block; the hand steps over it.

use headstart_cache::Policy;
use headstart_cache::policy::Newcomer;
use headstart_core::{Access, BlockHash, BlockId, Nanos};

/// The obvious SIEVE; every call is linear.
#[derive(Debug, Default)]
pub(crate) struct ListSieve {
    /// Oldest first.
    list: Vec<SieveEntry>,
    /// Index at which the next search begins; `None` for the oldest entry.
    hand: Option<usize>,
}

#[derive(Debug)]
struct SieveEntry {
    block: BlockId,
    is_offered: bool,
    is_visited: bool,
    /// Its insertion's own use is behind it.
    is_used: bool,
}

impl ListSieve {
    fn find(&mut self, block: BlockId) -> &mut SieveEntry {
        let found = self.list.iter_mut().find(|entry| entry.block == block);
        found.expect("only what is resident is released, offered or withdrawn")
    }
}

impl Policy for ListSieve {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.list.push(SieveEntry { block, is_offered: false, is_visited: false, is_used: false });
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        for &block in blocks {
            let entry = self.find(block);
            entry.is_visited |= entry.is_used;
            entry.is_used = true;
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.find(block).is_offered = true;
    }

    fn withdraw(&mut self, block: BlockId) {
        self.find(block).is_offered = false;
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        if !self.list.iter().any(|entry| entry.is_offered) {
            return None;
        }
        let mut at = self.hand.unwrap_or(0);
        loop {
            let entry = &mut self.list[at];
            if entry.is_offered && !entry.is_visited {
                self.hand = Some(at);
                return Some(entry.block);
            }
            entry.is_visited = false;
            at = (at + 1) % self.list.len();
        }
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        let at = self.list.iter().position(|entry| entry.block == block);
        let at = at.expect("only what is resident is evicted");
        self.list.remove(at);
        // The next block has moved into this place; at the end the hand starts over.
        self.hand = (at < self.list.len()).then_some(at);
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        let at = self.list.iter().position(|entry| entry.block == block);
        let at = at.expect("only what is resident is forgotten");
        self.list.remove(at);
        let hand = self.hand.map(|hand| hand - usize::from(at < hand));
        self.hand = hand.filter(|&hand| hand < self.list.len());
    }
}
