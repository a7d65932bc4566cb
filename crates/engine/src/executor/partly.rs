//! One prompt whose stored prefix is loaded in part, layer by layer.
//!
//! ```text
//! begin ── per layer: project ─ column sums ─► …chosen, loaded… ─► place ─ finish ── sample
//! ```
//!
//! What is kept of the prefix stands in consecutive slots from where the device's exact part ends,
//! another number of tokens in each layer, and the prompt's own tokens right behind it. Keys carry
//! the rotation of their true positions, so that nothing else changes.

use headstart_core::transfer::DevicePart;
use headstart_core::{BlockId, TokenId};
use headstart_scheduler::{Batch, Entry};

use super::{Buffers, CpuExecutor, Pass, Rotation};
use crate::cpu::attention::Heads;
use crate::cpu::attention::column_sums::{ProbedLayer, StoredKeys};
use crate::kv::{Probes, Section, SectionOf, StoredToken, TokenSlot};

/// State of a prompt between two layers.
pub struct Activations {
    batch: Batch,
    rotation: Rotation,
    buffers: Buffers,
}

impl Activations {
    /// Blocks for the whole prompt.
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.entry().blocks
    }

    fn entry(&self) -> &Entry {
        &self.batch.entries[0]
    }
}

/// The two stored pieces of a token.
#[derive(Clone, Copy)]
pub struct Pieces<'a> {
    /// Of a probe part.
    pub probes: StoredToken<'a>,
    /// Of a rest part.
    pub rest: StoredToken<'a>,
}

impl CpuExecutor {
    /// Embeds the tokens of `entry`, which are all that stand behind its stored prefix.
    #[must_use]
    pub fn begin(&self, entry: Entry) -> Activations {
        let positions = entry.start..entry.start + entry.tokens.len();
        let batch = Batch { entries: vec![entry], ..Batch::default() };
        let mut activations = Activations {
            rotation: Rotation::of_positions(&self.model.config, positions),
            buffers: Buffers::default(),
            batch,
        };
        activations.run(self, |buffers, pass| buffers.embed(pass));
        activations
    }

    /// Queries, keys and values of a layer.
    pub fn project(&self, activations: &mut Activations, layer: usize) {
        activations.run(self, |buffers, pass| buffers.project(pass, layer));
    }

    /// Attention of a layer's probes to each token of the stored prefix, whose keys are `stored`;
    /// the device holds the first `front` blocks.
    #[must_use]
    pub fn column_sums(
        &self,
        activations: &Activations,
        layer: usize,
        probes: &Probes,
        stored: &StoredKeys,
        front: usize,
    ) -> Vec<Vec<f32>> {
        let probed = ProbedLayer {
            probes,
            heads: Heads::of(&self.model.config),
            qkv: &activations.buffers.qkv,
            stored,
            front: (self.kv.layer(layer), &activations.blocks()[..front]),
        };
        probed.column_sums()
    }

    /// Puts tokens of the stored prefix into consecutive slots, from the first of block number
    /// `front` on.
    pub fn place<'a>(
        &mut self,
        activations: &Activations,
        layer: usize,
        front: usize,
        tokens: impl Iterator<Item = Pieces<'a>>,
    ) {
        let kv = self.kv.layer_mut(layer);
        let size = kv.block_size();
        let blocks = &activations.blocks()[front..];
        for (at, token) in tokens.enumerate() {
            let to = TokenSlot { block: blocks[at / size], slot: at % size };
            kv.place_token(Section::Probes, token.probes, to);
            kv.place_token(Section::Rest, token.rest, to);
        }
    }

    /// Puts whole blocks of a section of the stored prefix, each with its number, where they
    /// belong.
    pub fn place_blocks<'a>(
        &mut self,
        activations: &Activations,
        layer: usize,
        section: Section,
        blocks: impl Iterator<Item = (usize, &'a [u8])>,
    ) {
        let layer = self.kv.layer_mut(layer);
        let mut part = SectionOf { layer, section };
        for (number, bytes) in blocks {
            part.write(activations.blocks()[number], bytes);
        }
    }

    /// Computes the rest of a layer, in which `pruned` tokens of the prefix were left out.
    pub fn finish(&mut self, activations: &mut Activations, layer: usize, pruned: usize) {
        let Self { model, kv, .. } = self;
        let Activations { batch, rotation, buffers } = activations;
        let pass = Pass { model, batch, rotation };
        let kv = kv.layer_mut(layer);
        buffers.store(&pass, kv, |_| pruned);
        buffers.attend(&pass, layer, kv, |_| pruned);
        buffers.feed_forward(model, &model.layers[layer]);
    }

    /// The prompt's first token, and the logits that it was chosen by.
    #[must_use]
    pub fn sample(&self, activations: &Activations) -> (TokenId, Vec<f32>) {
        let logits = activations.buffers.logits(&self.model, &activations.batch);
        let entry = activations.entry();
        let position = entry.start + entry.tokens.len();
        let sampling = entry.sampling.unwrap_or_default();
        let token = self.model.generation.choose(&logits, &sampling, position);
        (token, logits)
    }

    /// Layers of the model.
    #[must_use]
    pub fn num_layers(&self) -> usize {
        self.model.layers.len()
    }
}

impl Activations {
    fn run(&mut self, executor: &CpuExecutor, task: impl FnOnce(&mut Buffers, &Pass<'_>)) {
        let pass = Pass { model: &executor.model, batch: &self.batch, rotation: &self.rotation };
        task(&mut self.buffers, &pass);
    }
}
