//! Eviction of an exact number of units, or of none.

use headstart_core::{BlockHash, BlockId, Nanos};

use super::{Link, TierContents, UnitSlot};

impl TierContents {
    /// The slot of a unit that can be read, and its readers.
    pub(in crate::tiers) fn slot(&self, name: BlockHash) -> Option<(BlockId, u32)> {
        let slot = *self.names.get(&name)?;
        self.resident(slot).map(|(_, pins)| (slot, pins))
    }

    /// The number of `count` units that may go, in turn. O(capacity) where fewer than that are
    /// candidates now.
    pub(in crate::tiers) fn evictable(&self, count: usize) -> usize {
        if count <= self.num_candidates { count } else { count.min(self.num_evictable()) }
    }

    /// Counts the units that may go: all but those that are read, and those before them.
    fn num_evictable(&self) -> usize {
        let mut stays = vec![false; self.slots.len()];
        for slot in &self.slots {
            let mut next = match slot {
                UnitSlot::Writing(unit) => unit.parent,
                UnitSlot::Resident { unit, pins } if *pins > 0 => Some(unit.name),
                UnitSlot::Free | UnitSlot::Resident { .. } | UnitSlot::Lost { .. } => None,
            };
            while let Some((slot, unit)) = next.and_then(|name| self.placed(name)) {
                // The units before one that was met have been met too.
                if std::mem::replace(&mut stays[slot.index()], true) {
                    break;
                }
                next = unit.parent;
            }
        }
        let is_resident = |slot: &UnitSlot| matches!(slot, UnitSlot::Resident { .. });
        self.slots.iter().zip(stays).filter(|&(slot, stays)| is_resident(slot) && !stays).count()
    }

    /// A unit that is here or on its way, and its slot.
    fn placed(&self, name: BlockHash) -> Option<(BlockId, Link)> {
        let slot = *self.names.get(&name)?;
        match self.slots[slot.index()] {
            UnitSlot::Writing(unit) | UnitSlot::Resident { unit, .. } => Some((slot, unit)),
            UnitSlot::Free | UnitSlot::Lost { .. } => None,
        }
    }

    /// Evicts `count` units in the policy's order; `None`, and nothing changed, where fewer may go.
    pub(in crate::tiers) fn evict_exactly(
        &mut self,
        count: usize,
        now: Nanos,
    ) -> Option<Vec<BlockHash>> {
        if self.evictable(count) < count {
            return None;
        }
        let mut evicted = Vec::with_capacity(count);
        for _ in 0..count {
            // An evictable unit has evictable units behind it only, and one of them is a candidate.
            let slot =
                self.policy.victim(now, None).expect("an evictable unit implies a candidate");
            let (unit, _) =
                self.resident(slot).expect("only units that can be read are candidates");
            self.policy.remove(slot, unit.name);
            self.num_candidates -= 1;
            self.vacate(slot, unit);
            // Taken in the order of eviction, as where a slot is evicted for each newcomer.
            self.free.push_front(slot);
            evicted.push(unit.name);
        }
        Some(evicted)
    }
}
