//! The machine's cost of work that no index of these pairs can leave out, whatever its structure.
//!
//! - look-ups/s: per prompt one key is read, and 8 bytes are read and written for each replica
//!   that holds something.
//! - events/s: per block one place of a table with 16 bytes per pair is read and written, and 8
//!   bytes are written behind each other.
//! - bytes per pair: an engine's handle (8) and where its block is (4); a key (8) per different
//!   block.
//!
//! Places are random and do not depend on each other, so the processor waits for many at once. One
//! thread, one copy, no reads meanwhile.

use std::hint::black_box;
use std::time::Instant;

use headstart_core::Rng;
use serde::Serialize;

use crate::cell::Cell;

/// Prompts that are looked up in turn, as in the cells.
const PROMPTS: usize = 1000;
const LOOK_UPS: usize = 200_000;
const BLOCKS: usize = 4_000_000;
/// Blocks whose keys are written behind each other before the ring wraps.
const RING: usize = 1 << 16;

/// The floors of one cell.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Floor {
    pub(crate) lookups_per_second: f64,
    pub(crate) events_per_second: f64,
    pub(crate) bytes_per_pair: f64,
}

/// Measures them for what the cell holds.
pub(crate) fn measure(cell: &Cell, seed: u64) -> Floor {
    let mut rng = Rng::new(seed);
    let (distinct, pairs) = (cell.distinct_blocks.max(1), cell.pairs.max(1));
    let blocks_per_event = cell.blocks as f64 / (cell.events as f64).max(1.0);
    Floor {
        lookups_per_second: lookups_per_second(distinct, cell.holders, &mut rng),
        events_per_second: blocks_per_second(pairs, &mut rng) / blocks_per_event.max(1.0),
        bytes_per_pair: 12.0 + 8.0 * distinct as f64 / pairs as f64,
    }
}

fn lookups_per_second(distinct: usize, holders: f64, rng: &mut Rng) -> f64 {
    let keys: Vec<u64> = (0..distinct as u64).collect();
    let prompts: Vec<usize> = (0..PROMPTS).map(|_| rng.below(distinct)).collect();
    let shares = vec![1_u64; (holders.round() as usize).max(1)];
    let mut answer = shares.clone();
    let start = Instant::now();
    for at in 0..LOOK_UPS {
        black_box(keys[prompts[at % PROMPTS]]);
        answer.copy_from_slice(black_box(&shares));
        black_box(&answer);
    }
    LOOK_UPS as f64 / start.elapsed().as_secs_f64()
}

fn blocks_per_second(pairs: usize, rng: &mut Rng) -> f64 {
    let mut names = vec![[1_u64; 2]; pairs];
    let places: Vec<u32> = (0..BLOCKS).map(|_| rng.below(pairs) as u32).collect();
    let mut keys = vec![0_u64; RING];
    let start = Instant::now();
    for (at, &place) in places.iter().enumerate() {
        names[place as usize][1] += 1;
        keys[at % RING] = at as u64;
    }
    let took = start.elapsed();
    black_box((names, keys));
    BLOCKS as f64 / took.as_secs_f64()
}
