//! Requirements on every eviction [`Policy`], as functions that the tests of any implementation
//! can call.

mod calls;
mod load;
mod model;
mod workload;

use headstart_cache::Policy;

use calls::Calls;
use load::{CacheLoad, Call, LoadStep};
use model::ResidencyModel;

pub use workload::Workload;

/// Random runs of each kind; fixed, so that a failure is the same for everybody.
const NUM_SEEDS: u64 = 60;
/// Calls to a bare policy in each.
const NUM_CALLS: usize = 600;
/// Steps shown before a difference; older ones seldom explain it.
const SHOWN_STEPS: usize = 20;

/// Checks the contract of [`Policy`], for which `make` gets the number of slots.
///
/// A bare policy under random calls: a victim is always an offered block, there is one whenever
/// any is offered (unless a newcomer may be declined), and asking does not change the answer. Then
/// a [`headstart_cache::PrefixCache`] under random leases: its invariants hold after every step, a
/// block that is held or has a resident child is never evicted, and the effects tell what is
/// resident.
///
/// # Panics
/// When the policy breaks the contract; the message holds the seed.
pub fn policy(make: impl Fn(usize) -> Box<dyn Policy>) {
    for seed in 0..NUM_SEEDS {
        let mut calls = Calls::new(seed);
        let mut policy = make(calls::CAPACITY);
        for _ in 0..NUM_CALLS {
            calls.step(policy.as_mut());
            // Asking changes nothing, so it can follow every call.
            calls.ask(policy.as_mut(), None);
        }
    }
    for seed in 0..NUM_SEEDS {
        let workload = Workload::random(seed);
        let mut load = CacheLoad::new(&workload, seed, make(workload.capacity));
        let mut model = ResidencyModel::new(&workload, seed);
        while let Some(step) = load.step() {
            model.follow(&load, &step);
        }
    }
}

/// Checks that two bare policies, for which `make` and `make_reference` get the number of slots,
/// evict alike under random calls; unlike a device's cache these forget blocks as well.
///
/// # Panics
/// When they differ; the message holds the seed.
pub fn same_victims(
    make: impl Fn(usize) -> Box<dyn Policy>,
    make_reference: impl Fn(usize) -> Box<dyn Policy>,
) {
    for seed in 0..NUM_SEEDS {
        let (mut calls, mut calls_of_reference) = (Calls::new(seed), Calls::new(seed));
        let (mut policy, mut reference) = (make(calls::CAPACITY), make_reference(calls::CAPACITY));
        for number in 0..NUM_CALLS {
            let victim = calls.step(policy.as_mut());
            let expected = calls_of_reference.step(reference.as_mut());
            assert_eq!(victim, expected, "the policies differ at call {number}, seed {seed}");
        }
    }
}

/// Checks that caches under two policies match, store and evict alike on random workloads.
///
/// # Panics
/// When they differ; of all failing runs the message shows the shortest.
pub fn same_evictions(
    make: impl Fn(&Workload) -> Box<dyn Policy>,
    make_reference: impl Fn(&Workload) -> Box<dyn Policy>,
) {
    let difference = |seed| {
        let workload = Workload::random(seed);
        let policies = [make(&workload), make_reference(&workload)];
        difference(seed, &workload, policies)
    };
    let shortest = (0..NUM_SEEDS).filter_map(difference).min_by_key(|found| found.num_steps);
    if let Some(EvictionMismatch { num_steps, story }) = shortest {
        panic!("the policies differ at step {num_steps} of {story}");
    }
}

struct EvictionMismatch {
    num_steps: usize,
    story: String,
}

/// Drives two caches alike until they differ.
fn difference(
    seed: u64,
    workload: &Workload,
    policies: [Box<dyn Policy>; 2],
) -> Option<EvictionMismatch> {
    let [mut load, mut reference] = policies.map(|policy| CacheLoad::new(workload, seed, policy));
    let mut steps: Vec<LoadStep> = Vec::new();
    loop {
        let (step, expected) = (load.step(), reference.step());
        if step != expected {
            let shown = &steps[steps.len().saturating_sub(SHOWN_STEPS)..];
            let before: String = shown.iter().map(|step| format!("\n  {step:?}")).collect();
            let capacity = workload.capacity;
            return Some(EvictionMismatch {
                num_steps: steps.len(),
                story: format!(
                    "seed {seed}, capacity {capacity}: {step:?}\ninstead of {expected:?}\n\
                     after{before}"
                ),
            });
        }
        let step = step?;
        if step.call != Call::Nothing {
            steps.push(step);
        }
    }
}
