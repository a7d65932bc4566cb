//! Every policy obeys the contract and evicts what its slow twin evicts.

use std::sync::Arc;
use std::time::Duration;

use headstart_cache::policy::{self, LpcOptions, NAMES, OFFLINE_NAMES, Pooling, Random, Setting};
use headstart_cache::{Future, Policy};
use headstart_core::{Access, BlockHash, BlockId, Nanos};
use headstart_dst::policy::conformance::{self, Workload};

use crate::reference::{ListArc, ListS3Fifo, ListSieve, PeriodicLpc, RankedPolicy};

/// A specification and its twin. Options are such that they matter on the small workloads.
type Row = (&'static str, fn(&Workload) -> Box<dyn Policy>);

const TWINS: &[Row] = &[
    ("lru", |_| Box::new(RankedPolicy::lru())),
    ("fifo", |_| Box::new(RankedPolicy::fifo())),
    ("lfu", |_| Box::new(RankedPolicy::lfu())),
    ("s3fifo", |load| Box::new(ListS3Fifo::new(load.capacity, 0.1, 0.9))),
    ("s3fifo:small=0.3:ghost=0.5", |load| Box::new(ListS3Fifo::new(load.capacity, 0.3, 0.5))),
    ("sieve", |_| Box::new(ListSieve::default())),
    ("arc", |load| Box::new(ListArc::new(load.capacity))),
    ("gdsf:depth=64", |_| Box::new(RankedPolicy::gdsf(4.0))),
    ("gdsf:depth=64:admit-all", |_| Box::new(RankedPolicy::gdsf_admitting_all(4.0))),
    ("tlru:allowance=100", |_| Box::new(RankedPolicy::tlru(6.25))),
    ("lpc", |_| continuous_lpc(Some(100.0), Pooling::ByConversation)),
    ("lpc:interval=15", |_| continuous_lpc(Some(15.0), Pooling::ByConversation)),
    ("lpc:interval=15:literal-max", |_| continuous_lpc(Some(15.0), Pooling::Literal)),
    ("lpc:no-decay", |_| continuous_lpc(None, Pooling::ByConversation)),
    ("importance", |_| Box::new(RankedPolicy::importance())),
    ("importance:half-life=37.3", |_| Box::new(RankedPolicy::fading_importance(37.3))),
    ("belady", |load| Box::new(RankedPolicy::belady(&load.requests))),
    ("belady-bypass", |load| Box::new(RankedPolicy::belady_with_bypass(&load.requests))),
    ("continuation-oracle", |load| Box::new(RankedPolicy::continuation_oracle(&load.requests))),
];

/// Names without a twin here. What random chooses is tested below, and `wa` beside its fits;
/// `hazard` brings its keys up to date when it looks at them, so its parts are tested one by one.
const WITHOUT_TWIN: [&str; 3] = ["random", "wa", "hazard"];

/// LPC by p' at every nanosecond.
fn continuous_lpc(interval_s: Option<f64>, pooling: Pooling) -> Box<dyn Policy> {
    let options = LpcOptions { interval_s, pooling };
    Box::new(PeriodicLpc::new(options, Duration::from_nanos(1)))
}

fn make(spec: &str, workload: &Workload) -> Box<dyn Policy> {
    let setting = Setting { capacity: workload.capacity, block_tokens: 16 };
    let future = Arc::new(Future::of(&workload.requests));
    policy::offline(spec, setting, &future).expect("a known policy")
}

/// Makes a twin for a number of slots.
type OfSlots = fn(usize) -> Box<dyn Policy>;

#[test]
fn policies_that_are_made_to_forget_choose_what_their_twins_choose() {
    let twins: &[(&str, OfSlots)] = &[
        ("lru", |_| Box::new(RankedPolicy::lru())),
        ("fifo", |_| Box::new(RankedPolicy::fifo())),
        ("s3fifo", |slots| Box::new(ListS3Fifo::new(slots, 0.1, 0.9))),
        ("s3fifo:small=0.3:ghost=0.5", |slots| Box::new(ListS3Fifo::new(slots, 0.3, 0.5))),
        ("sieve", |_| Box::new(ListSieve::default())),
        ("arc", |slots| Box::new(ListArc::new(slots))),
        ("gdsf:depth=64", |_| Box::new(RankedPolicy::gdsf(4.0))),
        ("importance", |_| Box::new(RankedPolicy::importance())),
        ("importance:half-life=37.3", |_| Box::new(RankedPolicy::fading_importance(37.3))),
    ];
    for (spec, twin) in twins {
        println!("{spec}");
        let make = |capacity| {
            let setting = Setting { capacity, block_tokens: 16 };
            policy::by_name(spec, setting).expect("a known policy")
        };
        conformance::same_victims(make, twin);
    }
}

#[test]
fn obeys_the_contract() {
    for name in NAMES.iter().chain(OFFLINE_NAMES) {
        println!("{name}");
        conformance::policy(|capacity| {
            let any = Workload::random(3);
            make(name, &Workload { capacity, ..any })
        });
    }
}

#[test]
fn agrees_with_its_twin() {
    for (spec, twin) in TWINS {
        println!("{spec}");
        conformance::same_evictions(|workload| make(spec, workload), twin);
    }
}

#[test]
fn every_other_policy_has_a_twin() {
    let names = NAMES.iter().chain(OFFLINE_NAMES);
    for name in names.filter(|name| !WITHOUT_TWIN.contains(name)) {
        let has_twin = |(spec, _): &Row| spec.split(':').next() == Some(name);
        assert!(TWINS.iter().any(has_twin), "{name} has no slow twin");
    }
}

/// Evicts and inserts again, always with the same candidates; returns the victims.
fn random_victims(seed: u64, num_candidates: u32, num_victims: usize) -> Vec<BlockId> {
    let mut random = Random::new(num_candidates as usize, seed);
    let insert = |random: &mut Random, block: BlockId| {
        let hash = BlockHash::from_u64(u64::from(block.0));
        random.insert(block, hash, &Access::default());
        random.offer(block);
    };
    for block in 0..num_candidates {
        insert(&mut random, BlockId(block));
    }
    let victims = (0..num_victims).map(|_| {
        let block = random.victim(Nanos(0), None).expect("some are offered");
        let hash = BlockHash::from_u64(u64::from(block.0));
        random.remove(block, hash);
        insert(&mut random, block);
        block
    });
    victims.collect()
}

#[test]
fn random_chooses_every_candidate_equally_often() {
    const CANDIDATES: u32 = 8;
    const EACH: usize = 2_000;
    let victims = random_victims(1, CANDIDATES, CANDIDATES as usize * EACH);
    // Every pair, so that a choice that followed from the one before would show.
    let mut counts = [[0; CANDIDATES as usize]; CANDIDATES as usize];
    for pair in victims.windows(2) {
        counts[pair[0].index()][pair[1].index()] += 1;
    }
    let expected = EACH / CANDIDATES as usize;
    // Five standard deviations of a count: sqrt(250) is 16.
    let is_fair = |count: &usize| count.abs_diff(expected) < 80;
    assert!(counts.iter().flatten().all(is_fair), "{counts:?}");
    assert_eq!(victims[..100], random_victims(1, CANDIDATES, 100));
    assert_ne!(victims[..100], random_victims(2, CANDIDATES, 100));
}
