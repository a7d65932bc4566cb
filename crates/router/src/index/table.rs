//! Names by handle: sorted, with gaps, so that a handle says about where its name stands.
//!
//! ```text
//! handles are spread evenly:    home of h = h × homes / 2^48
//! slots    [ 03 ][ 07 ][ -- ][ 2a ][ 2b ][ 2f ][ -- ][ 51 ] …
//!                              └ home of 2a, 2b, 2f: the later ones stand a little behind it
//! ```
//!
//! A search begins at the home and ends at the first name that is not before the handle: mostly
//! one line of memory, whether the handle is known or not, where a table of tags and entries waits
//! for two, one after the other. Since homes are in the order of handles, growing is one pass, and
//! so the table can grow by an eighth at a time.
//!
//! Invariants: names are in ascending order and at or behind their homes, without a gap between a
//! name and its home; the last slot is a gap.
//!
//! Source: linear probing in the order of keys (Amble and Knuth, 1974). Difference: nothing wraps
//! around, the last names stand behind the last home.

use super::spot::Spot;

/// A handle, its block and its departures. 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    handle_low: u32,
    handle_high: u16,
    offset: u16,
    /// Above: departures. Below: the run.
    departures_and_run: u32,
}

/// Bits of a handle.
pub(super) const HANDLE_BITS: u32 = 48;

/// The largest handle. Gaps have the next number.
pub(super) const MAX_HANDLE: u64 = (1 << HANDLE_BITS) - 2;

/// Blocks of a run: as many as a name can tell apart.
pub(super) const MAX_RUN_BLOCKS: u32 = 1 << u16::BITS;

const RUN_BITS: u32 = 28;
/// Runs that a name can tell apart.
pub(super) const MAX_RUNS: u32 = 1 << RUN_BITS;

/// Largest count of departures in a name, which means this number or more.
pub(super) const MANY_DEPARTURES: u32 = u32::MAX >> RUN_BITS;

/// The slots of a table that has names, at least.
const MIN_HOMES: usize = 16;

/// Names per home, at most: in eighths.
const MAX_EIGHTHS: usize = 6;

const GAP: Name =
    Name { handle_low: u32::MAX, handle_high: u16::MAX, offset: 0, departures_and_run: 0 };

impl Name {
    pub(super) fn new(handle: u64, spot: Spot) -> Self {
        debug_assert!(handle <= MAX_HANDLE, "gaps have no name");
        debug_assert!(spot.run < MAX_RUNS && spot.offset < MAX_RUN_BLOCKS, "spots fit");
        Self {
            handle_low: handle as u32,
            handle_high: (handle >> u32::BITS) as u16,
            offset: spot.offset as u16,
            departures_and_run: spot.run,
        }
    }

    pub(super) fn handle(&self) -> u64 {
        u64::from(self.handle_high) << u32::BITS | u64::from(self.handle_low)
    }

    pub(super) fn spot(&self) -> Spot {
        Spot { run: self.departures_and_run & (MAX_RUNS - 1), offset: u32::from(self.offset) }
    }

    pub(super) fn departures(&self) -> u32 {
        self.departures_and_run >> RUN_BITS
    }

    pub(super) fn set_departures(&mut self, departures: u32) {
        let run = self.departures_and_run & (MAX_RUNS - 1);
        self.departures_and_run = departures.min(MANY_DEPARTURES) << RUN_BITS | run;
    }

    fn is_gap(&self) -> bool {
        self.handle() > MAX_HANDLE
    }
}

/// Names, each with another handle.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// One per home, and some more for names that stand behind the last one.
    slots: Vec<Name>,
    homes: usize,
    len: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, handle: u64) -> Option<&Name> {
        let name = self.slots.get(self.place(handle))?;
        (name.handle() == handle).then_some(name)
    }

    pub(super) fn get_mut(&mut self, handle: u64) -> Option<&mut Name> {
        let at = self.place(handle);
        let name = self.slots.get_mut(at)?;
        (name.handle() == handle).then_some(name)
    }

    /// Adds a name whose handle is not known.
    pub(super) fn insert(&mut self, name: Name) {
        // A quarter of the homes stay free, so that a search is short.
        if (self.len + 1) * 8 > self.homes * MAX_EIGHTHS {
            self.resize(MIN_HOMES.max(self.homes + self.homes / 8));
        }
        let at = self.place(name.handle());
        let behind = self.slots[at..].iter().position(Name::is_gap);
        let gap = at + behind.unwrap_or(0);
        // The last slot stays a gap, at which every search ends.
        if gap + 1 == self.slots.len() {
            self.slots.push(GAP);
        }
        self.slots.copy_within(at..gap, at + 1);
        self.slots[at] = name;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, handle: u64) -> Option<Name> {
        let at = self.place(handle);
        let name = *self.slots.get(at)?;
        if name.handle() != handle {
            return None;
        }
        // Those behind move up as far as their homes let them.
        let mut end = at + 1;
        while !self.slots[end].is_gap() && self.home(self.slots[end].handle()) < end {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = GAP;
        self.len -= 1;
        Some(name)
    }

    /// All names, by ascending handle.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Name> {
        self.slots.iter().filter(|name| !name.is_gap())
    }

    /// Gives back memory that is not needed.
    pub(super) fn shrink(&mut self) {
        let homes = (self.len * 8).div_ceil(MAX_EIGHTHS);
        // Only when an eighth of the homes would go: the next names would soon make the table grow
        // again.
        if homes + homes / 8 < self.homes {
            self.resize(homes.max(MIN_HOMES));
        }
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Name>()
    }

    /// Returns the position of the name or its insertion point: the first name or gap that is not
    /// before the handle.
    fn place(&self, handle: u64) -> usize {
        let home = self.home(handle);
        let rest = self.slots.get(home..).unwrap_or_default();
        let before = rest.iter().position(|name| name.handle() >= handle);
        home + before.unwrap_or(0)
    }

    fn home(&self, handle: u64) -> usize {
        // 48 bits times the number of homes can exceed 64 bits.
        ((u128::from(handle) * self.homes as u128) >> HANDLE_BITS) as usize
    }

    fn resize(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.slots);
        self.homes = homes;
        // A few names spill over the last home; room for them spares a second allocation.
        self.slots.reserve_exact(homes + MIN_HOMES);
        for name in old.into_iter().filter(|name| !name.is_gap()) {
            // Not before the names that are placed already: the order stays.
            let home = self.home(name.handle()).max(self.slots.len());
            self.slots.resize(home, GAP);
            self.slots.push(name);
        }
        let end = homes.max(self.slots.len()) + 1;
        self.slots.resize(end, GAP);
    }

    /// Asserts the invariants. O(size).
    pub(super) fn check(&self) {
        assert_eq!(self.iter().count(), self.len, "names are counted");
        assert!(self.slots.last().is_none_or(Name::is_gap), "a gap is behind");
        assert!(self.iter().is_sorted_by_key(Name::handle), "sorted");
        for (at, name) in self.slots.iter().enumerate().filter(|(_, name)| !name.is_gap()) {
            let home = self.home(name.handle());
            assert!(home <= at, "names are not before their homes");
            let mut between = self.slots[home..at].iter();
            assert!(!between.any(Name::is_gap), "nor is a gap between");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use headstart_core::Rng;

    /// Against a map, with handles that are spread evenly, crowded at either end, or few.
    #[test]
    fn it_is_a_map() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            let most = 1 << rng.below(9);
            for step in 0..600 {
                let handle = match (seed % 4, rng.below(most) as u64) {
                    (0, number) => number,
                    (1, number) => MAX_HANDLE - number,
                    (2, number) => number << (HANDLE_BITS - 9),
                    (_, number) => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MAX_HANDLE,
                };
                let spot = Spot { run: step, offset: step % 7 };
                if rng.below(3) == 0 {
                    assert_eq!(table.remove(handle), map.remove(&handle), "seed {seed}");
                } else if let Some(known) = map.get_mut(&handle) {
                    known.set_departures(step % 9);
                    let found = table.get_mut(handle).expect("the map has it");
                    found.set_departures(step % 9);
                } else {
                    let name = Name::new(handle, spot);
                    table.insert(name);
                    map.insert(handle, name);
                }
                if rng.below(40) == 0 {
                    table.shrink();
                }
                table.check();
                assert!(table.iter().eq(map.values()), "seed {seed}");
                let other = rng.below(most) as u64;
                assert_eq!(table.get(other), map.get(&other), "seed {seed}");
            }
        }
    }

    #[test]
    fn names_keep_what_they_are_given() {
        let spot = Spot { run: MAX_RUNS - 1, offset: MAX_RUN_BLOCKS - 1 };
        let mut name = Name::new(MAX_HANDLE, spot);
        for departures in [0, 1, 14, 15, 16, 1000] {
            name.set_departures(departures);
            assert_eq!(name.departures(), departures.min(MANY_DEPARTURES));
            assert_eq!((name.handle(), name.spot()), (MAX_HANDLE, spot));
        }
    }
}
