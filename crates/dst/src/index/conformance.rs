//! Conformance checks for any [`PrefixIndex`], as functions to call in a test.

mod world;

use std::collections::BTreeSet;

use headstart_core::{CacheEvent, Nanos, ReplicaId, Tier};
use headstart_router::PrefixIndex;
use headstart_router::index::{Overlap, Overlaps, ResidentBlock, TierTokens, Update};

use world::{OperationGenerator, Path, TestFleet};

/// Random runs; fixed, so that a failure is the same for everybody.
const NUM_SEEDS: u64 = 30;
/// Operations in each.
const NUM_STEPS: usize = 250;

/// Checks the contract of [`PrefixIndex`] on random operations: overlaps are sorted, whole and
/// within the prompt; asking twice gives the same answer; what is cleared or forgotten is gone.
///
/// # Panics
/// When the index breaks the contract; the message holds the seed.
pub fn index(make: impl Fn() -> Box<dyn PrefixIndex>) {
    for seed in 0..NUM_SEEDS {
        let mut world = OperationGenerator::new(seed, TestFleet::of(seed));
        let index = make();
        track_all(&world, index.as_ref());
        for _ in 0..NUM_STEPS {
            world.op().run(index.as_ref());
            world.now.0 += 1;
            check_answers(&mut world, index.as_ref(), seed);
        }
        check_end(&mut world, index.as_ref(), seed);
    }
}

/// Checks that two indexes give the same answers on random operations; `check` is called on the
/// first after each.
///
/// # Panics
/// When they differ; the message holds the seed and the failing sequence of operations.
pub fn same_overlaps<I: PrefixIndex>(
    make: impl Fn() -> I,
    check: impl Fn(&I),
    make_reference: impl Fn() -> Box<dyn PrefixIndex>,
) {
    for seed in 0..NUM_SEEDS {
        let mut world = OperationGenerator::new(seed, TestFleet::of(seed));
        let (index, reference) = (make(), make_reference());
        track_all(&world, &index);
        track_all(&world, reference.as_ref());
        let mut ops = Vec::new();
        for _ in 0..NUM_STEPS {
            let op = world.op();
            op.run(&index);
            op.run(reference.as_ref());
            ops.push(op);
            check(&index);
            if let Err(difference) = compare(&mut world, &index, reference.as_ref()) {
                panic!("seed {seed}: {difference}, after {ops:#?}");
            }
        }
    }
}

fn track_all(world: &OperationGenerator, index: &dyn PrefixIndex) {
    for (replica, block_size) in world.fleet.replicas() {
        index.update(replica, Update::Track { block_size }, Nanos(0));
    }
}

fn ask(index: &dyn PrefixIndex, path: &Path, now: Nanos) -> Vec<Overlap> {
    let mut answer = Overlaps::default();
    index.overlaps(&index.hash(path.prompt()), now, &mut answer);
    answer.iter().collect()
}

/// Asks for the tiers of each replica, by ascending replica.
fn ask_tiers(
    world: &OperationGenerator,
    index: &dyn PrefixIndex,
    path: &Path,
    now: Nanos,
) -> Vec<TierTokens> {
    let keys = index.hash(path.prompt());
    let replicas = world.fleet.replicas();
    replicas.map(|(replica, _)| index.tier_tokens(&keys, replica, now)).collect()
}

fn check_answers(world: &mut OperationGenerator, index: &dyn PrefixIndex, seed: u64) {
    let path = world.question();
    let overlaps = ask(index, &path, world.now);
    let again = ask(index, &path, world.now);
    assert_eq!(overlaps, again, "asking changed the answer, seed {seed}");
    let is_sorted = overlaps.is_sorted_by(|a, b| a.replica < b.replica);
    assert!(is_sorted, "overlaps are sorted, seed {seed}");
    let tiers = ask_tiers(world, index, &path, world.now);
    for ((replica, _), tiers) in world.fleet.replicas().zip(tiers) {
        let overlap = overlaps.iter().find(|overlap| overlap.replica == replica);
        let lengths = overlap.map_or((0, 0), |one| (one.device_tokens, one.any_tier_tokens));
        let told = (tiers.within(Tier::Device), tiers.within(Tier::Remote));
        assert_eq!(told, lengths, "tiers are the overlap's, seed {seed}: {tiers:?}");
    }
    for overlap in overlaps {
        let any = overlap.any_tier_tokens;
        assert!(
            overlap.device_tokens <= any
                && overlap.trusted_tokens <= any
                && 0 < any
                && any as usize <= path.tokens.len(),
            "seed {seed}: {overlap:?}"
        );
    }
}

fn check_end(world: &mut OperationGenerator, index: &dyn PrefixIndex, seed: u64) {
    let replicas: Vec<ReplicaId> = world.fleet.replicas().map(|(replica, _)| replica).collect();
    index.update(replicas[0], Update::Events(&[CacheEvent::Cleared]), world.now);
    for &other in &replicas[1..] {
        index.update(other, Update::Forget, world.now);
    }
    let stats = index.stats();
    let left = (stats.entries, stats.assumed_prompts, stats.held);
    assert_eq!(left, (0, 0, 0), "nothing is left, seed {seed}");
    let path = world.question();
    assert_eq!(ask(index, &path, world.now), [], "seed {seed}");
}

/// Asks both the same, now and when some assumptions and doubts have ended.
fn compare(
    world: &mut OperationGenerator,
    a: &dyn PrefixIndex,
    b: &dyn PrefixIndex,
) -> Result<(), String> {
    let delays =
        [0, world.rng.below(3_000_000_000) as u64, world.rng.below(400_000_000_000) as u64];
    for delay in delays {
        let (path, now) = (world.question(), Nanos(world.now.0 + delay));
        let (found, expected) = (ask(a, &path, now), ask(b, &path, now));
        if found != expected {
            let question = format!("{path:?} at {now:?}");
            return Err(format!("{found:?} instead of {expected:?} for {question}"));
        }
        let (found, expected) = (ask_tiers(world, a, &path, now), ask_tiers(world, b, &path, now));
        if found != expected {
            let question = format!("{path:?} at {now:?}");
            return Err(format!("tiers {found:?} instead of {expected:?} for {question}"));
        }
        let (found, expected) = (residents(a, now), residents(b, now));
        if found != expected {
            let surplus: Vec<_> = found.difference(&expected).collect();
            let missing: Vec<_> = expected.difference(&found).collect();
            return Err(format!("holds {surplus:?} and lacks {missing:?} at {now:?}"));
        }
    }
    Ok(())
}

fn residents(index: &dyn PrefixIndex, now: Nanos) -> BTreeSet<ResidentBlock> {
    let mut residents = BTreeSet::new();
    index.residents(now, &mut |resident| {
        assert!(residents.insert(resident), "each is visited once: {resident:?}");
    });
    residents
}
