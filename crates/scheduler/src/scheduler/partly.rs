//! Prompts whose stored prefix is loaded in part, by importance.
//!
//! ```text
//! waiting ── plan ── held where it is stored ── admitted, blocks for all of it
//!    running ── handed to the engine ─┬─ computed ─► first token, decodes
//!                                     └─ not, or late ─► computed from the device's end
//! ```
//!
//! The engine chooses the parts to load layer by layer, outside of batches, so that no other prompt
//! waits for a disk. What is computed behind such a prefix is approximate: its blocks are never
//! committed, so nothing of it is matched, announced or stored.

use std::ops::Range;
use std::sync::Arc;

use headstart_cache::Tiers;
use headstart_cache::tiers::{PARTS_FROM, PartlyQuestion, Plan};
use headstart_core::cost::Work;
use headstart_core::{BlockHash, BlockHasher, IdentityDigest, Nanos, SeqId, TenantTag, TokenId};
use headstart_selective::Guard;

use super::fetch::StepAction;
use super::{Scheduler, entry};
use crate::batch::Entry;
use crate::sequence::{Fetch, Output, Sequence, Submission};

/// Weight of the newest in the share of bytes that is expected to be loaded.
const NEWEST: f64 = 0.2;

/// Decay of the observed share towards the initial one, per prompt that is not loaded in part.
const FORGOTTEN: f64 = 0.05;

/// When stored prefixes are loaded in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartlyWhen {
    /// The shortest such prefix, tokens.
    pub least_tokens: usize,
    /// Prompts that are taken over at once; others wait for their turn.
    pub most_at_once: usize,
    /// Share of the bytes that is expected to come from the disk, until that was seen.
    pub share: f64,
}

/// A prompt that was loaded in part, as one whose prefix is loaded as a whole, to compare the two.
#[derive(Clone, Debug)]
pub struct FullComputation {
    /// The prompt; it ends with its first token.
    pub new: Submission,
    /// Names its blocks.
    pub hasher: Arc<BlockHasher>,
    /// Its stored units from the first on.
    pub units: Vec<BlockHash>,
}

/// A prompt for the engine to take over: the parts of its prefix, and all behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct PartlyLoadedPrompt {
    /// Number of its admission. No sequence is taken over twice, but ids are unique only among
    /// those present: after a cancellation another one may have the id, with other blocks.
    pub place: u64,
    /// Its units up to the last on the disk.
    pub prefix: Vec<BlockHash>,
    /// The first of them that is needed from there.
    pub first: usize,
    /// Identity that they were computed with, and the tenant that owns them.
    pub origin: (IdentityDigest, TenantTag),
    /// Tokens of that one that the device has.
    pub skip: usize,
    /// Its stored tokens, by position.
    pub stored: Range<usize>,
    /// All tokens behind them, to be computed at once, and blocks for the whole prompt.
    pub entry: Entry,
}

impl PartlyLoadedPrompt {
    /// The units that are needed from the disk.
    #[must_use]
    pub fn units(&self) -> &[BlockHash] {
        &self.prefix[self.first..]
    }
}

/// Result of a prompt that the engine computed from a partly loaded prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct PartlyDone {
    /// Tokens that were left out in each layer.
    pub pruned: Arc<[u32]>,
    /// Bytes that were loaded, wherever from.
    pub loaded_bytes: u64,
    /// Bytes of the whole stored prefix.
    pub whole_bytes: u64,
    /// Bytes that came from the disk.
    pub disk_bytes: u64,
    /// Its first token.
    pub token: TokenId,
}

/// State of partial loads.
#[derive(Debug, Default)]
pub(super) struct PartlyLoads {
    when: Option<(PartlyWhen, Guard)>,
    /// The share that was expected at first.
    first_share: f64,
    most_rest: usize,
    begun: Vec<PartlyLoadedPrompt>,
}

impl PartlyLoads {
    /// Decides whether the stored prefix of a waiting sequence, whose other plan is `plan`, is
    /// loaded in part.
    pub(super) fn begin(
        &mut self,
        tiers: &mut Tiers,
        sequence: &Sequence,
        names: &[BlockHash],
        plan: &Plan,
        beside: Work,
    ) -> Option<Fetch> {
        // One that was told tokens as exact stays so; and none is taken over again.
        let is_exact = sequence.new.is_exact || sequence.started;
        let (when, guard) = self.when.as_mut().filter(|_| !is_exact)?;
        let question = PartlyQuestion {
            names,
            device_tokens: sequence.counted_on,
            prompt_tokens: sequence.tokens.len(),
            least_tokens: when.least_tokens,
            most_rest: self.most_rest,
            share: when.share,
            beside,
        };
        let Some(partly) = tiers.partly(&question, plan) else {
            // What is expected must be seen now and then, or it is believed for ever.
            when.share += FORGOTTEN * (self.first_share - when.share);
            return None;
        };
        if !guard.allows(&names[..partly.to]) {
            return None;
        }
        let hold = tiers.hold(names[partly.to - 1])?;
        Some(Fetch::Partly {
            from: partly.from,
            to: partly.to,
            hold,
            patience: tiers.partly_patience(&partly),
            deadline: None,
        })
    }
}

impl Scheduler {
    /// The same scheduler, which loads stored prefixes in part, but for those that `guard` bars.
    /// The engine must call [`Self::take_partly`].
    #[must_use]
    pub fn with_partly(mut self, when: PartlyWhen, guard: Guard) -> Self {
        self.partly.most_rest = self.config.max_batched_tokens;
        self.partly.first_share = when.share;
        self.partly.when = Some((when, guard));
        self
    }

    /// Returns the guard of partial loads, if they are on.
    pub fn guard_mut(&mut self) -> Option<&mut Guard> {
        self.partly.when.as_mut().map(|(_, guard)| guard)
    }

    /// The same, to look at.
    #[must_use]
    pub fn guard(&self) -> Option<&Guard> {
        self.partly.when.as_ref().map(|(_, guard)| guard)
    }

    /// A prompt that was taken over, as another one, called `id`, whose prefix is loaded as a whole
    /// and that ends with its first token.
    #[must_use]
    pub fn in_full(&self, seq: SeqId, place: u64, id: SeqId) -> Option<FullComputation> {
        let sequence = &self.running[self.partly_index(seq, place)?];
        let Fetch::Partly { to, .. } = sequence.fetch else {
            return None;
        };
        let unit_blocks = self.tiers.as_ref()?.config().unit_blocks;
        let mut units = sequence.units(unit_blocks);
        units.truncate(to);
        let new = Submission {
            id,
            prompt: sequence.tokens.clone(),
            max_tokens: 1,
            is_exact: true,
            ..sequence.new.clone()
        };
        Some(FullComputation { new, hasher: sequence.hasher.clone(), units })
    }

    /// Prompts that were to be taken over since the last call.
    pub fn take_partly(&mut self) -> Vec<PartlyLoadedPrompt> {
        std::mem::take(&mut self.partly.begun)
    }

    /// Whether a prompt that was taken over is still wanted, and its blocks its own.
    #[must_use]
    pub fn is_partly(&self, seq: SeqId, place: u64) -> bool {
        self.partly_index(seq, place).is_some()
    }

    /// Whether a prompt that was taken over is not wanted any more because its parts came too late.
    /// True as long as it is here, so that the engine can tell it from a prompt that left.
    #[must_use]
    pub fn is_late_partly(&self, seq: SeqId) -> bool {
        let mut sequences = self.waiting.iter().chain(&self.running);
        sequences.any(|sequence| sequence.new.id == seq && sequence.is_late)
    }

    fn partly_index(&self, seq: SeqId, place: u64) -> Option<usize> {
        let is_it = |sequence: &Sequence| {
            let is_begun = is_begun(sequence);
            sequence.new.id == seq && sequence.place == place && is_begun
        };
        self.running.iter().position(is_it)
    }

    /// A prompt that was taken over has its first token. Ignored where it is not wanted any more.
    pub fn complete_partly(&mut self, seq: SeqId, place: u64, done: PartlyDone, now: Nanos) {
        let Some(index) = self.partly_index(seq, place) else {
            return;
        };
        if let Some((when, _)) = &mut self.partly.when {
            let share = done.disk_bytes as f64 / done.whole_bytes.max(1) as f64;
            when.share += NEWEST * (share.min(1.0) - when.share);
        }
        let unit_tokens = self.tiers.as_ref().map_or(0, Tiers::unit_tokens);
        // Where nothing was left out it is what a full computation gives.
        let is_exact = done.pruned.iter().all(|&pruned| pruned == 0);
        let sequence = &mut self.running[index];
        if let Fetch::Partly { to, .. } = sequence.fetch {
            let end = to * unit_tokens;
            // The engine takes over only a prefix that the device lacks, so `end` lies behind
            // `computed`.
            let tokens = end - sequence.computed;
            sequence.note_loaded(PARTS_FROM, tokens, end);
            if !is_exact {
                self.outputs.push(Output::Partly {
                    seq,
                    tokens,
                    loaded_bytes: done.loaded_bytes,
                    whole_bytes: done.whole_bytes,
                });
            }
        }
        Self::release_loads(self.tiers.as_mut(), sequence);
        sequence.pruned = (!is_exact).then_some(done.pruned);
        // The engine computed the whole prompt, outside of batches.
        sequence.computed = sequence.tokens.len();
        self.commit_full_blocks(index, now);
        self.append(index, done.token, now);
    }

    /// A prompt that was taken over cannot be computed in part: its turn comes again, for all of
    /// it.
    pub fn fail_partly(&mut self, seq: SeqId, place: u64, now: Nanos) {
        if let Some(index) = self.partly_index(seq, place) {
            self.send_back(index, now);
        }
    }

    /// A running sequence waits again, the next to be admitted, and its prefix is loaded as a
    /// whole, as that of each that was started.
    pub(super) fn send_back(&mut self, index: usize, now: Nanos) {
        let mut sequence = self.remove(index);
        Self::release_loads(self.tiers.as_mut(), &mut sequence);
        sequence.fetch = Fetch::Open;
        // Its committed blocks stay cached: the next admission matches those that are still
        // resident.
        sequence.computed = 0;
        sequence.pruned = None;
        let lease = sequence.lease.take().expect("a running sequence holds a lease");
        self.cache.release(lease, &sequence.access(now));
        self.waiting.push_front(sequence);
    }

    /// Decides the turn of a running sequence whose prefix is loaded in part; may begin the load.
    pub(super) fn take_parts(&mut self, index: usize, now: Nanos) -> StepAction {
        let sequence = &self.running[index];
        let Fetch::Partly { from, to, hold, patience, deadline } = sequence.fetch else {
            return StepAction::Compute(usize::MAX);
        };
        let Some(tiers) = &self.tiers else {
            return StepAction::Compute(usize::MAX);
        };
        let stored = sequence.computed..to * tiers.unit_tokens();
        // The device may have got all of it since that was decided.
        if stored.is_empty() {
            Self::release_loads(self.tiers.as_mut(), &mut self.running[index]);
            return StepAction::Compute(usize::MAX);
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            self.running[index].is_late = true;
            self.send_back(index, now);
            return StepAction::SentBack;
        }
        let most = self.partly.when.as_ref();
        let most = most.map_or(0, |(when, _)| when.most_at_once);
        let begun = self.running.iter().filter(|sequence| is_begun(sequence)).count();
        if deadline.is_some() || begun >= most {
            return StepAction::Wait;
        }
        let (unit_tokens, unit_blocks) = (tiers.unit_tokens(), tiers.config().unit_blocks);
        // The device may hold more of the prefix than when the load was planned.
        let from = from.max(stored.start / unit_tokens);
        let remaining = self.running[index].remaining();
        // The engine computes the whole prompt at once, so it needs all blocks now.
        if !self.make_room(index, remaining, now) {
            return StepAction::Preempted;
        }
        let sequence = &mut self.running[index];
        let prefix = sequence.units(unit_blocks)[..to].to_vec();
        let last = sequence.unit(to - 1, unit_blocks);
        let whole = entry(sequence, remaining);
        let entry =
            Entry { start: stored.end, tokens: sequence.tokens[stored.end..].to_vec(), ..whole };
        sequence.fetch = Fetch::Partly { from, to, hold, patience, deadline: Some(now + patience) };
        self.partly.begun.push(PartlyLoadedPrompt {
            place: sequence.place,
            origin: (last.identity, last.tenant),
            prefix,
            first: from,
            skip: stored.start - from * unit_tokens,
            stored,
            entry,
        });
        StepAction::Wait
    }
}

/// Whether the engine has taken a sequence over.
fn is_begun(sequence: &Sequence) -> bool {
    matches!(sequence.fetch, Fetch::Partly { deadline: Some(_), .. })
}
