//! The built-in model: real shapes, deterministic weights, no download. It speaks noise.

use std::sync::Arc;

use headstart_core::{Rng, TokenId};
use headstart_scheduler::Sampling;

use super::{DecoderLayer, GenerationDefaults, LanguageModel};
use crate::ModelConfig;
use crate::config::{Family, Rope};
use crate::cpu::linear::Linear;
use crate::kv::{Dtype, Numbers};

/// Fixes the weights.
const SEED: u64 = 2026;

/// 8 layers of width 512, 8 query heads over 2 key-value heads; 20 million parameters.
#[must_use]
pub fn config() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        hidden: 512,
        intermediate: 1024,
        num_layers: 8,
        num_heads: 8,
        num_kv_heads: 2,
        head_dim: 64,
        vocab: 4096,
        max_context: 16_384,
        rms_eps: 1e-5,
        rope: Rope { theta: 10_000.0, llama3: None },
        tied: true,
    }
}

/// The same keys and values per token with a thirtieth of the parameters, where only a server's
/// behaviour matters: 8 layers of width 64, 2 query heads.
#[must_use]
pub fn tiny_config() -> ModelConfig {
    ModelConfig { hidden: 64, intermediate: 64, num_heads: 2, ..config() }
}

/// A toy of `config`'s shape. It chooses only among `words`, tokens whose every sequence survives
/// decoding and tokenizing again, and stops at `stop_token`.
///
/// # Panics
/// When no word is within the vocabulary.
#[must_use]
pub fn build(
    config: ModelConfig,
    words: &[TokenId],
    stop_token: Option<TokenId>,
    dtype: Dtype,
) -> LanguageModel {
    let mut allowed = vec![false; config.vocab];
    for &word in words {
        allowed[word as usize] = true;
    }
    assert!(allowed.contains(&true), "the toy needs words to speak");
    let suppress_tokens = (0..config.vocab as TokenId).filter(|&id| !allowed[id as usize]);
    let generation = GenerationDefaults {
        stop_tokens: stop_token.into_iter().collect::<Arc<[TokenId]>>(),
        sampling: Sampling { temperature: 1.0, ..Sampling::default() },
        // A model that never ends by itself should not fill its whole context unasked.
        max_new_tokens: Some(64),
        suppress_tokens: suppress_tokens.collect(),
    };
    with_config(config, generation, dtype)
}

/// A model of any shape with deterministic weights, for tests and benchmarks.
#[must_use]
pub fn with_config(
    config: ModelConfig,
    generation: GenerationDefaults,
    dtype: Dtype,
) -> LanguageModel {
    let mut rng = Rng::new(SEED);
    let mut uniform = |len: usize, fan_in: usize| -> Vec<f32> {
        // Variance 1 / fan_in keeps the stream's scale from layer to layer.
        let bound = (3.0 / fan_in as f64).sqrt();
        (0..len).map(|_| ((rng.next_f64() * 2.0 - 1.0) * bound) as f32).collect()
    };
    let (hidden, vocab) = (config.hidden, config.vocab);
    // A fan-in of 3 makes the bound 1.
    let embedding = Numbers::from_f32(dtype, uniform(vocab * hidden, 3));
    let layers = (0..config.num_layers).map(|_| layer(&config, dtype, &mut uniform)).collect();
    let head = (!config.tied).then(|| Numbers::from_f32(dtype, uniform(vocab * hidden, hidden)));
    let final_norm = vec![1.0 / (hidden as f32).sqrt(); hidden];
    // Weights of another shape are other weights.
    let ModelConfig { num_layers, num_heads, num_kv_heads, head_dim, intermediate, .. } = config;
    let heads = format!("{num_heads}-{num_kv_heads}-{head_dim}");
    let shape = format!("{num_layers}-{hidden}-{heads}-{intermediate}-{vocab}");
    let revision = format!("toy-{SEED}-{shape}-{}", dtype.name());
    LanguageModel { config, revision, generation, embedding, layers, final_norm, head }
}

fn layer(
    config: &ModelConfig,
    dtype: Dtype,
    uniform: &mut impl FnMut(usize, usize) -> Vec<f32>,
) -> DecoderLayer {
    let mut linear =
        |k: usize, n: usize| Linear::new(Numbers::from_f32(dtype, uniform(k * n, k)), k, n, None);
    let (hidden, dim) = (config.hidden, config.head_dim);
    let head_norm = || vec![1.0; dim];
    DecoderLayer {
        attention_norm: vec![1.0; hidden],
        qkv: linear(hidden, (config.num_heads + 2 * config.num_kv_heads) * dim),
        head_norms: (config.family == Family::Qwen3).then(|| (head_norm(), head_norm())),
        output: linear(config.num_heads * dim, hidden),
        feed_forward_norm: vec![1.0; hidden],
        gate_up: linear(hidden, 2 * config.intermediate),
        down: linear(config.intermediate, hidden),
    }
}
