//! One request: what is asked at its placing, and what is answered at its end.

use headstart_core::{ReplicaId, RouteKey, TokenId};

use super::content::Fresh;
use super::layout::BucketRun;
use super::table::BlockEntry;
use crate::{Bucket, BucketTokens};

/// One request at the time of its routing decision.
#[derive(Clone, Copy, Debug)]
pub struct ArrivingRequest<'a> {
    /// The chosen replica.
    pub replica: ReplicaId,
    /// Length of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of a block; taken for 1 when 0.
    pub block_size: u32,
    /// The keys of its full blocks, in its namespace.
    pub keys: &'a [RouteKey],
    /// Its tokens, needed for [`Bucket::Namespace`] and [`Bucket::Diverged`].
    pub tokens: Option<&'a [TokenId]>,
    /// Stands for salt, adapter and model.
    pub namespace: u64,
    /// Leading tokens that each replica holds in any tier, as the index says.
    pub overlaps: &'a [(ReplicaId, u32)],
}

/// Tokens of a prompt that the engine served, or failed to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedTokens {
    /// Tokens that were not computed, per tier, the device first.
    pub tiers: [u32; 4],
    /// Tokens behind them that were stored in a lower tier, and whose load failed or was judged
    /// too slow, where that is known.
    pub load_failed: u32,
}

impl ServedTokens {
    /// All from the device, or from wherever: an engine that does not say.
    #[must_use]
    pub fn by_device(tokens: u32) -> Self {
        Self { tiers: [tokens, 0, 0, 0], load_failed: 0 }
    }

    /// Tokens that were not computed.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tiers.iter().copied().map(u64::from).sum()
    }
}

/// A request whose answer has not told yet what was served.
#[derive(Clone, Debug)]
pub struct Pending {
    pub(super) replica: ReplicaId,
    pub(super) prompt_tokens: u32,
    pub(super) predicted_tokens: u32,
    /// Names of its blocks here.
    pub(super) names: Vec<u64>,
    /// The first block that it was expected to compute.
    pub(super) computes_from: usize,
    /// The first block that is noted when it is computed: those before it are noted already.
    pub(super) fresh_from: usize,
    pub(super) is_computing: bool,
    /// Whether its contents were looked at.
    pub(super) is_read: bool,
    pub(super) runs: Vec<BucketRun>,
    pub(super) evicted: Option<FirstEviction>,
    pub(super) uncounted: UncountedBlocks,
    pub(super) new: New,
    /// Share of what was entered lately that the memory has forgotten.
    pub(super) forgotten: f32,
}

/// Contents of a prompt to remember once it is computed.
#[derive(Clone, Debug, Default)]
pub(super) struct New {
    /// Names of its front up to some blocks, whatever their namespace, and that namespace.
    pub(super) fronts: Vec<u64>,
    pub(super) namespace: u32,
    pub(super) texts: Fresh,
}

/// Counts who computes a block. More than 255 are not told apart: those that came when the count
/// was full do not lower it. Blocks in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct UncountedBlocks(Vec<usize>);

impl UncountedBlocks {
    pub(super) fn start(&mut self, block: usize, entry: &mut BlockEntry) {
        match entry.computing.checked_add(1) {
            Some(count) => entry.computing = count,
            // The list stays sorted, because one pass over the blocks in order fills it.
            None => self.0.push(block),
        }
    }

    pub(super) fn end(&self, block: usize, entry: &mut BlockEntry) {
        if self.0.binary_search(&block).is_err() {
            // The table may have evicted the entry since, and entered it again without this
            // request.
            entry.computing = entry.computing.saturating_sub(1);
        }
    }
}

impl Pending {
    /// Length of the prompt.
    #[must_use]
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt_tokens
    }

    /// Leading tokens that the index expected the chosen replica to hold.
    #[must_use]
    pub fn predicted_tokens(&self) -> u32 {
        self.predicted_tokens
    }

    /// Returns the buckets of the tokens if not served: runs in order, each with its end.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Bucket)> + '_ {
        self.runs.iter().map(|run| (run.end, run.bucket))
    }

    /// Takes the names of its blocks: equal name, equal block and prefix. The attributor does not
    /// need them once the request is computed.
    ///
    /// # Panics
    /// When it is not computed yet.
    #[must_use]
    pub fn take_names(&mut self) -> Vec<u64> {
        assert!(!self.is_computing, "its names are needed until it is computed");
        std::mem::take(&mut self.names)
    }

    /// The chosen replica.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// Age of the first evicted block of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstEviction {
    /// Time since its last use.
    pub age: std::time::Duration,
    /// Blocks that its replica stored since: a cache that is larger by less than that would not
    /// have kept it under LRU.
    pub blocks_since: u32,
}

/// Attribution of a finished request's tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Tokens by bucket; they sum to the prompt's.
    pub split: BucketTokens,
    /// Certainty of the buckets from [`Bucket::Reset`] on, 0 to 1: 1 − a · b. Here a is the
    /// share of tokens in `Namespace`, `Diverged` and `NeverSeen`, and b the share of the last
    /// hour's entries that the memory has forgotten.
    pub certainty: f32,
    /// Of what was evicted, where something was.
    pub evicted: Option<FirstEviction>,
}

/// Capacity of a memory, with the blocks and tokens entered and forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Blocks that fit.
    pub capacity_blocks: usize,
    /// Blocks entered since the start.
    pub blocks: u64,
    /// Of them, those that had to go for others.
    pub forgotten_blocks: u64,
    /// Tokens of contents entered.
    pub tokens: u64,
    /// Of them, those that had to go.
    pub forgotten_tokens: u64,
}
