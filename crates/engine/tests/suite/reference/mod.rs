//! The obvious forward pass: one sequence, no cache, no blocks, attention with the whole score
//! matrix. Slow; the tests compare the engine with it.

pub(crate) mod importance;
pub(crate) mod selective;

use headstart_core::TokenId;
use headstart_engine::LanguageModel;
use headstart_engine::cpu::attention::Heads;
use headstart_engine::cpu::head::rows_dot;
use headstart_engine::cpu::linear::Write;
use headstart_engine::cpu::ops;
use headstart_engine::executor::Rotation;
use headstart_engine::model::DecoderLayer;

/// Causal attention with materialized scores. `q` is `[tokens, num_kv * group, dim]`, `k` and
/// `v` are `[context, num_kv, dim]`; query token t sits at position `start + t`.
#[must_use]
pub(crate) fn naive_attention(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    start: usize,
    heads: Heads,
) -> Vec<f32> {
    let Heads { num_kv, group, dim } = heads;
    let width = num_kv * group * dim;
    let mut out = vec![0.0; q.len()];
    for token in 0..q.len() / width {
        for head in 0..num_kv * group {
            let at = token * width + head * dim;
            let key_at = |position: usize| (position * num_kv + head / group) * dim;
            // Summed in f64, so that the reference's own rounding does not matter.
            let dot = |position: usize| -> f64 {
                let key = &k[key_at(position)..][..dim];
                q[at..at + dim].iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum()
            };
            let scores: Vec<f64> =
                (0..=start + token).map(|position| dot(position) / (dim as f64).sqrt()).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let total: f64 = weights.iter().sum();
            for column in 0..dim {
                let terms = weights.iter().enumerate();
                let sum: f64 = terms
                    .map(|(position, weight)| weight * f64::from(v[key_at(position) + column]))
                    .sum();
                out[at + column] = (sum / total) as f32;
            }
        }
    }
    out
}

/// Logits of every position of `tokens`, `[tokens, vocab]`.
#[must_use]
pub(crate) fn logits(model: &LanguageModel, tokens: &[TokenId]) -> Vec<f32> {
    let rotation = Rotation::of_positions(&model.config, 0..tokens.len());
    let mut stream = embed(model, tokens);
    for layer in &model.layers {
        let QkvProjection { q, k, v } = project(model, layer, &rotation, &stream);
        let attended = naive_attention(&q, &k, &v, 0, Heads::of(&model.config));
        layer.output.apply(&attended, &mut stream, Write::Add);
        feed_forward(model, layer, &mut stream);
    }
    head(model, &stream)
}

/// Queries, keys and values of some tokens, `[tokens, heads, dim]` each, queries and keys rotated.
struct QkvProjection {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// The stream before the first layer, `[tokens, hidden]`.
fn embed(model: &LanguageModel, tokens: &[TokenId]) -> Vec<f32> {
    let hidden = model.config.hidden;
    let mut scratch = Vec::new();
    let mut stream = Vec::new();
    for &token in tokens {
        let row = token as usize * hidden..(token as usize + 1) * hidden;
        stream.extend_from_slice(model.embedding.widen(row, &mut scratch));
    }
    stream
}

/// Queries, keys and values of a layer; row i is at the position of `rotation`'s row i.
fn project(
    model: &LanguageModel,
    layer: &DecoderLayer,
    rotation: &Rotation,
    stream: &[f32],
) -> QkvProjection {
    let config = &model.config;
    let mut normed = vec![0.0; stream.len()];
    ops::rms_norm(stream, &layer.attention_norm, config.rms_eps, &mut normed);
    let mut qkv = vec![0.0; stream.len() / config.hidden * layer.qkv.n()];
    layer.qkv.apply(&normed, &mut qkv, Write::Replace);
    let (q_width, kv_width) =
        (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
    let (mut q, mut k, mut v) = (Vec::new(), Vec::new(), Vec::new());
    for (token, row) in qkv.chunks_exact_mut(layer.qkv.n()).enumerate() {
        let (queries, rest) = row.split_at_mut(q_width);
        let (keys, values) = rest.split_at_mut(kv_width);
        if let Some((q_norm, k_norm)) = &layer.head_norms {
            ops::rms_norm_heads(queries, q_norm, config.rms_eps);
            ops::rms_norm_heads(keys, k_norm, config.rms_eps);
        }
        rotation.apply(token, queries);
        rotation.apply(token, keys);
        q.extend_from_slice(queries);
        k.extend_from_slice(keys);
        v.extend_from_slice(values);
    }
    QkvProjection { q, k, v }
}

/// Adds a layer's feed-forward part to the stream.
fn feed_forward(model: &LanguageModel, layer: &DecoderLayer, stream: &mut [f32]) {
    let config = &model.config;
    let tokens = stream.len() / config.hidden;
    let mut normed = vec![0.0; stream.len()];
    ops::rms_norm(stream, &layer.feed_forward_norm, config.rms_eps, &mut normed);
    let mut gate_up = vec![0.0; tokens * layer.gate_up.n()];
    layer.gate_up.apply(&normed, &mut gate_up, Write::Replace);
    let mut gated = vec![0.0; tokens * config.intermediate];
    ops::silu_mul(&gate_up, config.intermediate, &mut gated);
    layer.down.apply(&gated, stream, Write::Add);
}

/// Logits of every row of the stream.
fn head(model: &LanguageModel, stream: &[f32]) -> Vec<f32> {
    let config = &model.config;
    let mut normed = vec![0.0; stream.len()];
    ops::rms_norm(stream, &model.final_norm, config.rms_eps, &mut normed);
    let mut logits = vec![0.0; stream.len() / config.hidden * config.vocab];
    rows_dot(&normed, model.head_table(), config.hidden, &mut logits);
    logits
}
