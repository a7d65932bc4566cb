//! Continuation oracle: blocks of conversations that have ended go first, then LRU.
//!
//! Source: the oracle that Learned Prefix Caching (Yang et al., NeurIPS 2025) compares with:
//! p = 1 when another request of the conversation follows, else 0. A block that conversations
//! share is wanted until the last of them ends, as there (the larger p counts).
//!
//! Invariant: whether a block is wanted is judged when it is released.
//!
//! When not to use it: to serve; it reads the future from [`Future`]. It is the bound of what
//! predicting the next turn can bring, not of what is possible: it does not know *when*.

use std::sync::Arc;

use headstart_core::{Access, BlockId};

use super::keyed::{KeyedPolicy, Priority};
use crate::future::Future;
use crate::queues::RankedKey;
use crate::recency::Recency;

/// Ended conversations first.
pub type ContinuationOracle = KeyedPolicy<ContinuationOrder>;

/// The order of [`ContinuationOracle`].
#[derive(Debug)]
pub struct ContinuationOrder {
    future: Arc<Future>,
    /// Per slot: the last request of the sessions that used its block.
    wanted_until: Vec<u32>,
    /// Per slot: whether a request was to come when it was last released.
    is_wanted: Vec<bool>,
    recency: Recency,
}

impl ContinuationOracle {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize, future: Arc<Future>) -> Self {
        let order = ContinuationOrder {
            future,
            wanted_until: vec![0; capacity],
            is_wanted: vec![false; capacity],
            recency: Recency::new(capacity),
        };
        Self::over(capacity, order)
    }
}

impl Priority for ContinuationOrder {
    type Key = RankedKey;

    fn insert(&mut self, block: BlockId) {
        self.recency.forget(block);
        self.wanted_until[block.index()] = 0;
        self.is_wanted[block.index()] = false;
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.recency.release(blocks);
        let end = self.future.session_end(access.request);
        for block in blocks {
            let until = &mut self.wanted_until[block.index()];
            // The last request of a session adds no wish, but keeps those of other sessions.
            if end > access.request {
                *until = end.max(*until);
            }
            self.is_wanted[block.index()] = *until > access.request;
        }
    }

    fn key(&self, block: BlockId) -> RankedKey {
        let rank = u32::from(self.is_wanted[block.index()]);
        RankedKey::new(rank, self.recency.of(block))
    }
}
