//! Duration of scheduler steps by a [`CostModel`].
//!
//! Does not know prompts, policies or queues.

use std::time::Duration;

use headstart_core::CostModel;
use headstart_scheduler::{Batch, Decode};

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

/// Qwen3-32B-FP8 on one H100 with 80 GB, as in Learned Prefix Caching (NeurIPS 2025).
#[must_use]
pub fn qwen3_32b_fp8_on_h100() -> CostModel {
    let bandwidth = BANDWIDTH * BANDWIDTH_SHARE;
    // Query times key and weight times value, a multiplication and an addition each.
    let flop_per_pair = 4.0 * LAYERS * QUERY_HEADS * HEAD_VALUES;
    let kv_bytes = 2.0 * LAYERS * KV_HEADS * HEAD_VALUES * KV_VALUE_BYTES;
    CostModel {
        overhead_s: OVERHEAD_S,
        weights_s: WEIGHT_BYTES / bandwidth,
        token_s: TOKEN_S,
        pair_s: flop_per_pair / ATTENTION_FLOPS,
        kv_token_s: kv_bytes / bandwidth,
        sequence_s: 0.0,
    }
}

/// Returns the duration of the step that computes `batch`. O(entries).
#[must_use]
pub fn step(cost: &CostModel, batch: &Batch) -> Duration {
    counted_step(cost, Decode::default(), batch)
}

/// Returns the duration of a step that computes `batch` and a token for each of `decode`. Equals
/// [`step`] for a batch with all of them, to the bit.
#[must_use]
pub fn counted_step(cost: &CostModel, decode: Decode, batch: &Batch) -> Duration {
    // Decoding sequences first, as in a batch with all of them: the order of sums fixes the last
    // bit.
    let mut work = cost.decode(decode.sequences, decode.kv_tokens);
    batch.add_work(&mut work, cost);
    Duration::from_secs_f64(cost.step_s(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::SeqId;
    use headstart_scheduler::{Entry, Sampling};

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
            pruned: None,
        }
    }

    fn check(entries: &[(usize, usize, bool)], expected_s: f64) {
        let entries = entries.iter().copied().map(entry_of).collect();
        let step = super::step(&PLAIN, &Batch { entries, ..Batch::default() });
        assert_eq!(step, Duration::from_secs_f64(expected_s));
    }

    #[test]
    fn each_part_is_bound_by_its_own_roof() {
        // One decode: weights are read, 5 keys are read.
        check(&[(4, 1, true)], 1.0 + 10.0 + 15.0 + 0.25);
        // A prefill of 20: 210 pairs cost more than reading 20 keys.
        check(&[(0, 20, false)], 1.0 + 40.0 + 105.0);
        // Both: the layers are shared, attention is not.
        check(&[(4, 1, true), (0, 20, true)], 1.0 + 42.0 + 15.0 + 105.0 + 0.5);
    }

    #[test]
    fn counted_decodes_cost_what_written_ones_do() {
        for pair_s in [0.5, 5.0] {
            let cost = CostModel { pair_s, ..PLAIN };
            let written = [(4, 1, true), (9, 1, true), (2, 7, false)].map(entry_of);
            let decode = Decode { sequences: 2, kv_tokens: 15 };
            let prompts = Batch { entries: written[2..].to_vec(), ..Batch::default() };
            let all = Batch { entries: written.to_vec(), ..Batch::default() };
            assert_eq!(counted_step(&cost, decode, &prompts), step(&cost, &all));
        }
    }

    #[test]
    fn a_decode_alone_takes_what_reading_the_weights_takes() {
        let model = qwen3_32b_fp8_on_h100();
        assert_eq!(model.check(), Ok(()));
        let step_s = model.overhead_s + model.weights_s;
        assert!((0.015..0.016).contains(&step_s), "{step_s}");
        // 262,144 bytes per token.
        assert!((model.kv_token_s * 3.35e12 * 0.8 - 262_144.0).abs() < 1.0);
    }
}
