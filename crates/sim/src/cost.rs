//! How long a step takes: a few numbers per engine, and the executor that spends that time.
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
//! Does not know prompts, policies or queues. One engine at a time: no overlap of steps.
//! Source: the roofline model (Williams, Waterman and Patterson, CACM 2009), one roof per part.

use std::time::Duration;

use headstart_core::TokenId;
use headstart_scheduler::{Batch, Decode, Entry, Executor};

use crate::chat::tokens;

/// What one engine's steps cost, in seconds.
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

/// Qwen3-32B: layers, query heads, KV heads, values per head. Source: its `config.json`.
const LAYERS: f64 = 64.0;
const QUERY_HEADS: f64 = 64.0;
const KV_HEADS: f64 = 8.0;
const HEAD_VALUES: f64 = 128.0;

/// Qwen3-32B-FP8: 32.8 G parameters of one byte. Source: the model card.
const WEIGHT_BYTES: f64 = 32.8e9;

/// Keys and values are kept in bfloat16: 40 GB then hold 160 K tokens, as the study says.
const KV_VALUE_BYTES: f64 = 2.0;

/// H100 SXM, bytes per second. Source: NVIDIA's data sheet.
const BANDWIDTH: f64 = 3.35e12;

/// Share of the bandwidth that is reached. Our choice.
const BANDWIDTH_SHARE: f64 = 0.8;

/// FLOP per second that attention kernels reach in bfloat16 on one H100. Our choice: a third of
/// the 989 T of the data sheet.
const ATTENTION_FLOPS: f64 = 350e12;

/// Seconds for the layers of one token, and of overhead per step: the two numbers with which the
/// model gives both published throughputs (1,000 context and 50 new tokens, one request at a time:
/// 10.01 /s at 35 % hit rate, 11.11 /s at 42 %), the rest being as above. Calibrated, so that this
/// pair of figures is no evidence for the model; its decode step (15.5 ms alone) was not fitted.
const TOKEN_S: f64 = 136.0e-6;
const OVERHEAD_S: f64 = 3.27e-3;

impl CostModel {
    /// Qwen3-32B-FP8 on one H100 with 80 GB, as in Learned Prefix Caching (NeurIPS 2025).
    #[must_use]
    pub fn qwen3_32b_fp8_on_h100() -> Self {
        let bandwidth = BANDWIDTH * BANDWIDTH_SHARE;
        // Query times key and weight times value, a multiplication and an addition each.
        let flop_per_pair = 4.0 * LAYERS * QUERY_HEADS * HEAD_VALUES;
        let kv_bytes = 2.0 * LAYERS * KV_HEADS * HEAD_VALUES * KV_VALUE_BYTES;
        Self {
            overhead_s: OVERHEAD_S,
            weights_s: WEIGHT_BYTES / bandwidth,
            token_s: TOKEN_S,
            pair_s: flop_per_pair / ATTENTION_FLOPS,
            kv_token_s: kv_bytes / bandwidth,
            sequence_s: 0.0,
        }
    }

    /// How long the step that computes `batch` takes. O(entries).
    #[must_use]
    pub fn step(&self, batch: &Batch) -> Duration {
        self.counted_step(Decode::default(), batch)
    }

    /// How long a step takes that computes `batch` and a token for each of `decode`: what
    /// [`Self::step`] says of a batch with all of them, to the bit.
    #[must_use]
    pub fn counted_step(&self, decode: Decode, batch: &Batch) -> Duration {
        let mut work = self.decode_work(decode);
        for entry in &batch.entries {
            work.tokens += entry.tokens.len();
            work.sampled += usize::from(entry.sampling.is_some());
            self.add_attention(&mut work, entry);
        }
        self.seconds(work)
    }

    fn decode_work(&self, decode: Decode) -> Work {
        let is_computed = self.pair_s > self.kv_token_s;
        // One query meets as many keys as are read.
        let (pairs, kv_tokens) = match is_computed {
            true => (decode.kv_tokens, 0),
            false => (0, decode.kv_tokens),
        };
        Work {
            tokens: decode.sequences,
            sampled: decode.sequences,
            pairs: pairs as u128,
            kv_tokens,
        }
    }

    fn add_attention(&self, work: &mut Work, entry: &Entry) {
        let (new, before) = (entry.tokens.len(), entry.start);
        let pairs = new as u128 * before as u128 + new as u128 * (new as u128 + 1) / 2;
        if pairs as f64 * self.pair_s > (before + new) as f64 * self.kv_token_s {
            work.pairs += pairs;
        } else {
            work.kv_tokens += before + new;
        }
    }

    fn seconds(&self, work: Work) -> Duration {
        let layers_s = self.weights_s.max(work.tokens as f64 * self.token_s);
        let attention_s = work.pairs as f64 * self.pair_s + work.kv_tokens as f64 * self.kv_token_s;
        let sampling_s = work.sampled as f64 * self.sequence_s;
        Duration::from_secs_f64(self.overhead_s + layers_s + attention_s + sampling_s)
    }

    /// What is wrong with it, if anything.
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
                return Err(format!(
                    "{name} {seconds}: expected seconds, 0 to {LONGEST_S}"
                ));
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

/// What a step consists of, counted: sums of whole numbers do not depend on their order.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    tokens: usize,
    sampled: usize,
    /// Pairs of a query and a key, where computing takes longest.
    pairs: u128,
    /// Keys and values, where reading does.
    kv_tokens: usize,
}

/// Most seconds that one part of a step may cost: keeps sums of times far from their end.
const LONGEST_S: f64 = 3_600.0;

/// Least seconds of a step: bounds the steps of a run.
const SHORTEST_S: f64 = 1e-6;

/// Computes nothing, takes the time that the model says, and answers with made-up tokens.
#[derive(Clone, Debug)]
pub struct VirtualExecutor {
    cost: CostModel,
    step: Duration,
}

impl VirtualExecutor {
    /// An executor whose steps cost what `cost` says.
    #[must_use]
    pub fn new(cost: CostModel) -> Self {
        Self {
            cost,
            step: Duration::ZERO,
        }
    }

    /// How long the last batch took.
    #[must_use]
    pub fn last_step(&self) -> Duration {
        self.step
    }
}

impl Executor for VirtualExecutor {
    fn execute(&mut self, batch: &Batch) -> Vec<TokenId> {
        self.step = self.cost.step(batch);
        let sampled = batch.entries.iter().filter(|it| it.sampling.is_some());
        sampled
            .map(|entry| tokens::of_sequence(entry.seq, entry.start + entry.tokens.len()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::SeqId;
    use headstart_scheduler::Sampling;

    const PLAIN: CostModel = CostModel {
        overhead_s: 1.0,
        weights_s: 10.0,
        token_s: 2.0,
        pair_s: 0.5,
        kv_token_s: 3.0,
        sequence_s: 0.25,
    };

    fn entry_of((start, new, sampled): (usize, usize, bool)) -> Entry {
        Entry {
            seq: SeqId(1 << 16),
            tokens: vec![7; new],
            start,
            blocks: Vec::new(),
            sampling: sampled.then(Sampling::default),
        }
    }

    fn check(entries: &[(usize, usize, bool)], expected_s: f64) {
        let entries = entries.iter().copied().map(entry_of).collect();
        let step = PLAIN.step(&Batch { entries });
        assert_eq!(step, Duration::from_secs_f64(expected_s));
    }

    #[test]
    fn each_part_is_bound_by_its_own_roof() {
        // One decode: weights are read, 5 keys are read.
        check(&[(4, 1, true)], 1.0 + 10.0 + 15.0 + 0.25);
        // A prefill of 20: 210 pairs cost more than reading 20 keys.
        check(&[(0, 20, false)], 1.0 + 40.0 + 105.0);
        // Both: the layers are shared, attention is not.
        check(
            &[(4, 1, true), (0, 20, true)],
            1.0 + 42.0 + 15.0 + 105.0 + 0.5,
        );
    }

    #[test]
    fn counted_decodes_cost_what_written_ones_do() {
        for pair_s in [0.5, 5.0] {
            let cost = CostModel { pair_s, ..PLAIN };
            let written = [(4, 1, true), (9, 1, true), (2, 7, false)].map(entry_of);
            let decode = Decode {
                sequences: 2,
                kv_tokens: 15,
            };
            let prompts = Batch {
                entries: written[2..].to_vec(),
            };
            let all = Batch {
                entries: written.to_vec(),
            };
            assert_eq!(cost.counted_step(decode, &prompts), cost.step(&all));
        }
    }

    #[test]
    fn a_decode_alone_takes_what_reading_the_weights_takes() {
        let model = CostModel::qwen3_32b_fp8_on_h100();
        assert_eq!(model.check(), Ok(()));
        let step_s = model.overhead_s + model.weights_s;
        assert!((0.015..0.016).contains(&step_s), "{step_s}");
        // 262,144 bytes per token.
        assert!((model.kv_token_s * 3.35e12 * 0.8 - 262_144.0).abs() < 1.0);
    }

    #[test]
    fn numbers_that_no_step_can_take_are_named() {
        let bad = |cost: CostModel| cost.check().expect_err("must be refused");
        assert!(
            bad(CostModel {
                token_s: -1.0,
                ..PLAIN
            })
            .contains("token_s")
        );
        assert!(
            bad(CostModel {
                pair_s: f64::NAN,
                ..PLAIN
            })
            .contains("pair_s")
        );
        let none = CostModel {
            overhead_s: 0.0,
            weights_s: 0.0,
            ..PLAIN
        };
        assert!(bad(none).contains("at least"));
    }
}
