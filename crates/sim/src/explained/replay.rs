//! A trace over replicas with real prefix caches: what became of every prompt token.
//!
//! Requests in file order, each served before the next begins (as in [`crate::replay`]), so
//! nothing is ever in flight and the router is never wrong: what is left is what placement, room
//! and the prompts themselves cost. The attributor is driven as a gateway drives it.

use headstart_cache::{Admit, Effect, Policy, PrefixCache};
use headstart_core::{
    Access, BlockHash, ReplicaId, Rng, RouteKey, SessionId, Tier, TokenId, TraceRequest,
};
use headstart_insight::Waterfall;
use headstart_insight::loss::{
    Arrival, Attributor, AttributorConfig, Memory, Outcome, Served, Tally,
};

use crate::placement::RecentWork;

/// Classes with a waterfall of their own; further ones share a row.
const CLASSES: usize = 256;

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Anywhere.
    Random,
    /// One after the other.
    RoundRobin,
    /// Where its session's hash says; without a session anywhere.
    Session,
    /// Where most of the prompt is held and there is not too much to do, see [`RecentWork`].
    LongestPrefix,
}

/// What a trace is replayed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainedConfig {
    /// Replicas, at least one.
    pub replicas: usize,
    /// Blocks that each holds.
    pub blocks: usize,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Where requests go.
    pub placement: Placement,
    /// Fixes chance.
    pub seed: u64,
    /// How much is remembered.
    pub memory: AttributorConfig,
}

/// A prompt's contents, where a trace has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content<'a> {
    /// Its tokens: without them nobody can tell what diverged or is in another namespace.
    pub tokens: Option<&'a [TokenId]>,
    /// Stands for salt, adapter and model; the blocks' ids must differ where this differs.
    pub namespace: u64,
}

/// A replay in progress.
pub struct Explained {
    config: ExplainedConfig,
    caches: Vec<PrefixCache>,
    work: RecentWork,
    attributor: Attributor,
    rng: Rng,
    served: u32,
    total: Waterfall,
    classes: Tally<(u16, u16)>,
    chain: Vec<BlockHash>,
    keys: Vec<RouteKey>,
    overlaps: Vec<(ReplicaId, u32)>,
}

impl Explained {
    /// Starts with empty caches, whose victims are chosen by what `policy` makes for each.
    #[must_use]
    pub fn new(config: ExplainedConfig, policy: impl Fn(usize) -> Box<dyn Policy>) -> Self {
        let replicas = config.replicas.max(1);
        let cache = |_| PrefixCache::new(config.blocks, policy(config.blocks));
        Self {
            caches: (0..replicas).map(cache).collect(),
            work: RecentWork::new(replicas),
            attributor: Attributor::new(&config.memory),
            rng: Rng::new(config.seed),
            served: 0,
            total: Waterfall::default(),
            classes: Tally::new(CLASSES),
            chain: Vec::new(),
            keys: Vec::new(),
            overlaps: Vec::new(),
            config,
        }
    }

    /// Serves the next request and says what became of its tokens.
    pub fn serve(&mut self, request: &TraceRequest, content: Content<'_>) -> Outcome {
        self.chain.clear();
        self.chain
            .extend(request.blocks.iter().map(BlockHash::from_u64));
        let size = self.config.block_tokens.max(1);
        let prompt = request
            .input_tokens
            .unwrap_or(self.chain.len() as u32 * size);
        // A partial last block is cached here as blocks are, and is none of the prompt's full ones.
        let full = (prompt / size) as usize;
        self.keys.clear();
        self.keys
            .extend(request.blocks.iter().take(full).map(RouteKey));
        self.look();
        let chosen = self.place(request.session);
        let held = self.overlaps[chosen].1 * size;
        for (_, blocks) in &mut self.overlaps {
            *blocks *= size;
        }
        let arrival = Arrival {
            replica: ReplicaId(chosen as u32),
            prompt_tokens: prompt,
            block_size: size,
            keys: &self.keys,
            tokens: content.tokens,
            namespace: content.namespace,
            overlaps: &self.overlaps,
        };
        let pending = self.attributor.arrive(&arrival, request.arrival);
        self.fill(chosen, request);
        // The last token is always computed, and with it the block that it is in.
        let usable = prompt.saturating_sub(1) / size * size;
        let served = Served::by_device(held.min(usable));
        let outcome = self.attributor.finish(pending, &served, request.arrival);
        self.total.add(&outcome.split);
        let class = (request.request_type, request.turn);
        self.classes.add(&class, &outcome.split);
        self.served = self.served.wrapping_add(1);
        outcome
    }

    /// All requests' tokens.
    #[must_use]
    pub fn total(&self) -> &Waterfall {
        &self.total
    }

    /// By (request type, turn).
    #[must_use]
    pub fn classes(&self) -> &Tally<(u16, u16)> {
        &self.classes
    }

    /// How full the memory is.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.attributor.memory()
    }

    /// How many blocks of the chain each replica holds.
    fn look(&mut self) {
        let held = self.caches.iter().enumerate().map(|(replica, cache)| {
            let blocks = cache.overlap(&self.chain) as u32;
            (ReplicaId(replica as u32), blocks)
        });
        self.overlaps.clear();
        self.overlaps.extend(held);
    }

    fn place(&mut self, session: Option<SessionId>) -> usize {
        let replicas = self.caches.len();
        let turn = self.served as usize % replicas;
        match (self.config.placement, session) {
            (Placement::RoundRobin, _) => turn,
            (Placement::Session, Some(SessionId(id))) => {
                (Rng::new(id ^ self.config.seed).next_u64() % replicas as u64) as usize
            }
            (Placement::Random | Placement::Session, _) => self.rng.below(replicas),
            (Placement::LongestPrefix, _) => {
                let held = |replica: usize| u64::from(self.overlaps[replica].1);
                self.work.longest(self.chain.len(), held)
            }
        }
    }

    /// Serves the chain from one replica's cache, and tells the attributor what changed there.
    fn fill(&mut self, chosen: usize, request: &TraceRequest) {
        let cache = &mut self.caches[chosen];
        let access = Access {
            now: request.arrival,
            request_type: request.request_type,
            turn: request.turn,
            offset: 0,
            session: request.session,
            request: self.served,
            p_continue: request.p_continue,
            importance: None,
        };
        let mut lease = cache.acquire(&self.chain);
        let hits = lease.matched();
        self.work.served(chosen, (self.chain.len() - hits) as u64);
        for (offset, &hash) in self.chain.iter().enumerate().skip(hits) {
            let access = Access {
                offset: offset as u32,
                ..access
            };
            if cache.admit(&mut lease, hash, &access) == Admit::Declined {
                break;
            }
        }
        cache.release(lease, &access);
        let replica = ReplicaId(chosen as u32);
        for effect in cache.drain_effects() {
            let (attributor, now) = (&mut self.attributor, request.arrival);
            match effect {
                Effect::Stored { hash, .. } => {
                    attributor.stored(replica, key_of(hash), Tier::Device, now);
                }
                Effect::Evicted { hash, .. } => {
                    attributor.removed(replica, key_of(hash), Tier::Device);
                }
            }
        }
    }
}

/// A trace's number of a block as its key.
fn key_of(hash: BlockHash) -> RouteKey {
    RouteKey(u128::from_be_bytes(hash.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_cache::policy::Lru;
    use headstart_core::Nanos;
    use headstart_insight::Bucket;

    fn replay(replicas: usize, blocks: usize, placement: Placement) -> Explained {
        let config = ExplainedConfig {
            replicas,
            blocks,
            block_tokens: 16,
            placement,
            seed: 1,
            memory: AttributorConfig::default(),
        };
        Explained::new(config, |blocks| Box::new(Lru::new(blocks)))
    }

    fn request(at: u64, blocks: std::ops::Range<u64>, input_tokens: u32) -> TraceRequest {
        TraceRequest {
            arrival: Nanos(at),
            blocks: blocks.collect(),
            input_tokens: Some(input_tokens),
            ..TraceRequest::default()
        }
    }

    #[test]
    fn what_is_evicted_or_elsewhere_is_said() {
        let mut one = replay(1, 5, Placement::Random);
        for (at, from, expected) in [
            (0, 10, Bucket::NeverSeen),
            (1, 10, Bucket::Device),
            (2, 20, Bucket::NeverSeen),
            (3, 10, Bucket::Evicted),
        ] {
            let outcome = one.serve(&request(at, from..from + 5, 70), Content::default());
            let parts: Vec<_> = outcome.split.iter().collect();
            assert!(parts.contains(&(expected, 64)), "{at}: {parts:?}");
            assert!(parts.contains(&(Bucket::BlockFloor, 6)), "{at}: {parts:?}");
        }
        let mut turns = replay(2, 100, Placement::RoundRobin);
        let mut precise = replay(2, 100, Placement::LongestPrefix);
        for at in 0..2 {
            turns.serve(&request(at, 0..5, 70), Content::default());
            precise.serve(&request(at, 0..5, 70), Content::default());
        }
        assert_eq!(turns.total().get(Bucket::HeldElsewhere), 64);
        assert_eq!(precise.total().get(Bucket::Device), 64);
        assert_eq!(precise.classes().rows().count(), 1);
    }

    /// Against the plain replay: one replica serves what it hits there.
    #[test]
    fn one_replica_serves_what_the_plain_replay_hits() {
        let mut rng = Rng::new(5);
        let mut explained = replay(1, 50, Placement::Random);
        let mut plain = crate::Replay::new(50, Box::new(Lru::new(50)));
        let mut hits = 0;
        for at in 0..2_000 {
            let family = 100 * rng.below(8) as u64;
            let len = 1 + rng.below(20) as u64;
            let one = request(at, family..family + len, len as u32 * 16 + 1);
            hits += plain.serve(&one) as u64;
            explained.serve(&one, Content::default());
        }
        assert_eq!(explained.total().get(Bucket::Device), 16 * hits);
        assert_eq!(explained.total().get(Bucket::HeldElsewhere), 0);
        assert!(explained.total().get(Bucket::Evicted) > 0);
    }
}
