//! One replica as the writer knows it: what its events said, and what follows for the runs.
//!
//! ```text
//! stored with tokens ──► introduce: handle → key → spot ──┐      parent unknown ──► waiting
//! stored ──► hold    ─────────────────────────────────────┴──► standing in the view
//! removed ─► release ─► nowhere left ──► departed ──► forgotten when many others followed
//! ```
//!
//! Invariant: what the view says of this replica is what the reference index of `headstart-dst`
//! would say.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use headstart_core::block::BlockShape;
use headstart_core::event::{Attention, BlockChange, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, RouteHasher};

use super::aliases::Crowds;
use super::counters::Counters;
use super::extent::OffsetSet;
use super::forest::Forest;
use super::holder::RunHolder;
use super::marks::unmark;
use super::names::{Names, handle};
use super::slot_profile::{Need, Needs};
use super::spot::{Span, Spot};
use super::standing::{BlockPlace, BlockStanding, PlacedHandle, Records, since_alone};
use super::tombstones::DepartureQueue;
use super::waiting::Waiting;
use crate::lookup::StableMap;

/// All that one replica's events told.
#[derive(Debug, Default)]
pub(super) struct TrackedReplica {
    pub(super) slot: u32,
    pub(super) configured_size: Option<u32>,
    pub(super) groups: BTreeMap<u8, GroupLayout>,
    pub(super) names: Names,
    pub(super) waiting: Waiting,
    pub(super) crowds: Crowds,
    pub(super) departed: DepartureQueue,
    /// Blocks that a place confirmed once more than it lost them.
    pub(super) again: StableMap<(u32, BlockPlace), OffsetSet>,
    /// Since when that is doubtful which was doubted last, all at once.
    pub(super) doubted: Option<Nanos>,
    /// When doubts have to be swept up; `None` without doubts.
    pub(super) sweep_at: Option<Nanos>,
    pub(super) counters: Counters,
    /// Changes of the running update so far, if the caller asked for them.
    pub(super) told: Option<Vec<BlockChange>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupLayout {
    pub(super) attention: Attention,
    pub(super) shape: BlockShape,
}

impl GroupLayout {
    /// The layout of an event's group, if that is news. Events without tokens say nothing new of a
    /// group that is known.
    pub(super) fn news(groups: &BTreeMap<u8, Self>, stored: &StoredBlocks) -> Option<Self> {
        let shape = shape_of(stored);
        let known = groups.get(&stored.group.index);
        if shape.size == 0 || (stored.tokens.is_empty() && known.is_some()) {
            return None;
        }
        let new = Self { attention: stored.group.attention, shape };
        (known != Some(&new)).then_some(new)
    }
}

/// The shape of the blocks that an event stores.
pub(super) fn shape_of(stored: &StoredBlocks) -> BlockShape {
    BlockShape { size: stored.block_size, lookahead: stored.group.lookahead }
}

impl TrackedReplica {
    pub(super) fn new(slot: u32, configured_size: Option<u32>, min_departed: usize) -> Self {
        Self {
            slot,
            configured_size: configured_size.filter(|&size| size > 0),
            departed: DepartureQueue::new(min_departed),
            crowds: Crowds::new(slot),
            ..Self::default()
        }
    }

    /// Looks up what the events name, all at once and for nothing: so the waits for memory overlap,
    /// which would come one by one later.
    pub(super) fn look_ahead(&self, events: &[CacheEvent]) {
        let mut num_known = 0;
        for event in events {
            let blocks = match event {
                CacheEvent::Stored(stored) => &stored.blocks,
                CacheEvent::Removed { blocks, .. } => blocks,
                CacheEvent::Cleared => continue,
            };
            for &block in blocks {
                num_known += usize::from(self.names.find_awake(handle(block)).is_some());
            }
        }
        std::hint::black_box(num_known);
    }

    /// Takes over an event; `hasher` is for its blocks if it stores any. Returns the block
    /// shapes before, if what a prefix must satisfy may have changed.
    pub(super) fn apply(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: Option<&RouteHasher>,
        event: &CacheEvent,
    ) -> Option<BTreeSet<BlockShape>> {
        match event {
            CacheEvent::Stored(stored) => self.store(forest, hasher, stored),
            CacheEvent::Removed { blocks, tier, group } => {
                let (group, tier) = (*group, *tier);
                self.remove(forest, blocks, BlockPlace { group, tier });
                None
            }
            CacheEvent::Cleared => {
                self.clear(forest);
                self.tell(|| BlockChange::Cleared);
                self.forget_groups()
            }
        }
    }

    /// Forgets the cache groups, since a restarted engine may have others. Returns the shapes
    /// before that, if it had groups.
    fn forget_groups(&mut self) -> Option<BTreeSet<BlockShape>> {
        let before = self.shapes();
        let groups = std::mem::take(&mut self.groups);
        (!groups.is_empty()).then_some(before)
    }

    fn store(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: Option<&RouteHasher>,
        stored: &StoredBlocks,
    ) -> Option<BTreeSet<BlockShape>> {
        if !stored.tokens.is_empty() {
            // Nothing of it is used: with another number of tokens, none is surely that of its
            // hash.
            let Some(hasher) = hasher.filter(|_| stored.is_filled()) else {
                self.counters.malformed_events += 1;
                return None;
            };
            // Handles get their blocks first, so that holding finds them below.
            self.introduce_all(forest, hasher, stored);
        }
        let has_learned = self.learn(stored);
        let place = BlockPlace { group: stored.group.index, tier: stored.tier };
        self.hold_all(forest, &stored.blocks, place);
        has_learned
    }

    fn learn(&mut self, stored: &StoredBlocks) -> Option<BTreeSet<BlockShape>> {
        let new = GroupLayout::news(&self.groups, stored)?;
        let before = self.shapes();
        self.groups.insert(stored.group.index, new);
        Some(before)
    }

    fn hold_all(&mut self, forest: &mut Forest<'_>, blocks: &[BlockHash], place: BlockPlace) {
        // Blocks in a row become one change of the view; most events are one row.
        let mut pending: Option<Span> = None;
        for &block in blocks {
            let block = handle(block);
            let Some(known) = self.names.wake(block) else {
                self.counters.orphans += self.waiting.hold(block, |records| records.hold(place));
                continue;
            };
            let spot = known.spot;
            self.tell_stored(forest, spot, place);
            if known.is_idle {
                // `tell_apart` reads the view, which must show the blocks before this one.
                self.hold(forest, pending.take(), place);
                self.tell_apart(forest, block, spot);
            }
            let held = PlacedHandle { handle: block, spot, place };
            let hold = |records: &mut Records| records.hold(place);
            if self.crowds.change(forest, held, hold).is_some() {
                continue;
            }
            match &mut pending {
                // The block continues the row: it costs no change of its own.
                Some(span) if (span.run, span.offsets.end) == (spot.run, spot.offset) => {
                    span.offsets.end += 1;
                }
                _ => {
                    let done = pending.replace(Span::one(spot));
                    self.hold(forest, done, place);
                }
            }
        }
        self.hold(forest, pending, place);
    }

    /// Notes that a handle will hold its block.
    pub(super) fn wake(&mut self, forest: &Forest<'_>, block: u64) {
        if let Some(known) = self.names.wake(block)
            && known.is_idle
        {
            self.tell_apart(forest, block, known.spot);
        }
    }

    /// Puts a handle that held nothing into a crowd with the others that hold its block, if any.
    pub(super) fn tell_apart(&mut self, forest: &Forest<'_>, block: u64, spot: Spot) {
        // With one name in the fleet, the block has no other handle here.
        let is_known_otherwise = forest.land.num_names(spot) > 1;
        if !is_known_otherwise
            || self.crowds.join(forest, spot, block)
            || !forest.view.holds(spot, self.slot)
        {
            return;
        }
        if let Some(holder) = self.names.holder_but(spot, block) {
            self.crowds.gather(forest, spot, [holder, block], &mut self.again);
        }
    }

    fn hold(&mut self, forest: &mut Forest<'_>, span: Option<Span>, place: BlockPlace) {
        let Some(span) = span else {
            return;
        };
        let holder = forest.view.run(span.run).holder(self.slot);
        // Seldom confirmed already, so the blocks are rarely looked at one by one.
        if let Some(holder) = holder
            && holder.count_confirmed(place, span.offsets.clone()) > 0
        {
            for offset in span.offsets.clone() {
                if holder.standing(place, offset) == Some(BlockStanding::Confirmed) {
                    let again = self.again.entry((span.run, place)).or_insert(OffsetSet::EMPTY);
                    again.fill(offset..offset + 1);
                }
            }
        }
        forest.set(span, self.slot, place, Some(BlockStanding::Confirmed));
    }

    fn remove(&mut self, forest: &mut Forest<'_>, blocks: &[BlockHash], place: BlockPlace) {
        // Blocks in a row, either way, that are released at once.
        let mut pending: Vec<(u64, Spot)> = Vec::new();
        for &block in blocks {
            let block = handle(block);
            let Some(spot) = self.names.find_awake(block) else {
                let was_there = self.release_waiting(forest, block, place);
                self.counters.unknown_removals += u64::from(!was_there);
                continue;
            };
            self.tell_removed(forest, spot, place);
            if !continues(&pending, spot) {
                self.release_all(forest, &pending, place);
                pending.clear();
            }
            pending.push((block, spot));
        }
        self.release_all(forest, &pending, place);
    }

    /// Returns whether the handle, which has no block yet, was in the place.
    fn release_waiting(&mut self, forest: &Forest<'_>, block: u64, place: BlockPlace) -> bool {
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
    fn release_all(&mut self, forest: &mut Forest<'_>, blocks: &[(u64, Spot)], place: BlockPlace) {
        let (Some(&(_, first)), Some(&(_, last))) = (blocks.first(), blocks.last()) else {
            return;
        };
        let (start, end) = (first.offset.min(last.offset), first.offset.max(last.offset) + 1);
        let holder = forest.view.run(first.run).holder(self.slot);
        let held = holder.map_or(0, |holder| holder.count_in(place, start..end));
        let is_plain = self.again.is_empty() && self.crowds.is_empty();
        // A mark or a crowd lets a block outlast its removal, so each is released by itself.
        if !is_plain || (held as usize) < blocks.len() {
            for &(handle, spot) in blocks {
                let was_there = self.release(forest, PlacedHandle { handle, spot, place });
                self.counters.unknown_removals += u64::from(!was_there);
            }
            return;
        }
        let span = Span { run: first.run, offsets: start..end };
        forest.set(span, self.slot, place, None);
        let holder = forest.view.run(first.run).holder(self.slot);
        for &(block, spot) in blocks {
            // Another tier or group may still hold it.
            if holder.is_none_or(|holder| !holder.holds(spot.offset)) {
                self.depart(block);
            }
        }
    }

    /// Returns whether the block was there.
    fn release(&mut self, forest: &mut Forest<'_>, held: PlacedHandle) -> bool {
        let PlacedHandle { handle: block, spot, place } = held;
        let now = forest.now;
        let released = self.crowds.change(forest, held, |records| records.release(place, now));
        let was_there = released.unwrap_or_else(|| {
            let before = forest.view.standing(spot, self.slot, place);
            if before.is_some() {
                let since = since_alone(now);
                // Stored twice and removed once, the block may still be there: it becomes doubtful
                // instead.
                let is_left = unmark(&mut self.again, spot, place);
                let standing = is_left.then_some(BlockStanding::Doubtful { since });
                forest.set(Span::one(spot), self.slot, place, standing);
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
        self.names.depart(block);
        self.departed.push(block);
    }

    /// Forgets departed handles if there are too many, the oldest first.
    pub(super) fn end_update(&mut self, forest: &mut Forest<'_>) {
        // The number of names counts, so that a large engine remembers more departures.
        let most = self.departed.end_update(self.names.len());
        // The run that lost names last: what leaves together stood together.
        let mut run = None;
        while let Some(oldest) = self.departed.pop_beyond(most) {
            let left = || self.departed.count(oldest);
            if let Some(spot) = self.names.forget_departure(forest.land, oldest, left) {
                self.crowds.leave(forest, spot, oldest);
                if let Some(done) = run.replace(spot.run).filter(|&done| done != spot.run) {
                    forest.trim(done);
                }
            }
        }
        if let Some(done) = run {
            forest.trim(done);
        }
    }

    /// Shapes of the blocks that the replica may hold.
    pub(super) fn shapes(&self) -> BTreeSet<BlockShape> {
        let shapes = self.groups.values().map(|group| group.shape);
        // Events know better than the configuration.
        let configured = self.configured_size.filter(|_| self.groups.is_empty());
        shapes.chain(configured.map(BlockShape::of_size)).collect()
    }

    /// Returns the conditions that a prefix must satisfy. A replica without events has one group of
    /// the usual kind.
    pub(super) fn needs(&self) -> Needs {
        let need = |(&group, known): (&u8, &GroupLayout)| Need {
            group,
            attention: known.attention,
            shape: known.shape,
        };
        let needs: Vec<Need> = self.groups.iter().map(need).collect();
        match (needs.as_slice(), self.configured_size) {
            ([], None) => Needs::Unknown,
            ([], Some(size)) => Needs::Plain { group: 0, shape: BlockShape::of_size(size) },
            ([need], _) if need.attention == Attention::Full => {
                Needs::Plain { group: need.group, shape: need.shape }
            }
            _ => Needs::Mixed(needs.into()),
        }
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let again: usize = self.again.values().map(|extent| 32 + extent.heap_bytes()).sum();
        size_of::<Self>()
            + self.names.bytes()
            + self.waiting.bytes()
            + self.departed.bytes()
            + again
    }

    /// Asserts the invariants, and counts every name at its block. O(size).
    pub(super) fn check(&self, forest: &Forest<'_>, names: &mut StableMap<Spot, u16>) {
        self.names.check(&self.departed, names);
        self.waiting.check();
        for (&(run, place), extent) in &self.again {
            for offset in extent.iter() {
                let standing = forest.view.standing(Spot { run, offset }, self.slot, place);
                assert_eq!(standing, Some(BlockStanding::Confirmed), "what came again is there");
            }
        }
        let mut holding = HashSet::new();
        for (handle, spot) in self.names.iter() {
            let is_waiting = self.waiting.link_of(handle).is_some();
            assert!(!is_waiting, "named handles do not wait");
            let is_awake = self.names.find_awake(handle).is_some();
            match self.crowds.is_held(forest, spot, handle) {
                Some(is_held) => assert_eq!(is_held, is_awake, "who holds is awake"),
                None if !is_awake => {}
                None => {
                    assert!(holding.insert(spot), "one holds, or it is a crowd");
                    assert!(forest.view.holds(spot, self.slot), "who is awake holds");
                }
            }
            self.crowds.check(forest, spot);
        }
        for (id, run) in forest.view.runs().iter().enumerate() {
            let holder = run.holder(self.slot);
            let offsets = 0..holder.map_or(0, RunHolder::held_end);
            for offset in offsets.filter(|&at| holder.is_some_and(|holder| holder.holds(at))) {
                let run = id as u32;
                let spot = Spot { run, offset };
                let is_named = holding.contains(&spot) || self.crowds.holds(forest, spot);
                assert!(is_named, "what is held has a handle");
            }
        }
    }

    /// Adds what is still there once more than it was removed.
    pub(super) fn mark(&mut self, spot: Spot, place: BlockPlace) {
        let again = self.again.entry((spot.run, place)).or_insert(OffsetSet::EMPTY);
        again.fill(spot.offset..spot.offset + 1);
    }
}

/// Whether `spot` stands right before or behind these consecutive blocks.
fn continues(blocks: &[(u64, Spot)], spot: Spot) -> bool {
    let (Some((_, first)), Some((_, last))) = (blocks.first(), blocks.last()) else {
        return true;
    };
    // A row has one direction, which its first two blocks decide.
    let steps = (i64::from(spot.offset) - i64::from(last.offset), first.offset.cmp(&last.offset));
    spot.run == last.run
        && match steps {
            (1, order) => order.is_le(),
            (-1, order) => order.is_ge(),
            _ => false,
        }
}
