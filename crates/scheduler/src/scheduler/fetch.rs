//! Prompts whose keys and values are in lower tiers: when they wait, what they load, what they
//! compute meanwhile.
//!
//! ```text
//! waiting ── plan ─┬─ nothing to load ───────────────────────────────► admitted
//!                  ├─ the front is computed, the tail loaded ────────► admitted, computes
//!                  └─ all of it is loaded ── first unit loaded ──────► admitted, copies
//!                                         └─ deadline ───────────────► admitted, computes
//! ```
//!
//! Loads begin while a prompt waits in the queue, so that what is loaded when its turn comes was
//! promoted ahead of need. Where the device has meanwhile lost what was counted on, it is decided
//! again. Whatever does not come in time, or not at all, is computed.

use std::time::Duration;

use headstart_cache::tiers::{Claim, EndedUnit, FetchState};
use headstart_cache::{Lease, Tiers};
use headstart_core::cost::Work;
use headstart_core::transfer::{Transfer, TransferReport};
use headstart_core::{Access, EngineModel, Nanos};

use super::Scheduler;
use crate::batch::{Arrival, Batch};
use crate::sequence::{Fetch, Output, Sequence};

/// Waiting prompts for which loads are begun: more would load what waits longest to be used.
const LOADS_AHEAD: usize = 16;

/// Pause of who waits for a load that is late, and cannot be computed yet either.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Action of a running sequence in the current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepAction {
    /// It computes at most this number of tokens.
    Compute(usize),
    /// It waits for a load.
    Wait,
    /// It had to make room for others, as the youngest: none stands behind it.
    Preempted,
    /// It waits for another admission because its load is late. Those behind it run on.
    SentBack,
}

impl Scheduler {
    /// The same with lower tiers.
    ///
    /// # Panics
    /// When block sizes differ.
    #[must_use]
    pub fn with_tiers(mut self, tiers: Tiers) -> Self {
        let block_tokens = tiers.config().block_tokens;
        assert_eq!(block_tokens, self.config.block_size, "one block size");
        assert!(self.counter.is_none(), "counted steps know no waiting for loads");
        self.tiers = Some(tiers);
        self
    }

    /// The lower tiers, if there are any.
    #[must_use]
    pub fn tiers(&self) -> Option<&Tiers> {
        self.tiers.as_ref()
    }

    /// The lower tiers, to tell them of parts.
    pub fn tiers_mut(&mut self) -> Option<&mut Tiers> {
        self.tiers.as_mut()
    }

    /// From now on computing costs this, compared with loading.
    pub fn set_engine(&mut self, engine: EngineModel) {
        if let Some(tiers) = &mut self.tiers {
            tiers.set_engine(engine);
        }
    }

    /// Takes note of what was moved.
    pub fn moved(&mut self, moved: TransferReport, now: Nanos) {
        if let Some(tiers) = &mut self.tiers {
            tiers.moved(moved, now);
        }
        self.announce_tiers();
    }

    /// Takes the transfers to make. Call it after each call that changes something. The next step
    /// overwrites blocks that are to be stored: read each part of them before the step reaches it.
    pub fn take_transfers(&mut self) -> Vec<Transfer> {
        let tiers = self.tiers.as_mut();
        tiers.map_or_else(Vec::new, Tiers::take_transfers)
    }

    /// The earliest deadline of the loads that sequences wait for, if any. An empty batch before it
    /// means that there is nothing to do until then, or until something was moved.
    #[must_use]
    pub fn waits_until(&self, now: Nanos) -> Option<Nanos> {
        let sequences = self.waiting.iter().chain(&self.running);
        let deadlines = sequences.filter_map(|sequence| match sequence.fetch {
            Fetch::Units { deadline, .. } => Some(deadline),
            Fetch::Partly { deadline, .. } => deadline,
            Fetch::Open | Fetch::Nothing => None,
        });
        // One that is over waits for something else: room, or others that wait.
        let to_come = |deadline: Nanos| {
            if deadline > now { deadline } else { now + LOOK_AGAIN }
        };
        deadlines.map(to_come).min()
    }

    /// Decides what is loaded for those that wait near the front of the queue.
    pub(super) fn plan_loads(&mut self, now: Nanos) {
        if self.tiers.is_none() {
            return;
        }
        let beside = self.beside();
        for index in 0..self.waiting.len().min(LOADS_AHEAD) {
            if self.waiting[index].fetch == Fetch::Open {
                let fetch = self.begin_loads(index, beside, now);
                self.waiting[index].fetch = fetch;
            }
        }
    }

    /// Decides it for one whose turn has come before anybody looked, or again where the device has
    /// lost since what was counted on. Whether something was decided.
    pub(super) fn plan_late(&mut self, index: usize, now: Nanos) -> bool {
        let sequence = &self.waiting[index];
        let is_open = sequence.fetch == Fetch::Open;
        // The plan counts on the device's prefix. If part of it was evicted, the plan has a gap.
        if self.tiers.is_none() || !(is_open || self.on_device(sequence) < sequence.counted_on) {
            return false;
        }
        let fetch = self.begin_loads(index, self.beside(), now);
        // The new plan claims what is loaded already before the old claims are released.
        Self::release_loads(self.tiers.as_mut(), &mut self.waiting[index]);
        self.waiting[index].fetch = fetch;
        true
    }

    /// Tokens of a prompt that the device holds.
    fn on_device(&self, sequence: &Sequence) -> usize {
        self.cache.overlap(sequence.matchable()) * self.config.block_size
    }

    /// Returns the work of the decoding sequences in each step; nothing without lower tiers.
    fn beside(&self) -> Work {
        let Some(tiers) = &self.tiers else {
            return Work::default();
        };
        // One remaining token is mostly the one sampled last: such a sequence decodes.
        let decoding = self.running.iter().filter(|sequence| sequence.remaining() == 1);
        let (count, kv_tokens) = decoding.fold((0, 0), |(count, kv_tokens), sequence| {
            (count + 1, kv_tokens + sequence.tokens.len())
        });
        tiers.config().engine.cost.decode(count, kv_tokens)
    }

    fn begin_loads(&mut self, index: usize, beside: Work, now: Nanos) -> Fetch {
        let device_tokens = self.on_device(&self.waiting[index]);
        self.waiting[index].counted_on = device_tokens;
        let (Some(tiers), sequence) = (&mut self.tiers, &self.waiting[index]) else {
            return Fetch::Nothing;
        };
        let unit_blocks = tiers.config().unit_blocks;
        let names = sequence.units(unit_blocks);
        let plan = tiers.plan(&names, device_tokens, sequence.tokens.len(), beside);
        if let Some(fetch) = self.partly.begin(tiers, sequence, &names, &plan, beside) {
            return fetch;
        }
        if plan.is_empty() {
            return Fetch::Nothing;
        }
        let is_plain = plan.from * tiers.unit_tokens() <= device_tokens;
        let mut fetch = |number| tiers.fetch(&sequence.unit(number, unit_blocks), now);
        let units = plan.from..plan.to;
        let claims = if is_plain {
            units.map(&mut fetch).collect()
        } else {
            // The front is computed meanwhile: the end is asked for first.
            let claims: Vec<Option<Claim>> = units.rev().map(&mut fetch).collect();
            claims.into_iter().rev().collect()
        };
        Fetch::Units { next: plan.from, claims, deadline: tiers.deadline(&plan, now) }
    }

    /// Whether a waiting sequence would have something to do if it were admitted.
    pub(super) fn is_ready(
        tiers: Option<&Tiers>,
        cache: &headstart_cache::PrefixCache,
        sequence: &Sequence,
        now: Nanos,
    ) -> bool {
        let Fetch::Units { next, claims, deadline } = &sequence.fetch else {
            return true;
        };
        // Without a claim on the next unit its tokens are computed, which needs no wait.
        let (Some(tiers), Some(Some(claim))) = (tiers, claims.front()) else {
            return true;
        };
        if now >= *deadline || tiers.fetched(*claim) != FetchState::Loading {
            return true;
        }
        // Whether anything before it is to be computed: a block is there with all before it.
        let before = next * tiers.config().unit_blocks;
        let last = &sequence.hashes[before.saturating_sub(1)..before];
        cache.overlap(last) < last.len()
    }

    /// Copies what has arrived for `running[index]`, and says what it may compute.
    pub(super) fn take_arrivals(
        &mut self,
        index: usize,
        batch: &mut Batch,
        now: Nanos,
    ) -> StepAction {
        let first = batch.arrivals.len();
        loop {
            let sequence = &self.running[index];
            let (next, claims, deadline) = match &sequence.fetch {
                Fetch::Units { next, claims, deadline } => (next, claims, deadline),
                Fetch::Partly { .. } => return self.take_parts(index, now),
                Fetch::Open | Fetch::Nothing => return StepAction::Compute(usize::MAX),
            };
            let (Some(tiers), Some(&claim)) = (&self.tiers, claims.front()) else {
                // All units were copied or given up; the rest of the prompt is computed.
                self.running[index].fetch = Fetch::Nothing;
                continue;
            };
            let unit_tokens = tiers.unit_tokens();
            let (start, end) = (next * unit_tokens, (next + 1) * unit_tokens);
            let state = claim.map_or(FetchState::Gone, |claim| tiers.fetched(claim));
            let is_awaited = state == FetchState::Loading && now < *deadline;
            // Tokens in front of the unit are computed up to its start, and no further: the unit
            // brings the rest.
            if sequence.computed < start && (is_awaited || state == FetchState::Here) {
                return StepAction::Compute(start - sequence.computed);
            }
            // The device may have got the unit's tokens since the plan; then it is not copied.
            match claim.filter(|_| state == FetchState::Here && sequence.computed < end) {
                Some(claim) => {
                    if !self.make_room(index, end - sequence.computed, now) {
                        // Its blocks went with its lease, so the units that it took in this call
                        // have no destination.
                        self.drop_arrivals(batch, first);
                        return StepAction::Preempted;
                    }
                    let arrival = self.arrive(index, claim, end);
                    batch.arrivals.push(arrival);
                }
                None if is_awaited && sequence.computed < end => return StepAction::Wait,
                // It is computed, or was.
                None => self.give_up_unit(index),
            }
        }
    }

    /// The unit that is next is not needed, or computed.
    fn give_up_unit(&mut self, index: usize) {
        let claim = next_claim(&mut self.running[index]);
        if let (Some(tiers), Some(claim)) = (&mut self.tiers, claim) {
            tiers.release(claim);
        }
    }

    /// The unit that is next will be in its blocks, up to token `end`, when the step is computed.
    fn arrive(&mut self, index: usize, claim: Claim, end: usize) -> Arrival {
        let block_size = self.config.block_size;
        let unit_blocks = self.tiers.as_ref().map_or(1, |tiers| tiers.config().unit_blocks);
        let sequence = &mut self.running[index];
        let seq = sequence.new.id;
        let first = end / block_size - unit_blocks;
        // Blocks before this one are shared with others, and right.
        let own = sequence.lease_mut().committed().max(first);
        let blocks = &sequence.lease_mut().blocks()[own..end / block_size];
        let numbered = (own - first..).zip(blocks.iter().copied());
        let arrival = Arrival { seq, claim, end, blocks: numbered.collect() };
        // The unit counts as computed now: each part of the step copies it before computing there.
        sequence.computed = end;
        let _ = next_claim(sequence);
        arrival
    }

    /// Releases the units that arrived for a preempted sequence, without copying them.
    pub(super) fn drop_arrivals(&mut self, batch: &mut Batch, first: usize) {
        for arrival in batch.arrivals.drain(first..) {
            if let Some(tiers) = &mut self.tiers {
                tiers.release(arrival.claim);
            }
        }
    }

    /// Makes the blocks of arrived units matchable, and releases the units.
    pub(super) fn complete_arrivals(&mut self, batch: &Batch, now: Nanos) {
        for arrival in &batch.arrivals {
            let is_it = |sequence: &Sequence| sequence.new.id == arrival.seq;
            let index = self.running.iter().position(is_it);
            // No cancellation may come between `schedule` and `complete`.
            let index = index.expect("a loading sequence runs");
            self.commit_full_blocks(index, now);
            let Some(tiers) = &mut self.tiers else { return };
            // The source is read before the release, which may drop the load and its source.
            if let Some(from) = tiers.source(arrival.claim) {
                let tokens = arrival.blocks.len() * self.config.block_size;
                self.running[index].note_loaded(from, tokens, arrival.end);
            }
            tiers.release(arrival.claim);
        }
    }

    /// Says once what was loaded for a sequence that has its first token now.
    pub(super) fn tell_loads(&mut self, index: usize) {
        let sequence = &mut self.running[index];
        let seq = sequence.new.id;
        for (from, tokens) in sequence.take_loaded() {
            self.outputs.push(Output::Loaded { seq, tokens, from });
        }
    }

    /// Nothing more is loaded for a sequence that leaves.
    pub(super) fn release_loads(tiers: Option<&mut Tiers>, sequence: &mut Sequence) {
        let fetch = std::mem::replace(&mut sequence.fetch, Fetch::Nothing);
        let Some(tiers) = tiers else { return };
        match fetch {
            Fetch::Units { claims, .. } => {
                let claims = claims.into_iter().flatten();
                claims.for_each(|claim| tiers.release(claim));
            }
            Fetch::Partly { hold, .. } => tiers.let_go(hold),
            Fetch::Open | Fetch::Nothing => {}
        }
    }

    /// Offers the units among the blocks at `positions`, which are now all committed, to the tiers.
    pub(super) fn offer_units(&mut self, index: usize, first: usize, full: usize, access: &Access) {
        let (Some(tiers), sequence) = (&mut self.tiers, &self.running[index]) else {
            return;
        };
        let unit_blocks = tiers.config().unit_blocks;
        let Some(lease) = &sequence.lease else { return };
        // Both divisions round down: units that became complete, without one whose end is not
        // computed yet.
        for number in first / unit_blocks..full / unit_blocks {
            let start = number * unit_blocks;
            let blocks = &lease.blocks()[start..start + unit_blocks];
            let access = Access { offset: start as u32, ..*access };
            let shown = sequence.shown(number, unit_blocks);
            self.lower.shown(&shown, tiers.holding(shown.unit.name));
            tiers.committed(shown.unit, blocks, &access);
        }
    }

    /// A sequence found its first blocks on the device: another use of their units.
    pub(super) fn offer_matched(&mut self, sequence: &Sequence, now: Nanos) {
        let (Some(tiers), Some(lease)) = (&mut self.tiers, &sequence.lease) else {
            return;
        };
        let unit_blocks = tiers.config().unit_blocks;
        for number in 0..lease.matched() / unit_blocks {
            let start = number * unit_blocks;
            let blocks = &lease.blocks()[start..start + unit_blocks];
            let access = Access { offset: start as u32, ..sequence.access(now) };
            tiers.offered(sequence.unit(number, unit_blocks), blocks, &access);
        }
        self.announce_tiers();
    }

    /// A sequence ends that has computed the blocks of `lease`: its prompt and answer were used
    /// once.
    pub(super) fn use_units(&mut self, sequence: &Sequence, lease: &Lease, access: &Access) {
        let Some(tiers) = &mut self.tiers else { return };
        let unit_blocks = tiers.config().unit_blocks;
        tiers.used(&sequence.units(unit_blocks), access);
        let units = lease.blocks()[..lease.committed()].chunks_exact(unit_blocks).enumerate();
        let units = units
            .map(|(number, blocks)| EndedUnit { unit: sequence.unit(number, unit_blocks), blocks });
        tiers.ended(units, access);
        self.announce_tiers();
    }
}

/// Takes the claim on the unit that is next off a sequence; the one behind it is next then.
fn next_claim(sequence: &mut Sequence) -> Option<Claim> {
    let Fetch::Units { next, claims, .. } = &mut sequence.fetch else {
        return None;
    };
    *next += 1;
    claims.pop_front().flatten()
}
