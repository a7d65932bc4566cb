//! What every [`PrefixIndex`] must obey, as functions that any implementation can call in a test.

mod world;

use headstart_core::{CacheEvent, Nanos, ReplicaId};

use crate::PrefixIndex;
use world::{REPLICAS, World};

/// Random runs; fixed, so that a failure is the same for everybody.
const NUM_SEEDS: u64 = 60;
/// Operations in each.
const NUM_STEPS: usize = 250;

/// Checks the contract of [`PrefixIndex`] on random operations: overlaps are sorted, whole and
/// within the prompt; asking twice gives the same answer; what is cleared or forgotten is gone.
///
/// # Panics
/// When the index breaks the contract; the message holds the seed.
pub fn index(make: impl Fn() -> Box<dyn PrefixIndex>) {
    for seed in 0..NUM_SEEDS {
        let mut world = World::new(seed);
        let mut index = make();
        track_all(index.as_mut());
        for _ in 0..NUM_STEPS {
            world.op().run(index.as_mut());
            world.now.0 += 1;
            check_answers(&mut world, index.as_ref(), seed);
        }
        check_end(&mut world, index.as_mut(), seed);
    }
}

/// Checks that two indexes give the same answers on random operations; `check` is called on the
/// first after each.
///
/// # Panics
/// When they differ; the message holds the seed and the shortest failing sequence of operations.
pub fn same_overlaps<I: PrefixIndex>(
    make: impl Fn() -> I,
    check: impl Fn(&I),
    make_reference: impl Fn() -> Box<dyn PrefixIndex>,
) {
    for seed in 0..NUM_SEEDS {
        let mut world = World::new(seed);
        let (mut index, mut reference) = (make(), make_reference());
        track_all(&mut index);
        track_all(reference.as_mut());
        let mut ops = Vec::new();
        for _ in 0..NUM_STEPS {
            let op = world.op();
            op.run(&mut index);
            op.run(reference.as_mut());
            ops.push(op);
            check(&index);
            if let Err(difference) = compare(&mut world, &index, reference.as_ref()) {
                panic!("seed {seed}: {difference}, after {ops:#?}");
            }
        }
    }
}

fn track_all(index: &mut dyn PrefixIndex) {
    for (replica, (configured, _)) in replicas() {
        index.track(replica, configured);
    }
}

fn check_answers(world: &mut World, index: &dyn PrefixIndex, seed: u64) {
    let path = world.question();
    let overlaps = index.overlaps(path.prompt(), world.now);
    let again = index.overlaps(path.prompt(), world.now);
    assert_eq!(overlaps, again, "asking changed the answer, seed {seed}");
    let is_sorted = overlaps.is_sorted_by(|a, b| a.replica < b.replica);
    assert!(is_sorted, "overlaps are sorted, seed {seed}");
    for overlap in overlaps {
        let (device, any) = (overlap.device_tokens, overlap.any_tier_tokens);
        assert!(
            device <= any && 0 < any && any <= path.tokens.len(),
            "seed {seed}: {overlap:?}"
        );
    }
}

fn check_end(world: &mut World, index: &mut dyn PrefixIndex, seed: u64) {
    let (first, others) = (ReplicaId(0), 1..REPLICAS.len() as u32);
    index.apply(first, &CacheEvent::Cleared);
    for other in others {
        index.forget(ReplicaId(other));
    }
    let stats = index.stats();
    let left = (stats.entries, stats.assumed, stats.held);
    assert_eq!(left, (0, 0, 0), "nothing is left, seed {seed}");
    let path = world.question();
    assert_eq!(index.overlaps(path.prompt(), world.now), [], "seed {seed}");
}

fn replicas() -> impl Iterator<Item = (ReplicaId, (Option<u32>, u32))> {
    let ids = (0..).map(ReplicaId);
    ids.zip(REPLICAS)
}

/// Asks both the same, now and when some assumptions have ended.
fn compare(world: &mut World, a: &dyn PrefixIndex, b: &dyn PrefixIndex) -> Result<(), String> {
    let (entries, expected) = (a.stats().entries, b.stats().entries);
    if entries != expected {
        return Err(format!("{entries} entries instead of {expected}"));
    }
    for delay in [0, world.rng.below(3_000_000_000) as u64] {
        let (path, now) = (world.question(), Nanos(world.now.0 + delay));
        let found = a.overlaps(path.prompt(), now);
        let expected = b.overlaps(path.prompt(), now);
        if found != expected {
            let question = format!("{path:?} at {now:?}");
            return Err(format!("{found:?} instead of {expected:?} for {question}"));
        }
    }
    Ok(())
}
