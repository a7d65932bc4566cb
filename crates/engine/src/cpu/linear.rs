//! Matrix products `y = x · W` with weights stored `[K, N]`.
//!
//! Many rows (prefill) go to `gemm`. Few rows (decode) are bound by reading W once: the kernel in
//! `strip.rs`.

use gemm_common::Parallelism;

use crate::kv::Numbers;

/// Rows up to which the strip kernel is used: equal to `gemm` on weights from memory, 1.6 times as
/// fast at one row in the toy's decode, 2.7 times on bf16 (docs/benchmarks/engine.md).
const FEW_ROWS: usize = 24;

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

/// Treatment of the old contents of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `y = x · W`
    Replace,
    /// `y += x · W`
    Add,
}

/// The implementation that computes a product.
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
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == n), "a bias has n elements");
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
        // The panel is `[k, count]`, so this reads it transposed.
        let at = |index: usize| panel[index % self.k * count + index / self.k];
        (self.k, (0..count * self.k).map(at).collect())
    }

    /// `y (+)= x · W + bias`; `x` is `[m, k]`, `y` is `[m, n]`, both row-major.
    ///
    /// # Panics
    /// When the sizes do not fit.
    pub fn apply(&self, x: &[f32], y: &mut [f32], write: Write) {
        let m = x.len() / self.k;
        assert!(x.len() == m * self.k && y.len() == m * self.n, "x is [m, k], y is [m, n]");
        // The checks of `gemm` subtract one from the number of rows.
        if m == 0 {
            return;
        }
        let kernel = if m <= FEW_ROWS { Kernel::Strips } else { Kernel::Gemm };
        self.apply_with(kernel, x, y, write);
    }

    /// [`Self::apply`] by a chosen kernel, to compare them.
    ///
    /// # Panics
    /// When the sizes do not fit.
    pub fn apply_with(&self, kernel: Kernel, x: &[f32], y: &mut [f32], write: Write) {
        let m = x.len() / self.k;
        match kernel {
            Kernel::Strips => super::strip::product(x, &self.weight, self.k, y, write),
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
                // Panel by panel, so that no f32 copy of the whole matrix is needed.
                let mut panel = Vec::with_capacity(self.k * PANEL);
                for first in (0..self.n).step_by(PANEL) {
                    let width = PANEL.min(self.n - first);
                    self.widen_panel(first, width, &mut panel);
                    gemm(x, &panel, width, &mut y[first..], self.n, [m, self.k, width], write);
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
    // The kernels want columns, and the transposed product `yᵀ = wᵀ · xᵀ` has them.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            n,
            m,
            k,
            y.as_mut_ptr(),
            y_stride as isize,
            1,
            add,
            w.as_ptr(),
            w_stride as isize,
            1,
            x.as_ptr(),
            k as isize,
            1,
            1.0,
            1.0,
            false,
            false,
            false,
            threads,
        );
    }
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
            let column = |c| (0..k).map(|i| f64::from(x[i]) * f64::from(w[i * n + c])).sum();
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
                assert!((f64::from(*y) - expected).abs() < 1e-4, "m {m}, n {n}, {dtype:?}, {at}");
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
}
