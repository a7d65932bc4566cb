//! Seconds for uncached tokens, fitted to observed times to the first token.
//!
//! ```text
//! seconds = fixed + per_token · u + per_pair · u · (h + u/2)        u uncached, h cached tokens
//!           always   matrices        attention: every new token looks at all before it
//! ```
//!
//! Observed times hold more than computing: waiting, batches shared with others, hiccups. That
//! only ever adds. So the fit looks for the dense lower edge, not for the middle:
//!
//! 1. samples are kept by cells (powers of two of u, shares of h), the newest of each, so that a
//!    frequent size does not drown the others and old times are forgotten;
//! 2. a first fit goes through a low quantile of each cell;
//! 3. the ratios of observed to fitted times are most dense around what computing takes: samples
//!    in that dense half are fitted again, each by its relative error, some times over.
//!
//! No coefficient is below 0: of all subsets of the three terms the best one whose coefficients
//! are positive is taken, which is exact for so few.
//!
//! It does not know clocks, requests or prices of anybody; money is what the caller says that
//! seconds or tokens cost.
//!
//! Source: the shape is the usual cost of a transformer's prefill, as in `sim::cost`. The dense
//! half is Andrews et al.'s *shorth* (1972).

mod cells;
mod solve;

use crate::{Bucket, BucketTokens};

use cells::Cells;
use solve::solve;

/// Fewest samples that are fitted.
pub const SAMPLES_MIN: usize = 20;

/// Of a cell's times, the share below the one that the first fit goes through.
const LOW: f64 = 0.2;

/// Rounds of keeping the dense part and fitting it again.
const ROUNDS: usize = 6;

/// Distance from the densest ratio within which samples are kept, in widths of the dense half.
const REACH: f64 = 1.5;

/// Smallest such distance, relative: clocks are not finer.
const REACH_MIN: f64 = 0.02;

/// Of the longest predicted time, the least share that tokens must make ([`PrefillFit::grows`]),
/// and the least share of the variance that the model must explain.
const GROWTH_MIN: f64 = 0.05;
const EXPLAINED_MIN: f64 = 0.1;

/// One observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefillSample {
    /// Prompt tokens that were found.
    pub cached: u32,
    /// Prompt tokens that were computed.
    pub uncached: u32,
    /// Time to the first token, seconds.
    pub seconds: f64,
}

/// Collects samples in bounded memory: at most 2,304 of them, 16 bytes each.
#[derive(Clone, Debug, Default)]
pub struct Prefill {
    cells: Cells,
    seen: u64,
}

/// Seconds of a prefill.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefillModel {
    /// Seconds of any request.
    pub fixed: f64,
    /// Seconds of an uncached token.
    pub per_token: f64,
    /// Seconds of an uncached token for each token before it.
    pub per_pair: f64,
}

/// A model, how good it is, and where it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefillFit {
    /// The model.
    pub model: PrefillModel,
    /// Samples ever added.
    pub seen: u64,
    /// Samples that were kept and looked at.
    pub samples: u64,
    /// Share of them that was fitted; the others took longer (they waited), or were odd.
    pub used_share: f64,
    /// Of the used samples: half of them are predicted within this, relative to the observed
    /// time.
    pub median_relative_error: f64,
    /// The same of all samples: how much of the time is not explained by computing.
    pub median_relative_error_all: f64,
    /// Share of the variance of the used samples that the model explains; below 0 where a
    /// constant would do better.
    pub r_squared: f64,
    /// Growth of the predicted times of the used samples: (longest − shortest) / longest. 0 where
    /// the model is a constant.
    pub growth: f64,
    /// Fewest and most uncached tokens among the used samples: beyond, it is extrapolated.
    pub uncached_range: (u32, u32),
    /// Most cached tokens among the used samples.
    pub cached_max: u32,
}

/// Seconds of a request's tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitSeconds {
    /// Seconds to compute the uncached tokens, without the fixed time of any request.
    pub computed: f64,
    /// Additional seconds that the cached tokens would have taken to compute.
    pub saved: f64,
    /// By bucket, in order: of tokens that were computed what that took, of tokens that were
    /// found what that saved; each by its share of tokens of either kind.
    pub buckets: [(Bucket, f64); Bucket::ALL.len()],
}

impl PrefillModel {
    /// Seconds to the first token of a prompt.
    #[must_use]
    pub fn seconds(&self, cached: u32, uncached: u32) -> f64 {
        self.fixed + self.compute(f64::from(cached), f64::from(uncached))
    }

    /// Returns the seconds to compute `uncached` tokens behind `cached` ones, without `fixed`.
    fn compute(&self, cached: f64, uncached: f64) -> f64 {
        self.per_token * uncached + self.per_pair * uncached * (cached + uncached / 2.0)
    }

    /// Seconds of a request by where its tokens landed.
    #[must_use]
    pub fn split(&self, split: &BucketTokens) -> SplitSeconds {
        let served = |bucket: &Bucket| bucket.is_served();
        let tokens_of = |buckets: &dyn Fn(&Bucket) -> bool| {
            let buckets = Bucket::ALL.into_iter().filter(|bucket| buckets(bucket));
            buckets.map(|bucket| f64::from(split.get(bucket))).sum::<f64>()
        };
        let cached = tokens_of(&served);
        let uncached = tokens_of(&|bucket| !served(bucket));
        let computed = self.compute(cached, uncached);
        // The saving includes the attention of uncached tokens to cached ones: both prefills are
        // compared whole.
        let saved = self.compute(0.0, cached + uncached) - computed;
        let buckets = Bucket::ALL.map(|bucket| {
            let (seconds, of) =
                if bucket.is_served() { (saved, cached) } else { (computed, uncached) };
            let tokens = f64::from(split.get(bucket));
            (bucket, if of > 0.0 { seconds * tokens / of } else { 0.0 })
        });
        SplitSeconds { computed, saved, buckets }
    }
}

impl PrefillFit {
    /// Whether times grow with tokens as the samples have them. Where they do not (a proxy's
    /// constant, or prompts of one length), the model says nothing of what a token takes.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.growth >= GROWTH_MIN && self.r_squared >= EXPLAINED_MIN
    }

    /// Whether the samples reach so far.
    #[cfg(test)]
    fn is_in_range(&self, cached: u32, uncached: u32) -> bool {
        let (low, high) = self.uncached_range;
        (low..=high).contains(&uncached) && cached <= self.cached_max
    }
}

impl Prefill {
    /// Takes a sample; one whose time is not above 0, or that computed nothing, is passed over.
    pub fn add(&mut self, sample: PrefillSample) {
        // A time of 0 or a sample without work would divide by zero in the relative errors.
        let is_usable = sample.uncached > 0 && sample.seconds > 0.0 && sample.seconds.is_finite();
        if is_usable {
            self.seen += 1;
            self.cells.add(sample);
        }
    }

    /// Samples that are kept.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.cells.samples().count() as u64
    }

    /// The model that the samples speak for; `None` for fewer than [`SAMPLES_MIN`]. Some
    /// milliseconds of work.
    #[must_use]
    pub fn fit(&self) -> Option<PrefillFit> {
        let samples: Vec<PrefillSample> = self.cells.samples().collect();
        if samples.len() < SAMPLES_MIN {
            return None;
        }
        // The start is low on purpose: waiting only adds time, so a middle fit would keep waits.
        let mut model = solve(&self.cells.low(LOW))?;
        let mut used = Vec::new();
        for _ in 0..ROUNDS {
            used = dense(&model, &samples);
            let next = solve(&used)?;
            // The same samples give the same model, bit by bit: further rounds would change
            // nothing.
            let is_settled = next == model;
            model = next;
            if is_settled {
                break;
            }
        }
        Some(self.judge(model, &samples, &used))
    }

    fn judge(
        &self,
        model: PrefillModel,
        samples: &[PrefillSample],
        used: &[PrefillSample],
    ) -> PrefillFit {
        let uncached = used.iter().map(|sample| sample.uncached);
        PrefillFit {
            model,
            seen: self.seen,
            samples: samples.len() as u64,
            used_share: used.len() as f64 / samples.len() as f64,
            median_relative_error: median_error(&model, used),
            median_relative_error_all: median_error(&model, samples),
            r_squared: r_squared(&model, used),
            growth: growth(&model, used),
            uncached_range: (uncached.clone().min().unwrap_or(0), uncached.max().unwrap_or(0)),
            cached_max: used.iter().map(|sample| sample.cached).max().unwrap_or(0),
        }
    }
}

impl PrefillSample {
    /// Observed over predicted time, as a logarithm.
    fn log_ratio(&self, model: &PrefillModel) -> f64 {
        let predicted = model.seconds(self.cached, self.uncached);
        // A model may predict 0, and the logarithm must stay finite.
        (self.seconds / predicted.max(f64::MIN_POSITIVE)).ln()
    }
}

/// The samples around the most dense ratio of observed to predicted times.
fn dense(model: &PrefillModel, samples: &[PrefillSample]) -> Vec<PrefillSample> {
    let mut ratios: Vec<f64> = samples.iter().map(|sample| sample.log_ratio(model)).collect();
    ratios.sort_by(f64::total_cmp);
    // The shortest interval with half of the ratios ignores waits, which lie on one side only.
    let half = ratios.len().div_ceil(2);
    let widths = ratios.windows(half).map(|part| part[half - 1] - part[0]);
    let narrowest = widths.enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
    let (first, width) = narrowest.unwrap_or((0, 0.0));
    let center = ratios[first + half / 2];
    // Exact samples have a width of 0, and rounding alone would then exclude most of them.
    let reach = (width * REACH).max(REACH_MIN);
    let near = samples.iter().filter(|sample| (sample.log_ratio(model) - center).abs() <= reach);
    near.copied().collect()
}

fn median_error(model: &PrefillModel, samples: &[PrefillSample]) -> f64 {
    let error = |sample: &PrefillSample| {
        let predicted = model.seconds(sample.cached, sample.uncached);
        (predicted / sample.seconds - 1.0).abs()
    };
    let mut errors: Vec<f64> = samples.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(0.0)
}

fn growth(model: &PrefillModel, samples: &[PrefillSample]) -> f64 {
    let predicted = samples.iter().map(|sample| model.seconds(sample.cached, sample.uncached));
    let longest = predicted.clone().fold(0.0, f64::max);
    let shortest = predicted.fold(longest, f64::min);
    if longest > 0.0 { (longest - shortest) / longest } else { 0.0 }
}

fn r_squared(model: &PrefillModel, samples: &[PrefillSample]) -> f64 {
    let mean = samples.iter().map(|sample| sample.seconds).sum::<f64>() / samples.len() as f64;
    let (mut explained, mut all) = (0.0, 0.0);
    for sample in samples {
        let predicted = model.seconds(sample.cached, sample.uncached);
        explained += (sample.seconds - predicted).powi(2);
        all += (sample.seconds - mean).powi(2);
    }
    // All times are equal: there is no variance to explain.
    if all > 0.0 { 1.0 - explained / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    /// An 8B model on one large device, about.
    const TRUTH: PrefillModel = PrefillModel { fixed: 0.012, per_token: 4e-5, per_pair: 4e-10 };

    /// Draws requests whose times are the truth, with `noise` (standard deviation, relative) and
    /// for a share `waiting` of them a queue before.
    fn drawn(seed: u64, truth: &PrefillModel, noise: f64, waiting: f64) -> Prefill {
        let mut rng = Rng::new(seed);
        let mut prefill = Prefill::default();
        for _ in 0..20_000 {
            let size = |rng: &mut Rng| (2f64.powf(4.0 + 12.0 * rng.next_f64())) as u32;
            let uncached = size(&mut rng);
            let cached = if rng.below(3) == 0 { 0 } else { size(&mut rng) };
            let gauss = (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0;
            let is_waiting = rng.next_f64() < waiting;
            let queue = if is_waiting { -2.0 * (1.0 - rng.next_f64()).ln() } else { 0.0 };
            let seconds = truth.seconds(cached, uncached) * (1.0 + noise * gauss) + queue;
            prefill.add(PrefillSample { cached, uncached, seconds });
        }
        prefill
    }

    /// Predictions are within `limit` of the truth over the whole range.
    fn check(fitted: &PrefillFit, truth: &PrefillModel, limit: f64) {
        for uncached in [16, 200, 1000, 8000, 60_000] {
            for cached in [0, 500, 5000, 60_000] {
                let got = fitted.model.seconds(cached, uncached);
                let error = got / truth.seconds(cached, uncached) - 1.0;
                assert!(error.abs() < limit, "{cached} {uncached}: {error} {fitted:?}");
            }
        }
    }

    #[test]
    fn exact_times_give_the_exact_model() {
        let fitted = drawn(1, &TRUTH, 0.0, 0.0).fit().expect("enough");
        check(&fitted, &TRUTH, 1e-6);
        assert_eq!(fitted.used_share, 1.0);
        assert!(fitted.median_relative_error < 1e-9 && fitted.r_squared > 0.999_999);
        assert!(fitted.is_in_range(1000, 1000) && !fitted.is_in_range(1000, 1 << 20));
    }

    #[test]
    fn noise_and_queues_move_it_little() {
        for seed in 0..3 {
            let fitted = drawn(seed, &TRUTH, 0.05, 0.0).fit().expect("enough");
            check(&fitted, &TRUTH, 0.03);
            assert!((0.02..0.05).contains(&fitted.median_relative_error), "{fitted:?}");
            let fitted = drawn(seed, &TRUTH, 0.05, 0.35).fit().expect("enough");
            check(&fitted, &TRUTH, 0.06);
            assert!(fitted.used_share < 0.8 && fitted.r_squared > 0.95, "{fitted:?}");
        }
    }

    #[test]
    fn no_term_is_below_nothing() {
        let linear = PrefillModel { per_pair: 0.0, ..TRUTH };
        let fitted = drawn(4, &linear, 0.08, 0.1).fit().expect("enough");
        check(&fitted, &linear, 0.06);
        let PrefillModel { fixed, per_token, per_pair } = fitted.model;
        assert!(fixed >= 0.0 && per_token >= 0.0 && per_pair >= 0.0);
        // Times that fall with size have no such model but a constant.
        let mut odd = Prefill::default();
        for step in 1..100 {
            odd.add(PrefillSample {
                cached: 0,
                uncached: step * 50,
                seconds: 2.0 - f64::from(step) / 100.0,
            });
        }
        let fitted = odd.fit().expect("enough");
        let model = fitted.model;
        assert_eq!((model.per_token, model.per_pair), (0.0, 0.0));
        assert!(model.fixed > 0.9 && !fitted.grows(), "{fitted:?}");
    }

    #[test]
    fn times_that_do_not_grow_with_tokens_say_nothing_of_them() {
        assert!(drawn(7, &TRUTH, 0.05, 0.2).fit().expect("enough").grows());
        let constant = PrefillModel { fixed: 0.5, ..PrefillModel::default() };
        for noise in [0.0, 1e-7, 0.02, 0.2] {
            let fitted = drawn(8, &constant, noise, 0.0).fit().expect("enough");
            assert!(!fitted.grows(), "noise {noise}: {fitted:?}");
        }
        // The same number of tokens each time: the cost of one more is unknown.
        let mut rng = Rng::new(9);
        let mut alike = Prefill::default();
        for _ in 0..500 {
            alike.add(PrefillSample {
                cached: 0,
                uncached: 1000,
                seconds: 0.1 + 0.02 * rng.next_f64(),
            });
        }
        assert!(alike.fit().is_none_or(|fitted| !fitted.grows()));
    }

    #[test]
    fn too_little_is_not_fitted_and_old_times_are_forgotten() {
        let mut prefill = Prefill::default();
        prefill.add(PrefillSample::default());
        for _ in 0..SAMPLES_MIN - 1 {
            prefill.add(PrefillSample { cached: 0, uncached: 10, seconds: 1.0 });
        }
        assert!(prefill.fit().is_none());
        let mut prefill = drawn(5, &TRUTH, 0.0, 0.0);
        let slower = PrefillModel { per_token: 2.0 * TRUTH.per_token, ..TRUTH };
        let later = drawn(6, &slower, 0.0, 0.0);
        later.cells.samples().for_each(|sample| prefill.add(sample));
        check(&prefill.fit().expect("enough"), &slower, 0.01);
    }

    #[test]
    fn a_split_costs_what_its_tokens_cost() {
        let mut split = BucketTokens::default();
        split.put(Bucket::Device, 6000);
        split.put(Bucket::Host, 2000);
        split.put(Bucket::Evicted, 1500);
        split.put(Bucket::NeverSeen, 500);
        let seconds = TRUTH.split(&split);
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} {other}");
        close(seconds.computed, TRUTH.seconds(8000, 2000) - TRUTH.fixed);
        close(seconds.saved + seconds.computed, TRUTH.seconds(0, 10_000) - TRUTH.fixed);
        let of = |bucket| seconds.buckets[Bucket::ALL.iter().position(|&b| b == bucket).unwrap()].1;
        close(of(Bucket::Evicted), 3.0 * of(Bucket::NeverSeen));
        close(of(Bucket::Evicted) + of(Bucket::NeverSeen), seconds.computed);
        close(of(Bucket::Device) + of(Bucket::Host), seconds.saved);
        assert_eq!(TRUTH.split(&BucketTokens::default()).computed, 0.0);
    }
}
