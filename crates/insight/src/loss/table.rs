//! Memory of blocks: the last holder of each, and the state of its copy.
//!
//! Sets of four entries of 16 bytes, one cache line each, so that a block costs one access to
//! memory. A newcomer takes the place of the entry of its set that was not used for the longest
//! time; what is forgotten so is counted. An entry is recognised by 32 bits besides the bits of its
//! set: with a million sets two blocks are taken for one another once in some 10¹⁴ look-ups.

use std::hint::black_box;

use headstart_core::Tier;

/// Entries of a set: as many as fit a cache line.
const WAYS: usize = 4;

/// One block's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockEntry {
    tag: u32,
    /// When it was used last, [`super::TICK`]s.
    pub(super) at: u32,
    /// Blocks that its holder had stored by then.
    pub(super) stored: u32,
    /// The replica that stored or used it last.
    pub(super) holder: u16,
    /// Tiers of its holder, a bit each; the two upper bits are its state.
    bits: u8,
    /// Requests that compute it now, at most 255.
    pub(super) computing: u8,
}

/// State of a block's copy, as far as its own entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// No replica ever held it.
    Unheld,
    /// Its holder holds it.
    Held,
    /// Its holder removed it.
    Removed,
}

const TIERS: u8 = 0b1111;
const READ: u8 = 0b0010_0000;
const HELD: u8 = 0b0100_0000;
const REMOVED: u8 = 0b1000_0000;

impl BlockEntry {
    pub(super) fn state(&self) -> CopyState {
        match self.bits & (HELD | REMOVED) {
            HELD => CopyState::Held,
            REMOVED => CopyState::Removed,
            _ => CopyState::Unheld,
        }
    }

    /// `holder` holds it in `tier`; what others hold is not followed any more.
    pub(super) fn hold(&mut self, holder: u16, tier: Tier) {
        // A new holder replaces the old one with all of its tiers: an entry follows one copy.
        let others = if self.state() == CopyState::Held && self.holder == holder {
            self.bits & TIERS
        } else {
            0
        };
        self.holder = holder;
        self.bits = HELD | others | bit(tier) | self.bits & READ;
    }

    /// `holder` no longer holds it in `tier`.
    pub(super) fn remove(&mut self, holder: u16, tier: Tier) {
        if self.state() == CopyState::Held && self.holder == holder {
            let left = self.bits & TIERS & !bit(tier);
            // A block that is removed from one tier may remain in another one of the same replica.
            let state = if left == 0 { REMOVED } else { HELD };
            self.bits = left | state | self.bits & READ;
        }
    }

    /// Its contents were in a prompt.
    pub(super) fn read(&mut self) {
        self.bits |= READ;
    }

    pub(super) fn is_read(&self) -> bool {
        self.bits & READ != 0
    }

    fn is_free(&self) -> bool {
        // A block that a request computes occupies its entry before any replica holds it.
        self.bits == 0 && self.computing == 0
    }
}

fn bit(tier: Tier) -> u8 {
    match tier {
        Tier::Device => 1,
        Tier::Host => 2,
        Tier::Disk => 4,
        Tier::Remote => 8,
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct EntrySet([BlockEntry; WAYS]);

/// A bounded map from block keys to entries.
#[derive(Clone, Debug)]
pub(super) struct BlockTable {
    sets: Vec<EntrySet>,
    entered: u64,
    forgotten: u64,
}

impl BlockTable {
    /// Room for `capacity` blocks, or somewhat more.
    pub(super) fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(WAYS).next_power_of_two();
        Self { sets: vec![EntrySet::default(); sets], entered: 0, forgotten: 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Blocks entered, and those that had to go for others.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.entered, self.forgotten)
    }

    /// Has the lines of `keys` come from memory: together, where one look-up after the other
    /// would wait for each.
    pub(super) fn fetch(&self, keys: &[u64]) {
        self.fetch_each(keys.iter().copied());
    }

    /// The same, of keys as they come.
    pub(super) fn fetch_each(&self, keys: impl Iterator<Item = u64>) {
        let first = |key| self.sets[self.place(key).0].0[0].tag;
        // Without it the compiler would drop loads whose sum is not used.
        black_box(keys.fold(0, |sum, key| sum ^ first(key)));
    }

    #[cfg(test)]
    pub(super) fn find(&self, key: u64) -> Option<&BlockEntry> {
        let (set, tag) = self.place(key);
        let entries = self.sets[set].0.iter();
        let mut found = entries.filter(|entry| entry.tag == tag && !entry.is_free());
        found.next()
    }

    pub(super) fn find_mut(&mut self, key: u64) -> Option<&mut BlockEntry> {
        let (set, tag) = self.place(key);
        let entries = self.sets[set].0.iter_mut();
        // A free entry has tag 0, as a block may: the tag alone does not tell them apart.
        let mut found = entries.filter(|entry| entry.tag == tag && !entry.is_free());
        found.next()
    }

    /// The entry of `key`, which takes another one's place if it must.
    pub(super) fn enter(&mut self, key: u64) -> &mut BlockEntry {
        let (set, tag) = self.place(key);
        let entries = &mut self.sets[set].0;
        let is_it = |entry: &BlockEntry| entry.tag == tag && !entry.is_free();
        if let Some(way) = entries.iter().position(is_it) {
            return &mut entries[way];
        }
        // A free entry first, then one that no request computes, then the oldest.
        let rank = |entry: &BlockEntry| (!entry.is_free(), entry.computing > 0, entry.at);
        let way = (0..WAYS).min_by_key(|&way| rank(&entries[way]));
        let entry = &mut entries[way.unwrap_or(0)];
        self.entered += 1;
        // An entry without a holder is not counted: no copy of its block is forgotten.
        self.forgotten += u64::from(entry.state() != CopyState::Unheld);
        *entry = BlockEntry { tag, ..BlockEntry::default() };
        entry
    }

    fn place(&self, key: u64) -> (usize, u32) {
        // The lower half picks the set and the upper half is the tag: they share no bits below 2³²
        // sets.
        let set = (key as usize) & (self.sets.len() - 1);
        (set, (key >> 32) as u32)
    }
}

/// Names in a bounded table: the namespace that a chain of blocks was seen in.
#[derive(Clone, Debug)]
pub(super) struct NamespaceTable {
    sets: Vec<[(u32, u32); 8]>,
    next: u32,
}

impl NamespaceTable {
    /// Room for `capacity` names, or somewhat more.
    pub(super) fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(8).next_power_of_two();
        Self { sets: vec![[(0, 0); 8]; sets], next: 0 }
    }

    /// As [`BlockTable::fetch`].
    pub(super) fn fetch(&self, keys: &[u64]) {
        let lines = keys.iter().map(|&key| self.sets[self.place(key).0][0].0);
        // As above: the loads must happen although their sum is unused.
        black_box(lines.fold(0, |sum, tag| sum ^ tag));
    }

    /// The namespace in which `key` was seen last.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        let (set, tag) = self.place(key);
        let mut found = self.sets[set].iter().filter(|entry| entry.0 == tag);
        found.next().map(|entry| entry.1)
    }

    /// Notes that `key` was seen in `namespace`; a full set forgets one that chance names.
    pub(super) fn enter(&mut self, key: u64, namespace: u32) {
        let (set, tag) = self.place(key);
        let entries = &mut self.sets[set];
        let known = entries.iter().position(|entry| entry.0 == tag);
        let free = || entries.iter().position(|entry| entry.0 == 0);
        let way = known.or_else(free).unwrap_or_else(|| {
            // Entries keep no time of use. A counter picks them in turn, at no cost in memory.
            self.next = self.next.wrapping_add(1);
            self.next as usize % 8
        });
        entries[way] = (tag, namespace);
    }

    fn place(&self, key: u64) -> (usize, u32) {
        let set = (key as usize) & (self.sets.len() - 1);
        // 0 marks a free entry.
        (set, ((key >> 32) as u32).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use std::collections::HashMap;

    #[test]
    fn a_copy_is_gone_when_its_last_tier_is() {
        let mut entry = BlockEntry::default();
        assert_eq!(entry.state(), CopyState::Unheld);
        entry.hold(1, Tier::Device);
        entry.hold(1, Tier::Host);
        entry.remove(1, Tier::Device);
        entry.remove(2, Tier::Host);
        assert_eq!(entry.state(), CopyState::Held);
        entry.remove(1, Tier::Host);
        assert_eq!(entry.state(), CopyState::Removed);
        entry.hold(2, Tier::Device);
        assert_eq!((entry.state(), entry.holder), (CopyState::Held, 2));
    }

    /// With room for all it is a map; without, it never holds what was not entered.
    #[test]
    fn it_is_a_map_that_may_forget() {
        for (capacity, forgets) in [(1 << 14, false), (64, true)] {
            let mut rng = Rng::new(7);
            let mut table = BlockTable::new(capacity);
            let mut map: HashMap<u64, u16> = HashMap::new();
            let keys: Vec<u64> = (0..500).map(|_| rng.next_u64()).collect();
            for at in 0..5_000 {
                let key = keys[rng.below(keys.len())];
                let holder = rng.below(9) as u16;
                let entry = table.enter(key);
                entry.hold(holder, Tier::Device);
                entry.at = at;
                map.insert(key, holder);
            }
            let kept = map
                .iter()
                .filter(|(key, holder)| match table.find(**key) {
                    Some(entry) => {
                        assert_eq!(entry.holder, **holder);
                        true
                    }
                    None => false,
                })
                .count();
            assert_eq!(kept < map.len(), forgets);
            assert_eq!(table.counts().1 > 0, forgets);
        }
    }
}
