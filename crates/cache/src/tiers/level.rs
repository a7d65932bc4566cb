//! Contents of one lower tier: units by name, each in a slot, and the next victim.
//!
//! Unlike the device's cache a lower tier may hold a unit whose parent it does not hold (the parent
//! is on the device only, or was lost), so that parents are known by name: a unit with a child here
//! is not a candidate, whenever the parent came.
//!
//! ```text
//! free ──begin──► writing ──commit──► resident ──evict──► free
//!   ▲                │                   │ lose               ▲
//!   └────abort───────┘                   └──► lost ──unpin────┘
//! ```
//!
//! A unit that was lost (its bytes are gone) is not found any more; its slot becomes free once its
//! last reader is done. Where tenants have shares ([`super::owners`]), a tenant with its own share
//! makes room for itself.

mod exact;

use std::collections::{HashMap, VecDeque};

use headstart_core::transfer::FoundUnit;
use headstart_core::{Access, BlockHash, BlockId, Nanos, TenantTag};

use super::owners::{Owners, Shares};
use crate::Policy;
use crate::policy::Newcomer;

/// Contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitSlot {
    Free,
    /// Its bytes are on their way.
    Writing(Link),
    /// It can be read.
    Resident {
        unit: Link,
        pins: u32,
    },
    /// Its unit is gone, but still being read.
    Lost {
        pins: u32,
    },
}

/// A unit, the one before it and its tenant.
pub(super) type Link = FoundUnit;

/// Answer of [`TierContents::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// It has a slot: its bytes may be written.
    Started,
    /// It is there, or on its way.
    Present,
    /// Nothing may go for it, or the policy would rather keep what it has.
    Declined,
}

/// Division of a tier's capacity, in units. The parts always sum to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierOccupancy {
    /// Holding nothing.
    pub free: usize,
    /// Readable, without a reader.
    pub cached: usize,
    /// Readable, and being read.
    pub pinned: usize,
    /// Being written.
    pub in_flight: usize,
    /// Gone, but still being read.
    pub lost: usize,
}

/// One lower tier.
pub(super) struct TierContents {
    slots: Vec<UnitSlot>,
    /// Taken from the back.
    free: VecDeque<BlockId>,
    /// Resident units and those being written.
    names: HashMap<BlockHash, BlockId>,
    /// Number of slots that name a unit as their parent, by that unit.
    children: HashMap<BlockHash, u32>,
    num_resident: usize,
    num_candidates: usize,
    policy: Box<dyn Policy>,
    owners: Option<Owners>,
}

impl TierContents {
    pub(super) fn new(capacity: usize, policy: Box<dyn Policy>, shares: Shares) -> Self {
        let last = u32::try_from(capacity).expect("a tier holds fewer than 2^32 units");
        Self {
            slots: vec![UnitSlot::Free; capacity],
            // Slots are taken from the end, so slot 0 is the first.
            free: (0..last).rev().map(BlockId).collect(),
            names: HashMap::new(),
            children: HashMap::new(),
            num_resident: 0,
            num_candidates: 0,
            policy,
            owners: Owners::new(capacity, shares),
        }
    }

    /// Slots in all, and units that can be read.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.slots.len(), self.num_resident)
    }

    /// Slots that hold nothing.
    pub(super) fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Whether the unit can be read here.
    pub(super) fn holds(&self, name: BlockHash) -> bool {
        self.link(name).is_some()
    }

    /// A unit that can be read here.
    pub(super) fn link(&self, name: BlockHash) -> Option<Link> {
        self.resident(*self.names.get(&name)?).map(|(unit, _)| unit)
    }

    /// The unit that can be read in a slot, and its readers.
    fn resident(&self, slot: BlockId) -> Option<(Link, u32)> {
        match self.slots[slot.index()] {
            UnitSlot::Resident { unit, pins } => Some((unit, pins)),
            UnitSlot::Free | UnitSlot::Writing(_) | UnitSlot::Lost { .. } => None,
        }
    }

    /// Whether it can be read here, or soon.
    pub(super) fn knows(&self, name: BlockHash) -> bool {
        self.names.contains_key(&name)
    }

    /// The chance that a unit that asks to be admitted is used again here, if it is known.
    pub(super) fn chance_of_use(&mut self, name: BlockHash, access: &Access) -> Option<f64> {
        self.policy.chance_of_use(&Newcomer { hash: name, access: *access })
    }

    /// The tables of the policy, if it learns.
    pub(super) fn learned(&self) -> Option<Vec<u8>> {
        self.policy.learned()
    }

    /// Gives `unit` a slot. What had to go for it is added to `evicted`.
    pub(super) fn begin(&mut self, unit: Link, access: &Access, evicted: &mut Vec<Link>) -> Begin {
        if self.names.contains_key(&unit.name) {
            return Begin::Present;
        }
        // A tenant with a full share replaces its own unit, even if the tier has a free slot.
        if !self.keeps_share(unit, evicted) {
            return Begin::Declined;
        }
        let newcomer = Newcomer { hash: unit.name, access: *access };
        let slot = match self.free.pop_back() {
            Some(slot) => slot,
            None if !self.policy.admits(&newcomer) => return Begin::Declined,
            None => match self.evict(access.now, &newcomer, unit.parent, evicted) {
                Some(slot) => slot,
                None => return Begin::Declined,
            },
        };
        self.policy.store(slot, unit.name, access);
        self.write(slot, unit);
        Begin::Started
    }

    /// Gives `unit` a free slot, and counts a use if it `is_used`. Whether there was a slot, and
    /// the unit was not here.
    pub(super) fn begin_free(&mut self, unit: Link, access: &Access, is_used: bool) -> bool {
        if self.names.contains_key(&unit.name) {
            return false;
        }
        let Some(slot) = self.free.pop_back() else {
            return false;
        };
        if is_used {
            self.policy.store(slot, unit.name, access);
        } else {
            self.policy.insert(slot, unit.name, access);
        }
        self.write(slot, unit);
        true
    }

    /// The bytes of a unit are on their way to a slot.
    fn write(&mut self, slot: BlockId, unit: Link) {
        self.slots[slot.index()] = UnitSlot::Writing(unit);
        self.names.insert(unit.name, slot);
        if let Some(owners) = &mut self.owners {
            owners.enter(unit.tenant, slot);
        }
        // Counted from now on: a head must not go while its tail is on its way.
        self.add_child(unit.parent);
    }

    /// The bytes of a unit that was begun are there, and it has `pins` readers. Its slot, if it was
    /// on its way.
    pub(super) fn commit(&mut self, name: BlockHash, pins: u32) -> Option<BlockId> {
        let (slot, unit) = self.writing(name)?;
        self.slots[slot.index()] = UnitSlot::Resident { unit, pins };
        self.num_resident += 1;
        // A tail may have come before its head, which then is no candidate.
        if self.is_candidate(slot) {
            self.offer(slot);
        }
        Some(slot)
    }

    /// The bytes of a unit that was begun will not come.
    pub(super) fn abort(&mut self, name: BlockHash) {
        let Some((slot, unit)) = self.writing(name) else {
            return;
        };
        self.policy.forget(slot, name);
        self.leave(unit);
        self.slots[slot.index()] = UnitSlot::Free;
        self.free.push_back(slot);
    }

    /// One use of a prompt's units, in order, by a request.
    pub(super) fn touch(&mut self, names: &[BlockHash], access: &Access) {
        let (mut slots, mut missing) = (Vec::new(), Vec::new());
        for &name in names {
            match self.names.get(&name) {
                Some(&slot) => slots.push(slot),
                None => missing.push(name),
            }
        }
        let candidates: Vec<BlockId> =
            slots.iter().copied().filter(|&slot| self.is_candidate(slot)).collect();
        // A policy hears only of uses of blocks that are not offered.
        candidates.iter().for_each(|&slot| self.withdraw(slot));
        self.policy.release_some(&slots, &missing, access);
        if let Some(owners) = &mut self.owners {
            // Tail first, so that a tenant gives up tails before heads.
            slots.iter().rev().for_each(|&slot| owners.touch(slot));
        }
        candidates.iter().rev().for_each(|&slot| self.offer(slot));
    }

    /// Pins a unit for a reader: it stays. Unpin the returned slot, whatever name it has by then.
    pub(super) fn pin(&mut self, name: BlockHash) -> Option<BlockId> {
        let slot = *self.names.get(&name)?;
        // The state is read before the pin, which ends the candidacy.
        let was_candidate = self.is_candidate(slot);
        let UnitSlot::Resident { pins, .. } = &mut self.slots[slot.index()] else {
            return None;
        };
        *pins += 1;
        if was_candidate {
            self.withdraw(slot);
        }
        Some(slot)
    }

    /// Ends one read of the slot.
    ///
    /// # Panics
    /// When it was not pinned.
    pub(super) fn unpin(&mut self, slot: BlockId) {
        let (UnitSlot::Resident { pins, .. } | UnitSlot::Lost { pins }) =
            &mut self.slots[slot.index()]
        else {
            panic!("what is pinned stays in its slot")
        };
        *pins = pins.checked_sub(1).expect("it was pinned");
        // Lost while it was read: the last reader frees the slot.
        if self.slots[slot.index()] == (UnitSlot::Lost { pins: 0 }) {
            self.slots[slot.index()] = UnitSlot::Free;
            self.free.push_back(slot);
        } else if self.is_candidate(slot) {
            self.offer(slot);
        }
    }

    /// Its bytes are gone. Whether it was there.
    pub(super) fn lose(&mut self, name: BlockHash) -> bool {
        let slot = self.names.get(&name).copied();
        slot.is_some_and(|slot| self.lose_slot(slot, name))
    }

    /// The same, unless its name has another slot by now.
    pub(super) fn lose_slot(&mut self, slot: BlockId, name: BlockHash) -> bool {
        if self.names.get(&name) != Some(&slot) {
            return false;
        }
        let Some((unit, pins)) = self.resident(slot) else {
            return false;
        };
        // A policy may be told to forget only a block that it may not choose.
        if self.is_candidate(slot) {
            self.withdraw(slot);
        }
        // Its name goes at once, even if readers still have the slot.
        self.drop_resident(slot, unit);
        // A reader still has the slot, which must not be written before it is done.
        if pins > 0 {
            self.slots[slot.index()] = UnitSlot::Lost { pins };
        } else {
            self.free.push_back(slot);
        }
        true
    }

    pub(super) fn held(&self) -> TierOccupancy {
        let mut held = TierOccupancy::default();
        for slot in &self.slots {
            match slot {
                UnitSlot::Free => held.free += 1,
                UnitSlot::Writing(_) => held.in_flight += 1,
                UnitSlot::Resident { pins: 0, .. } => held.cached += 1,
                UnitSlot::Resident { .. } => held.pinned += 1,
                UnitSlot::Lost { .. } => held.lost += 1,
            }
        }
        held
    }

    /// Asserts every invariant. O(capacity).
    pub(super) fn check(&self) {
        let held = self.held();
        assert_eq!(held.free, self.free.len(), "free slots are counted");
        let resident = held.cached + held.pinned;
        assert_eq!(resident, self.num_resident, "residents are counted");
        let mut children: HashMap<BlockHash, u32> = HashMap::new();
        let mut owned: HashMap<TenantTag, usize> = HashMap::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let (UnitSlot::Writing(unit) | UnitSlot::Resident { unit, .. }) = slot else {
                continue;
            };
            let slot = self.names.get(&unit.name);
            assert_eq!(slot, Some(&BlockId(index as u32)), "a name leads to its slot");
            *owned.entry(unit.tenant).or_default() += 1;
            if let Some(parent) = unit.parent {
                *children.entry(parent).or_default() += 1;
            }
        }
        assert_eq!(children, self.children, "children are counted");
        let slots = (0..self.slots.len() as u32).map(BlockId);
        let candidates = slots.filter(|&slot| self.is_candidate(slot)).count();
        assert_eq!(candidates, self.num_candidates, "candidates are counted");
        for (tenant, count) in owned {
            if let Some(owners) = &self.owners {
                assert_eq!(owners.count(tenant), count, "units have owners");
                assert!(owners.excess(tenant) <= 1, "no tenant has more than its share");
                let mut candidates = owners.candidates(tenant);
                let may_go = |slot| self.is_candidate(slot);
                assert!(candidates.all(may_go), "who is given up may go");
            }
        }
    }

    /// Frees a slot for a newcomer, but not its parent's: a tail is worth nothing without its head.
    fn evict(
        &mut self,
        now: Nanos,
        newcomer: &Newcomer,
        parent: Option<BlockHash>,
        evicted: &mut Vec<Link>,
    ) -> Option<BlockId> {
        let slot = self.policy.victim(now, Some(newcomer))?;
        let Some((unit, 0)) = self.resident(slot) else {
            panic!("only units without readers are candidates");
        };
        if Some(unit.name) == parent {
            return None;
        }
        self.policy.remove(slot, unit.name);
        self.num_candidates -= 1;
        // `remove` has ended the policy's offer already, so `withdraw` would end it twice.
        if let Some(owners) = &mut self.owners {
            owners.withdraw(unit.tenant, slot);
        }
        self.vacate(slot, unit);
        evicted.push(unit);
        Some(slot)
    }

    /// Makes room for a unit in its tenant's share. Whether there is.
    fn keeps_share(&mut self, unit: Link, evicted: &mut Vec<Link>) -> bool {
        let Link { parent, tenant, .. } = unit;
        // The newcomer's own parent stays, as in `evict`.
        let head = parent.and_then(|parent| self.names.get(&parent).copied());
        let excess = |owners: &Owners| owners.excess(tenant);
        while self.owners.as_ref().map_or(0, excess) > 0 {
            let oldest = self.oldest_of(tenant, head);
            let Some((slot, (unit, _))) =
                oldest.and_then(|slot| Some((slot, self.resident(slot)?)))
            else {
                return false;
            };
            // The policy did not choose it, so it is withdrawn and forgotten, not removed.
            self.withdraw(slot);
            self.drop_resident(slot, unit);
            self.free.push_back(slot);
            evicted.push(unit);
        }
        true
    }

    /// The least recently used unit of a tenant that may go, but for `head`.
    fn oldest_of(&self, tenant: TenantTag, head: Option<BlockId>) -> Option<BlockId> {
        let mut candidates = self.owners.as_ref()?.candidates(tenant);
        candidates.find(|&slot| Some(slot) != head)
    }

    /// A resident that is not offered is gone, though the policy did not choose it.
    fn drop_resident(&mut self, slot: BlockId, unit: Link) {
        self.policy.forget(slot, unit.name);
        self.vacate(slot, unit);
    }

    /// A slot's resident is gone, and the policy knows it.
    fn vacate(&mut self, slot: BlockId, unit: Link) {
        self.slots[slot.index()] = UnitSlot::Free;
        self.num_resident -= 1;
        self.leave(unit);
    }

    /// A unit has no place here any more.
    fn leave(&mut self, unit: Link) {
        self.names.remove(&unit.name);
        if let Some(owners) = &mut self.owners {
            owners.leave(unit.tenant);
        }
        self.remove_child(unit.parent);
    }

    fn writing(&self, name: BlockHash) -> Option<(BlockId, Link)> {
        let slot = *self.names.get(&name)?;
        match self.slots[slot.index()] {
            UnitSlot::Writing(unit) => Some((slot, unit)),
            UnitSlot::Free | UnitSlot::Resident { .. } | UnitSlot::Lost { .. } => None,
        }
    }

    fn is_leaf(&self, name: BlockHash) -> bool {
        !self.children.contains_key(&name)
    }

    /// Whether the policy may choose it.
    fn is_candidate(&self, slot: BlockId) -> bool {
        matches!(self.resident(slot), Some((unit, 0)) if self.is_leaf(unit.name))
    }

    fn add_child(&mut self, parent: Option<BlockHash>) {
        let Some(parent) = parent else { return };
        let slot = self.names.get(&parent).copied();
        // The state is read before the child counts, which ends the candidacy.
        let was_candidate = slot.is_some_and(|slot| self.is_candidate(slot));
        *self.children.entry(parent).or_default() += 1;
        if let Some(slot) = slot.filter(|_| was_candidate) {
            self.withdraw(slot);
        }
    }

    fn remove_child(&mut self, parent: Option<BlockHash>) {
        let Some(parent) = parent else { return };
        let count = self.children.get_mut(&parent).expect("it was counted");
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.children.remove(&parent);
        // Children are counted by name: their parent may be in another tier only.
        if let Some(&slot) = self.names.get(&parent)
            && self.is_candidate(slot)
        {
            self.offer(slot);
        }
    }

    /// The policy may choose it, and its owner may have to give it up.
    fn offer(&mut self, slot: BlockId) {
        self.num_candidates += 1;
        self.policy.offer(slot);
        let resident = self.resident(slot);
        if let (Some(owners), Some((unit, _))) = (&mut self.owners, resident) {
            owners.offer(unit.tenant, slot);
        }
    }

    /// It stays.
    fn withdraw(&mut self, slot: BlockId) {
        self.num_candidates -= 1;
        self.policy.withdraw(slot);
        let resident = self.resident(slot);
        if let (Some(owners), Some((unit, _))) = (&mut self.owners, resident) {
            owners.withdraw(unit.tenant, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Lru;
    use headstart_core::Rng;

    fn name(id: u64) -> BlockHash {
        BlockHash::from_u64(id)
    }

    fn unit(id: u64, parent: Option<u64>) -> Link {
        Link { name: name(id), parent: parent.map(name), tenant: TenantTag(id / 1_000) }
    }

    fn level(capacity: usize) -> TierContents {
        TierContents::new(capacity, Box::new(Lru::new(capacity)), Shares::default())
    }

    /// Puts a unit; what went for it is returned.
    fn put(level: &mut TierContents, id: u64, parent: Option<u64>) -> Vec<BlockHash> {
        let mut evicted = Vec::new();
        let access = Access::default();
        let begin = level.begin(unit(id, parent), &access, &mut evicted);
        assert_eq!(begin, Begin::Started);
        level.commit(name(id), 0);
        level.check();
        evicted.into_iter().map(|unit| unit.name).collect()
    }

    #[test]
    fn a_head_stays_as_long_as_its_tail_whichever_came_first() {
        let mut level = level(3);
        put(&mut level, 2, Some(1));
        put(&mut level, 1, None);
        put(&mut level, 9, None);
        level.touch(&[name(2)], &Access::default());
        level.touch(&[name(9)], &Access::default());
        // 1 was used least, but 2 needs it.
        assert_eq!(put(&mut level, 10, None), [name(2)]);
        assert_eq!(put(&mut level, 11, None), [name(1)]);
    }

    #[test]
    fn what_is_read_stays() {
        let mut level = level(1);
        put(&mut level, 1, None);
        let pinned = level.pin(name(1)).expect("there");
        let mut evicted = Vec::new();
        let access = Access::default();
        let begin = level.begin(unit(2, None), &access, &mut evicted);
        assert_eq!((begin, evicted.len()), (Begin::Declined, 0));
        level.unpin(pinned);
        assert_eq!(put(&mut level, 2, None), [name(1)]);
    }

    #[test]
    fn what_is_lost_is_not_found_and_its_slot_comes_back() {
        let mut level = level(2);
        put(&mut level, 1, None);
        put(&mut level, 2, Some(1));
        let pinned = level.pin(name(1)).expect("there");
        assert!(level.lose(name(1)) && !level.lose(name(1)));
        assert!(!level.holds(name(1)) && level.holds(name(2)));
        level.check();
        assert_eq!(level.held().lost, 1);
        level.unpin(pinned);
        assert_eq!((level.held().lost, level.held().free), (0, 1));
        put(&mut level, 1, None);
        assert_eq!(level.held().cached, 2);
    }

    #[test]
    fn slots_of_lost_heads_come_back_and_a_late_unpin_finds_its_own() {
        let mut level = level(2);
        put(&mut level, 1, None);
        put(&mut level, 2, Some(1));
        // A head in the middle of its life, then its tail.
        assert!(level.lose(name(1)) && level.lose(name(2)));
        put(&mut level, 5, None);
        put(&mut level, 6, None);
        assert_eq!(level.held().cached, 2, "all of it can be used again");
        let pinned = level.pin(name(5)).expect("there");
        assert!(level.lose(name(5)));
        assert_eq!(put(&mut level, 5, None), [name(6)]);
        assert!(!level.lose_slot(pinned, name(5)), "this one is another");
        level.unpin(pinned);
        assert_eq!(level.held().free, 1);
        level.check();
        assert!(level.holds(name(5)));
        put(&mut level, 7, None);
        assert_eq!(level.held().cached, 2);
    }

    #[test]
    fn who_has_its_share_makes_room_for_itself() {
        let shares = Shares { each: Some(2), named: [(TenantTag(9), 1)].into() };
        let mut level = TierContents::new(5, Box::new(Lru::new(5)), shares);
        put(&mut level, 1_001, None);
        put(&mut level, 2_001, None);
        put(&mut level, 2_002, Some(2_001));
        level.touch(&[name(2_001), name(2_002)], &Access::default());
        // The tail goes, and then there is one for each of both.
        assert_eq!(put(&mut level, 2_003, None), [name(2_002)]);
        assert_eq!(put(&mut level, 2_004, None), [name(2_001)]);
        // A head does not make room for its tail.
        let begun = level.begin(unit(9_000, None), &Access::default(), &mut Vec::new());
        assert_eq!(begun, Begin::Started);
        level.commit(name(9_000), 0);
        let tail = unit(9_009, Some(9_000));
        let begun = level.begin(tail, &Access::default(), &mut Vec::new());
        assert_eq!(begun, Begin::Declined);
        assert_eq!(put(&mut level, 9_001, None), [name(9_000)]);
        assert_eq!(put(&mut level, 9_002, None), [name(9_001)]);
        assert!(level.holds(name(1_001)), "nobody else pays for it");
        // What is read stays, so that there is no room.
        let pinned = level.pin(name(9_002)).expect("there");
        let begun = level.begin(unit(9_003, None), &Access::default(), &mut Vec::new());
        assert_eq!(begun, Begin::Declined);
        level.unpin(pinned);
        level.check();
    }

    /// A thousand prompts grow together, each a hundred units long, in half the room that they
    /// need: who makes room for itself does not step over its heads each time.
    #[test]
    fn heads_of_its_own_do_not_delay_who_makes_room_for_itself() {
        let (prompts, units) = (1_000, 100_000);
        let shares = Shares { each: Some(units / 2), named: [].into() };
        let mut level = TierContents::new(units, Box::new(Lru::new(units)), shares);
        let access = Access::default();
        for id in 1..=units as u64 {
            let mut link = unit(id, id.checked_sub(prompts).filter(|&parent| parent > 0));
            link.tenant = TenantTag(1);
            level.begin(link, &access, &mut Vec::new());
            level.commit(name(id), 0);
        }
        level.check();
        assert_eq!(level.size().1, units / 2);
    }

    /// Against sets: what is there, and that nothing that may not go went.
    #[test]
    fn random_operations_keep_the_invariants() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let shares = Shares {
                each: (seed % 2 == 1).then_some(5),
                named: [(TenantTag(1), 3)].into_iter().take(seed as usize % 4).collect(),
            };
            let mut level = TierContents::new(12, Box::new(Lru::new(12)), shares);
            let mut pinned: Vec<(u64, BlockId)> = Vec::new();
            let mut writing: Vec<u64> = Vec::new();
            let mut resident = std::collections::BTreeSet::new();
            for step in 0..2_000 {
                let id = 1 + rng.below(30) as u64;
                let parent = Some(id / 2).filter(|&parent| parent > 0);
                let mut link = unit(id, parent);
                link.tenant = TenantTag(id % 3);
                let access = Access::at(Nanos(step));
                match rng.below(8) {
                    0..3 => {
                        let mut evicted = Vec::new();
                        if level.begin(link, &access, &mut evicted) == Begin::Started {
                            writing.push(id);
                        }
                        for went in evicted {
                            let went = u128::from_be_bytes(went.name.0) as u64;
                            let is_pinned = pinned.iter().any(|(id, _)| *id == went);
                            assert!(resident.remove(&went) && !is_pinned);
                            let tails = resident.iter().chain(&writing);
                            let mut tails = tails.filter(|&&tail| tail > 1 && tail != id);
                            assert!(tails.all(|&tail| tail / 2 != went), "seed {seed}: {went}");
                        }
                    }
                    3..5 if !writing.is_empty() => {
                        let id = writing.swap_remove(rng.below(writing.len()));
                        if rng.below(4) == 0 {
                            level.abort(name(id));
                        } else {
                            level.commit(name(id), 0);
                            resident.insert(id);
                        }
                    }
                    5 if resident.contains(&id) => {
                        pinned.push((id, level.pin(name(id)).expect("it is there")));
                    }
                    6 if !pinned.is_empty() => {
                        let (_, slot) = pinned.swap_remove(rng.below(pinned.len()));
                        level.unpin(slot);
                    }
                    7 if rng.below(4) == 0 => {
                        assert_eq!(level.lose(name(id)), resident.remove(&id));
                        // What was pinned is now another unit's business.
                        let (gone, kept): (Vec<_>, Vec<_>) =
                            pinned.into_iter().partition(|(pinned, _)| *pinned == id);
                        pinned = kept;
                        gone.into_iter().for_each(|(_, slot)| level.unpin(slot));
                    }
                    _ => level.touch(&[name(id)], &access),
                }
                level.check();
                for id in 1..=30 {
                    assert_eq!(level.holds(name(id)), resident.contains(&id), "seed {seed}");
                }
            }
        }
    }
}
