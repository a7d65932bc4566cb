//! Parts that stay in memory: a few levels, each with a policy of its own, above a disk that
//! holds everything.
//!
//! ```text
//!   used ──► device ──victim──► host ──victim──► released (nothing is written: the disk has it)
//!              ▲                  │
//!              └─────── used ─────┘
//! ```
//!
//! One slot is a part's for its whole stay, at any level, and every policy hears of every use: a
//! part keeps its score when it is demoted. A policy is offered only the parts in its own level; to
//! it, all others are pinned.
//!
//! Invariants, checked by [`PartCache::check`]: a level holds at most what it has room for; a part
//! stands in one level; a part that is held is never a victim.
//!
//! Source: IMPRESS (FAST '25), section 4.4: one score per chunk, a heap for the device and one for
//! the host, demotion that cascades, eviction that writes nothing. We differ in that any policy
//! may order a level, and that a part that was used stands above those that were not, however
//! small its score: it is evicted first when the next one comes.

use std::collections::{BTreeMap, HashMap};

use headstart_core::transfer::PartName;
use headstart_core::{Access, BlockHash, BlockId, Nanos, Tier};

use headstart_cache::Policy;

/// Cache of parts in memory, with the level of each.
pub struct PartCache {
    levels: Vec<Level>,
    slots: Vec<Option<PartSlot>>,
    free: Vec<BlockId>,
    names: BTreeMap<PartName, BlockId>,
    /// Number of holds per part, cached or not.
    holds: HashMap<PartName, u32>,
    misses: u64,
    not_kept: u64,
    uses: u32,
}

struct Level {
    policy: Box<dyn Policy>,
    counts: LevelCounts,
}

#[derive(Clone, Copy, Debug)]
struct PartSlot {
    name: PartName,
    level: usize,
    /// Whether the policy of its level may choose it.
    is_offered: bool,
    /// One of those that are being used now: not pushed out by each other.
    is_in_use: bool,
}

/// Counters of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelCounts {
    /// The tier.
    pub tier: Tier,
    /// Parts there is room for.
    pub capacity: usize,
    /// Parts there are.
    pub parts: usize,
    /// Uses of a part that stood there.
    pub hits: u64,
    /// Parts that had to go from there, down or out.
    pub evictions: u64,
}

/// Counters of a part cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartCounts {
    /// By level, top first.
    pub levels: Vec<LevelCounts>,
    /// Uses of a part that stood nowhere.
    pub misses: u64,
    /// Uses after which the part could not be kept.
    pub not_kept: u64,
}

impl PartCache {
    /// Creates levels, top first, each with its capacity in parts. `policy` makes each level's
    /// policy, for the number of slots of all levels together.
    ///
    /// # Panics
    /// When there is room for 2^32 parts or more.
    #[must_use]
    pub fn new(levels: &[(Tier, usize)], mut policy: impl FnMut(usize) -> Box<dyn Policy>) -> Self {
        let num_slots = levels.iter().map(|(_, capacity)| capacity).sum();
        let last = u32::try_from(num_slots).expect("room for fewer than 2^32 parts");
        let mut level = |&(tier, capacity): &(Tier, usize)| Level {
            policy: policy(num_slots),
            counts: LevelCounts { tier, capacity, parts: 0, hits: 0, evictions: 0 },
        };
        Self {
            levels: levels.iter().map(&mut level).collect(),
            slots: vec![None; num_slots],
            // Slots are taken from the end, so slot 0 is the first.
            free: (0..last).rev().map(BlockId).collect(),
            names: BTreeMap::new(),
            holds: HashMap::new(),
            misses: 0,
            not_kept: 0,
            uses: 0,
        }
    }

    /// Returns the tier of a cached part. O(log n).
    #[must_use]
    pub fn find(&self, name: PartName) -> Option<Tier> {
        let slot = self.slot(*self.names.get(&name)?);
        Some(self.levels[slot.level].counts.tier)
    }

    /// A request used these parts, each with the share (0 to 1) of its tokens that it selected.
    /// They are cached, or were brought to hand just now, and stand in the top level from now on;
    /// what must go for them moves down, and what leaves the last level is returned, to be
    /// released. O(log n) a part and level.
    ///
    /// Parts of one call do not push each other out: what finds no room in the top level stands in
    /// the next, and what finds none at all is returned as well. What is held is never returned;
    /// [`Self::let_go`] does that when it is due.
    pub fn used(&mut self, parts: &[(PartName, f32)], now: Nanos) -> Vec<PartName> {
        let request = self.uses;
        self.uses = request.wrapping_add(1);
        let mut released = Vec::new();
        // All parts of the call are marked as in use first, so that none pushes out another.
        let known: Vec<_> = parts.iter().map(|(name, _)| self.find_use(*name)).collect();
        for (&(name, share), known) in parts.iter().zip(known) {
            let access = Access { request, importance: Some(share), ..Access::at(now) };
            // One that was named before in this call has come in by now.
            let known = known.or_else(|| self.names.get(&name).copied());
            if let Some(block) = known {
                self.promote(block, now, &mut released);
            }
            let block = known.or_else(|| self.enter(name, &access, &mut released));
            // Every level hears of it: a part keeps its score when it moves between levels.
            for level in &mut self.levels {
                block.iter().for_each(|&block| level.policy.release(&[block], &access));
            }
        }
        for (name, _) in parts {
            if let Some(&block) = self.names.get(name) {
                self.slot_mut(block).is_in_use = false;
                self.settle(block);
            }
        }
        // A part that is held follows when it is let go.
        released.retain(|name| !self.holds.contains_key(name));
        released.sort_unstable();
        // A part that found no room is released once, even if the call names it twice.
        released.dedup();
        released
    }

    /// Holds a part that is being copied or waited for: until let go, it may move to a higher level
    /// but not to a lower one, and is not released. Call it once per holder.
    pub fn hold(&mut self, name: PartName) {
        *self.holds.entry(name).or_default() += 1;
        if let Some(&block) = self.names.get(&name) {
            self.settle(block);
        }
    }

    /// Ends one hold of a part. Returns the part if it is to be released: it has no other hold and
    /// is not cached.
    ///
    /// # Panics
    /// When the part is not held.
    #[must_use = "the part is to be released"]
    pub fn let_go(&mut self, name: PartName) -> Option<PartName> {
        let holds = self.holds.get_mut(&name).expect("a part that is held");
        *holds -= 1;
        if *holds > 0 {
            return None;
        }
        self.holds.remove(&name);
        // A part that is cached stays in memory without its holders.
        let Some(&block) = self.names.get(&name) else {
            return Some(name);
        };
        self.settle(block);
        None
    }

    /// The record is gone from the disk: none of its parts is cached any more. Returns those to be
    /// released now; those that are held follow when they are let go. O(its parts · log n).
    pub fn forget(&mut self, record: BlockHash) -> Vec<PartName> {
        let [first, last] = [0, u16::MAX].map(|part| PartName { record, part });
        let parts = self.names.range(first..=last);
        let parts: Vec<_> = parts.map(|(name, _)| *name).collect();
        let gone = parts.into_iter().filter_map(|name| self.forget_part(name));
        gone.collect()
    }

    /// The part shall not be cached any more: others hold what it was read for. Returns it if it
    /// is to be released now; one that is held follows when it is let go. O(log n).
    pub fn forget_part(&mut self, name: PartName) -> Option<PartName> {
        let block = *self.names.get(&name)?;
        // A policy may be told to forget only a block that it may not choose.
        self.withdraw(block);
        self.drop_part(block, None);
        (!self.holds.contains_key(&name)).then_some(name)
    }

    /// Returns the counters of the cache.
    #[must_use]
    pub fn counts(&self) -> PartCounts {
        let levels = self.levels.iter().map(|level| level.counts);
        PartCounts { levels: levels.collect(), misses: self.misses, not_kept: self.not_kept }
    }

    /// # Panics
    /// When an invariant of the module does not hold.
    pub fn check(&self) {
        let slots = || self.slots.iter().flatten();
        for (index, level) in self.levels.iter().enumerate() {
            let num_parts = slots().filter(|slot| slot.level == index).count();
            assert_eq!(num_parts, level.counts.parts, "parts of a level are counted");
            assert!(num_parts <= level.counts.capacity, "a level has room for its parts");
        }
        assert_eq!(slots().count(), self.names.len(), "a slot has one name");
        assert_eq!(self.free.len() + self.names.len(), self.slots.len());
        for (name, block) in &self.names {
            let slot = self.slot(*block);
            assert_eq!(slot.name, *name, "names lead to their slots");
            let is_held = self.holds.contains_key(name);
            assert!(slot.is_offered != is_held && !slot.is_in_use, "{slot:?}");
        }
        assert!(self.holds.values().all(|holds| *holds > 0));
    }

    fn slot(&self, block: BlockId) -> &PartSlot {
        let slot = self.slots[block.index()].as_ref();
        slot.expect("a slot that has a name is taken")
    }

    fn slot_mut(&mut self, block: BlockId) -> &mut PartSlot {
        let slot = self.slots[block.index()].as_mut();
        slot.expect("a slot that has a name is taken")
    }

    /// Counts a use and keeps the part from being pushed out by others that are used with it.
    fn find_use(&mut self, name: PartName) -> Option<BlockId> {
        let Some(&block) = self.names.get(&name) else {
            self.misses += 1;
            return None;
        };
        let slot = self.slot_mut(block);
        slot.is_in_use = true;
        let level = slot.level;
        self.levels[level].counts.hits += 1;
        self.settle(block);
        Some(block)
    }

    /// Tells the policy of a part's level whether it may go.
    fn settle(&mut self, block: BlockId) {
        let slot = *self.slot(block);
        let may_go = !slot.is_in_use && !self.holds.contains_key(&slot.name);
        let policy = &mut self.levels[slot.level].policy;
        match (slot.is_offered, may_go) {
            (false, true) => policy.offer(block),
            (true, false) => policy.withdraw(block),
            _ => return,
        }
        self.slot_mut(block).is_offered = may_go;
    }

    fn withdraw(&mut self, block: BlockId) {
        let PartSlot { level, is_offered, .. } = *self.slot(block);
        if is_offered {
            self.levels[level].policy.withdraw(block);
            self.slot_mut(block).is_offered = false;
        }
    }

    /// A part not cached comes in, as high as there is room.
    fn enter(
        &mut self,
        name: PartName,
        access: &Access,
        released: &mut Vec<PartName>,
    ) -> Option<BlockId> {
        let room =
            (0..self.levels.len()).find(|&level| self.make_room(level, access.now, released));
        let Some(level) = room else {
            // It was loaded for this use, so its bytes must be freed.
            self.not_kept += 1;
            released.push(name);
            return None;
        };
        let block = self.free.pop().expect("a level with room has a slot");
        self.names.insert(name, block);
        self.slots[block.index()] =
            Some(PartSlot { name, level, is_offered: false, is_in_use: true });
        self.levels[level].counts.parts += 1;
        // Its slot is the same at every level, so all policies learn of it at once.
        for level in &mut self.levels {
            level.policy.insert(block, slot_name(name), access);
        }
        Some(block)
    }

    /// A cached part moves as high as there is room.
    fn promote(&mut self, block: BlockId, now: Nanos, released: &mut Vec<PartName>) {
        let from = self.slot(block).level;
        let room = (0..from).find(|&level| {
            // Its own place is free by then.
            self.levels[from].counts.parts -= 1;
            let has_room = self.make_room(level, now, released);
            self.levels[from].counts.parts += 1;
            has_room
        });
        if let Some(level) = room {
            self.place(block, level);
        }
    }

    /// Moves a part that is not offered.
    fn place(&mut self, block: BlockId, level: usize) {
        let slot = self.slot_mut(block);
        let from = std::mem::replace(&mut slot.level, level);
        self.levels[from].counts.parts -= 1;
        self.levels[level].counts.parts += 1;
    }

    /// Makes room for one part more in a level, if that can be: its victim moves to the first
    /// level below that has room or a victim of its own, or out.
    fn make_room(&mut self, level: usize, now: Nanos, released: &mut Vec<PartName>) -> bool {
        if self.levels[level].counts.parts < self.levels[level].counts.capacity {
            return true;
        }
        let Some(victim) = self.levels[level].policy.victim(now, None) else {
            return false;
        };
        self.levels[level].counts.evictions += 1;
        let mut below = level + 1..self.levels.len();
        // Levels below make room first, so the victim leaves only when its new place is free.
        match below.find(|&below| self.make_room(below, now, released)) {
            Some(below) => {
                self.withdraw(victim);
                self.place(victim, below);
                self.settle(victim);
            }
            None => released.push(self.drop_part(victim, Some(level))),
        }
        true
    }

    /// Takes a part out: chosen by the policy of a level, or offered to none.
    fn drop_part(&mut self, block: BlockId, chosen_by: Option<usize>) -> PartName {
        let PartSlot { name, level, .. } = *self.slot(block);
        for (index, level) in self.levels.iter_mut().enumerate() {
            // One policy chose the part; to the others it is a block that is lost.
            match chosen_by {
                Some(chosen_by) if chosen_by == index => {
                    level.policy.remove(block, slot_name(name));
                }
                _ => level.policy.forget(block, slot_name(name)),
            }
        }
        self.levels[level].counts.parts -= 1;
        self.slots[block.index()] = None;
        self.names.remove(&name);
        self.free.push(block);
        name
    }
}

/// Returns the name of a part for policies: its record's name, XORed with the part in its first two
/// bytes. These are uniform or, in numbered traces, 0.
fn slot_name(name: PartName) -> BlockHash {
    let mut bytes = name.record.0;
    let [high, low] = name.part.to_be_bytes();
    bytes[0] ^= high;
    bytes[1] ^= low;
    BlockHash(bytes)
}

#[cfg(test)]
mod tests;
