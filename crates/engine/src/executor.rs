//! A batch through the layers.
//!
//! All entries' tokens are rows of one activation matrix `[rows, hidden]`: linear layers see no
//! sequences, only attention does.

mod beside;
pub mod partly;
mod rotation;

use std::sync::Arc;

use headstart_core::{SeqId, TokenId};
use headstart_scheduler::{Batch, Copies, Entry, Executor};

use crate::cpu::attention::{Heads, LayerAttention, Queries};
use crate::cpu::head::rows_dot;
use crate::cpu::linear::Write;
use crate::cpu::ops;
use crate::kv::{Dtype, KvPool, KvStorageFormat, LayerKv, Probes};
use crate::model::{DecoderLayer, LanguageModel};

pub use rotation::Rotation;

/// Computes batches with one model into one KV pool.
pub struct CpuExecutor {
    model: Arc<LanguageModel>,
    kv: KvPool,
    buffers: Buffers,
    /// A sequence whose logits are wanted, and these.
    watched: Option<(SeqId, Vec<f32>)>,
}

/// Activations, kept between steps so that a step allocates next to nothing.
#[derive(Default)]
struct Buffers {
    stream: Vec<f32>,  // [rows, hidden]
    normed: Vec<f32>,  // [rows, hidden]
    qkv: Vec<f32>,     // [rows, (num_heads + 2 * num_kv_heads) * head_dim]
    staging: Vec<f32>, // attention's own
    heads: Vec<f32>,   // [rows, num_heads * head_dim]
    gate_up: Vec<f32>, // [rows, 2 * intermediate]
    gated: Vec<f32>,   // [rows, intermediate]
}

impl CpuExecutor {
    /// With a pool of `num_blocks` blocks of `block_size` tokens, stored as `dtype`.
    #[must_use]
    pub fn new(
        model: Arc<LanguageModel>,
        dtype: Dtype,
        num_blocks: usize,
        block_size: usize,
    ) -> Self {
        let kv = KvPool::new(&model.config, dtype, num_blocks, block_size);
        Self { model, kv, buffers: Buffers::default(), watched: None }
    }

    /// The same, whose pool lower tiers store as `stored`.
    #[must_use]
    pub fn with_stored(self, stored: KvStorageFormat) -> Self {
        let kv = self.kv.with_stored(stored);
        Self { kv, ..self }
    }

    /// The same, whose pool lower tiers store with the keys of `probes` apart.
    #[must_use]
    pub fn with_probes(self, probes: &Probes) -> Self {
        let kv = self.kv.with_probes(probes);
        Self { kv, ..self }
    }

    /// Keeps the logits that the next token of `seq` is chosen by.
    pub fn watch(&mut self, seq: SeqId) {
        self.watched = Some((seq, Vec::new()));
    }

    /// The logits that were kept, once; `None` where there are none yet.
    pub fn take_watched(&mut self) -> Option<Vec<f32>> {
        let (_, logits) = self.watched.take_if(|(_, logits)| !logits.is_empty())?;
        Some(logits)
    }

    /// Its keys and values.
    pub fn pool_mut(&mut self) -> &mut KvPool {
        &mut self.kv
    }

    /// Computes `batch` and returns the logits of the last token of every entry that samples,
    /// `[entries, vocab]`.
    pub fn logits(&mut self, batch: &Batch) -> Vec<f32> {
        self.logits_and_copies(batch, None)
    }

    /// The same, and each layer is copied as `copies` say before it is computed.
    pub fn logits_and_copies(&mut self, batch: &Batch, copies: Option<Copies<'_>>) -> Vec<f32> {
        let Self { model, kv, buffers, .. } = self;
        let config = &model.config;
        let positions = batch.entries.iter();
        let positions = positions.flat_map(|entry| entry.start..entry.start + entry.tokens.len());
        let rotation = Rotation::of_positions(config, positions);
        let pass = Pass { model, batch, rotation: &rotation };
        buffers.embed(&pass);
        beside::compute(kv.layers_mut(), copies, |index, kv| {
            buffers.attention(&pass, index, kv);
            buffers.feed_forward(model, &model.layers[index]);
        });
        buffers.logits(model, batch)
    }
}

impl Executor for CpuExecutor {
    fn execute(&mut self, batch: &Batch, copies: Option<Copies<'_>>) -> Vec<TokenId> {
        let logits = self.logits_and_copies(batch, copies);
        let rows = logits.chunks_exact(self.model.config.vocab);
        // Rows of logits are in the order of the entries that sample, and of no others.
        if let Some((watched, kept)) = &mut self.watched {
            let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
            let found = sampled.zip(rows.clone()).find(|(entry, _)| entry.seq == *watched);
            kept.extend(found.into_iter().flat_map(|(_, row)| row));
        }
        let generation = &self.model.generation;
        // The position seeds the draw, so that the rest of the batch does not change the token.
        let asked = batch.entries.iter().filter_map(|entry| {
            entry.sampling.map(|sampling| (entry.start + entry.tokens.len(), sampling))
        });
        let choose = |((position, sampling), logits): ((usize, _), &[f32])| {
            generation.choose(logits, &sampling, position)
        };
        asked.zip(rows).map(choose).collect()
    }

    fn copy(&mut self, mut copies: Copies<'_>) {
        beside::copy(self.kv.layers_mut(), &mut copies);
    }
}

/// Inputs that all layers of one pass share.
struct Pass<'a> {
    model: &'a LanguageModel,
    batch: &'a Batch,
    rotation: &'a Rotation,
}

impl Buffers {
    fn embed(&mut self, pass: &Pass<'_>) {
        let hidden = pass.model.config.hidden;
        let mut scratch = Vec::new();
        self.stream.clear();
        for &token in pass.batch.entries.iter().flat_map(|entry| &entry.tokens) {
            let row = token as usize * hidden..(token as usize + 1) * hidden;
            let row = pass.model.embedding.widen(row, &mut scratch);
            self.stream.extend_from_slice(row);
        }
        self.normed.resize(self.stream.len(), 0.0);
    }

    /// Adds the attention of `layer` to the stream, writing the batch's keys and values.
    fn attention(&mut self, pass: &Pass<'_>, index: usize, kv: &mut LayerKv) {
        self.project(pass, index);
        // Keys and values come before attention: the tokens of a prompt also attend to each other.
        self.store(pass, kv, |entry| entry.pruned_in(index));
        self.attend(pass, index, kv, |entry| entry.pruned_in(index));
    }

    /// Queries, keys and values of the stream's rows, normed and rotated.
    fn project(&mut self, pass: &Pass<'_>, index: usize) {
        let (config, layer) = (&pass.model.config, &pass.model.layers[index]);
        let rows = self.stream.len() / config.hidden;
        let q_stride = layer.qkv.n();
        ops::rms_norm(&self.stream, &layer.attention_norm, config.rms_eps, &mut self.normed);
        self.qkv.resize(rows * q_stride, 0.0);
        layer.qkv.apply(&self.normed, &mut self.qkv, Write::Replace);
        let q_width = config.num_heads * config.head_dim;
        let kv_width = config.num_kv_heads * config.head_dim;
        for (row, qkv) in self.qkv.chunks_exact_mut(q_stride).enumerate() {
            let (queries, rest) = qkv.split_at_mut(q_width);
            let (keys, _) = rest.split_at_mut(kv_width);
            // Qwen3 norms each head before its rotation; values are neither normed nor rotated.
            if let Some((q_norm, k_norm)) = &layer.head_norms {
                ops::rms_norm_heads(queries, q_norm, config.rms_eps);
                ops::rms_norm_heads(keys, k_norm, config.rms_eps);
            }
            pass.rotation.apply(row, queries);
            pass.rotation.apply(row, keys);
        }
    }

    /// Writes keys and values to their blocks, as many slots further to the front as tokens before
    /// them were `pruned` in this layer.
    fn store(&self, pass: &Pass<'_>, kv: &mut LayerKv, pruned: impl Fn(&Entry) -> usize) {
        let config = &pass.model.config;
        let q_width = config.num_heads * config.head_dim;
        let kv_width = config.num_kv_heads * config.head_dim;
        let block_size = kv.block_size();
        let slots = pass.batch.entries.iter().flat_map(|entry| {
            // Tokens are pruned before `start` only, so this cannot underflow.
            let start = entry.start - pruned(entry);
            let slots = start..start + entry.tokens.len();
            slots.map(move |at| (entry.blocks[at / block_size], at % block_size))
        });
        let rows = self.qkv.chunks_exact(q_width + 2 * kv_width);
        for (qkv, (block, slot)) in rows.zip(slots) {
            let (keys, values) = qkv[q_width..].split_at(kv_width);
            kv.write(block, slot, keys, values);
        }
    }

    /// Adds what the rows' queries find in their blocks to the stream.
    fn attend(
        &mut self,
        pass: &Pass<'_>,
        index: usize,
        kv: &LayerKv,
        pruned: impl Fn(&Entry) -> usize,
    ) {
        let (config, layer) = (&pass.model.config, &pass.model.layers[index]);
        let rows = self.stream.len() / config.hidden;
        let heads = Heads::of(config);
        self.heads.resize(rows * config.num_heads * config.head_dim, 0.0);
        let queries = queries(pass.batch, pruned);
        let attention =
            LayerAttention { q: &self.qkv, q_stride: layer.qkv.n(), queries: &queries, kv, heads };
        attention.run(&mut self.staging, &mut self.heads);
        layer.output.apply(&self.heads, &mut self.stream, Write::Add);
    }

    /// Adds the layer's feed-forward part to the stream.
    fn feed_forward(&mut self, model: &LanguageModel, layer: &DecoderLayer) {
        let config = &model.config;
        let rows = self.stream.len() / config.hidden;
        ops::rms_norm(&self.stream, &layer.feed_forward_norm, config.rms_eps, &mut self.normed);
        self.gate_up.resize(rows * layer.gate_up.n(), 0.0);
        layer.gate_up.apply(&self.normed, &mut self.gate_up, Write::Replace);
        self.gated.resize(rows * config.intermediate, 0.0);
        ops::silu_mul(&self.gate_up, config.intermediate, &mut self.gated);
        layer.down.apply(&self.gated, &mut self.stream, Write::Add);
    }

    /// Logits of the last token of every entry that samples, `[entries, vocab]`.
    fn logits(&self, model: &LanguageModel, batch: &Batch) -> Vec<f32> {
        let config = &model.config;
        // Only rows that sample go through the head, which is as wide as the vocabulary.
        let sampled = self.sampled_rows(model, batch);
        let mut normed = vec![0.0; sampled.len()];
        ops::rms_norm(&sampled, &model.final_norm, config.rms_eps, &mut normed);
        let mut logits = vec![0.0; sampled.len() / config.hidden * config.vocab];
        rows_dot(&normed, model.head_table(), config.hidden, &mut logits);
        logits
    }

    /// The stream's rows of the last tokens of all entries that sample.
    fn sampled_rows(&self, model: &LanguageModel, batch: &Batch) -> Vec<f32> {
        let hidden = model.config.hidden;
        let mut sampled = Vec::new();
        let mut end = 0;
        for entry in &batch.entries {
            end += entry.tokens.len();
            if entry.sampling.is_some() {
                // Only the last token of an entry predicts one that is not known yet.
                sampled.extend_from_slice(&self.stream[(end - 1) * hidden..end * hidden]);
            }
        }
        sampled
    }
}

fn queries(batch: &Batch, pruned: impl Fn(&Entry) -> usize) -> Vec<Queries<'_>> {
    let mut first_row = 0;
    let queries = batch.entries.iter().map(|entry| {
        let query = Queries {
            first_row,
            num_tokens: entry.tokens.len(),
            start: entry.start - pruned(entry),
            blocks: &entry.blocks,
        };
        first_row += entry.tokens.len();
        query
    });
    queries.collect()
}
