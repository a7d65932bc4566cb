//! What every [`Policy`] must obey, as functions that any implementation can call in a test.

use headstart_core::{Access, BlockId, Nanos, Rng};

use crate::Policy;

/// Slots in the random runs: few, so that every state is met often.
const CAPACITY: usize = 12;

/// Checks the contract of [`Policy`] on random call sequences: a victim is always an offered
/// block, there is one whenever any is offered, and asking does not change the answer.
///
/// # Panics
/// When the policy breaks the contract; the message holds the seed.
pub fn policy(make: impl Fn(usize) -> Box<dyn Policy>) {
    for seed in 0..50 {
        let mut driver = Driver::new(seed);
        let mut policy = make(CAPACITY);
        for _ in 0..400 {
            driver.step(&mut [policy.as_mut()]);
            let now = driver.now;
            let victim = policy.victim(now);
            let offered = driver.offered();
            assert_eq!(victim.is_some(), !offered.is_empty(), "seed {seed}");
            assert!(
                victim.is_none_or(|block| offered.contains(&block)),
                "seed {seed}"
            );
            assert_eq!(
                victim,
                policy.victim(now),
                "asking changed the answer, seed {seed}"
            );
        }
    }
}

/// Checks that two policies choose the same victims on random call sequences.
///
/// # Panics
/// When they differ; the message holds the seed.
pub fn same_victims(
    make: impl Fn(usize) -> Box<dyn Policy>,
    make_reference: impl Fn(usize) -> Box<dyn Policy>,
) {
    for seed in 0..50 {
        let mut driver = Driver::new(seed);
        let (mut policy, mut reference) = (make(CAPACITY), make_reference(CAPACITY));
        for step in 0..400 {
            driver.step(&mut [policy.as_mut(), reference.as_mut()]);
            let now = driver.now;
            assert_eq!(
                policy.victim(now),
                reference.victim(now),
                "seed {seed}, step {step}"
            );
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Absent,
    Held,
    Offered,
}

/// Makes random calls in an order that the cache could make them.
struct Driver {
    rng: Rng,
    states: [State; CAPACITY],
    now: Nanos,
}

impl Driver {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            states: [State::Absent; CAPACITY],
            now: Nanos(0),
        }
    }

    fn offered(&self) -> Vec<BlockId> {
        let slots = self.states.iter().enumerate();
        let offered = slots.filter(|&(_, &state)| state == State::Offered);
        offered.map(|(index, _)| BlockId(index as u32)).collect()
    }

    fn step(&mut self, policies: &mut [&mut dyn Policy]) {
        self.now.0 += self.rng.below(1_000_000_000) as u64;
        let index = self.rng.below(CAPACITY);
        let block = BlockId(index as u32);
        let access = Access {
            now: self.now,
            request_type: self.rng.below(3) as u16,
            turn: self.rng.below(5) as u16,
            offset: self.rng.below(8) as u32,
            session: None,
            request: 0,
        };
        let choice = self.rng.below(3);
        for policy in policies.iter_mut() {
            match (self.states[index], choice) {
                (State::Absent, _) => policy.insert(block, &access),
                (State::Held, _) => {
                    policy.release(block, &access);
                    policy.offer(block);
                }
                (State::Offered, 0) => policy.remove(block),
                (State::Offered, _) => policy.withdraw(block),
            }
        }
        self.states[index] = match (self.states[index], choice) {
            (State::Absent, _) | (State::Offered, 1..) => State::Held,
            (State::Held, _) => State::Offered,
            (State::Offered, _) => State::Absent,
        };
    }
}
