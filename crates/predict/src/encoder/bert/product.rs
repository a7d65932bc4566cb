//! Matrix products over all tokens of a batch: `y = f(x · W + b)`.
//!
//! ```text
//! x [96 tokens][k] ──┐
//! W [k][64 columns] ─┴─► y [96 tokens][64 columns], by the kernel of the classifier
//! ```
//!
//! W is brought into panels of columns once, when the model is read: a panel and the tokens of a
//! task stay in a second-level cache. Tasks are panels of some tokens, so that a single short text
//! keeps all threads busy as well.
//!
//! Source: Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 2008.

use pulp::Arch;
use rayon::prelude::*;

use super::ops::{Activation, RowWork};
use crate::kernel::{AccumulationMode, LeftOperand, product};

/// Columns of a panel: with 1,536 rows it takes 384 KiB.
const PANEL: usize = 64;

/// Tokens of a task: their input, 1,536 values each at most, takes as much again.
const TASK_TOKENS: usize = 96;

/// A weight matrix and its bias.
#[derive(Debug)]
pub(super) struct PanelLinear {
    weight: Vec<f32>, // [n / PANEL][k][PANEL], the last columns zero beyond n
    bias: Vec<f32>,   // [n / PANEL][PANEL]
    k: usize,
    n: usize,
}

impl PanelLinear {
    /// From `weight` as it is stored, `[n, k]`, and a bias of `n`.
    pub(super) fn new(weight: &[f32], mut bias: Vec<f32>) -> Self {
        let n = bias.len();
        let k = weight.len() / n;
        assert_eq!(weight.len(), n * k, "a matrix is [n, k]");
        let panels = n.div_ceil(PANEL);
        // Zeros fill the last panel, so it needs no case of its own in the kernel.
        let mut packed = vec![0.0; panels * k * PANEL];
        for (column, values) in weight.chunks_exact(k).enumerate() {
            let first = column / PANEL * k * PANEL + column % PANEL;
            for (slot, value) in packed[first..].iter_mut().step_by(PANEL).zip(values) {
                *slot = *value;
            }
        }
        bias.resize(panels * PANEL, 0.0);
        Self { weight: packed, bias, k, n }
    }

    /// `activation(x · W + b)`, `[tokens, n]`, of `x`, `[tokens, k]`.
    pub(super) fn apply(&self, x: &[f32], activation: Option<Activation>) -> Vec<f32> {
        assert!(x.len().is_multiple_of(self.k), "x is [tokens, k]");
        let mut y = vec![0.0; x.len() / self.k * self.n];
        let tasks = x.par_chunks(TASK_TOKENS * self.k).zip(y.par_chunks_mut(TASK_TOKENS * self.n));
        tasks.for_each(|(x, y)| self.apply_to(x, activation, y));
        y
    }

    fn apply_to(&self, x: &[f32], activation: Option<Activation>, y: &mut [f32]) {
        let weight = self.weight.par_chunks_exact(self.k * PANEL);
        let panels = weight.zip(self.bias.par_chunks_exact(PANEL)).map(|(weight, bias)| {
            // The product adds to what is there, so the bias costs no pass of its own.
            let mut sums = bias.repeat(x.len() / self.k);
            let x = LeftOperand::rows(x, self.k);
            product(x, weight, &mut sums, PANEL, AccumulationMode::Add);
            if let Some(activation) = activation {
                Arch::new().dispatch(RowWork::Activate { activation, values: &mut sums });
            }
            sums
        });
        let panels: Vec<Vec<f32>> = panels.collect();
        for (token, y) in y.chunks_exact_mut(self.n).enumerate() {
            for (y, panel) in y.chunks_mut(PANEL).zip(&panels) {
                y.copy_from_slice(&panel[token * PANEL..][..y.len()]);
            }
        }
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
        let x = random(tokens * k);
        let linear = PanelLinear::new(&weight, bias.clone());
        for activation in [None, Some(Activation::Relu)] {
            let y = linear.apply(&x, activation);
            for token in 0..tokens {
                for column in 0..n {
                    let terms = (0..k)
                        .map(|i| f64::from(x[token * k + i]) * f64::from(weight[column * k + i]));
                    let mut expected = f64::from(bias[column]) + terms.sum::<f64>();
                    if activation.is_some() {
                        expected = expected.max(0.0);
                    }
                    let found = y[token * n + column];
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
