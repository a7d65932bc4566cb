//! Logarithm and exponential with the same bits on every machine.
//!
//! The standard library takes these two from the platform, whose last bits differ; a trace that
//! is named by its seed must not. Only additions, multiplications, divisions and roundings are
//! used here, and of those IEEE 754 fixes every bit. Results are within 1e-13 of the truth, which
//! is far below what a distribution can show.

use std::f64::consts::{LN_2, SQRT_2};

/// Bits of the fraction of an `f64`.
const FRACTION_BITS: u32 = 52;

/// Bias of its exponent.
const BIAS: i64 = 1023;

/// Terms of the logarithm's series: with |s| ≤ 0.172, s²⁴ is below the last bit.
const LN_TERMS: u32 = 12;

/// Terms of the exponential's series: 0.35¹⁶ / 16! is below the last bit.
const EXP_TERMS: u32 = 16;

/// The natural logarithm of a positive, normal `x`.
///
/// `x = m · 2^e` with m around 1, and `ln m = 2 · atanh((m − 1) / (m + 1))`.
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let mut exponent = (bits >> FRACTION_BITS) as i64 - BIAS;
    let mut mantissa = f64::from_bits(fraction | ((BIAS as u64) << FRACTION_BITS));
    // Around 1 the series converges fastest: |s| is at most 0.172.
    if mantissa > SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    // Horner's scheme, from the smallest term up.
    let term = |sum: f64, k: u32| sum * square + 1.0 / f64::from(2 * k + 1);
    let series = (0..LN_TERMS).rev().fold(0.0, term);
    2.0 * s * series + exponent as f64 * LN_2
}

/// e to the power of `x`; beyond ±700, where an `f64` ends, the value at the bound.
pub(super) fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    // `e^x` is `2^power · e^rest`, where |rest| is at most 0.35.
    let power = (x / LN_2).round();
    let rest = x - power * LN_2;
    let term = |sum: f64, k: u32| 1.0 + sum * rest / f64::from(k);
    let series = (1..=EXP_TERMS).rev().fold(1.0, term);
    // Up to ±700 the power is within ±1010, so the biased exponent is that of a normal number.
    let scale = ((power as i64 + BIAS) as u64) << FRACTION_BITS;
    series * f64::from_bits(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(got: f64, expected: f64) {
        let tolerance = 1e-13 * expected.abs().max(1e-3);
        assert!((got - expected).abs() <= tolerance, "{got} {expected}");
    }

    #[test]
    fn they_agree_with_the_platform_to_thirteen_digits() {
        for step in 1..4000 {
            let x = f64::from(step) * 0.01;
            check(ln(x), x.ln());
            check(exp(x), x.exp());
            check(exp(-x), (-x).exp());
        }
        check(ln(2f64.powi(-53)), 2f64.powi(-53).ln());
        check(ln(1.0), 0.0);
        check(exp(0.0), 1.0);
        assert!(exp(f64::INFINITY).is_finite());
    }

    /// Pins the bits of both functions: a change would change every seeded trace.
    #[test]
    fn their_bits_are_pinned() {
        assert_eq!(ln(10.0).to_bits(), 0x4002_6bb1_bbb5_5515);
        assert_eq!(exp(1.0).to_bits(), 0x4005_bf0a_8b14_576a);
    }
}
