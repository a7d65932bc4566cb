//! The live attribution against the truth: what tokens were, and what was said of them.
//!
//! `cargo run --release -p headstart-dst --example attribution -- [FIRST_SEED [LAST_SEED
//! [SESSIONS]]]`

use headstart_dst::attribution::world::{World, WorldConfig};

fn main() {
    let mut given = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut next = |otherwise: usize| given.next().and_then(Result::ok).unwrap_or(otherwise);
    let first = next(1);
    let last = next(first);
    let sessions = next(1_000);
    for seed in first..=last {
        let config = WorldConfig { seed: seed as u64, sessions, ..WorldConfig::default() };
        print!("seed {seed}: {}", World::new(config).run());
    }
}
