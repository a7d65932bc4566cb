//! The packs on a disk, found by any of their units.
//!
//! Packs of one part never overlap: one that comes replaces those that hold a unit of its own. So
//! a token is in one pack at most, and what serves a prompt is found by walking along its units.
//!
//! It holds the orders (4 bytes a token), no keys or values. Room is counted in units, so that it
//! bounds memory; the least recently used pack goes first.
//!
//! Source: the physical → logical map per node of IMPRESS (FAST '25), section 4.3.

use std::collections::{BTreeMap, HashMap};

use headstart_core::BlockHash;
use headstart_core::transfer::FoundPack;

use super::PackView;

/// Known packs.
#[derive(Debug, Default)]
pub struct Packs {
    /// Units of all packs together, at most.
    capacity: usize,
    num_units: usize,
    packs: HashMap<BlockHash, Known>,
    /// By unit and part: the pack, and which of its units that is.
    places: HashMap<(BlockHash, u16), (BlockHash, usize)>,
    /// By last use.
    uses: BTreeMap<u64, BlockHash>,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    pack: FoundPack,
    used: u64,
}

impl Packs {
    /// None, with room for packs of so many units together: one unit of one layer each, whose
    /// order takes `4 · unit_tokens` bytes at most.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// A pack can be read. Returns the packs that nobody will find any more, to be forgotten on
    /// the disk: those that it replaces, those that had to make room, or itself where it is larger
    /// than all the room there is. Costs the units of all of them.
    #[must_use = "these are to be forgotten on the disk"]
    pub fn insert(&mut self, pack: FoundPack) -> Vec<BlockHash> {
        self.forget(pack.name);
        if pack.units.is_empty() || pack.units.len() > self.capacity {
            return vec![pack.name];
        }
        let mut gone = Vec::new();
        for unit in &pack.units {
            if let Some((before, _)) = self.places.get(&(*unit, pack.part)).copied() {
                self.forget(before);
                gone.push(before);
            }
        }
        while self.num_units + pack.units.len() > self.capacity {
            let (_, &oldest) = self
                .uses
                .first_key_value()
                .expect("what takes room is known");
            self.forget(oldest);
            gone.push(oldest);
        }
        for (at, unit) in pack.units.iter().enumerate() {
            self.places.insert((*unit, pack.part), (pack.name, at));
        }
        self.clock += 1;
        self.num_units += pack.units.len();
        self.uses.insert(self.clock, pack.name);
        let used = self.clock;
        self.packs.insert(pack.name, Known { pack, used });
        gone
    }

    /// The pack is gone, or shall be: it is not found any more. Returns what it was, where it was
    /// known.
    pub fn forget(&mut self, name: BlockHash) -> Option<FoundPack> {
        let Known { pack, used } = self.packs.remove(&name)?;
        self.uses.remove(&used);
        self.num_units -= pack.units.len();
        for unit in &pack.units {
            self.places.remove(&(*unit, pack.part));
        }
        Some(pack)
    }

    /// The packs of a part that hold tokens of a run of units, in the run's order. O(units).
    #[must_use]
    pub fn find(&self, units: &[BlockHash], part: u16) -> Vec<PackView<'_>> {
        let mut views = Vec::new();
        let mut at = 0;
        while at < units.len() {
            let place = self.places.get(&(units[at], part));
            let Some((pack, before)) = place.map(|(name, at)| (&self.packs[name].pack, *at)) else {
                at += 1;
                continue;
            };
            let pairs = pack.units[before..].iter().zip(&units[at..]);
            let agreeing = pairs.take_while(|(one, other)| one == other).count();
            views.push(PackView {
                name: pack.name,
                before,
                first_unit: at,
                units: agreeing,
                order: &pack.order,
            });
            at += agreeing;
        }
        views
    }

    /// A pack was read, or would have been had it not been cached. O(log n).
    pub fn used(&mut self, name: BlockHash) {
        let Some(known) = self.packs.get_mut(&name) else {
            return;
        };
        self.uses.remove(&known.used);
        self.clock += 1;
        known.used = self.clock;
        self.uses.insert(self.clock, name);
    }

    /// Packs, and units of all of them together.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.packs.len(), self.num_units)
    }

    /// # Panics
    /// When what is counted is not what is there.
    pub fn check(&self) {
        let num_units: usize = self
            .packs
            .values()
            .map(|known| known.pack.units.len())
            .sum();
        assert_eq!(num_units, self.num_units, "units are counted");
        assert_eq!(
            num_units,
            self.places.len(),
            "a unit of a part is in one pack"
        );
        assert!(num_units <= self.capacity, "there is room");
        assert_eq!(
            self.uses.len(),
            self.packs.len(),
            "one place in the order of use a pack"
        );
        for (used, name) in &self.uses {
            assert_eq!(self.packs[name].used, *used, "by last use");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Units of a tree: a unit's name says which path leads to it.
    fn chain(rng: &mut Rng) -> Vec<BlockHash> {
        let mut name = 1;
        let chain = (0..1 + rng.below(6)).map(|_| {
            name = name * 2 + rng.below(2) as u64;
            BlockHash::from_u64(name)
        });
        chain.collect()
    }

    fn pack(rng: &mut Rng, name: u64) -> FoundPack {
        let mut units = chain(rng);
        let units = units.split_off(rng.below(units.len()));
        FoundPack {
            name: BlockHash::from_u64(name),
            part: rng.below(2) as u16,
            order: (0..rng.below(5) as u32).collect(),
            units,
        }
    }

    /// Packs in a list, the least recently used first.
    struct Model(Vec<FoundPack>);

    impl Model {
        fn insert(&mut self, pack: FoundPack, capacity: usize) -> Vec<BlockHash> {
            if pack.units.len() > capacity {
                return vec![pack.name];
            }
            let mut gone = Vec::new();
            for unit in &pack.units {
                let is_in = |one: &FoundPack| one.part == pack.part && one.units.contains(unit);
                gone.extend(self.0.extract_if(.., |one| is_in(one)).map(|one| one.name));
            }
            self.0.push(pack);
            while self.0.iter().map(|one| one.units.len()).sum::<usize>() > capacity {
                gone.push(self.0.remove(0).name);
            }
            gone
        }

        fn find(&self, units: &[BlockHash], part: u16) -> Vec<PackView<'_>> {
            let mut views = Vec::new();
            for pack in self.0.iter().filter(|pack| pack.part == part) {
                let is_of = |unit: &&BlockHash| pack.units.contains(unit);
                let Some(first_unit) = units.iter().position(|unit| is_of(&unit)) else {
                    continue;
                };
                let before = pack
                    .units
                    .iter()
                    .position(|unit| *unit == units[first_unit]);
                views.push(PackView {
                    name: pack.name,
                    before: before.expect("it is one of its units"),
                    first_unit,
                    units: units.iter().filter(is_of).count(),
                    order: &pack.order,
                });
            }
            views.sort_by_key(|view| view.first_unit);
            views
        }
    }

    #[test]
    fn finds_what_a_list_finds() {
        let (mut found, mut replaced) = (0, 0);
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let capacity = 1 + rng.below(30);
            let (mut packs, mut model) = (Packs::new(capacity), Model(Vec::new()));
            for step in 0..150 {
                match rng.below(4) {
                    0 => {
                        let pack = pack(&mut rng, step);
                        let gone = packs.insert(pack.clone());
                        replaced += gone.len();
                        assert_eq!(gone, model.insert(pack, capacity), "seed {seed}");
                    }
                    1 => {
                        let name = BlockHash::from_u64(rng.below(1 + step as usize) as u64);
                        let at = model.0.iter().position(|pack| pack.name == name);
                        if rng.below(3) == 0 {
                            let gone = at.map(|at| model.0.remove(at));
                            assert_eq!(packs.forget(name), gone, "seed {seed}");
                        } else {
                            packs.used(name);
                            let used = at.map(|at| model.0.remove(at));
                            model.0.extend(used);
                        }
                    }
                    _ => {
                        let mut units = chain(&mut rng);
                        let units = units.split_off(rng.below(units.len()));
                        let part = rng.below(2) as u16;
                        let views = packs.find(&units, part);
                        found += views.len();
                        assert_eq!(views, model.find(&units, part), "seed {seed}");
                    }
                }
                packs.check();
            }
        }
        assert!(found > 5_000 && replaced > 5_000, "{found} {replaced}");
    }
}
