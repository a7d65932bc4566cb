//! Seconds of each bucket's tokens, by a model that is fitted to the times that were seen.

use headstart_insight::prefill::{Prefill, PrefillFit, PrefillModel, PrefillSample};
use headstart_insight::{Bucket, BucketTokens};

/// Buckets in all.
const BUCKETS: usize = Bucket::ALL.len();

/// A second for each token; then a second for each token and each one before it.
const PARTS: [PrefillModel; 2] = [
    PrefillModel { fixed: 0.0, per_token: 1.0, per_pair: 0.0 },
    PrefillModel { fixed: 0.0, per_token: 0.0, per_pair: 1.0 },
];

/// Sums over requests for each part of the prefill model. Seconds are linear in the model, so a
/// model that is fitted later holds for all requests.
#[derive(Clone, Default)]
pub(super) struct Seconds {
    prefill: Prefill,
    parts: [[f64; BUCKETS]; PARTS.len()],
}

/// Seconds by bucket, and the model that says so.
#[derive(Clone, Debug)]
pub struct BucketSeconds {
    /// The prefill model and its quality of fit.
    pub fitted: PrefillFit,
    /// Of buckets that were computed what that took, of those that were found what that saved.
    pub buckets: [(Bucket, f64); BUCKETS],
}

impl Seconds {
    /// A request whose first token took so long, where that is known.
    pub(super) fn add(&mut self, split: &BucketTokens, ttft_s: Option<f64>) {
        // Before the early return: tokens count even where no time to the first token is known.
        for (sums, part) in self.parts.iter_mut().zip(&PARTS) {
            let seconds = part.split(split).buckets;
            for (sum, (_, seconds)) in sums.iter_mut().zip(seconds) {
                *sum += seconds;
            }
        }
        let Some(seconds) = ttft_s else {
            return;
        };
        let served = split.iter().filter(|(bucket, _)| bucket.is_served());
        let cached = served.map(|(_, tokens)| tokens).sum();
        self.prefill.add(PrefillSample {
            cached,
            uncached: split.total() as u32 - cached,
            seconds,
        });
    }

    /// Seconds by bucket; none while too few times are known. Some milliseconds of work.
    pub(super) fn told(&self) -> Option<BucketSeconds> {
        let fitted = self.prefill.fit()?;
        let weights = [fitted.model.per_token, fitted.model.per_pair];
        let mut at = 0;
        // `ALL` has the order of the sums, so that a running index finds each bucket.
        let buckets = Bucket::ALL.map(|bucket| {
            let parts = self.parts.iter().zip(weights);
            let seconds = parts.map(|(sums, weight)| sums[at] * weight).sum();
            at += 1;
            (bucket, seconds)
        });
        Some(BucketSeconds { fitted, buckets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    #[test]
    fn sums_of_parts_are_the_models_seconds() {
        let truth = PrefillModel { fixed: 0.01, per_token: 2e-4, per_pair: 3e-8 };
        let (mut rng, mut seconds) = (Rng::new(5), Seconds::default());
        let mut expected = [0.0; BUCKETS];
        assert!(seconds.told().is_none(), "nothing is known yet");
        for _ in 0..400 {
            let mut split = BucketTokens::default();
            let (cached, uncached) = (rng.below(4000) as u32, 100 + rng.below(3000) as u32);
            split.put(Bucket::Device, cached);
            split.put(Bucket::Evicted, uncached / 3);
            split.put(Bucket::NeverSeen, uncached - uncached / 3);
            seconds.add(&split, Some(truth.seconds(cached, uncached)));
            for (sum, (_, one)) in expected.iter_mut().zip(truth.split(&split).buckets) {
                *sum += one;
            }
        }
        let told = seconds.told().expect("enough is known");
        for ((bucket, seconds), expected) in told.buckets.into_iter().zip(expected) {
            let off = (seconds - expected).abs();
            assert!(off <= 0.02 * expected + 1e-9, "{bucket}: {seconds} for {expected}");
        }
    }
}
