//! LPC as a whole: the static key against periodic re-evaluation, LRU without predictions, the
//! continuation oracle with true predictions.

use std::sync::Arc;
use std::time::Duration;

use headstart_cache::policy::{self, LpcOptions, Newcomer, Pooling, Setting};
use headstart_cache::{Admit, Effect, Future, Policy, PrefixCache};
use headstart_core::{
    Access, BlockHash, BlockId, BlockRuns, Nanos, Probability, Rng, Run, SessionId, TraceRequest,
};
use headstart_dst::policy::conformance;

use crate::reference::PeriodicLpc;

/// The authors' time between two evaluations.
const TICK: Duration = Duration::from_secs(10);

fn make(spec: &str, capacity: usize) -> Box<dyn Policy> {
    let setting = Setting { capacity, block_tokens: 16 };
    policy::by_name(spec, setting).expect("a known policy")
}

/// A policy that receives altered accesses.
struct Told {
    policy: Box<dyn Policy>,
    tell: fn(&mut Access),
}

impl Policy for Told {
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        let mut access = *access;
        (self.tell)(&mut access);
        self.policy.insert(block, hash, &access);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        let mut access = *access;
        (self.tell)(&mut access);
        self.policy.release(blocks, &access);
    }

    fn offer(&mut self, block: BlockId) {
        self.policy.offer(block);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.policy.withdraw(block);
    }

    fn victim(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        self.policy.victim(now, newcomer)
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.policy.remove(block, hash);
    }

    fn forget(&mut self, block: BlockId, hash: BlockHash) {
        self.policy.forget(block, hash);
    }
}

#[test]
fn on_times_rounded_to_the_tick_it_evicts_what_the_periodic_scheme_evicts() {
    for (spec, interval_s, pooling) in [
        ("lpc", 100.0, Pooling::ByConversation),
        ("lpc:interval=15", 15.0, Pooling::ByConversation),
        ("lpc:interval=15:literal-max", 15.0, Pooling::Literal),
    ] {
        println!("{spec}");
        let options = LpcOptions { interval_s: Some(interval_s), pooling };
        conformance::same_evictions(
            |workload| {
                Box::new(Told {
                    policy: make(spec, workload.capacity),
                    tell: |access| access.now.0 -= access.now.0 % TICK.as_nanos() as u64,
                })
            },
            |_| Box::new(PeriodicLpc::new(options, TICK)),
        );
    }
}

#[test]
fn without_predictions_it_is_lru() {
    for spec in ["lpc", "lpc:interval=5", "lpc:no-decay", "lpc:literal-max"] {
        println!("{spec}");
        conformance::same_evictions(
            |workload| {
                Box::new(Told {
                    policy: make(spec, workload.capacity),
                    tell: |access| access.p_continue = None,
                })
            },
            |workload| make("lru", workload.capacity),
        );
    }
}

/// Conversations that take turns at random and share no block, and what became of each request:
/// p is the truth.
fn conversations(seed: u64) -> Vec<TraceRequest> {
    let mut rng = Rng::new(seed);
    let turns: Vec<usize> = (0..40).map(|_| 1 + rng.below(6)).collect();
    let mut left = turns.clone();
    let mut requests = Vec::new();
    let mut arrival = Nanos(0);
    while let Some(oldest) = left.iter().position(|left| *left > 0) {
        // Among the eight oldest, so that some end while others go on.
        let live = (oldest..left.len()).filter(|&one| left[one] > 0).take(8);
        let live: Vec<usize> = live.collect();
        let session = live[rng.below(live.len())];
        left[session] -= 1;
        arrival.0 += rng.below(20_000_000_000) as u64;
        let turn = turns[session] - left[session];
        let mut blocks = BlockRuns::default();
        blocks.push_run(Run { start: 1_000 * session as u64, count: 4 * turn as u32 });
        requests.push(TraceRequest {
            arrival,
            blocks,
            session: Some(SessionId(session as u64)),
            turn: turn as u16,
            p_continue: Probability::new(f64::from(u8::from(left[session] > 0))),
            ..TraceRequest::default()
        });
    }
    requests
}

/// Returns the evicted blocks, in order, when `requests` are served one by one.
fn evicted(requests: &[TraceRequest], capacity: usize, policy: Box<dyn Policy>) -> Vec<BlockHash> {
    let mut cache = PrefixCache::new(capacity, policy);
    let mut evicted = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let access = Access {
            session: request.session,
            request: index as u32,
            p_continue: request.p_continue,
            ..Access::at(request.arrival)
        };
        let chain: Vec<_> = request.blocks.iter().map(BlockHash::from_u64).collect();
        let mut lease = cache.acquire(&chain);
        while let Some(&hash) = chain.get(lease.committed()) {
            if cache.admit(&mut lease, hash, &access) == Admit::Declined {
                break;
            }
        }
        cache.release(lease, &access);
        cache.check();
        evicted.extend(cache.drain_effects().filter_map(|effect| match effect {
            Effect::Evicted { hash, .. } => Some(hash),
            Effect::Stored { .. } => None,
        }));
    }
    evicted
}

/// Exactly so where no block is shared and the span of the trace is below 27.6 mean gaps, the
/// log-odds between the clamped 1 and 0. Of a shared block the oracle knows when the last of its
/// conversations ends; a prediction speaks of one only, so its hope fades with time instead.
#[test]
fn told_the_truth_it_evicts_what_the_continuation_oracle_evicts() {
    let mut num_evicted = 0;
    for seed in 0..30 {
        let requests = conversations(seed);
        let capacity = 20 + seed as usize;
        let future = Arc::new(Future::of(&requests));
        let setting = Setting { capacity, block_tokens: 16 };
        let oracle = policy::offline("continuation-oracle", setting, &future);
        let expected = evicted(&requests, capacity, oracle.expect("known"));
        for spec in ["lpc", "lpc:no-decay"] {
            let policy = make(spec, capacity);
            assert_eq!(evicted(&requests, capacity, policy), expected, "{spec}, seed {seed}");
        }
        let lru = evicted(&requests, capacity, make("lru", capacity));
        assert_ne!(lru, expected, "the truth matters, seed {seed}");
        num_evicted += expected.len();
    }
    assert!(num_evicted > 5_000, "{num_evicted}");
}
