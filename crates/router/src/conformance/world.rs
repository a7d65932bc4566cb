//! Random operations on an index, and questions about what they left.
//!
//! Prompts are paths in a small binary tree, so that they share and part at every depth. A
//! replica's handles name what they stand for, in up to two ways, as an engine that knows more
//! than the router would. Events come in no sensible order: most blocks meet an unknown parent, a
//! repeat or a removal of nothing at some point.

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};

use crate::{PrefixIndex, Prompt};

/// Replicas in the random runs, with what the configuration says of their block size and what
/// it really is. The third one's is learnt, the fourth one's configuration is wrong.
pub(super) const REPLICAS: [(Option<u32>, u32); 4] =
    [(Some(2), 2), (Some(3), 3), (None, 2), (Some(2), 3)];

/// Prompt lengths go up to this, in tokens.
const MAX_TOKENS: usize = 12;

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Apply(ReplicaId, CacheEvent),
    Assume(ReplicaId, Path, Nanos),
    Forget(ReplicaId),
    Track(ReplicaId, Option<u32>),
}

impl Op {
    pub(super) fn run(&self, index: &mut dyn PrefixIndex) {
        match self {
            Self::Apply(replica, event) => index.apply(*replica, event),
            Self::Assume(replica, path, now) => index.assume(*replica, path.prompt(), *now),
            Self::Forget(replica) => index.forget(*replica),
            Self::Track(replica, block_size) => index.track(*replica, *block_size),
        }
    }
}

/// A prompt of zeros and ones.
#[derive(Clone, Debug)]
pub(super) struct Path {
    namespace: Namespace<'static>,
    pub(super) tokens: Vec<TokenId>,
}

impl Path {
    pub(super) fn prompt(&self) -> Prompt<'_> {
        Prompt {
            tokens: &self.tokens,
            namespace: self.namespace,
        }
    }

    /// A number that names the first `len` tokens, in way `variant`.
    fn handle(&self, len: usize, variant: u64) -> BlockHash {
        let bits = |bits, &token| bits << 1 | u64::from(token);
        let tokens = self.tokens[..len].iter().fold(1, bits);
        let namespace = match (self.namespace.adapter, self.namespace.salt) {
            (None, None) => 0,
            (Some(_), _) => 1,
            (None, Some(_)) => 2,
        };
        BlockHash::from_u64(tokens << 3 | namespace << 1 | variant)
    }
}

/// Draws operations and questions.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: Nanos,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Nanos(0),
        }
    }

    pub(super) fn op(&mut self) -> Op {
        self.now.0 += self.rng.below(200_000_000) as u64;
        let index = self.rng.below(REPLICAS.len());
        let replica = ReplicaId(index as u32);
        let (configured, block_size) = REPLICAS[index];
        match self.rng.below(100) {
            0..55 => Op::Apply(replica, CacheEvent::Stored(self.stored(block_size))),
            55..63 => Op::Apply(replica, self.tier_change(block_size)),
            63..85 => Op::Apply(replica, self.removed(block_size)),
            85..95 => Op::Assume(replica, self.path(), self.now),
            95..96 => Op::Apply(replica, CacheEvent::Stored(self.malformed(block_size))),
            96..97 => Op::Apply(replica, CacheEvent::Stored(self.stored(5 - block_size))),
            97..98 => Op::Apply(replica, CacheEvent::Cleared),
            98..99 => Op::Forget(replica),
            _ => Op::Track(replica, configured),
        }
    }

    /// A prompt; most of them the start of one of two, so that operations meet.
    pub(super) fn path(&mut self) -> Path {
        let is_common = self.rng.below(4) > 0;
        let num_free = if is_common { 1 } else { MAX_TOKENS };
        let len = 1 + self.rng.below(MAX_TOKENS);
        let mut tokens: Vec<TokenId> = (0..len.min(num_free))
            .map(|_| self.rng.below(2) as TokenId)
            .collect();
        tokens.resize(len, 0);
        Path {
            namespace: self.namespace(),
            tokens,
        }
    }

    /// A prompt of full length, to ask about: the longer it is, the more it tells.
    pub(super) fn question(&mut self) -> Path {
        let mut path = self.path();
        path.tokens.resize(MAX_TOKENS, 0);
        path
    }

    fn namespace(&mut self) -> Namespace<'static> {
        let (adapter, salt) = match self.rng.below(8) {
            0 => (Some("name"), None),
            1 => (None, Some("name")),
            _ => (None, None),
        };
        Namespace { adapter, salt }
    }

    fn tier(&mut self) -> Tier {
        [Tier::Device, Tier::Device, Tier::Host, Tier::Remote][self.rng.below(4)]
    }

    /// A run of blocks from the start or from anywhere in a prompt.
    fn stored(&mut self, block_size: u32) -> StoredBlocks {
        let size = block_size as usize;
        let mut path = self.path();
        path.tokens
            .resize(path.tokens.len().next_multiple_of(size), 0);
        let num_blocks = path.tokens.len() / size;
        let first = self.rng.below(num_blocks) * self.rng.below(2);
        let last = first + self.rng.below(num_blocks - first);
        let variant = self.rng.below(4) as u64 / 3;
        let handles = (first..=last).map(|block| path.handle((block + 1) * size, variant));
        let name = |name: Option<&str>| name.filter(|_| first == 0).map(Into::into);
        StoredBlocks {
            blocks: handles.collect(),
            parent: (first > 0).then(|| path.handle(first * size, variant)),
            tokens: path.tokens[first * size..(last + 1) * size].to_vec(),
            block_size,
            tier: self.tier(),
            salt: name(path.namespace.salt),
            adapter: name(path.namespace.adapter),
        }
    }

    fn malformed(&mut self, block_size: u32) -> StoredBlocks {
        let mut stored = self.stored(block_size);
        match self.rng.below(2) {
            0 => stored.block_size = 0,
            _ => stored.tokens.push(0),
        }
        stored
    }

    fn tier_change(&mut self, block_size: u32) -> CacheEvent {
        CacheEvent::Stored(StoredBlocks {
            tokens: Vec::new(),
            ..self.stored(block_size)
        })
    }

    fn removed(&mut self, block_size: u32) -> CacheEvent {
        let mut blocks = self.stored(block_size).blocks;
        blocks.reverse();
        let tier = self.tier();
        CacheEvent::Removed { blocks, tier }
    }
}
