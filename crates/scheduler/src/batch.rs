//! Input of the executor for one step.

use std::sync::Arc;

use headstart_cache::tiers::Claim;
use headstart_core::cost::Work;
use headstart_core::{BlockId, CostModel, SeqId, TokenId};

/// One step's work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Decodes and prefill chunks, at most one entry per sequence.
    pub entries: Vec<Entry>,
    /// Loaded units to copy into blocks, in each part before anything is computed in it.
    pub arrivals: Vec<Arrival>,
}

impl Batch {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.arrivals.is_empty()
    }

    /// Tokens to compute.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }

    /// Adds what its entries consist of to `work`, attention as `cost` reckons it. O(entries).
    pub fn add_work(&self, work: &mut Work, cost: &CostModel) {
        for entry in &self.entries {
            work.tokens += entry.tokens.len();
            work.sampled += usize::from(entry.sampling.is_some());
            cost.add_attention(work, entry.start, entry.tokens.len());
        }
    }
}

/// A unit from a lower tier, and where its blocks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Sequence that the unit is for.
    pub seq: SeqId,
    /// The unit.
    pub claim: Claim,
    /// Position behind its last token.
    pub end: usize,
    /// The block of the unit, counted from 0, and the device's block that it goes to. Blocks of the
    /// unit that the device has already are not among them.
    pub blocks: Vec<(usize, BlockId)>,
}

/// A run of consecutive tokens of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The sequence.
    pub seq: SeqId,
    /// The tokens to compute, at least one.
    pub tokens: Vec<TokenId>,
    /// Position of the first of them: the number of tokens before it.
    pub start: usize,
    /// The sequence's block table, long enough for all tokens up to the last of `tokens`.
    pub blocks: Vec<BlockId>,
    /// Settings to choose the next token; `None` for a prefill chunk that is not the last.
    pub sampling: Option<Sampling>,
    /// Number of tokens before it that were left out in each layer, if its prefix was loaded in
    /// part. The tokens behind these move that number of slots to the front of `blocks`; their
    /// positions stay.
    pub pruned: Option<Arc<[u32]>>,
}

impl Entry {
    /// Tokens before it that were left out in a layer.
    #[must_use]
    pub fn pruned_in(&self, layer: usize) -> usize {
        let pruned = self.pruned.as_ref();
        pruned.map_or(0, |pruned| pruned[layer] as usize)
    }
}

/// Settings to choose a token from logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy; otherwise logits are divided by it.
    pub temperature: f32,
    /// Only the `top_k` likeliest; 0 is no limit.
    pub top_k: usize,
    /// The smallest set of likeliest tokens whose probabilities reach `top_p`; 1 is no limit.
    pub top_p: f32,
    /// With the position, fixes the draw: independent of batching, preemption and restarts.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}
