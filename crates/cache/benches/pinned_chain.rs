//! Does a pinned chain slow the search for a victim? Time to evict one block and to insert
//! another, without and with a chain of 10,000 blocks that is held all the while.
//!
//! Both caches have room for as many other blocks. S3-FIFO sizes its small queue by the whole
//! capacity, so there the two are not quite alike.
//!
//! `cargo bench -p headstart-cache --bench pinned_chain`

use std::sync::Arc;
use std::time::Instant;

use headstart_cache::policy::{self, NAMES, OFFLINE_NAMES, Setting};
use headstart_cache::{Future, Grow, Lease, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos, Rng};

const CHAIN_BLOCKS: usize = 10_000;
/// Blocks beside the chain; as many in both caches.
const OTHER_BLOCKS: usize = 20_000;
/// Requests in one round: three times all blocks, so that hands go round.
const REQUESTS: usize = 3 * OTHER_BLOCKS;
/// Rounds of each cache, one after the other; odd, so that the median is one of them.
const ROUNDS: usize = 9;

/// A full cache that is asked for one object after another.
struct FullCache {
    cache: PrefixCache,
    rng: Rng,
    now: Nanos,
    fresh: u64,
    _held: Lease,
}

impl FullCache {
    /// A cache with a pinned chain and room for the other blocks, which a first round fills.
    fn new(name: &str, chain_blocks: usize) -> Self {
        let capacity = chain_blocks + OTHER_BLOCKS;
        let setting = Setting { capacity, block_tokens: 16 };
        let future = Arc::new(Future::default());
        let policy = policy::offline(name, setting, &future).expect("a known policy");
        let mut cache = PrefixCache::new(capacity, policy);
        let chain: Vec<_> = (0..chain_blocks as u64).map(BlockHash::from_u64).collect();
        let access = Access::default();
        store(&mut cache, &chain, &access);
        let held = cache.acquire(&chain);
        let mut loaded =
            Self { cache, rng: Rng::new(1), now: Nanos(0), fresh: 1 << 40, _held: held };
        loaded.round();
        loaded
    }

    /// Nanoseconds per request that evicts; hits cost little and are not divided by.
    fn round(&mut self) -> f64 {
        let before = self.fresh;
        let start = Instant::now();
        for _ in 0..REQUESTS {
            self.now.0 += 1_000_000;
            let id = match self.rng.below(4) {
                0 => (1 << 32) + self.rng.below(OTHER_BLOCKS / 4) as u64,
                _ => {
                    self.fresh += 1;
                    self.fresh
                }
            };
            store(&mut self.cache, &[BlockHash::from_u64(id)], &Access::at(self.now));
            self.cache.drain_effects();
        }
        start.elapsed().as_secs_f64() * 1e9 / (self.fresh - before) as f64
    }
}

/// One request by the engine's calls, which no policy may decline.
fn store(cache: &mut PrefixCache, chain: &[BlockHash], access: &Access) {
    let mut lease = cache.acquire(chain);
    let missing = &chain[lease.matched()..];
    let grown = cache.grow(&mut lease, missing.len(), access.now);
    assert_eq!(grown, Grow::Done, "the caches have room beside the chain");
    for &hash in missing {
        cache.commit(&mut lease, hash, access);
    }
    cache.release(lease, access);
}

fn main() {
    println!("policy               alone ns   beside {CHAIN_BLOCKS} pinned ns   ratio");
    for name in NAMES.iter().chain(OFFLINE_NAMES) {
        let mut caches = [0, CHAIN_BLOCKS].map(|chain_blocks| FullCache::new(name, chain_blocks));
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (cache, times) in caches.iter_mut().zip(&mut times) {
                times.push(cache.round());
            }
        }
        let [alone, beside] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        let ratio = beside / alone;
        println!("{name:20} {alone:8.0} {beside:24.0} {ratio:7.2}");
    }
}
