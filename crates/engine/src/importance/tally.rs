//! Cost and savings of partial loading, summed over prompts.

use headstart_core::Tier;
use headstart_selective::Selection;

use crate::kv::Section;

/// Places of [`PartialLoadTally::parts`].
pub(super) const DISK: usize = 2;
const SHARED: usize = 3;

/// Sums over partly loaded prompts, or of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartialLoadTally {
    /// Prompts that have their first token.
    pub prompts: u64,
    /// Prompts that could not go on in part: a part did not come.
    pub failed: u64,
    /// Prompts whose parts came too late: they are loaded as a whole, or computed.
    pub late: u64,
    /// Prompts that were cancelled meanwhile, or had to make room for others.
    pub left: u64,
    /// Bytes of their stored prefixes.
    pub whole_bytes: u64,
    /// Bytes of probe parts, wherever from.
    pub probe_bytes: u64,
    /// Bytes of the other parts, wherever from.
    pub rest_bytes: u64,
    /// Parts that were on the device, in host memory, and on the disk; and those already available
    /// or being loaded, for this prompt or another one.
    pub parts: [u64; 4],
    /// Bytes of these: those of the disk were each read once.
    pub bytes: [u64; 4],
    /// Tokens that were selected, over all layers.
    pub selected_tokens: u64,
    /// Tokens of the rest parts that they were taken from, wherever these were.
    pub read_tokens: u64,
    /// These parts.
    pub chunks: u64,
    /// Layers.
    pub layers: u64,
    /// Layers in which everything was loaded, because the probes did not agree.
    pub full_layers: u64,
    /// Sum of the probes' agreement, over layers.
    pub agreement: f64,
    /// Sum over layers of the share by which the whole parts that were kept get less attention than
    /// what the probes name.
    pub missed: f64,
}

/// End of a prompt's partial loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartialLoadEnd {
    /// With its first token.
    Loaded,
    /// A part did not come.
    Failed,
    /// It took too long.
    Late,
    /// It was cancelled, or had to make room for others.
    Left,
}

impl PartialLoadTally {
    /// Bytes that were loaded, wherever from.
    #[must_use]
    pub fn loaded_bytes(&self) -> u64 {
        self.probe_bytes + self.rest_bytes
    }

    /// Tokens of the parts that were used for each that was selected, wherever these parts were; 1
    /// where nothing was selected.
    #[must_use]
    pub fn read_amplification(&self) -> f64 {
        match self.selected_tokens {
            0 => 1.0,
            selected => self.read_tokens as f64 / selected as f64,
        }
    }

    /// Adds a prompt: what was loaded for it, and where it has no token nothing of what it wanted.
    pub(super) fn end(&mut self, tally: &Self, ended: PartialLoadEnd) {
        let mut tally = *tally;
        let outcome = match ended {
            PartialLoadEnd::Loaded => &mut tally.prompts,
            PartialLoadEnd::Failed => &mut tally.failed,
            PartialLoadEnd::Late => &mut tally.late,
            PartialLoadEnd::Left => &mut tally.left,
        };
        *outcome += 1;
        // Without a token nothing was saved, so its prefix is not compared with the loads.
        if ended != PartialLoadEnd::Loaded {
            tally.whole_bytes = 0;
        }
        self.add(&tally);
    }

    /// Counts a needed part. One that no cache keeps counts as available or being loaded, until
    /// [`Self::asked`] counts it as read from the disk.
    pub(super) fn loaded(&mut self, kind: Section, from: Tier, bytes: u64) {
        match kind {
            Section::Probes => self.probe_bytes += bytes,
            Section::Rest => self.rest_bytes += bytes,
        }
        let place = match from {
            Tier::Device => 0,
            Tier::Host => 1,
            _ => SHARED,
        };
        self.parts[place] += 1;
        self.bytes[place] += bytes;
    }

    /// One of the parts that are needed is asked for from the disk.
    pub(super) fn asked(&mut self, bytes: u64) {
        // Cannot underflow: `loaded` has counted each of these as shared.
        self.parts[SHARED] -= 1;
        self.bytes[SHARED] -= bytes;
        self.parts[DISK] += 1;
        self.bytes[DISK] += bytes;
    }

    /// Counts a layer that used `chunks` chunks of `chunk_tokens` tokens each.
    pub(super) fn layer(&mut self, selection: &Selection, chunks: usize, chunk_tokens: usize) {
        self.selected_tokens += selection.tokens.len() as u64;
        self.read_tokens += (chunks * chunk_tokens) as u64;
        self.chunks += chunks as u64;
        self.layers += 1;
        self.full_layers += u64::from(selection.is_all);
        self.agreement += selection.agreement;
    }

    /// Returns the difference to an earlier tally, `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        since.sum(before, |mine, others| mine - others);
        since.agreement = self.agreement - before.agreement;
        since.missed = self.missed - before.missed;
        since
    }

    /// Adds another one's sums.
    pub fn add(&mut self, other: &Self) {
        self.sum(other, |mine, others| mine + others);
        self.agreement += other.agreement;
        self.missed += other.missed;
    }

    fn sum(&mut self, other: &Self, op: impl Fn(u64, u64) -> u64) {
        // Copied, because `counts` borrows mutably.
        let mut other = *other;
        let counts = self.counts().zip(other.counts());
        counts.for_each(|(mine, others)| *mine = op(*mine, *others));
    }

    fn counts(&mut self) -> impl Iterator<Item = &mut u64> {
        let counts = [
            &mut self.prompts,
            &mut self.failed,
            &mut self.late,
            &mut self.left,
            &mut self.whole_bytes,
            &mut self.probe_bytes,
            &mut self.rest_bytes,
            &mut self.selected_tokens,
            &mut self.read_tokens,
            &mut self.chunks,
            &mut self.layers,
            &mut self.full_layers,
        ];
        counts.into_iter().chain(&mut self.parts).chain(&mut self.bytes)
    }
}
