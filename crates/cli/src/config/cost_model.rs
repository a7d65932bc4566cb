//! A cost model in a file: what `headstart serve --executor cost-model=FILE` plays.
//!
//! ```toml
//! overhead_s = 0.017            # of every step
//! weights_s = 0.0122            # least time for the layers of a step
//! token_s = 72e-6               # layers of a token
//! pair_s = 3e-9                 # attention between a query and a key
//! kv_token_s = 24e-9            # reading keys and values of a token
//! sequence_s = 0.0              # choosing a token
//! max_batched_tokens = 8192
//! kv_tokens = 338_000           # tokens that fit its memory
//! load_token_s = 4e-6           # loading a token from a lower tier
//! max_sequences = 1024          # most requests at once
//! latency_s = 0.002             # of a request, beside the engine; not emulated
//! ```

use std::path::Path;

use anyhow::{Context, Result};
use headstart_core::cost::Work;
use headstart_core::{CostModel, EngineModel};
use serde::Deserialize;

use super::toml_error;
use crate::exit::usage;

/// Longest step, seconds: an emulated fleet stops only after its current step.
const STEP_MAX_S: f64 = 60.0;

/// Longest load of a token, and longest way to the engine, seconds.
const SHORT_MAX_S: f64 = 10.0;

/// Most tokens of a step, and most requests at once.
const COUNT_MAX: usize = 1 << 20;

/// Most tokens of memory: what its blocks take in ours.
const KV_TOKENS_MAX: usize = 1 << 26;

/// Default for the most requests at once: as in vLLM on large GPUs.
pub(crate) const MAX_SEQUENCES: usize = 1_024;

/// Contents of a cost model file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplicaCostModel {
    /// Step costs and KV memory of the engine.
    pub(crate) engine: EngineModel,
    /// Most requests at once.
    pub(crate) max_sequences: usize,
    /// Latency of a request outside the engine, seconds; simulated, not emulated.
    pub(crate) latency_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    overhead_s: f64,
    weights_s: f64,
    token_s: f64,
    pair_s: f64,
    kv_token_s: f64,
    #[serde(default)]
    sequence_s: f64,
    max_batched_tokens: usize,
    kv_tokens: usize,
    #[serde(default)]
    load_token_s: f64,
    max_sequences: Option<usize>,
    #[serde(default)]
    latency_s: f64,
}

/// Reads a cost model.
///
/// # Errors
/// When the file does not exist or is not a valid cost model.
pub(crate) fn read(path: &Path) -> Result<ReplicaCostModel> {
    let cannot_read = || format!("cannot read the cost model {}", path.display());
    let text = std::fs::read_to_string(path).with_context(cannot_read)?;
    let wrong = |error| usage(format!("cost model {}: {error}", path.display()));
    parse(&text).map_err(wrong)
}

/// The cost model in `text`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(text: &str) -> Result<ReplicaCostModel, String> {
    let file: File = toml::from_str(text)
        .map_err(|error| toml_error::explained(text, &error, "`headstart calibrate` writes one"))?;
    emulated(&file)
}

fn emulated(file: &File) -> Result<ReplicaCostModel, String> {
    let cost = CostModel {
        overhead_s: file.overhead_s,
        weights_s: file.weights_s,
        token_s: file.token_s,
        pair_s: file.pair_s,
        kv_token_s: file.kv_token_s,
        sequence_s: file.sequence_s,
    };
    cost.check()?;
    let short = [("load_token_s", file.load_token_s), ("latency_s", file.latency_s)];
    for (name, seconds) in short {
        if !(0.0..=SHORT_MAX_S).contains(&seconds) {
            let message = format!("{name} {seconds}: expected seconds, 0 to {SHORT_MAX_S}");
            return Err(message);
        }
    }
    // A step must have room for a token of each sequence, so the default follows a small limit.
    let default = MAX_SEQUENCES.min(file.max_batched_tokens);
    let max_sequences = file.max_sequences.unwrap_or(default);
    let counts =
        [("max_batched_tokens", file.max_batched_tokens), ("max_sequences", max_sequences)];
    for (name, count) in counts {
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(format!("{name} {count}: expected 1 to {COUNT_MAX}"));
        }
    }
    // Every running sequence decodes one token per step, beside the tokens of prompts.
    if max_sequences > file.max_batched_tokens {
        return Err(format!(
            "max_sequences {max_sequences}: a step computes max_batched_tokens {}, and a token of \
             each sequence; expected as many at most",
            file.max_batched_tokens
        ));
    }
    // The blocks of an emulated cache take memory here, though nothing is computed.
    if !(1..=KV_TOKENS_MAX).contains(&file.kv_tokens) {
        return Err(format!("kv_tokens {}: expected 1 to {KV_TOKENS_MAX}", file.kv_tokens));
    }
    let engine = EngineModel {
        cost,
        max_batched_tokens: file.max_batched_tokens,
        kv_tokens: file.kv_tokens,
        load_token_s: file.load_token_s,
    };
    // The longest step is a prefill of the whole budget; a fleet stops only after its current step.
    let step_s = engine.prefill_s(0, file.max_batched_tokens, engine.base_s(Work::default()));
    if step_s <= STEP_MAX_S {
        Ok(ReplicaCostModel { engine, max_sequences, latency_s: file.latency_s })
    } else {
        Err(format!(
            "a step of max_batched_tokens {} takes {step_s:.0} s, at most {STEP_MAX_S}",
            file.max_batched_tokens
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "overhead_s = 0.017\nweights_s = 0.0122\ntoken_s = 72e-6\npair_s = 3e-9\n\
        kv_token_s = 24e-9\nmax_batched_tokens = 8192\nkv_tokens = 338_000\n";

    #[test]
    fn a_file_is_an_engine() {
        let ReplicaCostModel { engine, .. } = parse(EXAMPLE).expect("valid");
        assert_eq!((engine.kv_tokens, engine.cost.token_s), (338_000, 72e-6));
        let wrong = |from: &str, to: &str| parse(&EXAMPLE.replace(from, to)).expect_err("wrong");
        assert!(wrong("72e-6", "-1").contains("token_s"));
        assert!(wrong("338_000", "0").contains("kv_tokens"));
        assert!(wrong("8192", "0").contains("max_batched_tokens"));
        assert!(wrong("pair_s", "pears").contains("pears"));
        assert!(wrong("72e-6", "1.0").contains("at most 60"));
    }
}
