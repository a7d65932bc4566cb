//! Element-wise passes over rows.

use pulp::Arch;
use rayon::prelude::*;

/// Rows below which splitting over threads costs more than it saves (a fork-join is some 5 µs,
/// a row of 512 some 0.1 µs).
const PARALLEL_ROWS: usize = 32;

/// `out = x / rms(x) * weight`, row by row; all rows have `weight.len()` values.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    for_each_row(out, width, |row, out| {
        let x = &x[row * width..(row + 1) * width];
        let scale = rms_scale(x, eps);
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    });
}

/// [`rms_norm`] in place over the consecutive heads of `rows`, each of `weight.len()` values.
pub fn rms_norm_heads(rows: &mut [f32], weight: &[f32], eps: f32) {
    for head in rows.chunks_exact_mut(weight.len()) {
        let scale = rms_scale(head, eps);
        for (x, weight) in head.iter_mut().zip(weight) {
            *x *= scale * weight;
        }
    }
}

/// `out = silu(gate) * up` where a row of `gate_up` is `[gate | up]`, each of `width` values.
pub fn silu_mul(gate_up: &[f32], width: usize, out: &mut [f32]) {
    for_each_row(out, width, |row, out| {
        let (gate, up) = gate_up[row * 2 * width..(row + 1) * 2 * width].split_at(width);
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    });
}

/// Adds `bias` to every row.
pub fn add_bias(rows: &mut [f32], bias: &[f32]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (x, bias) in row.iter_mut().zip(bias) {
            *x += bias;
        }
    }
}

/// Replaces `scores` by `exp(score - max)` and returns their sum.
#[inline(always)]
pub fn exp_in_place(scores: &mut [f32], max: f32) -> f32 {
    // Sixteen partial sums: the compiler may not reorder one.
    let mut sums = [0.0f32; 16];
    let (pieces, rest) = scores.as_chunks_mut::<16>();
    for piece in pieces {
        for (score, sum) in piece.iter_mut().zip(&mut sums) {
            *score = exp(*score - max);
            *sum += *score;
        }
    }
    let mut total: f32 = sums.iter().sum();
    for score in rest {
        *score = exp(*score - max);
        total += *score;
    }
    total
}

/// `e^x` to 2 ulp for `x` in [-87, 88], clamped beyond; straight-line code that vectorizes.
///
/// Source: Cody-Waite reduction to `2^n · e^r`, |r| ≤ ln 2 / 2, and the degree-6 Taylor series.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// 1.5 · 2²³: adding it rounds to an integer that sits in the low mantissa bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few bits, so that `n * LN2_HIGH` is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Just beyond these the result leaves the range of normal f32s.
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // In two steps, so that the low bits of `r` are not lost.
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let series = 1.0 / 720.0;
    let series = series * r + 1.0 / 120.0;
    let series = series * r + 1.0 / 24.0;
    let series = series * r + 1.0 / 6.0;
    let series = series * r + 0.5;
    let series = series * r + 1.0;
    let series = series * r + 1.0;
    // The low bits hold n; moved into the exponent they make 2^n.
    series * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

#[inline(always)]
fn rms_scale(x: &[f32], eps: f32) -> f32 {
    // Sixteen partial sums, as in `exp_in_place`.
    let mut sums = [0.0f32; 16];
    let (pieces, rest) = x.as_chunks::<16>();
    for piece in pieces {
        for (x, sum) in piece.iter().zip(&mut sums) {
            *sum += x * x;
        }
    }
    let sum: f32 = sums.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>();
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

/// Runs `pass(row index, row)` over rows of `width`, on several threads when it pays, compiled for
/// the best instructions available.
fn for_each_row(rows: &mut [f32], width: usize, pass: impl Fn(usize, &mut [f32]) + Sync) {
    let arch = Arch::new();
    let run = |(row, values): (usize, &mut [f32])| {
        arch.dispatch(
            #[inline(always)]
            || pass(row, values),
        );
    };
    if rows.len() < PARALLEL_ROWS * width {
        rows.chunks_exact_mut(width).enumerate().for_each(run);
    } else {
        rows.par_chunks_exact_mut(width).with_min_len(8).enumerate().for_each(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn norm_and_gate_match_their_definitions() {
        let x: Vec<f32> = (0..64 * 40).map(|i| (i as f32 * 0.37).sin()).collect();
        let weight: Vec<f32> = (0..40).map(|i| 1.0 + i as f32 * 0.01).collect();
        let mut out = vec![0.0; x.len()];
        rms_norm(&x, &weight, 1e-5, &mut out);
        for (row, out) in x.chunks(40).zip(out.chunks(40)) {
            let mean = row.iter().map(|x| x * x).sum::<f32>() / 40.0;
            for ((x, weight), out) in row.iter().zip(&weight).zip(out) {
                assert!((x / (mean + 1e-5).sqrt() * weight - out).abs() < 1e-5);
            }
        }
        let mut gated = vec![0.0; x.len() / 2];
        silu_mul(&x, 20, &mut gated);
        let (gate, up) = (x[40], x[60]);
        assert!((gated[20] - gate / (1.0 + (-gate).exp()) * up).abs() < 1e-6);
    }
}
