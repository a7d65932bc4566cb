//! Stored prefixes of which only what matters is loaded.
//!
//! ```text
//! Scheduler::take_partly ─► PartialPrefill ─ asks ─► PartTable ─ LoadPart ─► mover
//!                             │ layer by layer           ◄─ PartLoaded ──────┘
//! Scheduler::complete_partly ◄┘ first token
//! ```
//!
//! Partial loads run beside the engine's steps, so that no other sequence waits for a disk.
//! `headstart-cache` chooses the tokens and parts to load
//! ([`select`](headstart_selective::select()),
//! [`reads`](headstart_selective::reads())). The scheduler never commits blocks computed
//! behind such a prefix.
//!
//! Source: Chen et al., "IMPRESS: An Importance-Informed Multi-Tier Prefix KV Storage System for
//! Large Language Model Inference", FAST'25.

mod attended;
mod checks;
mod packing;
mod parts;
mod prefill;
mod tally;

use std::cell::RefCell;
use std::sync::Arc;

use headstart_cache::Policy;
use headstart_cache::tiers::PARTS_FROM;
use headstart_core::transfer::{BlockMover, PartName, Transfer, TransferReport};
use headstart_core::{BlockHash, Nanos, Tier};
use headstart_scheduler::{PartlyDone, PartlyWhen, Scheduler};
use headstart_selective::{GuardCounts, GuardOptions, PartCache, PartCounts, Selecting};

use crate::kv::{Dtype, Probes, Section, StoredToken};
use crate::{CpuExecutor, ModelConfig};

use checks::Checks;
use packing::{PackManager, PromptUnits};
use parts::{PartLoadReport, PartTable};
use prefill::{PartialPrefill, PrefillContext, PrefillProgress};
use tally::{DISK, PartialLoadEnd};

pub use checks::BarredPrefixes;
pub use packing::{PackCounts, PackingOptions};
pub use tally::PartialLoadTally;

/// Constructor of an eviction policy for a cache with the given number of slots.
pub type MakePolicy = Arc<dyn Fn(usize) -> Box<dyn Policy> + Send + Sync>;

/// Options of partial loading of stored prefixes.
#[derive(Clone)]
pub struct ImportanceConfig {
    /// The heads that tell what matters.
    pub probes: Probes,
    /// Selection of tokens from the probes' attention.
    pub selecting: Selecting,
    /// The shortest stored prefix for which it is done, tokens.
    pub least_tokens: usize,
    /// Rate and tolerances of the checks of changed outputs.
    pub guard: GuardOptions,
    /// Bytes of parts that stay in memory: on the device, and in host memory.
    pub kept_bytes: [u64; 2],
    /// Whether what stands in host memory takes a transfer to the device: where that is simulated.
    pub is_host_far: bool,
    /// Most prompts loaded in part at once, which bounds the memory of their parts. Others wait.
    pub most_at_once: usize,
    /// Packing of tokens that are read together; `None` turns it off.
    pub packing: Option<PackingOptions>,
    /// Eviction policy for parts in memory.
    pub policy: MakePolicy,
}

/// Sizes of what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartSizes {
    dtype: Dtype,
    block_size: usize,
    unit_tokens: usize,
    num_layers: usize,
    /// Bytes of a block of a probe part, and of a rest part.
    probe_block_bytes: usize,
    rest_block_bytes: usize,
}

impl PartSizes {
    fn new(
        probes: &Probes,
        config: &ModelConfig,
        dtype: Dtype,
        block_size: usize,
        unit_tokens: usize,
    ) -> Self {
        let parts = probes.part_bytes(config, dtype, block_size);
        Self {
            dtype,
            block_size,
            unit_tokens,
            num_layers: config.num_layers,
            probe_block_bytes: parts[0],
            rest_block_bytes: parts[config.num_layers],
        }
    }

    fn part_bytes(&self, kind: Section) -> u64 {
        (self.block_bytes(kind) * self.unit_tokens / self.block_size) as u64
    }

    fn block_bytes(&self, kind: Section) -> usize {
        match kind {
            Section::Probes => self.probe_block_bytes,
            Section::Rest => self.rest_block_bytes,
        }
    }

    /// A token of a part.
    fn stored<'a>(&self, kind: Section, part: &'a [u8], token: usize) -> StoredToken<'a> {
        let bytes = self.block_bytes(kind);
        let block = &part[token / self.block_size * bytes..][..bytes];
        StoredToken { block, slot: token % self.block_size }
    }

    /// Bytes of a unit's parts.
    fn unit_bytes(&self) -> u64 {
        let both = self.part_bytes(Section::Probes) + self.part_bytes(Section::Rest);
        both * self.num_layers as u64
    }

    fn part(&self, kind: Section, record: BlockHash, layer: usize) -> PartName {
        let part = match kind {
            Section::Probes => layer as u16,
            Section::Rest => self.rest_part(layer),
        };
        PartName { record, part }
    }

    fn rest_part(&self, layer: usize) -> u16 {
        (self.num_layers + layer) as u16
    }
}

/// Result of one turn.
pub(crate) struct Advance {
    /// Whether anything was computed.
    pub(crate) has_computed: bool,
    /// Whether a prompt has its first token, or cannot go on.
    pub(crate) has_ended: bool,
}

/// Prompts whose stored prefix is loaded in part.
pub(crate) struct ImportanceLoader {
    config: ImportanceConfig,
    shape: PartSizes,
    parts: PartTable,
    prefills: Vec<PartialPrefill>,
    packing: PackManager,
    pub(crate) checks: Checks,
    transfers: Vec<Transfer>,
    tally: PartialLoadTally,
}

impl ImportanceLoader {
    pub(crate) fn new(
        config: ImportanceConfig,
        model: &ModelConfig,
        dtype: Dtype,
        block_size: usize,
        unit_tokens: usize,
    ) -> Self {
        let shape = PartSizes::new(&config.probes, model, dtype, block_size, unit_tokens);
        let parts = parts_of(&config, &shape);
        let packing = PackManager::new(config.packing, model.num_layers);
        Self {
            config,
            shape,
            parts,
            prefills: Vec::new(),
            packing,
            checks: Checks::default(),
            transfers: Vec::new(),
            tally: PartialLoadTally::default(),
        }
    }

    /// Identity of the unit layout, as part of a block's identity. Units of equal name hold equal
    /// tokens only if their lengths are equal.
    pub(crate) fn layout(&self) -> String {
        let (layout, unit_tokens) = (self.config.probes.layout(), self.shape.unit_tokens);
        format!("{layout},unit:{unit_tokens}")
    }

    /// When the scheduler should choose it.
    pub(crate) fn when(&self) -> PartlyWhen {
        let share = self.config.probes.share();
        PartlyWhen {
            least_tokens: self.config.least_tokens,
            // With none at once, no prompt would ever be loaded in part.
            most_at_once: self.config.most_at_once.max(1),
            // The read amplification is not known beforehand, so the least one is assumed.
            share: headstart_selective::bound(share, self.config.selecting.ratio, 1.0),
        }
    }

    /// Takes note of what was moved, if it concerns parts; else gives it back.
    pub(crate) fn moved(
        &mut self,
        moved: TransferReport,
        scheduler: &mut Scheduler,
        now: Nanos,
    ) -> Option<TransferReport> {
        match moved {
            TransferReport::PartLoaded { id, result, ago, took } => {
                let report = PartLoadReport { id, result, ago, took };
                let ended = self.parts.loaded(report, now);
                // Parts load the disk too, so its speed is learned from them as well.
                if let (Some(ended), Some(tiers)) = (ended, scheduler.tiers_mut()) {
                    tiers.part_arrived(ended.bytes, ended.asked_at, ended.arrived);
                }
                None
            }
            TransferReport::Packed { id, result } => {
                self.packing.packed(id, result, now);
                self.make_room();
                None
            }
            TransferReport::FoundPacks { packs, .. } => {
                let packs = packs.into_iter();
                packs.for_each(|pack| self.packing.found(pack, now));
                self.make_room();
                None
            }
            TransferReport::Lost { tier, mut names } => {
                // Tiers know units only, so a lost pack ends here.
                names.retain(|&name| !self.lose(name));
                Some(TransferReport::Lost { tier, names })
            }
            other => Some(other),
        }
    }

    /// Drops the parts that packs replace, which frees memory for the packs' chunks.
    fn make_room(&mut self) {
        self.parts.supersede(self.packing.take_superseded());
    }

    /// Drops doomed packs that no prompt reads any more.
    fn drop_packs(&mut self) {
        let (packing, prefills) = (&mut self.packing, &self.prefills);
        // A prompt that has begun with a pack keeps it until its first token.
        let names = packing.take_dropped(|name| {
            let mut prefills = prefills.iter();
            prefills.any(|prefill| prefill.packs.contains(&name))
        });
        names.iter().for_each(|&name| self.parts.forget(name));
        if !names.is_empty() {
            let tier = PARTS_FROM;
            self.transfers.push(Transfer::Forget { tier, names });
        }
    }

    /// A record is lost, and none of its parts is kept. Whether it was a pack.
    fn lose(&mut self, name: BlockHash) -> bool {
        self.parts.forget(name);
        self.packing.lost(name)
    }

    /// Units were dropped from a tier: none of their parts is kept.
    pub(crate) fn forgotten(&mut self, tier: Tier, names: &[BlockHash]) {
        if tier == PARTS_FROM {
            names.iter().for_each(|&name| self.parts.forget(name));
        }
    }

    /// Takes over new prompts from the scheduler, then advances all of them.
    pub(crate) fn advance(
        &mut self,
        scheduler: &mut Scheduler,
        executor: &mut CpuExecutor,
        mover: &dyn BlockMover,
        now: Nanos,
    ) -> Advance {
        // This comes first, because the blocks of unwanted prompts are others' by now.
        self.forget_unwanted(scheduler);
        let begun = scheduler.take_partly();
        // A new prompt computes the first layer's projection at once.
        let mut advance = Advance { has_computed: !begun.is_empty(), has_ended: false };
        let asked_bytes = RefCell::new(Vec::new());
        let mut asked = |bytes, at| asked_bytes.borrow_mut().push((bytes, at));
        let mut all_asked: Vec<(u64, Nanos)> = Vec::new();
        // The prompt that asks for a part accounts for its bytes; others that need it do not.
        let mut note = |prefill: &mut PartialPrefill| {
            let asked = asked_bytes.take();
            let bytes = asked.iter().map(|(bytes, _)| *bytes);
            bytes.for_each(|bytes| prefill.tally.asked(bytes));
            all_asked.extend(asked);
        };
        let mut shared = PrefillContext {
            executor,
            mover,
            parts: &mut self.parts,
            probes: &self.config.probes,
            selecting: &self.config.selecting,
            shape: &self.shape,
            packs: &self.packing.packs,
            asked: &mut asked,
        };
        for partly in begun {
            let mut prefill = PartialPrefill::new(partly, &mut shared, now);
            note(&mut prefill);
            self.prefills.push(prefill);
        }
        let (mut ended, mut missing) = (Vec::new(), Vec::new());
        // All prompts are taken out; those that still wait are put back, in their order.
        for mut prefill in std::mem::take(&mut self.prefills) {
            let computed = prefill.computed;
            let progress = prefill.advance(&mut shared, now);
            note(&mut prefill);
            missing.append(&mut prefill.missing);
            advance.has_computed |= prefill.computed != computed;
            match progress {
                PrefillProgress::Waits => self.prefills.push(prefill),
                progress => {
                    prefill.let_go(shared.parts, usize::MAX);
                    ended.push((prefill, progress));
                }
            }
        }
        if let Some(tiers) = scheduler.tiers_mut() {
            let asked = all_asked.into_iter();
            asked.for_each(|(bytes, at)| tiers.part_asked(bytes, at));
        }
        // Prompts read the packs through `shared` until here, so none could go before.
        missing.into_iter().for_each(|name| self.packing.missing(name));
        for (prefill, progress) in ended {
            advance.has_ended = true;
            self.end(prefill, progress, scheduler, now);
        }
        advance
    }

    fn end(
        &mut self,
        prefill: PartialPrefill,
        progress: PrefillProgress,
        scheduler: &mut Scheduler,
        now: Nanos,
    ) {
        let PartialPrefill { seq, partly, tally, .. } = &prefill;
        let (seq, place) = (*seq, partly.place);
        match progress {
            PrefillProgress::Done { token, pruned, logits } => {
                self.tally.end(tally, PartialLoadEnd::Loaded);
                let units = PromptUnits { units: &partly.prefix, first: partly.first };
                let packs = prefill.packs.iter().copied();
                self.packing.used(units, partly.origin, &prefill.named, packs, now);
                // A prompt that lost no token is exact, so there is nothing to compare.
                if pruned.iter().any(|&pruned| pruned > 0) {
                    self.checks.consider(scheduler, seq, place, logits);
                }
                let done = PartlyDone {
                    pruned,
                    loaded_bytes: tally.loaded_bytes(),
                    whole_bytes: tally.whole_bytes,
                    disk_bytes: tally.bytes[DISK],
                    token,
                };
                scheduler.complete_partly(seq, place, done, now);
            }
            // Prompts that wait are not ended, so only failures get here.
            PrefillProgress::Waits | PrefillProgress::Failed => {
                self.tally.end(tally, PartialLoadEnd::Failed);
                scheduler.fail_partly(seq, place, now);
            }
        }
    }

    /// Lets go of prompts that were cancelled, preempted or are too late: their blocks are others'.
    fn forget_unwanted(&mut self, scheduler: &Scheduler) {
        let (parts, tally) = (&mut self.parts, &mut self.tally);
        self.prefills.retain_mut(|prefill| {
            let is_wanted = scheduler.is_partly(prefill.seq, prefill.partly.place);
            if !is_wanted {
                prefill.let_go(parts, usize::MAX);
                let ended = if scheduler.is_late_partly(prefill.seq) {
                    PartialLoadEnd::Late
                } else {
                    PartialLoadEnd::Left
                };
                tally.end(&prefill.tally, ended);
            }
            is_wanted
        });
    }

    /// Releases the parts of unwanted prompts, drops doomed packs and continues packing.
    pub(crate) fn tend(&mut self, scheduler: &Scheduler, now: Nanos) {
        self.forget_unwanted(scheduler);
        self.drop_packs();
        self.packing.tend(now, &mut self.transfers);
    }

    /// Takes the transfers queued since the last call.
    pub(crate) fn take_transfers(&mut self) -> Vec<Transfer> {
        let mut transfers = self.parts.take_transfers();
        transfers.append(&mut self.transfers);
        transfers
    }

    /// Reports cost and savings so far.
    pub(crate) fn report(&self, guard: GuardCounts) -> ImportanceReport {
        let (probes, rest) = self.parts.counts();
        ImportanceReport {
            tally: self.tally,
            guard,
            barred: self.checks.barred,
            packs: self.packing.counts(),
            probes,
            rest,
        }
    }

    pub(crate) fn check(&self) {
        self.parts.check();
    }
}

/// Cost and savings of partial loading.
#[derive(Clone, Debug)]
pub struct ImportanceReport {
    /// Sums over prompts.
    pub tally: PartialLoadTally,
    /// Results of prompts recomputed in full.
    pub guard: GuardCounts,
    /// Prefixes that were barred by it.
    pub barred: BarredPrefixes,
    /// Packs.
    pub packs: PackCounts,
    /// The cache of probe parts.
    pub probes: PartCounts,
    /// The cache of rest parts.
    pub rest: PartCounts,
}

/// Caches for parts of both kinds, which share the bytes as they share a unit's.
fn parts_of(config: &ImportanceConfig, shape: &PartSizes) -> PartTable {
    let share = config.probes.share();
    let cache = |kind: Section, share: f64| {
        let bytes = shape.part_bytes(kind).max(1) as f64;
        let count = |kept: u64| (kept as f64 * share / bytes) as usize;
        let levels = [
            (Tier::Device, count(config.kept_bytes[0])),
            (Tier::Host, count(config.kept_bytes[1])),
        ];
        PartCache::new(&levels, |slots| (config.policy)(slots))
    };
    let probes = cache(Section::Probes, share);
    let rest = cache(Section::Rest, 1.0 - share);
    PartTable::new(probes, rest, config.is_host_far)
}
