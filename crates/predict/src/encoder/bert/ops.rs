//! Element-wise mathematics, written so that the compiler vectorizes it inside `Arch::dispatch`.

use pulp::{Simd, WithSimd};

/// Work on rows of values, compiled for the vectors of this machine by `Arch::dispatch`.
pub(super) enum RowWork<'a> {
    /// Replaces each value by the function of it.
    Activate { activation: Activation, values: &'a mut [f32] },
    /// `x = norm(x + change)`, token by token.
    AddAndNorm { norm: &'a Norm, x: &'a mut [f32], change: &'a [f32] },
    /// Turns the first `tokens` scores of each row of `width` into weights with a sum of 1, and the
    /// others into zeros.
    Soften { scores: &'a mut [f32], width: usize, tokens: usize },
}

impl WithSimd for RowWork<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self {
            Self::Activate { activation, values } => activation.apply(values),
            Self::AddAndNorm { norm, x, change } => {
                x.iter_mut().zip(change).for_each(|(x, change)| *x += change);
                for x in x.chunks_exact_mut(norm.weight.len()) {
                    norm.apply(x);
                }
            }
            Self::Soften { scores, width, tokens } => {
                for scores in scores.chunks_exact_mut(width) {
                    let (own, spare) = scores.split_at_mut(tokens);
                    soften(own);
                    spare.fill(0.0);
                }
            }
        }
    }
}

/// Values that are folded side by side: a vector of any processor, or two.
pub(super) const LANES: usize = 16;

/// Folds `values` into lanes, value by value from `start` on. One sum for all would be computed
/// without vectors, because its order is fixed.
#[inline(always)]
fn lanes(values: &[f32], start: f32, fold: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut lanes = [start; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = fold(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = fold(*lane, *value);
    }
    lanes
}

/// The function between the two products of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// `x · Φ(x)`, by the error function.
    Gelu,
    /// Its approximation by a hyperbolic tangent.
    GeluTanh,
    Relu,
}

impl Activation {
    /// By its name in `config.json`.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "gelu" => Self::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" => Self::GeluTanh,
            "relu" => Self::Relu,
            _ => return None,
        })
    }

    /// Replaces each value by the function of it.
    #[inline(always)]
    fn apply(self, values: &mut [f32]) {
        // Plain calls: one through a parameter would be compiled without the caller's vectors.
        match self {
            Self::Gelu => {
                for x in values {
                    *x = gelu(*x);
                }
            }
            Self::GeluTanh => {
                for x in values {
                    *x = gelu_tanh(*x);
                }
            }
            Self::Relu => {
                for x in values {
                    *x = if *x > 0.0 { *x } else { 0.0 };
                }
            }
        }
    }
}

/// Weight and bias of a layer normalization.
#[derive(Clone, Debug)]
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) eps: f32,
}

impl Norm {
    /// Normalizes the features of one token.
    #[inline(always)]
    fn apply(&self, x: &mut [f32]) {
        let share = 1.0 / x.len() as f32;
        let sums = lanes(
            x,
            0.0,
            #[inline(always)]
            |sum, x| sum + x,
        );
        let mean = sums.iter().sum::<f32>() * share;
        // A second pass over the distances: the difference of two large sums would lose digits.
        let squares = lanes(
            x,
            0.0,
            #[inline(always)]
            |sum, x| (x - mean).mul_add(x - mean, sum),
        );
        let inverse = 1.0 / (squares.iter().sum::<f32>() * share + self.eps).sqrt();
        for ((x, weight), bias) in x.iter_mut().zip(&self.weight).zip(&self.bias) {
            *x = ((*x - mean) * inverse).mul_add(*weight, *bias);
        }
    }
}

/// Turns the scores of a query into weights with a sum of 1.
#[inline(always)]
fn soften(scores: &mut [f32]) {
    let most = lanes(
        scores,
        f32::NEG_INFINITY,
        #[inline(always)]
        // `f32::max` has a rule for NaN, which costs instructions in this loop.
        |most, score| if score > most { score } else { most },
    );
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    for score in scores.iter_mut() {
        // Relative to the largest, so no power overflows.
        *score = exp(*score - most);
    }
    let sums = lanes(
        scores,
        0.0,
        #[inline(always)]
        |sum, weight| sum + weight,
    );
    // The largest score adds 1 to the sum, so it is never 0.
    let scale = 1.0 / sums.iter().sum::<f32>();
    scores.iter_mut().for_each(|score| *score *= scale);
}

/// `e^x` to 2 ulp for `x` in [-87, 88], clamped beyond.
///
/// Source: Cody-Waite reduction to `2^n · e^r`, |r| ≤ ln 2 / 2, and the degree-6 Taylor series.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// 1.5 · 2²³: adding it rounds to an integer that sits in the low mantissa bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few bits, so that `n * LN2_HIGH` is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // The result's exponent must fit: beyond these limits the bits below would wrap around.
    let x = x.clamp(-87.0, 88.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    // The rounded multiple of ln 2. It also lies in the low bits of `shifted`.
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let series = r.mul_add(1.0 / 720.0, 1.0 / 120.0);
    let series = series.mul_add(r, 1.0 / 24.0);
    let series = series.mul_add(r, 1.0 / 6.0);
    let series = series.mul_add(r, 0.5);
    let series = series.mul_add(r, 1.0);
    let series = series.mul_add(r, 1.0);
    // The shift leaves the integer plus 127 as an exponent, which is 2^n, and drops all other bits.
    series * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

/// `x · Φ(x) = max(x, 0) − |x| / 2 · erfc(|x| / √2)`, to `1.5e-7 · |x|`.
///
/// Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (after Hastings).
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let series = t.mul_add(1.061_405_4, -1.453_152);
    let series = series.mul_add(t, 1.421_413_7);
    let series = series.mul_add(t, -0.284_496_74);
    let series = series.mul_add(t, 0.254_829_6);
    let erfc = series * t * exp(-z * z);
    let positive = if x > 0.0 { x } else { 0.0 };
    (-0.5 * x.abs()).mul_add(erfc, positive)
}

/// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, as a logistic function.
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    /// 2 · √(2/π)
    const SLOPE: f32 = 1.595_769;
    let inner = SLOPE * (x * x * x).mul_add(0.044_715, x);
    x / (1.0 + exp(-inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest distance of `f` from `expected` on [-12, 12], relative to `1 + |x|`.
    fn distance(f: impl Fn(f32) -> f32, expected: impl Fn(f64) -> f64) -> f64 {
        let xs = (-12_000..=12_000).map(|step| step as f32 / 1_000.0);
        xs.map(|x| {
            let difference = f64::from(f(x)) - expected(f64::from(x));
            difference.abs() / (1.0 + f64::from(x.abs()))
        })
        .fold(0.0, f64::max)
    }

    /// erf by its Taylor series; enough terms for |x| ≤ 5, 1 beyond.
    fn erf(x: f64) -> f64 {
        if x.abs() > 5.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn exp_is_exact_to_two_ulp() {
        for step in -8_700..8_800 {
            let x = step as f32 / 100.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2.5e-7, "exp({x}) is off by {error}");
        }
        assert!(exp(-1e9) < 1e-37 && exp(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn activations_match_their_definitions() {
        let exact = |x: f64| 0.5 * x * (1.0 + erf(x / 2.0f64.sqrt()));
        let tanh = |x: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        };
        assert!(distance(gelu, exact) < 2e-7);
        assert!(distance(gelu_tanh, tanh) < 3e-7);
    }
}
