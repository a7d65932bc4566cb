//! Belady: the candidate whose next request is farthest away goes first, never again before all;
//! ties to the least recently released. With bypass, a newcomer that would be the next victim
//! is not admitted.
//!
//! Source: Belady 1966, over leaves only and with a head kept before its tail. For independent
//! objects this is the optimum. On prefix chains it is the yardstick that the field uses, not a
//! proven optimum: evicting by blocks greedily is optimal only where every chain may be cut
//! anywhere, and all blocks cost the same.
//!
//! Invariant: a candidate's key is exact until the next request that contains it.
//!
//! When not to use it: to serve; it reads the future from [`Future`].

use std::sync::Arc;

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::future::Future;
use crate::queues::{Queues, RankedKey};
use crate::recency::Recency;

/// Farthest next use.
#[derive(Debug)]
pub struct Belady {
    future: Arc<Future>,
    may_bypass: bool,
    /// Per slot: the next request that contains its block.
    next: Vec<u32>,
    recency: Recency,
    candidates: Queues<RankedKey>,
}

impl Belady {
    /// Admits every block, for a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize, future: Arc<Future>) -> Self {
        Self {
            future,
            may_bypass: false,
            next: vec![Future::NEVER; capacity],
            recency: Recency::new(capacity),
            candidates: Queues::new(capacity, 1),
        }
    }

    /// Declines a block that would be the next victim.
    #[must_use]
    pub fn with_bypass(capacity: usize, future: Arc<Future>) -> Self {
        Self { may_bypass: true, ..Self::new(capacity, future) }
    }
}

impl Policy for Belady {
    fn insert(&mut self, block: BlockId, _: BlockHash, access: &Access) {
        self.recency.forget(block);
        self.next[block.index()] = self.future.next_use(access.request, access.offset);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.recency.release(blocks);
        let nexts = self.future.next_uses(access.request);
        // The blocks are a prefix of the request's, so both lists have the same offsets.
        for (&block, next) in blocks.iter().zip(nexts) {
            self.next[block.index()] = next;
        }
    }

    fn offer(&mut self, block: BlockId) {
        // The smallest key goes first: a block that is never used again gets 0.
        let nearness = Future::NEVER - self.next[block.index()];
        let key = RankedKey::new(nearness, self.recency.of(block));
        self.candidates.push(0, block, key);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.candidates.remove(0, block);
    }

    fn victim(&mut self, _: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let (_, block) = self.candidates.first(0)?;
        if let (true, Some(Newcomer { access, .. })) = (self.may_bypass, newcomer) {
            let next = self.future.next_use(access.request, access.offset);
            // Declined also where the victim never returns either: that eviction would gain
            // nothing.
            if next == Future::NEVER || next > self.next[block.index()] {
                return None;
            }
        }
        Some(block)
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.candidates.remove(0, block);
    }

    /// Nothing is kept of what is not offered.
    fn forget(&mut self, _: BlockId, _: BlockHash) {}
}
