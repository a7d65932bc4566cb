//! Cost of an eviction: a million blocks, 64 classes, all of them candidates. Each block is a
//! request of its own, which is the worst case of policies that keep something for each request.
//!
//! `cargo bench -p headstart-cache --bench eviction`

use std::time::Instant;

use headstart_cache::policy::{self, Setting};
use headstart_core::{Access, BlockHash, BlockId, Nanos, Rng};

const BLOCKS: u32 = 1 << 20;
const TYPES: u16 = 16;
const TURNS: u16 = 4;
/// Evictions that are timed together; the blocks then come back, untimed.
const BATCH: usize = 4_096;
/// Odd, so that the median is one of them.
const ROUNDS: usize = 101;

fn main() {
    for spec in ["lru", "wa", "wa:published", "hazard", "hazard:no-guard"] {
        let setting = Setting { capacity: BLOCKS as usize, block_tokens: 16 };
        let mut policy = policy::by_name(spec, setting).expect("a known policy");
        let (mut rng, mut now, mut name) = (Rng::new(1), Nanos(0), 0);
        let mut come = |policy: &mut Box<dyn headstart_cache::Policy>, block: BlockId| {
            now.0 += 1_000_000;
            name += 1;
            let access = Access {
                request_type: rng.below(TYPES as usize) as u16,
                turn: 1 + rng.below(TURNS as usize) as u16,
                ..Access::at(now)
            };
            policy.insert(block, BlockHash::from_u64(name), &access);
            policy.release(&[block], &access);
            policy.offer(block);
            now
        };
        for block in (0..BLOCKS).map(BlockId) {
            come(&mut policy, block);
        }
        let mut now = Nanos(u64::from(BLOCKS) * 1_000_000);
        let mut nanos = Vec::new();
        for _ in 0..ROUNDS {
            let mut gone = Vec::with_capacity(BATCH);
            let start = Instant::now();
            for _ in 0..BATCH {
                let block = policy.victim(now, None).expect("all are offered");
                policy.remove(block, BlockHash::from_u64(u64::from(block.0)));
                gone.push(block);
            }
            nanos.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
            for block in gone {
                now = come(&mut policy, block);
            }
        }
        nanos.sort_by(f64::total_cmp);
        let median = nanos[ROUNDS / 2];
        println!("{spec:<16} {median:>6.0} ns per eviction, median of {ROUNDS}");
    }
}
