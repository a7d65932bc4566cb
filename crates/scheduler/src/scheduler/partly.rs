//! Prompts whose stored prefix is loaded in part, by importance.
//!
//! ```text
//! waiting ── plan ── held where it is stored ── admitted, blocks for all of it
//!    running ── told to whoever computes ─┬─ computed ─► first token, decodes
//!                                         └─ not, or late ─► computed from the device's end
//! ```
//!
//! Which parts are loaded is chosen layer by layer by whoever computes, outside of batches, so that
//! nobody else waits for a disk. What is computed behind such a prefix is approximate: its blocks
//! are never committed, so nothing of it is matched, announced or stored.

use std::ops::Range;
use std::sync::Arc;

use headstart_cache::Tiers;
use headstart_cache::importance::Guard;
use headstart_cache::tiers::{PARTS_FROM, PartlyQuestion, Plan};
use headstart_core::cost::Work;
use headstart_core::{BlockHash, IdentityDigest, Nanos, SeqId, TenantTag, TokenId};

use super::fetch::Turn;
use super::{Scheduler, entry};
use crate::batch::Entry;
use crate::sequence::{Fetch, NewSequence, Output, Sequence};

/// Weight of the newest in the share of bytes that is expected to be loaded.
const NEWEST: f64 = 0.2;

/// When stored prefixes are loaded in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartlyWhen {
    /// The shortest such prefix, tokens.
    pub least_tokens: usize,
    /// Share of the bytes that is expected to be loaded, until that was seen.
    pub share: f64,
}

/// A prompt that whoever computes is to take over: the parts of its prefix, and all behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Partly {
    /// Which admission of its sequence this is: another one has other blocks.
    pub place: u64,
    /// Its units up to the last on the disk.
    pub prefix: Vec<BlockHash>,
    /// The first of them that is needed from there.
    pub first: usize,
    /// How they were computed, and whose they are.
    pub origin: (IdentityDigest, TenantTag),
    /// Tokens of that one that the device has.
    pub skip: usize,
    /// Its stored tokens, by position.
    pub stored: Range<usize>,
    /// All tokens behind them, to be computed at once, and blocks for the whole prompt.
    pub entry: Entry,
}

impl Partly {
    /// The units that are needed from the disk.
    #[must_use]
    pub fn units(&self) -> &[BlockHash] {
        &self.prefix[self.first..]
    }
}

/// How a prompt that was taken over was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct PartlyDone {
    /// Tokens that were left out in each layer.
    pub pruned: Arc<[u32]>,
    /// Bytes that were loaded, wherever from.
    pub loaded_bytes: u64,
    /// Bytes of the whole stored prefix.
    pub whole_bytes: u64,
    /// Its first token.
    pub token: TokenId,
}

/// What the scheduler knows of loading in part.
#[derive(Debug, Default)]
pub(super) struct PartlyLoads {
    when: Option<(PartlyWhen, Guard)>,
    most_rest: usize,
    begun: Vec<Partly>,
}

impl PartlyLoads {
    /// Decides whether the stored prefix of a waiting sequence, whose other plan is `plan`, is
    /// loaded in part.
    pub(super) fn begin(
        &self,
        tiers: &mut Tiers,
        sequence: &Sequence,
        names: &[BlockHash],
        (plan, beside): (&Plan, Work),
        now: Nanos,
    ) -> Option<Fetch> {
        let (when, guard) = self.when.as_ref().filter(|_| !sequence.new.is_exact)?;
        let question = PartlyQuestion {
            names,
            device_tokens: sequence.counted_on,
            prompt_tokens: sequence.tokens.len(),
            least_tokens: when.least_tokens,
            most_rest: self.most_rest,
            share: when.share,
            beside,
        };
        let partly = tiers.partly(&question, plan)?;
        if !guard.allows(&names[..partly.to]) {
            return None;
        }
        let hold = tiers.hold(names[partly.to - 1])?;
        Some(Fetch::Partly {
            from: partly.from,
            to: partly.to,
            hold,
            deadline: tiers.partly_until(&partly, now),
            is_begun: false,
        })
    }
}

impl Scheduler {
    /// The same, which loads stored prefixes in part, but for those that `guard` bars. Whoever
    /// computes must ask for [`Self::take_partly`].
    #[must_use]
    pub fn with_partly(mut self, when: PartlyWhen, guard: Guard) -> Self {
        self.partly.most_rest = self.config.max_batched_tokens;
        self.partly.when = Some((when, guard));
        self
    }

    /// Who watches over what loading in part changes, where that is done.
    pub fn guard_mut(&mut self) -> Option<&mut Guard> {
        self.partly.when.as_mut().map(|(_, guard)| guard)
    }

    /// The same, to look at.
    #[must_use]
    pub fn guard(&self) -> Option<&Guard> {
        self.partly.when.as_ref().map(|(_, guard)| guard)
    }

    /// A prompt that was taken over, as another one, called `id`, whose prefix is loaded as a whole
    /// and that ends with its first token; and its stored units from the first on.
    #[must_use]
    pub fn in_full(
        &self,
        seq: SeqId,
        place: u64,
        id: SeqId,
    ) -> Option<(NewSequence, Vec<BlockHash>)> {
        let sequence = &self.running[self.partly_index(seq, place)?];
        let Fetch::Partly { to, .. } = sequence.fetch else {
            return None;
        };
        let unit_blocks = self.tiers.as_ref()?.config().unit_blocks;
        let mut units = sequence.units(unit_blocks);
        units.truncate(to);
        let new = NewSequence {
            id,
            prompt: sequence.tokens.clone(),
            max_tokens: 1,
            is_exact: true,
            ..sequence.new.clone()
        };
        Some((new, units))
    }

    /// Prompts that were to be taken over since the last call.
    pub fn take_partly(&mut self) -> Vec<Partly> {
        std::mem::take(&mut self.partly.begun)
    }

    /// Whether a prompt that was taken over is still wanted, and its blocks its own.
    #[must_use]
    pub fn is_partly(&self, seq: SeqId, place: u64) -> bool {
        self.partly_index(seq, place).is_some()
    }

    fn partly_index(&self, seq: SeqId, place: u64) -> Option<usize> {
        let is_it = |sequence: &Sequence| {
            let is_begun = matches!(sequence.fetch, Fetch::Partly { is_begun: true, .. });
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
            let share = done.loaded_bytes as f64 / done.whole_bytes.max(1) as f64;
            when.share += NEWEST * (share.min(1.0) - when.share);
        }
        let unit_tokens = self.tiers.as_ref().map_or(0, Tiers::unit_tokens);
        // Where nothing was left out it is what a full computation gives.
        let is_exact = done.pruned.iter().all(|&pruned| pruned == 0);
        let sequence = &mut self.running[index];
        if let Fetch::Partly { to, .. } = sequence.fetch {
            let end = to * unit_tokens;
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
        sequence.computed = sequence.tokens.len();
        self.commit_full_blocks(index, now);
        self.append(index, done.token, now);
    }

    /// A prompt that was taken over cannot be computed in part: all of it is, from where the
    /// device's part ends.
    pub fn fail_partly(&mut self, seq: SeqId, place: u64) {
        if let Some(index) = self.partly_index(seq, place) {
            Self::release_loads(self.tiers.as_mut(), &mut self.running[index]);
        }
    }

    /// What a running sequence does whose prefix is loaded in part.
    pub(super) fn take_parts(&mut self, index: usize, now: Nanos) -> Turn {
        let sequence = &self.running[index];
        let Fetch::Partly {
            from,
            to,
            hold,
            deadline,
            is_begun,
        } = sequence.fetch
        else {
            return Turn::Compute(usize::MAX);
        };
        let Some(tiers) = &self.tiers else {
            return Turn::Compute(usize::MAX);
        };
        let stored = sequence.computed..to * tiers.unit_tokens();
        // The device may have got all of it since that was decided.
        if now >= deadline || stored.is_empty() {
            Self::release_loads(self.tiers.as_mut(), &mut self.running[index]);
            return Turn::Compute(usize::MAX);
        }
        if is_begun {
            return Turn::Wait;
        }
        let (unit_tokens, unit_blocks) = (tiers.unit_tokens(), tiers.config().unit_blocks);
        let from = from.max(stored.start / unit_tokens);
        let remaining = self.running[index].remaining();
        if !self.make_room(index, remaining, now) {
            return Turn::Preempted;
        }
        let sequence = &mut self.running[index];
        let prefix = sequence.units(unit_blocks)[..to].to_vec();
        let last = sequence.unit(to - 1, unit_blocks);
        let whole = entry(sequence, remaining);
        let entry = Entry {
            start: stored.end,
            tokens: sequence.tokens[stored.end..].to_vec(),
            ..whole
        };
        sequence.fetch = Fetch::Partly {
            from,
            to,
            hold,
            deadline,
            is_begun: true,
        };
        self.partly.begun.push(Partly {
            place: sequence.place,
            origin: (last.identity, last.tenant),
            prefix,
            first: from,
            skip: stored.start - from * unit_tokens,
            stored,
            entry,
        });
        Turn::Wait
    }
}
