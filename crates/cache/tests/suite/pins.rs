//! Pins do not change the order: a cache in which blocks are held besides evicts what its twin
//! evicts in which none are.
//!
//! The twin runs first. Then, in the other cache, only such prefixes are held as the twin does
//! not evict while they are held; so whatever differs is the policy's doing.

use std::collections::HashMap;

use headstart_cache::policy::{self, NAMES, Setting};
use headstart_cache::{Admit, Effect, Lease, PrefixCache};
use headstart_core::{Access, BlockHash, Rng};
use headstart_dst::policy::conformance::Workload;

/// Extra leases at once.
const MOST_HOLDS: usize = 6;
/// Requests that one lasts at most.
const LONGEST_HOLD: usize = 40;

fn cache(spec: &str, workload: &Workload) -> PrefixCache {
    let setting = Setting { capacity: workload.capacity, block_tokens: 16 };
    let policy = policy::by_name(spec, setting).expect("a known policy");
    PrefixCache::new(workload.capacity, policy)
}

/// One whole request; returns what it changed.
fn serve(cache: &mut PrefixCache, workload: &Workload, request: usize) -> Vec<Effect> {
    let access =
        Access { request: request as u32, ..Access::at(workload.requests[request].arrival) };
    let chain = workload.chain(request);
    let mut lease = cache.acquire(&chain);
    for (offset, &hash) in chain.iter().enumerate().skip(lease.matched()) {
        let offset = offset as u32;
        if cache.admit(&mut lease, hash, &Access { offset, ..access }) == Admit::Declined {
            break;
        }
    }
    cache.release(lease, &access);
    cache.drain_effects().collect()
}

/// For each name: the requests that evict the block.
fn evictions(effects: &[Vec<Effect>]) -> HashMap<BlockHash, Vec<usize>> {
    let mut evictions: HashMap<BlockHash, Vec<usize>> = HashMap::new();
    for (request, effects) in effects.iter().enumerate() {
        for effect in effects {
            if let Effect::Evicted { hash, .. } = effect {
                evictions.entry(*hash).or_default().push(request);
            }
        }
    }
    evictions
}

/// Returns the evictions that happened while something was held besides.
fn check(spec: &str, seed: u64) -> usize {
    let workload = Workload::random(seed);
    let num_requests = workload.requests.len();
    let mut unpinned = cache(spec, &workload);
    let expected: Vec<_> =
        (0..num_requests).map(|request| serve(&mut unpinned, &workload, request)).collect();
    let evictions = evictions(&expected);
    let survives = |hash: &BlockHash, from: usize, until: usize| {
        let evictions = evictions.get(hash).into_iter().flatten();
        !evictions.copied().any(|request| (from..until).contains(&request))
    };
    let mut rng = Rng::new(seed);
    let mut pinned = cache(spec, &workload);
    let mut holds: Vec<(usize, Lease)> = Vec::new();
    let mut num_evicted = 0;
    for (request, expected) in expected.iter().enumerate() {
        let is_over = |hold: &mut (usize, Lease)| hold.0 <= request;
        for (_, lease) in holds.extract_if(.., is_over) {
            pinned.give_back(lease);
        }
        let until = request + 1 + rng.below(LONGEST_HOLD);
        let mut chain = workload.chain(rng.below(request + 1));
        chain.truncate(1 + rng.below(chain.len()));
        chain.truncate(pinned.overlap(&chain));
        let stays = |hash: &&BlockHash| survives(hash, request, until);
        chain.truncate(chain.iter().take_while(stays).count());
        if !chain.is_empty() && holds.len() < MOST_HOLDS {
            holds.push((until, pinned.acquire(&chain)));
        }
        let effects = serve(&mut pinned, &workload, request);
        assert_eq!(&effects, expected, "{spec}, seed {seed}, request {request}");
        pinned.check();
        if !holds.is_empty() {
            let is_eviction = |effect: &&Effect| matches!(effect, Effect::Evicted { .. });
            num_evicted += effects.iter().filter(is_eviction).count();
        }
    }
    num_evicted
}

#[test]
fn pins_change_no_order() {
    // What random evicts depends on how the candidates are stored. Keys of hazard fall with time,
    // and are brought up to date when a block is offered.
    let has_fixed_keys = |name: &&&str| !["random", "hazard"].contains(*name);
    for name in NAMES.iter().filter(has_fixed_keys) {
        let spec = match *name {
            // Without it, a newcomer competes with those that may go, and pins decide who may.
            "gdsf" => "gdsf:admit-all",
            // So small that it matters on short chains.
            "tlru" => "tlru:allowance=100",
            name => name,
        };
        let num_evicted: usize = (0..200).map(|seed| check(spec, seed)).sum();
        assert!(num_evicted > 10_000, "{spec}: only {num_evicted} evictions beside pins");
    }
}
