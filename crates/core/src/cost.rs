//! Time costs of an engine's steps: a few numbers per engine.
//!
//! ```text
//! step = overhead
//!      + max(weights, tokens · token)                        layers: read once, or computed
//!      + Σ entries  max(pairs · pair, depth · kv token)      attention: computed, or read
//!      + sampled · sequence
//! ```
//!
//! An entry of n tokens behind s others has `n·s + n·(n+1)/2` pairs of a query and a key, and
//! reads `s + n` keys and values: a prefill chunk computes longer than it reads, a decode step
//! the other way round, so neither needs to be told apart.
//!
//! One engine at a time: no overlap of steps. Source: the roofline model (Williams, Waterman and
//! Patterson, CACM 2009), one roof per part.

pub mod learned;
pub mod roofline;

use roofline::{Gpu, ModelShape};

/// Time costs of one engine's steps, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Of every step, whatever it holds.
    pub overhead_s: f64,
    /// Least time for the layers of a step: reading the weights once.
    pub weights_s: f64,
    /// Computing the layers of one token.
    pub token_s: f64,
    /// Attention between one query and one key, all layers and heads.
    pub pair_s: f64,
    /// Reading keys and values of one token, all layers.
    pub kv_token_s: f64,
    /// Choosing one token.
    pub sequence_s: f64,
}

/// Step costs, batch limit and KV memory of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineModel {
    /// Time costs of its steps.
    pub cost: CostModel,
    /// Most tokens that one step computes.
    pub max_batched_tokens: usize,
    /// Tokens whose keys and values fit its memory.
    pub kv_tokens: usize,
    /// Seconds until the keys and values of one token in a lower tier are on the device.
    pub load_token_s: f64,
}

/// Amount of work in a step, in integers: their sums do not depend on the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tokens computed.
    pub tokens: usize,
    /// Tokens chosen.
    pub sampled: usize,
    /// Pairs of a query and a key, where computing takes longest.
    pub pairs: u128,
    /// Keys and values, where reading does.
    pub kv_tokens: usize,
}

/// Most seconds that one part of a step may cost: keeps sums of times far from their end.
const LONGEST_S: f64 = 3_600.0;

/// Least seconds of a step: bounds the steps of a run.
const SHORTEST_S: f64 = 1e-6;

impl CostModel {
    /// Adds attention of `new` tokens behind `before` others to `work`.
    pub fn add_attention(&self, work: &mut Work, before: usize, new: usize) {
        let pairs = new as u128 * before as u128 + new as u128 * (new as u128 + 1) / 2;
        // The larger of two times is the entry's own roof; sums over entries may mix both kinds.
        if pairs as f64 * self.pair_s > (before + new) as f64 * self.kv_token_s {
            work.pairs += pairs;
        } else {
            work.kv_tokens += before + new;
        }
    }

    /// Returns the work of `sequences` decodes that together read `kv_tokens`.
    #[must_use]
    pub fn decode(&self, sequences: usize, kv_tokens: usize) -> Work {
        let is_computed = self.pair_s > self.kv_token_s;
        // One query meets as many keys as are read.
        let (pairs, kv_tokens) = if is_computed { (kv_tokens, 0) } else { (0, kv_tokens) };
        Work { tokens: sequences, sampled: sequences, pairs: pairs as u128, kv_tokens }
    }

    /// Returns the time of a step with this work, seconds.
    #[must_use]
    pub fn step_s(&self, work: Work) -> f64 {
        let layers_s = self.weights_s.max(work.tokens as f64 * self.token_s);
        let sampling_s = work.sampled as f64 * self.sequence_s;
        self.overhead_s + layers_s + self.attention_s(work) + sampling_s
    }

    fn attention_s(&self, work: Work) -> f64 {
        work.pairs as f64 * self.pair_s + work.kv_tokens as f64 * self.kv_token_s
    }

    /// The same engine, `times` as fast, which is above 0.
    #[must_use]
    pub fn faster(&self, times: f64) -> Self {
        Self {
            overhead_s: self.overhead_s / times,
            weights_s: self.weights_s / times,
            token_s: self.token_s / times,
            pair_s: self.pair_s / times,
            kv_token_s: self.kv_token_s / times,
            sequence_s: self.sequence_s / times,
        }
    }

    /// Checks that the costs are valid.
    ///
    /// # Errors
    /// When a number is negative or not finite, or when a step would take no time.
    pub fn check(&self) -> Result<(), String> {
        let parts = [
            ("overhead_s", self.overhead_s),
            ("weights_s", self.weights_s),
            ("token_s", self.token_s),
            ("pair_s", self.pair_s),
            ("kv_token_s", self.kv_token_s),
            ("sequence_s", self.sequence_s),
        ];
        for (name, seconds) in parts {
            if !(0.0..=LONGEST_S).contains(&seconds) {
                return Err(format!("{name} {seconds}: expected seconds, 0 to {LONGEST_S}"));
            }
        }
        // Below this a run of minutes would be billions of steps.
        if self.overhead_s + self.weights_s < SHORTEST_S {
            return Err(format!(
                "overhead_s + weights_s: a step must take at least {SHORTEST_S} seconds"
            ));
        }
        Ok(())
    }
}

impl EngineModel {
    /// Llama 3.1 8B in bfloat16 on one H100 with 80 GB, from the data sheets: the default unless a
    /// better model is known.
    #[must_use]
    pub fn default_engine() -> Self {
        let model = ModelShape::find("llama-3.1-8b").expect("a known model");
        let gpu = Gpu::find("h100").expect("a known GPU");
        Self::derived(&model, &gpu, 1).expect("it fits")
    }

    /// Seconds that the sequences that decode make each step last, without any prompt.
    #[must_use]
    pub fn base_s(&self, decoding: Work) -> f64 {
        self.cost.step_s(decoding)
    }

    /// Seconds until `new` tokens behind `before` held ones are computed, if no other prompt is:
    /// the steps last as long as they take with what is computed `beside` in each. O(steps).
    #[must_use]
    pub fn prefill_steps_s(&self, before: usize, new: usize, beside: Work) -> f64 {
        // At least one token a step, even where the decodes alone fill it: the loop must end.
        let most = self.max_batched_tokens.saturating_sub(beside.tokens).max(1);
        let (mut at, end) = (before, before + new);
        let mut total_s = 0.0;
        while at < end {
            let chunk = most.min(end - at);
            let mut work = beside;
            work.tokens += chunk;
            self.cost.add_attention(&mut work, at, chunk);
            total_s += self.cost.step_s(work);
            at += chunk;
        }
        total_s
    }

    /// Seconds that `new` tokens behind `before` held ones add to the steps in which they are
    /// computed. Prompts that wait together share steps, so that of what a step costs anyway,
    /// `base_s`, only their share of a full one counts.
    #[must_use]
    pub fn prefill_s(&self, before: usize, new: usize, base_s: f64) -> f64 {
        let mut work = Work::default();
        self.cost.add_attention(&mut work, before, new);
        // A fraction: prompts that wait together share a step.
        let steps = new as f64 / self.max_batched_tokens.max(1) as f64;
        new as f64 * self.cost.token_s + self.cost.attention_s(work) + steps * base_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: CostModel = CostModel {
        overhead_s: 1.0,
        weights_s: 10.0,
        token_s: 2.0,
        pair_s: 0.5,
        kv_token_s: 3.0,
        sequence_s: 0.25,
    };

    #[test]
    fn a_prompt_takes_its_share_of_steps() {
        let engine = EngineModel {
            cost: PLAIN,
            max_batched_tokens: 20,
            kv_tokens: 1_000,
            load_token_s: 0.0,
        };
        // Two sequences that read 7 tokens: 1 + 10 + 7 · 3 + 2 / 4.
        let base_s = engine.base_s(PLAIN.decode(2, 7));
        assert_eq!(base_s, 32.5);
        // Half a step; 55 pairs cost less than reading ten keys.
        assert_eq!(engine.prefill_s(0, 10, base_s), 20.0 + 30.0 + base_s / 2.0);
        // A step and a half; 465 pairs cost more.
        assert_eq!(engine.prefill_s(0, 30, 10.0), 60.0 + 232.5 + 15.0);
        // What is held is read, not computed.
        assert_eq!(engine.prefill_s(100, 1, 0.0), 2.0 + 303.0);
    }

    #[test]
    fn what_is_reckoned_with_is_a_cost_model() {
        let engine = EngineModel::default_engine();
        assert_eq!(engine.cost.check(), Ok(()));
        let second_s = engine.prefill_s(0, 8_000, engine.base_s(Work::default()));
        assert!((0.2..0.6).contains(&second_s), "{second_s}");
    }

    #[test]
    fn numbers_that_no_step_can_take_are_named() {
        let bad = |cost: CostModel| cost.check().expect_err("must be refused");
        let token_s = -1.0;
        assert!(bad(CostModel { token_s, ..PLAIN }).contains("token_s"));
        let pair_s = f64::NAN;
        assert!(bad(CostModel { pair_s, ..PLAIN }).contains("pair_s"));
        let none = CostModel { overhead_s: 0.0, weights_s: 0.0, ..PLAIN };
        assert!(bad(none).contains("at least"));
    }
}
