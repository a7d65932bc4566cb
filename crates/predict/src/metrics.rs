//! Metrics of predicted probabilities, as in scikit-learn.
//!
//! Every function takes [`ScoredPrediction`]s in any order. Where a figure is not defined (one
//! class only, nothing at all) it is what scikit-learn gives for it, or 0.

use serde::Serialize;

/// Probabilities nearer to 0 and 1 than this count as this near: one certain error would
/// otherwise cost an infinite loss.
const MARGIN: f64 = 1e-6;

/// A prediction and what happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredPrediction {
    /// The probability of a continuation that was said.
    pub p: f32,
    /// Whether it continued.
    pub continued: bool,
}

/// Right and wrong predictions at a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confusion {
    /// Said to continue, and did.
    pub true_positive: u64,
    /// Said to continue, and ended.
    pub false_positive: u64,
    /// Said to end, and continued.
    pub false_negative: u64,
    /// Said to end, and did.
    pub true_negative: u64,
}

impl Confusion {
    /// Of `scored` at `threshold`: from it on a conversation is said to continue.
    #[must_use]
    pub fn at(scored: &[ScoredPrediction], threshold: f32) -> Self {
        let mut confusion = Self::default();
        for one in scored {
            confusion.count(one.p >= threshold, one.continued, 1);
        }
        confusion
    }

    /// Counts `times` predictions.
    pub fn count(&mut self, said: bool, continued: bool, times: u64) {
        let slot = match (said, continued) {
            (true, true) => &mut self.true_positive,
            (true, false) => &mut self.false_positive,
            (false, true) => &mut self.false_negative,
            (false, false) => &mut self.true_negative,
        };
        *slot += times;
    }

    /// Counts what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.true_positive += other.true_positive;
        self.false_positive += other.false_positive;
        self.false_negative += other.false_negative;
        self.true_negative += other.true_negative;
    }

    /// Matthews' correlation coefficient, from -1 to 1; 0 where a row or column is empty.
    #[must_use]
    pub fn mcc(&self) -> f64 {
        let [tp, fp, fneg, tn] = self.cells();
        // In floating point, because a product of four counts overflows 64 bits.
        let product = (tp + fp) * (tp + fneg) * (tn + fp) * (tn + fneg);
        if product == 0.0 {
            return 0.0;
        }
        (tp * tn - fp * fneg) / product.sqrt()
    }

    /// The mean of both classes' F1; a class that is neither there nor said counts 0.
    #[must_use]
    pub fn macro_f1(&self) -> f64 {
        let [tp, fp, fneg, tn] = self.cells();
        let f1 = |hits: f64| {
            let all = 2.0 * hits + fp + fneg;
            if all == 0.0 { 0.0 } else { 2.0 * hits / all }
        };
        (f1(tp) + f1(tn)) / 2.0
    }

    fn cells(&self) -> [f64; 4] {
        let Self { true_positive, false_positive, false_negative, true_negative } = *self;
        [true_positive, false_positive, false_negative, true_negative].map(|count| count as f64)
    }
}

/// The threshold with the best MCC, between two values that occur; of several the highest. Above
/// everything where there is nothing to tell apart.
#[must_use]
pub fn best_threshold(scored: &[ScoredPrediction]) -> f32 {
    let sorted = sorted(scored);
    let ended = scored.iter().filter(|one| !one.continued).count() as u64;
    // Above everything: all are said to end.
    let mut confusion = Confusion {
        false_negative: scored.len() as u64 - ended,
        true_negative: ended,
        ..Confusion::default()
    };
    let mut best = (0.0, f32::INFINITY);
    for (tie, next) in ties(&sorted) {
        for one in tie {
            if one.continued {
                confusion.false_negative -= 1;
            } else {
                confusion.true_negative -= 1;
            }
            confusion.count(true, one.continued, 1);
        }
        // Halfway to the next value, so that rounding in another place does not flip a prediction.
        let threshold = next.map_or(tie[0].p, |next| between(next.p, tie[0].p));
        if confusion.mcc() > best.0 {
            best = (confusion.mcc(), threshold);
        }
    }
    best.1
}

/// A number above `low` and not above `high`.
fn between(low: f32, high: f32) -> f32 {
    let middle = low + (high - low) / 2.0;
    // Between neighbouring floats the middle rounds to `low`, which must not pass the threshold.
    if middle > low { middle } else { high }
}

/// The area under the ROC curve: the chance that a continued one has the higher probability of
/// the two, ties counting half. 0.5 where there is only one class.
#[must_use]
pub fn auc(scored: &[ScoredPrediction]) -> f64 {
    let sorted = sorted(scored);
    let (mut wins, mut continued_above) = (0.0, 0.0);
    for (tie, _) in ties(&sorted) {
        let continued = tie.iter().filter(|one| one.continued).count() as f64;
        let ended = tie.len() as f64 - continued;
        // Each ended one wins against all continued ones above it, and half against those of its
        // tie.
        wins += ended * (continued_above + continued / 2.0);
        continued_above += continued;
    }
    let pairs = continued_above * (scored.len() as f64 - continued_above);
    if pairs == 0.0 { 0.5 } else { wins / pairs }
}

/// From the highest probability down.
fn sorted(scored: &[ScoredPrediction]) -> Vec<ScoredPrediction> {
    let mut sorted = scored.to_vec();
    sorted.sort_by(|a, b| b.p.total_cmp(&a.p));
    sorted
}

/// Runs of equal probability, each with the one after it.
fn ties(
    sorted: &[ScoredPrediction],
) -> impl Iterator<Item = (&[ScoredPrediction], Option<&ScoredPrediction>)> {
    let mut end = 0;
    sorted.chunk_by(|a, b| a.p == b.p).map(move |tie| {
        end += tie.len();
        (tie, sorted.get(end))
    })
}

/// A bar of the reliability plot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// Probabilities from here,
    pub from: f64,
    /// to here.
    pub to: f64,
    /// Predictions in it.
    pub count: usize,
    /// Their mean probability; 0 without any.
    pub mean_p: f64,
    /// The share of them that continued; 0 without any.
    pub share: f64,
}

/// `bins` bars of equal width over the probabilities.
#[must_use]
pub fn reliability(scored: &[ScoredPrediction], bins: usize) -> Vec<Bin> {
    let mut sums = vec![(0usize, 0.0, 0.0); bins];
    for one in scored {
        let bin = (f64::from(one.p) * bins as f64) as usize;
        // A probability of 1 belongs to the last bar.
        let (count, sum_p, continued) = &mut sums[bin.min(bins - 1)];
        *count += 1;
        *sum_p += f64::from(one.p);
        *continued += f64::from(u8::from(one.continued));
    }
    let bar = |(index, &(count, sum_p, continued)): (usize, &(usize, f64, f64))| Bin {
        from: index as f64 / bins as f64,
        to: (index + 1) as f64 / bins as f64,
        count,
        mean_p: sum_p / count.max(1) as f64,
        share: continued / count.max(1) as f64,
    };
    sums.iter().enumerate().map(bar).collect()
}

/// The expected calibration error of `bins`: how far, on average over the predictions, a bar's
/// share is from its mean probability.
#[must_use]
pub fn ece(bins: &[Bin]) -> f64 {
    let total: usize = bins.iter().map(|bin| bin.count).sum();
    let error = |bin: &Bin| bin.count as f64 * (bin.mean_p - bin.share).abs();
    bins.iter().map(error).sum::<f64>() / total.max(1) as f64
}

/// The cost of one prediction in nats; at most 13.8.
#[must_use]
pub fn log_loss_of(one: &ScoredPrediction) -> f64 {
    let p = f64::from(one.p).clamp(MARGIN, 1.0 - MARGIN);
    if one.continued { -p.ln() } else { -(1.0 - p).ln() }
}

/// The mean cost, in nats.
#[must_use]
pub fn log_loss(scored: &[ScoredPrediction]) -> f64 {
    scored.iter().map(log_loss_of).sum::<f64>() / scored.len().max(1) as f64
}

/// The mean squared error of the probability.
#[must_use]
pub fn brier(scored: &[ScoredPrediction]) -> f64 {
    let error = |one: &ScoredPrediction| f64::from(one.p) - f64::from(u8::from(one.continued));
    scored.iter().map(|one| error(one).powi(2)).sum::<f64>() / scored.len().max(1) as f64
}

/// The share that continued.
#[must_use]
pub fn base_rate(scored: &[ScoredPrediction]) -> f64 {
    let continued = scored.iter().filter(|one| one.continued).count();
    continued as f64 / scored.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn scored(ps: &[f32], continued: &[u8]) -> Vec<ScoredPrediction> {
        let one = |(&p, &continued): (&f32, &u8)| ScoredPrediction { p, continued: continued == 1 };
        ps.iter().zip(continued).map(one).collect()
    }

    fn random(seed: u64, levels: usize) -> Vec<ScoredPrediction> {
        let mut rng = Rng::new(seed);
        let mut one = || {
            let p = rng.below(levels + 1) as f32 / levels as f32;
            let continued = rng.next_f64() < 0.3 + 0.4 * f64::from(p);
            ScoredPrediction { p, continued }
        };
        (0..200).map(|_| one()).collect()
    }

    #[test]
    fn auc_is_the_share_of_pairs_won_with_ties_as_half() {
        for seed in 0..30 {
            let scored = random(seed, [3, 50, 100_000][seed as usize % 3]);
            let (mut won, mut pairs) = (0.0, 0.0);
            for a in scored.iter().filter(|one| one.continued) {
                for b in scored.iter().filter(|one| !one.continued) {
                    pairs += 1.0;
                    won += match a.p.total_cmp(&b.p) {
                        std::cmp::Ordering::Greater => 1.0,
                        std::cmp::Ordering::Equal => 0.5,
                        std::cmp::Ordering::Less => 0.0,
                    };
                }
            }
            assert!((auc(&scored) - won / pairs).abs() < 1e-12, "seed {seed}");
        }
        assert_eq!(auc(&scored(&[0.1, 0.9], &[1, 1])), 0.5);
    }

    #[test]
    fn the_best_threshold_is_the_best_of_all_that_occur() {
        for seed in 0..30 {
            let scored = random(seed, [3, 50, 100_000][seed as usize % 3]);
            let at = |threshold| Confusion::at(&scored, threshold).mcc();
            let best = scored.iter().map(|one| at(one.p)).fold(0.0, f64::max);
            assert!((at(best_threshold(&scored)) - best).abs() < 1e-12, "seed {seed}");
        }
        assert_eq!(best_threshold(&[]), f32::INFINITY);
        assert_eq!(best_threshold(&scored(&[0.1, 0.9], &[1, 1])), f32::INFINITY);
        // Between the two values, so that what comes near them falls on the right side.
        assert_eq!(best_threshold(&scored(&[0.25, 0.75], &[0, 1])), 0.5);
    }

    /// Both tables by scikit-learn 1.x on the same sixteen numbers.
    #[test]
    fn the_figures_are_those_of_scikit_learn() {
        let ps = [
            0.10, 0.20, 0.20, 0.35, 0.40, 0.55, 0.55, 0.55, 0.60, 0.70, 0.80, 0.90, 0.95, 0.95,
            1.0, 0.0,
        ];
        let good = scored(&ps, &[0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0]);
        let bad = scored(&ps, &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1]);
        let near = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-6, "{got}");
        let at = |scored: &[ScoredPrediction], threshold, mcc, f1| {
            let confusion = Confusion::at(scored, threshold);
            near(confusion.mcc(), mcc);
            near(confusion.macro_f1(), f1);
        };
        at(&good, 0.5, 0.3578300267, 0.6761133603);
        at(&good, 0.2, 0.4285714286, 0.6135265700);
        at(&good, 0.95, 0.4236592729, 0.6);
        at(&bad, 0.5, -0.3133397808, 0.3098039216);
        at(&bad, 0.2, -0.5606119106, 0.1578947368);
        at(&bad, 0.95, 0.0215916759, 0.5);
        let others = |scored: &[ScoredPrediction]| {
            let ece = ece(&reliability(scored, 15));
            [auc(scored), log_loss(scored), brier(scored), ece]
        };
        let good = others(&good).into_iter().zip([0.7698412698, 0.5737800146, 0.1990625, 0.25625]);
        let bad = others(&bad).into_iter().zip([0.3363636364, 2.6747710656, 0.4553125, 0.6]);
        good.chain(bad).for_each(|(got, expected)| near(got, expected));
    }
}
