//! vLLM's device cache of KV blocks, for requests that run one after the other.
//!
//! It follows `vllm/v1/core/block_pool.py` (0.32), because a model of LRU alone differs from it
//! in three ways that show in the hits of a small cache:
//!
//! 1. A block that is not full has no hash. Behind its request it is the first of the free blocks.
//! 2. Block 0 is a placeholder, so a pool of C blocks holds C − 1.
//! 3. The last token of a prompt is always computed. A prompt of whole blocks therefore computes
//!    its last block a second time, and both copies stay.
//!
//! A request takes the blocks that it finds out of the queue of free blocks, takes the rest from
//! its front, and puts the full ones back at its end, last block first.

use std::collections::{BTreeMap, HashMap};

use headstart_core::BlockRuns;

/// The pool. Time per request: O(blocks · log capacity).
#[derive(Debug)]
pub struct VllmPool {
    slots: Vec<PoolSlot>,
    /// The queue of free blocks: slots by their place in it.
    free: BTreeMap<i64, usize>,
    /// The slots that hold a block, in the order in which they were filled.
    holders: HashMap<u64, Vec<usize>>,
    /// Places in front of the queue and behind it.
    front: i64,
    back: i64,
}

/// A place for a block.
#[derive(Clone, Debug, Default)]
struct PoolSlot {
    /// The name of the full block that it holds.
    block: Option<u64>,
    /// Its place in the queue of free blocks.
    place: i64,
}

/// The blocks of one request.
#[derive(Clone, Copy, Debug)]
pub struct PoolRequest<'a> {
    /// Full blocks of the prompt and the computed answer.
    pub full: &'a BlockRuns,
    /// Leading blocks that it may find.
    pub matchable: usize,
    /// Whether a last block is not full.
    pub has_partial: bool,
}

impl VllmPool {
    /// An empty pool of `num_gpu_blocks`, as vLLM counts them.
    #[must_use]
    pub fn new(num_gpu_blocks: usize) -> Self {
        let slots = vec![PoolSlot::default(); num_gpu_blocks.saturating_sub(1)];
        let mut pool =
            Self { slots, free: BTreeMap::new(), holders: HashMap::new(), front: -1, back: 0 };
        for slot in 0..pool.slots.len() {
            pool.put(slot, slot as i64);
        }
        pool.back = pool.slots.len() as i64;
        pool
    }

    /// Runs a request to its end. Returns the leading blocks that it found; `None` where it needs
    /// more blocks than there are, which vLLM refuses.
    pub fn serve(&mut self, request: PoolRequest<'_>) -> Option<usize> {
        let needed = request.full.len() + usize::from(request.has_partial);
        if needed > self.slots.len() {
            return None;
        }
        let may_match = request.full.iter().take(request.matchable);
        let found = may_match.map_while(|block| Some(*self.holders.get(&block)?.first()?));
        let mut taken: Vec<usize> = found.collect();
        let hits = taken.len();
        for &slot in &taken {
            self.free.remove(&self.slots[slot].place);
        }
        let computed = request.full.iter().map(Some).chain(request.has_partial.then_some(None));
        for block in computed.skip(hits) {
            let (_, slot) = self.free.pop_first().expect("there are enough blocks, counted above");
            self.fill(slot, block);
            taken.push(slot);
        }
        // The last block is the first to be used again.
        for &slot in taken.iter().rev() {
            self.release(slot);
        }
        Some(hits)
    }

    /// Puts another block into a slot.
    fn fill(&mut self, slot: usize, block: Option<u64>) {
        if let Some(evicted) = std::mem::replace(&mut self.slots[slot].block, block)
            && let Some(holders) = self.holders.get_mut(&evicted)
        {
            holders.retain(|&holder| holder != slot);
            if holders.is_empty() {
                self.holders.remove(&evicted);
            }
        }
        if let Some(block) = block {
            self.holders.entry(block).or_default().push(slot);
        }
    }

    /// Puts a slot back into the queue: one without a full block in front, others at the end.
    fn release(&mut self, slot: usize) {
        if self.slots[slot].block.is_some() {
            self.put(slot, self.back);
            self.back += 1;
        } else {
            self.put(slot, self.front);
            self.front -= 1;
        }
    }

    fn put(&mut self, slot: usize, place: i64) {
        self.slots[slot].place = place;
        self.free.insert(place, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(
        pool: &mut VllmPool,
        blocks: &[u64],
        matchable: usize,
        has_partial: bool,
    ) -> Option<usize> {
        let full: BlockRuns = blocks.iter().copied().collect();
        pool.serve(PoolRequest { full: &full, matchable, has_partial })
    }

    #[test]
    fn partial_blocks_are_used_first() {
        // Three usable blocks: two full ones and a partial one fill them.
        let mut pool = VllmPool::new(4);
        assert_eq!(hits(&mut pool, &[1, 2], 2, true), Some(0));
        // The partial block is first in the queue, so a request of one block evicts nothing.
        assert_eq!(hits(&mut pool, &[7], 1, false), Some(0));
        assert_eq!(hits(&mut pool, &[1, 2], 2, false), Some(2));
        assert_eq!(hits(&mut pool, &[8, 9], 2, true), Some(0), "evicts all");
        assert_eq!(hits(&mut pool, &[1, 2], 2, false), Some(0));
    }

    #[test]
    fn a_prompt_of_whole_blocks_computes_its_last_one_again() {
        let mut pool = VllmPool::new(6);
        assert_eq!(hits(&mut pool, &[1, 2], 1, false), Some(0));
        assert_eq!(hits(&mut pool, &[1, 2], 1, false), Some(1));
        assert_eq!(pool.holders[&2].len(), 2, "both copies stay");
        assert_eq!(hits(&mut pool, &[1, 2, 3], 3, false), Some(2));
    }

    #[test]
    fn a_request_that_never_fits_changes_nothing() {
        let mut pool = VllmPool::new(3);
        assert_eq!(hits(&mut pool, &[1], 1, true), Some(0));
        assert_eq!(hits(&mut pool, &[2, 3], 2, true), None);
        assert_eq!(hits(&mut pool, &[1], 1, true), Some(1));
    }
}
