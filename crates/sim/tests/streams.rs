//! The production stream and index against the truth of simulated engines, on 10,000 seeds.
//!
//! A failure names its seed; `cargo run -p headstart-sim --example streams_soak -- tell SEED`
//! prints all that happened in it.

use std::panic::catch_unwind;

use headstart_sim::streams::{Tally, run};

/// Seeds of one run; the first ones, so that a failure is the same for everybody.
const NUM_SEEDS: u64 = 10_000;

#[test]
fn confirmed_blocks_are_held_and_complete_streams_are_exact() {
    let mut tally = Tally::default();
    for seed in 0..NUM_SEEDS {
        match catch_unwind(|| run(seed)) {
            Ok(Ok(counts)) => tally.add(&counts),
            Ok(Err(failure)) => panic!("seed {seed}: {}", failure.difference),
            Err(_) => panic!("seed {seed}: an invariant is broken, see above"),
        }
    }
    check_coverage(&tally);
}

/// All that the scenarios are about has happened, and often.
fn check_coverage(tally: &Tally) {
    let Tally {
        restarts,
        clears,
        doubts,
        replays,
        reconnects,
        complete_checks,
        partial_checks,
        confirmed,
        doubtful,
        excused,
        questions,
        ended_complete,
        ended_partial,
        ..
    } = *tally;
    let counts = [
        restarts,
        clears,
        doubts,
        replays,
        reconnects,
        complete_checks,
        partial_checks,
        confirmed,
        doubtful,
        excused,
        questions,
        ended_complete,
        ended_partial,
    ];
    assert!(
        counts.iter().all(|&count| count > NUM_SEEDS / 100),
        "{tally:?}"
    );
}
