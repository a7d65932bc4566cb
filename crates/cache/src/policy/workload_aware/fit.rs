//! From reuse times to priorities: what is a block of a class worth, at an age?

use super::ages::{self, BINS};
use super::observer::ReuseHistogram;

/// Reuse times below this are left out of the exponential fit: system prompts in bursts.
const BURST_S: f64 = 0.3;
/// Rounds of expectation and maximization; after ten the estimates move by less than noise.
const ROUNDS: usize = 20;
/// Weight of the estimate over all classes, in uses. A class with fewer has no fit of its own.
const PRIOR: f64 = 50.0;
/// Stands for a chance of nothing, whose logarithm must stay a number.
const LEAST: f64 = 1e-30;

/// The model of a class's reuse times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As observed: Kaplan and Meier's estimate, which counts a use that waits for what it is.
    Observed,
    /// A share of the uses is followed by another after an exponential time.
    Exponential,
    /// The exponential, with the study's priority `p (exp(-a t) - exp(-a (t + life)))`: the
    /// chance as it was when the block was used, not given that it has waited for `t`.
    Published,
}

/// The horizon within which a use counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Life {
    /// Learnt: the horizon with the most hits per second of residence.
    Learnt,
    /// A fixed horizon, seconds.
    Fixed(f64),
    /// Any use counts.
    Unbounded,
}

/// ln of the priority of a class's blocks, per age bin.
pub(super) type AgeScores = [f32; BINS];

/// Per age bin: the chance that a block that has waited so long is used within the bin.
type Hazards = [f64; BINS];

/// Scores of each class, from its own times and, where they are few, from all.
pub(super) fn scores(histograms: &[ReuseHistogram], shape: Shape, life: Life) -> Vec<AgeScores> {
    let mut all = ReuseHistogram::default();
    histograms.iter().for_each(|one| all.add(one));
    let observed = hazards(&all, &[0.0; BINS], 0.0);
    let global = Exponential::fit(&all);
    let score = |one: &ReuseHistogram| {
        let own = Exponential::fit(one).filter(|_| one.total() >= PRIOR);
        let exponential = own.or(global);
        match shape {
            Shape::Observed => worth(&hazards(one, &observed, PRIOR), life),
            Shape::Exponential => {
                worth(&exponential.map_or([0.0; BINS], Exponential::hazards), life)
            }
            Shape::Published => published(exponential, life),
        }
    };
    histograms.iter().map(score).collect()
}

/// Share of uses that another one follows, and the rate of the exponential times to it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Exponential {
    share: f64,
    rate: f64,
}

impl Exponential {
    /// Maximum likelihood with censoring: a use that has waited for `t` may be one of the share
    /// that is still to come, with probability `p e^{-at} / (1 - p + p e^{-at})`.
    fn fit(histogram: &ReuseHistogram) -> Option<Self> {
        let bins = (0..BINS).filter(|&bin| ages::middle_s(bin) > BURST_S);
        let (mut reused, mut waiting, mut time) = (0.0, 0.0, 0.0);
        for bin in bins.clone() {
            let count = f64::from(histogram.reused[bin]);
            reused += count;
            time += count * ages::middle_s(bin);
            waiting += f64::from(histogram.waiting[bin]);
        }
        // Without a reuse there is no rate to estimate.
        if reused < 1.0 {
            return None;
        }
        let mut fit = Self { share: reused / (reused + waiting), rate: reused / time };
        // A use that waits counts by the chance that its reuse is still to come.
        for _ in 0..ROUNDS {
            let (mut to_come, mut time_to_come) = (0.0, 0.0);
            for bin in bins.clone().filter(|&bin| histogram.waiting[bin] > 0.0) {
                let age = ages::middle_s(bin);
                let weight = f64::from(histogram.waiting[bin]) * fit.still_to_come(age);
                to_come += weight;
                time_to_come += weight * age;
            }
            fit = Self {
                share: ((reused + to_come) / (reused + waiting)).min(1.0),
                rate: reused / (time + time_to_come),
            };
        }
        Some(fit)
    }

    fn survival(self, age_s: f64) -> f64 {
        1.0 - self.share + self.share * (-self.rate * age_s).exp()
    }

    fn still_to_come(self, age_s: f64) -> f64 {
        self.share * (-self.rate * age_s).exp() / self.survival(age_s).max(LEAST)
    }

    fn hazards(self) -> Hazards {
        std::array::from_fn(|bin| {
            let alive = self.survival(ages::start_s(bin)).max(LEAST);
            1.0 - self.survival(ages::start_s(bin + 1)) / alive
        })
    }
}

/// Hazards as observed; `prior` counts as `weight` uses.
fn hazards(histogram: &ReuseHistogram, prior: &Hazards, weight: f64) -> Hazards {
    let mut at_risk = histogram.total();
    std::array::from_fn(|bin| {
        let used = f64::from(histogram.reused[bin]);
        let waiting = f64::from(histogram.waiting[bin]);
        // Uses that wait in the bin were at risk for half of it, on average.
        let of = at_risk - waiting / 2.0 + weight;
        at_risk -= used + waiting;
        if of > 0.0 { ((used + weight * prior[bin]) / of).clamp(0.0, 1.0) } else { 0.0 }
    })
}

fn worth(hazards: &Hazards, life: Life) -> AgeScores {
    std::array::from_fn(|bin| {
        let worth = match life {
            Life::Learnt => density(hazards, bin),
            Life::Fixed(life_s) => within(hazards, bin, life_s),
            Life::Unbounded => within(hazards, bin, f64::INFINITY),
        };
        worth.max(LEAST).ln() as f32
    })
}

/// The chance that a block of the age `bin` is used within `life_s` more seconds.
fn within(hazards: &Hazards, bin: usize, life_s: f64) -> f64 {
    let from = ages::middle_s(bin);
    let mut survival = 1.0;
    for (later, hazard) in hazards.iter().enumerate().skip(bin) {
        let (start, end) = (ages::start_s(later), ages::start_s(later + 1));
        if start >= from + life_s {
            break;
        }
        // The horizon may cut a bin. Its survival then falls evenly in logarithms.
        let share = (end.min(from + life_s) - start.max(from)) / (end - start);
        survival *= (1.0 - hazard).powf(share);
    }
    1.0 - survival
}

/// The most hits per second of residence that a block of the age `bin` can still give: the
/// maximum over horizons of P(used within it) / E(time until used or the horizon).
///
/// Source: Beckmann, Chen and Cidon, "LHD", NSDI'18 (hit density); with the best horizon instead
/// of the age at which blocks happen to be evicted it is the index of Gittins (1979).
fn density(hazards: &Hazards, bin: usize) -> f64 {
    let (mut survival, mut time, mut best) = (1.0f64, 0.0f64, 0.0f64);
    for (later, hazard) in hazards.iter().enumerate().skip(bin) {
        // The block is in the middle of its own bin.
        let part = if later == bin { 0.5 } else { 1.0 };
        let width = part * (ages::start_s(later + 1) - ages::start_s(later));
        let next = survival * (1.0 - part * hazard);
        // Mean survival in the bin times its width: the residence that is expected in it.
        time += width * (survival + next) / 2.0;
        survival = next;
        best = best.max((1.0 - survival) / time);
    }
    best
}

/// In logs, because the plain form underflows to ties.
fn published(fit: Option<Exponential>, life: Life) -> AgeScores {
    std::array::from_fn(|bin| {
        // Without a fit all blocks are equal, and the tie-break is LRU's.
        let Some(Exponential { share, rate }) = fit else {
            return 0.0;
        };
        let soon = match life {
            // ln(1 - exp(-rate · life)), without the cancellation at low rates.
            Life::Fixed(life_s) => (-(-rate * life_s).exp_m1()).ln(),
            Life::Learnt | Life::Unbounded => 0.0,
        };
        (share.ln() - rate * ages::middle_s(bin) + soon) as f32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::{Nanos, Rng};

    /// `uses` of which a share `p` is followed by another after an exponential time of mean
    /// `mean_s`, watched for a uniform time of at most `watched_s`.
    fn observed(uses: usize, share: f64, mean_s: f64, watched_s: f64) -> ReuseHistogram {
        let mut rng = Rng::new(7);
        let mut histogram = ReuseHistogram::default();
        let bin = |seconds: f64| ages::bin(Nanos::from_secs_f64(seconds), Nanos(0));
        for _ in 0..uses {
            let watched = rng.next_f64() * watched_s;
            let until = -(1.0 - rng.next_f64()).ln() * mean_s;
            if rng.next_f64() < share && until < watched {
                histogram.reused[bin(until)] += 1.0;
            } else {
                histogram.waiting[bin(watched)] += 1.0;
            }
        }
        histogram
    }

    #[test]
    fn the_exponential_is_found_behind_the_censoring() {
        for (share, mean_s) in [(0.3, 20.0), (0.6, 100.0), (1.0, 50.0)] {
            let histogram = observed(50_000, share, mean_s, 4.0 * mean_s);
            let fit = Exponential::fit(&histogram).expect("reuses were seen");
            assert!((fit.share - share).abs() < 0.03, "{fit:?} of {share}");
            assert!((fit.rate * mean_s - 1.0).abs() < 0.08, "{fit:?} of {mean_s}");
        }
        assert_eq!(Exponential::fit(&ReuseHistogram::default()), None);
    }

    #[test]
    fn observed_hazards_are_those_of_the_distribution() {
        let histogram = observed(200_000, 0.6, 100.0, 400.0);
        let expected = Exponential { share: 0.6, rate: 0.01 };
        let observed = hazards(&histogram, &[0.0; BINS], 0.0);
        for life_s in [20.0, 100.0] {
            let of = |hazards: &Hazards| {
                within(hazards, ages::bin(Nanos(50_000_000_000), Nanos(0)), life_s)
            };
            let (observed, expected) = (of(&observed), of(&expected.hazards()));
            assert!((observed - expected).abs() < 0.03, "{observed} for {expected}");
        }
    }

    #[test]
    fn older_and_less_likely_is_worth_less() {
        let often = observed(20_000, 0.9, 30.0, 200.0);
        let seldom = observed(20_000, 0.2, 30.0, 200.0);
        let at = |seconds: f64| ages::bin(Nanos::from_secs_f64(seconds), Nanos(0));
        for shape in [Shape::Observed, Shape::Exponential, Shape::Published] {
            for life in [Life::Learnt, Life::Fixed(5.0), Life::Unbounded] {
                let scores = scores(&[often.clone(), seldom.clone()], shape, life);
                let what = format!("{shape:?} {life:?}");
                assert!(scores[0][at(10.0)] > scores[1][at(10.0)], "{what}");
                assert!(scores[0][at(10.0)] > scores[0][at(90.0)], "{what}");
            }
        }
    }

    #[test]
    fn a_class_with_few_uses_is_judged_by_all() {
        let many = observed(20_000, 0.5, 30.0, 200.0);
        for shape in [Shape::Observed, Shape::Exponential, Shape::Published] {
            let scores = scores(&[many.clone(), ReuseHistogram::default()], shape, Life::Learnt);
            let bin = ages::bin(Nanos(20_000_000_000), Nanos(0));
            assert!((scores[0][bin] - scores[1][bin]).abs() < 0.1, "{shape:?}");
        }
    }
}
