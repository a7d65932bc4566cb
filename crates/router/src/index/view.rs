//! The half of the index that look-ups read: runs, and who holds how much of them.
//!
//! A *run* is a piece of a chain of keys, stored one after the other. It may begin in the middle of
//! another run; nothing points back, because a key names its whole prefix:
//!
//! ```text
//! keys     a b c d e f          c d  is asked for:
//!              └─ g h           head a matches 3 keys, then head g
//! heads    a, g
//! ```
//!
//! The view knows neither handles nor why something is held. It changes by [`ViewChange`]s only,
//! which mean the same on equal views: that is how [`super::left_right`] keeps two of them.
//!
//! Invariants: every key is in one run once, and every run's first key is in `heads`; holders are
//! sorted by slot and hold something.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;
use headstart_core::block::BlockShape;
use headstart_core::{Nanos, ReplicaId, RouteHasher, RouteKey};

use super::buffer::Keys;
use super::extent::OffsetSet;
use super::holder::{EntryTally, RunHolder};
use super::holders::{Holders, TallyChange};
use super::slot_profile::{NOBODY, Needs, PlainGroup, SlotProfile};
use super::spot::Spot;
use super::standing::{BlockPlace, BlockStanding};
use super::view_change::{HoldingChange, ViewChange};

/// All runs and replicas.
#[derive(Debug, Default)]
pub(super) struct View {
    runs: Vec<KeyRun>,
    heads: HashTable<u32>,
    replicas: Vec<SlotProfile>,
    /// The same by slot, as far as the walk needs it.
    groups: Vec<PlainGroup>,
    /// Number of groups with each block shape.
    shapes: BTreeMap<BlockShape, usize>,
    /// Replicas that are not of the usual kind.
    num_odd: usize,
    num_mixed: usize,
    hashers: Arc<[RouteHasher]>,
    num_holders: usize,
    tally: EntryTally,
}

/// A piece of a chain. Freed ones are empty.
#[derive(Debug)]
pub(super) struct KeyRun {
    keys: Keys,
    len: u32,
    pub(super) block_size: u32,
    holders: Holders,
}

impl KeyRun {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn key(&self, offset: u32) -> RouteKey {
        self.keys.get(offset)
    }

    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub(super) fn holder(&self, slot: u32) -> Option<RunHolder<'_>> {
        self.holders.get(slot)
    }

    /// Counts the leading keys that equal those of `keys`, whose first one does. Keys are chained,
    /// so all keys before an equal one are equal.
    pub(super) fn matched(&self, keys: &[RouteKey]) -> u32 {
        // At least 1: both begin with the same key.
        let limit = self.len.min(keys.len() as u32);
        let is_equal = |at: u32| self.key(at) == keys[at as usize];
        // Prompts mostly match to the end, which one comparison shows.
        if is_equal(limit - 1) {
            return limit;
        }
        // The first key is equal and the last is not; the search is for the first that differs.
        let (mut low, mut high) = (1, limit - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_equal(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Notes that the run is in use.
    pub(super) fn touch(&self, now: Nanos) {
        self.keys.touch(now);
    }

    /// When it was last used, in stamps.
    pub(super) fn last_used(&self) -> u64 {
        self.keys.last_used()
    }

    /// Memory beyond the value itself, without the keys, bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.holders.heap_bytes()
    }

    /// Keys that there is room for.
    pub(super) fn capacity(&self) -> u32 {
        self.keys.capacity()
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl View {
    pub(super) fn run(&self, run: u32) -> &KeyRun {
        &self.runs[run as usize]
    }

    pub(super) fn runs(&self) -> &[KeyRun] {
        &self.runs
    }

    pub(super) fn replicas(&self) -> &[SlotProfile] {
        &self.replicas
    }

    pub(super) fn groups(&self) -> &[PlainGroup] {
        &self.groups
    }

    /// The shape of all replicas' blocks, if they are alike, and of the usual kind.
    pub(super) fn uniform_shape(&self) -> Option<BlockShape> {
        let (&shape, _) = self.shapes.first_key_value()?;
        (self.num_odd == 0 && self.shapes.len() == 1).then_some(shape)
    }

    /// Whether some replica needs more than leading blocks.
    pub(super) fn has_mixed(&self) -> bool {
        self.num_mixed > 0
    }

    /// Whether some replica uses the shapes of [`Self::hashers`]: else they are the last in use.
    pub(super) fn uses_hashers(&self) -> bool {
        // A replica without a known shape has one of size 0, which is the least.
        let largest = self.shapes.last_key_value();
        self.num_mixed > 0 || largest.is_some_and(|(shape, _)| shape.size > 0)
    }

    pub(super) fn hashers(&self) -> &Arc<[RouteHasher]> {
        &self.hashers
    }

    pub(super) fn tally(&self) -> EntryTally {
        self.tally
    }

    /// The run that begins with `key`.
    pub(super) fn head(&self, key: RouteKey) -> Option<u32> {
        let is_meant = |&run: &u32| self.run(run).key(0) == key;
        self.heads.find(key.0, is_meant).copied()
    }

    pub(super) fn standing(
        &self,
        spot: Spot,
        slot: u32,
        place: BlockPlace,
    ) -> Option<BlockStanding> {
        let holder = self.run(spot.run).holder(slot)?;
        holder.standing(place, spot.offset)
    }

    /// Whether some place of the replica holds the block.
    pub(super) fn holds(&self, spot: Spot, slot: u32) -> bool {
        let holder = self.run(spot.run).holder(slot);
        holder.is_some_and(|holder| holder.holds(spot.offset))
    }

    /// Takes a change over.
    pub(super) fn apply(&mut self, op: &ViewChange) {
        match op {
            ViewChange::Profile { slot, profile } => self.set_profile(*slot, profile),
            ViewChange::Hashers(hashers) => self.hashers = hashers.clone(),
            ViewChange::Begin { run, block_size, keys } => self.begin(*run, *block_size, keys),
            ViewChange::Grow { run, keys, len } => {
                let run = &mut self.runs[*run as usize];
                run.len = *len;
                if let Some(keys) = keys {
                    run.keys = keys.clone();
                }
            }
            ViewChange::Cut { run, keys, len } => self.cut(*run, keys.as_ref(), *len),
            ViewChange::Hold { run, slot, change } => self.hold(*run, *slot, change),
        }
    }

    fn set_profile(&mut self, slot: u32, profile: &SlotProfile) {
        let slot = slot as usize;
        if slot >= self.replicas.len() {
            let nobody = SlotProfile { id: None, needs: Needs::Unknown };
            self.replicas.resize(slot + 1, nobody);
            self.groups.resize(slot + 1, PlainGroup::of(&self.replicas[slot]));
        }
        self.set_group(slot, PlainGroup::of(profile));
        let is_mixed =
            |profile: &SlotProfile| usize::from(matches!(profile.needs, Needs::Mixed(_)));
        self.num_mixed += is_mixed(profile);
        self.num_mixed -= is_mixed(&self.replicas[slot]);
        self.replicas[slot] = profile.clone();
    }

    fn set_group(&mut self, slot: usize, group: PlainGroup) {
        let old = std::mem::replace(&mut self.groups[slot], group);
        if old.id != NOBODY {
            self.num_odd -= usize::from(old.is_odd(slot));
            if let Some(count) = self.shapes.get_mut(&old.shape) {
                *count -= 1;
                if *count == 0 {
                    self.shapes.remove(&old.shape);
                }
            }
        }
        if group.id != NOBODY {
            self.num_odd += usize::from(group.is_odd(slot));
            *self.shapes.entry(group.shape).or_default() += 1;
        }
    }

    fn begin(&mut self, run: u32, block_size: u32, keys: &Keys) {
        let new = KeyRun { keys: keys.clone(), len: 1, block_size, holders: Holders::default() };
        let key = new.key(0);
        match self.runs.get_mut(run as usize) {
            Some(free) => *free = new,
            None => {
                if self.runs.len() == self.runs.capacity() {
                    self.runs.reserve_exact(room(self.runs.len()) - self.runs.len());
                }
                self.runs.push(new);
            }
        }
        let runs = &self.runs;
        let key_of = |&run: &u32| runs[run as usize].key(0).0;
        // `Forest` begins a run only for a key that it did not find.
        self.heads.insert_unique(key.0, run, key_of);
    }

    fn cut(&mut self, id: u32, keys: Option<&Keys>, len: u32) {
        // Read before the keys go, because the head is found by it.
        let key = self.run(id).key(0);
        let run = &mut self.runs[id as usize];
        run.len = len;
        if let Some(keys) = keys {
            run.keys = keys.clone();
        }
        if len > 0 {
            return;
        }
        run.keys = Keys::default();
        self.num_holders -= run.holders().len();
        // At 0 no name is left, so no replica holds or assumes anything of the run.
        run.holders = Holders::default();
        if let Ok(entry) = self.heads.find_entry(key.0, |&run| run == id) {
            entry.remove();
        }
    }

    /// Changes one holder, which comes and goes as it is needed.
    fn hold(&mut self, run: u32, slot: u32, change: &HoldingChange) {
        let holders = &mut self.runs[run as usize].holders;
        let num_before = holders.len();
        let TallyChange { before, after } = holders.change(slot, |holding| holding.apply(change));
        // Added before subtracting, since the difference may be negative.
        self.num_holders = self.num_holders + holders.len() - num_before;
        self.tally.entries = self.tally.entries + after.entries - before.entries;
        self.tally.doubtful = self.tally.doubtful + after.doubtful - before.doubtful;
    }

    /// Memory of this view and of an equal one that shares its keys, bytes. O(runs).
    pub(super) fn bytes(&self) -> usize {
        let each = self.runs.capacity() * size_of::<KeyRun>()
            + self.heads.allocation_size()
            + self.replicas.capacity() * (size_of::<SlotProfile>() + size_of::<PlainGroup>());
        let keys: usize = self.runs.iter().map(|run| run.keys.bytes()).sum();
        let holders: usize = self.runs.iter().map(KeyRun::heap_bytes).sum();
        2 * (each + holders) + keys
    }

    /// Asserts the invariants. O(size).
    pub(super) fn check(&self) {
        let mut keys = std::collections::HashSet::new();
        let (mut tally, mut num_holders, mut num_runs) = (EntryTally::default(), 0, 0);
        for (id, run) in self.runs.iter().enumerate().filter(|(_, run)| run.len > 0) {
            num_runs += 1;
            assert_eq!(self.head(run.key(0)), Some(id as u32), "runs have a head");
            for offset in 0..run.len {
                assert!(keys.insert(run.key(offset)), "every key is there once");
            }
            run.holders.check(run.len);
            num_holders += run.holders().len();
            for holder in run.holders().iter() {
                tally.entries += holder.tally().entries;
                tally.doubtful += holder.tally().doubtful;
                let id = self.replicas[holder.slot as usize].id;
                assert!(id.is_some(), "who holds something is tracked");
            }
        }
        let is_mixed = |profile: &&SlotProfile| matches!(profile.needs, Needs::Mixed(_));
        assert_eq!(self.heads.len(), num_runs, "heads have a run");
        assert_eq!(self.num_holders, num_holders, "holders are counted");
        assert_eq!(self.tally, tally, "entries are counted");
        let num_mixed = self.replicas.iter().filter(is_mixed).count();
        assert_eq!(self.num_mixed, num_mixed, "mixed replicas are counted");
    }

    /// Visits all that is held at whatever time.
    pub(super) fn visit(
        &self,
        mut visit: impl FnMut(&KeyRun, ReplicaId, BlockPlace, BlockStanding, &OffsetSet),
    ) {
        for run in &self.runs {
            for holder in run.holders().iter() {
                if let Some(id) = self.replicas[holder.slot as usize].id {
                    holder.visit(|place, standing, extent| {
                        visit(run, id, place, standing, extent);
                    });
                }
            }
        }
    }
}

/// Room to make where `len` is full: an eighth more, since most of the memory is in such lists and
/// growing them is a small part of the work on a block.
pub(super) fn room(len: usize) -> usize {
    len + (len / 8).max(4)
}
