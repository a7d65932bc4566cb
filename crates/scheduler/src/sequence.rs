//! One request while it is in the scheduler.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::Lease;
use headstart_cache::tiers::{Claim, Hold};
use headstart_core::transfer::Unit;
use headstart_core::{
    Access, BlockHash, BlockHasher, FinishKind, Nanos, SeqId, TenantTag, Tier, TokenId,
};

use crate::Sampling;
use crate::announce::DeviceUnit;
use crate::names::BlockNameCache;

/// A request to generate.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its id; unique among those present.
    pub id: SeqId,
    /// The prompt, at least one token.
    pub prompt: Vec<TokenId>,
    /// Most tokens to generate, at least one.
    pub max_tokens: usize,
    /// Tokens that end the answer.
    pub stop_tokens: Arc<[TokenId]>,
    /// Tokens with which calls of tools begin.
    pub tool_tokens: Arc<[TokenId]>,
    /// Settings to choose tokens.
    pub sampling: Sampling,
    /// Tenant salt: prompts under different salts share nothing.
    pub salt: Option<Arc<str>>,
    /// Data for the cache policy; the scheduler sets `now` and `offset`.
    pub access: Access,
    /// Whether its stored prefix must be loaded as a whole, where others' are loaded in part.
    pub is_exact: bool,
}

impl Submission {
    /// A request for the most likely tokens, which nothing but their number ends.
    #[must_use]
    pub fn greedy(id: SeqId, prompt: Vec<TokenId>, max_tokens: usize) -> Self {
        Self {
            id,
            prompt,
            max_tokens,
            stop_tokens: Arc::default(),
            tool_tokens: Arc::default(),
            sampling: Sampling::default(),
            salt: None,
            access: Access::default(),
            is_exact: false,
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model produced a stop token.
    Stop,
    /// The token limit or the context's end was reached.
    Length,
}

/// Event of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It runs for the first time; `cached_tokens` of its prompt tokens need no computing.
    Started {
        /// The sequence.
        seq: SeqId,
        /// Prompt tokens whose keys and values were found.
        cached_tokens: usize,
    },
    /// Some of its prompt tokens came from a lower tier: once a tier, before its first token.
    Loaded {
        /// The sequence.
        seq: SeqId,
        /// Prompt tokens.
        tokens: usize,
        /// The tier.
        from: Tier,
    },
    /// Of its stored prefix only parts were loaded: what is computed behind it is not what a full
    /// computation gives. Told before its first token.
    Partly {
        /// The sequence.
        seq: SeqId,
        /// Stored prompt tokens.
        tokens: usize,
        /// Bytes that were loaded, wherever from.
        loaded_bytes: u64,
        /// Bytes of all of them.
        whole_bytes: u64,
    },
    /// It has a new token.
    Token {
        /// The sequence.
        seq: SeqId,
        /// The token.
        token: TokenId,
        /// Set on the last one; the sequence is gone.
        finish: Option<FinishReason>,
    },
}

impl Output {
    /// Whom it concerns.
    #[must_use]
    pub fn seq(&self) -> SeqId {
        match *self {
            Self::Started { seq, .. }
            | Self::Loaded { seq, .. }
            | Self::Partly { seq, .. }
            | Self::Token { seq, .. } => seq,
        }
    }
}

/// A sequence in the scheduler.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) new: Submission,
    /// Names its blocks: the identity of model, adapter and tenant.
    pub(crate) hasher: Arc<BlockHasher>,
    /// Prompt and what was generated.
    pub(crate) tokens: Vec<TokenId>,
    /// Names of the full blocks of `tokens`.
    pub(crate) hashes: Vec<BlockHash>,
    /// Tokens whose keys and values are in its blocks; 0 while it waits.
    pub(crate) computed: usize,
    pub(crate) lease: Option<Lease>,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    pub(crate) arrival: Nanos,
    /// Number of admissions before its last one.
    pub(crate) place: u64,
    /// The counted step from which on its tokens are not written down.
    pub(crate) decoding_since: Option<u64>,
    /// Load of its prefix from lower tiers.
    pub(crate) fetch: Fetch,
    /// Tokens of its prefix that were left out in each layer, where that was loaded in part:
    /// nothing that it computes is what its names say.
    pub(crate) pruned: Option<Arc<[u32]>>,
    /// Whether it was loaded in part and that came too late.
    pub(crate) is_late: bool,
    /// Tokens of it that the device held when that was decided.
    pub(crate) counted_on: usize,
    /// Loaded tokens that are not reported yet, by tier.
    loaded: BTreeMap<Tier, usize>,
    /// Tokens whose source is reported, or will be; all from its first token on. A preempted
    /// sequence may load them again.
    told: usize,
    pub(crate) started: bool,
}

/// Load of a sequence's prefix from lower tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Not looked up yet.
    Open,
    /// Nothing, or nothing any more.
    Nothing,
    /// These units, in order; what stands before them is computed.
    Units {
        /// The first of them.
        next: usize,
        /// The claims on them, of those neither used nor given up; `None` where one could not be
        /// had.
        claims: VecDeque<Option<Claim>>,
        /// When they are computed instead.
        deadline: Nanos,
    },
    /// Parts of what these units hold, chosen while it is computed; what stands before them is on
    /// the device.
    Partly {
        /// The first of them.
        from: usize,
        /// The one behind the last.
        to: usize,
        /// Keeps them where they are.
        hold: Hold,
        /// Time limit of the load.
        patience: Duration,
        /// End of the wait for it, once the engine has taken it over.
        deadline: Option<Nanos>,
    },
}

impl Sequence {
    pub(crate) fn new(
        mut new: Submission,
        hasher: Arc<BlockHasher>,
        names: &mut BlockNameCache,
        arrival: Nanos,
    ) -> Self {
        let tokens = std::mem::take(&mut new.prompt);
        let hashes = names.of(&hasher, &tokens);
        Self {
            new,
            hasher,
            prompt_tokens: tokens.len(),
            tokens,
            hashes,
            computed: 0,
            lease: None,
            arrival,
            place: 0,
            decoding_since: None,
            fetch: Fetch::Open,
            pruned: None,
            is_late: false,
            counted_on: 0,
            loaded: BTreeMap::new(),
            told: 0,
            started: false,
        }
    }

    pub(crate) fn block_size(&self) -> usize {
        self.hasher.block_size()
    }

    /// Names of the blocks worth looking up. The last token is always computed, because its
    /// logits choose the next.
    pub(crate) fn matchable(&self) -> &[BlockHash] {
        &self.hashes[..(self.tokens.len() - 1) / self.block_size()]
    }

    /// Names of the units worth looking up, each of `unit_blocks` blocks.
    pub(crate) fn units(&self, unit_blocks: usize) -> Vec<BlockHash> {
        let ends = self.matchable().iter().skip(unit_blocks - 1);
        ends.step_by(unit_blocks).copied().collect()
    }

    /// Unit number `number`, of `unit_blocks` blocks.
    pub(crate) fn unit(&self, number: usize, unit_blocks: usize) -> Unit {
        let end = |number: usize| self.hashes[number * unit_blocks - 1];
        Unit {
            name: end(number + 1),
            parent: (number > 0).then(|| end(number)),
            identity: self.hasher.identity(),
            tenant: TenantTag::of(self.new.salt.as_deref()),
        }
    }

    /// The same with its blocks and their tokens.
    pub(crate) fn shown(&self, number: usize, unit_blocks: usize) -> DeviceUnit<'_> {
        let blocks = number * unit_blocks..(number + 1) * unit_blocks;
        let size = self.block_size();
        DeviceUnit {
            unit: self.unit(number, unit_blocks),
            tokens: &self.tokens[blocks.start * size..blocks.end * size],
            blocks: &self.hashes[blocks],
            salt: self.new.salt.as_ref(),
        }
    }

    /// Blocks that hold the first `tokens` tokens.
    pub(crate) fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_size())
    }

    /// Tokens still without keys and values.
    pub(crate) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Marks the first run. Returns whether it was the first.
    pub(crate) fn start(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.started, true);
        if is_first {
            self.told = self.computed;
        }
        is_first
    }

    /// Notes that the tokens up to `end` were loaded, `tokens` of them into blocks of its own.
    pub(crate) fn note_loaded(&mut self, from: Tier, tokens: usize, end: usize) {
        // A preempted sequence loads some tokens again, and blocks shared with others are not
        // copied.
        let new = end.saturating_sub(self.told).min(tokens);
        if new > 0 {
            *self.loaded.entry(from).or_default() += new;
            self.told = end;
        }
    }

    /// Takes the tokens loaded so far, by tier, at its first token; later loads do not count.
    pub(crate) fn take_loaded(&mut self) -> BTreeMap<Tier, usize> {
        self.told = usize::MAX;
        std::mem::take(&mut self.loaded)
    }

    /// Takes a sampled token; says whether it was the last. `context` is the longest sequence.
    pub(crate) fn push(&mut self, token: TokenId, context: usize) -> Option<FinishReason> {
        self.tokens.push(token);
        if self.tokens.len().is_multiple_of(self.block_size()) {
            let block = &self.tokens[self.tokens.len() - self.block_size()..];
            let hash = self.hasher.next(self.hashes.last().copied(), block);
            self.hashes.push(hash);
        }
        // Not below 0: the sequence leaves with the token that makes it 0.
        self.new.max_tokens -= 1;
        // At the limit a stop token still counts as one: the model itself ended the answer.
        if self.new.stop_tokens.contains(&token) {
            Some(FinishReason::Stop)
        } else if self.new.max_tokens == 0 || self.tokens.len() >= context {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    /// The end of an answer that its model ended: whether it calls a tool.
    pub(crate) fn stop_kind(&self) -> FinishKind {
        let answer = &self.tokens[self.prompt_tokens..];
        if answer.iter().any(|token| self.new.tool_tokens.contains(token)) {
            FinishKind::ToolCalls
        } else {
            FinishKind::Stop
        }
    }

    /// Tokens until the last one, if none ends the answer before.
    pub(crate) fn steps_to_end(&self, context: usize) -> usize {
        self.new.max_tokens.min(context - self.tokens.len())
    }

    pub(crate) fn access(&self, now: Nanos) -> Access {
        Access { now, ..self.new.access }
    }

    /// The use that ends with the release of its blocks.
    pub(crate) fn last_access(&self, now: Nanos, finish: FinishKind) -> Access {
        let output = u32::try_from(self.tokens.len() - self.prompt_tokens);
        // A simulated request comes with its recorded end.
        let finish = match self.new.access.finish {
            FinishKind::Unknown => finish,
            recorded => recorded,
        };
        Access {
            started: Some(self.arrival),
            finish,
            output_tokens: output.ok(),
            ..self.access(now)
        }
    }

    pub(crate) fn lease_mut(&mut self) -> &mut Lease {
        self.lease.as_mut().expect("a running sequence holds a lease")
    }
}
