//! The prefix cache of a simulated engine, as far as its events tell of it.
//!
//! It is like vLLM's: a request's blocks are looked up, computed where they are missing, and the
//! least recently used ones go, the tails of prompts first. Models with several cache groups keep
//! of each what its layers need; a second tier may take in what the device drops. It takes its
//! freedom where engines differ: order of eviction, copies, halves of a move in either order.
//!
//! It does not know events, numbers or time; what it did is a list of [`Happening`]s.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use headstart_core::event::{Attention, CacheGroup};
use headstart_core::{Rng, Tier};

use super::catalog::{BlockNo, Catalog, PromptText};

/// Cache groups, sizes and habits of an engine.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    /// Its cache groups. Exactly one is [`Attention::Full`], and whatever another one with blocks
    /// of that size holds was computed in that one as well.
    pub groups: Vec<GroupSpec>,
    /// Copies of blocks that the device has room for.
    pub device_blocks: usize,
    /// Blocks that the host has room for.
    pub host_blocks: usize,
    /// Order of eviction.
    pub eviction: Eviction,
    /// Whether one block may be there several times.
    pub copies: CopyPolicy,
    /// Announcement of a block that moves to the host.
    pub demotion: Demotion,
}

/// One cache group of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Index and attention of the group.
    pub group: CacheGroup,
    /// Tokens per block.
    pub block_size: u32,
}

impl EngineSpec {
    /// Tokens per block of the group that keeps whole prompts.
    ///
    /// # Panics
    /// When no group is full.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        let mut groups = self.groups.iter();
        let full = groups.find(|group| group.group.attention == Attention::Full);
        full.expect("one group is full").block_size
    }

    /// Whether its groups have blocks of several sizes.
    #[must_use]
    pub fn has_mixed_sizes(&self) -> bool {
        let first = self.groups[0].block_size;
        self.groups.iter().any(|group| group.block_size != first)
    }

    /// The group of this number.
    ///
    /// # Panics
    /// When no group has this number.
    #[must_use]
    pub fn group(&self, index: u8) -> GroupSpec {
        let mut groups = self.groups.iter();
        *groups.find(|group| group.group.index == index).expect("engines store in their own groups")
    }
}

/// Order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The least recently used, and of one prompt the last.
    TailFirst,
    /// Any.
    AnyOrder,
}

/// Whether one block may be there several times, and how its copies are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPolicy {
    /// No.
    One,
    /// Yes; each comes and goes with an event.
    EachAnnounced,
    /// Yes; each comes with an event, and the last goes with one.
    LastAnnounced,
}

/// Announcement of a block that moves to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demotion {
    /// Both halves at once, in either order.
    Together,
    /// One half a step after the other, in either order.
    Apart,
}

/// Location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockLocation {
    /// In which cache group.
    pub group: u8,
    /// In which tier.
    pub tier: Tier,
    /// Identity of the block.
    pub block: BlockNo,
}

/// A change of an engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A block is there that was not.
    Stored(BlockLocation),
    /// Another copy of it.
    CopyStored(BlockLocation),
    /// One of several copies went.
    CopyRemoved(BlockLocation),
    /// A block is not there any more.
    Removed(BlockLocation),
    /// Nothing is there any more.
    Cleared,
}

/// The prefix cache of a simulated engine.
#[derive(Debug)]
pub struct SimulatedEngine {
    spec: EngineSpec,
    held: BTreeMap<BlockLocation, HeldCopies>,
    pending: Vec<PendingMove>,
    happenings: Vec<Happening>,
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct HeldCopies {
    copies: usize,
    used: u64,
}

/// The second half of a move.
#[derive(Clone, Copy, Debug)]
enum PendingMove {
    Arrive(BlockLocation),
    Leave(BlockLocation, u64),
}

impl SimulatedEngine {
    /// An empty one.
    #[must_use]
    pub fn new(spec: EngineSpec) -> Self {
        Self { spec, held: BTreeMap::new(), pending: Vec::new(), happenings: Vec::new(), clock: 0 }
    }

    /// Returns the engine's specification.
    #[must_use]
    pub fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// Computes a prompt.
    pub fn serve(&mut self, text: &PromptText, catalog: &mut Catalog, rng: &mut Rng) {
        // The second halves of earlier moves come a step after the first ones.
        self.finish_moves();
        self.clock += 1;
        let full_size = self.spec.block_size();
        let mut groups = self.spec.groups.clone();
        // In any order: an index must not rely on which group's events come first.
        rng.shuffle(&mut groups);
        for spec in groups {
            let chain = catalog.chain(text, spec.block_size);
            // Blocks of another size are announced by no other group: without the blocks before
            // them, they would be unknown.
            let keeps_all = spec.block_size != full_size || rng.below(4) == 0;
            for &block in wanted(spec, keeps_all, &chain) {
                let place = BlockLocation { group: spec.group.index, tier: Tier::Device, block };
                self.compute(place, rng);
            }
        }
        self.make_room(catalog, rng);
    }

    /// Forgets everything, in every tier.
    pub fn clear(&mut self) {
        self.held.clear();
        self.pending.clear();
        self.happenings.push(Happening::Cleared);
    }

    /// Takes the changes since the last call.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    fn compute(&mut self, place: BlockLocation, rng: &mut Rng) {
        let used = self.clock;
        match self.held.get_mut(&place) {
            None => {
                self.held.insert(place, HeldCopies { copies: 1, used });
                self.happenings.push(Happening::Stored(place));
            }
            Some(entry) => {
                entry.used = used;
                if self.spec.copies != CopyPolicy::One && rng.below(4) == 0 {
                    entry.copies += 1;
                    self.happenings.push(Happening::CopyStored(place));
                }
            }
        }
    }

    fn make_room(&mut self, catalog: &Catalog, rng: &mut Rng) {
        while self.num_copies(Tier::Device) > self.spec.device_blocks {
            let Some(victim) = self.victim(Tier::Device, catalog, rng) else {
                break;
            };
            self.leave_device(victim, rng);
        }
        while self.num_copies(Tier::Host) > self.spec.host_blocks {
            let Some(victim) = self.victim(Tier::Host, catalog, rng) else {
                break;
            };
            self.remove(victim);
        }
    }

    fn num_copies(&self, tier: Tier) -> usize {
        let held = self.held.iter().filter(|(place, _)| place.tier == tier);
        let copies: usize = held.map(|(_, entry)| entry.copies).sum();
        // Copies whose move has begun are on their way out, and make room already.
        copies - self.leaving().filter(|place| place.tier == tier).count()
    }

    fn leaving(&self) -> impl Iterator<Item = BlockLocation> {
        self.pending.iter().filter_map(|pending| match *pending {
            PendingMove::Leave(place, _) => Some(place),
            PendingMove::Arrive(_) => None,
        })
    }

    fn victim(&self, tier: Tier, catalog: &Catalog, rng: &mut Rng) -> Option<BlockLocation> {
        let places = self.held.iter().filter(|(place, _)| place.tier == tier);
        let places = places.filter(|(place, _)| self.leaving().all(|leaving| leaving != **place));
        match self.spec.eviction {
            Eviction::TailFirst => {
                let rank = |(place, entry): &(&BlockLocation, &HeldCopies)| {
                    // Deeper blocks first, because a block without its prefix cannot be matched.
                    (entry.used, Reverse(catalog.block(place.block).depth))
                };
                places.min_by_key(rank).map(|(&place, _)| place)
            }
            Eviction::AnyOrder => {
                let places: Vec<BlockLocation> = places.map(|(&place, _)| place).collect();
                (!places.is_empty()).then(|| places[rng.below(places.len())])
            }
        }
    }

    fn leave_device(&mut self, place: BlockLocation, rng: &mut Rng) {
        let below = BlockLocation { tier: Tier::Host, ..place };
        let entry = self.held[&place];
        let moves = self.spec.host_blocks > 0 && rng.below(3) > 0;
        // Only the last copy moves, and only where the host has none.
        if entry.copies > 1 || !moves || self.held.contains_key(&below) {
            return self.remove(place);
        }
        match (self.spec.demotion, rng.below(2)) {
            (Demotion::Together, 0) => {
                self.arrive(below);
                self.remove(place);
            }
            (Demotion::Together, _) => {
                self.remove(place);
                self.arrive(below);
            }
            (Demotion::Apart, 0) => {
                self.arrive(below);
                self.pending.push(PendingMove::Leave(place, entry.used));
            }
            (Demotion::Apart, _) => {
                self.remove(place);
                self.pending.push(PendingMove::Arrive(below));
            }
        }
    }

    fn finish_moves(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                PendingMove::Arrive(place) => self.arrive(place),
                PendingMove::Leave(place, used) => {
                    let entry = self.held.get(&place);
                    // Used since then, or copied: the block stays on the device, and the host has
                    // it as well.
                    if entry.is_some_and(|entry| entry.used == used && entry.copies == 1) {
                        self.remove(place);
                    }
                }
            }
        }
    }

    fn arrive(&mut self, place: BlockLocation) {
        let used = self.clock;
        if self.held.insert(place, HeldCopies { copies: 1, used }).is_none() {
            self.happenings.push(Happening::Stored(place));
        }
    }

    fn remove(&mut self, place: BlockLocation) {
        let Some(entry) = self.held.get_mut(&place) else {
            return;
        };
        if entry.copies == 1 {
            self.held.remove(&place);
            return self.happenings.push(Happening::Removed(place));
        }
        entry.copies -= 1;
        if self.spec.copies == CopyPolicy::EachAnnounced {
            self.happenings.push(Happening::CopyRemoved(place));
        }
    }
}

/// The blocks that a group keeps of a prompt: all, or what it needs to go on behind it.
fn wanted(spec: GroupSpec, keeps_all: bool, chain: &[BlockNo]) -> &[BlockNo] {
    let num_needed = match spec.group.attention {
        _ if keeps_all => chain.len(),
        Attention::Full => chain.len(),
        Attention::State => 1,
        Attention::Window { tokens } => tokens.saturating_sub(1).div_ceil(spec.block_size) as usize,
    };
    // A prompt may have fewer blocks than the group's layers can use.
    &chain[chain.len().saturating_sub(num_needed)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::block::Namespace;

    fn engine(device_blocks: usize, host_blocks: usize) -> SimulatedEngine {
        let group = CacheGroup::default();
        SimulatedEngine::new(EngineSpec {
            groups: vec![GroupSpec { group, block_size: 1 }],
            device_blocks,
            host_blocks,
            eviction: Eviction::TailFirst,
            copies: CopyPolicy::One,
            demotion: Demotion::Together,
        })
    }

    #[test]
    fn the_tail_of_what_is_used_least_goes_first() {
        let (mut catalog, mut rng) = (Catalog::default(), Rng::new(1));
        let text =
            PromptText { tokens: vec![1, 2, 3], namespace: Namespace::default(), image: None };
        let chain = catalog.chain(&text, 1);
        let other_text = PromptText { tokens: vec![7], ..text.clone() };
        let other = catalog.chain(&other_text, 1);
        let mut engine = engine(3, 0);
        engine.serve(&text, &mut catalog, &mut rng);
        assert_eq!(engine.take_happenings().len(), 3);
        engine.serve(&other_text, &mut catalog, &mut rng);
        let place = |block| BlockLocation { group: 0, tier: Tier::Device, block };
        let expected = [Happening::Stored(place(other[0])), Happening::Removed(place(chain[2]))];
        assert_eq!(engine.take_happenings(), expected);
        engine.serve(&text, &mut catalog, &mut rng);
        let expected = [Happening::Stored(place(chain[2])), Happening::Removed(place(other[0]))];
        assert_eq!(engine.take_happenings(), expected, "the others were there");
    }
}
