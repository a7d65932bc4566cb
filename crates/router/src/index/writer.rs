//! Application of updates to the view. One thread at a time.
//!
//! It knows the replicas, their slots and their block sizes, and when assumptions and doubts end;
//! what an event means for its replica is [`super::replica`]'s business.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use headstart_core::block::BlockShape;
use headstart_core::{CacheEvent, Nanos, ReplicaId, RouteHasher, RouteIdentity};

use super::budget::{Budget, Limits};
use super::draft::ViewDraft;
use super::forest::{Forest, Land};
use super::left_right::RestartState;
use super::replica::{TrackedReplica, shape_of};
use super::slot_profile::{Needs, SlotProfile};
use super::spot::Spot;
use super::view::View;
use super::view_change::{HoldingChange, ViewChange};
use super::{ASSUMPTION_TTL, IndexStats, PromptKeys, Update};
use crate::lookup::StableMap;

/// Blocks under assumption, in all: two seconds of 300 prompts each, of 100,000 tokens, at the
/// usual 16 tokens per block. Beyond it the oldest prompts are no longer assumed.
const MAX_ASSUMED_BLOCKS: usize = 1 << 22;

/// The state behind the writers' lock.
#[derive(Debug)]
pub(super) struct IndexWriter {
    pub(super) model: String,
    pub(super) land: Land,
    /// By slot.
    pub(super) replicas: Vec<Option<TrackedReplica>>,
    slots: HashMap<ReplicaId, u32>,
    free_slots: Vec<u32>,
    /// By shape of blocks: its hasher, and how many replicas use it.
    shapes: BTreeMap<BlockShape, usize>,
    hashers: BTreeMap<BlockShape, RouteHasher>,
    assumptions: VecDeque<Assumption>,
    num_assumed_blocks: usize,
    /// No doubts end before.
    sweep_at: Nanos,
    pub(super) budget: Budget,
    min_departed: usize,
    /// Counters of replicas that are tracked no more.
    past: IndexStats,
}

/// A prompt that is assumed somewhere.
#[derive(Debug)]
struct Assumption {
    slot: u32,
    runs: Box<[u32]>,
    num_blocks: usize,
    until: Nanos,
}

impl IndexWriter {
    pub(super) fn new(model: String, limits: Limits) -> Self {
        Self {
            model,
            land: Land::default(),
            replicas: Vec::new(),
            slots: HashMap::new(),
            free_slots: Vec::new(),
            shapes: BTreeMap::new(),
            hashers: BTreeMap::new(),
            assumptions: VecDeque::new(),
            num_assumed_blocks: 0,
            sweep_at: Nanos(u64::MAX),
            budget: Budget::new(limits.max_bytes),
            min_departed: limits.min_departed,
            past: IndexStats::default(),
        }
    }

    /// Forgets all but which replicas are tracked, over an empty view. The counters go on.
    fn restart(&mut self, draft: &mut ViewDraft<'_>) {
        let limits = Limits { min_departed: self.min_departed, ..Limits::default() };
        let fresh = Self::new(std::mem::take(&mut self.model), limits);
        let before = std::mem::replace(self, fresh);
        (self.budget, self.past) = (before.budget, before.past);
        // In their order, so that most have the slots that they had.
        let slots: BTreeMap<u32, ReplicaId> =
            before.slots.into_iter().map(|(replica, slot)| (slot, replica)).collect();
        for (slot, replica) in slots {
            // A panic may have come between the two lists.
            let known = before.replicas.get(slot as usize).and_then(Option::as_ref);
            if let Some(known) = known {
                known.counters.add_to(&mut self.past);
            }
            let block_size = known.and_then(|known| known.configured_size);
            self.track(draft, replica, block_size);
        }
    }

    pub(super) fn update(
        &mut self,
        draft: &mut ViewDraft<'_>,
        replica: ReplicaId,
        update: Update<'_>,
    ) {
        let slot = self.slot_of(draft.view, replica);
        let table_bytes = self.table_bytes(slot);
        match (update, slot) {
            (Update::Track { block_size }, _) => self.track(draft, replica, block_size),
            (_, None) => {}
            (Update::Forget, Some(slot)) => self.forget(draft, replica, slot),
            (Update::Events(events), Some(slot)) => self.apply(draft, slot, events),
            (Update::Doubt, Some(slot)) => self.change(draft, slot, TrackedReplica::doubt),
            (Update::Trust, Some(slot)) => self.change(draft, slot, TrackedReplica::trust),
            (Update::Assume(prompt), Some(slot)) => self.assume(draft, slot, prompt),
        }
        // After the update: a run that it confirms is not cut first and begun again.
        self.retire(draft);
        self.sweep(draft);
        // Departures are remembered by updates of events, so only these end one.
        if let (Update::Events(_), Some(slot)) = (update, slot) {
            self.change(draft, slot, TrackedReplica::end_update);
        }
        let grown = self.table_bytes(slot).saturating_sub(table_bytes);
        self.budget.spend(grown);
        self.keep_to_budget(draft);
    }

    /// The slot of `replica`, if it is tracked.
    pub(super) fn slot_of(&self, view: &View, replica: ReplicaId) -> Option<u32> {
        // Nearly all have the slot of their own number. This runs at each update, so it spares the
        // map wherever it can.
        let group = view.groups().get(replica.0 as usize);
        if group.is_some_and(|group| group.id == replica) {
            return Some(replica.0);
        }
        self.slots.get(&replica).copied()
    }

    /// Memory that grows by leaps, bytes.
    fn table_bytes(&self, slot: Option<u32>) -> usize {
        let replica = slot.and_then(|slot| self.replicas[slot as usize].as_ref());
        replica.map_or(0, |replica| replica.names.bytes())
    }

    fn track(&mut self, draft: &mut ViewDraft<'_>, replica: ReplicaId, block_size: Option<u32>) {
        if let Some(&slot) = self.slots.get(&replica) {
            self.forget(draft, replica, slot);
        }
        let slot = self.free_slot(replica);
        self.slots.insert(replica, slot);
        self.replicas[slot as usize] =
            Some(TrackedReplica::new(slot, block_size, self.min_departed));
        self.change_shapes(slot, &BTreeSet::new());
        self.publish(draft, slot, Some(replica));
    }

    /// A free slot; if possible the one of the replica's number, which allows faster look-ups.
    fn free_slot(&mut self, replica: ReplicaId) -> u32 {
        if let Some(at) = self.free_slots.iter().position(|&slot| slot == replica.0) {
            return self.free_slots.swap_remove(at);
        }
        self.free_slots.pop().unwrap_or_else(|| {
            self.replicas.push(None);
            self.replicas.len() as u32 - 1
        })
    }

    fn forget(&mut self, draft: &mut ViewDraft<'_>, replica: ReplicaId, slot: u32) {
        self.change(draft, slot, TrackedReplica::clear);
        // `clear` forgets what events said. Assumptions are the writer's own.
        self.end_assumptions(draft, slot);
        self.slots.remove(&replica);
        if let Some(gone) = self.replicas[slot as usize].take() {
            // Counters only grow, so those of a replica that left stay in the sum.
            gone.counters.add_to(&mut self.past);
            for shape in gone.shapes() {
                self.leave_shape(shape);
            }
        }
        self.free_slots.push(slot);
        self.publish(draft, slot, None);
    }

    fn apply(&mut self, draft: &mut ViewDraft<'_>, slot: u32, events: &[CacheEvent]) {
        if let Some(replica) = &self.replicas[slot as usize] {
            replica.look_ahead(events);
        }
        for event in events {
            // A hasher refuses block size 0, which a malformed event may have.
            let hasher = match event {
                CacheEvent::Stored(stored) if stored.block_size > 0 => {
                    let hashers = &mut self.hashers;
                    Some(hasher(hashers, &self.model, shape_of(stored)))
                }
                _ => None,
            };
            let Some(replica) = &mut self.replicas[slot as usize] else {
                return;
            };
            let mut forest = draft.forest(&mut self.land);
            if let Some(shapes) = replica.apply(&mut forest, hasher, event) {
                self.change_shapes(slot, &shapes);
                let id = draft.view.replicas()[slot as usize].id;
                self.publish(draft, slot, id);
            }
            // A cleared engine does not have the prompts that were sent to it before, either.
            if matches!(event, CacheEvent::Cleared) {
                self.end_assumptions(draft, slot);
            }
        }
        self.note_sweep(slot);
    }

    pub(super) fn change(
        &mut self,
        draft: &mut ViewDraft<'_>,
        slot: u32,
        change: impl FnOnce(&mut TrackedReplica, &mut Forest<'_>),
    ) {
        if let Some(replica) = &mut self.replicas[slot as usize] {
            change(replica, &mut draft.forest(&mut self.land));
        }
        self.note_sweep(slot);
    }

    fn assume(&mut self, draft: &mut ViewDraft<'_>, slot: u32, prompt: &PromptKeys) {
        if !prompt.are_in_use() {
            return;
        }
        let Some(replica) = &self.replicas[slot as usize] else {
            return;
        };
        let until = draft.now + ASSUMPTION_TTL;
        let mut runs = Vec::new();
        let mut num_blocks = 0;
        for shape in replica.shapes() {
            let keys = prompt.of(shape);
            num_blocks += keys.len();
            let mut forest = draft.forest(&mut self.land);
            for (run, blocks) in forest.lay(keys, shape.size) {
                forest.hold(run, slot, HoldingChange::Assume { blocks, until });
                forest.view.run(run).touch(forest.now);
                runs.push(run);
            }
        }
        self.num_assumed_blocks += num_blocks;
        self.assumptions.push_back(Assumption { slot, runs: runs.into(), num_blocks, until });
    }

    /// Ends assumptions that are over, of all replicas, and the oldest if there are too many.
    fn retire(&mut self, draft: &mut ViewDraft<'_>) {
        // All last equally long, so the oldest ends first.
        while let Some(oldest) = self.assumptions.front() {
            if draft.now < oldest.until && self.num_assumed_blocks <= MAX_ASSUMED_BLOCKS {
                break;
            }
            let Some(over) = self.assumptions.pop_front() else {
                break;
            };
            // Above the limit it ends before its time, so its own end is taken for the present.
            self.end(draft, &over, over.until.max(draft.now));
        }
    }

    /// Ends a replica's assumptions. Costs a look at all that are open.
    fn end_assumptions(&mut self, draft: &mut ViewDraft<'_>, slot: u32) {
        let open = std::mem::take(&mut self.assumptions);
        let (ended, left) = open.into_iter().partition(|assumption| assumption.slot == slot);
        self.assumptions = left;
        let ended: VecDeque<Assumption> = ended;
        for assumption in ended {
            self.end(draft, &assumption, Nanos(u64::MAX));
        }
    }

    fn end(&mut self, draft: &mut ViewDraft<'_>, assumption: &Assumption, until: Nanos) {
        // Each assumption leaves the list before it gets here, so it is subtracted once.
        self.num_assumed_blocks -= assumption.num_blocks;
        let mut forest = draft.forest(&mut self.land);
        let slot = assumption.slot;
        for &run in &assumption.runs {
            // The replica may have left the run since, by a clear or an eviction.
            if forest.view.run(run).holder(slot).is_some() {
                forest.hold(run, slot, HoldingChange::ExpireAssumptions { now: until });
            }
            forest.trim(run);
        }
    }

    fn sweep(&mut self, draft: &mut ViewDraft<'_>) {
        if draft.now < self.sweep_at {
            return;
        }
        // The loop below finds the next time from what is left.
        self.sweep_at = Nanos(u64::MAX);
        for slot in 0..self.replicas.len() {
            let replica = self.replicas[slot].as_ref();
            let due = replica.and_then(|replica| replica.sweep_at);
            if due.is_some_and(|due| due <= draft.now) {
                self.change(draft, slot as u32, TrackedReplica::sweep);
            }
            self.note_sweep(slot as u32);
        }
    }

    fn note_sweep(&mut self, slot: u32) {
        let replica = self.replicas[slot as usize].as_ref();
        if let Some(due) = replica.and_then(|replica| replica.sweep_at) {
            self.sweep_at = self.sweep_at.min(due);
        }
    }

    /// Shows what overlaps have to know of the replica in this slot, and the block sizes in use.
    pub(super) fn publish(&mut self, draft: &mut ViewDraft<'_>, slot: u32, id: Option<ReplicaId>) {
        let replica = self.replicas[slot as usize].as_ref();
        let needs = replica.map_or(Needs::Unknown, TrackedReplica::needs);
        let profile = SlotProfile { id, needs };
        draft.apply(ViewChange::Profile { slot, profile });
        // Readers hash with these, so they are replaced only when the shapes differ.
        let shown = draft.view.hashers().iter().map(RouteHasher::shape);
        // The last shapes stay: a prompt can then be compared with those before a restart.
        if !self.shapes.is_empty() && !shown.eq(self.shapes.keys().copied()) {
            let Self { shapes, hashers, model, .. } = self;
            let shapes = shapes.keys();
            let all = shapes.map(|&shape| hasher(hashers, model, shape).clone());
            draft.apply(ViewChange::Hashers(all.collect()));
        }
    }

    pub(super) fn change_shapes(&mut self, slot: u32, before: &BTreeSet<BlockShape>) {
        let after = self.replicas[slot as usize].as_ref().map(TrackedReplica::shapes);
        for shape in after.unwrap_or_default() {
            *self.shapes.entry(shape).or_default() += 1;
        }
        for &shape in before {
            self.leave_shape(shape);
        }
    }

    fn leave_shape(&mut self, shape: BlockShape) {
        if let Some(count) = self.shapes.get_mut(&shape) {
            *count -= 1;
            if *count == 0 {
                self.shapes.remove(&shape);
            }
        }
    }

    pub(super) fn stats(&self, view: &View) -> IndexStats {
        let tally = view.tally();
        let mut stats = IndexStats {
            entries: tally.entries,
            doubtful: tally.doubtful,
            assumed_prompts: self.assumptions.len(),
            bytes: self.bytes(view),
            evicted: self.budget.evicted(),
            ..self.past
        };
        for replica in self.replicas.iter().flatten() {
            stats.held += replica.waiting.len();
            replica.counters.add_to(&mut stats);
        }
        stats
    }

    /// Memory of everything, both views included, bytes. O(runs and replicas).
    pub(super) fn bytes(&self, view: &View) -> usize {
        let replicas: usize = self.replicas.iter().flatten().map(TrackedReplica::bytes).sum();
        let assumption =
            |assumption: &Assumption| size_of::<Assumption>() + assumption.runs.len() * 4;
        let assumptions: usize = self.assumptions.iter().map(assumption).sum();
        replicas + assumptions + self.land.bytes() + view.bytes()
    }

    /// Asserts all invariants. O(size).
    pub(super) fn check(&mut self, view: &mut View) {
        view.check();
        let log = &mut Vec::new();
        let mut draft = ViewDraft { view, log, now: Nanos(0) };
        let forest = draft.forest(&mut self.land);
        forest.check();
        let mut names: StableMap<Spot, u16> = StableMap::default();
        for replica in self.replicas.iter().flatten() {
            replica.check(&forest, &mut names);
        }
        forest.check_names(&names);
        let num_blocks: usize = self.assumptions.iter().map(|known| known.num_blocks).sum();
        assert_eq!(num_blocks, self.num_assumed_blocks, "assumed blocks are counted");
        let mut shapes = BTreeMap::new();
        let replicas = self.replicas.iter().flatten();
        for shape in replicas.flat_map(TrackedReplica::shapes) {
            *shapes.entry(shape).or_insert(0) += 1;
        }
        assert_eq!(self.shapes, shapes, "shapes are counted");
    }
}

impl RestartState<View, ViewChange> for IndexWriter {
    fn begin_again(&mut self, view: &mut View, log: &mut Vec<ViewChange>) {
        self.restart(&mut ViewDraft { view, log, now: Nanos(0) });
    }
}

/// The hasher for blocks of this shape, made at its first use.
fn hasher<'a>(
    known: &'a mut BTreeMap<BlockShape, RouteHasher>,
    model: &str,
    shape: BlockShape,
) -> &'a RouteHasher {
    let identity = RouteIdentity { model, block_size: shape.size };
    let hasher = || RouteHasher::new(&identity).with_lookahead(shape.lookahead);
    known.entry(shape).or_insert_with(hasher)
}
