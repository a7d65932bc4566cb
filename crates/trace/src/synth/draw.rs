//! The distributions that a workload is drawn from.

use headstart_core::Rng;

use super::math::{exp, ln};

/// Longest time between two requests that is drawn, seconds: a year. Keeps sums of times far
/// from the end of [`headstart_core::Nanos`].
const GAP_MAX_S: f64 = 365.0 * 86_400.0;

/// Time between two requests of one session; from arrival to arrival in a trace, from answer to
/// arrival where answers take time.
#[derive(Clone, Debug, PartialEq)]
pub enum Gap {
    /// Exponential: memoryless.
    Exponential {
        /// Mean, seconds.
        mean_s: f64,
    },
    /// Log-normal: a heavy tail of users who come back late.
    LogNormal {
        /// Mean of the logarithm of the seconds; the median gap is `exp(mu)` seconds.
        mu: f64,
        /// Standard deviation of that logarithm.
        sigma: f64,
    },
    /// One of these, in seconds, each as likely.
    Empirical(Vec<f64>),
}

impl Gap {
    /// The log-normal gaps fitted to the Bailian trace (SAECache, arXiv 2605.18825).
    #[must_use]
    pub fn log_normal() -> Self {
        Self::LogNormal { mu: 4.82, sigma: 1.25 }
    }

    /// The exponential gaps of the presets after ATC'25.
    #[must_use]
    pub fn exponential() -> Self {
        Self::Exponential { mean_s: 420.0 }
    }

    /// One gap, in seconds; at most a year.
    ///
    /// # Panics
    /// When it is one of no empirical gaps.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let seconds = match self {
            Self::Exponential { mean_s } => exponential(rng, *mean_s),
            Self::LogNormal { mu, sigma } => exp(mu + sigma * normal(rng)),
            Self::Empirical(seconds) => seconds[rng.below(seconds.len())],
        };
        seconds.min(GAP_MAX_S)
    }

    /// Its mean, seconds, but for what is cut off at a year; not a number for no empirical gaps.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        match self {
            Self::Exponential { mean_s } => *mean_s,
            Self::LogNormal { mu, sigma } => exp(mu + sigma * sigma / 2.0),
            Self::Empirical(seconds) => seconds.iter().sum::<f64>() / seconds.len() as f64,
        }
    }

    /// Checks the parameters; the error states the rule.
    pub(super) fn check(&self) -> Result<(), String> {
        let ok = match self {
            Self::Exponential { mean_s } => is_size(*mean_s),
            Self::LogNormal { mu, sigma } => mu.is_finite() && is_size(*sigma),
            Self::Empirical(seconds) => !seconds.is_empty() && seconds.iter().all(|&s| is_size(s)),
        };
        let rule = "seconds must be finite and not negative, and a list of them not empty";
        ok.then_some(()).ok_or(format!("gap {self:?}: {rule}"))
    }
}

/// A length in tokens: log-normal with a given mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Mean, tokens.
    pub mean: f64,
    /// Standard deviation of the logarithm; 0 for a fixed length.
    pub sigma: f64,
}

impl Length {
    /// A length that is always `tokens`.
    #[must_use]
    pub fn fixed(tokens: u32) -> Self {
        Self { mean: f64::from(tokens), sigma: 0.0 }
    }

    /// One length, from 1 to `limit`.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng, limit: u32) -> u32 {
        let mut tokens = self.mean;
        if self.sigma > 0.0 {
            // exp(mu) · E[exp(sigma · normal)] is the mean with mu = ln(mean) − sigma² / 2.
            let deviation = self.sigma * normal(rng) - self.sigma * self.sigma / 2.0;
            tokens *= exp(deviation);
        }
        // `clamp` panics on reversed bounds, which a limit of 0 would give.
        let tokens = tokens.round().clamp(1.0, f64::from(limit.max(1)));
        tokens as u32
    }

    /// Checks the parameters; the error states the rule.
    pub(super) fn check(&self) -> Result<(), String> {
        let ok = is_size(self.mean) && (0.0..=5.0).contains(&self.sigma);
        let rule = "the mean must be finite and not negative, sigma from 0 to 5";
        ok.then_some(()).ok_or(format!("length {self:?}: {rule}"))
    }
}

/// Popularity after Zipf's law: the k-th of `count` is drawn in proportion to 1 / k^exponent.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    /// Sums of the weights up to and with the k-th.
    sums: Vec<f64>,
}

impl Zipf {
    /// Ranks of `count` things, at least one.
    pub(super) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |k: usize| exp(-exponent * ln(k as f64));
        let sums = (1..=count.max(1)).map(|k| {
            sum += weight(k);
            sum
        });
        Self { sums: sums.collect() }
    }

    /// One rank, from 0.
    pub(super) fn draw(&self, rng: &mut Rng) -> usize {
        let point = rng.next_f64() * self.sums.last().copied().unwrap_or(1.0);
        let rank = self.sums.partition_point(|&sum| sum <= point);
        // Rounding can put the point at the total, beyond the last rank.
        rank.min(self.sums.len() - 1)
    }
}

/// Exponential with `mean`.
pub(super) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * ln(1.0 - rng.next_f64())
}

/// True with probability `p`.
pub(super) fn chance(rng: &mut Rng, p: f64) -> bool {
    // A draw is below 1, so a probability of 1 always holds and one of 0 never does.
    rng.next_f64() < p
}

/// An index drawn in proportion to `weights`, of which one is positive.
pub(super) fn weighted(rng: &mut Rng, weights: impl Iterator<Item = f64> + Clone) -> usize {
    let mut point = rng.next_f64() * weights.clone().sum::<f64>();
    // Rounding can leave the point beyond all weights; the last positive one then takes it.
    let mut last = 0;
    for (index, weight) in weights.enumerate() {
        if weight > 0.0 {
            last = index;
            if point < weight {
                break;
            }
        }
        point -= weight;
    }
    last
}

/// Standard normal, by Marsaglia's polar method: needs neither sine nor cosine.
#[must_use]
pub fn normal(rng: &mut Rng) -> f64 {
    loop {
        let u = 2.0 * rng.next_f64() - 1.0;
        let v = 2.0 * rng.next_f64() - 1.0;
        let square = u * u + v * v;
        // Near the centre the square leaves the normal numbers, which `ln` needs.
        if square > 1e-300 && square < 1.0 {
            return u * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// Whether `x` is a finite number and not negative.
pub(super) fn is_size(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 40_000;

    fn sorted(mut draw: impl FnMut(&mut Rng) -> f64) -> Vec<f64> {
        let mut rng = Rng::new(11);
        let mut drawn: Vec<f64> = (0..DRAWS).map(|_| draw(&mut rng)).collect();
        drawn.sort_by(f64::total_cmp);
        drawn
    }

    /// Median and mean within 3 %.
    fn check(draw: impl FnMut(&mut Rng) -> f64, median: f64, mean: f64) {
        let drawn = sorted(draw);
        let got = (drawn[DRAWS / 2], drawn.iter().sum::<f64>() / DRAWS as f64);
        assert!((got.0 / median - 1.0).abs() < 0.03, "{got:?}");
        assert!((got.1 / mean - 1.0).abs() < 0.03, "{got:?}");
    }

    #[test]
    fn gaps_and_lengths_have_the_medians_and_means_asked_for() {
        let gap = Gap::Exponential { mean_s: 100.0 };
        check(|rng| gap.draw(rng), 69.3, gap.mean_s());
        let gap = Gap::LogNormal { mu: 4.82, sigma: 1.25 };
        assert!((gap.mean_s() - 270.76).abs() < 0.01);
        check(|rng| gap.draw(rng), 124.0, gap.mean_s());
        let gap = Gap::Empirical(vec![1.0, 2.0, 6.0]);
        check(|rng| gap.draw(rng), 2.0, gap.mean_s());
        let length = Length { mean: 800.0, sigma: 0.8 };
        check(|rng| f64::from(length.draw(rng, 1 << 20)), 580.9, 800.0);
        let length = Length::fixed(64);
        check(|rng| f64::from(length.draw(rng, 100)), 64.0, 64.0);
        check(|rng| f64::from(length.draw(rng, 50)), 50.0, 50.0);
    }

    #[test]
    fn ranks_follow_zipf_and_indices_their_weights() {
        let count = |mut draw: Box<dyn FnMut(&mut Rng) -> usize>| {
            let mut counts = [0usize; 4];
            let mut rng = Rng::new(5);
            (0..DRAWS).for_each(|_| counts[draw(&mut rng)] += 1);
            counts.map(|count| (count as f64 / DRAWS as f64 * 100.0).round())
        };
        let zipf = Zipf::new(4, 1.0);
        assert_eq!(count(Box::new(move |rng| zipf.draw(rng)))[0], 48.0);
        let weights = [0.0, 3.0, 0.0, 1.0];
        let draw = move |rng: &mut Rng| weighted(rng, weights.iter().copied());
        assert_eq!(count(Box::new(draw)), [0.0, 75.0, 0.0, 25.0]);
    }

    #[test]
    fn impossible_parameters_are_named() {
        let bad = |gap: Gap| gap.check().expect_err("must be refused");
        assert!(bad(Gap::Empirical(Vec::new())).contains("not empty"));
        assert!(bad(Gap::Exponential { mean_s: f64::NAN }).contains("finite"));
        let length = Length { mean: -1.0, sigma: 0.0 };
        assert!(length.check().is_err());
    }
}
