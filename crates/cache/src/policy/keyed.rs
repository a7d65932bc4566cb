//! Policies that order candidates by one key per block: the smallest goes first.
//!
//! Most published policies are such an order. They say what an insertion, a release and a key are;
//! the queue of candidates is here, once.
//!
//! Source: ours, an adapter.

use std::fmt::Debug;

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::queues::Queues;

/// An order of blocks by one key each.
///
/// A key may change only while its block is not offered.
pub trait Priority: Send {
    /// The key. Equal keys go by slot.
    type Key: Copy + Ord + Debug + Send;

    /// The block became resident, and what its slot held before is forgotten.
    fn insert(&mut self, block: BlockId);

    /// See [`Policy::release`].
    fn release(&mut self, blocks: &[BlockId], access: &Access);

    /// The key of a block that is offered now.
    fn key(&self, block: BlockId) -> Self::Key;
}

/// The policy that evicts the candidate with the smallest key of `P`.
#[derive(Debug)]
pub struct KeyedPolicy<P: Priority> {
    priority: P,
    candidates: Queues<P::Key>,
}

impl<P: Priority> KeyedPolicy<P> {
    /// A policy for a cache of `capacity` slots.
    #[must_use]
    pub fn over(capacity: usize, priority: P) -> Self {
        Self { priority, candidates: Queues::new(capacity, 1) }
    }
}

impl<P: Priority> Policy for KeyedPolicy<P> {
    #[inline]
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.priority.insert(block);
    }

    #[inline]
    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.priority.release(blocks, access);
    }

    #[inline]
    fn offer(&mut self, block: BlockId) {
        // The cache reports a release before the offer, so the key includes the last use.
        self.candidates.push(0, block, self.priority.key(block));
    }

    #[inline]
    fn withdraw(&mut self, block: BlockId) {
        self.candidates.remove(0, block);
    }

    #[inline]
    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        self.candidates.first(0).map(|(_, block)| block)
    }

    #[inline]
    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.candidates.remove(0, block);
    }

    /// Only offered blocks are in the queue.
    #[inline]
    fn forget(&mut self, _: BlockId, _: BlockHash) {}
}
