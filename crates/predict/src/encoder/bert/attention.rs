//! Attention inside each text of a batch, without padding.
//!
//! A task is one head and one tile of queries. Its keys are the tokens of all texts that reach
//! into the tile, a contiguous run; where these are several texts, each lane ignores the keys of
//! the others.
//!
//! ```text
//! scores[key][lane] = k[:, key] · q[:, lane]      8 keys × 2 vectors of queries in registers
//! weights           = softmax down each lane
//! out[d][lane]      = Σ v[d][key] · weights[key]  8 values × 2 vectors
//! ```

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::ops::exp;
use super::product::{vectors, vectors_mut};
use super::tiles::{FeatureRow, TILE, TextBoundaries, Tiles};

/// Keys, or values, summed at once: with two vectors of queries, 16 sums hide the latency.
const BLOCK: usize = 8;

/// Attention of `num_heads` heads. Rows of `qkv` are queries (scaled already), keys and values,
/// `[3][num_heads][dim]`; `out` is `[tiles][num_heads · dim]`.
pub(super) fn attention(qkv: &Tiles, num_heads: usize, spans: &TextBoundaries, out: &mut Tiles) {
    let dim = out.width() / num_heads;
    assert_eq!(qkv.width(), 3 * num_heads * dim, "queries, keys and values");
    let arch = Arch::new();
    let tasks = out.rows_mut().par_chunks_exact_mut(dim).enumerate();
    tasks.for_each_init(Vec::new, |scores, (index, out)| {
        // A tile's rows lie head by head, so the index counts heads first.
        let head = HeadProjections { qkv, first: index % num_heads * dim, dim };
        arch.dispatch(Task { head, spans, tile: index / num_heads, scores, out });
    });
}

/// The projections of one head.
#[derive(Clone, Copy)]
struct HeadProjections<'a> {
    qkv: &'a Tiles,
    first: usize, // feature of the head within queries, keys or values
    dim: usize,
}

impl<'a> HeadProjections<'a> {
    /// The head's queries (0), keys (1) or values (2) of one tile, `[dim]`.
    #[inline(always)]
    fn part(self, part: usize, tile: usize) -> &'a [FeatureRow] {
        let width = self.qkv.width();
        &self.qkv.tile(tile)[part * (width / 3) + self.first..][..self.dim]
    }
}

struct Task<'a> {
    head: HeadProjections<'a>,
    spans: &'a TextBoundaries,
    tile: usize,
    scores: &'a mut Vec<FeatureRow>,
    out: &'a mut [FeatureRow], // [dim]
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { head, spans, tile, scores, out } = self;
        let text_of = |lane| spans.around(tile * TILE + lane);
        let (first, last) = (text_of(0), text_of(TILE - 1));
        // Texts lie in order, so the keys of all lanes are one run.
        let keys = first.start..last.end;
        let key_tiles = keys.start / TILE..keys.end.div_ceil(TILE);
        // Whole tiles of keys, because the scores are computed by tiles. The surplus is cut off
        // below.
        scores.resize(key_tiles.len() * TILE, FeatureRow::ZERO);
        let queries = head.part(0, tile);
        for (tile, scores) in key_tiles.clone().zip(scores.chunks_exact_mut(TILE)) {
            score(simd, queries, head.part(1, tile), scores);
        }
        let offset = key_tiles.start * TILE;
        let weights = &mut scores[keys.start - offset..keys.end - offset];
        // A tile inside one text has no foreign keys to mask.
        if first != last {
            mask(weights, keys.start, &std::array::from_fn(text_of));
        }
        let scale = soften(weights);
        let mix = Mix { head, keys, weights, scale: &scale };
        // A head's size need not be a multiple of a block.
        let whole = out.len() / BLOCK * BLOCK;
        let (blocks, rest) = out.split_at_mut(whole);
        for (block, out) in blocks.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            mix.run(simd, block * BLOCK, out);
        }
        for (at, out) in rest.as_chunks_mut::<1>().0.iter_mut().enumerate() {
            mix.run(simd, whole + at, out);
        }
    }
}

/// `scores[key][lane] = keys[:, key] · queries[:, lane]` for the keys of one tile.
#[inline(always)]
fn score<S: Simd>(simd: S, queries: &[FeatureRow], keys: &[FeatureRow], scores: &mut [FeatureRow]) {
    for (block, scores) in scores.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        let mut vector = 0;
        while vector * S::F32_LANES < TILE {
            let mut sums = [[simd.splat_f32s(0.0); 2]; BLOCK];
            for (queries, keys) in queries.iter().zip(keys) {
                let queries = vectors::<S, 2>(queries, vector);
                let keys = &keys.0.as_chunks::<BLOCK>().0[block];
                for (sums, key) in sums.iter_mut().zip(keys) {
                    let key = simd.splat_f32s(*key);
                    for (sum, query) in sums.iter_mut().zip(queries) {
                        *sum = simd.mul_add_f32s(key, *query, *sum);
                    }
                }
            }
            for (scores, sums) in scores.iter_mut().zip(&sums) {
                *vectors_mut::<S, 2>(scores, vector) = *sums;
            }
            vector += 2;
        }
    }
}

/// Takes the keys of other texts from each lane; the keys begin with token `first`.
#[inline(always)]
fn mask(scores: &mut [FeatureRow], first: usize, texts: &[Range<usize>; TILE]) {
    let starts: [u32; TILE] = std::array::from_fn(|lane| texts[lane].start as u32);
    let ends: [u32; TILE] = std::array::from_fn(|lane| texts[lane].end as u32);
    for (key, scores) in (first as u32..).zip(scores) {
        for lane in 0..TILE {
            // Both sides are evaluated: a branch per lane would keep this from being vectorized.
            let own = (starts[lane] <= key) & (key < ends[lane]);
            scores.0[lane] = if own { scores.0[lane] } else { f32::NEG_INFINITY };
        }
    }
}

/// Turns scores into weights down each lane, relative to the largest, and returns what to scale
/// them by for a sum of 1.
#[inline(always)]
fn soften(scores: &mut [FeatureRow]) -> FeatureRow {
    let mut most = [f32::NEG_INFINITY; TILE];
    for scores in scores.iter() {
        for (most, score) in most.iter_mut().zip(&scores.0) {
            // `f32::max` has a rule for NaN, which costs instructions in this loop.
            *most = if *score > *most { *score } else { *most };
        }
    }
    let mut sums = [0.0f32; TILE];
    for scores in scores {
        for ((score, most), sum) in scores.0.iter_mut().zip(&most).zip(&mut sums) {
            // Relative to the largest, so no power overflows. A masked key gets e^-87, too small to
            // count.
            *score = exp(*score - most);
            *sum += *score;
        }
    }
    // The largest score adds 1 to the sum, so it is never 0.
    FeatureRow(sums.map(|sum| 1.0 / sum))
}

/// The values that a tile's queries take from their keys.
struct Mix<'a> {
    head: HeadProjections<'a>,
    keys: Range<usize>,
    weights: &'a [FeatureRow], // [keys]
    scale: &'a FeatureRow,
}

impl Mix<'_> {
    /// `out[d][lane] = scale[lane] · Σ values[d][key] · weights[key][lane]` for `VALUES` features
    /// from `first` on.
    #[inline(always)]
    fn run<S: Simd, const VALUES: usize>(
        &self,
        simd: S,
        first: usize,
        out: &mut [FeatureRow; VALUES],
    ) {
        let mut vector = 0;
        while vector * S::F32_LANES < TILE {
            let mut sums = [[simd.splat_f32s(0.0); 2]; VALUES];
            let mut weights = self.weights;
            let mut key = self.keys.start;
            while !weights.is_empty() {
                // Keys up to the end of their tile.
                let lanes = key % TILE..TILE.min(key % TILE + weights.len());
                let (own, others) = weights.split_at(lanes.len());
                let values = self.head.part(2, key / TILE);
                let values: &[FeatureRow; VALUES] =
                    values[first..].first_chunk().expect("of the head");
                for (lane, weights) in lanes.zip(own) {
                    let weights = vectors::<S, 2>(weights, vector);
                    for (sums, value) in sums.iter_mut().zip(values) {
                        let value = simd.splat_f32s(value.0[lane]);
                        for (sum, weight) in sums.iter_mut().zip(weights) {
                            *sum = simd.mul_add_f32s(value, *weight, *sum);
                        }
                    }
                }
                key += own.len();
                weights = others;
            }
            let scale = vectors::<S, 2>(self.scale, vector);
            for (out, sums) in out.iter_mut().zip(&sums) {
                for ((out, sum), scale) in
                    vectors_mut::<S, 2>(out, vector).iter_mut().zip(sums).zip(scale)
                {
                    *out = simd.mul_f32s(*sum, *scale);
                }
            }
            vector += 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Output of token `query` for one head, by the definition.
    fn plain(qkv: &[Vec<f64>], text: Range<usize>, query: usize, head: Range<usize>) -> Vec<f64> {
        let width = qkv[0].len() / 3;
        let dot = |key: usize| -> f64 {
            let terms = head.clone().map(|d| qkv[query][d] * qkv[key][width + d]);
            terms.sum()
        };
        let weights: Vec<f64> = text.clone().map(|key| dot(key).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let value = |d: usize| -> f64 {
            let terms = text.clone().zip(&weights);
            terms.map(|(key, weight)| weight * qkv[key][2 * width + d]).sum::<f64>() / sum
        };
        head.map(value).collect()
    }

    fn check(lengths: &[usize], num_heads: usize, dim: usize) {
        let mut rng = Rng::new((lengths.len() * 100 + dim) as u64);
        let spans = TextBoundaries::new(lengths.iter().copied());
        let width = num_heads * dim;
        let mut qkv = Tiles::default();
        qkv.resize(spans.num_tiles(), 3 * width);
        // What spare lanes hold must not matter.
        qkv.rows_mut().fill(FeatureRow([1e3; TILE]));
        let mut token = || -> Vec<f64> {
            let values = (0..3 * width).map(|_| f64::from(rng.next_f64() as f32 * 2.0 - 1.0));
            values.collect()
        };
        let plain_qkv: Vec<Vec<f64>> = (0..spans.num_tokens()).map(|_| token()).collect();
        for (token, values) in plain_qkv.iter().enumerate() {
            for (feature, value) in values.iter().enumerate() {
                let row = &mut qkv.rows_mut()[token / TILE * 3 * width + feature];
                row.0[token % TILE] = *value as f32;
            }
        }
        let mut out = Tiles::default();
        out.resize(spans.num_tiles(), width);
        attention(&qkv, num_heads, &spans, &mut out);
        for text in spans.texts() {
            for query in text.clone() {
                for head in 0..num_heads {
                    let features = head * dim..(head + 1) * dim;
                    let expected = plain(&plain_qkv, text.clone(), query, features.clone());
                    for (d, expected) in features.zip(expected) {
                        let found = out.tile(query / TILE)[d].0[query % TILE];
                        assert!(
                            (f64::from(found) - expected).abs() < 2e-5,
                            "{lengths:?}, dim {dim}, token {query}, feature {d}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn attention_stays_inside_each_text() {
        for dim in [4, 8, 20, 32] {
            check(&[1], 2, dim);
            check(&[32, 32], 2, dim);
            check(&[5, 1, 40, 3, 70, 2], 3, dim);
            check(&[100, 31, 64], 1, dim);
        }
    }
}
