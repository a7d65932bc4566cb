//! Distributions of times, fitted by maximum likelihood, and how well they fit.
//!
//! | model | parameters | estimate |
//! |---|---|---|
//! | exponential | `mean_s` | the mean |
//! | Weibull | `scale_s`, `shape` | the root of the likelihood's derivative by the shape |
//! | log-normal | `mu`, `sigma` (of the logarithm of seconds) | mean and deviation of logarithms |
//!
//! Times are counted in bins 1.6 % wide and stand for their bin's middle. Those below a
//! millisecond are in no fit. Nothing is censored: only times that were seen are fitted.
//!
//! Source: the exponential per class is that of "KVCache Cache in the Wild" (ATC'25), which takes
//! it without a test; the others are there to be compared with it.

use serde::{Serialize, Serializer};

use super::histogram::Histogram;

/// Fewest observations that are fitted.
pub const OBSERVATIONS_MIN: u64 = 50;

/// Seconds of a histogram's unit.
pub(super) const UNIT_S: f64 = 1e-3;

/// Halvings of the interval that holds the Weibull's shape: to the last bits of an `f64`.
const BISECTIONS: usize = 60;

/// Bounds of the search for a Weibull's shape.
const SHAPES: (f64, f64) = (0.02, 50.0);

/// A family of distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Without memory.
    Exponential,
    /// A power of an exponential: shape below 1 has a long tail.
    Weibull,
    /// A normal distribution of the logarithm.
    LogNormal,
}

impl Model {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Weibull => "weibull",
            Self::LogNormal => "log-normal",
        }
    }
}

/// A fitted distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Its family.
    pub model: Model,
    /// Its parameters by name, see the table above.
    #[serde(serialize_with = "by_name")]
    pub parameters: Vec<(&'static str, f64)>,
    /// Logarithm of the likelihood of all observations (density by seconds).
    pub log_likelihood: f64,
    /// Akaike's criterion: twice the number of parameters minus twice the above; the smaller,
    /// the better. Blocks that were reused together count one by one, so differences look
    /// larger than the evidence is.
    pub aic: f64,
    /// Kolmogorov-Smirnov distance: the largest difference between the cumulative shares of the
    /// data and of the fit, from 0 to 1.
    pub ks: f64,
}

/// An object with a field per parameter.
fn by_name<S: Serializer>(
    parameters: &[(&'static str, f64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parameters.iter().copied())
}

/// All families on the same observations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fits {
    /// Observations fitted.
    pub observations: u64,
    /// One fit a family, by AIC, the best first; empty below [`OBSERVATIONS_MIN`] observations
    /// and where all are equal.
    pub fits: Vec<Fit>,
}

/// The bins that are fitted.
struct Times {
    /// Seconds, the end of the bin in seconds, weight.
    bins: Vec<(f64, f64, f64)>,
    count: f64,
    mean: f64,
    log_mean: f64,
    log_sd: f64,
}

/// Fits all families to times in milliseconds.
#[must_use]
pub fn fits(times: &Histogram) -> Fits {
    let times = Times::of(times);
    let observations = times.count as u64;
    // With a single bin the deviation is 0, and the log-normal's density would divide by it.
    if observations < OBSERVATIONS_MIN || times.bins.len() < 2 {
        return Fits { observations, fits: Vec::new() };
    }
    let mut fits = vec![exponential(&times), weibull(&times), log_normal(&times)];
    fits.sort_by(|one, other| one.aic.total_cmp(&other.aic));
    Fits { observations, fits }
}

impl Times {
    fn of(histogram: &Histogram) -> Self {
        let positive = histogram.iter().filter(|&(_, last, _)| last > 0);
        let bins: Vec<_> = positive
            .map(|(middle, last, times)| {
                let end = (last as f64 + 0.5) * UNIT_S;
                (middle * UNIT_S, end, times as f64)
            })
            .collect();
        let count: f64 = bins.iter().map(|bin| bin.2).sum();
        let sum = |of: &dyn Fn(f64) -> f64| bins.iter().map(|bin| of(bin.0) * bin.2).sum::<f64>();
        let mean = sum(&|t| t) / count;
        let log_mean = sum(&f64::ln) / count;
        let log_variance = sum(&|t| (t.ln() - log_mean).powi(2)) / count;
        Self { count, mean, log_mean, log_sd: log_variance.sqrt(), bins }
    }

    /// A fit with its goodness, from the logarithm of its density and its distribution.
    fn judge(
        &self,
        model: Model,
        parameters: Vec<(&'static str, f64)>,
        log_density: impl Fn(f64) -> f64,
        distribution: impl Fn(f64) -> f64,
    ) -> Fit {
        let log_likelihood = self.bins.iter().map(|bin| log_density(bin.0) * bin.2).sum();
        let mut below = 0.0;
        let mut ks: f64 = 0.0;
        for &(_, end, weight) in &self.bins {
            // The order within a bin is unknown, so both shares are compared at bin ends only.
            below += weight;
            ks = ks.max((below / self.count - distribution(end)).abs());
        }
        Fit {
            model,
            log_likelihood,
            aic: 2.0 * parameters.len() as f64 - 2.0 * log_likelihood,
            ks,
            parameters,
        }
    }
}

fn exponential(times: &Times) -> Fit {
    let mean = times.mean;
    times.judge(
        Model::Exponential,
        vec![("mean_s", mean)],
        |t| -mean.ln() - t / mean,
        |t| 1.0 - (-t / mean).exp(),
    )
}

fn weibull(times: &Times) -> Fit {
    let shape = weibull_shape(times);
    // In units of the mean: a power of up to 50 of a long time would overflow.
    let powers = times.bins.iter().map(|bin| (bin.0 / times.mean).powf(shape) * bin.2);
    let scale = times.mean * (powers.sum::<f64>() / times.count).powf(1.0 / shape);
    times.judge(
        Model::Weibull,
        vec![("scale_s", scale), ("shape", shape)],
        |t| {
            let u = t / scale;
            (shape / scale).ln() + (shape - 1.0) * u.ln() - u.powf(shape)
        },
        |t| 1.0 - (-(t / scale).powf(shape)).exp(),
    )
}

/// Solves `Σ t^k ln t / Σ t^k − 1/k = mean of ln t` for k; the left side grows with k.
fn weibull_shape(times: &Times) -> f64 {
    let is_too_large = |shape: f64| {
        let (mut powers, mut logs) = (0.0, 0.0);
        for &(t, _, weight) in &times.bins {
            // In units of the mean, as in `weibull`, to keep the powers within an `f64`.
            let log = (t / times.mean).ln();
            let power = (shape * log).exp() * weight;
            powers += power;
            logs += power * log;
        }
        logs / powers - 1.0 / shape > times.log_mean - times.mean.ln()
    };
    let (mut low, mut high) = SHAPES;
    for _ in 0..BISECTIONS {
        // The geometric middle, because the bounds span three orders of magnitude.
        let middle = (low * high).sqrt();
        if is_too_large(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low * high).sqrt()
}

fn log_normal(times: &Times) -> Fit {
    let (mu, sigma) = (times.log_mean, times.log_sd);
    let log_root = (2.0 * std::f64::consts::PI).sqrt().ln();
    times.judge(
        Model::LogNormal,
        vec![("mu", mu), ("sigma", sigma)],
        |t| {
            let z = (t.ln() - mu) / sigma;
            -t.ln() - sigma.ln() - log_root - z * z / 2.0
        },
        |t| normal((t.ln() - mu) / sigma),
    )
}

/// The standard normal distribution, within 1e-7.
///
/// Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
fn normal(z: f64) -> f64 {
    const B: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    // Horner's scheme, from the highest power down.
    let series = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let upper = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    // `upper` is the tail beyond |z|, which is the lower tail for a negative z.
    if z > 0.0 { 1.0 - upper } else { upper }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    fn drawn(seed: u64, draw: impl Fn(&mut Rng) -> f64) -> Fits {
        let mut rng = Rng::new(seed);
        let mut histogram = Histogram::default();
        for _ in 0..40_000 {
            histogram.add((draw(&mut rng) / UNIT_S).round() as u64, 1);
        }
        fits(&histogram)
    }

    fn gauss(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0
    }

    /// The best fit is of `model`, fits well, and has found the parameters within 3 %.
    fn check(fits: &Fits, model: Model, expected: &[f64]) {
        let best = &fits.fits[0];
        assert_eq!(best.model, model, "{fits:?}");
        assert!(best.ks < 0.01, "{best:?}");
        for ((name, got), expected) in best.parameters.iter().zip(expected) {
            assert!((got / expected - 1.0).abs() < 0.03, "{name} {got} {expected}");
        }
    }

    #[test]
    fn each_family_is_recognised_with_its_parameters() {
        let exponential = |rng: &mut Rng| -(1.0 - rng.next_f64()).ln();
        let drawn_weibull = drawn(2, |rng| 20.0 * exponential(rng).powf(1.0 / 0.6));
        check(&drawn_weibull, Model::Weibull, &[20.0, 0.6]);
        let drawn_log_normal = drawn(3, |rng| (3.0 + 1.2 * gauss(rng)).exp());
        check(&drawn_log_normal, Model::LogNormal, &[3.0, 1.2]);
        // An exponential is a Weibull of shape 1: both fit, and find that.
        let both = drawn(1, |rng| 40.0 * exponential(rng));
        let of = |model| both.fits.iter().find(|fit| fit.model == model).expect("fitted");
        let (weibull, exponential) = (of(Model::Weibull), of(Model::Exponential));
        assert!((weibull.parameters[1].1 - 1.0).abs() < 0.02, "{weibull:?}");
        assert!((exponential.parameters[0].1 / 40.0 - 1.0).abs() < 0.02);
        assert!((exponential.aic - weibull.aic).abs() < 10.0 && exponential.ks < 0.01);
        assert!(of(Model::LogNormal).ks > 0.05);
    }

    #[test]
    fn too_little_is_not_fitted() {
        let mut histogram = Histogram::default();
        histogram.add(0, 1_000_000);
        histogram.add(5, OBSERVATIONS_MIN - 1);
        assert!(fits(&histogram).fits.is_empty());
        histogram.add(5, 100);
        assert!(fits(&histogram).fits.is_empty(), "one value has no shape");
        histogram.add(9, 100);
        assert_eq!(fits(&histogram).fits.len(), 3);
    }

    #[test]
    fn the_normal_distribution_is_the_tables() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9)] {
            assert!((normal(z) - expected).abs() < 2e-7, "{z}");
        }
    }
}
