//! The production stream and index against the truth of simulated engines, on thousands of seeds.
//!
//! A failure names its seed; `cargo run -p headstart-dst --example streams_soak -- tell SEED`
//! prints all that happened in it.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use headstart_dst::streams::{CoverageTally, run};

/// Seeds of one run; `HEADSTART_STREAM_SEEDS` overrides it. The first ones, so that a failure is
/// the same for everybody.
fn num_seeds() -> u64 {
    let seeds = std::env::var("HEADSTART_STREAM_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(4_000)
}

/// Threads that take seeds; each seed is a world of its own.
const NUM_THREADS: usize = 2;

#[test]
fn confirmed_blocks_are_held_and_complete_streams_are_exact() {
    let (next, num_seeds) = (AtomicU64::new(0), num_seeds());
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..NUM_THREADS).map(|_| scope.spawn(|| work(&next, num_seeds))).collect();
        let mut seen = CoverageTally::default();
        for thread in threads {
            let counts = thread.join().expect("a thread returns what it found");
            seen.add(&counts.unwrap_or_else(|failure| panic!("{failure}")));
        }
        seen
    });
    for (name, num_seen) in seen.counts() {
        // Each thing must have happened in one out of twenty.
        assert!(
            num_seen >= num_seeds / 20,
            "{name} happened in {num_seen} of {num_seeds} seeds only: {seen:#?}"
        );
    }
}

/// Runs seeds until there are none left. Returns in how many of them each thing happened, or what
/// went wrong first.
fn work(next: &AtomicU64, num_seeds: u64) -> Result<CoverageTally, String> {
    let mut seen = CoverageTally::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= num_seeds {
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
        next.store(num_seeds, Ordering::Relaxed);
        return Err(format!("seed {seed}: {failure}"));
    }
}
