//! One replica as the writer knows it: what its events said, and what follows for the runs.
//!
//! ```text
//! stored with tokens ──► introduce: handle → key → spot ──┐      parent unknown ──► waiting
//! stored ──► hold    ─────────────────────────────────────┴──► standing in the view
//! removed ─► release ─► nowhere left ──► departed ──► forgotten when many others followed
//! ```
//!
//! Departed handles are kept for a while because an engine may announce a demotion's two halves in
//! either order: what left the device may turn up in host memory next, without tokens.
//!
//! Invariant: what the view says of this replica is what [`super::reference`] would say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headstart_core::event::{Attention, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, RouteHasher};

use super::IndexStats;
use super::crowds::Crowds;
use super::extent::Extent;
use super::forest::Forest;
use super::names::{Names, handle};
use super::op::Span;
use super::standing::{Place, Standing};
use super::view::{Need, Needs, Spot};
use super::waiting::Waiting;
use crate::lookup::Map;

/// Departed handles are remembered for one in so many that the replica has, so that they take a
/// small part of the memory of its blocks.
const DEPARTED_PART: usize = 8;

/// Departed handles that are remembered beyond those of the last updates, at most: each is searched
/// for among the others before it is forgotten, some hundred nanoseconds for so many.
const DEPARTED_SEARCHED_MAX: usize = 512;

/// All that one replica's events told.
#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) slot: u32,
    pub(super) configured_size: Option<u32>,
    pub(super) groups: BTreeMap<u8, Group>,
    pub(super) names: Names,
    pub(super) waiting: Waiting,
    pub(super) crowds: Crowds,
    pub(super) departed: VecDeque<u64>,
    /// Of these, how many the last update and the one before brought.
    pub(super) recent: [usize; 2],
    /// Departed handles that are remembered in any case.
    min_departed: usize,
    /// Blocks that a place confirmed once more than it lost them.
    pub(super) again: Map<(u32, Place), Extent>,
    /// When doubts have to be swept up; `None` without doubts.
    pub(super) sweep_at: Option<Nanos>,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) attention: Attention,
    pub(super) block_size: u32,
}

/// What could not be used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) orphans: u64,
    unknown_removals: u64,
    malformed_events: u64,
}

impl Counters {
    pub(super) fn add_to(self, stats: &mut IndexStats) {
        stats.orphans += self.orphans;
        stats.unknown_removals += self.unknown_removals;
        stats.malformed_events += self.malformed_events;
    }
}

impl Replica {
    pub(super) fn new(slot: u32, configured_size: Option<u32>, min_departed: usize) -> Self {
        Self {
            slot,
            configured_size: configured_size.filter(|&size| size > 0),
            min_departed,
            ..Self::default()
        }
    }

    /// Takes over an event; `hasher` is for its block size if it stores any. Returns the block
    /// sizes before, if what a prefix must satisfy may have changed.
    pub(super) fn apply(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: Option<&RouteHasher>,
        event: &CacheEvent,
    ) -> Option<BTreeSet<u32>> {
        match event {
            CacheEvent::Stored(stored) => self.store(forest, hasher, stored),
            CacheEvent::Removed {
                blocks,
                tier,
                group,
            } => {
                let (group, tier) = (*group, *tier);
                self.remove(forest, blocks, Place { group, tier });
                None
            }
            CacheEvent::Cleared => {
                self.clear(forest);
                None
            }
        }
    }

    fn store(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: Option<&RouteHasher>,
        stored: &StoredBlocks,
    ) -> Option<BTreeSet<u32>> {
        let mut spots = Vec::new();
        if !stored.tokens.is_empty() {
            let Some(hasher) = hasher.filter(|_| is_well_formed(stored)) else {
                self.counters.malformed_events += 1;
                return None;
            };
            spots = self.introduce_all(forest, hasher, stored);
        }
        let has_learned = self.learn(stored);
        let place = Place {
            group: stored.group.index,
            tier: stored.tier,
        };
        self.hold_all(forest, &stored.blocks, &spots, place);
        has_learned
    }

    /// Events without tokens say nothing new of a group that is known.
    fn learn(&mut self, stored: &StoredBlocks) -> Option<BTreeSet<u32>> {
        let StoredBlocks {
            group, block_size, ..
        } = *stored;
        let known = self.groups.get(&group.index);
        if block_size == 0 || (stored.tokens.is_empty() && known.is_some()) {
            return None;
        }
        let new = Group {
            attention: group.attention,
            block_size,
        };
        if known == Some(&new) {
            return None;
        }
        let before = self.block_sizes();
        self.groups.insert(group.index, new);
        Some(before)
    }

    fn hold_all(
        &mut self,
        forest: &mut Forest<'_>,
        blocks: &[BlockHash],
        spots: &[Option<Spot>],
        place: Place,
    ) {
        let mut pending: Option<Span> = None;
        for (index, &block) in blocks.iter().enumerate() {
            let block = handle(block);
            let known = spots.get(index).copied().flatten();
            let spot = known.or_else(|| self.names.find(forest.land, block));
            let Some(spot) = spot else {
                self.counters.orphans += self.waiting.hold(block, |records| records.hold(place));
                continue;
            };
            if !self.crowds.is_empty() && self.crowds.hold(forest, self.slot, spot, block, place) {
                continue;
            }
            match &mut pending {
                Some(span) if (span.run, span.offsets.end) == (spot.run, spot.offset) => {
                    span.offsets.end += 1;
                }
                _ => {
                    let done = pending.replace(one(spot));
                    self.hold(forest, done, place);
                }
            }
        }
        self.hold(forest, pending, place);
    }

    fn hold(&mut self, forest: &mut Forest<'_>, span: Option<Span>, place: Place) {
        let Some(span) = span else {
            return;
        };
        let holder = forest.view.run(span.run).holder(self.slot);
        if let Some(holder) = holder
            && holder.count_confirmed(place, span.offsets.clone()) > 0
        {
            for offset in span.offsets.clone() {
                if holder.standing(place, offset) == Some(Standing::Confirmed) {
                    let again = self.again.entry((span.run, place)).or_insert(Extent::EMPTY);
                    again.fill(offset..offset + 1);
                }
            }
        }
        forest.set(span, self.slot, place, Some(Standing::Confirmed));
    }

    fn remove(&mut self, forest: &mut Forest<'_>, blocks: &[BlockHash], place: Place) {
        // Blocks in a row, either way, that are released at once.
        let mut pending: Vec<(u64, Spot)> = Vec::new();
        for &block in blocks {
            let block = handle(block);
            let Some(spot) = self.names.find(forest.land, block) else {
                let was_there = self.release_waiting(forest, block, place);
                self.counters.unknown_removals += u64::from(!was_there);
                continue;
            };
            if !continues(&pending, spot) {
                self.release_all(forest, &pending, place);
                pending.clear();
            }
            pending.push((block, spot));
        }
        self.release_all(forest, &pending, place);
    }

    /// Returns whether the handle, which has no block yet, was in the place.
    fn release_waiting(&mut self, forest: &Forest<'_>, block: u64, place: Place) -> bool {
        let release = self.waiting.change(block, |records| {
            let was_there = records.release(place, forest.now);
            (was_there, records.get(place).is_some())
        });
        let (was_there, is_doubtful) = release.unwrap_or_default();
        if is_doubtful {
            self.plan_sweep(forest.now);
        }
        was_there
    }

    /// Releases consecutive blocks: all at once where nothing is special about them.
    fn release_all(&mut self, forest: &mut Forest<'_>, blocks: &[(u64, Spot)], place: Place) {
        let (Some(&(_, first)), Some(&(_, last))) = (blocks.first(), blocks.last()) else {
            return;
        };
        let (start, end) = (
            first.offset.min(last.offset),
            first.offset.max(last.offset) + 1,
        );
        let holder = forest.view.run(first.run).holder(self.slot);
        let held = holder.map_or(0, |holder| holder.count_in(place, start..end));
        let is_plain = self.again.is_empty() && self.crowds.is_empty();
        if !is_plain || (held as usize) < blocks.len() {
            for &(block, spot) in blocks {
                let was_there = self.release(forest, block, spot, place);
                self.counters.unknown_removals += u64::from(!was_there);
            }
            return;
        }
        let span = Span {
            run: first.run,
            offsets: start..end,
        };
        forest.set(span, self.slot, place, None);
        let holder = forest.view.run(first.run).holder(self.slot);
        for &(block, spot) in blocks {
            if holder.is_none_or(|holder| !holder.holds(spot.offset)) {
                self.depart(block);
            }
        }
    }

    /// Returns whether the block was there.
    fn release(&mut self, forest: &mut Forest<'_>, block: u64, spot: Spot, place: Place) -> bool {
        let released = self.crowds.release(forest, self.slot, spot, block, place);
        let was_there = released.unwrap_or_else(|| {
            let before = forest.view.standing(spot, self.slot, place);
            if before.is_some() {
                let since = forest.now;
                let is_left = self.unmark(spot, place);
                let standing = is_left.then_some(Standing::Doubtful { since });
                forest.set(one(spot), self.slot, place, standing);
            }
            before.is_some()
        });
        if !was_there {
            return false;
        }
        if !self.is_held(forest, block, spot) {
            self.depart(block);
        } else if forest.view.standing(spot, self.slot, place).is_some() {
            self.plan_sweep(forest.now);
        }
        true
    }

    /// Whether any place holds the block, because of this handle.
    pub(super) fn is_held(&self, forest: &Forest<'_>, block: u64, spot: Spot) -> bool {
        let crowd = self.crowds.is_held(forest, spot, block);
        crowd.unwrap_or_else(|| forest.view.holds(spot, self.slot))
    }

    /// Remembers for a while a handle that holds nothing any more.
    pub(super) fn depart(&mut self, block: u64) {
        self.departed.push_back(block);
        self.recent[0] += 1;
    }

    /// Forgets departed handles if there are too many, the oldest first. Those of this update and
    /// of the last one stay: a demotion's second half follows in the same step of the engine, or
    /// in the next.
    pub(super) fn end_update(&mut self, forest: &mut Forest<'_>) {
        let recent = self.recent[0] + self.recent[1];
        self.recent = [0, self.recent[0]];
        let part = (self.names.len() / DEPARTED_PART).min(DEPARTED_SEARCHED_MAX);
        let most = part.max(self.min_departed).max(recent);
        // The run that lost names last: what leaves together stood together.
        let mut run = None;
        while self.departed.len() > most {
            let Some(oldest) = self.departed.pop_front() else {
                break;
            };
            // It may have come back and departed again since: then it is not the oldest.
            if !self.departed.contains(&oldest)
                && let Some(spot) = self.names.find(forest.land, oldest)
                && !self.is_held(forest, oldest, spot)
            {
                self.crowds.leave(forest, spot, oldest);
                self.names.remove(forest.land, oldest);
                if let Some(done) = run.replace(spot.run).filter(|&done| done != spot.run) {
                    forest.trim(done);
                }
            }
        }
        if let Some(done) = run {
            forest.trim(done);
        }
    }

    /// Block sizes of what the replica may hold.
    pub(super) fn block_sizes(&self) -> BTreeSet<u32> {
        let sizes = self.groups.values().map(|group| group.block_size);
        let configured = self.configured_size.filter(|_| self.groups.is_empty());
        sizes.chain(configured).collect()
    }

    /// What a prefix must satisfy. A replica without events has one group of the usual kind.
    pub(super) fn needs(&self) -> Needs {
        let need = |(&group, known): (&u8, &Group)| Need {
            group,
            attention: known.attention,
            block_size: known.block_size,
        };
        let needs: Vec<Need> = self.groups.iter().map(need).collect();
        match (needs.as_slice(), self.configured_size) {
            ([], None) => Needs::Unknown,
            ([], Some(block_size)) => Needs::Plain {
                group: 0,
                block_size,
            },
            ([need], _) if need.attention == Attention::Full => Needs::Plain {
                group: need.group,
                block_size: need.block_size,
            },
            _ => Needs::Mixed(needs.into()),
        }
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let again: usize = self
            .again
            .values()
            .map(|extent| 32 + extent.heap_bytes())
            .sum();
        size_of::<Self>()
            + self.names.bytes()
            + self.waiting.bytes()
            + self.departed.capacity() * 8
            + again
    }

    /// Asserts the invariants, and counts every name at its block. O(size).
    pub(super) fn check(&self, forest: &Forest<'_>, names: &mut Map<Spot, u16>) {
        self.names.check(forest.land, names);
        self.waiting.check();
        for (&(run, place), extent) in &self.again {
            for offset in extent.iter() {
                let standing = forest.view.standing(Spot { run, offset }, self.slot, place);
                assert_eq!(
                    standing,
                    Some(Standing::Confirmed),
                    "what came again is there"
                );
            }
        }
        for (handle, spot) in self.names.iter(forest.land) {
            assert!(
                self.waiting.link_of(handle).is_none(),
                "named handles do not wait"
            );
            self.crowds.check(forest, self.slot, spot, handle);
        }
    }

    /// Adds what is still there once more than it was removed.
    pub(super) fn mark(&mut self, spot: Spot, place: Place) {
        let again = self.again.entry((spot.run, place)).or_insert(Extent::EMPTY);
        again.fill(spot.offset..spot.offset + 1);
    }

    /// Returns whether it was marked.
    fn unmark(&mut self, spot: Spot, place: Place) -> bool {
        unmark(&mut self.again, spot, place)
    }
}

/// Takes a mark away. Returns whether it was there.
pub(super) fn unmark(again: &mut Map<(u32, Place), Extent>, spot: Spot, place: Place) -> bool {
    let Some(extent) = again.get_mut(&(spot.run, place)) else {
        return false;
    };
    let was_marked = extent.contains(spot.offset);
    extent.clear(spot.offset..spot.offset + 1);
    if extent.is_empty() {
        again.remove(&(spot.run, place));
    }
    was_marked
}

/// Whether `spot` stands right before or behind these consecutive blocks.
fn continues(blocks: &[(u64, Spot)], spot: Spot) -> bool {
    let (Some((_, first)), Some((_, last))) = (blocks.first(), blocks.last()) else {
        return true;
    };
    let steps = (
        i64::from(spot.offset) - i64::from(last.offset),
        first.offset.cmp(&last.offset),
    );
    spot.run == last.run
        && match steps {
            (1, order) => order.is_le(),
            (-1, order) => order.is_ge(),
            _ => false,
        }
}

pub(super) fn one(spot: Spot) -> Span {
    Span {
        run: spot.run,
        offsets: spot.offset..spot.offset + 1,
    }
}

fn is_well_formed(stored: &StoredBlocks) -> bool {
    let num_tokens = stored.blocks.len().checked_mul(stored.block_size as usize);
    stored.block_size > 0 && num_tokens == Some(stored.tokens.len())
}
