//! Ages since a use, in half-octaves from a quarter of a second.

/// Ticks of the clock in a second.
pub(super) const TICKS: f64 = 64.0;

/// Number of steps of age; the last one has no end.
pub(super) const AGES: usize = 44;

/// The start of each step of age, seconds: 0, then from a quarter of a second by half-octaves. The
/// last step has no end; the start behind it gives it a width.
const STARTS: [f64; AGES + 1] = {
    let mut starts = [0.0; AGES + 1];
    let (mut age, mut octave) = (1, 0.25);
    while age < AGES {
        starts[age] = octave;
        starts[age + 1] = octave * std::f64::consts::SQRT_2;
        octave *= 2.0;
        age += 2;
    }
    starts
};

/// Returns the step of an age in seconds.
pub(super) fn step(age_s: f64) -> usize {
    // 43 starts behind 0, so at most six comparisons.
    STARTS[1..AGES].partition_point(|&start| start <= age_s)
}

/// Returns where a step begins, seconds. The step behind the last one begins at its nominal end.
pub(super) fn start_s(step: usize) -> f64 {
    STARTS[step]
}

/// The seconds of a step.
pub(super) fn width_s(step: usize) -> f64 {
    STARTS[step + 1] - STARTS[step]
}

/// Approximates the binary logarithm within 0.09, by the exponent and a straight line. The same
/// bits on every machine, which a library's logarithm does not promise.
pub(super) fn log2(value: f64) -> f64 {
    let bits = value.max(f64::MIN_POSITIVE).to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as f64 - 1023.0;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    exponent + mantissa - 1.0
}

/// Approximates `1 - exp(-x)` for `x` from 0 up within 0.0001, with the same bits on every machine.
pub(super) fn probability_of(expected: f32) -> f32 {
    // The diagonal Padé approximant is good to 1, and four squarings extend it to 16.
    let x = (expected * 0.0625).min(1.0);
    let mut survival = (12.0 - 6.0 * x + x * x) / (12.0 + 6.0 * x + x * x);
    for _ in 0..4 {
        survival *= survival;
    }
    1.0 - survival
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_half_octaves() {
        assert_eq!([start_s(0), start_s(1), start_s(3), start_s(5)], [0.0, 0.25, 0.5, 1.0]);
        assert!((start_s(2) - 0.25 * 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(start_s(43), 0.25 * f64::from(1 << 21));
        for at in 0..AGES {
            assert_eq!((step(start_s(at)), step(start_s(at + 1) - 1e-6)), (at, at));
            assert!(width_s(at) > 0.0);
        }
        assert_eq!((step(0.0), step(1e12)), (0, AGES - 1));
    }

    #[test]
    fn approximations_are_close() {
        for exponent in -40..40 {
            let x = 1.3f64.powi(exponent);
            assert!((log2(x) - x.log2()).abs() < 0.09, "{x}");
            let expected = 1.0 - (-x).exp();
            assert!((f64::from(probability_of(x as f32)) - expected).abs() < 1e-4, "{x}");
        }
    }
}
