//! Column sums of the attention of a layer's probe heads over a stored prefix.
//!
//! ```text
//! weights[row, key] = softmax over all keys that the row may see of q[row] · k[key]
//! sums[key]         = Σ weights[row, key]                      keys of the stored prefix only
//! ```
//!
//! Rows are the queries of the prompt's tokens behind the prefix. What they see beside it, the
//! part of the prefix that the device holds and themselves, takes its share of each row's weight.
//!
//! Source: Zhang et al., "H2O", NeurIPS'23 (column sums of post-softmax attention as importance);
//! Chen et al., "IMPRESS", FAST'25 (of a few heads of a layer). The same bits on any number of
//! threads: sums of rows are added in order.

use headstart_core::BlockId;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::Heads;
use crate::cpu::ops::exp_in_place;
use crate::kv::{Dtype, LayerKv, Probes};

/// Rows whose scores are summed in registers at once.
const ROWS: usize = 8;

/// Keys of the probes' key-value heads of a stored prefix, `[block][probed head][dim][block_size]`.
#[derive(Clone, Debug, Default)]
pub struct StoredKeys {
    numbers: Vec<f32>,
}

impl StoredKeys {
    /// Adds whole blocks of a probe part, as they are stored.
    pub fn push(&mut self, bytes: &[u8], dtype: Dtype) {
        match dtype {
            Dtype::F32 => {
                let (numbers, _) = bytes.as_chunks::<4>();
                let numbers = numbers.iter().copied();
                self.numbers.extend(numbers.map(f32::from_le_bytes));
            }
            Dtype::Bf16 => {
                let (numbers, _) = bytes.as_chunks::<2>();
                let widen =
                    |bytes: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                self.numbers.extend(numbers.iter().map(widen));
            }
        }
    }
}

/// One layer's probes and what they see.
pub struct ProbedLayer<'a> {
    /// The probe heads.
    pub probes: &'a Probes,
    /// Head counts and width.
    pub heads: Heads,
    /// Rotated queries, keys and values of the tokens behind the prefix, one row per token.
    pub qkv: &'a [f32],
    /// Keys of the stored prefix.
    pub stored: &'a StoredKeys,
    /// Whole blocks in front of it that the device holds.
    pub front: (&'a LayerKv, &'a [BlockId]),
}

impl ProbedLayer<'_> {
    /// For each probe the sums of its rows, by token of the stored prefix.
    #[must_use]
    pub fn column_sums(&self) -> Vec<Vec<f32>> {
        let arch = Arch::new();
        let tiles = self.num_rows().div_ceil(ROWS);
        let heads = self.probes.heads();
        let tasks = (0..heads.len() * tiles).into_par_iter();
        let sums: Vec<Vec<f32>> = tasks
            .map(|task| {
                arch.dispatch(ProbeTile {
                    probed: self,
                    head: heads[task / tiles],
                    first: task % tiles * ROWS,
                })
            })
            .collect();
        let of_probe = |tiles: &[Vec<f32>]| {
            let mut all = vec![0.0; self.stored_tokens()];
            // Tiles are added in order, so that sums have the same bits on any number of threads.
            for sums in tiles {
                all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
            }
            all
        };
        match tiles {
            // A prompt without rows has no tiles, and slices cannot be cut into pieces of 0.
            0 => vec![vec![0.0; self.stored_tokens()]; heads.len()],
            _ => sums.chunks(tiles).map(of_probe).collect(),
        }
    }

    fn row_len(&self) -> usize {
        (self.heads.num_kv * (self.heads.group + 2)) * self.heads.dim
    }

    fn num_rows(&self) -> usize {
        self.qkv.len() / self.row_len()
    }

    /// Numbers of what one key-value head has of a block.
    fn block_len(&self) -> usize {
        self.heads.dim * self.front.0.block_size()
    }

    fn stored_blocks(&self) -> usize {
        self.stored.numbers.len() / (self.probes.num_probed() * self.block_len())
    }

    fn stored_tokens(&self) -> usize {
        self.stored_blocks() * self.front.0.block_size()
    }

    fn query(&self, row: usize, head: usize) -> &[f32] {
        &self.qkv[row * self.row_len() + head * self.heads.dim..][..self.heads.dim]
    }

    fn key(&self, row: usize, kv_head: usize) -> &[f32] {
        let head = self.heads.num_kv * self.heads.group + kv_head;
        self.query(row, head)
    }
}

/// At most [`ROWS`] rows of one head.
struct ProbeTile<'a> {
    probed: &'a ProbedLayer<'a>,
    head: usize,
    first: usize,
}

impl WithSimd for ProbeTile<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let probed = self.probed;
        let size = probed.front.0.block_size();
        let (kv, blocks) = probed.front;
        let kv_head = self.head / probed.heads.group;
        let before = blocks.len() * size;
        let stored = probed.stored_tokens();
        let rows = ROWS.min(probed.num_rows() - self.first);
        // In this order: keys of the device, stored keys, the prompt's own keys.
        let columns = before + stored + probed.num_rows();
        let queries = self.pack_queries(rows);
        let mut scores = vec![0.0; ROWS * columns];
        let mut scratch = Vec::new();
        for (index, &block) in blocks.iter().enumerate() {
            let keys = kv.keys(block, kv_head, &mut scratch);
            score_block(simd, &queries, keys, size, &mut scores[index * size..], columns);
        }
        let place = probed.probes.place_of(self.head);
        let of_block = probed.probes.num_probed() * probed.block_len();
        for (index, keys) in probed.stored.numbers.chunks_exact(of_block).enumerate() {
            let keys = &keys[place * probed.block_len()..][..probed.block_len()];
            let scores = &mut scores[before + index * size..];
            score_block(simd, &queries, keys, size, scores, columns);
        }
        let mut sums = vec![0.0; stored];
        for (row, scores) in scores.chunks_exact_mut(columns).take(rows).enumerate() {
            // A row sees the prompt's tokens up to itself.
            let seen = self.first + row + 1;
            self.score_rows(row, &mut scores[before + stored..][..seen]);
            // Later tokens lie beyond this slice, so they get no weight.
            let weights = &mut scores[..before + stored + seen];
            let max = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let scale = 1.0 / exp_in_place(weights, max);
            // Only stored keys are summed; all others keep their share of the softmax.
            let weights = &weights[before..before + stored];
            let columns = sums.iter_mut().zip(weights);
            columns.for_each(|(sum, weight)| *sum += scale * weight);
        }
        sums
    }
}

impl ProbeTile<'_> {
    /// The rows' queries, scaled, `[dim][ROWS]`, missing rows as zero.
    #[inline(always)]
    fn pack_queries(&self, rows: usize) -> Vec<[f32; ROWS]> {
        let scale = 1.0 / (self.probed.heads.dim as f32).sqrt();
        let mut packed = vec![[0.0; ROWS]; self.probed.heads.dim];
        for row in 0..rows {
            let query = self.probed.query(self.first + row, self.head);
            let slots = packed.iter_mut().zip(query);
            slots.for_each(|(slot, q)| slot[row] = q * scale);
        }
        packed
    }

    /// Scores of a row against the first rows themselves.
    #[inline(always)]
    fn score_rows(&self, row: usize, scores: &mut [f32]) {
        let scale = 1.0 / (self.probed.heads.dim as f32).sqrt();
        let query = self.probed.query(self.first + row, self.head);
        let kv_head = self.head / self.probed.heads.group;
        for (other, score) in scores.iter_mut().enumerate() {
            let key = self.probed.key(other, kv_head);
            let dot: f32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            *score = dot * scale;
        }
    }
}

/// Scores of [`ROWS`] rows against a block's keys, `[dim][size]`; rows of scores are so far apart.
#[inline(always)]
fn score_block<S: Simd>(
    simd: S,
    queries: &[[f32; ROWS]],
    keys: &[f32],
    size: usize,
    scores: &mut [f32],
    stride: usize,
) {
    for lane in (0..size).step_by(S::F32_LANES) {
        let mut sums = [simd.splat_f32s(0.0); ROWS];
        for (queries, keys) in queries.iter().zip(keys.chunks_exact(size)) {
            let (keys, _) = S::as_simd_f32s(&keys[lane..]);
            for (sum, query) in sums.iter_mut().zip(queries) {
                *sum = simd.mul_add_f32s(simd.splat_f32s(*query), keys[0], *sum);
            }
        }
        for (row, sum) in sums.iter().enumerate() {
            let (scores, _) = S::as_mut_simd_f32s(&mut scores[row * stride + lane..]);
            scores[0] = *sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelConfig;
    use crate::kv::{KvPool, Section, SectionOf};
    use crate::model::toy;
    use headstart_core::Rng;
    use headstart_core::transfer::DevicePart;

    fn random(rng: &mut Rng, len: usize) -> Vec<f32> {
        let one = |_| half::bf16::from_f32(rng.next_f64() as f32 * 4.0 - 2.0).to_f32();
        (0..len).map(one).collect()
    }

    /// One row after the other, with the whole row of weights.
    fn plain(q: &[f32], keys: &[Vec<f32>], before: usize, stored: usize) -> Vec<f64> {
        let rows = keys.len() - before - stored;
        let dim = keys[0].len();
        let mut sums = vec![0.0; stored];
        for row in 0..rows {
            let q = &q[row * dim..(row + 1) * dim];
            let dot = |key: &Vec<f32>| -> f64 {
                let terms = q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k));
                terms.sum::<f64>() / (dim as f64).sqrt()
            };
            let scores: Vec<f64> = keys[..=before + stored + row].iter().map(dot).collect();
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            let weights = scores[before..before + stored].iter();
            let sums = sums.iter_mut().zip(weights);
            sums.for_each(|(sum, score)| *sum += score.exp() / total);
        }
        sums
    }

    fn check(config: &ModelConfig, probes: &[usize], (front, stored, rows): (usize, usize, usize)) {
        let probes = Probes::new(probes, config).expect("heads");
        let mut rng = Rng::new(7);
        let (dim, kv_heads) = (config.head_dim, config.num_kv_heads);
        let heads = Heads { num_kv: kv_heads, group: config.group(), dim };
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let mut pool = KvPool::new(config, dtype, front + stored, 16).with_probes(&probes);
            let tokens = (front + stored) * 16;
            let keys: Vec<Vec<f32>> =
                (0..tokens).map(|_| random(&mut rng, kv_heads * dim)).collect();
            for (at, key) in keys.iter().enumerate() {
                let layer = pool.layer_mut(0);
                layer.write(BlockId((at / 16) as u32), at % 16, key, key);
            }
            let mut stored_keys = StoredKeys::default();
            for block in front..front + stored {
                let (layer, section) = (pool.layer_mut(0), Section::Probes);
                let part = SectionOf { layer, section };
                let mut bytes = vec![0; part.block_bytes()];
                part.read(BlockId(block as u32), &mut bytes);
                stored_keys.push(&bytes, dtype);
            }
            let row_len = (config.num_heads + 2 * kv_heads) * dim;
            let qkv = random(&mut rng, rows * row_len);
            let blocks: Vec<BlockId> = (0..front as u32).map(BlockId).collect();
            let probed = ProbedLayer {
                probes: &probes,
                heads,
                qkv: &qkv,
                stored: &stored_keys,
                front: (pool.layer(0), &blocks),
            };
            let sums = probed.column_sums();
            for (&head, sums) in probes.heads().iter().zip(&sums) {
                let kv_head = head / heads.group;
                let of_head = |row: &[f32], head: usize| row[head * dim..(head + 1) * dim].to_vec();
                let rows = qkv.chunks_exact(row_len);
                let q: Vec<f32> = rows.clone().flat_map(|row| of_head(row, head)).collect();
                let prefix = keys.iter().map(|key| of_head(key, kv_head));
                let own = rows.map(|row| of_head(row, config.num_heads + kv_head));
                let all: Vec<Vec<f32>> = prefix.chain(own).collect();
                let expected = plain(&q, &all, front * 16, stored * 16);
                assert_eq!(sums.len(), expected.len());
                for (at, (sum, expected)) in sums.iter().zip(&expected).enumerate() {
                    let error = (f64::from(*sum) - expected).abs();
                    assert!(error < 1e-5, "head {head}, token {at}: {sum} {expected}");
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_whole_rows() {
        let mut config = toy::config();
        (config.num_layers, config.num_heads) = (1, 12);
        (config.num_kv_heads, config.head_dim) = (6, 16);
        for sizes in [(0, 1, 1), (0, 5, 8), (2, 3, 9), (3, 4, 21), (2, 0, 3)] {
            check(&config, &[0, 4, 8], sizes);
            check(&config, &[4, 5, 11], sizes);
        }
        (config.num_kv_heads, config.head_dim) = (12, 48);
        check(&config, &[0, 1, 2], (1, 7, 17));
        (config.num_kv_heads, config.head_dim) = (1, 128);
        check(&config, &[0, 11], (1, 7, 17));
    }
}
