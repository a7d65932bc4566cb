//! The packs on a disk, found by any of their units.
//!
//! Packs of one part never overlap: of those that hold the same units the newest is known, and the
//! others go. So a token is in one pack at most, and what serves a prompt is found by walking along
//! its units. Several replicas may make packs on one disk, and hear of each other's in any order:
//! that a pack is newer is written in it ([`Pack::generation`]), of equals the lower name
//! stays, so all come to the same without a word to each other.
//!
//! It holds the orders (4 bytes a token), no keys or values. Room is counted in units, so that it
//! bounds memory and disk. A pack makes room only after a time without a use by this replica. When
//! more is worth packing than fits, the existing packs stay, so packs do not displace each other in
//! turns.
//!
//! Source: the physical → logical map per node of IMPRESS (FAST '25), section 4.3, which knows one
//! engine. Generations are Lamport's clock (1978).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use headstart_core::transfer::Pack;
use headstart_core::{BlockHash, Nanos};

use super::PackView;

/// Known packs.
#[derive(Debug)]
pub struct Packs {
    /// Units of all packs together, beyond which none is made; those that several make at once may
    /// exceed it once again.
    capacity: usize,
    /// Time without a read here after which a pack may be dropped: another replica's, and one made
    /// here.
    patience: [Duration; 2],
    num_units: usize,
    packs: HashMap<BlockHash, KnownPack>,
    /// By unit and part: the pack, and which of its units that is.
    places: HashMap<(BlockHash, u16), (BlockHash, usize)>,
    /// By last use: its time, and its number among all uses.
    uses: BTreeMap<(Nanos, u64), BlockHash>,
    num_uses: u64,
    /// The generation of the newest pack that was ever heard of.
    newest: u32,
}

#[derive(Debug)]
struct KnownPack {
    pack: Pack,
    is_ours: bool,
    used: (Nanos, u64),
}

/// The newer of two is less, of equals the one with the lower name.
fn rank(pack: &Pack) -> (Reverse<u32>, BlockHash) {
    (Reverse(pack.generation), pack.name)
}

impl Packs {
    /// Creates an empty set with room for packs of `capacity` units in total. A unit counts once
    /// per layer; its order takes at most `4 · unit_tokens` bytes. A pack that this replica has not
    /// used for its patience may be evicted: `patience[0]` for packs of other replicas, which may
    /// still read them, `patience[1]` for its own.
    #[must_use]
    pub fn new(capacity: usize, patience: [Duration; 2]) -> Self {
        Self {
            capacity,
            patience,
            num_units: 0,
            packs: HashMap::new(),
            places: HashMap::new(),
            uses: BTreeMap::new(),
            num_uses: 0,
            newest: 0,
        }
    }

    /// A pack can be read, which was made here (`is_ours`) or found. Returns the packs to be
    /// forgotten on the disk: those that it replaces, those that make room, or itself, where it is
    /// older than what there is, or there is no room. One that is known already changes nothing.
    /// Costs the units of all of them.
    #[must_use = "these are to be forgotten on the disk"]
    pub fn insert(&mut self, pack: Pack, is_ours: bool, now: Nanos) -> Vec<Pack> {
        if self.packs.contains_key(&pack.name) {
            return Vec::new();
        }
        // The next pack made here must be newer than this one, even if this one is refused.
        self.newest = self.newest.max(pack.generation);
        let rivals = self.rivals(&pack.units, pack.part);
        let is_newer = |name: &BlockHash| rank(&self.packs[name].pack) < rank(&pack);
        if pack.units.is_empty() || rivals.iter().any(is_newer) {
            return vec![pack];
        }
        // Replicas that make packs at the same time do not see each other's, so twice is allowed.
        let most = 2 * self.capacity;
        let Some(mut gone) = self.make_room(&rivals, &pack.units, most, now) else {
            return vec![pack];
        };
        // Rivals go only now, when it is sure that the new pack comes in.
        gone.extend(rivals.iter().filter_map(|name| self.forget(*name)));
        for (at, unit) in pack.units.iter().enumerate() {
            self.places.insert((*unit, pack.part), (pack.name, at));
        }
        let (name, used) = (pack.name, self.next_use(now));
        self.num_units += pack.units.len();
        self.uses.insert(used, name);
        self.packs.insert(name, KnownPack { pack, is_ours, used });
        gone
    }

    /// Makes room for a pack of a part of these units beside those that it does not replace.
    /// Returns the packs that had to go, to be forgotten on the disk; `None`, and nothing goes,
    /// where too few packs have outlived their patience.
    #[must_use = "these are to be forgotten on the disk"]
    pub fn room_for(&mut self, units: &[BlockHash], part: u16, now: Nanos) -> Option<Vec<Pack>> {
        let rivals = self.rivals(units, part);
        self.make_room(&rivals, units, self.capacity, now)
    }

    /// The generation of a pack that is made now: newer than all that were heard of, those that
    /// are gone as well, which a crash may bring back.
    #[must_use]
    pub fn next_generation(&self) -> u32 {
        self.newest.saturating_add(1)
    }

    /// Whether it is known.
    #[must_use]
    pub fn contains(&self, name: BlockHash) -> bool {
        self.packs.contains_key(&name)
    }

    /// The pack is gone, or shall be: it is not found any more. Returns what it was, where it was
    /// known.
    pub fn forget(&mut self, name: BlockHash) -> Option<Pack> {
        let KnownPack { pack, used, .. } = self.packs.remove(&name)?;
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
            // A prompt may leave the pack's node early, so only the units that agree are served.
            let pairs = pack.units[before..].iter().zip(&units[at..]);
            let agreeing = pairs.take_while(|(one, other)| one == other).count();
            views.push(PackView {
                name: pack.name,
                before,
                first_unit: at,
                units: agreeing,
                order: &pack.order,
            });
            // At least 1, because the place was found by this unit.
            at += agreeing;
        }
        views
    }

    /// A pack was read, or would have been had it not been cached. O(log n).
    pub fn used(&mut self, name: BlockHash, now: Nanos) {
        let used = self.next_use(now);
        let Some(known) = self.packs.get_mut(&name) else {
            return;
        };
        self.uses.remove(&known.used);
        known.used = used;
        self.uses.insert(used, name);
    }

    /// Packs, and units of all of them together.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.packs.len(), self.num_units)
    }

    /// # Panics
    /// When what is counted is not what is there.
    pub fn check(&self) {
        let num_units: usize = self.packs.values().map(|known| known.pack.units.len()).sum();
        assert_eq!(num_units, self.num_units, "units are counted");
        assert_eq!(num_units, self.places.len(), "a unit of a part is in one pack");
        assert!(num_units <= 2 * self.capacity, "there is room");
        assert_eq!(self.uses.len(), self.packs.len(), "one place in the order of use a pack");
        for (used, name) in &self.uses {
            assert_eq!(self.packs[name].used, *used, "by last use");
        }
    }

    fn next_use(&mut self, now: Nanos) -> (Nanos, u64) {
        self.num_uses += 1;
        (now, self.num_uses)
    }

    /// The packs of a part that hold any of these units.
    fn rivals(&self, units: &[BlockHash], part: u16) -> BTreeSet<BlockHash> {
        let places = units.iter().map(|unit| self.places.get(&(*unit, part)));
        places.flatten().map(|(name, _)| *name).collect()
    }

    /// Drops those that were not read for longest, but for `rivals`, until these `units` beside all
    /// that are no rivals are `most` at most.
    fn make_room(
        &mut self,
        rivals: &BTreeSet<BlockHash>,
        units: &[BlockHash],
        most: usize,
        now: Nanos,
    ) -> Option<Vec<Pack>> {
        let units_of = |name: &BlockHash| self.packs[name].pack.units.len();
        let others = self.num_units - rivals.iter().map(units_of).sum::<usize>();
        let mut surplus = (others + units.len()).saturating_sub(most);
        let is_idle = |name: &BlockHash, (used, _): &(Nanos, u64)| {
            now.since(*used) >= self.patience[usize::from(self.packs[name].is_ours)]
        };
        let uses = self.uses.iter();
        let idle = uses.filter_map(|(used, name)| is_idle(name, used).then_some(name));
        // Names are collected first: if too little is idle, nothing may be dropped.
        let mut gone = Vec::new();
        for name in idle.filter(|name| !rivals.contains(name)) {
            if surplus == 0 {
                break;
            }
            surplus = surplus.saturating_sub(units_of(name));
            gone.push(*name);
        }
        if surplus > 0 {
            return None;
        }
        let gone = gone.into_iter().filter_map(|name| self.forget(name));
        Some(gone.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    const PATIENCE: [Duration; 2] = [Duration::from_nanos(60), Duration::from_nanos(20)];

    /// Units of a tree: a unit's name says which path leads to it.
    fn chain(rng: &mut Rng) -> Vec<BlockHash> {
        let mut name = 1;
        let chain = (0..1 + rng.below(6)).map(|_| {
            name = name * 2 + rng.below(2) as u64;
            BlockHash::from_u64(name)
        });
        chain.collect()
    }

    fn pack(rng: &mut Rng, name: u64) -> Pack {
        let mut units = chain(rng);
        let units = units.split_off(rng.below(units.len()));
        Pack {
            name: BlockHash::from_u64(name),
            part: rng.below(2) as u16,
            order: (0..rng.below(5) as u32).collect(),
            units,
            generation: rng.below(4) as u32,
        }
    }

    /// Packs in a list, the least recently used first, with whose they are and when that was.
    struct Model(Vec<(Pack, bool, Nanos)>);

    impl Model {
        fn insert(
            &mut self,
            (pack, is_ours): (Pack, bool),
            capacity: usize,
            now: Nanos,
        ) -> Vec<Pack> {
            if self.0.iter().any(|(one, ..)| one.name == pack.name) {
                return Vec::new();
            }
            let shares_units = |one: &Pack| {
                one.part == pack.part && one.units.iter().any(|unit| pack.units.contains(unit))
            };
            let (rivals, others): (Vec<_>, Vec<_>) =
                self.0.iter().partition(|(one, ..)| shares_units(one));
            let is_newer = |one: &Pack| {
                one.generation > pack.generation
                    || (one.generation == pack.generation && one.name < pack.name)
            };
            let mut units: usize = others.iter().map(|(one, ..)| one.units.len()).sum();
            units += pack.units.len();
            let mut gone = Vec::new();
            for (one, is_ours, used) in others {
                if units > 2 * capacity && now.since(*used) >= PATIENCE[usize::from(*is_ours)] {
                    units -= one.units.len();
                    gone.push(one.clone());
                }
            }
            if units > 2 * capacity || rivals.iter().any(|(one, ..)| is_newer(one)) {
                return vec![pack];
            }
            let mut replaced: Vec<_> = rivals.iter().map(|(one, ..)| one.clone()).collect();
            replaced.sort_by_key(|one| one.name);
            gone.extend(replaced);
            self.0.retain(|(one, ..)| !gone.contains(one));
            self.0.push((pack, is_ours, now));
            gone
        }

        fn find(&self, units: &[BlockHash], part: u16) -> Vec<PackView<'_>> {
            let mut views = Vec::new();
            for (pack, ..) in self.0.iter().filter(|(pack, ..)| pack.part == part) {
                let is_of = |unit: &&BlockHash| pack.units.contains(unit);
                let Some(first_unit) = units.iter().position(|unit| is_of(&unit)) else {
                    continue;
                };
                let before = pack.units.iter().position(|unit| *unit == units[first_unit]);
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
        let (mut found, mut replaced, mut refused) = (0, 0, 0);
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let capacity = 1 + rng.below(30);
            let (mut packs, mut model) = (Packs::new(capacity, PATIENCE), Model(Vec::new()));
            for step in 0..150 {
                let now = Nanos(step);
                match rng.below(4) {
                    0 => {
                        let pack = pack(&mut rng, step);
                        let is_ours = rng.below(2) == 0;
                        let gone = packs.insert(pack.clone(), is_ours, now);
                        if packs.contains(pack.name) {
                            replaced += gone.len();
                        } else {
                            refused += 1;
                        }
                        let expected = model.insert((pack, is_ours), capacity, now);
                        assert_eq!(gone, expected, "seed {seed}");
                    }
                    1 => {
                        let name = BlockHash::from_u64(rng.below(1 + step as usize) as u64);
                        let at = model.0.iter().position(|(pack, ..)| pack.name == name);
                        if rng.below(3) == 0 {
                            let gone = at.map(|at| model.0.remove(at).0);
                            assert_eq!(packs.forget(name), gone, "seed {seed}");
                        } else {
                            packs.used(name, now);
                            let used = at.map(|at| {
                                let (pack, is_ours, _) = model.0.remove(at);
                                (pack, is_ours, now)
                            });
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
        let is_much = found > 5_000 && replaced > 2_000 && refused > 2_000;
        assert!(is_much, "{found} {replaced} {refused}");
    }
}
