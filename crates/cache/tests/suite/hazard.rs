//! `hazard` as a whole, beside its rule written plainly.
//!
//! The policy keeps one name in sixteen of evicted blocks, brings keys up to date in turn, and
//! approximates logarithms. So it does not evict the same blocks as its twin, but finds as many.

use headstart_cache::policy::{self, Setting};
use headstart_cache::{Admit, Policy, PrefixCache};
use headstart_core::{Access, BlockHash, FinishKind, Nanos, Rng};

use crate::reference::PlainHazard;

const CAPACITY: usize = 120;

/// Block hits of conversations of three kinds, by the end of their answers: agents that come back
/// after seconds and some that do not, people who come back after minutes, and single questions.
fn hits(policy: Box<dyn Policy>, seed: u64) -> usize {
    let mut cache = PrefixCache::new(CAPACITY, policy);
    let (mut rng, mut next, mut hits) = (Rng::new(seed), 0_u64, 0);
    let mut due: Vec<(u64, Vec<u64>, FinishKind)> = Vec::new();
    for second in 0..600_u64 {
        let kind = [FinishKind::ToolCalls, FinishKind::Stop, FinishKind::Length][rng.below(3)];
        due.push((second, Vec::new(), kind));
        let (now, later): (Vec<_>, Vec<_>) = due.into_iter().partition(|(at, ..)| *at <= second);
        due = later;
        for (_, mut chain, finish) in now {
            let fresh = 2 + rng.below(12) as u64;
            chain.extend(next..next + fresh);
            next += fresh;
            let access = Access {
                finish,
                output_tokens: Some(20 * fresh as u32),
                ..Access::at(Nanos(second * 1_000_000_000))
            };
            let hashes: Vec<_> = chain.iter().map(|&id| BlockHash::from_u64(id)).collect();
            let mut lease = cache.acquire(&hashes);
            hits += lease.matched();
            for (offset, &hash) in (0..).zip(&hashes).skip(lease.matched()) {
                let access = Access { offset, ..access };
                assert_ne!(cache.admit(&mut lease, hash, &access), Admit::Declined);
            }
            cache.release(lease, &access);
            cache.drain_effects();
            let (pause, comes_back) = match finish {
                FinishKind::ToolCalls => (2 + rng.below(10), rng.below(12) > 0),
                FinishKind::Stop => (60 + rng.below(200), rng.below(3) > 0),
                _ => (0, false),
            };
            if comes_back && chain.len() < 60 {
                due.push((second + pause as u64, chain, finish));
            }
        }
    }
    cache.check();
    hits
}

fn by_name(spec: &str) -> Box<dyn Policy> {
    let setting = Setting { capacity: CAPACITY, block_tokens: 16 };
    policy::by_name(spec, setting).expect("a known policy")
}

#[test]
fn it_finds_what_its_twin_finds() {
    for seed in 1..3 {
        let lru = hits(by_name("lru"), seed) as f64;
        let twin = hits(Box::new(PlainHazard::new()), seed) as f64;
        for spec in ["hazard", "hazard:no-guard"] {
            let hazard = hits(by_name(spec), seed) as f64;
            println!("seed {seed}, {spec}: {hazard}, twin {twin}, lru {lru}");
            assert!((hazard - twin).abs() < 0.2 * (twin - lru), "{spec}: {hazard}, {twin}, {lru}");
        }
    }
}
