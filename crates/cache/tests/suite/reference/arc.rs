//! ARC as in the paper: four lists and a target.
//!
//! Source: Megiddo and Modha, FAST'03, figure 4. The oldest of a list is its least recently
//! released evictable block; a list without one leaves the eviction to the other.

use headstart_cache::Policy;
use headstart_cache::policy::Newcomer;
use headstart_core::{Access, BlockHash, BlockId, Nanos};

/// The obvious ARC; every call is linear.
#[derive(Debug)]
pub(crate) struct ListArc {
    capacity: usize,
    /// p of the paper.
    target: f64,
    t1: Vec<ArcEntry>,
    t2: Vec<ArcEntry>,
    /// Oldest first, both.
    b1: Vec<BlockHash>,
    b2: Vec<BlockHash>,
    num_released: u64,
    /// The newcomer for which room was made, and its case.
    newcomer: Option<(BlockHash, Case)>,
    /// Whether the victim leaves a ghost.
    leaves_ghost: bool,
}

#[derive(Debug)]
struct ArcEntry {
    block: BlockId,
    is_offered: bool,
    /// Number of its last release, from 1; 0 if never released.
    released: u64,
}

/// The paper's cases of a miss.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    GhostOfT1,
    GhostOfT2,
    Unknown,
}

impl ListArc {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            target: 0.0,
            t1: Vec::new(),
            t2: Vec::new(),
            b1: Vec::new(),
            b2: Vec::new(),
            num_released: 0,
            newcomer: None,
            leaves_ghost: true,
        }
    }

    fn find(&mut self, block: BlockId) -> &mut ArcEntry {
        let mut all = self.t1.iter_mut().chain(&mut self.t2);
        let found = all.find(|entry| entry.block == block);
        found.expect("only what is resident is released, offered or withdrawn")
    }

    /// Applies the paper's rules for a miss of `hash` to the ghosts, once, and returns the case.
    fn meet(&mut self, hash: BlockHash) -> Case {
        if let Some((_, case)) = self.newcomer.filter(|newcomer| newcomer.0 == hash) {
            return case;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let case = if self.b1.contains(&hash) {
            self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
            self.b1.retain(|ghost| *ghost != hash);
            Case::GhostOfT1
        } else if self.b2.contains(&hash) {
            self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
            self.b2.retain(|ghost| *ghost != hash);
            Case::GhostOfT2
        } else {
            self.forget();
            Case::Unknown
        };
        self.newcomer = Some((hash, case));
        case
    }

    /// Makes room for one more name.
    fn forget(&mut self) {
        let l1 = self.t1.len() + self.b1.len();
        let l2 = self.t2.len() + self.b2.len();
        if l1 >= self.capacity {
            self.b1.drain(..self.b1.len().min(1));
        } else if l1 + l2 >= 2 * self.capacity {
            self.b2.drain(..self.b2.len().min(1));
        }
    }

    /// Whether T1 gives, as in the paper's REPLACE.
    fn is_t1_next(&self, case: Case) -> bool {
        let t1 = self.t1.len() as f64;
        let is_over = t1 > self.target || (case == Case::GhostOfT2 && t1 == self.target);
        !self.t1.is_empty() && is_over
    }
}

/// The block of a list that goes first.
fn oldest(list: &[ArcEntry]) -> Option<BlockId> {
    let candidates = list.iter().filter(|entry| entry.is_offered);
    let oldest = candidates.min_by_key(|entry| (entry.released, entry.block));
    oldest.map(|entry| entry.block)
}

impl Policy for ListArc {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: &Access) {
        let case = self.meet(hash);
        self.newcomer = None;
        let list = if case == Case::Unknown { &mut self.t1 } else { &mut self.t2 };
        list.push(ArcEntry { block, is_offered: false, released: 0 });
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        for &block in blocks.iter().rev() {
            self.num_released += 1;
            let released = self.num_released;
            let before = std::mem::replace(&mut self.find(block).released, released);
            let at = self.t1.iter().position(|entry| entry.block == block);
            // The first release is the insertion's own use, no hit.
            if let (Some(at), true) = (at, before > 0) {
                let entry = self.t1.remove(at);
                self.t2.push(entry);
            }
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.find(block).is_offered = true;
    }

    fn withdraw(&mut self, block: BlockId) {
        self.find(block).is_offered = false;
    }

    fn victim(&mut self, _: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let (t1, t2) = (oldest(&self.t1), oldest(&self.t2));
        t1.or(t2)?;
        let case = newcomer.map_or(Case::Unknown, |newcomer| self.meet(newcomer.hash));
        // Case IV A of the paper: T1 fills the cache, its oldest goes without a ghost.
        self.leaves_ghost = case != Case::Unknown || self.t1.len() < self.capacity;
        if self.is_t1_next(case) || !self.leaves_ghost { t1.or(t2) } else { t2.or(t1) }
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        let is_in_t1 = self.t1.iter().any(|entry| entry.block == block);
        let (list, ghosts) =
            if is_in_t1 { (&mut self.t1, &mut self.b1) } else { (&mut self.t2, &mut self.b2) };
        list.retain(|entry| entry.block != block);
        if self.leaves_ghost {
            ghosts.push(hash);
        }
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.t1.retain(|entry| entry.block != block);
        self.t2.retain(|entry| entry.block != block);
    }
}
