//! The live attribution against the truth: what tokens were, and what was said of them.
//!
//! `cargo run --release -p headstart-sim --example explained [-- SEEDS]`

use headstart_insight::Bucket;
use headstart_sim::explained::world::{World, WorldConfig};

fn main() {
    let seeds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    for seed in 1..=seeds.unwrap_or(1) {
        let config = WorldConfig {
            seed,
            sessions: 1_000,
            ..WorldConfig::default()
        };
        let verdicts = World::new(config).run();
        println!(
            "seed {seed}: {} requests, {} tokens, {:.2} % right; rows: what tokens were, columns: \
             what was said, thousands",
            verdicts.requests,
            verdicts.total(),
            100.0 * verdicts.right()
        );
        for truth in Bucket::ALL {
            let share = 100.0 * verdicts.share(truth);
            print!("{:>14} {share:>6.2} %", truth.name());
            for said in verdicts.tokens[truth as usize] {
                print!("{:>8.1}", said as f64 / 1e3);
            }
            println!();
        }
    }
}
