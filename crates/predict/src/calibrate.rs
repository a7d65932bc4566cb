//! From the classifier's log-odds to a probability that means what it says.
//!
//! Training weighs both classes alike, so the classifier's log-odds are off by the logarithm of
//! the classes' ratio, and a network is surer on what it learnt from than it ought to be. Eviction
//! compares log-odds, so both matter. And where text tells little, what the turn count alone
//! says is easily lost in it. Three numbers, fitted on the validation part, mend that:
//!
//! ```text
//! p = sigmoid(slope · classifier's log-odds + turn_slope · turn prior's log-odds + offset)
//! ```
//!
//! Source: Platt, "Probabilistic outputs for support vector machines", 1999, with the targets and
//! the safeguarded Newton steps of Lin, Lin and Weng, Machine Learning 68, 2007; two predictors
//! under one such fit are a stacking as in Wolpert, Neural Networks 5, 1992. The published system
//! does without. A slope that comes out negative, as those of a predictor without any signal may,
//! is 0, and the others are fitted without it.

use serde::{Deserialize, Serialize};

use crate::mlp::sigmoid;

/// Newton steps; a handful is enough.
const STEPS: usize = 50;
/// Half the weight of a squared slope, against running away where the classes are separable.
const RIDGE: f64 = 1e-3;

/// Parameters that calibrate log-odds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Factor of the classifier's log-odds; not negative.
    pub slope: f32,
    /// Factor of the turn prior's log-odds; not negative.
    pub turn_slope: f32,
    /// Added constant, log-odds.
    pub offset: f32,
}

/// Uncalibrated log-odds of an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Raw {
    /// The classifier's log-odds.
    pub classifier: f32,
    /// The turn prior's.
    pub turn: f32,
}

impl Calibration {
    /// The classifier's log-odds as they are.
    pub const IDENTITY: Self = Self { slope: 1.0, turn_slope: 0.0, offset: 0.0 };

    /// The best one for these log-odds and what happened.
    #[must_use]
    pub fn fit(raw: &[Raw], continued: &[bool]) -> Self {
        let targets = smoothed(continued);
        // Both; without what came out negative; without either.
        let uses = [[true, true], [true, false], [false, true], [false, false]];
        let fits = uses.map(|uses| LogisticFit::new(raw, &targets, uses).solve());
        let is_valid = |fit: &&Self| fit.slope >= 0.0 && fit.turn_slope >= 0.0;
        // By the loss alone. The ridge only steadies the steps.
        let cost = |fit: &Self| fit.cost(raw, &targets);
        let best = fits.iter().filter(is_valid).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        best.copied().unwrap_or(Self::IDENTITY)
    }

    /// The probability; not a number where the log-odds are not.
    #[must_use]
    pub fn probability(&self, raw: Raw) -> f64 {
        sigmoid(self.log_odds(raw))
    }

    fn log_odds(&self, raw: Raw) -> f64 {
        let classifier = f64::from(self.slope) * f64::from(raw.classifier);
        classifier + f64::from(self.turn_slope) * f64::from(raw.turn) + f64::from(self.offset)
    }

    fn cost(&self, raw: &[Raw], targets: &[f64]) -> f64 {
        let one = |(raw, target): (&Raw, &f64)| cross_entropy(self.log_odds(*raw), *target);
        raw.iter().zip(targets).map(one).sum()
    }
}

/// Target probabilities: 1 and 0, smoothed by one imagined observation of each kind.
fn smoothed(continued: &[bool]) -> Vec<f64> {
    let ones = continued.iter().filter(|&&continued| continued).count() as f64;
    let zeros = continued.len() as f64 - ones;
    // Platt's targets: without them separable classes would pull the slopes to infinity.
    let targets = [1.0 / (zeros + 2.0), (ones + 1.0) / (ones + 2.0)];
    let target = |&continued: &bool| targets[usize::from(continued)];
    continued.iter().map(target).collect()
}

/// Without overflow.
fn cross_entropy(log_odds: f64, target: f64) -> f64 {
    log_odds.max(0.0) - log_odds * target + (-log_odds.abs()).exp().ln_1p()
}

/// A logistic regression on up to two columns.
struct LogisticFit<'a> {
    rows: Vec<[f64; 3]>,
    targets: &'a [f64],
}

impl<'a> LogisticFit<'a> {
    /// With the columns that are used; the others are zeros, whose slopes stay 0.
    fn new(raw: &[Raw], targets: &'a [f64], uses: [bool; 2]) -> Self {
        let column = |value: f32, is_used: bool| if is_used { f64::from(value) } else { 0.0 };
        let row = |raw: &Raw| [column(raw.classifier, uses[0]), column(raw.turn, uses[1]), 1.0];
        Self { rows: raw.iter().map(row).collect(), targets }
    }

    fn solve(&self) -> Calibration {
        let mut weights = [0.0; 3];
        let mut cost = self.cost(weights);
        for _ in 0..STEPS {
            let Some(step) = self.newton(weights) else {
                break;
            };
            // Halve the step until it helps.
            let lengths = (0..30).map(|halvings| 0.5f64.powi(halvings));
            let next = lengths
                .map(|length| [0, 1, 2].map(|at| weights[at] - length * step[at]))
                .map(|weights| (weights, self.cost(weights)))
                .find(|(_, next)| *next < cost);
            // No length of the step helps, so the cost is at its minimum but for rounding.
            let Some(next) = next else {
                break;
            };
            (weights, cost) = next;
        }
        let [slope, turn_slope, offset] = weights.map(|weight| weight as f32);
        Calibration { slope, turn_slope, offset }
    }

    fn cost(&self, weights: [f64; 3]) -> f64 {
        let rows = self.rows.iter().zip(self.targets);
        let cost = rows.map(|(row, target)| cross_entropy(dot(weights, *row), *target));
        cost.sum::<f64>() + RIDGE / 2.0 * dot(weights, weights)
    }

    /// Newton's step: the inverse of the second derivatives times the first.
    fn newton(&self, weights: [f64; 3]) -> Option<[f64; 3]> {
        let mut slope = weights.map(|weight| RIDGE * weight);
        // On the offset, too: a column of zeros would make the matrix singular otherwise.
        let mut curve = [[RIDGE, 0.0, 0.0], [0.0, RIDGE, 0.0], [0.0, 0.0, RIDGE]];
        for (row, target) in self.rows.iter().zip(self.targets) {
            let p = sigmoid(dot(weights, *row));
            for i in 0..3 {
                slope[i] += (p - target) * row[i];
                for j in 0..3 {
                    curve[i][j] += p * (1.0 - p) * row[i] * row[j];
                }
            }
        }
        solve(curve, slope)
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// `x` with `matrix · x = right`, by Cramer's rule; `None` where there is no single one.
fn solve(matrix: [[f64; 3]; 3], right: [f64; 3]) -> Option<[f64; 3]> {
    let all = determinant(matrix);
    let with = |column: usize| {
        let mut replaced = matrix;
        for (row, value) in replaced.iter_mut().zip(right) {
            row[column] = value;
        }
        determinant(replaced) / all
    };
    let x = [with(0), with(1), with(2)];
    // A singular matrix gives infinities or no numbers here.
    x.iter().all(|x| x.is_finite()).then_some(x)
}

fn determinant([a, b, c]: [[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    const COUNT: usize = 40_000;

    /// Outcomes drawn by `sigmoid(slope · classifier + turn_slope · turn + offset)`.
    fn check(drawn_by: [f64; 3], expected: [f64; 3]) {
        let mut rng = Rng::new(8);
        let mut draw = || 6.0 * rng.next_f64() as f32 - 3.0;
        let mut raw = || Raw { classifier: draw(), turn: draw() };
        let raw: Vec<Raw> = (0..COUNT).map(|_| raw()).collect();
        let p = |raw: &Raw| {
            let row = [f64::from(raw.classifier), f64::from(raw.turn), 1.0];
            sigmoid(dot(drawn_by, row))
        };
        let continued: Vec<bool> = raw.iter().map(|raw| rng.next_f64() < p(raw)).collect();
        let got = Calibration::fit(&raw, &continued);
        let got = [got.slope, got.turn_slope, got.offset].map(f64::from);
        let near = |(got, expected): (&f64, &f64)| (got - expected).abs() < 0.06;
        assert!(got.iter().zip(&expected).all(near), "{got:?} {expected:?}");
    }

    #[test]
    fn slopes_and_offset_of_the_truth_are_found() {
        check([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]);
        check([0.3, 0.5, -2.0], [0.3, 0.5, -2.0]);
        check([1.5, 0.2, 1.0], [1.5, 0.2, 1.0]);
    }

    #[test]
    fn a_slope_that_points_the_wrong_way_is_left_out() {
        check([0.8, -0.001, 0.5], [0.8, 0.0, 0.5]);
        let raw = |classifier: f32| Raw { classifier, turn: 0.0 };
        let raw = [-1.0, -2.0, 1.0, 2.0].map(raw);
        let wrong_way = Calibration::fit(&raw, &[true, true, false, false]);
        assert_eq!(wrong_way.slope, 0.0);
        assert!((wrong_way.probability(raw[0]) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn whatever_comes_the_result_is_finite() {
        let raw = |classifier: f32| Raw { classifier, turn: 0.3 };
        let is_finite = |got: Calibration| {
            [got.slope, got.turn_slope, got.offset].iter().all(|x| x.is_finite())
        };
        assert!(is_finite(Calibration::fit(&[], &[])));
        let separable = Calibration::fit(&[raw(-1.0), raw(1.0)], &[false, true]);
        assert!(is_finite(separable) && separable.slope > 0.0);
        let one_class = Calibration::fit(&[raw(-1.0), raw(1.0)], &[true, true]);
        assert!(is_finite(one_class));
        assert!(Calibration::IDENTITY.probability(raw(f32::NAN)).is_nan());
        assert_eq!(Calibration::IDENTITY.probability(raw(f32::INFINITY)), 1.0);
    }
}
