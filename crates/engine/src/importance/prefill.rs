//! One prompt whose stored prefix is loaded in part: from its probes' keys, layer by layer, to its
//! first token.
//!
//! ```text
//! layer l    project ─ probe parts? ─ column sums ─ select ─ rest parts? ─ place ─ finish
//! layer l+1             probe parts ◄─ asked for ─────┘ they come while l is computed
//! ```
//!
//! Source: Chen et al., "IMPRESS", FAST'25. What is kept is attended to and nothing else: the same
//! prompt gives the same answer whatever parts were in memory, and, where tokens are chosen rather
//! than whole parts, however its prefix is laid out.

use std::collections::BTreeSet;
use std::sync::Arc;

use headstart_cache::tiers::FetchState;
use headstart_core::transfer::{BlockMover, PartName};
use headstart_core::{BlockHash, Nanos, SeqId, TokenId};
use headstart_scheduler::PartlyLoadedPrompt;
use headstart_selective::{Cover, Packs, PartRead, Selecting, Wish, fit, reads, select};

use super::PartSizes;
use super::attended::AttendedTokens;
use super::parts::PartTable;
use super::tally::PartialLoadTally;
use crate::CpuExecutor;
use crate::cpu::attention::column_sums::StoredKeys;
use crate::executor::partly::{Activations, Pieces};
use crate::kv::{Probes, Section};

/// A prompt whose stored prefix is being loaded in part.
pub(super) struct PartialPrefill {
    pub(super) seq: SeqId,
    pub(super) partly: PartlyLoadedPrompt,
    activations: Activations,
    layer: usize,
    /// Number of computations so far, two per layer.
    pub(super) computed: usize,
    /// Whether a pack was gone: the layer's parts are units'.
    avoids_packs: bool,
    stage: Stage,
    /// Parts that it asked for, with the layer that needs them.
    held: Vec<(usize, Section, PartName)>,
    pruned: Vec<u32>,
    /// Tokens named in each layer, counted from the first unit's first; none where all were kept.
    pub(super) named: Vec<Vec<u32>>,
    /// Packs that could serve it, and those that were not there when they were read.
    pub(super) packs: BTreeSet<BlockHash>,
    pub(super) missing: Vec<BlockHash>,
    pub(super) tally: PartialLoadTally,
}

/// Parts that a layer waits for.
enum Stage {
    /// Probe parts; this number of them, from the first on, is available.
    Probes(usize),
    /// The parts of `reads`; the first `here` of them are available.
    Rest { chosen: AttendedTokens, reads: Vec<PartRead>, here: usize },
}

/// Progress of a prompt.
pub(super) enum PrefillProgress {
    /// It waits for parts.
    Waits,
    /// It cannot go on: something did not come.
    Failed,
    /// It has its first token.
    Done { token: TokenId, logits: Vec<f32>, pruned: Arc<[u32]> },
}

/// State shared by all prompts.
pub(super) struct PrefillContext<'a> {
    pub(super) executor: &'a mut CpuExecutor,
    pub(super) mover: &'a dyn BlockMover,
    pub(super) parts: &'a mut PartTable,
    pub(super) probes: &'a Probes,
    pub(super) selecting: &'a Selecting,
    pub(super) shape: &'a PartSizes,
    pub(super) packs: &'a Packs,
    /// Told of bytes that are asked for.
    pub(super) asked: &'a mut dyn FnMut(u64, Nanos),
}

impl PrefillContext<'_> {
    /// Whether nothing is left out, so that there is nothing to choose.
    fn wants_all(&self) -> bool {
        self.selecting.ratio >= 1.0
    }
}

impl PartialPrefill {
    /// Begins with a prompt: its first probes are asked for.
    pub(super) fn new(
        partly: PartlyLoadedPrompt,
        shared: &mut PrefillContext<'_>,
        now: Nanos,
    ) -> Self {
        let activations = shared.executor.begin(partly.entry.clone());
        let mut prefill = Self {
            seq: partly.entry.seq,
            activations,
            partly,
            layer: 0,
            computed: 0,
            avoids_packs: false,
            stage: Stage::Probes(0),
            held: Vec::new(),
            pruned: Vec::new(),
            named: Vec::new(),
            packs: BTreeSet::new(),
            missing: Vec::new(),
            tally: PartialLoadTally::default(),
        };
        prefill.tally.whole_bytes = prefill.units() as u64 * shared.shape.unit_bytes();
        shared.executor.project(&mut prefill.activations, 0);
        prefill.ask_ahead(0, shared, now);
        prefill
    }

    /// Asks for what a layer needs whatever will be chosen: its probes' keys, or all of it.
    fn ask_ahead(&mut self, layer: usize, shared: &mut PrefillContext<'_>, now: Nanos) {
        if layer == shared.executor.num_layers() {
            return;
        }
        for index in 0..self.units() {
            let unit = self.partly.units()[index];
            self.ask(layer, Section::Probes, probe_part(unit, layer), shared, now);
            // Nothing will be chosen, so the rest parts need not wait for the probes.
            if shared.wants_all() {
                let rest = shared.shape.part(Section::Rest, unit, layer);
                self.ask(layer, Section::Rest, rest, shared, now);
            }
        }
    }

    fn units(&self) -> usize {
        self.partly.units().len()
    }

    /// Computes layers until the prompt is done, waits for a part, or fails.
    pub(super) fn advance(
        &mut self,
        shared: &mut PrefillContext<'_>,
        now: Nanos,
    ) -> PrefillProgress {
        loop {
            match self.wait(shared.parts) {
                FetchState::Here => {}
                FetchState::Loading => return PrefillProgress::Waits,
                // A pack may be dropped at any time; units hold the same tokens.
                FetchState::Gone if self.is_without_packs(shared, now) => continue,
                FetchState::Gone => return PrefillProgress::Failed,
            }
            // After a finished layer the next one waits for its probe parts; `choose` sets its own.
            let stage = std::mem::replace(&mut self.stage, Stage::Probes(0));
            match stage {
                Stage::Probes(_) => self.choose(shared, now),
                Stage::Rest { chosen, reads, .. } => {
                    self.finish(&chosen, &reads, shared, now);
                    if self.layer == shared.executor.num_layers() {
                        let (token, logits) = shared.executor.sample(&self.activations);
                        let pruned = std::mem::take(&mut self.pruned).into();
                        return PrefillProgress::Done { token, logits, pruned };
                    }
                    shared.executor.project(&mut self.activations, self.layer);
                }
            }
        }
    }

    /// Whether what the stage waits for is there.
    fn wait(&mut self, parts: &PartTable) -> FetchState {
        let (layer, units) = (self.layer, self.partly.units());
        let (here, names): (&mut usize, Box<dyn Iterator<Item = PartName>>) = match &mut self.stage
        {
            Stage::Probes(here) => {
                let names = units.iter().map(move |&unit| probe_part(unit, layer));
                (here, Box::new(names))
            }
            Stage::Rest { here, reads, .. } => (here, Box::new(reads.iter().map(|read| read.part))),
        };
        // Held parts stay available, so those found before are not looked at again.
        for name in names.skip(*here) {
            match parts.look(name) {
                FetchState::Here => *here += 1,
                other => return other,
            }
        }
        FetchState::Here
    }

    fn ask(
        &mut self,
        layer: usize,
        kind: Section,
        name: PartName,
        shared: &mut PrefillContext<'_>,
        now: Nanos,
    ) {
        let bytes = shared.shape.part_bytes(kind);
        let (from, is_new) = shared.parts.ask(kind, name, bytes);
        if is_new {
            (shared.asked)(bytes, now);
        }
        self.held.push((layer, kind, name));
        self.tally.loaded(kind, from, bytes);
    }

    /// The layer's probes are here: what they look at is asked for, and what the next layer needs.
    fn choose(&mut self, shared: &mut PrefillContext<'_>, now: Nanos) {
        self.computed += 1;
        let chosen = if shared.wants_all() {
            AttendedTokens::everything(self.partly.skip, self.partly.stored.len())
        } else {
            self.select(shared)
        };
        self.begin_rest(chosen, shared, now);
        // The next layer's parts come while this one is computed.
        self.ask_ahead(self.layer + 1, shared, now);
    }

    /// Asks for the parts that hold the chosen tokens.
    fn begin_rest(&mut self, chosen: AttendedTokens, shared: &mut PrefillContext<'_>, now: Nanos) {
        let reads = self.reads(&chosen, shared);
        // Otherwise the rest parts were asked for ahead, with the probe parts.
        if !shared.wants_all() {
            for read in &reads {
                self.ask(self.layer, Section::Rest, read.part, shared, now);
            }
        }
        self.stage = Stage::Rest { chosen, reads, here: 0 };
    }

    /// A part did not come. Whether it may have been a pack's, and the layer now waits for units
    /// alone: packs may go at any time.
    fn is_without_packs(&mut self, shared: &mut PrefillContext<'_>, now: Nanos) -> bool {
        let units = self.partly.units();
        let is_pack = |read: &PartRead| !units.contains(&read.part.record);
        // Probe parts are units' parts, so no pack is missing.
        let Stage::Rest { reads, .. } = &self.stage else {
            return false;
        };
        if self.avoids_packs || !reads.iter().any(is_pack) {
            return false;
        }
        let gone = reads
            .iter()
            .filter(|read| is_pack(read) && shared.parts.look(read.part) == FetchState::Gone);
        self.missing.extend(gone.map(|read| read.part.record));
        self.avoids_packs = true;
        // Whole parts were chosen among chunks that are gone.
        let chosen = self.select(shared);
        // Parts of the first choice stay held until the layer is done.
        self.begin_rest(chosen, shared, now);
        true
    }

    /// Selects tokens by the attention of the layer's probes, and fits them to whole parts if so
    /// configured.
    fn select(&mut self, shared: &PrefillContext<'_>) -> AttendedTokens {
        let shape = shared.shape;
        let skipped = self.partly.skip / shape.block_size * shape.probe_block_bytes;
        let mut stored = StoredKeys::default();
        for (index, &unit) in self.partly.units().iter().enumerate() {
            let bytes = at_hand(shared.mover, probe_part(unit, self.layer));
            // The device holds the first tokens of the first unit, whose keys are in `front`.
            let from = if index == 0 { skipped } else { 0 };
            stored.push(&bytes[from..], shape.dtype);
        }
        let front = self.partly.stored.start / shape.block_size;
        let probes = shared.probes;
        let executor = &*shared.executor;
        let sums = executor.column_sums(&self.activations, self.layer, probes, &stored, front);
        let sums: Vec<&[f32]> = sums.iter().map(Vec::as_slice).collect();
        let queries = self.partly.entry.tokens.len();
        let selection = select(shared.selecting, &sums, queries);
        let selection = selection.behind(self.partly.skip);
        if selection.is_all || !shared.selecting.whole_parts {
            return AttendedTokens::named(selection);
        }
        let wish =
            Wish { selection: &selection, importances: &sums, spared: shared.selecting.spared };
        let packs = !self.avoids_packs;
        // Nothing counts as cached: memory must not change which tokens are kept.
        let fitted = self.ask_cover(shared, packs, &|_| false, |cover| fit(cover, &wish));
        AttendedTokens { kept: fitted.tokens, missed: fitted.missed, selection }
    }

    /// Returns the reads of the parts that hold the kept tokens.
    fn reads(&mut self, chosen: &AttendedTokens, shared: &PrefillContext<'_>) -> Vec<PartRead> {
        let parts = &*shared.parts;
        let is_cached = |name| parts.is_kept(name);
        // Units hold all tokens without gaps, so packs are of use for a part of them only.
        let packs = !chosen.selection.is_all && !self.avoids_packs;
        self.ask_cover(shared, packs, &is_cached, |cover| reads(cover, &chosen.kept))
    }

    /// Asks about the parts that there are for this layer.
    fn ask_cover<T>(
        &mut self,
        shared: &PrefillContext<'_>,
        reads_packs: bool,
        is_cached: &dyn Fn(PartName) -> bool,
        ask: impl FnOnce(&Cover<'_>) -> T,
    ) -> T {
        let part = shared.shape.rest_part(self.layer);
        let packs =
            if reads_packs { shared.packs.find(self.partly.units(), part) } else { Vec::new() };
        self.packs.extend(packs.iter().map(|pack| pack.name));
        ask(&Cover {
            units: self.partly.units(),
            skip: self.partly.skip,
            unit_tokens: shared.shape.unit_tokens,
            part,
            packs: &packs,
            is_cached,
        })
    }

    /// All that the layer needs is here.
    fn finish(
        &mut self,
        chosen: &AttendedTokens,
        reads: &[PartRead],
        shared: &mut PrefillContext<'_>,
        now: Nanos,
    ) {
        // Without gaps, whole blocks can be copied instead of single tokens.
        let is_all = chosen.kept.len() == self.partly.stored.len();
        if is_all {
            self.place_all(shared);
        } else {
            self.place(reads, shared);
        }
        let pruned = self.partly.stored.len() - chosen.kept.len();
        shared.executor.finish(&mut self.activations, self.layer, pruned);
        self.pruned.push(pruned as u32);
        let unit_tokens = shared.shape.unit_tokens;
        let named = &chosen.selection.tokens;
        let share = |read: &PartRead| mattered(read, named) as f32 / unit_tokens as f32;
        let used: Vec<_> = reads.iter().map(|read| (read.part, share(read))).collect();
        shared.parts.used(Section::Rest, &used, now);
        let units = self.partly.units().iter();
        // All tokens of a probe part are read, whatever is chosen.
        let probes = units.map(|&unit| (probe_part(unit, self.layer), 1.0));
        let probes: Vec<_> = probes.collect();
        shared.parts.used(Section::Probes, &probes, now);
        self.tally.layer(&chosen.selection, reads.len(), unit_tokens);
        self.tally.missed += chosen.missed;
        // A selection of all tokens says nothing about which ones matter.
        self.named.push(if chosen.selection.is_all { Vec::new() } else { named.clone() });
        self.layer += 1;
        self.computed += 1;
        self.avoids_packs = false;
        // This comes last, because the layer's parts are read until it is computed.
        self.let_go(shared.parts, self.layer);
    }

    /// Puts the selected tokens into consecutive slots, in order.
    fn place(&self, reads: &[PartRead], shared: &mut PrefillContext<'_>) {
        let (shape, mover) = (shared.shape, shared.mover);
        let mut tokens: Vec<(u32, usize, u16)> = Vec::new();
        for (index, read) in reads.iter().enumerate() {
            tokens.extend(read.tokens.iter().map(|&(token, place)| (token, index, place)));
        }
        // Reads are part by part, but slots follow the order of tokens.
        tokens.sort_unstable();
        let parts: Vec<&[u8]> = reads.iter().map(|read| at_hand(mover, read.part)).collect();
        let units = self.partly.units().iter();
        let probes: Vec<&[u8]> =
            units.map(|&unit| at_hand(mover, probe_part(unit, self.layer))).collect();
        let pieces = tokens.iter().map(|&(token, index, place)| {
            let (unit, token) =
                (token as usize / shape.unit_tokens, token as usize % shape.unit_tokens);
            Pieces {
                probes: shape.stored(Section::Probes, probes[unit], token),
                rest: shape.stored(Section::Rest, parts[index], place.into()),
            }
        });
        let front = self.partly.stored.start / shape.block_size;
        shared.executor.place(&self.activations, self.layer, front, pieces);
    }

    /// Puts all blocks where they belong.
    fn place_all(&self, shared: &mut PrefillContext<'_>) {
        let (shape, mover) = (shared.shape, shared.mover);
        let unit_blocks = shape.unit_tokens / shape.block_size;
        let skip = self.partly.skip / shape.block_size;
        let first = self.partly.stored.start / shape.block_size - skip;
        for section in [Section::Probes, Section::Rest] {
            let (bytes, layer) = (shape.block_bytes(section), self.layer);
            let units = self.partly.units().iter().enumerate();
            let blocks = units.flat_map(|(index, &unit)| {
                let blocks = at_hand(mover, shape.part(section, unit, layer))
                    .chunks_exact(bytes)
                    .enumerate();
                blocks.map(move |(block, bytes)| (index * unit_blocks + block, bytes))
            });
            // The device has these blocks of the first unit already.
            let blocks = blocks.skip(skip);
            let blocks = blocks.map(|(block, bytes)| (first + block, bytes));
            shared.executor.place_blocks(&self.activations, self.layer, section, blocks);
        }
    }

    /// Gives back the parts that it holds for layers before `layer`.
    pub(super) fn let_go(&mut self, parts: &mut PartTable, layer: usize) {
        self.held.retain(|&(needed, kind, name)| {
            let is_done = needed < layer;
            if is_done {
                parts.let_go(kind, name);
            }
            !is_done
        });
    }
}

/// Counts the named tokens of a part.
fn mattered(read: &PartRead, named: &[u32]) -> usize {
    let is_named = |(token, _): &&(u32, u16)| named.binary_search(token).is_ok();
    read.tokens.iter().filter(is_named).count()
}

fn probe_part(unit: BlockHash, layer: usize) -> PartName {
    PartName { record: unit, part: layer as u16 }
}

fn at_hand(mover: &dyn BlockMover, name: PartName) -> &[u8] {
    let bytes = mover.loaded_part(name);
    bytes.expect("held and loaded parts are readable")
}
