//! The simulated engine from flags.

use crate::prediction::chat::Replica;
use anyhow::Result;
use clap::Args;
use headstart_core::{CostModel, UsageError};
use headstart_sim::cost::qwen3_32b_fp8_on_h100;

/// The engine of the study, by name.
const H100: &str = "qwen3-32b-h100";

/// Largest number that a limit can have.
const LIMIT_MAX: usize = 1 << 24;

/// Options of the simulated engine.
#[derive(Args, Debug)]
pub(super) struct EngineOptions {
    /// Cost model: qwen3-32b-h100, or costs in seconds
    ///
    /// overhead=S,weights=S,token=S,pair=S,kv-token=S,sequence=S; a missing cost is 0.
    #[arg(long, value_name = "COSTS", default_value = H100, help_heading = "Engine")]
    engine: String,
    /// Tokens per block
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Engine")]
    block_size: usize,
    /// Maximum tokens per step
    #[arg(long, value_name = "N", default_value_t = 2_048, help_heading = "Engine")]
    max_batched_tokens: usize,
    /// Maximum running sequences
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Engine")]
    max_sequences: usize,
    /// Context length of the model, tokens
    #[arg(long, value_name = "N", default_value_t = 32_768, help_heading = "Engine")]
    max_context: usize,
}

impl EngineOptions {
    /// The replica described.
    pub(super) fn replica(&self) -> Result<Replica> {
        let limits = [
            ("--block-size", self.block_size),
            ("--max-batched-tokens", self.max_batched_tokens),
            ("--max-sequences", self.max_sequences),
            ("--max-context", self.max_context),
        ];
        for (name, value) in limits {
            if !(1..=LIMIT_MAX).contains(&value) {
                let message = format!("{name} {value}: expected 1 to {LIMIT_MAX}");
                return Err(UsageError(message).into());
            }
        }
        let wrong = |error| UsageError(format!("--engine {}: {error}", self.engine));
        let mut replica = Replica::lpc();
        replica.cost = cost(&self.engine).map_err(wrong)?;
        replica.scheduler.block_size = self.block_size;
        replica.scheduler.max_batched_tokens = self.max_batched_tokens;
        replica.scheduler.max_sequences = self.max_sequences;
        replica.scheduler.max_context = self.max_context;
        Ok(replica)
    }
}

fn cost(text: &str) -> Result<CostModel, String> {
    if text == H100 {
        return Ok(qwen3_32b_fp8_on_h100());
    }
    let mut cost = CostModel {
        overhead_s: 0.0,
        weights_s: 0.0,
        token_s: 0.0,
        pair_s: 0.0,
        kv_token_s: 0.0,
        sequence_s: 0.0,
    };
    for part in text.split(',') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let field = match name {
            "overhead" => &mut cost.overhead_s,
            "weights" => &mut cost.weights_s,
            "token" => &mut cost.token_s,
            "pair" => &mut cost.pair_s,
            "kv-token" => &mut cost.kv_token_s,
            "sequence" => &mut cost.sequence_s,
            _ => {
                return Err(format!(
                    "`{part}` is not known; expected {H100}, or seconds of overhead, weights, \
                     token, pair, kv-token, sequence, as overhead=0.002"
                ));
            }
        };
        *field = value.parse().map_err(|_| format!("`{part}`: expected seconds"))?;
    }
    cost.check().map(|()| cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_a_name_or_its_costs() {
        assert_eq!(cost(H100), Ok(qwen3_32b_fp8_on_h100()));
        let toy = cost("overhead=0.002,token=1e-4").expect("valid");
        assert_eq!((toy.overhead_s, toy.token_s, toy.pair_s), (0.002, 1e-4, 0.0));
        let wrong = |text: &str| cost(text).expect_err("must be refused");
        assert!(wrong("h200").contains("expected qwen3-32b-h100"));
        assert!(wrong("overhead=much").contains("expected seconds"));
        assert!(wrong("token=1e-4").contains("at least"));
        assert!(wrong("overhead=-1").contains("overhead_s"));
    }
}
