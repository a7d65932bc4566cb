//! A model as it is computed with: weights in the kernels' layout, and what its files say about
//! generation.

pub mod constructed;
mod generation;
mod load;
pub mod toy;

use crate::ModelConfig;
use crate::cpu::linear::Linear;
use crate::kv::Numbers;

pub use generation::GenerationDefaults;
pub use load::LoadError;

/// A loaded model; shared by all replicas of a process.
#[derive(Debug)]
pub struct LanguageModel {
    /// Shape and constants.
    pub config: ModelConfig,
    /// Content hash of the weights and how they are stored: part of every block's identity.
    pub revision: String,
    /// Defaults from `generation_config.json`.
    pub generation: GenerationDefaults,
    /// `[vocab, hidden]`
    pub embedding: Numbers,
    /// In the order of computation.
    pub layers: Vec<DecoderLayer>,
    /// `[hidden]`
    pub final_norm: Vec<f32>,
    /// `[vocab, hidden]`; `None` when tied to the embedding.
    pub head: Option<Numbers>,
}

/// One decoder layer.
#[derive(Debug)]
pub struct DecoderLayer {
    /// `[hidden]`
    pub attention_norm: Vec<f32>,
    /// `[hidden, (num_heads + 2 * num_kv_heads) * head_dim]`: queries, keys, values
    pub qkv: Linear,
    /// `[head_dim]` each: Qwen3's norms of query and key heads.
    pub head_norms: Option<(Vec<f32>, Vec<f32>)>,
    /// `[num_heads * head_dim, hidden]`
    pub output: Linear,
    /// `[hidden]`
    pub feed_forward_norm: Vec<f32>,
    /// `[hidden, 2 * intermediate]`: gate, up
    pub gate_up: Linear,
    /// `[intermediate, hidden]`
    pub down: Linear,
}

impl LanguageModel {
    /// The table of the output head, `[vocab, hidden]`.
    #[must_use]
    pub fn head_table(&self) -> &Numbers {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

/// `[n, k]` to `[k, n]`, in square tiles that stay in the first-level cache, to columns
/// `[first, first + n)` of `out`, whose rows have `stride` values.
fn transpose_into(rows: &[f32], k: usize, out: &mut [f32], first: usize, stride: usize) {
    const TILE: usize = 32;
    let n = rows.len() / k;
    for n0 in (0..n).step_by(TILE) {
        for k0 in (0..k).step_by(TILE) {
            for row in n0..n.min(n0 + TILE) {
                for column in k0..k.min(k0 + TILE) {
                    out[column * stride + first + row] = rows[row * k + column];
                }
            }
        }
    }
}
