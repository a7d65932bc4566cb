//! The inner loops of attention: scores, online softmax, weighted values; all sums in registers.

use pulp::Simd;

use crate::cpu::ops::{exp, exp_in_place};

/// Keys per pass: scores of a tile stay in the first-level cache (32 × 128 × 4 B = 16 KiB).
pub(super) const KEYS: usize = 128;

/// Rows whose scores are summed in registers at once.
pub(super) const SCORE_ROWS: usize = 8;

/// Rows whose outputs are summed in registers at once.
pub(super) const VALUE_ROWS: usize = 4;

/// Running softmax of one row.
#[derive(Clone, Copy)]
pub(super) struct RowState {
    pub(super) max: f32,
    pub(super) sum: f32,
}

/// Scores of [`SCORE_ROWS`] rows against `VECTORS` vectors of keys; `keys` yields one dimension
/// after the other.
#[inline(always)]
pub(super) fn score_vectors<'a, S: Simd, const VECTORS: usize>(
    simd: S,
    queries: &[[f32; SCORE_ROWS]],
    keys: impl Iterator<Item = &'a [f32]>,
    scores: &mut [f32],
) {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; SCORE_ROWS];
    for (queries, keys) in queries.iter().zip(keys) {
        let (keys, _) = S::as_simd_f32s(keys);
        let keys: &[S::f32s; VECTORS] = keys.first_chunk().expect("a block holds whole vectors");
        for (sums, query) in sums.iter_mut().zip(queries) {
            let query = simd.splat_f32s(*query);
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = simd.mul_add_f32s(query, *key, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        let (scores, _) = S::as_mut_simd_f32s(&mut scores[row * KEYS..]);
        scores[..VECTORS].copy_from_slice(sums);
    }
}

/// Turns the first `seen` scores into weights relative to the row's new maximum, the rest into
/// zero, and scales what the row has summed so far.
#[inline(always)]
pub(super) fn soften(scores: &mut [f32], seen: usize, state: &mut RowState, out: &mut [f32]) {
    let (scores, masked) = scores.split_at_mut(seen);
    // The values of these keys are multiplied like all others.
    masked.fill(0.0);
    // The whole pass may lie beyond the row's own position.
    if scores.is_empty() {
        return;
    }
    let max = largest(scores).max(state.max);
    let sum = exp_in_place(scores, max);
    // Earlier weights were relative to the old maximum.
    if max > state.max {
        let scale = exp(state.max - max);
        state.sum *= scale;
        out.iter_mut().for_each(|value| *value *= scale);
        state.max = max;
    }
    state.sum += sum;
}

#[inline(always)]
fn largest(scores: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; 16];
    let (pieces, rest) = scores.as_chunks::<16>();
    for piece in pieces {
        for (best, score) in best.iter_mut().zip(piece) {
            *best = if *score > *best { *score } else { *best };
        }
    }
    rest.iter().chain(&best).fold(f32::NEG_INFINITY, |best, &score| best.max(score))
}

/// `out[row] += Σ scores[row][key] · values[key]` for `ROWS` rows, four vectors of a value at
/// once.
#[inline(always)]
pub(super) fn add_rows<S: Simd, const ROWS: usize>(
    simd: S,
    scores: &[f32],
    values: &[f32],
    dim: usize,
    out: &mut [f32],
) {
    let lanes = S::F32_LANES;
    let mut column = 0;
    while column + 4 * lanes <= dim {
        add_vectors::<S, ROWS, 4>(simd, scores, values, dim, out, column);
        column += 4 * lanes;
    }
    while column + lanes <= dim {
        add_vectors::<S, ROWS, 1>(simd, scores, values, dim, out, column);
        column += lanes;
    }
}

#[inline(always)]
fn add_vectors<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    scores: &[f32],
    values: &[f32],
    dim: usize,
    out: &mut [f32],
    column: usize,
) {
    let count = values.len() / dim;
    let scores: [&[f32]; ROWS] = std::array::from_fn(|row| &scores[row * KEYS..][..count]);
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    // Starts from the sums of the passes before.
    for (sums, out) in sums.iter_mut().zip(out.chunks_exact(dim)) {
        let (out, _) = S::as_simd_f32s(&out[column..]);
        sums.copy_from_slice(&out[..VECTORS]);
    }
    for (key, value) in values.chunks_exact(dim).enumerate() {
        let (value, _) = S::as_simd_f32s(&value[column..]);
        let value: &[S::f32s; VECTORS] = value.first_chunk().expect("a head holds whole vectors");
        for (sums, scores) in sums.iter_mut().zip(&scores) {
            let weight = simd.splat_f32s(scores[key]);
            for (sum, value) in sums.iter_mut().zip(value) {
                *sum = simd.mul_add_f32s(weight, *value, *sum);
            }
        }
    }
    for (sums, out) in sums.iter().zip(out.chunks_exact_mut(dim)) {
        let (out, _) = S::as_mut_simd_f32s(&mut out[column..]);
        out[..VECTORS].copy_from_slice(sums);
    }
}
