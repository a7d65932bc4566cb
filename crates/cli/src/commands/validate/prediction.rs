//! Predicted hits of one engine's cache, by the tokens of the requests.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use headstart_cache::policy::{self, Setting};
use headstart_core::{BlockHash, BlockHasher, BlockIdentity, BlockRuns, Run, TraceRequest};
use headstart_loadgen::ValidatedRequest;
use headstart_sim::Replay;
use headstart_sim::vllm_pool::{PoolRequest, VllmPool};

use crate::exit::usage;

/// Ids of blocks of answers count up from here; ids of prompts stay below.
const ANSWERS: u64 = 1 << 63;

/// Largest cache that is predicted, blocks: at a hundred bytes each, more memory than the
/// prediction is worth.
const BLOCKS_MAX: usize = 1 << 24;

/// Largest block, tokens: more than any engine's.
const BLOCK_SIZE_MAX: u32 = 1 << 16;

/// The cache whose hits are predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheModel {
    pub(super) block_size: u32,
    /// Blocks; `None` predicts a cache without a limit.
    pub(super) blocks: Option<usize>,
    /// The policy; `None` is vLLM's pool.
    pub(super) policy: Option<String>,
}

/// One request to predict.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPrompt<'a> {
    pub(super) tokens: &'a [u32],
    pub(super) output_tokens: u32,
    pub(super) salt: Option<&'a str>,
    /// Its session, turn and times, where the trace has them.
    pub(super) request: &'a TraceRequest,
}

/// Caches that serve the same requests as the engine.
pub(super) struct HitPrediction {
    model: CacheModel,
    limited: LimitedCache,
    /// Blocks of prompts that were computed at some time.
    computed: HashSet<u64>,
    names: HashMap<BlockHash, u64>,
    hashers: HashMap<Option<String>, BlockHasher>,
    next_answer: u64,
    /// Blocks that came in since the start, those of answers and partial ones included.
    num_filled: usize,
}

enum LimitedCache {
    Unlimited,
    Vllm(Box<VllmPool>),
    Policy(Box<Replay>),
}

impl HitPrediction {
    /// For an empty cache.
    ///
    /// # Errors
    /// A usage error for a cache that cannot be, or a policy without that name.
    pub(super) fn new(model: CacheModel) -> Result<Self> {
        if model.block_size == 0 || model.blocks == Some(0) {
            return Err(usage("--cache-blocks and --block-size must be at least 1"));
        }
        if model.block_size > BLOCK_SIZE_MAX {
            return Err(usage(format!("--block-size: at most {BLOCK_SIZE_MAX}")));
        }
        if model.blocks.is_some_and(|blocks| blocks > BLOCKS_MAX) {
            return Err(usage(format!("--cache-blocks: at most {BLOCKS_MAX} can be predicted")));
        }
        let limited = match (model.blocks, &model.policy) {
            (None, _) => LimitedCache::Unlimited,
            (Some(blocks), None) => LimitedCache::Vllm(Box::new(VllmPool::new(blocks))),
            (Some(blocks), Some(name)) => {
                // The slot of the block that is not full.
                let capacity = blocks - 1;
                let setting = Setting { capacity, block_tokens: model.block_size };
                let policy = policy::by_name(name, setting)
                    .map_err(|error| usage(format!("--policy: {error}")))?;
                LimitedCache::Policy(Box::new(Replay::new(capacity, policy)))
            }
        };
        Ok(Self {
            model,
            limited,
            computed: HashSet::new(),
            names: HashMap::new(),
            hashers: HashMap::new(),
            next_answer: ANSWERS,
            num_filled: 0,
        })
    }

    /// The cache that is predicted.
    pub(super) fn model(&self) -> &CacheModel {
        &self.model
    }

    /// Serves the next request. Returns it with its predicted hits, the reported ones left at 0;
    /// `None` where the cache is too small for it.
    pub(super) fn serve(&mut self, prompt: &SentPrompt<'_>) -> Option<ValidatedRequest> {
        let block_size = self.model.block_size as usize;
        let chain = self.chain(prompt);
        let matchable = (prompt.tokens.len() - 1) / block_size;
        // The answer's last token is sampled, but no step computes its keys and values.
        let computed = prompt.tokens.len() + prompt.output_tokens as usize - 1;
        let mut full = chain.clone();
        let num_full = computed / block_size;
        if let Ok(count) = u32::try_from(num_full - chain.len()) {
            full.push_run(Run { start: self.next_answer, count });
            self.next_answer += u64::from(count);
        }
        let unlimited = chain.iter().take(matchable).take_while(|id| self.computed.contains(id));
        let unlimited = unlimited.count();
        let limited = match &mut self.limited {
            LimitedCache::Unlimited => unlimited,
            LimitedCache::Vllm(pool) => {
                let has_partial = !computed.is_multiple_of(block_size);
                pool.serve(PoolRequest { full: &full, matchable, has_partial })?
            }
            LimitedCache::Policy(replay) => {
                let blocks = full.clone();
                let hits = replay.serve(&TraceRequest { blocks, ..prompt.request.clone() });
                hits.min(matchable)
            }
        };
        self.computed.extend(chain.iter());
        self.num_filled += num_full + 1 - limited;
        let tokens = |blocks: usize| (blocks * block_size) as u32;
        Some(ValidatedRequest {
            name: String::new(),
            sent_tokens: prompt.tokens.len() as u32,
            prompt_tokens: prompt.tokens.len() as u32,
            reported: 0,
            predicted: tokens(limited),
            unlimited: tokens(unlimited),
            had_evicted: self.model.blocks.is_some_and(|blocks| self.num_filled >= blocks),
        })
    }

    /// The names of the full blocks of a prompt.
    fn chain(&mut self, prompt: &SentPrompt<'_>) -> BlockRuns {
        let salt = prompt.salt.map(str::to_owned);
        let hasher = self.hashers.entry(salt).or_insert_with(|| {
            BlockHasher::new(&BlockIdentity {
                model: "",
                weights_revision: "",
                kv_dtype: "",
                kv_layout: "",
                adapter: None,
                salt: prompt.salt,
                block_size: self.model.block_size,
            })
        });
        let hashes = hasher.chain(prompt.tokens);
        let names = hashes.into_iter().map(|hash| {
            let next = self.names.len() as u64;
            *self.names.entry(hash).or_insert(next)
        });
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(blocks: Option<usize>, policy: Option<&str>) -> CacheModel {
        CacheModel { block_size: 4, blocks, policy: policy.map(str::to_owned) }
    }

    fn hits(prediction: &mut HitPrediction, tokens: &[u32], salt: Option<&str>) -> (u32, u32) {
        let request = TraceRequest::default();
        let sent = SentPrompt { tokens, output_tokens: 1, salt, request: &request };
        let row = prediction.serve(&sent).expect("it fits");
        (row.predicted, row.unlimited)
    }

    #[test]
    fn salts_keep_prompts_apart_and_the_last_token_is_computed() {
        for policy in [None, Some("lru")] {
            let mut prediction = HitPrediction::new(model(Some(64), policy)).expect("valid");
            let tokens: Vec<u32> = (0..8).collect();
            assert_eq!(hits(&mut prediction, &tokens, None), (0, 0));
            assert_eq!(hits(&mut prediction, &tokens, None), (4, 4), "{policy:?}");
            assert_eq!(hits(&mut prediction, &tokens, Some("a")), (0, 0));
            let longer: Vec<u32> = (0..9).collect();
            assert_eq!(hits(&mut prediction, &longer, None), (8, 8));
        }
    }

    #[test]
    fn a_small_cache_finds_less_than_one_without_a_limit() {
        let mut prediction = HitPrediction::new(model(Some(4), None)).expect("valid");
        let one: Vec<u32> = (0..9).collect();
        let other: Vec<u32> = (100..109).collect();
        hits(&mut prediction, &one, None);
        hits(&mut prediction, &other, None);
        assert_eq!(hits(&mut prediction, &one, None), (0, 8));
        let mut unlimited = HitPrediction::new(model(None, None)).expect("valid");
        hits(&mut unlimited, &one, None);
        assert_eq!(hits(&mut unlimited, &one, None), (8, 8));
    }

    #[test]
    fn impossible_caches_are_usage_errors() {
        for wrong in [
            CacheModel { block_size: 0, ..model(None, None) },
            CacheModel { block_size: BLOCK_SIZE_MAX + 1, ..model(None, None) },
            model(Some(0), None),
            model(Some(BLOCKS_MAX + 1), None),
            model(Some(8), Some("best")),
        ] {
            assert!(HitPrediction::new(wrong).is_err());
        }
    }
}
