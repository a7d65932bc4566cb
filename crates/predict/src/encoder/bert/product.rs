//! Matrix products over tiles: `y = f(x · W + b)`.
//!
//! A block of the product is some columns of W times the tokens of one tile, summed in registers:
//! a vector holds one feature of 16 tokens, and each weight is spread over a vector.
//!
//! ```text
//! x [k][32 tokens] ──┐
//! W [k][12 columns] ─┴─► 12 × 2 vectors of sums ─► y [12 columns][32 tokens]
//! ```
//!
//! What a product writes is what the next one reads, so nothing is packed or transposed on the
//! way; weights are brought into blocks of columns once, when the model is read.
//!
//! Source: Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 2008
//! (blocks in registers, panels in caches). Here both operands arrive packed.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::ops::Activation;
use super::tiles::{FeatureRow, TILE, TextBoundaries, Tiles};

/// Columns of a block with 32 registers of 16 values: 24 sums, two of x, a weight.
const WIDE: usize = 12;

/// Columns of a block with 16 registers: 12 sums, two of x, a weight.
const NARROW: usize = 6;

/// Rows of W in a pass: a tile's share of x (192 · 128 B = 24 KiB) then stays in a first-level
/// cache while the task's columns pass by.
const PASS: usize = 192;

/// Columns per task, a multiple of both: narrow enough for two threads to share any layer.
const TASK_COLUMNS: usize = 96;

/// Tiles per task: a panel of W is read from a far cache once for as many, and they stay in a
/// second-level cache (8 × 384 features × 128 B = 384 KiB).
const TASK_TILES: usize = 8;

/// A weight matrix and its bias.
#[derive(Debug)]
pub(super) struct TiledLinear {
    weight: Vec<f32>, // [n / columns][k][columns], the last columns zero beyond n
    bias: Vec<f32>,   // [n / columns][columns]
    columns: usize,
    k: usize,
    n: usize,
}

impl TiledLinear {
    /// From `weight` as it is stored, `[n, k]`, and a bias of `n`.
    pub(super) fn new(weight: &[f32], mut bias: Vec<f32>) -> Self {
        let n = bias.len();
        let k = weight.len() / n;
        assert_eq!(weight.len(), n * k, "a matrix is [n, k]");
        // Blocks are as wide as this machine's registers allow, and the weights are packed once for
        // that.
        let columns = Arch::new().dispatch(BlockColumns);
        let blocks = n.div_ceil(columns);
        // Zeros fill the last block, so it needs no case of its own in the inner loop.
        let mut packed = vec![0.0; blocks * k * columns];
        for (column, values) in weight.chunks_exact(k).enumerate() {
            let first = column / columns * k * columns + column % columns;
            for (slot, value) in packed[first..].iter_mut().step_by(columns).zip(values) {
                *slot = *value;
            }
        }
        bias.resize(blocks * columns, 0.0);
        Self { weight: packed, bias, columns, k, n }
    }

    /// Columns.
    pub(super) fn n(&self) -> usize {
        self.n
    }

    /// `y = activation(x · W + b)` for the batch of `spans`; `x` is `[tiles][k]`, `y` is
    /// `[tiles][n]`. Spare lanes are not all written.
    pub(super) fn apply(
        &self,
        x: &Tiles,
        y: &mut Tiles,
        spans: &TextBoundaries,
        activation: Option<Activation>,
    ) {
        assert!(x.width() == self.k && y.width() == self.n, "x is [tiles][k], y is [tiles][n]");
        let arch = Arch::new();
        self.tasks(y).into_par_iter().for_each(|task| {
            arch.dispatch(TaskProduct { linear: self, x, spans, activation, task });
        });
    }

    fn tasks<'a>(&self, y: &'a mut Tiles) -> Vec<ColumnTask<'a>> {
        let mut tasks = Vec::new();
        let group = TASK_TILES * self.n;
        for (index, group) in y.rows_mut().chunks_mut(group).enumerate() {
            // Each task gets slices of its own, so tasks write in parallel without a lock.
            let of_group = tasks.len();
            tasks.extend((0..self.n).step_by(TASK_COLUMNS).map(|first_column| ColumnTask {
                first_tile: index * TASK_TILES,
                first_column,
                out: Vec::with_capacity(TASK_TILES),
            }));
            for tile in group.chunks_exact_mut(self.n) {
                let pieces = tile.chunks_mut(TASK_COLUMNS);
                for (task, piece) in tasks[of_group..].iter_mut().zip(pieces) {
                    task.out.push(piece);
                }
            }
        }
        tasks
    }
}

/// Some columns of some tiles of the result.
struct ColumnTask<'a> {
    first_tile: usize,
    first_column: usize,
    out: Vec<&'a mut [FeatureRow]>, // [tiles][columns]
}

struct TaskProduct<'a> {
    linear: &'a TiledLinear,
    x: &'a Tiles,
    spans: &'a TextBoundaries,
    activation: Option<Activation>,
    task: ColumnTask<'a>,
}

impl WithSimd for TaskProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.linear.columns {
            WIDE => self.run::<S, WIDE>(simd),
            _ => self.run::<S, NARROW>(simd),
        }
    }
}

impl TaskProduct<'_> {
    #[inline(always)]
    fn run<S: Simd, const COLUMNS: usize>(self, simd: S) {
        let (k, n) = (self.linear.k, self.linear.n);
        let (weight, _) = self.linear.weight.as_chunks::<COLUMNS>();
        let (bias, _) = self.linear.bias.as_chunks::<COLUMNS>();
        let first = self.task.first_column;
        let columns = n.min(first + TASK_COLUMNS) - first;
        for (tile, out) in (self.task.first_tile..).zip(self.task.out) {
            let live = self.spans.live(tile);
            let x = self.x.tile(tile);
            // The pass is the outer loop, so that its part of x stays in the first-level cache.
            for pass in (0..k).step_by(PASS) {
                let passed = pass..k.min(pass + PASS);
                let x = &x[passed.clone()];
                for column in (0..columns).step_by(COLUMNS) {
                    let block = (first + column) / COLUMNS;
                    let weight = &weight[block * k..][passed.clone()];
                    // The first pass starts from the bias, later ones from the sum so far.
                    let bias = (pass == 0).then_some(&bias[block]);
                    let out = &mut out[column..];
                    if let Some(out) = out.first_chunk_mut() {
                        product::<S, COLUMNS>(simd, x, weight, bias, live, out);
                    } else {
                        // The last block reaches beyond the columns, so it is computed in spare
                        // memory.
                        let mut whole = [FeatureRow::ZERO; COLUMNS];
                        whole[..out.len()].copy_from_slice(out);
                        product::<S, COLUMNS>(simd, x, weight, bias, live, &mut whole);
                        out.copy_from_slice(&whole[..out.len()]);
                    }
                }
            }
            // After the last pass: an activation of a part of the sum would be wrong.
            if let Some(activation) = self.activation {
                activation.apply(out);
            }
        }
    }
}

/// `out[column] = start + Σ weight[k][column] · x[k]` for the first `live` lanes; the start is
/// the bias, or what is there.
#[inline(always)]
fn product<S: Simd, const COLUMNS: usize>(
    simd: S,
    x: &[FeatureRow],
    weight: &[[f32; COLUMNS]],
    bias: Option<&[f32; COLUMNS]>,
    live: usize,
    out: &mut [FeatureRow; COLUMNS],
) {
    // Vectors without a live token are left out: the last tile of a batch may be nearly empty.
    let vectors = live.div_ceil(S::F32_LANES);
    let mut first = 0;
    while first + 2 <= vectors {
        block::<S, COLUMNS, 2>(simd, x, weight, bias, first, out);
        first += 2;
    }
    if first < vectors {
        block::<S, COLUMNS, 1>(simd, x, weight, bias, first, out);
    }
}

#[inline(always)]
fn block<S: Simd, const COLUMNS: usize, const VECTORS: usize>(
    simd: S,
    x: &[FeatureRow],
    weight: &[[f32; COLUMNS]],
    bias: Option<&[f32; COLUMNS]>,
    first: usize,
    out: &mut [FeatureRow; COLUMNS],
) {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; COLUMNS];
    if let Some(bias) = bias {
        for (sums, bias) in sums.iter_mut().zip(bias) {
            *sums = [simd.splat_f32s(*bias); VECTORS];
        }
    } else {
        for (sums, out) in sums.iter_mut().zip(&*out) {
            *sums = *vectors::<S, VECTORS>(out, first);
        }
    }
    for (x, weight) in x.iter().zip(weight) {
        let x = vectors::<S, VECTORS>(x, first);
        for (sums, weight) in sums.iter_mut().zip(weight) {
            let weight = simd.splat_f32s(*weight);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = simd.mul_add_f32s(weight, *x, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(&sums) {
        *vectors_mut::<S, VECTORS>(out, first) = *sums;
    }
}

/// `VECTORS` vectors of a row, from vector `first` on.
#[inline(always)]
pub(super) fn vectors<S: Simd, const VECTORS: usize>(
    row: &FeatureRow,
    first: usize,
) -> &[S::f32s; VECTORS] {
    let (row, _) = S::as_simd_f32s(&row.0);
    row[first..].first_chunk().expect("a tile is whole vectors")
}

/// [`vectors`], to write.
#[inline(always)]
pub(super) fn vectors_mut<S: Simd, const VECTORS: usize>(
    row: &mut FeatureRow,
    first: usize,
) -> &mut [S::f32s; VECTORS] {
    let (row, _) = S::as_mut_simd_f32s(&mut row.0);
    row[first..].first_chunk_mut().expect("a tile is whole vectors")
}

/// Number of columns in a block on this machine.
struct BlockColumns;

impl WithSimd for BlockColumns {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        if S::F32_LANES * 2 == TILE { WIDE } else { NARROW }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn check(tokens: usize, k: usize, n: usize) {
        let mut rng = Rng::new((tokens * 1_000 + n) as u64);
        let mut random =
            |len: usize| -> Vec<f32> { (0..len).map(|_| rng.next_f64() as f32 - 0.5).collect() };
        let (weight, bias) = (random(n * k), random(n));
        let values = random(tokens * k);
        let spans = TextBoundaries::new([tokens].into_iter());
        let (mut x, mut y) = (Tiles::default(), Tiles::default());
        x.resize(spans.num_tiles(), k);
        y.resize(spans.num_tiles(), n);
        for (at, value) in values.iter().enumerate() {
            let (token, feature) = (at / k, at % k);
            x.rows_mut()[token / TILE * k + feature].0[token % TILE] = *value;
        }
        let linear = TiledLinear::new(&weight, bias.clone());
        for activation in [None, Some(Activation::Relu)] {
            linear.apply(&x, &mut y, &spans, activation);
            for token in 0..tokens {
                for column in 0..n {
                    let terms = (0..k).map(|i| {
                        f64::from(values[token * k + i]) * f64::from(weight[column * k + i])
                    });
                    let mut expected = f64::from(bias[column]) + terms.sum::<f64>();
                    if activation.is_some() {
                        expected = expected.max(0.0);
                    }
                    let found = y.tile(token / TILE)[column].0[token % TILE];
                    assert!(
                        (f64::from(found) - expected).abs() < 1e-4,
                        "{tokens} tokens, [{n}, {k}], token {token}, column {column}"
                    );
                }
            }
        }
    }

    #[test]
    fn products_match_the_definition() {
        for tokens in [1, 15, 16, 17, 32, 33, 300] {
            for n in [1, 5, 12, 13, 96, 100, 200] {
                check(tokens, 48, n);
            }
        }
    }
}
