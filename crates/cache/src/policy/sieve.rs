//! SIEVE: a hand sweeps from the oldest block to the newest and evicts the first that was not
//! used since the hand last passed it.
//!
//! Source: Zhang et al., "SIEVE is Simpler than LRU", NSDI'24. Difference: a block that the hand
//! reaches unused while it may not go (pinned, or with a resident child) is stepped over and keeps
//! its place. To step over thousands of them at once, it is set aside, out of the queues, until
//! it may go; passes of the hand, which would have cleared its bit, are counted instead.
//!
//! Invariant: the order is that of insertion, for ever; uses, pins and evictions do not move a
//! block. Blocks behind the hand were inserted before those ahead of it, of the same lap.
//!
//! When not to use it: with few large conversations. One bit cannot tell a block used a second
//! ago from one used before the last lap.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::lanes::Lanes;
use crate::linked::LinkedLists;

/// The lane that the hand is about to go through, and the one that it has been through.
const AHEAD: usize = 0;
const BEHIND: usize = 1;

/// SIEVE.
#[derive(Debug)]
pub struct Sieve {
    clock: u64,
    /// Blocks that joined at this count or later are ahead of the hand.
    hand: u64,
    /// Number of times that the hand has wrapped to the oldest block.
    laps: u32,
    /// Per slot, of a block set aside: passes of the hand over it when it was last used.
    used_after: Vec<u32>,
    num_offered: usize,
    flags: Vec<SieveFlags>,
    lanes: Lanes,
    /// One list: all residents, set aside or not, in order of insertion.
    order: LinkedLists,
}

#[derive(Clone, Copy, Debug, Default)]
struct SieveFlags {
    /// Used before, so that the next use is a hit and not the insertion's own.
    is_known: bool,
    is_visited: bool,
    may_go: bool,
    /// Reached by the hand while it might not go: in no queue.
    is_aside: bool,
}

impl Sieve {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            clock: 0,
            hand: 0,
            laps: 0,
            used_after: vec![0; capacity],
            num_offered: 0,
            flags: vec![SieveFlags::default(); capacity],
            lanes: Lanes::new(capacity, 2),
            order: LinkedLists::new(capacity, 1),
        }
    }

    /// Puts a block that was set aside back at its own place.
    fn come_back(&mut self, block: BlockId) {
        let passes = self.passes(block);
        let flags = &mut self.flags[block.index()];
        flags.is_aside = false;
        // A pass of the hand since the last use would have cleared the bit.
        flags.is_visited &= self.used_after[block.index()] == passes;
        self.lanes.rejoin(self.lane(block), block);
    }

    fn is_ahead(&self, block: BlockId) -> bool {
        self.lanes.joined(block) >= self.hand
    }

    /// The lane in which a block stands that is not set aside.
    fn lane(&self, block: BlockId) -> usize {
        if self.is_ahead(block) { AHEAD } else { BEHIND }
    }

    /// Returns the number of times that the hand has passed the block's place.
    #[inline]
    fn passes(&self, block: BlockId) -> u32 {
        self.laps.wrapping_add(u32::from(!self.is_ahead(block)))
    }

    /// Moves the hand from the newest block's end back to the oldest.
    fn wrap(&mut self) {
        // All that lies on the far side of the hand comes up again in the next lap, in its order.
        self.lanes.swap(AHEAD, BEHIND);
        self.hand = 0;
        self.laps = self.laps.wrapping_add(1);
    }

    /// The hand moves on behind the block at which it stands, which leaves its lane.
    fn pass(&mut self, block: BlockId) {
        let front = self.lanes.pop(AHEAD);
        assert_eq!(front, Some(block), "the hand is at the front");
        self.hand = self.lanes.joined(block) + 1;
    }
}

impl Policy for Sieve {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.clock += 1;
        self.flags[block.index()] = SieveFlags::default();
        self.order.append(0, block);
        self.lanes.push(AHEAD, block, self.clock);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        for &block in blocks {
            let flags = &mut self.flags[block.index()];
            flags.is_visited |= flags.is_known;
            flags.is_known = true;
            if flags.is_aside {
                self.used_after[block.index()] = self.passes(block);
            }
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.num_offered += 1;
        self.flags[block.index()].may_go = true;
        if self.flags[block.index()].is_aside {
            self.come_back(block);
        }
    }

    fn withdraw(&mut self, block: BlockId) {
        self.num_offered -= 1;
        self.flags[block.index()].may_go = false;
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        if self.num_offered == 0 {
            return None;
        }
        // The loop ends, because an offered block stays in a lane and one lap clears its bit.
        loop {
            if self.lanes.is_empty(AHEAD) {
                self.wrap();
            }
            let block = self.lanes.front(AHEAD)?;
            let flags = &mut self.flags[block.index()];
            if flags.may_go && !flags.is_visited {
                return Some(block);
            }
            // Unused but not evictable: it leaves the lanes, so that the hand need not step over it
            // again.
            flags.is_aside = !flags.is_visited;
            let was_visited = std::mem::take(&mut flags.is_visited);
            self.pass(block);
            if was_visited {
                self.lanes.append(BEHIND, block);
            }
        }
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.num_offered -= 1;
        self.pass(block);
        // The victim was the newest block, so the hand has come to the end of its lap.
        let was_newest = self.order.last(0) == Some(block);
        self.order.remove(0, block);
        if was_newest {
            self.wrap();
        }
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        if !self.flags[block.index()].is_aside {
            self.lanes.take(self.lane(block), block);
        }
        // With no block left ahead of it, the hand starts over at the oldest.
        let was_newest = self.order.last(0) == Some(block);
        self.order.remove(0, block);
        if was_newest
            && self.hand > 0
            && self.order.last(0).is_none_or(|newest| !self.is_ahead(newest))
        {
            self.wrap();
        }
    }
}
