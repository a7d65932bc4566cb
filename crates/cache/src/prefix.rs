//! The prefix cache of one tier: a hash chain over the slots of a block pool.
//!
//! Every full block has a chained name; a map from name to slot is an implicit prefix tree
//! (vLLM's structure). Measured against an explicit radix tree (SGLang's) on the same traces,
//! see docs/benchmarks/replay.md; the radix tree stayed in the tests.
//!
//! A slot's life:
//!
//! ```text
//! free ──grow──► in flight ──commit──► cached, pinned ──release──► cached ──evict──► free
//!   ▲                │                      ▲                         │
//!   └────release─────┘                      └────────acquire──────────┘
//! ```

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use crate::lease::{DroppedLease, Lease, Returns};
use crate::policy::Newcomer;
use crate::slots::{PinEffect, Slots, State};
use crate::{Effect, Policy};

/// One device tier: which blocks are resident, who holds them, who goes next.
pub struct PrefixCache {
    slots: Slots,
    policy: Box<dyn Policy>,
    effects: Vec<Effect>,
    returns: Returns,
    /// Unpinned resident blocks; kept, because admission asks for it at every step.
    num_unpinned: usize,
}

/// Answer of [`PrefixCache::grow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grow {
    /// The lease holds the blocks.
    Done,
    /// Nothing was changed: too few blocks are free or evictable.
    Short {
        /// Blocks that could have been had.
        available: usize,
    },
}

/// Answer of [`PrefixCache::commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The holder's block became the resident one.
    Stored,
    /// Another sequence had committed the same block first: the lease now holds that one and
    /// the private copy is free. The holder's block table has changed.
    Adopted,
}

/// Answer of [`PrefixCache::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The block became resident.
    Stored,
    /// It was resident already, behind a gap in the chain; the lease holds it.
    Adopted,
    /// Nothing may be evicted for it, or the policy would rather keep what it has.
    Declined,
}

/// Division of the capacity, in blocks. The four parts always sum to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Holding nothing.
    pub free: usize,
    /// Resident and evictable, at once or after their children.
    pub cached: usize,
    /// Resident and in use.
    pub pinned: usize,
    /// Allocated, not yet committed.
    pub in_flight: usize,
}

impl PrefixCache {
    /// An empty cache of `capacity` blocks whose victims `policy` chooses.
    ///
    /// # Panics
    /// When `capacity` does not fit a [`BlockId`].
    #[must_use]
    pub fn new(capacity: usize, policy: Box<dyn Policy>) -> Self {
        Self {
            slots: Slots::new(capacity),
            policy,
            effects: Vec::new(),
            returns: Returns::default(),
            num_unpinned: 0,
        }
    }

    /// Slots in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The tables of the policy, if it learns.
    #[must_use]
    pub fn learned(&self) -> Option<Vec<u8>> {
        self.policy.learned()
    }

    /// Blocks that a lease could get now: free ones and evictable ones.
    #[must_use]
    pub fn available(&self) -> usize {
        self.slots.num_free() + self.num_unpinned
    }

    /// Length of the longest resident prefix of `chain`, in blocks. Changes nothing; the answer
    /// holds until the next call that changes the cache.
    #[must_use]
    pub fn overlap(&self, chain: &[BlockHash]) -> usize {
        let is_resident = |hash: &&BlockHash| self.slots.find(**hash).is_some();
        chain.iter().take_while(is_resident).count()
    }

    /// Pins the longest resident prefix of `chain`. O(its length). A name stands for a block and
    /// its whole prefix: chains that give one name two different prefixes break the promise that
    /// unpinned blocks can be evicted.
    pub fn acquire(&mut self, chain: &[BlockHash]) -> Lease {
        self.take_returned();
        let mut blocks = Vec::with_capacity(chain.len());
        for &hash in chain {
            // The next block usually lies in a neighbouring slot, which is cheaper than the table.
            let before = blocks.last().copied();
            let Some(block) = self.slots.find_behind(before, hash) else {
                break;
            };
            self.pin(block);
            blocks.push(block);
        }
        let matched = blocks.len();
        Lease { blocks, matched, committed: matched, returns: self.returns.clone() }
    }

    /// Adds `count` private blocks to the end of `lease`, evicting as needed; all or nothing.
    /// `count` 0 always succeeds.
    pub fn grow(&mut self, lease: &mut Lease, count: usize, now: Nanos) -> Grow {
        self.take_returned();
        let available = self.available();
        // A growth that cannot finish must evict nothing, so this precedes the first eviction.
        if available < count {
            return Grow::Short { available };
        }
        for _ in 0..count {
            let block = self.allocate(now, None);
            // A pin covers its whole prefix, so an unpinned block has unpinned descendants only.
            // One of them is a leaf that may go.
            lease.blocks.push(block.expect("an unpinned block implies a candidate"));
        }
        Grow::Done
    }

    /// Makes the first uncommitted block of `lease`, now computed, matchable as `hash`.
    ///
    /// # Panics
    /// When the lease has no uncommitted block.
    pub fn commit(&mut self, lease: &mut Lease, hash: BlockHash, access: &Access) -> Commit {
        let position = lease.committed;
        let block = lease.blocks[position];
        lease.committed += 1;
        // Another sequence committed the same block meanwhile. A name has one slot, so the private
        // copy is freed.
        if let Some(first) = self.slots.find(hash) {
            self.pin(first);
            self.slots.free(block);
            lease.blocks[position] = first;
            return Commit::Adopted;
        }
        // Adoption may have replaced the block before this one, so the lease names the parent.
        let parent = position.checked_sub(1).map(|before| lease.blocks[before]);
        self.settle(block, hash, parent, access);
        Commit::Stored
    }

    /// Grows `lease` by one block and commits it at once as `hash`: what replay does, where
    /// nothing is computed. Unlike [`PrefixCache::grow`] it lets the policy decline.
    ///
    /// # Panics
    /// When the lease has uncommitted blocks.
    pub fn admit(&mut self, lease: &mut Lease, hash: BlockHash, access: &Access) -> Admit {
        assert_eq!(lease.committed, lease.blocks.len(), "nothing is in flight");
        let (block, outcome) = match self.slots.find(hash) {
            Some(resident) => {
                self.pin(resident);
                (resident, Admit::Adopted)
            }
            None => {
                let newcomer = Newcomer { hash, access: *access };
                let Some(block) = self.allocate(access.now, Some(&newcomer)) else {
                    return Admit::Declined;
                };
                self.settle(block, hash, lease.blocks.last().copied(), access);
                (block, Admit::Stored)
            }
        };
        lease.blocks.push(block);
        lease.committed += 1;
        outcome
    }

    /// Gives the blocks back, tail first, as one use that `access` describes. Uncommitted blocks
    /// become free.
    pub fn release(&mut self, mut lease: Lease, access: &Access) {
        // The lease is emptied, so that its drop does not give the blocks back a second time.
        let blocks = std::mem::take(&mut lease.blocks);
        // The policy learns of the use before the blocks are offered: the key of a candidate must
        // not change.
        self.policy.release(&blocks[..lease.committed], access);
        self.put_back(&blocks, lease.committed);
    }

    /// Gives the blocks back without reporting a use to the policy. Dropping the lease does the
    /// same at the next call.
    pub fn give_back(&mut self, mut lease: Lease) {
        let blocks = std::mem::take(&mut lease.blocks);
        self.put_back(&blocks, lease.committed);
    }

    /// Drops every unpinned block. Pinned and in-flight blocks stay.
    pub fn clear(&mut self, now: Nanos) {
        self.take_returned();
        // Each eviction may make its parent a leaf, so the policy is asked for one at a time.
        while self.num_unpinned > 0 {
            let block = self.evict(now, None);
            self.slots.free(block.expect("an unpinned block implies a candidate"));
        }
    }

    /// Drains the effects since the last call, in order.
    pub fn drain_effects(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// Computes the current division of the capacity. O(capacity).
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let mut sum = Occupancy::default();
        for block in self.slots.blocks() {
            match self.slots.state(block) {
                State::Free => sum.free += 1,
                State::InFlight => sum.in_flight += 1,
                State::Resident { pins: 0, .. } => sum.cached += 1,
                State::Resident { .. } => sum.pinned += 1,
            }
        }
        sum
    }

    /// Asserts every invariant. O(capacity); for tests and idle engines.
    ///
    /// # Panics
    /// When one is broken, with its name.
    pub fn check(&self) {
        let sum = self.occupancy();
        assert_eq!(sum.free, self.slots.num_free(), "free slots are counted");
        assert_eq!(sum.cached, self.num_unpinned, "unpinned blocks are counted");
        assert_eq!(sum.cached + sum.pinned, self.slots.num_resident(), "residents have names");
        let mut counted = vec![0u32; self.slots.capacity()];
        for block in self.slots.blocks() {
            let State::Resident { parent, pins, .. } = self.slots.state(block) else {
                continue;
            };
            assert_eq!(
                self.slots.find(self.slots.hash(block)),
                Some(block),
                "a name leads to its slot"
            );
            let Some(parent) = parent else { continue };
            counted[parent.index()] += 1;
            let State::Resident { pins: above, .. } = self.slots.state(parent) else {
                panic!("a parent is resident");
            };
            assert!(above >= u32::from(pins > 0), "a pin covers the prefix");
        }
        for block in self.slots.blocks() {
            if let State::Resident { children, .. } = self.slots.state(block) {
                assert_eq!(children, counted[block.index()], "children are counted");
            }
        }
    }

    /// A slot in flight; `None` when nothing may be evicted or the policy declines.
    fn allocate(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        match self.slots.take_free() {
            Some(block) => Some(block),
            None => self.evict(now, newcomer),
        }
    }

    /// Evicts the policy's victim and returns its slot, in flight.
    fn evict(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let block = self.policy.victim(now, newcomer)?;
        let hash = self.slots.hash(block);
        let bared = self.slots.unsettle(block);
        self.policy.remove(block, hash);
        self.num_unpinned -= 1;
        self.effects.push(Effect::Evicted { block, hash });
        // A parent is offered once its last child is gone: tails go before heads.
        if let Some(parent) = bared {
            self.policy.offer(parent);
        }
        Some(block)
    }

    fn settle(
        &mut self,
        block: BlockId,
        hash: BlockHash,
        parent: Option<BlockId>,
        access: &Access,
    ) {
        self.slots.settle(block, hash, parent);
        self.policy.insert(block, hash, access);
        self.effects.push(Effect::Stored { block, hash });
    }

    #[inline]
    fn pin(&mut self, block: BlockId) {
        match self.slots.pin(block) {
            PinEffect::Already => {}
            // It was no candidate because of its children: only the count changes.
            PinEffect::Inner => self.num_unpinned -= 1,
            PinEffect::Leaf => {
                self.num_unpinned -= 1;
                self.policy.withdraw(block);
            }
        }
    }

    #[inline]
    fn unpin(&mut self, block: BlockId) {
        match self.slots.unpin(block) {
            PinEffect::Already => {}
            PinEffect::Inner => self.num_unpinned += 1,
            PinEffect::Leaf => {
                self.num_unpinned += 1;
                self.policy.offer(block);
            }
        }
    }

    fn put_back(&mut self, blocks: &[BlockId], committed: usize) {
        let (committed, private) = blocks.split_at(committed);
        // Tail first onto a stack: the next sequence takes the slots in ascending order again.
        for &block in private.iter().rev() {
            self.slots.free(block);
        }
        // Tail first, so that a pinned block never has an unpinned parent, not even in between.
        for &block in committed.iter().rev() {
            self.unpin(block);
        }
    }

    /// Takes back what dropped leases held; that is no use, so the policy is not told of one.
    fn take_returned(&mut self) {
        for DroppedLease { blocks, committed } in self.returns.take() {
            self.put_back(&blocks, committed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Lru;

    fn cache(capacity: usize) -> PrefixCache {
        PrefixCache::new(capacity, Box::new(Lru::new(capacity)))
    }

    fn chain(ids: &[u64]) -> Vec<BlockHash> {
        ids.iter().map(|&id| BlockHash::from_u64(id)).collect()
    }

    /// Acquires, computes and commits `ids`; the lease pins them.
    fn run(cache: &mut PrefixCache, ids: &[u64]) -> Lease {
        let chain = chain(ids);
        let mut lease = cache.acquire(&chain);
        let missing = chain.len() - lease.matched();
        assert_eq!(cache.grow(&mut lease, missing, Nanos(0)), Grow::Done);
        for hash in &chain[lease.matched()..] {
            cache.commit(&mut lease, *hash, &Access::default());
        }
        cache.check();
        lease
    }

    #[test]
    fn a_second_turn_matches_the_first() {
        let mut cache = cache(8);
        let lease = run(&mut cache, &[1, 2, 3]);
        cache.release(lease, &Access::default());
        assert_eq!(cache.overlap(&chain(&[1, 2, 3, 4])), 3);
        assert_eq!(run(&mut cache, &[1, 2, 3, 4]).matched(), 3);
    }

    #[test]
    fn uncommitted_blocks_are_never_matched_and_come_back_free() {
        let mut cache = cache(4);
        let mut lease = cache.acquire(&chain(&[1, 2]));
        assert_eq!(cache.grow(&mut lease, 2, Nanos(0)), Grow::Done);
        cache.commit(&mut lease, BlockHash::from_u64(1), &Access::default());
        assert_eq!(cache.overlap(&chain(&[1, 2])), 1);
        cache.release(lease, &Access::default());
        assert_eq!(cache.occupancy(), Occupancy { free: 3, cached: 1, ..Occupancy::default() });
        cache.check();
    }

    #[test]
    fn growth_is_all_or_nothing_and_spares_pinned_blocks() {
        let mut cache = cache(4);
        let held = run(&mut cache, &[1, 2]);
        let other = run(&mut cache, &[7]);
        cache.release(other, &Access::default());
        let mut lease = cache.acquire(&[]);
        assert_eq!(cache.grow(&mut lease, 3, Nanos(0)), Grow::Short { available: 2 });
        assert_eq!(cache.overlap(&chain(&[7])), 1, "a refused growth evicts nothing");
        assert_eq!(cache.grow(&mut lease, 2, Nanos(0)), Grow::Done);
        assert_eq!(cache.overlap(&chain(&[7])), 0);
        assert_eq!(cache.overlap(&chain(&[1, 2])), 2);
        cache.check();
        drop(held);
    }

    #[test]
    fn a_dropped_lease_comes_back() {
        let mut cache = cache(4);
        drop(run(&mut cache, &[1, 2, 3]));
        assert_eq!(cache.available(), 1, "not before the next call");
        let lease = cache.acquire(&chain(&[9]));
        assert_eq!(cache.available(), 4);
        assert_eq!(cache.overlap(&chain(&[1, 2, 3])), 3, "what was committed stays");
        cache.check();
        drop(lease);
    }

    #[test]
    fn two_sequences_that_compute_the_same_block_share_the_first() {
        let mut cache = cache(4);
        let mut one = cache.acquire(&chain(&[1]));
        let mut two = cache.acquire(&chain(&[1]));
        cache.grow(&mut one, 1, Nanos(0));
        cache.grow(&mut two, 1, Nanos(0));
        let hash = BlockHash::from_u64(1);
        assert_eq!(cache.commit(&mut one, hash, &Access::default()), Commit::Stored);
        assert_eq!(cache.commit(&mut two, hash, &Access::default()), Commit::Adopted);
        assert_eq!(one.blocks(), two.blocks());
        assert_eq!(cache.available(), 3);
        cache.check();
        cache.release(one, &Access::default());
        cache.release(two, &Access::default());
        cache.check();
        assert_eq!(cache.occupancy(), Occupancy { free: 3, cached: 1, ..Occupancy::default() });
    }

    #[test]
    fn effects_tell_the_story_in_order() {
        let mut cache = cache(2);
        let lease = run(&mut cache, &[1, 2]);
        cache.release(lease, &Access::default());
        drop(run(&mut cache, &[3]));
        let names = |effect| match effect {
            Effect::Stored { hash, .. } => ('+', hash),
            Effect::Evicted { hash, .. } => ('-', hash),
        };
        let story: Vec<_> = cache.drain_effects().map(names).collect();
        let id = BlockHash::from_u64;
        assert_eq!(story, [('+', id(1)), ('+', id(2)), ('-', id(2)), ('+', id(3))]);
    }

    #[test]
    fn clearing_spares_what_is_in_use() {
        let mut cache = cache(6);
        let held = run(&mut cache, &[1, 2]);
        let other = run(&mut cache, &[1, 3, 4]);
        cache.release(other, &Access::default());
        cache.clear(Nanos(0));
        assert_eq!(cache.occupancy(), Occupancy { free: 4, pinned: 2, ..Occupancy::default() });
        cache.check();
        drop(held);
    }
}
