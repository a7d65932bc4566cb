//! Ghost caches against replays through the real cache, size by size: exact where every block is
//! followed, within a point where they are sampled. The same on recorded conversations is in
//! `sim`'s tests.

use std::time::Duration;

use headstart_cache::{Admit, PrefixCache, policy::Lru};
use headstart_core::{Access, BlockHash, Nanos, Rng};
use headstart_insight::ghost::{Ghost, GhostConfig};

/// Hits of a replay, request by request.
struct Replay {
    cache: PrefixCache,
    served: u32,
}

impl Replay {
    fn new(capacity: usize) -> Self {
        Self { cache: PrefixCache::new(capacity, Box::new(Lru::new(capacity))), served: 0 }
    }

    fn serve(&mut self, chain: &[u64]) -> u64 {
        let chain: Vec<BlockHash> = chain.iter().copied().map(BlockHash::from_u64).collect();
        let access = Access {
            now: Nanos(u64::from(self.served)),
            request_type: 0,
            turn: 0,
            offset: 0,
            session: None,
            request: self.served,
            ..Access::default()
        };
        self.served += 1;
        let mut lease = self.cache.acquire(&chain);
        let hits = lease.matched();
        for (offset, &hash) in chain.iter().enumerate().skip(hits) {
            let access = Access { offset: offset as u32, ..access };
            if self.cache.admit(&mut lease, hash, &access) == Admit::Declined {
                break;
            }
        }
        self.cache.release(lease, &access);
        self.cache.drain_effects().for_each(drop);
        hits as u64
    }
}

/// Conversations that grow, branch and come back; keys name prefixes.
fn chains(rng: &mut Rng, count: usize, blocks: usize) -> Vec<Vec<u64>> {
    let mut known: Vec<Vec<u64>> = Vec::new();
    let mut chains = Vec::new();
    for _ in 0..count {
        let mut chain = match known.len() {
            0 => Vec::new(),
            _ if rng.below(3) == 0 => Vec::new(),
            len => known[len - 1 - rng.below(len.min(60))].clone(),
        };
        if rng.below(4) == 0 {
            chain.truncate(rng.below(chain.len() + 1));
        }
        let mut key = chain.last().copied().unwrap_or(7);
        for _ in 0..rng.below(blocks) {
            let choice = if rng.below(8) == 0 { 0 } else { rng.next_u64() };
            key = Rng::new(key ^ choice).next_u64();
            chain.push(key);
        }
        known.push(chain.clone());
        chains.push(chain);
    }
    chains
}

fn settings(capacities: &[u64], blocks_max: usize) -> GhostConfig {
    GhostConfig {
        capacities: capacities.to_vec(),
        block_tokens: 16,
        blocks_max,
        memory: Duration::MAX,
    }
}

#[test]
fn every_size_hits_what_the_real_cache_hits() {
    let capacities = [0, 1, 2, 5, 17, 64, 300, 5000];
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut ghost = Ghost::new(settings(&capacities, usize::MAX));
        let mut replays: Vec<Replay> = capacities.map(|c| Replay::new(c as usize)).into();
        let mut hits = vec![0; capacities.len()];
        for (index, chain) in chains(&mut rng, 400, 12).iter().enumerate() {
            if rng.below(150) == 0 {
                ghost.clear(Nanos(0));
                replays = capacities.map(|c| Replay::new(c as usize)).into();
            }
            ghost.record(chain, 16 * chain.len() as u32, Nanos(0));
            for (hits, replay) in hits.iter_mut().zip(&mut replays) {
                *hits += replay.serve(chain);
            }
            let estimate = ghost.total();
            for ((capacity, hits), point) in capacities.iter().zip(&hits).zip(&estimate.points) {
                let got = point.hit_blocks.round() as u64;
                assert_eq!(got, *hits, "seed {seed}, request {index}, capacity {capacity}");
            }
        }
        assert_eq!(ghost.total(), ghost.last_hour(Nanos(0)));
        let estimate = ghost.total();
        let largest = estimate.points.last().expect("there is one");
        assert_eq!(largest.block_hit_rate, estimate.infinite_block_hit_rate);
        assert!((largest.token_hit_rate - largest.block_hit_rate).abs() < 1e-12);
    }
}

/// Followed blocks of a sample.
const BLOCKS_MAX: usize = 16_384;

/// The largest difference between sampled ghosts and exact ones, in hit rate.
fn check_sampled(chains: &[Vec<u64>], capacities: &[u64], mut sampled: Ghost, limit: f64) {
    let mut exact = Ghost::new(settings(capacities, usize::MAX));
    for (index, chain) in chains.iter().enumerate() {
        let now = Nanos(0) + Duration::from_millis(50 * index as u64);
        exact.record(chain, 16 * chain.len() as u32, now);
        sampled.record(chain, 16 * chain.len() as u32, now);
    }
    let (exact, sampled) = (exact.total(), sampled.total());
    assert!(sampled.rate < 1.0 && sampled.infinite_rate < 1.0);
    assert!(sampled.followed <= 2 * BLOCKS_MAX as u64);
    let pairs = exact.points.iter().zip(&sampled.points);
    let mut rates: Vec<(f64, f64)> =
        pairs.map(|(one, other)| (one.block_hit_rate, other.block_hit_rate)).collect();
    rates.push((exact.infinite_block_hit_rate, sampled.infinite_block_hit_rate));
    eprintln!("rate {} of {}: {rates:.4?}", sampled.rate, exact.blocks);
    for (exact, sampled) in rates {
        assert!((exact - sampled).abs() < limit, "{exact} {sampled}");
    }
}

#[test]
fn a_sample_of_a_made_up_trace_is_within_a_point() {
    for seed in 0..3 {
        let chains = chains(&mut Rng::new(seed), 12_000, 60);
        let capacities = [2_000, 5_000, 20_000, 50_000, 200_000];
        let sampled = Ghost::new(settings(&capacities, BLOCKS_MAX));
        check_sampled(&chains, &capacities, sampled, 0.01);
    }
}

/// Ten minutes of up to 20 requests a second, of which so few look-ups are allowed that one block
/// in 32 is followed in the end.
#[test]
fn a_bounded_cost_is_within_a_point() {
    for seed in 0..3 {
        let chains = chains(&mut Rng::new(seed), 12_000, 60);
        let capacities = [2_000, 5_000, 20_000, 50_000, 200_000];
        let all = Ghost::new(settings(&capacities, usize::MAX));
        let bounded = all.with_lookups_max(400);
        check_sampled(&chains, &capacities, bounded, 0.01);
    }
}

/// A few followed blocks keep the full sampling rate, however often they are looked up.
#[test]
fn a_handful_of_blocks_is_followed_however_often_it_is_used() {
    let mut ghost = Ghost::new(settings(&[1_000], usize::MAX)).with_lookups_max(10);
    let chain: Vec<u64> = (0..60).collect();
    for at in 0..1_000 {
        ghost.record(&chain, 960, Nanos(at));
    }
    assert_eq!(ghost.total().rate, 1.0);
    let more: Vec<u64> = (0..70).collect();
    ghost.record(&more, 1_120, Nanos(1_000));
    assert_eq!(ghost.total().rate, 0.5);
}
