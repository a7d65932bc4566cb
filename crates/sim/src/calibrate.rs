//! A cost model out of measured times: what explains them best.
//!
//! Each time is of one of two kinds: a prompt's first token on an idle engine, or a token of each
//! of several answers that grow together. The error is the mean squared logarithm of predicted over
//! measured times, so that ten milliseconds count as much as ten seconds. A random search keeps
//! what is better: the roofs have corners, where derivatives say nothing.

use headstart_core::cost::Work;
use headstart_core::{CostModel, Rng};

/// The work that was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedWork {
    /// From a request's arrival to its first token: `new` tokens behind `before` cached ones.
    Prefill {
        /// Tokens found in the cache.
        before: usize,
        /// Tokens computed.
        new: usize,
    },
    /// From a token to the next, of `sequences` concurrent answers.
    Decode {
        /// Answers.
        sequences: usize,
        /// Average tokens of each, with its prompt.
        context: usize,
    },
}

/// A shape, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkTiming {
    /// The work that was timed.
    pub shape: TimedWork,
    /// Seconds, above 0.
    pub seconds: f64,
}

/// Parameters of an engine, fitted to timings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineFit {
    /// Cost model of its steps.
    pub cost: CostModel,
    /// Time of a request beside the engine, seconds.
    pub latency_s: f64,
    /// Most tokens that one step computes: given, not fitted.
    pub max_batched_tokens: usize,
}

/// Parameters that are searched: six of the cost model, and the latency.
type FitParameters = [f64; 7];

/// Candidates per search, of which there are [`SEARCHES`], each from another start.
const CANDIDATES: usize = 6_000;
const SEARCHES: u64 = 4;

/// Least of each number, seconds: nothing, for what takes milliseconds.
const LEAST_S: f64 = 1e-12;

impl EngineFit {
    /// Fits the engine that explains `timings` best. Deterministic.
    ///
    /// # Panics
    /// When there is no timing, or a step that computes nothing.
    #[must_use]
    pub fn of(timings: &[WorkTiming], max_batched_tokens: usize) -> Self {
        assert!(!timings.is_empty() && max_batched_tokens > 0, "something");
        // A random search may end in a side valley, so the best of several counts.
        let fits = (0..SEARCHES).map(|seed| search(timings, max_batched_tokens, seed));
        let best = fits.min_by(|a, b| a.0.total_cmp(&b.0));
        Self::from(best.expect("several searches").1, max_batched_tokens)
    }

    fn from(numbers: FitParameters, max_batched_tokens: usize) -> Self {
        let [overhead_s, weights_s, token_s, pair_s, kv_token_s, sequence_s, latency_s] = numbers;
        Self {
            cost: CostModel { overhead_s, weights_s, token_s, pair_s, kv_token_s, sequence_s },
            latency_s,
            max_batched_tokens,
        }
    }

    /// Predicts the time of `shape`, seconds. O(steps).
    #[must_use]
    pub fn seconds(&self, shape: TimedWork) -> f64 {
        match shape {
            TimedWork::Prefill { before, new } => self.latency_s + self.prefill_s(before, new),
            TimedWork::Decode { sequences, context } => {
                let work = self.cost.decode(sequences, sequences * context);
                self.cost.step_s(work)
            }
        }
    }

    fn prefill_s(&self, before: usize, new: usize) -> f64 {
        let (mut done, mut seconds) = (0, 0.0);
        while done < new {
            // An engine computes a long prompt in several steps, each with its own overhead.
            let tokens = (new - done).min(self.max_batched_tokens);
            let mut work =
                Work { tokens, sampled: usize::from(done + tokens == new), ..Work::default() };
            // A later part attends to all tokens before it, computed or cached.
            self.cost.add_attention(&mut work, before + done, tokens);
            seconds += self.cost.step_s(work);
            done += tokens;
        }
        seconds
    }

    /// Mean and largest relative error over `timings`.
    #[must_use]
    pub fn errors(&self, timings: &[WorkTiming]) -> (f64, f64) {
        let errors =
            timings.iter().map(|timing| (self.seconds(timing.shape) / timing.seconds - 1.0).abs());
        let (sum, worst) = errors
            .fold((0.0, 0.0), |(sum, worst): (f64, f64), error| (sum + error, worst.max(error)));
        (sum / timings.len().max(1) as f64, worst)
    }

    fn squared_error(&self, timings: &[WorkTiming]) -> f64 {
        let errors =
            // The logarithm weighs half as long and twice as long alike.
            timings.iter().map(|timing| (self.seconds(timing.shape) / timing.seconds).ln().powi(2));
        errors.sum::<f64>() / timings.len() as f64
    }
}

fn search(timings: &[WorkTiming], max_batched_tokens: usize, seed: u64) -> (f64, FitParameters) {
    let mut rng = Rng::new(seed);
    let error = |numbers| EngineFit::from(numbers, max_batched_tokens).squared_error(timings);
    // Every search starts elsewhere, or the seed would change only its steps.
    let start = start(timings).map(|number| number * normal(&mut rng).exp());
    let mut best = (error(start), start);
    let mut step = 1.0;
    for _ in 0..CANDIDATES {
        // One number or all of them: corners need the one, valleys the others.
        let chosen = rng.below(best.1.len() * 2);
        let mut numbers = best.1;
        for (at, number) in numbers.iter_mut().enumerate() {
            if chosen == at || chosen >= best.1.len() {
                // Multiplied, so a number stays above 0 and is searched over orders of magnitude.
                *number = (*number * (step * normal(&mut rng)).exp()).max(LEAST_S);
            }
        }
        let error = error(numbers);
        if error < best.0 {
            best = (error, numbers);
            // Longer steps after a success, shorter ones after a failure.
            step = f64::min(step * 1.5, 2.0);
        } else {
            step = f64::max(step * 0.98, 1e-4);
        }
    }
    best
}

/// Returns the start of a search: the shortest time is one step, and long prompts cost their
/// tokens.
fn start(timings: &[WorkTiming]) -> FitParameters {
    let shortest = timings.iter().map(|timing| timing.seconds).min_by(f64::total_cmp);
    let shortest = shortest.unwrap_or(1e-3);
    let token_s = timings.iter().filter_map(|timing| match timing.shape {
        TimedWork::Prefill { new, .. } => Some(timing.seconds / new.max(1) as f64),
        TimedWork::Decode { .. } => None,
    });
    let token_s = token_s.min_by(f64::total_cmp).unwrap_or(shortest);
    [
        // The shortest time is overhead and weights together, in an unknown proportion.
        shortest / 2.0,
        shortest / 2.0,
        token_s,
        token_s / 1e4,
        token_s / 1e3,
        token_s / 10.0,
        shortest / 10.0,
    ]
}

/// About normal: the sum of twelve uniform numbers.
fn normal(rng: &mut Rng) -> f64 {
    // Twelve uniform numbers have variance 1, and mean 6.
    (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: EngineFit = EngineFit {
        cost: CostModel {
            overhead_s: 6e-3,
            weights_s: 12e-3,
            token_s: 80e-6,
            pair_s: 4e-9,
            kv_token_s: 30e-9,
            sequence_s: 20e-6,
        },
        latency_s: 2e-3,
        max_batched_tokens: 2_048,
    };

    fn shapes() -> Vec<TimedWork> {
        let lengths = [16, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192];
        let alone = lengths.map(|new| TimedWork::Prefill { before: 0, new });
        let behind = lengths.map(|new| TimedWork::Prefill { before: 6_000, new });
        let decode = [1, 4, 16, 32]
            .into_iter()
            .flat_map(|sequences| [200, 2_000, 8_000].map(|context| (sequences, context)))
            .map(|(sequences, context)| TimedWork::Decode { sequences, context });
        alone.into_iter().chain(behind).chain(decode).collect()
    }

    fn timings(noise: f64) -> Vec<WorkTiming> {
        let mut rng = Rng::new(9);
        let timing = |shape| WorkTiming {
            shape,
            seconds: ENGINE.seconds(shape) * (noise * normal(&mut rng)).exp(),
        };
        shapes().into_iter().map(timing).collect()
    }

    #[test]
    fn an_engine_is_found_by_its_times() {
        let fit = EngineFit::of(&timings(0.0), 2_048);
        let (mean, worst) = fit.errors(&timings(0.0));
        assert!(mean < 0.01 && worst < 0.05, "{mean} {worst} {fit:?}");
    }

    #[test]
    fn noise_is_not_explained() {
        let fit = EngineFit::of(&timings(0.1), 2_048);
        // Against what would have been measured without it.
        let (mean, worst) = fit.errors(&timings(0.0));
        assert!(mean < 0.08 && worst < 0.25, "{mean} {worst} {fit:?}");
    }

    #[test]
    fn what_was_not_timed_is_reckoned_too() {
        let all = timings(0.0);
        let (even, odd): (Vec<_>, Vec<_>) = all.iter().zip(0..).partition(|(_, at)| at % 2 == 0);
        let of = |part: Vec<(&WorkTiming, i32)>| {
            part.into_iter().map(|timing| *timing.0).collect::<Vec<_>>()
        };
        let (mean, _) = EngineFit::of(&of(even), 2_048).errors(&of(odd));
        assert!(mean < 0.05, "{mean}");
    }
}
