//! One fleet that is played: the real router under one strategy, over real caches without engines.

use std::collections::HashMap;
use std::sync::Arc;

use headstart_cache::policy::Lru;
use headstart_cache::{Commit, Effect, Grow, Lease, PrefixCache};
use headstart_core::block::Namespace;
use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::stats::HitCount;
use headstart_core::{Access, BlockHash, CacheEvent, Nanos, ReplicaId, Tier, TokenId};
use headstart_router::{Profile, ReservationId, RouteRequest, Router, RouterConfig};

use super::{ArmReport, ShadowConfig, ShadowHits};

/// Fixes what strategies draw.
const SEED: u64 = 1;

/// A prompt that goes by.
#[derive(Clone, Debug)]
pub(super) struct ShadowPrompt {
    pub(super) id: u64,
    pub(super) tokens: Arc<[TokenId]>,
    /// The names of its full blocks, chained.
    pub(super) chain: Arc<[BlockHash]>,
    pub(super) salt: Option<Arc<str>>,
    pub(super) session: Option<Arc<str>>,
}

impl ShadowPrompt {
    pub(super) fn namespace(&self) -> Namespace<'_> {
        Namespace { adapter: None, salt: self.salt.as_deref() }
    }
}

/// One fleet.
pub(super) struct ShadowArm {
    strategy: String,
    blocks: usize,
    block_size: usize,
    router: Router,
    caches: Vec<PrefixCache>,
    running: HashMap<u64, PlacedPrompt>,
    found: HitCount,
}

/// A prompt that has its place.
struct PlacedPrompt {
    prompt: ShadowPrompt,
    replica: ReplicaId,
    reservation: ReservationId,
    lease: Lease,
    /// Prompt tokens, and those of them that were found.
    found: (usize, usize),
    is_computed: bool,
}

impl ShadowArm {
    pub(super) fn new(profile: Profile, config: &ShadowConfig) -> Self {
        let strategy = profile.name.clone();
        let index = profile.index.make_alone("shadow");
        let router = RouterConfig { model: "shadow".to_owned(), profile, seed: SEED };
        let mut router = Router::with_index(router, index);
        let replicas = 0..config.replicas as u32;
        for replica in replicas.map(ReplicaId) {
            router.add_replica(replica, Some(config.block_size as u32), Nanos(0));
        }
        let cache = |_| PrefixCache::new(config.blocks, Box::new(Lru::new(config.blocks)));
        Self {
            strategy,
            blocks: config.blocks,
            block_size: config.block_size,
            router,
            caches: (0..config.replicas).map(cache).collect(),
            running: HashMap::new(),
            found: HitCount::default(),
        }
    }

    /// A prompt comes: it is placed, what is cached is found, and room is made for the rest.
    pub(super) fn arrive(&mut self, prompt: &ShadowPrompt, now: Nanos) {
        let placed = self.router.route(&RouteRequest {
            tokens: Some(&prompt.tokens),
            namespace: prompt.namespace(),
            session: prompt.session.as_deref(),
            now,
            ..RouteRequest::default()
        });
        let Ok(decision) = placed else {
            return;
        };
        let cache = &mut self.caches[decision.replica.0 as usize];
        let mut lease = cache.acquire(&prompt.chain);
        let len = prompt.tokens.len();
        // Engines compute a prompt's last token even where all of it is cached.
        let usable = len.saturating_sub(1) / self.block_size * self.block_size;
        let found = (lease.matched() * self.block_size).min(usable);
        let missing = prompt.chain.len() - lease.matched();
        if let Grow::Short { available } = cache.grow(&mut lease, missing, now) {
            // What does not fit beside those that run is not cached.
            let _ = cache.grow(&mut lease, available, now);
        }
        let running = PlacedPrompt {
            prompt: prompt.clone(),
            replica: decision.replica,
            reservation: decision.reservation,
            lease,
            found: (len, found),
            is_computed: false,
        };
        self.running.insert(prompt.id, running);
        self.tell_evictions(decision.replica, now);
    }

    /// The prompt is computed: its blocks can be found.
    pub(super) fn begin(&mut self, id: u64, now: Nanos) {
        let Some(running) = self.running.get_mut(&id).filter(|running| !running.is_computed) else {
            return;
        };
        running.is_computed = true;
        // Counted only now: a request that is refused in the end has no hits.
        let (len, found) = running.found;
        self.found.record(len, found);
        self.router.first_token(running.reservation, now);
        let cache = &mut self.caches[running.replica.0 as usize];
        let first = running.lease.committed();
        let access = Access::at(now);
        let stored: Vec<bool> = (first..running.lease.blocks().len())
            .map(|at| {
                let offset = at as u32;
                let access = Access { offset, ..access };
                let hash = running.prompt.chain[at];
                cache.commit(&mut running.lease, hash, &access) == Commit::Stored
            })
            .collect();
        let events = stored_events(&running.prompt, first, &stored, self.block_size);
        self.router.apply(running.replica, &events, now);
        let replica = running.replica;
        self.tell_evictions(replica, now);
    }

    /// The request is over.
    pub(super) fn end(&mut self, id: u64, now: Nanos) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        self.router.finish(running.reservation, now);
        let cache = &mut self.caches[running.replica.0 as usize];
        if running.is_computed {
            cache.release(running.lease, &Access::at(now));
        } else {
            cache.give_back(running.lease);
        }
    }

    /// Returns the simulated hits so far.
    pub(super) fn report(&self) -> ArmReport {
        ArmReport {
            strategy: self.strategy.clone(),
            blocks: self.blocks,
            found: ShadowHits::of(self.found),
        }
    }

    fn tell_evictions(&mut self, replica: ReplicaId, now: Nanos) {
        let effects = self.caches[replica.0 as usize].drain_effects();
        let evicted = effects.filter_map(|effect| match effect {
            Effect::Evicted { hash, .. } => Some(hash),
            Effect::Stored { .. } => None,
        });
        let blocks: Vec<BlockHash> = evicted.collect();
        if !blocks.is_empty() {
            let removed = CacheEvent::Removed { blocks, tier: Tier::Device, group: 0 };
            self.router.apply(replica, &[removed], now);
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.router.check();
        self.caches.iter().for_each(PrefixCache::check);
    }
}

/// A `Stored` for each unbroken run of blocks that were stored, of those from the `first` on.
fn stored_events(
    prompt: &ShadowPrompt,
    first: usize,
    stored: &[bool],
    block_size: usize,
) -> Vec<CacheEvent> {
    let mut events = Vec::new();
    let mut at = 0;
    for run in stored.chunk_by(|a, b| a == b) {
        let blocks = first + at..first + at + run.len();
        at += run.len();
        if !run[0] {
            continue;
        }
        let tokens = blocks.start * block_size..blocks.end * block_size;
        events.push(CacheEvent::Stored(StoredBlocks {
            parent: blocks.start.checked_sub(1).map(|before| prompt.chain[before]),
            blocks: prompt.chain[blocks].to_vec(),
            tokens: prompt.tokens[tokens].to_vec(),
            block_size: block_size as u32,
            extras: Vec::new(),
            tier: Tier::Device,
            group: CacheGroup::default(),
            salt: prompt.salt.clone(),
            adapter: None,
        }));
    }
    events
}
