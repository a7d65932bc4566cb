//! What loading prefixes in part has cost and saved.

use headstart_cache::importance::Selection;
use headstart_core::Tier;

use super::parts::Kind;

/// Sums over prompts, or of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Prompts.
    pub prompts: u64,
    /// Prompts that could not go on in part: a part did not come.
    pub failed: u64,
    /// Bytes of their stored prefixes.
    pub whole_bytes: u64,
    /// Bytes of probe parts, wherever from.
    pub probe_bytes: u64,
    /// Bytes of the other parts, wherever from.
    pub rest_bytes: u64,
    /// Parts that were on the device, in host memory, and on the disk.
    pub parts: [u64; 3],
    /// Bytes of these.
    pub bytes: [u64; 3],
    /// Tokens that were selected, over all layers.
    pub selected_tokens: u64,
    /// Tokens of the parts that were read for them.
    pub read_tokens: u64,
    /// Layers.
    pub layers: u64,
    /// Layers in which everything was loaded, because the probes did not agree.
    pub full_layers: u64,
    /// Sum of the probes' agreement, over layers.
    pub agreement: f64,
}

impl Tally {
    /// Bytes that were loaded, wherever from.
    #[must_use]
    pub fn loaded_bytes(&self) -> u64 {
        self.probe_bytes + self.rest_bytes
    }

    /// Tokens read for each that was selected; 1 where nothing was.
    #[must_use]
    pub fn read_amplification(&self) -> f64 {
        match self.selected_tokens {
            0 => 1.0,
            selected => self.read_tokens as f64 / selected as f64,
        }
    }

    pub(super) fn loaded(&mut self, kind: Kind, from: Tier, bytes: u64) {
        match kind {
            Kind::Probes => self.probe_bytes += bytes,
            Kind::Rest => self.rest_bytes += bytes,
        }
        let place = match from {
            Tier::Device => 0,
            Tier::Host => 1,
            _ => 2,
        };
        self.parts[place] += 1;
        self.bytes[place] += bytes;
    }

    pub(super) fn layer(&mut self, selection: &Selection, read_tokens: usize) {
        self.selected_tokens += selection.tokens.len() as u64;
        self.read_tokens += read_tokens as u64;
        self.layers += 1;
        self.full_layers += u64::from(selection.is_all);
        self.agreement += selection.agreement;
    }

    /// Adds another one's sums.
    pub fn add(&mut self, other: &Self) {
        self.prompts += other.prompts;
        self.failed += other.failed;
        self.whole_bytes += other.whole_bytes;
        self.probe_bytes += other.probe_bytes;
        self.rest_bytes += other.rest_bytes;
        for place in 0..self.parts.len() {
            self.parts[place] += other.parts[place];
            self.bytes[place] += other.bytes[place];
        }
        self.selected_tokens += other.selected_tokens;
        self.read_tokens += other.read_tokens;
        self.layers += other.layers;
        self.full_layers += other.full_layers;
        self.agreement += other.agreement;
    }
}
