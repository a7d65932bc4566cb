//! ARC: an LRU list of blocks used once, one of blocks used again, and ghosts of both that move
//! the border between them.
//!
//! ```text
//! ghosts of T1 │ T1: used once │ T2: used again │ ghosts of T2
//!     B1 ──hit: T1 should be larger      hit: T2 should be larger── B2
//! ```
//!
//! Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST'03.
//! An insertion is not a hit: T2 holds what a *second* request used. Difference: where the list
//! that should give has no block that may go, the other one gives.
//!
//! Invariant: |T1| + |B1| ≤ c and |T1| + |T2| + |B1| + |B2| ≤ 2c, for a cache of c blocks.
//!
//! When not to use it: where every prompt returns a fixed number of times; a block's second use
//! then says nothing about a third.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::ghosts::Ghosts;
use crate::queues::{Key64, Queues};
use crate::recency::Recency;

/// Lists of residents, and the ghosts of each under the same number.
const ONCE: usize = 0;
const AGAIN: usize = 1;

/// Adaptive replacement.
#[derive(Debug)]
pub struct Arc {
    capacity: usize,
    /// p: how many of the residents should be in the first list.
    target: f64,
    /// Residents per list, candidates or not.
    lens: [usize; 2],
    flags: Vec<Flags>,
    recency: Recency,
    candidates: Queues<Key64>,
    ghosts: Ghosts,
    /// The newcomer that the ghosts were last asked about, and what they said.
    met: Option<(BlockHash, Option<usize>)>,
    /// The victim named last leaves no ghost.
    is_ghostless: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    is_again: bool,
    /// Used before, so that the next use is a hit and not the insertion's own.
    is_known: bool,
}

impl Flags {
    fn list(self) -> usize {
        if self.is_again { AGAIN } else { ONCE }
    }
}

impl Arc {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            target: 0.0,
            lens: [0; 2],
            flags: vec![Flags::default(); capacity],
            recency: Recency::new(capacity),
            candidates: Queues::new(capacity, 2),
            ghosts: Ghosts::new(2, capacity),
            met: None,
            is_ghostless: false,
        }
    }

    /// The list that holds the ghost of the newcomer `hash`. Asked first, it moves the target by
    /// that ghost, which is used up, or forgets old ghosts to make room for one more name.
    fn meet(&mut self, hash: BlockHash) -> Option<usize> {
        if let Some((_, list)) = self.met.filter(|met| met.0 == hash) {
            return list;
        }
        let list = self.ghosts.find(hash);
        match list {
            Some(list) => {
                self.adapt(list);
                self.ghosts.remove(hash);
            }
            None => self.trim(),
        }
        self.met = Some((hash, list));
        list
    }

    fn adapt(&mut self, list: usize) {
        let (here, there) = (self.ghosts.len(list), self.ghosts.len(1 - list));
        // `here` is at least 1, because it counts the ghost that was just found.
        let step = (there as f64 / here as f64).max(1.0);
        self.target = match list {
            ONCE => (self.target + step).min(self.capacity as f64),
            _ => (self.target - step).max(0.0),
        };
    }

    fn trim(&mut self) {
        let once = self.lens[ONCE] + self.ghosts.len(ONCE);
        let again = self.lens[AGAIN] + self.ghosts.len(AGAIN);
        if once >= self.capacity {
            self.ghosts.pop_oldest(ONCE);
        } else if once + again >= 2 * self.capacity {
            self.ghosts.pop_oldest(AGAIN);
        }
    }

    /// Returns the list that gives up a block for a newcomer with a ghost in list `returning`.
    fn giver(&self, returning: Option<usize>) -> usize {
        // REPLACE of the paper: a hit in B2 takes from T1 even where T1 has exactly its target.
        let once = self.lens[ONCE] as f64;
        let is_full = once > self.target || (returning == Some(AGAIN) && once == self.target);
        if self.lens[ONCE] > 0 && is_full { ONCE } else { AGAIN }
    }
}

impl Policy for Arc {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: &Access) {
        // A newcomer that took a free slot was not met before, and its ghost must move the target
        // too.
        let returning = self.meet(hash);
        self.met = None;
        let flags = Flags { is_again: returning.is_some(), is_known: false };
        self.flags[block.index()] = flags;
        self.lens[flags.list()] += 1;
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        self.recency.release(blocks);
        for block in blocks {
            let flags = &mut self.flags[block.index()];
            if flags.is_known && !flags.is_again {
                flags.is_again = true;
                self.lens[ONCE] -= 1;
                self.lens[AGAIN] += 1;
            }
            flags.is_known = true;
        }
    }

    fn offer(&mut self, block: BlockId) {
        let list = self.flags[block.index()].list();
        self.candidates.push(list, block, self.recency.of(block).into());
    }

    fn withdraw(&mut self, block: BlockId) {
        let list = self.flags[block.index()].list();
        self.candidates.remove(list, block);
    }

    fn victim(&mut self, _: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        if self.candidates.is_empty(ONCE) && self.candidates.is_empty(AGAIN) {
            return None;
        }
        let returning = newcomer.and_then(|newcomer| self.meet(newcomer.hash));
        // With no ghost of it left, the first list fills the cache alone: its oldest leaves none.
        self.is_ghostless = returning.is_none() && self.lens[ONCE] >= self.capacity;
        let giver = if self.is_ghostless { ONCE } else { self.giver(returning) };
        let first = self.candidates.first(giver);
        let first = first.or_else(|| self.candidates.first(1 - giver));
        first.map(|(_, block)| block)
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        let list = self.flags[block.index()].list();
        self.candidates.remove(list, block);
        self.lens[list] -= 1;
        if !self.is_ghostless {
            self.ghosts.push(list, hash);
        }
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.lens[self.flags[block.index()].list()] -= 1;
    }
}
