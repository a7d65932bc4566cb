//! Matrix products of few rows: each thread walks down a strip of columns of W, keeps its sums in
//! registers and multiplies every vector of W by up to eight rows, so that W is read once.
//!
//! ```text
//!            strip          strip
//! W [k, n] │ 128 columns │ 128 columns │ …    a task each
//!          │ 64 rows: all columns and rows of x, then the next 64
//! ```

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::linear::Write;
use crate::kv::{Numbers, widen_into};

/// Columns per task: narrow enough for two threads to share any layer.
const STRIP: usize = 128;

/// `y (+)= x · weight`; `x` is `[m, k]`, `weight` is `[k, n]`, `y` is `[m, n]`.
pub(super) fn product(x: &[f32], weight: &Numbers, k: usize, y: &mut [f32], write: Write) {
    let (m, n) = (x.len() / k, weight.len() / k);
    let strips: Vec<Strip<'_>> = Strip::split(y, m, n);
    let x = &PackedRows::new(x, k);
    let arch = Arch::new();
    strips.into_par_iter().for_each(|strip| {
        arch.dispatch(StripProduct { x, weight, n, strip, write });
    });
}

/// Columns `[first, first + width)` of all rows of `y`.
struct Strip<'a> {
    first: usize,
    width: usize,
    rows: Vec<&'a mut [f32]>,
}

impl<'a> Strip<'a> {
    fn split(y: &'a mut [f32], m: usize, n: usize) -> Vec<Self> {
        let strips = (0..n).step_by(STRIP).map(|first| {
            let width = STRIP.min(n - first);
            Self { first, width, rows: Vec::with_capacity(m) }
        });
        let mut strips: Vec<Self> = strips.collect();
        // All rows are cut at the same columns, so a strip gets a piece of each.
        for row in y.chunks_exact_mut(n) {
            for (strip, piece) in strips.iter_mut().zip(row.chunks_mut(STRIP)) {
                strip.rows.push(piece);
            }
        }
        strips
    }
}

/// Rows summed in registers at once.
const GROUP: usize = 8;

/// The rows of `x` in groups of up to [`GROUP`], each transposed to `[k][rows]` with the number
/// of rows rounded up to one that has a kernel.
struct PackedRows {
    k: usize,
    groups: Vec<(usize, Vec<f32>)>,
}

impl PackedRows {
    fn new(x: &[f32], k: usize) -> Self {
        let pack = |rows: &[f32]| {
            // 1, 2, 4 or 8 rows, for which there are kernels; rows added are zero.
            let width = (rows.len() / k).next_power_of_two();
            let mut packed = vec![0.0; k * width];
            for (row, x) in rows.chunks_exact(k).enumerate() {
                for (slot, &x) in packed[row..].iter_mut().step_by(width).zip(x) {
                    *slot = x;
                }
            }
            (width, packed)
        };
        Self { k, groups: x.chunks(GROUP * k).map(pack).collect() }
    }
}

/// Rows of W that all column passes go over before the next: with the strip's width they fill
/// half of a 48 KiB first-level cache.
const DEPTH: usize = 64;

/// One strip of the product.
struct StripProduct<'a> {
    x: &'a PackedRows,
    weight: &'a Numbers, // [k, n]
    n: usize,
    strip: Strip<'a>,
    write: Write,
}

impl WithSimd for StripProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, weight, n, strip, write } = self;
        let Strip { first: column, width, mut rows } = strip;
        // Only bf16 weights need room to be widened.
        let mut scratch = vec![0.0; if let Numbers::Bf16(_) = weight { DEPTH * width } else { 0 }];
        for first in (0..x.k).step_by(DEPTH) {
            let depth = first..x.k.min(first + DEPTH);
            // The first rows of W may replace `y`; the later ones add to it.
            let write = if first == 0 { write } else { Write::Add };
            let (weight, stride) = match weight {
                Numbers::F32(weight) => (&weight[first * n + column..], n),
                Numbers::Bf16(weight) => {
                    // Widened once for all groups of rows.
                    for (row, wide) in depth.clone().zip(scratch.chunks_exact_mut(width)) {
                        widen_into(&weight[row * n + column..][..width], wide);
                    }
                    (&scratch[..], width)
                }
            };
            let sums = Sums { weight, stride, width, write };
            for ((packed, x), rows) in x.groups.iter().zip(rows.chunks_mut(GROUP)) {
                let x = &x[depth.start * packed..depth.end * packed];
                // Eight vectors of sums hide the multiply-add's latency.
                match packed {
                    1 => sums.run::<S, 1, 8>(simd, x.as_chunks().0, rows),
                    2 => sums.run::<S, 2, 4>(simd, x.as_chunks().0, rows),
                    4 => sums.run::<S, 4, 4>(simd, x.as_chunks().0, rows),
                    _ => sums.run::<S, 8, 2>(simd, x.as_chunks().0, rows),
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Sums<'a> {
    weight: &'a [f32],
    stride: usize,
    width: usize,
    write: Write,
}

impl Sums<'_> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize>(
        self,
        simd: S,
        x: &[[f32; ROWS]],
        rows: &mut [&mut [f32]],
    ) {
        let step = VECTORS * S::F32_LANES;
        let mut column = 0;
        while column + step <= self.width {
            self.columns::<S, ROWS, VECTORS>(simd, x, rows, column);
            column += step;
        }
        while column + S::F32_LANES <= self.width {
            self.columns::<S, ROWS, 1>(simd, x, rows, column);
            column += S::F32_LANES;
        }
        // The last columns fill no vector.
        for column in column..self.width {
            for (row, out) in rows.iter_mut().enumerate() {
                let terms = x.iter().enumerate();
                let sum = terms.map(|(k, x)| x[row] * self.weight[k * self.stride + column]).sum();
                store(&mut out[column], sum, self.write);
            }
        }
    }

    /// The `VECTORS` vectors of columns from `column` on, for all rows.
    #[inline(always)]
    fn columns<S: Simd, const ROWS: usize, const VECTORS: usize>(
        self,
        simd: S,
        x: &[[f32; ROWS]],
        rows: &mut [&mut [f32]],
        column: usize,
    ) {
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for (x, weights) in x.iter().zip(self.weight[column..].chunks(self.stride)) {
            let (weights, _) = S::as_simd_f32s(weights);
            let weights: &[S::f32s; VECTORS] = weights.first_chunk().expect("the strip is wide");
            for (sums, x) in sums.iter_mut().zip(x) {
                let x = simd.splat_f32s(*x);
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = simd.mul_add_f32s(x, *weight, *sum);
                }
            }
        }
        for (row, sums) in rows.iter_mut().zip(&sums) {
            let (out, _) = S::as_mut_simd_f32s(&mut row[column..]);
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = match self.write {
                    Write::Replace => *sum,
                    Write::Add => simd.add_f32s(*out, *sum),
                };
            }
        }
    }
}

#[inline(always)]
fn store(out: &mut f32, sum: f32, write: Write) {
    *out = if write == Write::Add { *out + sum } else { sum };
}
