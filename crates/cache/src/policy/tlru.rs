//! T-LRU (tail-optimized LRU): blocks that a conversation can spare go first, then LRU.
//!
//! A conversation of L tokens whose next prompt adds about Q needs only its first L + Q − ξ
//! tokens to keep the uncached part of that prompt at most ξ. What lies beyond is *surplus*.
//!
//! Source: "Tail-Optimized LRU", arXiv 2510.15152. Differences: at block granularity; Q is one
//! running mean over all prompts whose first block was known (weight 1/64 for the newest) rather
//! than per conversation, so new conversations under a shared system prompt and tails that had
//! been evicted raise it; the last request that used a block decides whether it is surplus.
//!
//! Invariant: the surplus of a request is a suffix of its blocks, so tails still go first.
//!
//! When not to use it: for the hit rate. It gives hits away to shorten the slowest answers;
//! with a ξ larger than most prompts everything is surplus and it is LRU.

use headstart_core::{Access, BlockId};

use super::keyed::{KeyedPolicy, Priority};
use crate::queues::RankedKey;
use crate::recency::Recency;

/// Weight of the newest growth in the running mean.
const GROWTH_WEIGHT: f64 = 1.0 / 64.0;

/// Tail-optimized LRU.
pub type TailLru = KeyedPolicy<TailLruOrder>;

/// The order of [`TailLru`].
#[derive(Debug)]
pub struct TailLruOrder {
    /// ξ: uncached part of a next prompt that is still fast enough, in blocks.
    allowance_blocks: f64,
    /// Q: blocks behind the known part of a prompt, on average.
    growth_blocks: f64,
    /// Per slot: whether the last request that used its block can spare it.
    is_surplus: Vec<bool>,
    recency: Recency,
}

impl TailLru {
    /// For a cache of `capacity` slots; `allowance_blocks` is ξ.
    #[must_use]
    pub fn new(capacity: usize, allowance_blocks: f64) -> Self {
        let order = TailLruOrder {
            allowance_blocks,
            growth_blocks: 0.0,
            is_surplus: vec![false; capacity],
            recency: Recency::new(capacity),
        };
        Self::over(capacity, order)
    }
}

impl TailLruOrder {
    /// Returns the number of leading blocks that a conversation of `len` blocks needs.
    fn needed(&self, len: usize) -> usize {
        (len as f64 + self.growth_blocks - self.allowance_blocks).max(0.0) as usize
    }

    /// Blocks that this request is the first to release are what it added.
    fn learn_growth(&mut self, blocks: &[BlockId]) {
        let known = blocks.iter().take_while(|&&block| self.recency.of(block) > 0);
        let known = known.count();
        if known > 0 {
            let growth = (blocks.len() - known) as f64;
            self.growth_blocks += GROWTH_WEIGHT * (growth - self.growth_blocks);
        }
    }
}

impl Priority for TailLruOrder {
    type Key = RankedKey;

    fn insert(&mut self, block: BlockId) {
        self.recency.forget(block);
        self.is_surplus[block.index()] = false;
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        // This precedes the release, which makes every block of the request a known one.
        self.learn_growth(blocks);
        self.recency.release(blocks);
        let needed = self.needed(blocks.len());
        for (offset, block) in blocks.iter().enumerate() {
            self.is_surplus[block.index()] = offset >= needed;
        }
    }

    fn key(&self, block: BlockId) -> RankedKey {
        let rank = u32::from(!self.is_surplus[block.index()]);
        RankedKey::new(rank, self.recency.of(block))
    }
}
