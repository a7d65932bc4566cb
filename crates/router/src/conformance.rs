//! What every [`PrefixIndex`] must obey, as functions that any implementation can call in a test.
//!
//! Random prompts are paths in a small binary tree, so that they share and part at every depth.
//! A replica's handles name what they stand for, in up to two ways, as an engine that knows more
//! than the router would. Events come in no sensible order: most blocks meet an unknown parent, a
//! repeat or a removal of nothing at some point.

use std::collections::BTreeSet;

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};

use crate::{PrefixIndex, Prompt};

/// Replicas in the random runs, with what the configuration says of their block size and what
/// it really is. The third one's is learnt, the fourth one's configuration is wrong.
const REPLICAS: [(Option<u32>, u32); 4] = [(Some(2), 2), (Some(3), 3), (None, 2), (Some(2), 3)];

/// Prompt lengths go up to this, in tokens.
const MAX_TOKENS: usize = 12;

const NUM_SEEDS: u64 = 60;
const NUM_STEPS: usize = 250;

/// Checks the contract of [`PrefixIndex`] on random operations: overlaps are sorted, whole and
/// within the prompt; asking twice gives the same answer; what is cleared or forgotten is gone.
///
/// # Panics
/// When the index breaks the contract; the message holds the seed.
pub fn index(make: impl Fn() -> Box<dyn PrefixIndex>) {
    for seed in 0..NUM_SEEDS {
        let mut world = World::new(seed);
        let mut index = make();
        track_all(index.as_mut());
        for _ in 0..NUM_STEPS {
            world.op().run(index.as_mut());
            world.now.0 += 1;
            check_answers(&mut world, index.as_ref(), seed);
        }
        check_end(&mut world, index.as_mut(), seed);
    }
}

/// Checks that two indexes give the same answers on random operations; `check` is called on the
/// first after each.
///
/// # Panics
/// When they differ; the message holds the seed and the shortest failing sequence of operations.
pub fn same_overlaps<I: PrefixIndex>(
    make: impl Fn() -> I,
    check: impl Fn(&I),
    make_reference: impl Fn() -> Box<dyn PrefixIndex>,
) {
    for seed in 0..NUM_SEEDS {
        let mut world = World::new(seed);
        let (mut index, mut reference) = (make(), make_reference());
        track_all(&mut index);
        track_all(reference.as_mut());
        let mut ops = Vec::new();
        for _ in 0..NUM_STEPS {
            let op = world.op();
            op.run(&mut index);
            op.run(reference.as_mut());
            ops.push(op);
            check(&index);
            if let Err(difference) = world.compare(&index, reference.as_ref()) {
                panic!("seed {seed}: {difference}, after {ops:#?}");
            }
        }
    }
}

fn track_all(index: &mut dyn PrefixIndex) {
    for (replica, (configured, _)) in replicas() {
        index.track(replica, configured);
    }
}

fn check_answers(world: &mut World, index: &dyn PrefixIndex, seed: u64) {
    let path = world.path();
    let overlaps = index.overlaps(path.prompt(), world.now);
    let again = index.overlaps(path.prompt(), world.now);
    assert_eq!(overlaps, again, "asking changed the answer, seed {seed}");
    let is_sorted = overlaps.is_sorted_by(|a, b| a.replica < b.replica);
    assert!(is_sorted, "overlaps are sorted, seed {seed}");
    for overlap in overlaps {
        let (device, any) = (overlap.device_tokens, overlap.any_tier_tokens);
        assert!(device <= any && 0 < any && any <= path.tokens.len(), "seed {seed}: {overlap:?}");
    }
}

fn check_end(world: &mut World, index: &mut dyn PrefixIndex, seed: u64) {
    let (first, others) = (ReplicaId(0), 1..REPLICAS.len() as u32);
    index.apply(first, &CacheEvent::Cleared);
    for other in others {
        index.forget(ReplicaId(other));
    }
    let stats = index.stats();
    let left = (stats.entries, stats.assumed, stats.held);
    assert_eq!(left, (0, 0, 0), "nothing is left, seed {seed}");
    let path = world.path();
    assert_eq!(index.overlaps(path.prompt(), world.now), [], "seed {seed}");
}

fn replicas() -> impl Iterator<Item = (ReplicaId, (Option<u32>, u32))> {
    let ids = (0..).map(ReplicaId);
    ids.zip(REPLICAS)
}

#[derive(Clone, Debug)]
enum Op {
    Apply(ReplicaId, CacheEvent),
    Assume(ReplicaId, Path, Nanos),
    Forget(ReplicaId),
    Track(ReplicaId, Option<u32>),
}

impl Op {
    fn run(&self, index: &mut dyn PrefixIndex) {
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
struct Path {
    namespace: Namespace<'static>,
    tokens: Vec<TokenId>,
}

impl Path {
    fn prompt(&self) -> Prompt<'_> {
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
struct World {
    rng: Rng,
    now: Nanos,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Nanos(0),
        }
    }

    fn op(&mut self) -> Op {
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

    /// A prompt; half of them from only eight, so that operations meet.
    fn path(&mut self) -> Path {
        let is_common = self.rng.below(2) == 0;
        let num_free = if is_common { 3 } else { MAX_TOKENS };
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

    fn namespace(&mut self) -> Namespace<'static> {
        let (adapter, salt) = match self.rng.below(6) {
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
        path.tokens.resize(path.tokens.len().next_multiple_of(size), 0);
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

    /// Asks both a few questions, now and when some assumptions have ended.
    fn compare(&mut self, a: &dyn PrefixIndex, b: &dyn PrefixIndex) -> Result<(), String> {
        let (entries, expected) = (a.stats().entries, b.stats().entries);
        if entries != expected {
            return Err(format!("{entries} entries instead of {expected}"));
        }
        let delays: BTreeSet<u64> = [0, self.rng.below(3_000_000_000) as u64].into();
        for delay in delays {
            let (path, now) = (self.path(), Nanos(self.now.0 + delay));
            let (found, expected) = (a.overlaps(path.prompt(), now), b.overlaps(path.prompt(), now));
            if found != expected {
                return Err(format!("{found:?} instead of {expected:?} for {path:?} at {now:?}"));
            }
        }
        Ok(())
    }
}
