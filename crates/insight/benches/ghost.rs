//! Cost of a ghost cache for each block of a request, followed exactly and sampled.
//!
//! `cargo bench -p headstart-insight --bench ghost`

use std::time::{Duration, Instant};

use headstart_core::{Nanos, Rng};
use headstart_insight::ghost::{BLOCKS_MAX, Ghost, GhostConfig};

const REQUESTS: usize = 20_000;
/// Conversations that may go on.
const OPEN: usize = 500;
/// New blocks of a turn, at most.
const TURN_BLOCKS: usize = 60;
const ROUNDS: usize = 7;

/// Conversations that grow, one turn of which is asked at a time.
fn chains(rng: &mut Rng) -> Vec<Vec<u64>> {
    let mut open: Vec<Vec<u64>> = vec![Vec::new(); OPEN];
    let mut chains = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let chain = &mut open[rng.below(OPEN)];
        if rng.below(8) == 0 {
            chain.clear();
        }
        chain.extend((0..1 + rng.below(TURN_BLOCKS)).map(|_| rng.next_u64()));
        chains.push(chain.clone());
    }
    chains
}

fn main() {
    let chains = chains(&mut Rng::new(1));
    let blocks: usize = chains.iter().map(Vec::len).sum();
    println!("{REQUESTS} requests, {blocks} blocks");
    let cases = [
        ("a cache of 10,000 blocks", 10_000, BLOCKS_MAX),
        ("a cache of 1,000,000 blocks", 1_000_000, BLOCKS_MAX),
        ("the same, exactly", 1_000_000, usize::MAX),
    ];
    for (name, capacity, blocks_max) in cases {
        let mut nanos = Vec::new();
        let mut estimate = None;
        for _ in 0..ROUNDS {
            let mut ghost =
                Ghost::new(GhostConfig { blocks_max, ..GhostConfig::around(capacity, 16) });
            let start = Instant::now();
            for (index, chain) in chains.iter().enumerate() {
                let now = Nanos(0) + Duration::from_millis(index as u64);
                ghost.record(chain, 16 * chain.len() as u32, now);
            }
            nanos.push(start.elapsed().as_nanos() as f64 / blocks as f64);
            estimate = ghost.total().at(capacity).map(|point| point.block_hit_rate);
        }
        nanos.sort_by(f64::total_cmp);
        let (median, hit_rate) = (nanos[ROUNDS / 2], estimate.unwrap_or(0.0));
        println!("{name:<28} {median:>6.1} ns per block, median of {ROUNDS}; hits {hit_rate:.4}");
    }
}
