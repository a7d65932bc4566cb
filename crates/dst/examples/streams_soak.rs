//! Many seeds of the event-stream simulation, or one in words.
//!
//! ```text
//! streams_soak                       500 seeds
//! streams_soak FIRST COUNT THREADS   a recorded run: progress, then counts and every failure
//! streams_soak tell SEED             what happened in one
//! ```

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use headstart_dst::streams::{CoverageTally, run, tell};

/// Seeds where nothing else is said: a second or two.
const NUM_SEEDS: u64 = 500;

/// Seeds between two lines of progress.
const PROGRESS: u64 = 10_000;

/// State shared by all threads.
#[derive(Default)]
struct SoakState {
    next: AtomicU64,
    tally: Mutex<CoverageTally>,
    /// The number of seeds in which each thing happened.
    seen: Mutex<CoverageTally>,
    failures: Mutex<Vec<(u64, String)>>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| args.get(at).map_or(Some(default), |word| word.parse().ok());
    if args.first().is_some_and(|word| word == "tell") {
        tell(number(1, 0).unwrap_or(0)).iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    let numbers = (number(0, 0), number(1, NUM_SEEDS), number(2, 1));
    let (Some(first), Some(count), Some(threads)) = numbers else {
        eprintln!("usage: streams_soak [FIRST [COUNT [THREADS]]] | streams_soak tell SEED");
        return ExitCode::FAILURE;
    };
    soak(first, count, threads)
}

fn soak(first: u64, count: u64, threads: u64) -> ExitCode {
    let start = Instant::now();
    let shared = SoakState::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(first, count, &shared, start));
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!("seeds {first}..{}: {seconds:.1} s, {rate:.0} seeds/s", first + count);
    let tally = shared.tally.into_inner().expect("no thread panics");
    let seen = shared.seen.into_inner().expect("no thread panics");
    for ((name, times), (_, seeds)) in tally.counts().into_iter().zip(seen.counts()) {
        let share = 100.0 * seeds as f64 / count as f64;
        println!("{name:20} {times:>14} in {share:5.1} % of the seeds");
    }
    let mut failures = shared.failures.into_inner().expect("no thread panics");
    failures.sort();
    println!("{} failures", failures.len());
    for (seed, difference) in &failures {
        println!("seed {seed}: {difference}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn work(first: u64, count: u64, shared: &SoakState, start: Instant) {
    loop {
        let done = shared.next.fetch_add(1, Ordering::Relaxed);
        if done >= count {
            return;
        }
        if done > 0 && done.is_multiple_of(PROGRESS) {
            let failures = shared.failures.lock().expect("no thread panics").len();
            let seconds = start.elapsed().as_secs_f64();
            println!("{done} seeds, {:.0} seeds/s, {failures} failures", done as f64 / seconds);
        }
        let seed = first + done;
        let failure = match catch_unwind(|| run(seed)) {
            Ok(Ok(counts)) => {
                shared.tally.lock().expect("no thread panics").add(&counts);
                shared.seen.lock().expect("no thread panics").add(&counts.seen());
                continue;
            }
            Ok(Err(failure)) => failure.difference,
            Err(_) => "an invariant is broken, see above".to_owned(),
        };
        println!("seed {seed}: {failure}");
        shared.failures.lock().expect("no thread panics").push((seed, failure));
    }
}
