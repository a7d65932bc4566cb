//! One cache, no service time: what a policy would have hit on a recorded trace.
//!
//! Requests in file order; each matches, fills what is missing (as far as unpinned blocks give
//! room) and releases tail first, before the next begins. Every id counts as a block, a partial
//! last one too. The semantics, with golden counts, are pinned in `tests/mooncake_golden.rs`.

use headstart_cache::{Grow, Policy, PrefixCache};
use headstart_core::stats::HitCount;
use headstart_core::{Access, BlockHash, TraceRequest};

/// A replay in progress.
pub struct Replay {
    cache: PrefixCache,
    blocks: HitCount,
}

impl Replay {
    /// Starts with an empty cache of `capacity` blocks under `policy`.
    #[must_use]
    pub fn new(capacity: usize, policy: Box<dyn Policy>) -> Self {
        Self {
            cache: PrefixCache::new(capacity, policy),
            blocks: HitCount::default(),
        }
    }

    /// Serves the next request.
    pub fn serve(&mut self, request: &TraceRequest) {
        let chain: Vec<_> = request
            .blocks
            .iter()
            .map(|id| BlockHash::from_u64(id))
            .collect();
        let access = Access {
            session: request.session,
            ..Access::at(request.arrival)
        };
        let mut lease = self.cache.acquire(&chain);
        self.blocks.record(chain.len(), lease.matched());
        for (offset, &hash) in chain.iter().enumerate().skip(lease.matched()) {
            if self.cache.grow(&mut lease, 1, request.arrival) != Grow::Done {
                break;
            }
            let access = Access {
                offset: offset as u32,
                ..access
            };
            self.cache.commit(&mut lease, hash, &access);
        }
        self.cache.release(lease, &access);
        self.cache.drain_effects();
    }

    /// Blocks looked up and found so far.
    #[must_use]
    pub fn blocks(&self) -> HitCount {
        self.blocks
    }

    /// Asserts the cache's invariants.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.cache.check();
    }
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
        assert_eq!(replay.blocks().hits, expected_hits);
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
