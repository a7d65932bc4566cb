//! The slots of one tier: what each holds, which are free, and which block is where.
//!
//! Twenty-eight bytes a slot. The free list runs through the free slots, and the table from name
//! to slot holds slot numbers only, because the names stand in the slots.

use hashbrown::HashTable;
use headstart_core::{BlockHash, BlockId};

/// No slot; also the end of the free list.
const NONE: u32 = u32::MAX;
/// One spare entry in the table of names per this number of slots. When removed names have used up
/// the spare entries, the table is rebuilt (see `settle`): at most this number of insertions per
/// eviction. With that room a table takes at most 12 bytes a slot.
pub(crate) const ROOM_TO_REBUILD: usize = 32;
/// Values of `pins` that are states, not counts.
const FREE: u32 = u32::MAX;
const IN_FLIGHT: u32 = u32::MAX - 1;

/// One slot. `parent` is the next free slot while the slot is free.
#[derive(Clone, Copy, Debug)]
struct BlockSlot {
    hash: BlockHash,
    parent: u32,
    children: u32,
    pins: u32,
}

/// Contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    InFlight,
    Resident { parent: Option<BlockId>, children: u32, pins: u32 },
}

/// Effect of a pin, or of its end, on whether the block may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinEffect {
    /// Other pins remain: nothing changes.
    Already,
    /// First or last pin of a block with resident children.
    Inner,
    /// First or last pin of a leaf.
    Leaf,
}

/// All slots.
pub(crate) struct Slots {
    slots: Vec<BlockSlot>,
    names: HashTable<u32>,
    first_free: u32,
    num_free: usize,
}

impl Slots {
    /// `capacity` free slots.
    pub(crate) fn new(capacity: usize) -> Self {
        // A count that does not fit 32 bits becomes `u32::MAX`, which the assert refuses.
        let last = u32::try_from(capacity).unwrap_or(u32::MAX);
        assert!(last < IN_FLIGHT, "a tier holds fewer than 2^32 - 2 blocks");
        let free =
            |next| BlockSlot { hash: BlockHash([0; 16]), parent: next, children: 0, pins: FREE };
        let nexts = (1..=last).map(|next| if next == last { NONE } else { next });
        Self {
            slots: nexts.map(free).collect(),
            names: HashTable::with_capacity(capacity + capacity / ROOM_TO_REBUILD),
            first_free: if capacity == 0 { NONE } else { 0 },
            num_free: capacity,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn num_free(&self) -> usize {
        self.num_free
    }

    pub(crate) fn num_resident(&self) -> usize {
        self.names.len()
    }

    /// The slot of a resident block.
    #[inline]
    pub(crate) fn find(&self, hash: BlockHash) -> Option<BlockId> {
        let is_it = |&slot: &u32| self.slots[slot as usize].hash == hash;
        self.names.find(spread(hash), is_it).map(|&slot| BlockId(slot))
    }

    /// Like [`Slots::find`], for the block behind `before` in a chain. Chains are laid down in
    /// neighbouring slots, upwards in an empty cache and downwards where a tail was evicted, so
    /// the neighbours are looked at first: the name stands in a line of memory just read.
    #[inline]
    pub(crate) fn find_behind(&self, before: Option<BlockId>, hash: BlockHash) -> Option<BlockId> {
        if let Some(BlockId(before)) = before {
            // Below slot 0 the index wraps to one that no slot has, and `get` finds nothing.
            for near in [before.wrapping_add(1), before.wrapping_sub(1)] {
                let slot = self.slots.get(near as usize);
                // A slot that is free or in flight keeps its old name, so `pins` must rule it out.
                if slot.is_some_and(|slot| slot.hash == hash && slot.pins < IN_FLIGHT) {
                    return Some(BlockId(near));
                }
            }
        }
        self.find(hash)
    }

    /// The name of a resident block.
    pub(crate) fn hash(&self, block: BlockId) -> BlockHash {
        self.slots[block.index()].hash
    }

    pub(crate) fn state(&self, block: BlockId) -> State {
        let slot = &self.slots[block.index()];
        match slot.pins {
            FREE => State::Free,
            IN_FLIGHT => State::InFlight,
            pins => State::Resident {
                parent: (slot.parent != NONE).then_some(BlockId(slot.parent)),
                children: slot.children,
                pins,
            },
        }
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> + use<> {
        (0..self.slots.len() as u32).map(BlockId)
    }

    /// Takes a free slot: it is in flight.
    pub(crate) fn take_free(&mut self) -> Option<BlockId> {
        let block = (self.first_free != NONE).then_some(BlockId(self.first_free))?;
        let slot = &mut self.slots[block.index()];
        // While a slot is free, `parent` is the next free one.
        self.first_free = slot.parent;
        slot.pins = IN_FLIGHT;
        self.num_free -= 1;
        Some(block)
    }

    /// Frees a slot in flight.
    pub(crate) fn free(&mut self, block: BlockId) {
        let slot = &mut self.slots[block.index()];
        assert_eq!(slot.pins, IN_FLIGHT, "{block:?} is freed while not in flight");
        slot.pins = FREE;
        slot.parent = self.first_free;
        self.first_free = block.0;
        self.num_free += 1;
    }

    /// Makes a slot in flight resident under `hash`, pinned once, a child of `parent`.
    pub(crate) fn settle(&mut self, block: BlockId, hash: BlockHash, parent: Option<BlockId>) {
        if let Some(parent) = parent {
            self.resident_mut(parent).children += 1;
        }
        let slot = &mut self.slots[block.index()];
        assert_eq!(slot.pins, IN_FLIGHT, "{block:?} is settled while not in flight");
        *slot = BlockSlot {
            hash,
            parent: parent.map_or(NONE, |parent| parent.0),
            children: 0,
            pins: 1,
        };
        if self.names.len() == self.names.capacity() {
            // Full of what was removed: it would double.
            self.names.clear();
            let is_resident = |slot: &u32| self.slots[*slot as usize].pins < IN_FLIGHT;
            // This includes `block`, whose slot is resident by now.
            (0..self.slots.len() as u32)
                .filter(is_resident)
                .for_each(|slot| insert(&mut self.names, &self.slots, slot));
        } else {
            insert(&mut self.names, &self.slots, block.0);
        }
    }

    /// Turns an unpinned resident leaf into a slot in flight; returns its parent if that has become
    /// an unpinned leaf.
    pub(crate) fn unsettle(&mut self, block: BlockId) -> Option<BlockId> {
        let slot = *self.resident_mut(block);
        assert!(slot.children == 0 && slot.pins == 0, "a victim is a leaf without holders");
        let entry = self.names.find_entry(spread(slot.hash), |&found| found == block.0);
        entry.expect("a resident block has a name").remove();
        // In flight and not free: the caller takes the slot at once, or frees it.
        self.slots[block.index()].pins = IN_FLIGHT;
        let parent = (slot.parent != NONE).then_some(BlockId(slot.parent))?;
        let above = self.resident_mut(parent);
        above.children -= 1;
        // A pinned parent is offered when its last pin ends, not here.
        (above.children == 0 && above.pins == 0).then_some(parent)
    }

    /// Adds a pin.
    #[inline]
    pub(crate) fn pin(&mut self, block: BlockId) -> PinEffect {
        let slot = self.resident_mut(block);
        slot.pins += 1;
        pinned(slot.pins == 1, slot.children)
    }

    /// Takes a pin away.
    #[inline]
    pub(crate) fn unpin(&mut self, block: BlockId) -> PinEffect {
        let slot = self.resident_mut(block);
        slot.pins -= 1;
        pinned(slot.pins == 0, slot.children)
    }

    #[inline]
    fn resident_mut(&mut self, block: BlockId) -> &mut BlockSlot {
        let slot = &mut self.slots[block.index()];
        assert!(slot.pins < IN_FLIGHT, "{block:?} is held as resident but is not");
        slot
    }
}

#[inline]
fn insert(names: &mut HashTable<u32>, slots: &[BlockSlot], slot: u32) {
    let name = |&slot: &u32| spread(slots[slot as usize].hash);
    names.insert_unique(name(&slot), slot, name);
}

#[inline]
fn pinned(is_only: bool, children: u32) -> PinEffect {
    match (is_only, children) {
        (false, _) => PinEffect::Already,
        (true, 0) => PinEffect::Leaf,
        (true, _) => PinEffect::Inner,
    }
}

/// Names are keyed BLAKE3 (uniform already) or, in replay, plain numbers, which the
/// multiplication spreads over both the table's index bits and its tag bits.
#[inline]
pub(crate) fn spread(hash: BlockHash) -> u64 {
    let name = u128::from_be_bytes(hash.0);
    let folded = (name as u64) ^ ((name >> 64) as u64).rotate_left(32);
    let mixed = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use std::collections::HashMap;

    /// A nearly full table in which names come and go; it must find them all and not double.
    #[test]
    fn names_are_found_and_take_no_more_room_however_long_it_runs() {
        const CAPACITY: usize = 54;
        let (mut slots, mut rng) = (Slots::new(CAPACITY), Rng::new(1));
        let room = slots.names.allocation_size();
        let mut resident: HashMap<BlockHash, BlockId> = HashMap::new();
        for _ in 0..20_000 {
            let hash = BlockHash::from_u64(rng.below(500) as u64);
            assert_eq!(slots.find(hash), resident.get(&hash).copied());
            if resident.contains_key(&hash) {
                continue;
            }
            let block = slots.take_free().unwrap_or_else(|| {
                let block = BlockId(rng.below(CAPACITY) as u32);
                resident.remove(&slots.hash(block));
                slots.unsettle(block);
                block
            });
            slots.settle(block, hash, None);
            slots.unpin(block);
            resident.insert(hash, block);
            assert_eq!(slots.names.allocation_size(), room);
        }
    }

    #[test]
    fn a_slot_takes_twenty_eight_bytes() {
        assert_eq!(size_of::<BlockSlot>(), 28);
    }
}
