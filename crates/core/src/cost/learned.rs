//! Time costs of an engine's steps, learned while it works.
//!
//! Steps that compute prompts tell what tokens and pairs cost, by least squares over what is
//! remembered; steps that only decode tell how long the shortest step takes. Good enough to compare
//! computing with loading from the first few prompts on; `headstart calibrate` is exact.

use super::{CostModel, EngineModel, Work};

/// Half-life of an observation, steps.
const MEMORY: f64 = 200.0;

/// Steps of fewer tokens than this say what a step costs.
const FEW_TOKENS: usize = 16;

/// Steps of fewer tokens than this do not say what a token costs: the overhead is not told apart.
const ENOUGH_TOKENS: usize = 64;

/// Sums over the steps that are remembered.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnedCost {
    tokens_tokens: f64,
    tokens_pairs: f64,
    pairs_pairs: f64,
    tokens_seconds: f64,
    pairs_seconds: f64,
    decode_s: Option<f64>,
}

impl LearnedCost {
    /// A step of this work took so long. `pairs` are all pairs of a query and a key in it.
    pub fn observe(&mut self, work: Work, pairs: u128, seconds: f64) {
        let keep = 1.0 - std::f64::consts::LN_2 / MEMORY;
        // Few tokens cost hardly more than the step itself, so such a step shows the overhead.
        if work.tokens < FEW_TOKENS {
            let before = self.decode_s.unwrap_or(seconds);
            self.decode_s = Some(before * keep + seconds * (1.0 - keep));
            return;
        }
        if work.tokens < ENOUGH_TOKENS {
            return;
        }
        let (tokens, pairs) = (work.tokens as f64, pairs as f64);
        // A decode step's time is subtracted, but at most half: slow decodes must not make tokens
        // free.
        let seconds = (seconds - self.decode_s.unwrap_or(0.0)).max(seconds / 2.0);
        for (sum, product) in [
            (&mut self.tokens_tokens, tokens * tokens),
            (&mut self.tokens_pairs, tokens * pairs),
            (&mut self.pairs_pairs, pairs * pairs),
            (&mut self.tokens_seconds, tokens * seconds),
            (&mut self.pairs_seconds, pairs * seconds),
        ] {
            // Old sums decay at each step, so the costs follow an engine whose speed changes.
            *sum = *sum * keep + product;
        }
    }

    /// Returns the learned model of an engine with these limits; `None` before the first prompt.
    #[must_use]
    pub fn engine(&self, max_batched_tokens: usize, kv_tokens: usize) -> Option<EngineModel> {
        if self.tokens_tokens == 0.0 {
            return None;
        }
        let (token_s, pair_s) = self.solve();
        Some(EngineModel {
            cost: CostModel {
                overhead_s: self.decode_s.unwrap_or(0.0).max(super::SHORTEST_S),
                weights_s: 0.0,
                token_s,
                pair_s,
                kv_token_s: 0.0,
                sequence_s: 0.0,
            },
            max_batched_tokens,
            kv_tokens,
            load_token_s: 0.0,
        })
    }

    /// Seconds of a token and of a pair; neither is below 0.
    fn solve(&self) -> (f64, f64) {
        let tokens_alone = (self.tokens_seconds / self.tokens_tokens, 0.0);
        let determinant = self.tokens_tokens * self.pairs_pairs - self.tokens_pairs.powi(2);
        // Tokens and pairs in proportion cannot be told apart, and rounding would decide the
        // result.
        if determinant <= 1e-6 * self.tokens_tokens * self.pairs_pairs {
            return tokens_alone;
        }
        let token_s = (self.tokens_seconds * self.pairs_pairs
            - self.pairs_seconds * self.tokens_pairs)
            / determinant;
        let pair_s = (self.pairs_seconds * self.tokens_tokens
            - self.tokens_seconds * self.tokens_pairs)
            / determinant;
        // A negative cost is noise, and would make computing look free.
        match (token_s > 0.0, pair_s > 0.0) {
            (true, true) => (token_s, pair_s),
            _ => tokens_alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn what_tokens_and_pairs_cost_is_found() {
        let mut learned = LearnedCost::default();
        assert_eq!(learned.engine(512, 1_000), None);
        let mut rng = Rng::new(1);
        for _ in 0..100 {
            let tokens = 1 + rng.below(512);
            let depth = rng.below(4_000);
            let pairs = (tokens * (depth + tokens / 2)) as u128;
            let work = Work { tokens, ..Work::default() };
            let decode_s = 2e-3;
            let seconds = decode_s + tokens as f64 * 1e-4 + pairs as f64 * 1e-8;
            let noise = 1.0 + 0.02 * (rng.next_f64() - 0.5);
            learned.observe(work, pairs, seconds * noise);
        }
        let cost = learned.engine(512, 1_000).expect("it was told").cost;
        assert_eq!(cost.check(), Ok(()));
        assert!((cost.token_s / 1e-4 - 1.0).abs() < 0.1, "{cost:?}");
        assert!((cost.pair_s / 1e-8 - 1.0).abs() < 0.1, "{cost:?}");
    }

    #[test]
    fn one_prompt_is_enough_to_begin_with() {
        let mut learned = LearnedCost::default();
        let work = Work { tokens: 100, ..Work::default() };
        learned.observe(work, 5_000, 0.2);
        let cost = learned.engine(512, 1_000).expect("it was told").cost;
        assert!((cost.token_s - 2e-3).abs() < 1e-9 && cost.pair_s == 0.0);
    }

    #[test]
    fn short_prompts_do_not_tell_what_a_token_costs() {
        let mut learned = LearnedCost::default();
        let work = |tokens| Work { tokens, ..Work::default() };
        learned.observe(work(25), 25, 0.02);
        assert!(learned.engine(512, 1 << 20).is_none());
        learned.observe(work(512), 512 * 512 / 2, 0.2);
        learned.observe(work(25), 25, 0.2);
        let engine = learned.engine(512, 1 << 20).expect("learnt");
        assert!(engine.cost.token_s < 0.0005, "{engine:?}");
    }
}
