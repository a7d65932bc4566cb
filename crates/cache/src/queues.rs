//! Candidates in order of a key: d-ary heaps that know where each block stands.
//!
//! Most policies evict the smallest key of one queue or of a few; those that sweep in order of
//! entry have [`crate::lanes`]. Only candidates are queued (unpinned leaves of the prefix tree), so
//! a queue is as long as there are conversations, not blocks, and a pin costs one removal.
//!
//! Source: Williams 1964, with four children a node (Johnson 1975) so that a level is one cache
//! line, and a table of positions for removals from the middle.

use headstart_core::BlockId;

/// Children of a node.
const ARITY: usize = 4;

/// Not in any queue.
const NOWHERE: u32 = u32::MAX;

/// A few priority queues over the slots of one cache; a block is in at most one of them.
///
/// Keys are unique among blocks that are queued at the same time, or ties go by slot.
#[derive(Debug)]
pub(crate) struct Queues<K> {
    heaps: Vec<Vec<QueueEntry<K>>>,
    /// Per slot: its index in its heap.
    positions: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueEntry<K> {
    key: K,
    block: u32,
}

impl<K: Copy + Ord> Queues<K> {
    /// `num_queues` empty queues for a cache of `capacity` slots.
    pub(crate) fn new(capacity: usize, num_queues: usize) -> Self {
        Self {
            heaps: (0..num_queues).map(|_| Vec::new()).collect(),
            positions: vec![NOWHERE; capacity],
        }
    }

    /// Adds an empty queue and returns its number.
    pub(crate) fn add_queue(&mut self) -> usize {
        self.heaps.push(Vec::new());
        self.heaps.len() - 1
    }

    pub(crate) fn is_empty(&self, queue: usize) -> bool {
        self.heaps[queue].is_empty()
    }

    /// The entry at an index, in no order.
    pub(crate) fn at(&self, queue: usize, index: usize) -> BlockId {
        BlockId(self.heaps[queue][index].block)
    }

    /// The block with the smallest key.
    #[inline]
    pub(crate) fn first(&self, queue: usize) -> Option<(K, BlockId)> {
        let first = self.heaps[queue].first()?;
        Some((first.key, BlockId(first.block)))
    }

    /// Queues a block that is in no queue. O(log n); O(1) for a new largest key.
    pub(crate) fn push(&mut self, queue: usize, block: BlockId, key: K) {
        debug_assert_eq!(self.positions[block.index()], NOWHERE, "queued twice");
        let heap = &mut self.heaps[queue];
        if heap.len() == heap.capacity() {
            // An eighth, not double, and no more than there are slots: a cache's memory is
            // accounted for by the byte.
            let room = self.positions.len() - heap.len();
            heap.reserve_exact((heap.len() / 8).max(16).min(room));
        }
        heap.push(QueueEntry { key, block: block.0 });
        let last = heap.len() - 1;
        self.rise(queue, last);
    }

    /// Takes a block out of its queue. O(log n).
    ///
    /// # Panics
    /// When the block is not in `queue`.
    pub(crate) fn remove(&mut self, queue: usize, block: BlockId) {
        let position = self.positions[block.index()];
        assert_ne!(position, NOWHERE, "{block:?} is in no queue");
        let position = position as usize;
        debug_assert_eq!(self.heaps[queue][position].block, block.0, "in its own queue");
        // The sift below writes the positions of other blocks only.
        self.positions[block.index()] = NOWHERE;
        let heap = &mut self.heaps[queue];
        let last = heap.pop().expect("a queued block has an entry");
        if heap.len() < heap.capacity() / 4 * 3 {
            // Blocks move from queue to queue: what one grew to must not stay with it.
            heap.shrink_to(heap.len() + (heap.len() / 8).max(16));
        }
        // The removed block was the last entry itself.
        if position == heap.len() {
            return;
        }
        let gone = std::mem::replace(&mut heap[position], last);
        // The last entry comes from another subtree: it may belong above this place or below it.
        if last < gone {
            self.rise(queue, position);
        } else {
            self.sink(queue, position);
        }
    }

    /// Whether a block is in any queue.
    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.positions[block.index()] != NOWHERE
    }

    /// Exchanges two queues. O(1).
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        self.heaps.swap(one, other);
    }

    fn rise(&mut self, queue: usize, mut position: usize) {
        let heap = &mut self.heaps[queue];
        // The entry is written once, at its final place; those on its way move by one level.
        let entry = heap[position];
        while position > 0 {
            let above = (position - 1) / ARITY;
            if heap[above] < entry {
                break;
            }
            heap[position] = heap[above];
            self.positions[heap[position].block as usize] = position as u32;
            position = above;
        }
        heap[position] = entry;
        self.positions[entry.block as usize] = position as u32;
    }

    fn sink(&mut self, queue: usize, mut position: usize) {
        let heap = &mut self.heaps[queue];
        let entry = heap[position];
        loop {
            let first = position * ARITY + 1;
            let children = first..(first + ARITY).min(heap.len());
            // Below a leaf the range starts past its end, and is empty.
            let Some(least) = children.min_by_key(|&child| heap[child]) else {
                break;
            };
            if entry < heap[least] {
                break;
            }
            heap[position] = heap[least];
            self.positions[heap[position].block as usize] = position as u32;
            position = least;
        }
        heap[position] = entry;
        self.positions[entry.block as usize] = position as u32;
    }
}

/// A 64-bit key that is aligned to four bytes, so that an entry takes twelve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key64([u32; 2]);

impl From<u64> for Key64 {
    #[inline]
    fn from(key: u64) -> Self {
        Self([(key >> 32) as u32, key as u32])
    }
}

/// A 32-bit rank, then a 64-bit key; an entry takes sixteen bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankedKey([u32; 3]);

impl RankedKey {
    #[inline]
    pub(crate) fn new(rank: u32, key: u64) -> Self {
        Self([rank, (key >> 32) as u32, key as u32])
    }
}

/// A key by `rank`, then by `key`.
#[inline]
pub(crate) fn wide_key(rank: u64, key: u64) -> [u32; 4] {
    [rank >> 32, rank, key >> 32, key].map(|part| part as u32)
}

/// Bits that are in the order of the numbers.
#[inline]
pub(crate) fn ordered(number: f64) -> u64 {
    let (bits, sign) = (number.to_bits(), 1 << 63);
    // Negative numbers descend by their bits, so all of these flip; positive ones go above them.
    if bits & sign == 0 { bits | sign } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_sorted_set() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let mut queues = Queues::<Key64>::new(64, 2);
            let mut sets: [BTreeSet<(Key64, u32)>; 2] = Default::default();
            for _ in 0..2_000 {
                let block = rng.below(64) as u32;
                let held = (0..2).find(|&q| sets[q].iter().any(|entry| entry.1 == block));
                match (held, rng.below(8)) {
                    (_, 0) => {
                        queues.swap(0, 1);
                        sets.swap(0, 1);
                    }
                    (_, 1) => {
                        let first = queues.first(1);
                        if let Some((_, block)) = first {
                            queues.remove(1, block);
                        }
                        let first = first.map(|(key, block)| (key, block.0));
                        assert_eq!(first, sets[1].pop_first(), "seed {seed}");
                    }
                    (Some(queue), _) => {
                        queues.remove(queue, BlockId(block));
                        sets[queue].retain(|entry| entry.1 != block);
                    }
                    (None, _) => {
                        let (queue, key) = (rng.below(2), Key64::from(rng.next_u64() % 50));
                        queues.push(queue, BlockId(block), key);
                        sets[queue].insert((key, block));
                    }
                }
                for (queue, set) in sets.iter().enumerate() {
                    let first = queues.first(queue).map(|(key, block)| (key, block.0));
                    assert_eq!(first, set.first().copied(), "seed {seed}");
                    assert_eq!(queues.is_empty(queue), set.is_empty());
                }
            }
        }
    }

    #[test]
    fn entries_are_small() {
        assert_eq!(size_of::<QueueEntry<Key64>>(), 12);
        assert_eq!(size_of::<QueueEntry<RankedKey>>(), 16);
    }
}
