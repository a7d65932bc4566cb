//! Random operations on an index, and questions about what they left.
//!
//! Prompts are paths in a small binary tree, so that they share and part at every depth. A
//! replica's handles name what they stand for and who says so, as engines do whose hashes start
//! from a random seed. Events come in no sensible order: most blocks meet an unknown parent, a
//! repeat or a removal of nothing at some point.

use std::sync::Arc;

use headstart_core::block::{Namespace, lookahead_extra};
use headstart_core::event::{Attention, CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};
use headstart_router::index::Update;
use headstart_router::{PrefixIndex, Prompt};

/// One replica: what the configuration says of its block size, what it really is, its groups, and
/// how many tokens behind a block its names cover.
type ReplicaKind = (Option<u32>, u32, &'static [Attention], u32);

const ONE_GROUP: &[Attention] = &[Attention::Full];

/// Plain replicas. The third one's size is learnt, the fourth one's configuration is wrong.
const PLAIN: &[ReplicaKind] = &[
    (Some(2), 2, ONE_GROUP, 0),
    (Some(3), 3, ONE_GROUP, 0),
    (None, 2, ONE_GROUP, 0),
    (Some(2), 3, ONE_GROUP, 0),
];

/// Plain replicas of one block size, whose names cover more or less.
const AHEAD: &[ReplicaKind] = &[
    (Some(2), 2, ONE_GROUP, 1),
    (None, 2, ONE_GROUP, 1),
    (Some(2), 2, ONE_GROUP, 0),
    (Some(2), 2, &[Attention::Full, Attention::Window { tokens: 4 }], 2),
];

/// Models whose layers keep different amounts of the past, beside a plain one.
const HYBRID: &[ReplicaKind] = &[
    (Some(2), 2, &[Attention::Full, Attention::Window { tokens: 4 }], 0),
    (Some(2), 2, &[Attention::State, Attention::Full], 0),
    (None, 1, &[Attention::Window { tokens: 3 }], 0),
    (Some(1), 1, ONE_GROUP, 0),
];

/// Prompt lengths go up to this, in tokens.
const MAX_TOKENS: usize = 12;

/// The replicas of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestFleet(&'static [ReplicaKind]);

impl TestFleet {
    pub(super) fn of(seed: u64) -> Self {
        Self(match seed % 4 {
            2 => HYBRID,
            3 => AHEAD,
            _ => PLAIN,
        })
    }

    /// With the configured block sizes.
    pub(super) fn replicas(self) -> impl Iterator<Item = (ReplicaId, Option<u32>)> {
        let configured = self.0.iter().map(|&(configured, ..)| configured);
        (0..).map(ReplicaId).zip(configured)
    }
}

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Apply(ReplicaId, Vec<CacheEvent>, Nanos),
    Doubt(ReplicaId, Nanos),
    Trust(ReplicaId, Nanos),
    Assume(ReplicaId, Path, Nanos),
    Forget(ReplicaId, Nanos),
    Track(ReplicaId, Option<u32>, Nanos),
}

impl Op {
    pub(super) fn run(&self, index: &dyn PrefixIndex) {
        match self {
            Self::Apply(replica, events, now) => {
                index.update(*replica, Update::Events(events), *now);
            }
            Self::Doubt(replica, now) => index.update(*replica, Update::Doubt, *now),
            Self::Trust(replica, now) => index.update(*replica, Update::Trust, *now),
            Self::Assume(replica, path, now) => {
                let keys = index.hash(path.prompt());
                index.update(*replica, Update::Assume(&keys), *now);
            }
            Self::Forget(replica, now) => index.update(*replica, Update::Forget, *now),
            &Self::Track(replica, block_size, now) => {
                index.update(replica, Update::Track { block_size }, now);
            }
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
        Prompt { tokens: &self.tokens, namespace: self.namespace, ..Prompt::default() }
    }
}

/// Draws operations and questions.
pub(super) struct OperationGenerator {
    pub(super) rng: Rng,
    pub(super) now: Nanos,
    pub(super) fleet: TestFleet,
}

impl OperationGenerator {
    pub(super) fn new(seed: u64, fleet: TestFleet) -> Self {
        Self { rng: Rng::new(seed), now: Nanos(0), fleet }
    }

    pub(super) fn op(&mut self) -> Op {
        self.now.0 += self.rng.below(200_000_000) as u64;
        // Long pauses, in which assumptions and some doubts end.
        if self.rng.below(60) == 0 {
            self.now.0 += self.rng.below(200_000_000_000) as u64;
        }
        let index = self.rng.below(self.fleet.0.len());
        let replica = ReplicaId(index as u32);
        match self.rng.below(100) {
            0..84 => {
                let events = (0..=self.rng.below(3)).map(|_| self.event(replica));
                let events = events.collect();
                Op::Apply(replica, events, self.now)
            }
            84..92 => Op::Assume(replica, self.path(), self.now),
            92..95 => Op::Doubt(replica, self.now),
            95..97 => Op::Trust(replica, self.now),
            97..98 => Op::Apply(replica, vec![CacheEvent::Cleared], self.now),
            98..99 => Op::Forget(replica, self.now),
            _ => Op::Track(replica, self.fleet.0[index].0, self.now),
        }
    }

    fn event(&mut self, replica: ReplicaId) -> CacheEvent {
        let block_size = self.fleet.0[replica.0 as usize].1;
        match self.rng.below(100) {
            0..60 => CacheEvent::Stored(self.stored(replica, block_size)),
            60..70 => self.without_tokens(replica, block_size),
            70..97 => self.removed(replica, block_size),
            97..98 => CacheEvent::Stored(self.malformed(replica, block_size)),
            _ => CacheEvent::Stored(self.stored(replica, 5 - block_size)),
        }
    }

    /// A prompt; most of them the start of one of two, so that operations meet.
    pub(super) fn path(&mut self) -> Path {
        let is_common = self.rng.below(4) > 0;
        let num_free = if is_common { 1 } else { MAX_TOKENS };
        let len = 1 + self.rng.below(MAX_TOKENS);
        let mut tokens: Vec<TokenId> =
            (0..len.min(num_free)).map(|_| self.rng.below(2) as TokenId).collect();
        tokens.resize(len, 0);
        Path { namespace: self.namespace(), tokens }
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
        [Tier::Device, Tier::Device, Tier::Host, Tier::Disk, Tier::Remote][self.rng.below(5)]
    }

    fn group(&mut self, replica: ReplicaId) -> CacheGroup {
        let (_, _, groups, lookahead) = self.fleet.0[replica.0 as usize];
        let index = self.rng.below(groups.len());
        CacheGroup { index: index as u8, attention: groups[index], lookahead }
    }

    /// A run of blocks from the start or from anywhere in a prompt.
    fn stored(&mut self, replica: ReplicaId, block_size: u32) -> StoredBlocks {
        let size = block_size as usize;
        let mut path = self.path();
        path.tokens.resize(path.tokens.len().next_multiple_of(size), 0);
        let num_blocks = path.tokens.len() / size;
        let lookahead = self.fleet.0[replica.0 as usize].3 as usize;
        let behind = (0..lookahead).map(|_| self.rng.below(2) as TokenId);
        path.tokens.extend(behind);
        let first = self.rng.below(num_blocks) * self.rng.below(2);
        let last = first + self.rng.below(num_blocks - first);
        // In one of eight conversations there is an image in the first block.
        let has_image = self.rng.below(8) == 0;
        let name = |len: usize| handle(replica, block_size, &path, len + lookahead, has_image);
        let extra = |block: usize| {
            let image = &b"image"[..if has_image && block == 0 { 5 } else { 0 }];
            let end = (block + 1) * size;
            let extra = match lookahead {
                0 => image.to_vec(),
                _ => lookahead_extra(image, &path.tokens[end..end + lookahead]),
            };
            (!extra.is_empty()).then(|| Arc::from(extra))
        };
        let namespace = |name: Option<&str>| name.filter(|_| first == 0).map(Into::into);
        StoredBlocks {
            blocks: (first..=last).map(|block| name((block + 1) * size)).collect(),
            parent: (first > 0).then(|| name(first * size)),
            tokens: path.tokens[first * size..(last + 1) * size].to_vec(),
            block_size,
            extras: if has_image || lookahead > 0 {
                (first..=last).map(extra).collect()
            } else {
                Vec::new()
            },
            group: self.group(replica),
            tier: self.tier(),
            salt: namespace(path.namespace.salt),
            adapter: namespace(path.namespace.adapter),
        }
    }

    fn malformed(&mut self, replica: ReplicaId, block_size: u32) -> StoredBlocks {
        let mut stored = self.stored(replica, block_size);
        match self.rng.below(2) {
            0 => stored.block_size = 0,
            _ => stored.tokens.push(0),
        }
        stored
    }

    fn without_tokens(&mut self, replica: ReplicaId, block_size: u32) -> CacheEvent {
        CacheEvent::Stored(StoredBlocks {
            tokens: Vec::new(),
            extras: Vec::new(),
            ..self.stored(replica, block_size)
        })
    }

    fn removed(&mut self, replica: ReplicaId, block_size: u32) -> CacheEvent {
        let mut blocks = self.stored(replica, block_size).blocks;
        blocks.reverse();
        CacheEvent::Removed { blocks, tier: self.tier(), group: self.group(replica).index }
    }
}

/// The replica's name for the first `len` tokens.
fn handle(
    replica: ReplicaId,
    block_size: u32,
    path: &Path,
    len: usize,
    has_image: bool,
) -> BlockHash {
    let bits = |bits, &token| bits << 1 | u64::from(token);
    let tokens = path.tokens[..len].iter().fold(1, bits);
    let namespace = match (path.namespace.adapter, path.namespace.salt) {
        (None, None) => 0,
        (Some(_), _) => 1,
        (None, Some(_)) => 2,
    };
    let content = tokens << 3 | namespace << 1 | u64::from(has_image);
    BlockHash::from_u64(content << 16 | u64::from(replica.0) << 8 | u64::from(block_size))
}
