//! Matrix products `y = x · W` with weights stored `[K, N]`.
//!
//! Many rows (prefill) go to `gemm`. Few rows (decode) are bound by reading W once: each thread
//! walks down a strip of columns, keeps its sums in registers and multiplies every vector of W
//! by up to eight rows.

use gemm::Parallelism;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::kv::{Numbers, widen_into};

/// Rows up to which the strip kernel is used: equal to `gemm` on weights from memory, 1.6 times as
/// fast at one row on weights in the last-level cache, 2.7 times on bf16 (BENCHMARKS.md).
const FEW_ROWS: usize = 24;

/// Columns per task of the strip kernel: narrow enough for two threads to share any layer.
const STRIP: usize = 128;

/// Columns of bf16 weights widened at a time for `gemm`.
const PANEL: usize = 512;

/// A weight matrix.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Numbers, // [k, n]
    k: usize,
    n: usize,
    bias: Option<Vec<f32>>, // [n]
}

/// What becomes of the old contents of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `y = x · W`
    Replace,
    /// `y += x · W`
    Add,
}

/// Who computes a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Our own, for few rows.
    Strips,
    /// The `gemm` crate's, for many.
    Gemm,
}

impl Linear {
    /// From `weight` as `[k, n]` and an optional bias of `n`.
    ///
    /// # Panics
    /// When the sizes do not fit.
    #[must_use]
    pub fn new(weight: Numbers, k: usize, n: usize, bias: Option<Vec<f32>>) -> Self {
        assert_eq!(weight.len(), k * n, "a [k, n] matrix has k * n elements");
        assert!(
            bias.as_ref().is_none_or(|bias| bias.len() == n),
            "a bias has n elements"
        );
        Self { weight, k, n, bias }
    }

    /// Columns.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns `[first, first + count)` as `[count, k]`, and k.
    #[must_use]
    pub fn columns_as_rows(&self, first: usize, count: usize) -> (usize, Vec<f32>) {
        let mut panel = Vec::new();
        self.widen_panel(first, count, &mut panel);
        let at = |index: usize| panel[index % self.k * count + index / self.k];
        (self.k, (0..count * self.k).map(at).collect())
    }

    /// `y (+)= x · W + bias`; `x` is `[m, k]`, `y` is `[m, n]`, both row-major.
    ///
    /// # Panics
    /// When the sizes do not fit.
    pub fn apply(&self, x: &[f32], y: &mut [f32], write: Write) {
        let m = x.len() / self.k;
        assert!(
            x.len() == m * self.k && y.len() == m * self.n,
            "x is [m, k], y is [m, n]"
        );
        if m == 0 {
            return;
        }
        let kernel = if m <= FEW_ROWS {
            Kernel::Strips
        } else {
            Kernel::Gemm
        };
        self.apply_with(kernel, x, y, write);
    }

    /// [`Self::apply`] by a chosen kernel, to compare them.
    ///
    /// # Panics
    /// When the sizes do not fit.
    pub fn apply_with(&self, kernel: Kernel, x: &[f32], y: &mut [f32], write: Write) {
        let m = x.len() / self.k;
        match kernel {
            Kernel::Strips => self.few_rows(x, y, m, write),
            Kernel::Gemm => self.many_rows(x, y, m, write),
        }
        if let Some(bias) = &self.bias {
            super::ops::add_bias(y, bias);
        }
    }

    fn many_rows(&self, x: &[f32], y: &mut [f32], m: usize, write: Write) {
        match &self.weight {
            Numbers::F32(weight) => gemm(x, weight, self.n, y, self.n, [m, self.k, self.n], write),
            Numbers::Bf16(_) => {
                let mut panel = Vec::with_capacity(self.k * PANEL);
                for first in (0..self.n).step_by(PANEL) {
                    let width = PANEL.min(self.n - first);
                    self.widen_panel(first, width, &mut panel);
                    gemm(
                        x,
                        &panel,
                        width,
                        &mut y[first..],
                        self.n,
                        [m, self.k, width],
                        write,
                    );
                }
            }
        }
    }

    /// Columns `[first, first + width)` as f32, `[k, width]`.
    fn widen_panel(&self, first: usize, width: usize, panel: &mut Vec<f32>) {
        let mut scratch = Vec::new();
        panel.clear();
        for row in 0..self.k {
            let start = row * self.n + first;
            panel.extend_from_slice(self.weight.widen(start..start + width, &mut scratch));
        }
    }

    fn few_rows(&self, x: &[f32], y: &mut [f32], m: usize, write: Write) {
        let strips: Vec<Strip<'_>> = Strip::split(y, m, self.n);
        let x = &Packed::new(x, self.k);
        let arch = Arch::new();
        strips.into_par_iter().for_each(|strip| {
            arch.dispatch(StripProduct {
                x,
                weight: &self.weight,
                n: self.n,
                strip,
                write,
            });
        });
    }
}

/// `y (+)= x · w` by `gemm`, over the shared pool. `shape` is `[m, k, n]`.
fn gemm(
    x: &[f32],
    w: &[f32],
    w_stride: usize,
    y: &mut [f32],
    y_stride: usize,
    shape: [usize; 3],
    write: Write,
) {
    let [m, k, n] = shape;
    assert!(x.len() >= m * k && w.len() >= (k - 1) * w_stride + n);
    assert!(y.len() >= (m - 1) * y_stride + n);
    let add = write == Write::Add;
    let threads = Parallelism::Rayon(rayon::current_num_threads());
    // SAFETY: the asserts above keep every element that the strides reach inside the slices;
    // `y` is borrowed mutably, so it overlaps neither input.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            y.as_mut_ptr(),
            1,
            y_stride as isize,
            add,
            x.as_ptr(),
            1,
            k as isize,
            w.as_ptr(),
            1,
            w_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            threads,
        );
    }
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
            Self {
                first,
                width,
                rows: Vec::with_capacity(m),
            }
        });
        let mut strips: Vec<Self> = strips.collect();
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
struct Packed {
    k: usize,
    groups: Vec<(usize, Vec<f32>)>,
}

impl Packed {
    fn new(x: &[f32], k: usize) -> Self {
        let pack = |rows: &[f32]| {
            let width = (rows.len() / k).next_power_of_two();
            let mut packed = vec![0.0; k * width];
            for (row, x) in rows.chunks_exact(k).enumerate() {
                for (slot, &x) in packed[row..].iter_mut().step_by(width).zip(x) {
                    *slot = x;
                }
            }
            (width, packed)
        };
        Self {
            k,
            groups: x.chunks(GROUP * k).map(pack).collect(),
        }
    }
}

/// Rows of W that all column passes go over before the next: with the strip's width they fill
/// half of a 48 KiB first-level cache.
const DEPTH: usize = 64;

/// One strip of the product.
struct StripProduct<'a> {
    x: &'a Packed,
    weight: &'a Numbers, // [k, n]
    n: usize,
    strip: Strip<'a>,
    write: Write,
}

impl WithSimd for StripProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            x,
            weight,
            n,
            strip,
            write,
        } = self;
        let Strip {
            first: column,
            width,
            mut rows,
        } = strip;
        let mut scratch = vec![
            0.0;
            if let Numbers::Bf16(_) = weight {
                DEPTH * width
            } else {
                0
            }
        ];
        for first in (0..x.k).step_by(DEPTH) {
            let depth = first..x.k.min(first + DEPTH);
            let write = if first == 0 { write } else { Write::Add };
            let (weight, stride) = match weight {
                Numbers::F32(weight) => (&weight[first * n + column..], n),
                Numbers::Bf16(weight) => {
                    for (row, wide) in depth.clone().zip(scratch.chunks_exact_mut(width)) {
                        widen_into(&weight[row * n + column..][..width], wide);
                    }
                    (&scratch[..], width)
                }
            };
            let sums = Sums {
                weight,
                stride,
                width,
                write,
            };
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
        for column in column..self.width {
            for (row, out) in rows.iter_mut().enumerate() {
                let terms = x.iter().enumerate();
                let sum = terms
                    .map(|(k, x)| x[row] * self.weight[k * self.stride + column])
                    .sum();
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

/// `logits[row] = table · x[row]` where `table` is `[n, k]`, one row per vocabulary entry: the
/// layout of the embedding, so that a tied head needs no second copy.
///
/// # Panics
/// When the sizes do not fit.
pub fn rows_dot(x: &[f32], table: &Numbers, k: usize, logits: &mut [f32]) {
    let m = x.len() / k;
    let n = table.len() / k;
    assert!(
        logits.len() == m * n && table.len() == n * k,
        "logits are [m, n]"
    );
    /// Vocabulary entries per task: some 0.1 ms of work at k = 512.
    const ENTRIES: usize = 256;
    let arch = Arch::new();
    let pieces: Vec<Vec<f32>> = (0..n.div_ceil(ENTRIES))
        .into_par_iter()
        .map(|piece| {
            let entries = piece * ENTRIES..n.min((piece + 1) * ENTRIES);
            let mut values = vec![0.0; m * entries.len()];
            arch.dispatch(
                #[inline(always)]
                || dot_block(x, table, k, entries, &mut values),
            );
            values
        })
        .collect();
    for (piece, values) in pieces.iter().enumerate() {
        let width = values.len() / m.max(1);
        for (row, values) in values.chunks_exact(width.max(1)).enumerate() {
            logits[row * n + piece * ENTRIES..][..width].copy_from_slice(values);
        }
    }
}

/// All dot products of the rows of `x` with `entries` of the table, `[rows of x, entries]`. An
/// entry is read once for all rows.
#[inline(always)]
fn dot_block(
    x: &[f32],
    table: &Numbers,
    k: usize,
    entries: std::ops::Range<usize>,
    values: &mut [f32],
) {
    let width = entries.len();
    let mut scratch = Vec::new();
    for (column, entry) in entries.enumerate() {
        let entry = table.widen(entry * k..(entry + 1) * k, &mut scratch);
        for (row, x) in x.chunks_exact(k).enumerate() {
            values[row * width + column] = dot(x, entry);
        }
    }
}

/// 64 partial sums: four vectors in flight, in an order that the compiler may keep.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 64];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Dtype;
    use headstart_core::Rng;

    fn random(rng: &mut Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| rng.next_f64() as f32 - 0.5).collect()
    }

    fn plain(x: &[f32], w: &[f32], k: usize, n: usize) -> Vec<f64> {
        let row = |x: &[f32]| -> Vec<f64> {
            let column = |c| {
                (0..k)
                    .map(|i| f64::from(x[i]) * f64::from(w[i * n + c]))
                    .sum()
            };
            (0..n).map(column).collect()
        };
        x.chunks_exact(k).flat_map(row).collect()
    }

    fn check(m: usize, k: usize, n: usize, dtype: Dtype) {
        let mut rng = Rng::new((m * 1_000 + n) as u64);
        let (x, w) = (random(&mut rng, m * k), random(&mut rng, k * n));
        let bias = random(&mut rng, n);
        let weight = Numbers::from_f32(dtype, w);
        let mut scratch = Vec::new();
        let expected = plain(&x, weight.widen(0..k * n, &mut scratch), k, n);
        let linear = Linear::new(weight.clone(), k, n, Some(bias.clone()));
        let start = random(&mut rng, m * n);
        for write in [Write::Replace, Write::Add] {
            let mut y = start.clone();
            linear.apply(&x, &mut y, write);
            for (at, (y, expected)) in y.iter().zip(&expected).enumerate() {
                let before = if write == Write::Add { start[at] } else { 0.0 };
                let expected = expected + f64::from(before) + f64::from(bias[at % n]);
                assert!(
                    (f64::from(*y) - expected).abs() < 1e-4,
                    "m {m}, n {n}, {dtype:?}, {at}"
                );
            }
        }
    }

    #[test]
    fn products_match_the_definition() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for m in [1, 2, 3, 4, 5, 8, 9, 20, 30, 70] {
                for n in [1, 17, 128, 200, 600] {
                    check(m, 48, n, dtype);
                }
            }
        }
    }

    #[test]
    fn the_head_is_a_product_with_the_transposed_table() {
        let mut rng = Rng::new(1);
        let (m, k, n) = (3, 80, 700);
        let (x, table) = (random(&mut rng, m * k), random(&mut rng, n * k));
        let transposed: Vec<f32> = (0..k * n).map(|at| table[(at % n) * k + at / n]).collect();
        let expected = plain(&x, &transposed, k, n);
        let mut logits = vec![0.0; m * n];
        rows_dot(&x, &Numbers::F32(table), k, &mut logits);
        for (logit, expected) in logits.iter().zip(expected) {
            assert!((f64::from(*logit) - expected).abs() < 1e-4);
        }
    }
}
