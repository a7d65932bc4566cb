//! The packs on a disk, found by any of their units.
//!
//! Packs of one part that are *read* never overlap, so that a token is in one of them at most, and
//! what serves a prompt is found by walking along its units. Several replicas may make packs on
//! one disk, and hear of each other's later than they make their own. So:
//!
//! ```text
//! made here     replaces what its maker knew of when it was decided: that is dropped on the disk
//! meets others  whichever covers more stays, of equals the lower name: all replicas agree
//!               the loser is dropped by who made it, and by nobody else; the others wait for that
//! ```
//!
//! A pack that was found and loses, or that lost to one made here, is kept in mind until it is
//! gone, because what it lost to may go first. Nothing that is found makes room for itself.
//!
//! It holds the orders (4 bytes a token), no keys or values. Room is counted in units, so that it
//! bounds memory; the least recently used pack goes first, of those made here where they take half
//! of the room, because how often others are read elsewhere is not known here.
//!
//! Source: the physical → logical map per node of IMPRESS (FAST '25), section 4.3, which knows one
//! engine. That several agree by an order alone, without a word to each other, is ours. Where three
//! meet, one that loses to a pack that is just being replaced may go as well: it is made again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use headstart_core::BlockHash;
use headstart_core::transfer::FoundPack;

use super::PackView;

/// Who made a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Whoever asks.
    Me,
    /// Somebody who is not there any more, as far as is known.
    Gone,
    /// Another one, who is still there and drops it when it is time.
    Another,
}

/// Known packs.
#[derive(Debug, Default)]
pub struct Packs {
    /// Units of all packs together, at most; those that were found may exceed it once again.
    capacity: usize,
    /// Units of all packs: another's, and those that are nobody else's.
    num_units: [usize; 2],
    packs: HashMap<BlockHash, Known>,
    /// By unit and part: the pack that is read, and which of its units that is.
    places: HashMap<(BlockHash, u16), (BlockHash, usize)>,
    /// Those that are not read, because they overlap with one that is.
    beside: BTreeSet<BlockHash>,
    /// By last use: another's, and those that are nobody else's.
    uses: [BTreeMap<u64, BlockHash>; 2],
    clock: u64,
}

#[derive(Debug)]
struct Known {
    pack: FoundPack,
    maker: Maker,
    used: u64,
}

/// A pack that holds some of the units that were asked about.
#[derive(Clone, Copy, Debug)]
pub struct Rival<'a> {
    /// The pack.
    pub pack: &'a FoundPack,
    /// Who made it.
    pub maker: Maker,
    /// Whether it is read: else it is about to go.
    pub is_read: bool,
}

impl Maker {
    /// Which of a pair of counts is its.
    fn index(self) -> usize {
        usize::from(self != Self::Another)
    }
}

/// Who stays of two that overlap: whichever is less. One that covers more units, or more of their
/// tokens, serves more prompts; the name decides between the others.
fn rank(pack: &FoundPack) -> (Reverse<(usize, usize)>, BlockHash) {
    (Reverse((pack.units.len(), pack.order.len())), pack.name)
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

    /// A pack was made here and can be read; `replaces` are those that were known when that was
    /// decided. Returns the packs to be forgotten on the disk: those that it replaces, those of our
    /// own that it wins over, those that had to make room, or itself, where it loses or is larger
    /// than all the room there is. Costs the units of all of them.
    #[must_use = "these are to be forgotten on the disk"]
    pub fn made(&mut self, pack: FoundPack, replaces: &[BlockHash]) -> Vec<FoundPack> {
        let replaces = replaces.iter().filter(|name| **name != pack.name);
        let mut gone: Vec<_> = replaces.filter_map(|name| self.forget(*name)).collect();
        self.forget(pack.name);
        if self.is_too_large(&pack) || self.loses(&pack) {
            gone.push(pack);
            return gone;
        }
        let name = pack.name;
        self.add(pack, Maker::Me, &mut gone);
        self.make_room(name, &mut gone);
        gone
    }

    /// A pack is there that was made elsewhere. Returns the packs to be forgotten on the disk: our
    /// own that it wins over, or itself, where there is no room for it though makers make room for
    /// what they make. Costs the units of all of them.
    #[must_use = "these are to be forgotten on the disk"]
    pub fn found(&mut self, pack: FoundPack, maker: Maker) -> Vec<FoundPack> {
        if self.packs.contains_key(&pack.name) {
            return Vec::new();
        }
        let units = self.num_units.iter().sum::<usize>() + pack.units.len();
        if self.is_too_large(&pack) || units > 2 * self.capacity {
            return vec![pack];
        }
        let mut gone = Vec::new();
        self.add(pack, maker, &mut gone);
        gone
    }

    /// The pack is gone: it is not found any more. Returns what it was, where it was known.
    pub fn forget(&mut self, name: BlockHash) -> Option<FoundPack> {
        let pack = self.take(name)?;
        self.promote();
        Some(pack)
    }

    /// All packs of a part that hold any of these units, whether they are read or not. O(units),
    /// and the units of those that are not read.
    #[must_use]
    pub fn rivals(&self, units: &[BlockHash], part: u16) -> Vec<Rival<'_>> {
        let read = units.iter().filter_map(|unit| {
            let (name, _) = self.places.get(&(*unit, part))?;
            Some((*name, true))
        });
        let mut names: BTreeMap<BlockHash, bool> = read.collect();
        if !self.beside.is_empty() {
            let units: HashSet<&BlockHash> = units.iter().collect();
            let beside = self.beside.iter().filter(|name| {
                let pack = &self.packs[*name].pack;
                pack.part == part && pack.units.iter().any(|unit| units.contains(unit))
            });
            names.extend(beside.map(|name| (*name, false)));
        }
        let rivals = names.into_iter().map(|(name, is_read)| {
            let Known { pack, maker, .. } = &self.packs[&name];
            Rival {
                pack,
                maker: *maker,
                is_read,
            }
        });
        rivals.collect()
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
        let uses = &mut self.uses[known.maker.index()];
        uses.remove(&known.used);
        self.clock += 1;
        known.used = self.clock;
        uses.insert(self.clock, name);
    }

    /// Packs, and units of all of them together.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.packs.len(), self.num_units.iter().sum())
    }

    /// # Panics
    /// When what is counted is not what is there.
    pub fn check(&self) {
        let mut num_units = [0; 2];
        let mut num_read = 0;
        for (name, Known { pack, maker, used }) in &self.packs {
            num_units[maker.index()] += pack.units.len();
            let place = self.uses[maker.index()].get(used);
            assert_eq!(place, Some(name), "by last use");
            let is_read = !self.beside.contains(name);
            num_read += if is_read { pack.units.len() } else { 0 };
            let rivals = self.rivals(&pack.units, pack.part);
            let mut others = rivals.iter().filter(|rival| rival.pack.name != *name);
            assert!(
                is_read || others.clone().any(|rival| rival.is_read),
                "one that is not read overlaps with one that is"
            );
            let wins = |rival: &Rival<'_>| rank(pack) < rank(rival.pack);
            assert!(*maker != Maker::Me || others.all(wins), "our own win");
        }
        assert_eq!(num_units, self.num_units, "units are counted");
        assert_eq!(num_read, self.places.len(), "a unit is read in one pack");
        let num_uses: usize = self.uses.iter().map(BTreeMap::len).sum();
        assert_eq!(num_uses, self.packs.len(), "one place in the order of use");
        let units: usize = num_units.iter().sum();
        assert!(units <= 2 * self.capacity, "there is room");
    }

    fn is_too_large(&self, pack: &FoundPack) -> bool {
        pack.units.is_empty() || pack.units.len() > self.capacity
    }

    /// Whether one that is known stays in its stead.
    fn loses(&self, pack: &FoundPack) -> bool {
        let rivals = self.rivals(&pack.units, pack.part);
        rivals.iter().any(|rival| rank(rival.pack) < rank(pack))
    }

    /// Takes note of a pack, and of what it means for those that overlap with it.
    fn add(&mut self, pack: FoundPack, maker: Maker, gone: &mut Vec<FoundPack>) {
        let (mut lost, mut beside, mut is_read) = (Vec::new(), Vec::new(), true);
        for rival in self.rivals(&pack.units, pack.part) {
            let wins = rank(&pack) < rank(rival.pack);
            match rival.maker {
                Maker::Me if wins => lost.push(rival.pack.name),
                _ if wins && rival.is_read => beside.push(rival.pack.name),
                _ => is_read &= wins || !rival.is_read,
            }
        }
        gone.extend(lost.into_iter().filter_map(|name| self.take(name)));
        let name = pack.name;
        self.clock += 1;
        self.num_units[maker.index()] += pack.units.len();
        self.uses[maker.index()].insert(self.clock, name);
        let used = self.clock;
        self.packs.insert(name, Known { pack, maker, used });
        self.beside.insert(name);
        if is_read {
            beside.into_iter().for_each(|name| self.put_aside(name));
            self.read(name);
        }
        self.promote();
    }

    /// Makes room for a pack that was made here.
    fn make_room(&mut self, newest: BlockHash, gone: &mut Vec<FoundPack>) {
        while self.num_units.iter().sum::<usize>() > self.capacity {
            let [others, ours] = self.num_units;
            let oldest = |uses: &BTreeMap<u64, BlockHash>| {
                let (used, name) = uses.first_key_value()?;
                (*name != newest).then_some((*used, *name))
            };
            let [other, our] = [0, 1].map(|index| oldest(&self.uses[index]));
            let first = match ours >= others {
                true => our.or(other),
                false => our.into_iter().chain(other).min(),
            };
            let (_, name) = first.expect("what takes room is known, and it has room alone");
            gone.extend(self.forget(name));
        }
    }

    /// Packs that nothing stands against any more are read from now on.
    fn promote(&mut self) {
        let mut names: Vec<_> = self.beside.iter().copied().collect();
        names.sort_unstable_by_key(|name| rank(&self.packs[name].pack));
        for name in names {
            let pack = &self.packs[&name].pack;
            let mut units = pack.units.iter();
            if !units.any(|unit| self.places.contains_key(&(*unit, pack.part))) {
                self.read(name);
            }
        }
    }

    fn read(&mut self, name: BlockHash) {
        self.beside.remove(&name);
        let pack = &self.packs[&name].pack;
        for (at, unit) in pack.units.iter().enumerate() {
            self.places.insert((*unit, pack.part), (name, at));
        }
    }

    fn put_aside(&mut self, name: BlockHash) {
        let pack = &self.packs[&name].pack;
        for unit in &pack.units {
            self.places.remove(&(*unit, pack.part));
        }
        self.beside.insert(name);
    }

    fn take(&mut self, name: BlockHash) -> Option<FoundPack> {
        if self.packs.contains_key(&name) && !self.beside.contains(&name) {
            self.put_aside(name);
        }
        self.beside.remove(&name);
        let Known { pack, maker, used } = self.packs.remove(&name)?;
        self.uses[maker.index()].remove(&used);
        self.num_units[maker.index()] -= pack.units.len();
        Some(pack)
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

    fn sorted(mut packs: Vec<FoundPack>) -> Vec<FoundPack> {
        packs.sort_unstable_by_key(|pack| pack.name);
        packs
    }

    fn overlap(one: &FoundPack, other: &FoundPack) -> bool {
        one.part == other.part && one.units.iter().any(|unit| other.units.contains(unit))
    }

    /// Packs in a list, the least recently used first, with their makers and whether they are read.
    #[derive(Default)]
    struct Model(Vec<(FoundPack, Maker, bool)>);

    impl Model {
        fn units(&self, of: impl Fn(Maker) -> bool) -> usize {
            let packs = self.0.iter().filter(|(_, maker, _)| of(*maker));
            packs.map(|(pack, ..)| pack.units.len()).sum()
        }

        fn take(&mut self, name: BlockHash) -> Option<FoundPack> {
            let at = self.0.iter().position(|(pack, ..)| pack.name == name)?;
            let (pack, ..) = self.0.remove(at);
            self.promote();
            Some(pack)
        }

        fn promote(&mut self) {
            loop {
                let is_free = |pack: &FoundPack| {
                    let mut read = self.0.iter().filter(|(.., is_read)| *is_read);
                    !read.any(|(other, ..)| overlap(pack, other))
                };
                let free = self.0.iter().enumerate();
                let free = free.filter(|(_, (pack, _, is_read))| !is_read && is_free(pack));
                let Some((at, _)) = free.min_by_key(|(_, (pack, ..))| rank(pack)) else {
                    return;
                };
                self.0[at].2 = true;
            }
        }

        fn add(&mut self, pack: FoundPack, maker: Maker) -> Vec<FoundPack> {
            let wins = |other: &FoundPack| rank(&pack) < rank(other);
            let is_rival = |other: &FoundPack| overlap(other, &pack);
            let mut rivals = self.0.iter().filter(|(other, ..)| is_rival(other));
            let is_read = rivals.all(|(other, _, is_read)| !is_read || wins(other));
            let lost = |(other, maker, _): &mut (FoundPack, Maker, bool)| {
                *maker == Maker::Me && is_rival(other) && wins(other)
            };
            let gone = self.0.extract_if(.., lost).map(|(pack, ..)| pack).collect();
            for (other, _, other_is_read) in &mut self.0 {
                *other_is_read &= !(is_read && overlap(other, &pack));
            }
            self.0.push((pack, maker, is_read));
            self.promote();
            gone
        }

        fn found(&mut self, pack: FoundPack, maker: Maker, capacity: usize) -> Vec<FoundPack> {
            let units = pack.units.len();
            if units > capacity || self.units(|_| true) + units > 2 * capacity {
                return vec![pack];
            }
            self.add(pack, maker)
        }

        fn made(
            &mut self,
            pack: FoundPack,
            replaces: &[BlockHash],
            capacity: usize,
        ) -> Vec<FoundPack> {
            let mut gone: Vec<FoundPack> = replaces
                .iter()
                .filter_map(|name| self.take(*name))
                .collect();
            let loses = |(other, ..): &(FoundPack, Maker, bool)| {
                overlap(other, &pack) && rank(other) < rank(&pack)
            };
            if pack.units.len() > capacity || self.0.iter().any(loses) {
                gone.push(pack);
                return gone;
            }
            let newest = pack.name;
            gone.extend(self.add(pack, Maker::Me));
            while self.units(|_| true) > capacity {
                let others = self.units(|maker| maker == Maker::Another);
                let is_ours_first = 2 * others <= self.units(|_| true);
                let old = self.0.iter().filter(|(pack, ..)| pack.name != newest);
                let mut ours = old.clone().filter(|(_, maker, _)| *maker != Maker::Another);
                let ours = ours.next().filter(|_| is_ours_first);
                let (first, ..) = ours.or(old.clone().next()).expect("it has room alone");
                let name = first.name;
                gone.extend(self.take(name));
            }
            gone
        }

        fn find(&self, units: &[BlockHash], part: u16) -> Vec<PackView<'_>> {
            let mut views = Vec::new();
            let read = self.0.iter().filter(|(.., is_read)| *is_read);
            for (pack, ..) in read.filter(|(pack, ..)| pack.part == part) {
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
            let (mut packs, mut model) = (Packs::new(capacity), Model::default());
            for step in 0..150 {
                let name = BlockHash::from_u64(rng.below(1 + step as usize) as u64);
                match rng.below(5) {
                    0 => {
                        let pack = pack(&mut rng, step);
                        let rivals = packs.rivals(&pack.units, pack.part);
                        let names = rivals.iter().map(|rival| rival.pack.name);
                        let replaces: Vec<_> = names.filter(|_| rng.below(3) > 0).collect();
                        let gone = sorted(packs.made(pack.clone(), &replaces));
                        replaced += gone.len();
                        let expected = sorted(model.made(pack, &replaces, capacity));
                        assert_eq!(gone, expected, "seed {seed}");
                    }
                    1 => {
                        let pack = pack(&mut rng, step);
                        let maker = [Maker::Another, Maker::Gone][rng.below(2)];
                        let gone = sorted(packs.found(pack.clone(), maker));
                        let expected = sorted(model.found(pack, maker, capacity));
                        assert_eq!(gone, expected, "seed {seed}");
                    }
                    2 if rng.below(3) == 0 => {
                        assert_eq!(packs.forget(name), model.take(name), "seed {seed}");
                    }
                    2 => {
                        packs.used(name);
                        let at = model.0.iter().position(|(pack, ..)| pack.name == name);
                        let used = at.map(|at| model.0.remove(at));
                        model.0.extend(used);
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
