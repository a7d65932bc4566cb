//! Expected hits of a live server, from a replay, request by request.
//!
//! The replay gets what an engine holds, not what the trace names: full blocks, answers included,
//! and one slot less than the engine has. [`headstart_trace::materialize::held`] says when the two
//! agree exactly and when only closely. Policies that read turns and types receive them here but
//! not from a live request, so they may differ too.

use std::collections::HashMap;

use crate::exit::usage;
use anyhow::{Result, ensure};
use headstart_cache::policy::{self, Setting};
use headstart_core::TraceRequest;
use headstart_core::figures::counted;
use headstart_core::stats::HitCount;
use headstart_loadgen::TraceSample;
use headstart_sim::Replay;
use headstart_trace::materialize::TokenPrompt;
use headstart_trace::materialize::held::HeldChains;
use serde::Serialize;

/// Largest cache predicted for a server elsewhere, blocks: at a hundred bytes each, more memory
/// than the prediction is worth.
const BLOCKS_MAX: usize = 1 << 24;

/// Differences reported one by one.
const DIFFERENCES_SHOWN: usize = 5;

/// A server's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheSetting {
    pub(super) blocks: usize,
    pub(super) block_size: u32,
    pub(super) policy: String,
}

/// A replay beside a live run.
pub(super) struct Prediction {
    setting: CacheSetting,
    replay: Replay,
    chains: HeldChains,
    /// Cached prompt tokens by request number.
    cached_tokens: HashMap<u64, u32>,
}

/// The live run against the prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Agreement {
    /// Blocks of the server's cache.
    cache_blocks: usize,
    /// Tokens of a block.
    block_size: u32,
    policy: String,
    /// Prompt tokens that the replay found, of the answered requests.
    cached_tokens: u64,
    /// Cached prompt tokens / prompt tokens.
    hit_rate: f64,
    /// Answered requests that found exactly as much as the replay.
    equal: usize,
    /// Answered requests that found more than the replay.
    more: usize,
    /// Answered requests that found less than the replay.
    less: usize,
    /// The first few that differ.
    differences: Vec<HitMismatch>,
}

/// A request that found something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct HitMismatch {
    request: u64,
    cached_tokens: u32,
    predicted: u32,
}

impl Prediction {
    /// For an empty cache; `id_tokens` are the tokens of a block id.
    pub(super) fn new(setting: CacheSetting, id_tokens: u32) -> Result<Self> {
        let too_many = || usage(format!("--cache-blocks: at most {BLOCKS_MAX} can be predicted"));
        ensure!(setting.blocks <= BLOCKS_MAX, too_many());
        // A cache of no block would underflow below.
        let is_cache = setting.blocks > 0 && setting.block_size > 0;
        ensure!(is_cache, usage("--cache-blocks and --block-size must be at least 1"));
        // The slot of the block that is not full.
        let capacity = setting.blocks - 1;
        let made = policy::by_name(
            &setting.policy,
            Setting { capacity, block_tokens: setting.block_size },
        );
        let policy = made.map_err(|error| usage(format!("--policy: {error}")))?;
        Ok(Self {
            replay: Replay::new(capacity, policy),
            chains: HeldChains::new(id_tokens, setting.block_size),
            setting,
            cached_tokens: HashMap::new(),
        })
    }

    /// Serves the next request.
    pub(super) fn serve(&mut self, request: &TraceRequest, prompt: &TokenPrompt) {
        let held = self.chains.of(request, prompt);
        let hits = self.replay.serve(&TraceRequest { blocks: held.chain, ..*request });
        // A hit cannot exceed the matchable blocks: the last token is always computed.
        let tokens = hits.min(held.matchable) as u32 * self.setting.block_size;
        self.cached_tokens.insert(prompt.number, tokens);
    }

    /// Compares the hits of the answered requests with the prediction.
    pub(super) fn compare(&self, samples: &[TraceSample]) -> Result<Agreement> {
        let mut tokens = HitCount::default();
        let (mut equal, mut more, mut less) = (0, 0, 0);
        let mut differences = Vec::new();
        for sample in samples {
            let predicted = self.cached_tokens.get(&sample.number).copied().unwrap_or(0);
            // The server counts other tokens than were sent, and then no comparison holds.
            ensure!(
                predicted <= sample.prompt_tokens,
                "request {}: the server counts {} prompt tokens, fewer than it was sent",
                sample.number,
                sample.prompt_tokens
            );
            tokens.record(sample.prompt_tokens as usize, predicted as usize);
            match sample.cached_tokens.cmp(&predicted) {
                std::cmp::Ordering::Equal => equal += 1,
                std::cmp::Ordering::Greater => more += 1,
                std::cmp::Ordering::Less => less += 1,
            }
            if sample.cached_tokens != predicted && differences.len() < DIFFERENCES_SHOWN {
                differences.push(HitMismatch {
                    request: sample.number,
                    cached_tokens: sample.cached_tokens,
                    predicted,
                });
            }
        }
        Ok(Agreement {
            cache_blocks: self.setting.blocks,
            block_size: self.setting.block_size,
            policy: self.setting.policy.clone(),
            cached_tokens: tokens.hits,
            hit_rate: tokens.rate(),
            equal,
            more,
            less,
            differences,
        })
    }
}

impl Agreement {
    /// The same in words.
    pub(super) fn to_markdown(&self) -> String {
        let mut text = format!(
            "A replay of {} of {} under {}, one request at a time, finds {}: \
             {:.2} %.\n{} found exactly that, {} more, {} less.\n",
            counted(self.cache_blocks as u64, "block"),
            counted(self.block_size as u64, "token"),
            self.policy,
            counted(self.cached_tokens, "token"),
            self.hit_rate * 100.0,
            counted(self.equal as u64, "request"),
            self.more,
            self.less,
        );
        for difference in &self.differences {
            text += &format!(
                "\n- request {}: {} cached, {} predicted",
                difference.request, difference.cached_tokens, difference.predicted
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn setting(blocks: usize, policy: &str) -> CacheSetting {
        CacheSetting { blocks, block_size: 16, policy: policy.to_owned() }
    }

    fn sample(number: u64, cached_tokens: u32) -> TraceSample {
        TraceSample {
            number,
            prompt_tokens: 40,
            cached_tokens,
            output_tokens: 1,
            ttft: Duration::ZERO,
            e2e: Duration::ZERO,
            late: Duration::ZERO,
            replica: None,
        }
    }

    #[test]
    fn a_slot_is_taken_off_and_differences_are_named() {
        let mut prediction = Prediction::new(setting(4, "lru"), 16).expect("valid");
        for (number, ids) in [[1, 2], [1, 3], [1, 2], [1, 2]].iter().enumerate() {
            let request =
                TraceRequest { blocks: ids.iter().copied().collect(), ..TraceRequest::default() };
            let prompt = TokenPrompt {
                number: number as u64,
                tokens: vec![0; 40],
                output_tokens: 1,
                ..TokenPrompt::default()
            };
            prediction.serve(&request, &prompt);
        }
        // Four slots, one of them for the last block: 1, 2 and 3 stay.
        let found = [0, 16, 48, 16].into_iter().enumerate();
        let samples: Vec<_> = found.map(|(number, cached)| sample(number as u64, cached)).collect();
        let agreement = prediction.compare(&samples).expect("counts fit");
        assert_eq!((agreement.equal, agreement.more, agreement.less), (2, 1, 1));
        assert_eq!(agreement.cached_tokens, 16 + 32 + 32);
        let text = agreement.to_markdown();
        assert!(text.contains("request 3: 16 cached, 32 predicted"), "{text}");
        let short = TraceSample { prompt_tokens: 20, ..sample(3, 0) };
        assert!(prediction.compare(&[short]).is_err());
    }

    #[test]
    fn what_cannot_be_predicted_is_refused() {
        for (setting, part) in [
            (setting(0, "lru"), "at least 1"),
            (setting(BLOCKS_MAX + 1, "lru"), "at most"),
            (setting(4, "magic"), "--policy"),
        ] {
            let error = Prediction::new(setting, 16).err().expect(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
