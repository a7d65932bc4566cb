//! The one matrix product of the classifier and of the transformer, `c (+)= a · b`, on one thread.
//!
//! The products are small (a batch of 256 rows, 128 columns), so `b` stays in the second-level
//! cache and threads would cost more than they gain. The transformer gives each task one product.
//! The order of the additions is fixed, so the same machine gives the same bits.

use pulp::{Arch, Simd, WithSimd};

/// Rows of `a` that are summed in registers at once.
const ROWS: usize = 6;
/// Vectors of columns beside them: with [`ROWS`] they leave sixteen registers room to load.
const VECTORS: usize = 2;

/// `a` as the product reads it: element `(row, k)` is `values[row · row_step + k · k_step]`.
#[derive(Clone, Copy)]
pub(crate) struct LeftOperand<'a> {
    values: &'a [f32],
    row_step: usize,
    k_step: usize,
}

impl<'a> LeftOperand<'a> {
    /// `[rows, k]`, row after row.
    pub(crate) fn rows(values: &'a [f32], k: usize) -> Self {
        Self { values, row_step: k, k_step: 1 }
    }

    /// The transpose of `[k, rows]`.
    pub(crate) fn columns(values: &'a [f32], rows: usize) -> Self {
        Self { values, row_step: 1, k_step: rows }
    }
}

/// Treatment of the old contents of `c`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccumulationMode {
    Replace,
    Add,
}

/// `c (+)= a · b`; `b` is `[k, n]`, `c` is `[m, n]`, both row after row.
///
/// # Panics
/// When the sizes do not fit.
pub(crate) fn product(
    a: LeftOperand<'_>,
    b: &[f32],
    c: &mut [f32],
    n: usize,
    write: AccumulationMode,
) {
    let (k, m) = (b.len() / n, c.len() / n);
    assert!(b.len() == k * n && c.len() == m * n && a.values.len() == m * k);
    Arch::new().dispatch(Product { a, b, c, n, write });
}

struct Product<'a> {
    a: LeftOperand<'a>,
    b: &'a [f32],
    c: &'a mut [f32],
    n: usize,
    write: AccumulationMode,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { a, b, c, n, write } = self;
        let k = b.len() / n;
        // Packed rows lie in the order of the inner loop, whichever way `a` is stored.
        let mut packed = vec![[0.0; ROWS]; k];
        for (tile, c) in c.chunks_mut(ROWS * n).enumerate() {
            // The last tile may have fewer rows. Old values in the others are summed and never
            // stored.
            let rows = c.len() / n;
            for (k, packed) in packed.iter_mut().enumerate() {
                for (row, slot) in packed.iter_mut().enumerate().take(rows) {
                    *slot = a.values[(tile * ROWS + row) * a.row_step + k * a.k_step];
                }
            }
            let tile = Tile { a: &packed, b, n, write };
            tile.run::<S>(simd, c);
        }
    }
}

/// Up to [`ROWS`] rows of the product.
struct Tile<'a> {
    a: &'a [[f32; ROWS]], // [k]
    b: &'a [f32],         // [k, n]
    n: usize,
    write: AccumulationMode,
}

impl Tile<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, c: &mut [f32]) {
        let mut column = 0;
        while column + VECTORS * S::F32_LANES <= self.n {
            self.vectors::<S, VECTORS>(simd, c, column);
            column += VECTORS * S::F32_LANES;
        }
        while column + S::F32_LANES <= self.n {
            self.vectors::<S, 1>(simd, c, column);
            column += S::F32_LANES;
        }
        // Columns that fill no vector, such as the single one of the last layer.
        for column in column..self.n {
            for (row, c) in c.chunks_exact_mut(self.n).enumerate() {
                let terms = self.a.iter().enumerate();
                let sum: f32 = terms.map(|(k, a)| a[row] * self.b[k * self.n + column]).sum();
                c[column] = if self.write == AccumulationMode::Add { c[column] + sum } else { sum };
            }
        }
    }

    /// The `COUNT` vectors of columns from `column` on.
    #[inline(always)]
    fn vectors<S: Simd, const COUNT: usize>(&self, simd: S, c: &mut [f32], column: usize) {
        let mut sums = [[simd.splat_f32s(0.0); COUNT]; ROWS];
        for (a, b) in self.a.iter().zip(self.b.chunks_exact(self.n)) {
            let (b, _) = S::as_simd_f32s(&b[column..]);
            let b: &[S::f32s; COUNT] = b.first_chunk().expect("column + COUNT vectors <= n");
            for (sums, a) in sums.iter_mut().zip(a) {
                let a = simd.splat_f32s(*a);
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = simd.mul_add_f32s(a, *b, *sum);
                }
            }
        }
        for (c, sums) in c.chunks_exact_mut(self.n).zip(&sums) {
            let (c, _) = S::as_mut_simd_f32s(&mut c[column..]);
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = match self.write {
                    AccumulationMode::Replace => *sum,
                    AccumulationMode::Add => simd.add_f32s(*c, *sum),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn random(rng: &mut Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| rng.next_f64() as f32 - 0.5).collect()
    }

    fn check(m: usize, k: usize, n: usize, write: AccumulationMode) {
        let mut rng = Rng::new((m * 10_000 + k * 100 + n) as u64);
        let (a, b) = (random(&mut rng, m * k), random(&mut rng, k * n));
        let old = random(&mut rng, m * n);
        let transposed: Vec<f32> = (0..k * m).map(|at| a[at % m * k + at / m]).collect();
        let mut rows = old.clone();
        product(LeftOperand::rows(&a, k), &b, &mut rows, n, write);
        let mut columns = old.clone();
        product(LeftOperand::columns(&transposed, m), &b, &mut columns, n, write);
        assert_eq!(rows, columns);
        for (at, got) in rows.iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let terms = (0..k).map(|k_| f64::from(a[row * k + k_]) * f64::from(b[k_ * n + column]));
            let kept = if write == AccumulationMode::Add { f64::from(old[at]) } else { 0.0 };
            let expected = kept + terms.sum::<f64>();
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{m} {k} {n}: {at}");
        }
    }

    #[test]
    fn it_is_the_sum_of_products_for_any_shape() {
        for (m, k, n) in
            [(1, 1, 1), (6, 385, 128), (7, 3, 40), (13, 5, 17), (256, 2, 128), (4, 0, 8)]
        {
            check(m, k, n, AccumulationMode::Replace);
            check(m, k, n, AccumulationMode::Add);
        }
    }
}
