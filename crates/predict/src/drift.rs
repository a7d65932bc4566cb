//! Is the model still worth listening to? Its cost on what really happened, beside the turn
//! prior's on the same outcomes.
//!
//! ```text
//! excess = mean(log-loss of the model - log-loss of the prior), over the last 1,000 outcomes
//!
//!            healthy ──excess > bound, and by two standard errors──► drifted
//!            healthy ◄────────────── excess <= 0 ─────────────────── drifted
//! ```
//!
//! Log-loss, because eviction compares log-odds: a model that is sure of itself and wrong costs it
//! most. A calibration error alone would not tell a bad model from few samples. A drifted model is
//! still scored, so it can recover by itself.
//!
//! Invariant: nothing but the outcomes in the window and the state before decides.

use std::collections::VecDeque;

use headstart_core::Probability;
use serde::Serialize;

use crate::metrics::{self, ScoredPrediction};

/// Bars of the calibration error.
const BINS: usize = 15;

/// Outcomes that are looked at: the latest. A thousand tell differences of some hundredths of a
/// nat.
const WINDOW: usize = 1000;

/// Outcomes before which nothing is decided.
const NEEDED: usize = 200;

/// Largest excess loss of the model over the prior, nats per prediction on average: what a model
/// loses that has MCC 0.1 less than the turn alone.
const BOUND: f64 = 0.02;

/// State of the model by the latest outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum DriftVerdict {
    /// Nothing yet; the model is used.
    TooFew {
        /// Outcomes seen.
        have: usize,
        /// Outcomes that it takes.
        need: usize,
    },
    /// The model is used.
    Healthy {
        /// Nats per prediction that it costs more than the prior; negative when it is better.
        excess: f64,
    },
    /// The turn prior is used.
    Drifted {
        /// Nats per prediction that the model costs more than the prior.
        excess: f64,
        /// The largest excess tolerated, nats per prediction.
        bound: f64,
    },
}

/// The latest outcomes, and whether the model stood up to them.
#[derive(Clone, Debug, Default)]
pub struct Drift {
    seen: VecDeque<(ScoredPrediction, f64)>,
    drifted: bool,
}

impl Drift {
    /// Records the predictions of the model and of the turn prior for a message, and the outcome.
    /// The prior's prediction must predate this outcome. O(window).
    pub fn observe(&mut self, model: Probability, prior: Probability, continued: bool) {
        let scored = |p: Probability| ScoredPrediction { p: p.value() as f32, continued };
        let model = scored(model);
        let excess = metrics::log_loss_of(&model) - metrics::log_loss_of(&scored(prior));
        self.seen.push_back((model, excess));
        if self.seen.len() > WINDOW {
            self.seen.pop_front();
        }
        if self.seen.len() >= NEEDED {
            let (mean, error) = self.excess();
            // The way back has a lower bound, so the model does not switch on and off at one value.
            self.drifted = if self.drifted {
                mean > 0.0
            } else {
                // Two standard errors, because few outcomes exceed the bound by chance.
                mean > BOUND && mean > 2.0 * error
            };
        }
    }

    /// Whether predictions of the model are to be used.
    #[must_use]
    pub fn uses_model(&self) -> bool {
        !self.drifted
    }

    /// Judges the model by the outcomes in the window.
    #[must_use]
    pub fn verdict(&self) -> DriftVerdict {
        let (excess, _) = self.excess();
        if self.drifted {
            DriftVerdict::Drifted { excess, bound: BOUND }
        } else if self.seen.len() < NEEDED {
            DriftVerdict::TooFew { have: self.seen.len(), need: NEEDED }
        } else {
            DriftVerdict::Healthy { excess }
        }
    }

    /// Nats per prediction that the model costs more than the prior; 0 before the first outcome.
    #[must_use]
    pub fn excess_log_loss(&self) -> f64 {
        self.excess().0
    }

    /// The model's expected calibration error over the window, 15 bars.
    #[must_use]
    pub fn ece(&self) -> f64 {
        let scored: Vec<ScoredPrediction> = self.seen.iter().map(|(scored, _)| *scored).collect();
        metrics::ece(&metrics::reliability(&scored, BINS))
    }

    /// Forgets everything: there is another model.
    pub fn reset(&mut self) {
        self.seen.clear();
        self.drifted = false;
    }

    /// Mean, and its standard error.
    fn excess(&self) -> (f64, f64) {
        // An empty window has no excess, and no division by zero.
        let n = self.seen.len().max(1) as f64;
        let mean = self.seen.iter().map(|(_, excess)| excess).sum::<f64>() / n;
        let squares = self.seen.iter().map(|(_, excess)| (excess - mean).powi(2));
        (mean, (squares.sum::<f64>() / n / n).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn probability(p: f64) -> Probability {
        Probability::new(p).expect("a number")
    }

    /// Outcomes drawn by a truth that is 0.9 or 0.1; the model says `said(truth)`, the prior 0.5.
    fn feed(drift: &mut Drift, rng: &mut Rng, count: usize, said: impl Fn(f64) -> f64) {
        for _ in 0..count {
            let truth = if rng.below(2) == 0 { 0.9 } else { 0.1 };
            let continued = rng.next_f64() < truth;
            drift.observe(probability(said(truth)), Probability::EVEN, continued);
        }
    }

    #[test]
    fn a_good_model_stays_a_bad_one_goes_and_comes_back_when_good_again() {
        let mut rng = Rng::new(4);
        let mut drift = Drift::default();
        feed(&mut drift, &mut rng, 150, |truth| 1.0 - truth);
        assert_eq!(drift.verdict(), DriftVerdict::TooFew { have: 150, need: 200 });
        assert!(drift.uses_model());
        drift.reset();
        feed(&mut drift, &mut rng, 2000, |truth| truth);
        assert!(matches!(drift.verdict(), DriftVerdict::Healthy { excess } if excess < -0.3));
        assert!(drift.ece() < 0.05);
        // The world turns around: sure, and wrong.
        feed(&mut drift, &mut rng, 1000, |truth| 1.0 - truth);
        assert!(!drift.uses_model() && drift.ece() > 0.7);
        assert!(
            matches!(drift.verdict(), DriftVerdict::Drifted { excess, bound } if excess > bound)
        );
        feed(&mut drift, &mut rng, 1000, |truth| truth);
        assert!(drift.uses_model());
    }

    #[test]
    fn between_the_bounds_the_state_stays_what_it_was() {
        // Costs 0.01 nats more than an even prior: above the way back, below the way out.
        let slightly_worse = probability(0.5 * (-0.01f64).exp());
        let mut healthy = Drift::default();
        (0..WINDOW).for_each(|_| healthy.observe(slightly_worse, Probability::EVEN, true));
        assert!(healthy.uses_model());
        let mut drifted = Drift::default();
        (0..WINDOW).for_each(|_| drifted.observe(probability(0.1), Probability::EVEN, true));
        assert!(!drifted.uses_model());
        (0..WINDOW).for_each(|_| drifted.observe(slightly_worse, Probability::EVEN, true));
        assert!(!drifted.uses_model());
        (0..WINDOW).for_each(|_| drifted.observe(probability(0.6), Probability::EVEN, true));
        assert!(drifted.uses_model());
    }

    #[test]
    fn chance_alone_does_not_make_a_calibrated_model_drift() {
        for seed in 0..50 {
            let mut drift = Drift::default();
            feed(&mut drift, &mut Rng::new(seed), 3000, |_| 0.5);
            assert!(drift.uses_model(), "seed {seed}");
        }
    }
}
