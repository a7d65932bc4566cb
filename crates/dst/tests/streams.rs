//! The production stream and index against the truth of simulated engines, on 10,000 seeds.
//!
//! A failure names its seed; `cargo run -p headstart-dst --example streams_soak -- tell SEED`
//! prints all that happened in it.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use headstart_dst::streams::{CoverageTally, run};

/// Seeds of one run; the first ones, so that a failure is the same for everybody.
const NUM_SEEDS: u64 = 10_000;

/// Seeds in which each thing must have happened: one out of twenty.
const NUM_SEEN: u64 = NUM_SEEDS / 20;

/// Threads that take seeds; each seed is a world of its own.
const NUM_THREADS: usize = 2;

#[test]
fn confirmed_blocks_are_held_and_complete_streams_are_exact() {
    let next = AtomicU64::new(0);
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..NUM_THREADS).map(|_| scope.spawn(|| work(&next))).collect();
        let mut seen = CoverageTally::default();
        for thread in threads {
            let counts = thread.join().expect("a thread returns what it found");
            seen.add(&counts.unwrap_or_else(|failure| panic!("{failure}")));
        }
        seen
    });
    for (name, num_seeds) in seen.counts() {
        assert!(
            num_seeds >= NUM_SEEN,
            "{name} happened in {num_seeds} of {NUM_SEEDS} seeds only: {seen:#?}"
        );
    }
}

/// Runs seeds until there are none left. Returns in how many of them each thing happened, or what
/// went wrong first.
fn work(next: &AtomicU64) -> Result<CoverageTally, String> {
    let mut seen = CoverageTally::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= NUM_SEEDS {
            return Ok(seen);
        }
        let failure = match catch_unwind(|| run(seed)) {
            Ok(Ok(counts)) => {
                seen.add(&counts.seen());
                continue;
            }
            Ok(Err(failure)) => failure.difference,
            Err(_) => "an invariant is broken, see above".to_owned(),
        };
        next.store(NUM_SEEDS, Ordering::Relaxed);
        return Err(format!("seed {seed}: {failure}"));
    }
}
