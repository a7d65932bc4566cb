//! Workload-aware eviction as a whole: LRU where it has nothing to go by, better where classes
//! differ, no worse where labels lie.

use headstart_cache::policy::{self, Setting};
use headstart_cache::{Policy, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos, Rng};
use headstart_dst::policy::conformance;

fn make(spec: &str, capacity: usize) -> Box<dyn Policy> {
    let setting = Setting { capacity, block_tokens: 16 };
    policy::by_name(spec, setting).expect("a known policy")
}

#[test]
fn with_one_class_it_is_lru() {
    for spec in ["wa:one-class", "wa:one-class:no-guard", "wa:one-class:published"] {
        conformance::same_evictions(
            |workload| make(spec, workload.capacity),
            |workload| make("lru", workload.capacity),
        );
    }
}

/// Objects of two kinds: one returns again and again, soon; the other is used once. `label` maps
/// the true kind to the label that the policy sees. Returns the hits of 40,000 requests.
fn hits(spec: &str, label: impl Fn(u16, &mut Rng) -> u16) -> usize {
    const CAPACITY: usize = 200;
    let mut rng = Rng::new(5);
    let mut cache = PrefixCache::new(CAPACITY, make(spec, CAPACITY));
    let mut hits = 0;
    for request in 0..40_000u64 {
        let kind = (rng.below(10) > 2) as u16;
        let id = match kind {
            0 => rng.below(150) as u64,
            _ => 1_000 + request,
        };
        let access = Access {
            request_type: label(kind, &mut rng),
            ..Access::at(Nanos(request * 100_000_000))
        };
        let hash = BlockHash::from_u64(id);
        let mut lease = cache.acquire(&[hash]);
        hits += lease.matched();
        if lease.matched() == 0 {
            cache.admit(&mut lease, hash, &access);
        }
        cache.release(lease, &access);
        cache.drain_effects();
    }
    cache.check();
    hits
}

#[test]
fn classes_that_differ_are_told_apart() {
    let lru = hits("lru", |kind, _| kind);
    for spec in ["wa", "wa:published", "wa:exponential", "wa:no-guard"] {
        let wa = hits(spec, |kind, _| kind);
        assert!(wa > lru + 4_000, "{spec} hits {wa}, lru {lru}");
    }
}

#[test]
fn labels_that_lie_cost_next_to_nothing() {
    let random = |_: u16, rng: &mut Rng| rng.below(4) as u16;
    let lru = hits("lru", random);
    let wa = hits("wa", random);
    assert!(wa + 400 > lru, "wa hits {wa}, lru {lru}");
}
