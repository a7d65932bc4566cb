//! Noisy oracles: the truth about what follows, made uncertain to a wanted degree.
//!
//! A predictor of known quality, to see what eviction makes of it. Each is a channel that the
//! truth passes through, and the probability told is the posterior of what comes out, so that all
//! three are calibrated; they differ in how the uncertainty is spread over the cases.
//!
//! | oracle | what comes out of the channel | probabilities |
//! |---|---|---|
//! | [`NoiseChannel::Flips`] | the label, wrong with a fixed probability | two values |
//! | [`NoiseChannel::Logit`] | a score, normal around ±d/2 with variance 1 | one hump |
//! | [`NoiseChannel::Confident`] | the label and how sure it is, c = u^g, u uniform; wrong with |
//! | | probability (1 - c) / 2 | many near 0 and 1, the others near the base rate |
//!
//! One number, the *clarity*, from 0 (nothing passes) to 1 (everything does), sets each channel;
//! [`NoisyOracle::calibrated`] searches the clarity that gives a wanted MCC on given labels.

use headstart_core::{Probability, Rng};
use headstart_trace::characterize::stack::mix;
use headstart_trace::synth::draw::normal;

use crate::prediction::chat::Place;
use crate::prediction::quality::best_quality;

/// Kind of noise that makes the truth uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoiseChannel {
    /// Hard flips: every case as likely to be wrong.
    Flips,
    /// Noise on the logit.
    Logit,
    /// Noise that spares confident cases.
    Confident,
}

impl NoiseChannel {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Flips, Self::Logit, Self::Confident];

    /// Its name on the command line.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flips => "flips",
            Self::Logit => "logit",
            Self::Confident => "confident",
        }
    }
}

/// Tells probabilities of a known quality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NoisyOracle {
    channel: NoiseChannel,
    clarity: f64,
    /// Share of cases that are true.
    base: f64,
    seed: u64,
}

/// Distance of the two scores' means, in standard deviations, that leaves one case in 10^9 in
/// doubt.
const DISTANCE_MAX: f64 = 12.0;

/// Halvings of the search: the clarity is exact to 10^-6.
const HALVINGS: usize = 20;

impl NoisyOracle {
    /// An oracle of a given clarity.
    #[must_use]
    pub(crate) fn new(channel: NoiseChannel, clarity: f64, base: f64, seed: u64) -> Self {
        Self { channel, clarity: clarity.clamp(0.0, 1.0), base, seed }
    }

    /// The oracle whose MCC on `cases`, at the best threshold, is nearest to `mcc`. The search is
    /// deterministic. O(cases · log cases), some twenty times.
    #[must_use]
    pub(crate) fn calibrated(
        channel: NoiseChannel,
        mcc: f64,
        cases: &[(Place, bool)],
        seed: u64,
    ) -> Self {
        let yes = cases.iter().filter(|(_, truth)| *truth).count();
        let base = yes as f64 / cases.len().max(1) as f64;
        let oracle = |clarity| Self::new(channel, clarity, base, seed);
        // The ends need no search: nothing passes, or everything does.
        if mcc <= 0.0 || mcc >= 1.0 {
            return oracle(mcc);
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if oracle(middle).mcc(cases) < mcc {
                low = middle;
            } else {
                high = middle;
            }
        }
        // From above: its MCC is at least the wanted one, up to the search's precision.
        oracle(high)
    }

    /// Predicts continuation after the turn at `place`; `truth` is the outcome. Repeated calls give
    /// the same answer.
    #[must_use]
    pub(crate) fn predict(&self, place: Place, truth: bool) -> Probability {
        let number = (place.conversation as u64) << 16 | place.turn as u64;
        // The place fixes the draw, so that all arms of a seed meet the same errors.
        let mut rng = Rng::new(mix(self.seed ^ mix(number)));
        let evidence = self.evidence(truth, &mut rng);
        let prior = (self.base / (1.0 - self.base)).ln();
        // With no doubt left on one side and a base rate of 0 or 1 on the other there is no odds.
        let p = 1.0 / (1.0 + (-(prior + evidence)).exp());
        Probability::new(p).unwrap_or(Probability::EVEN)
    }

    /// The logarithm of how much likelier a true case is than a false one, given what came out.
    fn evidence(&self, truth: bool, rng: &mut Rng) -> f64 {
        let (clarity, side) = (self.clarity, if truth { 1.0 } else { -1.0 });
        let flipped = |sure: f64, rng: &mut Rng| {
            let said = if rng.next_f64() < (1.0 - sure) / 2.0 { -side } else { side };
            if sure > 0.0 { said * ((1.0 + sure) / (1.0 - sure)).ln() } else { 0.0 }
        };
        match self.channel {
            NoiseChannel::Flips => flipped(clarity, rng),
            NoiseChannel::Logit if clarity >= 1.0 => side * f64::INFINITY,
            NoiseChannel::Logit => {
                let distance = clarity * DISTANCE_MAX;
                distance * (side * distance / 2.0 + normal(rng))
            }
            NoiseChannel::Confident => {
                // At clarity 0 the exponent is infinite, and no case is sure.
                let exponent = (1.0 - clarity) / clarity;
                let sure = rng.next_f64().powf(exponent);
                flipped(sure, rng)
            }
        }
    }

    fn mcc(&self, cases: &[(Place, bool)]) -> f64 {
        let judged =
            cases.iter().map(|&(place, truth)| (self.predict(place, truth).value(), truth));
        best_quality(judged).mcc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(base: f64) -> Vec<(Place, bool)> {
        let mut rng = Rng::new(11);
        let case = |conversation| {
            let place = Place { conversation, turn: 0 };
            (place, rng.next_f64() < base)
        };
        (0..40_000).map(case).collect()
    }

    fn check(channel: NoiseChannel, base: f64, mcc: f64) {
        let oracle = NoisyOracle::calibrated(channel, mcc, &cases(base), 1);
        // Other draws of the noise than those that it was calibrated on.
        let other = NoisyOracle { seed: 2, ..oracle };
        let got = other.mcc(&cases(base));
        assert!((got - mcc).abs() < 0.02, "{channel:?} {base} {mcc}: {got}");
    }

    #[test]
    fn the_wanted_mcc_is_reached() {
        for channel in NoiseChannel::ALL {
            for base in [0.1, 0.5] {
                for mcc in [0.0, 0.1, 0.3, 0.6, 0.9, 1.0] {
                    check(channel, base, mcc);
                }
            }
        }
    }

    /// Of the cases with a predicted probability p, a share p is true.
    #[test]
    fn what_is_told_is_calibrated() {
        for channel in NoiseChannel::ALL {
            for base in [0.08, 0.35] {
                let cases = cases(base);
                let oracle = NoisyOracle::calibrated(channel, 0.4, &cases, 1);
                let mut bins = [(0.0, 0.0, 0.0); 10];
                for &(place, truth) in &cases {
                    let p = oracle.predict(place, truth).value();
                    let bin = &mut bins[((p * 10.0) as usize).min(9)];
                    bin.0 += 1.0;
                    bin.1 += p;
                    bin.2 += f64::from(u8::from(truth));
                }
                let error: f64 = bins.iter().map(|(_, told, came)| (told - came).abs()).sum();
                let error = error / cases.len() as f64;
                assert!(error < 0.01, "{channel:?} {base}: {error}");
            }
        }
    }

    #[test]
    fn no_clarity_tells_the_base_rate_and_full_clarity_the_truth() {
        for channel in NoiseChannel::ALL {
            for (place, truth) in cases(0.35).into_iter().take(200) {
                let blind = NoisyOracle::new(channel, 0.0, 0.35, 1).predict(place, truth);
                assert!((blind.value() - 0.35).abs() < 1e-6, "{channel:?}");
                let clear = NoisyOracle::new(channel, 1.0, 0.35, 1).predict(place, truth);
                assert_eq!(clear.value(), f64::from(u8::from(truth)), "{channel:?}");
            }
        }
    }
}
