//! The obvious forward pass behind a prefix of which only some tokens are seen.
//!
//! The prefix was computed exactly, each token seeing all before it. The suffix then sees, layer by
//! layer, only itself and the prefix tokens that the caller chooses. The caller receives the
//! attention that a few probe heads pay to each token of the whole prefix. With all tokens chosen
//! the result is that of [`super::logits`].
//!
//! Importance: for one query head, the sum over the suffix's queries of the attention that a
//! prefix token gets, after a softmax over everything that the query may see.
//! Source: column sums as in Zhang et al., "H2O", NeurIPS'23; of a few heads as in Chen et al.,
//! "IMPRESS", FAST'25.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use headstart_core::{BlockId, SeqId, TokenId};
use headstart_engine::cpu::attention::Heads;
use headstart_engine::cpu::linear::Write;
use headstart_engine::executor::Rotation;
use headstart_engine::kv::{Dtype, KvPool};
use headstart_engine::{CpuExecutor, LanguageModel};
use headstart_scheduler::{Batch, Entry};
use rayon::prelude::*;

use super::{QkvProjection, embed, feed_forward, head, project};

/// Tokens per block of the pool that a prefix is computed in.
const BLOCK_SIZE: usize = 16;

/// Keys and values of a prefix, rounded as a pool of `dtype` holds them.
pub(crate) struct ReferencePrefix {
    /// Its tokens.
    pub(crate) num_tokens: usize,
    dtype: Dtype,
    layers: Vec<KeysValues>,
}

/// Of one layer, `[kv heads, tokens, dim]` each.
struct KeysValues {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Result of a suffix.
pub(crate) struct SuffixResult {
    /// Logits of the last token, `[vocab]`.
    pub(crate) logits: Vec<f32>,
    /// Selected tokens of each layer.
    pub(crate) layers: Vec<LayerSelection>,
}

/// Selected tokens of one layer, with their importance.
pub(crate) struct LayerSelection {
    /// Of each probe: the importance of each prefix token.
    pub(crate) importance: Vec<Vec<f32>>,
    /// Positions of the prefix that the suffix saw; ascending.
    pub(crate) kept: Vec<usize>,
}

impl ReferencePrefix {
    /// Computes `tokens` with the engine's own kernels: what it would have stored.
    #[must_use]
    pub(crate) fn compute(model: &Arc<LanguageModel>, dtype: Dtype, tokens: &[TokenId]) -> Self {
        let num_blocks = tokens.len().div_ceil(BLOCK_SIZE);
        let mut executor = CpuExecutor::new(model.clone(), dtype, num_blocks, BLOCK_SIZE);
        let entry = Entry {
            seq: SeqId(0),
            tokens: tokens.to_vec(),
            start: 0,
            blocks: (0..num_blocks as u32).map(BlockId).collect(),
            sampling: None,
            pruned: None,
        };
        executor.logits(&Batch { entries: vec![entry], ..Batch::default() });
        let pool = executor.pool_mut();
        let layers = 0..model.config.num_layers;
        Self {
            num_tokens: tokens.len(),
            dtype,
            layers: layers
                .map(|layer| KeysValues::read(pool, layer, tokens.len(), Heads::of(&model.config)))
                .collect(),
        }
    }

    /// The next token's logits behind `suffix`. `choose` gets a layer's index and the importance
    /// of each prefix token for each of the `probes`, query heads; it says which positions of the
    /// prefix the layer sees.
    ///
    /// # Panics
    /// When the suffix is empty or a chosen position lies behind the prefix.
    pub(crate) fn ask(
        &self,
        model: &LanguageModel,
        suffix: &[TokenId],
        probes: &[usize],
        mut choose: impl FnMut(usize, &[Vec<f32>]) -> Vec<usize>,
    ) -> SuffixResult {
        let positions = self.num_tokens..self.num_tokens + suffix.len();
        let rotation = Rotation::of_positions(&model.config, positions);
        let mut stream = embed(model, suffix);
        let mut layers = Vec::new();
        for (index, layer) in model.layers.iter().enumerate() {
            let mut own = project(model, layer, &rotation, &stream);
            // The engine reads these back from its pool, which rounds them.
            round(self.dtype, &mut own.k);
            round(self.dtype, &mut own.v);
            let view = VisibleKv {
                heads: Heads::of(&model.config),
                prefix: &self.layers[index],
                own: &own,
            };
            let importance = probes.par_iter().map(|probe| view.importance(*probe));
            let importance: Vec<Vec<f32>> = importance.collect();
            let mut kept = choose(index, &importance);
            // The caller may name positions in any order, and twice.
            kept.sort_unstable();
            kept.dedup();
            let attended = view.attend(&kept);
            layer.output.apply(&attended, &mut stream, Write::Add);
            feed_forward(model, layer, &mut stream);
            layers.push(LayerSelection { importance, kept });
        }
        let last = stream.split_off(stream.len() - model.config.hidden);
        SuffixResult { logits: head(model, &last), layers }
    }

    /// The same, all of it seen.
    pub(crate) fn ask_exactly(&self, model: &LanguageModel, suffix: &[TokenId]) -> Vec<f32> {
        let all = |_: usize, _: &[Vec<f32>]| (0..self.num_tokens).collect();
        self.ask(model, suffix, &[], all).logits
    }
}

impl KeysValues {
    fn read(pool: &KvPool, layer: usize, num_tokens: usize, heads: Heads) -> Self {
        let layer = pool.layer(layer);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let (mut key_scratch, mut value_scratch) = (Vec::new(), Vec::new());
        for kv_head in 0..heads.num_kv {
            for position in 0..num_tokens {
                let (block, slot) = (position / BLOCK_SIZE, position % BLOCK_SIZE);
                let block = BlockId(block as u32);
                let block_keys = layer.keys(block, kv_head, &mut key_scratch);
                keys.extend((0..heads.dim).map(|dim| block_keys[dim * BLOCK_SIZE + slot]));
                let block_values = layer.values(block, kv_head, &mut value_scratch);
                values.extend_from_slice(&block_values[slot * heads.dim..][..heads.dim]);
            }
        }
        Self { keys, values }
    }
}

/// Keys and values visible to a layer's queries: those of a prefix and of the suffix itself.
struct VisibleKv<'a> {
    heads: Heads,
    prefix: &'a KeysValues,
    own: &'a QkvProjection,
}

impl VisibleKv<'_> {
    /// Tokens of the suffix.
    fn num_queries(&self) -> usize {
        let Heads { num_kv, group, dim } = self.heads;
        self.own.q.len() / (num_kv * group * dim)
    }

    /// Importance of each prefix token for one query head.
    fn importance(&self, head: usize) -> Vec<f32> {
        let width = self.heads.num_kv * self.heads.dim;
        let everything: Vec<usize> = (0..self.prefix.keys.len() / width).collect();
        let mut sums = vec![0.0; everything.len()];
        for token in 0..self.num_queries() {
            for (sum, weight) in sums.iter_mut().zip(self.weights(head, token, &everything)) {
                *sum += weight;
            }
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    }

    /// Attention's output, `[queries, heads, dim]`, where of the prefix only `kept` is seen.
    fn attend(&self, kept: &[usize]) -> Vec<f32> {
        let num_heads = self.heads.num_kv * self.heads.group;
        let of_head = |head| {
            let queries = 0..self.num_queries();
            let rows = queries.map(|token| self.attend_one(head, token, kept));
            rows.collect()
        };
        let all: Vec<Vec<Vec<f32>>> = (0..num_heads).into_par_iter().map(of_head).collect();
        let rows = (0..self.num_queries()).flat_map(|token| all.iter().map(move |of| &of[token]));
        rows.flatten().copied().collect()
    }

    /// Output of one head for one query, `[dim]`.
    fn attend_one(&self, head: usize, token: usize, kept: &[usize]) -> Vec<f32> {
        let weights = self.weights(head, token, kept);
        let (of_prefix, of_suffix) = weights.split_at(kept.len());
        let mut sums = vec![0.0; self.heads.dim];
        let mut add = |weight: f64, value: &[f32]| {
            for (sum, value) in sums.iter_mut().zip(value) {
                *sum += weight * f64::from(*value);
            }
        };
        for (weight, position) in of_prefix.iter().zip(kept) {
            add(*weight, &self.prefix.values[self.in_prefix(*position, head)]);
        }
        for (position, weight) in of_suffix.iter().enumerate() {
            add(*weight, &self.own.v[self.in_suffix(position, head)]);
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    }

    /// Softmax of a query's scores: of the prefix tokens `seen`, then of the suffix up to itself.
    fn weights(&self, head: usize, token: usize, seen: &[usize]) -> Vec<f64> {
        let Heads { num_kv, group, dim } = self.heads;
        let query = &self.own.q[(token * num_kv * group + head) * dim..][..dim];
        let score = |key: &[f32]| -> f64 {
            let terms = query.iter().zip(key);
            let product: f64 = terms.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
            product / (dim as f64).sqrt()
        };
        let of_prefix = seen.iter().map(|position| {
            let key = &self.prefix.keys[self.in_prefix(*position, head)];
            score(key)
        });
        let of_suffix = (0..=token).map(|position| {
            let key = &self.own.k[self.in_suffix(position, head)];
            score(key)
        });
        let mut weights: Vec<f64> = of_prefix.chain(of_suffix).collect();
        let max = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut total = 0.0;
        for weight in &mut weights {
            *weight = (*weight - max).exp();
            total += *weight;
        }
        weights.iter_mut().for_each(|weight| *weight /= total);
        weights
    }

    /// Returns the range of a query head's key or value of `position` in the prefix.
    fn in_prefix(&self, position: usize, head: usize) -> Range<usize> {
        let Heads { num_kv, group, dim } = self.heads;
        let num_tokens = self.prefix.keys.len() / (num_kv * dim);
        let first = (head / group * num_tokens + position) * dim;
        first..first + dim
    }

    /// The same in the suffix.
    fn in_suffix(&self, position: usize, head: usize) -> Range<usize> {
        let Heads { num_kv, group, dim } = self.heads;
        let first = (position * num_kv + head / group) * dim;
        first..first + dim
    }
}

/// As a pool of `dtype` would hold them.
fn round(dtype: Dtype, values: &mut [f32]) {
    if dtype == Dtype::Bf16 {
        for value in values {
            *value = bf16::from_f32(*value).to_f32();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use headstart_engine::model::{GenerationDefaults, toy};

    /// A toy of three layers with two query heads per key-value head.
    fn model() -> Arc<LanguageModel> {
        let mut config = toy::config();
        (config.hidden, config.intermediate, config.num_layers) = (64, 96, 3);
        (config.num_heads, config.num_kv_heads, config.head_dim) = (4, 2, 16);
        config.vocab = 200;
        let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
        Arc::new(model)
    }

    fn tokens(count: usize) -> Vec<TokenId> {
        let mut rng = Rng::new(9);
        (0..count).map(|_| rng.below(200) as TokenId).collect()
    }

    #[test]
    fn with_everything_chosen_it_is_the_plain_forward_pass() {
        let (model, tokens) = (model(), tokens(90));
        let expected = super::super::logits(&model, &tokens);
        let expected = &expected[expected.len() - model.config.vocab..];
        for cut in [1, 50, 64, 89] {
            let (prefix, suffix) = tokens.split_at(cut);
            let prefix = ReferencePrefix::compute(&model, Dtype::F32, prefix);
            let got = prefix.ask_exactly(&model, suffix);
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 1e-4, "{cut}: {got} {expected}");
            }
        }
    }

    #[test]
    fn importance_is_what_is_seen_of_the_prefix() {
        let (model, tokens) = (model(), tokens(70));
        let (prefix, suffix) = tokens.split_at(60);
        let prefix = ReferencePrefix::compute(&model, Dtype::F32, prefix);
        let asked = prefix.ask(&model, suffix, &[0, 3], |_, _| vec![5, 3]);
        assert_eq!(asked.layers.len(), 3);
        for layer in &asked.layers {
            assert_eq!((layer.importance.len(), &layer.kept), (2, &vec![3, 5]));
            for importance in &layer.importance {
                // Ten queries share ten; some of it goes to the suffix.
                let sum: f32 = importance.iter().sum();
                assert_eq!(importance.len(), 60);
                assert!(sum > 1.0 && sum < 10.0, "{sum}");
            }
        }
    }

    #[test]
    fn seeing_nothing_of_a_prefix_is_having_none_of_it_at_these_positions() {
        // Attention depends on distances only, so that a suffix alone gives the same.
        let (model, tokens) = (model(), tokens(40));
        let (prefix, suffix) = tokens.split_at(25);
        let prefix = ReferencePrefix::compute(&model, Dtype::F32, prefix);
        let nothing = prefix.ask(&model, suffix, &[], |_, _| Vec::new());
        let alone = super::super::logits(&model, suffix);
        let alone = &alone[alone.len() - model.config.vocab..];
        for (got, expected) in nothing.logits.iter().zip(alone) {
            assert!((got - expected).abs() < 1e-4, "{got} {expected}");
        }
    }
}
