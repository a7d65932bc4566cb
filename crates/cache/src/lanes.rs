//! Queues in order of entry: blocks join at the back and leave at the front.
//!
//! A block that was at the front and had to step aside comes back at its own place. Blocks that
//! never left stand in a linked list, O(1) a step; those that came back stand in a heap by the
//! count at which they joined. The front is the smaller of the two firsts.

use headstart_core::BlockId;

use crate::linked::LinkedLists;
use crate::queues::{Key64, Queues};

/// A few queues over the slots of one cache; a block is in at most one of them.
#[derive(Debug)]
pub(crate) struct Lanes {
    lists: LinkedLists,
    /// Per slot: the count at which its block joined.
    joined: Vec<u64>,
    /// Blocks that stepped aside and came back, by that count; one queue per lane.
    returned: Queues<Key64>,
}

impl Lanes {
    /// `num_lanes` empty queues for a cache of `capacity` slots.
    pub(crate) fn new(capacity: usize, num_lanes: usize) -> Self {
        Self {
            lists: LinkedLists::new(capacity, num_lanes),
            joined: vec![0; capacity],
            returned: Queues::new(capacity, num_lanes),
        }
    }

    pub(crate) fn is_empty(&self, lane: usize) -> bool {
        self.lists.first(lane).is_none() && self.returned.is_empty(lane)
    }

    /// The count at which the block joined.
    pub(crate) fn joined(&self, block: BlockId) -> u64 {
        self.joined[block.index()]
    }

    /// Puts a block at the back. `count` must be larger than those of all in the lane.
    pub(crate) fn push(&mut self, lane: usize, block: BlockId, count: u64) {
        self.joined[block.index()] = count;
        self.append(lane, block);
    }

    /// Puts a block at the back under the count at which it had joined another lane, which must
    /// be larger than those of all that are in this one's list.
    pub(crate) fn append(&mut self, lane: usize, block: BlockId) {
        self.lists.append(lane, block);
    }

    /// Puts a block back that had left at the front, by the count at which it had joined.
    pub(crate) fn rejoin(&mut self, lane: usize, block: BlockId) {
        self.returned.push(lane, block, self.joined(block).into());
    }

    /// The block that joined first.
    #[inline]
    pub(crate) fn front(&self, lane: usize) -> Option<BlockId> {
        match (self.lists.first(lane), self.returned.first(lane)) {
            (Some(block), Some((key, _))) if Key64::from(self.joined(block)) < key => Some(block),
            (_, Some((_, block))) => Some(block),
            (listed, None) => listed,
        }
    }

    /// Takes the front block out.
    pub(crate) fn pop(&mut self, lane: usize) -> Option<BlockId> {
        let block = self.front(lane)?;
        self.take(lane, block);
        Some(block)
    }

    /// Takes a block out of its lane, wherever it stands. O(1), or O(log n) if it came back.
    pub(crate) fn take(&mut self, lane: usize, block: BlockId) {
        // A block that came back is in the heap, and its links in the list are stale.
        if self.returned.contains(block) {
            return self.returned.remove(lane, block);
        }
        self.lists.remove(lane, block);
    }

    /// Exchanges two lanes. O(1).
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        self.lists.swap(one, other);
        self.returned.swap(one, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_sorted_map() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let mut lanes = Lanes::new(40, 2);
            let mut maps: [BTreeMap<u64, BlockId>; 2] = Default::default();
            let mut aside: Vec<(usize, BlockId)> = Vec::new();
            for count in 1..3_000 {
                let block = BlockId(rng.below(40) as u32);
                let is_in = maps.iter().any(|map| map.values().any(|&one| one == block));
                let lane = rng.below(2);
                match rng.below(6) {
                    0 | 1 if !is_in && aside.iter().all(|one| one.1 != block) => {
                        lanes.push(lane, block, count);
                        maps[lane].insert(count, block);
                    }
                    2 => {
                        let popped = lanes.pop(lane);
                        assert_eq!(popped, maps[lane].pop_first().map(|(_, block)| block));
                        aside.extend(popped.filter(|_| rng.below(2) == 0).map(|one| (lane, one)));
                    }
                    3 if is_in => {
                        let lane = usize::from(!maps[0].values().any(|&one| one == block));
                        lanes.take(lane, block);
                        maps[lane].retain(|_, one| *one != block);
                    }
                    4 if !aside.is_empty() => {
                        let (lane, block) = aside.swap_remove(rng.below(aside.len()));
                        lanes.rejoin(lane, block);
                        maps[lane].insert(lanes.joined(block), block);
                    }
                    _ => {}
                }
                for (lane, map) in maps.iter().enumerate() {
                    let front = map.first_key_value().map(|(_, &block)| block);
                    assert_eq!(lanes.front(lane), front, "seed {seed}");
                    assert_eq!(lanes.is_empty(lane), map.is_empty());
                }
            }
            lanes.swap(0, 1);
            assert_eq!(lanes.front(0), maps[1].first_key_value().map(|(_, &one)| one));
        }
    }
}
