//! Random histories of one event stream, played without sockets.
//!
//! A publisher stores and removes blocks, burns numbers and restarts; the channel drops, repeats
//! and re-orders; replays are truncated and break off; batches are damaged. Whatever the follower
//! says is applied to a set of blocks, and held against what the publisher really had.

mod adversary;
mod world;

use std::collections::BTreeMap;

use adversary::Adversary;
use headstart_core::Rng;
use world::{Rules, World};

fn rules_of(seed: u64) -> Rules {
    let mut rng = Rng::new(seed ^ 0x5eed);
    Rules {
        can_replay: rng.below(4) > 0,
        has_times: rng.below(4) > 0,
        breaks: rng.below(4) > 0,
        reach: [0, 1, 4, 12, 1000][rng.below(5)],
        burns: rng.below(2) == 0,
        damages: rng.below(2) == 0,
    }
}

/// Number of seeds to play; `HEADSTART_STREAM_SEEDS` overrides it.
fn num_seeds() -> u64 {
    let asked = std::env::var("HEADSTART_STREAM_SEEDS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(10_000)
}

/// At every moment nothing is confirmed that the publisher did not hold after the last applied
/// batch, and a complete stream is exactly that. Once the channel is good again the same is true
/// of what it holds now.
#[test]
fn what_is_claimed_is_true_and_a_healed_stream_converges() {
    let (mut ends, mut num_trusted) = (BTreeMap::new(), 0);
    for seed in 0..num_seeds() {
        let rules = rules_of(seed);
        let played = std::panic::catch_unwind(|| World::play(seed, rules));
        let (status, trusts) = played.unwrap_or_else(|_| panic!("seed {seed}, {rules:?}"));
        num_trusted += u64::from(trusts > 0);
        let end = (rules.can_replay, status.name());
        *ends.entry(end).or_insert(0u64) += 1;
    }
    assert!(num_trusted > num_seeds() / 20, "{num_trusted} seeds took a doubt back");
    let share = |can_replay, status| {
        let ended = ends.get(&(can_replay, status)).copied().unwrap_or(0);
        ended as f64 / num_seeds() as f64
    };
    assert!(share(true, "complete") > 0.2 && share(true, "partial") > 0.1, "{ends:?}");
    assert!(share(false, "complete") > 0.02 && share(false, "partial") > 0.02, "{ends:?}");
}

/// A sender of anything at all: no panic, bounds hold, batches are applied in order, and time is
/// never asked for without an end.
#[test]
fn an_adversary_breaks_nothing() {
    for seed in 0..num_seeds() / 5 {
        let played = std::panic::catch_unwind(|| Adversary::new(seed).play());
        assert!(played.is_ok(), "seed {seed}");
    }
}
