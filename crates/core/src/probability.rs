//! A probability that is a number: what a model says may not be one.

/// A number in `[0, 1]`, never NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f32);

/// There is no NaN, so equality is total.
impl Eq for Probability {}

impl Probability {
    /// Nothing is known either way.
    pub const EVEN: Self = Self(0.5);

    /// The nearest probability to `value`; `None` for NaN.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (!value.is_nan()).then(|| Self(value.clamp(0.0, 1.0) as f32))
    }

    /// As a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0)
    }

    /// The log-odds, `ln(p / (1 - p))`, of the probability clamped to `[margin, 1 - margin]`, so
    /// that they are finite.
    #[must_use]
    pub fn log_odds(self, margin: f64) -> f64 {
        let p = self.value().clamp(margin, 1.0 - margin);
        (p / (1.0 - p)).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, expected: Option<f64>) {
        assert_eq!(Probability::new(value).map(Probability::value), expected);
    }

    #[test]
    fn is_always_a_number_between_0_and_1() {
        check(0.25, Some(0.25));
        check(-1.0, Some(0.0));
        check(f64::INFINITY, Some(1.0));
        check(f64::NEG_INFINITY, Some(0.0));
        check(f64::NAN, None);
    }

    #[test]
    fn log_odds_are_finite_and_odd() {
        let log_odds = |p| Probability::new(p).map(|p| p.log_odds(1e-6));
        assert_eq!(log_odds(0.5), Some(0.0));
        let (Some(least), Some(most)) = (log_odds(0.0), log_odds(1.0)) else {
            panic!("both are numbers");
        };
        assert!(most.is_finite() && (least + most).abs() < 1e-9, "{least} {most}");
    }
}
