//! Figures that the study prints, and the same figures of a row of cells.
//!
//! Source: the abstract and section 6 of "KVCache Cache in the Wild" (USENIX ATC'25): hit rates and
//! times to the first token are plots there; these ranges are what is said in words.

use std::ops::RangeInclusive;

/// WA's block hit rate over that of the best other policy, relative, percent.
pub(crate) const OVER_BEST: RangeInclusive<f64> = 1.5..=3.9;

/// WA's block hit rate over those of the other policies, relative, percent.
pub(crate) const OVER_OTHERS: RangeInclusive<f64> = 8.1..=23.9;

/// WA's queued time to the first token against the others', percent.
pub(crate) const QTTFT: RangeInclusive<f64> = -41.9..=-28.3;

/// The policies that WA is measured by.
pub(crate) const BASELINES: [&str; 4] = ["lru", "fifo", "lfu", "s3fifo"];

/// Gain of one policy over the baselines, in one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gain {
    /// Hit rate over that of the best baseline, relative, percent.
    pub(crate) over_best: f64,
    /// The same over the worst.
    pub(crate) over_worst: f64,
    /// Mean queued time to the first token against the baseline with the best hit rate, percent.
    pub(crate) qttft_best: f64,
    /// The same against the slowest baseline.
    pub(crate) qttft_worst: f64,
}

impl Gain {
    /// Of (hit rate, mean seconds) pairs: one policy's and the baselines'. None where there is no
    /// baseline, or nothing was hit or took time.
    #[must_use]
    pub(crate) fn of(own: (f64, f64), baselines: &[(f64, f64)]) -> Option<Self> {
        let by_rate = |a: &&(f64, f64), b: &&(f64, f64)| a.0.total_cmp(&b.0);
        let best = baselines.iter().max_by(by_rate)?;
        let worst = baselines.iter().min_by(by_rate)?;
        let slowest = baselines.iter().map(|baseline| baseline.1).fold(0.0, f64::max);
        let percent = |own: f64, other: f64| (own / other - 1.0) * 100.0;
        // Ratios to nothing would be infinite.
        let is_known = worst.0 > 0.0 && best.1 > 0.0;
        is_known.then(|| Self {
            over_best: percent(own.0, best.0),
            over_worst: percent(own.0, worst.0),
            qttft_best: percent(own.1, best.1),
            qttft_worst: percent(own.1, slowest),
        })
    }
}

/// Position of a figure relative to a range in which more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangePosition {
    /// Less than was published.
    Below,
    /// As much.
    Within,
    /// More.
    Above,
}

impl RangePosition {
    /// Of `value` and `range`.
    #[must_use]
    pub(crate) fn of(value: f64, range: &RangeInclusive<f64>) -> Self {
        match value {
            value if value < *range.start() => Self::Below,
            value if value > *range.end() => Self::Above,
            _ => Self::Within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_relative_to_best_and_worst() {
        let gain = Gain::of((0.44, 6.0), &[(0.40, 8.0), (0.22, 12.0)]).expect("baselines");
        assert!((gain.over_best - 10.0).abs() < 1e-9);
        assert!((gain.over_worst - 100.0).abs() < 1e-9);
        assert!((gain.qttft_best + 25.0).abs() < 1e-9);
        assert!((gain.qttft_worst + 50.0).abs() < 1e-9);
        assert_eq!(Gain::of((0.4, 1.0), &[]), None);
        assert_eq!(Gain::of((0.4, 1.0), &[(0.0, 1.0)]), None);
    }

    #[test]
    fn a_figure_is_below_within_or_above() {
        assert_eq!(RangePosition::of(1.0, &OVER_BEST), RangePosition::Below);
        assert_eq!(RangePosition::of(1.5, &OVER_BEST), RangePosition::Within);
        assert_eq!(RangePosition::of(-45.0, &QTTFT), RangePosition::Below);
        assert_eq!(RangePosition::of(-3.0, &QTTFT), RangePosition::Above);
    }
}
