//! Block references characterized per second: reading included, and without it.
//!
//! `cargo bench -p headstart-trace --bench characterize -- FILE…`; without files, a made-up trace.

use std::fs::File;
use std::time::{Duration, Instant};

use headstart_core::{BlockRuns, Nanos, Rng, Run, SessionId, TraceRequest};
use headstart_trace::Reader;
use headstart_trace::characterize::{Characterization, Characterizer, Settings};

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    for file in &files {
        let start = Instant::now();
        let raw = File::open(file).expect("the file opens");
        let mut reader = Reader::new(file.as_str(), raw).expect("a trace");
        let trace: Vec<_> = reader.by_ref().map(|r| r.expect("it reads")).collect();
        let reading = start.elapsed();
        run(file, reader.info().block_tokens, &trace, Some(reading));
    }
    if files.is_empty() {
        run("made up", 16, &made_up(), None);
    }
}

fn run(name: &str, block_tokens: u32, trace: &[TraceRequest], reading: Option<Duration>) {
    let start = Instant::now();
    let mut characterizer = Characterizer::new(Settings { block_tokens, ..Settings::default() });
    trace.iter().for_each(|request| characterizer.add(request));
    let report: Characterization = characterizer.finish();
    let counting = start.elapsed();
    let references = report.ideal.references;
    let pace = |time: Duration| references as f64 / time.as_secs_f64() / 1e6;
    println!(
        "{name}: {references} references, {} requests, {} pieces, ideal {:.4}",
        report.requests, report.sampling.pieces, report.ideal.block_hit_rate
    );
    println!("  counted in {counting:.2?}: {:.1} million references/s", pace(counting));
    if let Some(reading) = reading {
        let both = reading + counting;
        println!("  with reading {both:.2?}: {:.1} million references/s", pace(both));
    }
}

/// Conversations of short runs: the hard case.
fn made_up() -> Vec<TraceRequest> {
    let mut rng = Rng::new(1);
    let mut chains: Vec<BlockRuns> = vec![BlockRuns::default(); 2000];
    let mut next_id = 0;
    let requests = (0..100_000).map(|number| {
        let session = rng.below(chains.len());
        if rng.below(8) == 0 {
            chains[session] = BlockRuns::default();
        }
        let count = 1 + rng.below(20) as u32;
        chains[session].push_run(Run { start: next_id, count });
        next_id += u64::from(count) + 1;
        TraceRequest {
            arrival: Nanos(number * 10_000_000),
            blocks: chains[session].clone(),
            session: Some(SessionId(session as u64)),
            ..TraceRequest::default()
        }
    });
    requests.collect()
}
