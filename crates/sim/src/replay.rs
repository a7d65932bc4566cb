//! One cache, no service time: what a policy would have hit on a recorded trace.
//!
//! Requests in file order; each matches, fills what is missing (as far as something may be
//! evicted) and releases tail first, before the next begins. Every id counts as a block, a
//! partial last one too. The semantics, with golden counts, are pinned in
//! `tests/mooncake_golden.rs`.

use headstart_cache::{Admit, Effect, Policy, PrefixCache};
use headstart_core::{Access, BlockHash, Probability, TraceRequest};

use crate::outcome::ReplayOutcome;

/// A replay in progress.
pub struct Replay {
    cache: PrefixCache,
    config: ReplayConfig,
    outcome: ReplayOutcome,
    /// Requests served.
    served: u32,
    /// The chain of the request being served; kept for its memory.
    chain: Vec<BlockHash>,
}

/// Options of a replay: the size of its cache, and the units of its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayConfig {
    /// Blocks that the cache holds.
    pub capacity: usize,
    /// Tokens per block, for hits in tokens; 0 counts none.
    pub block_tokens: u32,
    /// Number of first requests that are counted apart, as cold.
    pub cold_requests: u32,
}

impl Replay {
    /// Starts with an empty cache of `capacity` blocks under `policy`, counting blocks only.
    #[must_use]
    pub fn new(capacity: usize, policy: Box<dyn Policy>) -> Self {
        let config = ReplayConfig { capacity, ..ReplayConfig::default() };
        Self::with_config(config, policy)
    }

    /// Starts with an empty cache.
    #[must_use]
    pub fn with_config(config: ReplayConfig, policy: Box<dyn Policy>) -> Self {
        Self {
            cache: PrefixCache::new(config.capacity, policy),
            config,
            outcome: ReplayOutcome::default(),
            served: 0,
            chain: Vec::new(),
        }
    }

    /// Serves the next request and returns how many of its leading blocks hit.
    ///
    /// # Panics
    /// After 2^32 requests.
    pub fn serve(&mut self, request: &TraceRequest) -> usize {
        self.serve_predicted(request, request.p_continue)
    }

    /// The same with another prediction than the request carries.
    ///
    /// # Panics
    /// After 2^32 requests.
    pub fn serve_predicted(
        &mut self,
        request: &TraceRequest,
        p_continue: Option<Probability>,
    ) -> usize {
        self.chain.clear();
        self.chain.extend(request.blocks.iter().map(BlockHash::from_u64));
        let access = Access { p_continue, ..access_of(request, self.served) };
        let (hits, is_full) = fill(&mut self.cache, &self.chain, &access);
        if is_full {
            self.outcome.full_at.get_or_insert(self.served);
        }
        self.record(request, hits);
        hits
    }

    /// Returns the hits so far.
    #[must_use]
    pub fn outcome(&self) -> &ReplayOutcome {
        &self.outcome
    }

    /// Returns the hits of the whole replay.
    #[must_use]
    pub fn into_outcome(self) -> ReplayOutcome {
        self.outcome
    }

    /// Asserts the cache's invariants.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.cache.check();
    }

    fn record(&mut self, request: &TraceRequest, hits: usize) {
        let is_cold = self.served < self.config.cold_requests;
        self.outcome.record(request, hits, self.config.block_tokens, is_cold);
        for effect in self.cache.drain_effects() {
            match effect {
                Effect::Stored { .. } => self.outcome.insertions += 1,
                Effect::Evicted { .. } => {
                    self.outcome.evictions += 1;
                    // The first eviction shows that the cache is full.
                    self.outcome.full_at.get_or_insert(self.served);
                }
            }
        }
        self.served = self.served.checked_add(1).expect("requests are numbered with 32 bits");
    }
}

/// The access of the `number`-th request of a replay.
pub(crate) fn access_of(request: &TraceRequest, number: u32) -> Access {
    Access {
        now: request.arrival,
        finish: request.finish,
        tool: request.tool,
        output_tokens: request.output_tokens,
        request_type: request.request_type,
        turn: request.turn,
        session: request.session,
        request: number,
        p_continue: request.p_continue,
        ..Access::default()
    }
}

/// Looks `chain` up and offers the blocks after its hits, which are computed, to the cache one by
/// one. Returns the hits, and whether the cache declined a block. O(its length).
pub fn fill(cache: &mut PrefixCache, chain: &[BlockHash], access: &Access) -> (usize, bool) {
    let mut lease = cache.acquire(chain);
    let hits = lease.matched();
    // A block after a gap could never be matched, so the first one that is declined ends it.
    let is_full = chain.iter().enumerate().skip(hits).any(|(offset, &hash)| {
        let access = Access { offset: offset as u32, ..*access };
        cache.admit(&mut lease, hash, &access) == Admit::Declined
    });
    cache.release(lease, access);
    (hits, is_full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_cache::policy::Lru;
    use headstart_core::Nanos;

    fn check(capacity: usize, requests: &[&[u64]], expected_hits: u64) {
        let mut replay = Replay::new(capacity, Box::new(Lru::new(capacity)));
        for (index, blocks) in requests.iter().enumerate() {
            replay.serve(&TraceRequest {
                arrival: Nanos(index as u64),
                blocks: blocks.iter().copied().collect(),
                ..TraceRequest::default()
            });
            replay.check();
        }
        assert_eq!(replay.outcome().all().blocks.hits, expected_hits);
    }

    /// A chain whose head is all that fits evicts nothing.
    #[test]
    fn a_cache_is_full_once_a_block_finds_no_room() {
        for (capacity, expected) in [(1, Some(0)), (2, Some(1)), (3, None)] {
            let mut replay = Replay::new(capacity, Box::new(Lru::new(capacity)));
            for blocks in [&[1, 2][..], &[1, 2, 3]] {
                replay.serve(&TraceRequest {
                    blocks: blocks.iter().copied().collect(),
                    ..TraceRequest::default()
                });
            }
            assert_eq!(replay.outcome().full_at, expected, "{capacity}");
        }
    }

    #[test]
    fn counts_the_leading_resident_run() {
        check(4, &[&[1, 2, 3], &[1, 2, 4], &[1, 2, 3]], 2 + 3);
        check(3, &[&[1, 2, 3], &[1, 2, 4], &[1, 2, 3]], 2 + 2);
    }

    #[test]
    fn a_chain_longer_than_the_cache_is_cached_as_far_as_it_fits() {
        check(2, &[&[1, 2, 3, 4], &[1, 2, 3, 4]], 2);
        check(0, &[&[1], &[1]], 0);
    }
}
