//! Comparison of the two prefix structures: replays a Mooncake trace through both, interleaved.
//!
//! `cargo bench -p headstart-sim --bench hash_chain_or_radix -- TRACE [CAPACITY]`

use std::error::Error;
use std::fs::File;
use std::time::Instant;

use headstart_cache::policy::Lru;
use headstart_core::{BlockHash, TraceRequest};
use headstart_sim::Replay;
use headstart_trace::format::mooncake::Reader;
use radix::RadixCache;

#[expect(dead_code, reason = "the picture is for a test")]
#[path = "../../cache/tests/suite/reference/radix.rs"]
mod radix;

/// Runs of each; odd, so that the median is one of them.
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let Some(path) = args.next() else {
        eprintln!("usage: hash_chain_or_radix TRACE [CAPACITY]; no trace given, nothing measured");
        return Ok(());
    };
    let capacity = args.next().map_or(Ok(20_000), |text| text.parse())?;
    let reader = Reader::new(path.clone(), File::open(path)?)?;
    let requests: Vec<TraceRequest> = reader.collect::<Result<_, _>>()?;
    let (mut hashed, mut radix) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let hits = hash_chain(&requests, capacity);
        hashed.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        assert_eq!(radix_tree(&requests, capacity), hits);
        radix.push(start.elapsed().as_secs_f64());
    }
    let blocks = requests.iter().map(|request| request.blocks.len()).sum::<usize>() as f64;
    for (name, seconds) in [("hash chain", &mut hashed), ("radix tree", &mut radix)] {
        seconds.sort_by(f64::total_cmp);
        let median = seconds[ROUNDS / 2];
        println!("{name}: {:.0} ns per block, median of {ROUNDS}", median / blocks * 1e9);
    }
    Ok(())
}

fn hash_chain(requests: &[TraceRequest], capacity: usize) -> u64 {
    let mut replay = Replay::new(capacity, Box::new(Lru::new(capacity)));
    for request in requests {
        replay.serve(request);
    }
    replay.outcome().all().blocks.hits
}

fn radix_tree(requests: &[TraceRequest], capacity: usize) -> u64 {
    let mut tree = RadixCache::new(capacity);
    let mut hits = 0;
    for request in requests {
        let chain: Vec<_> = request.blocks.iter().map(BlockHash::from_u64).collect();
        let matched = tree.acquire(&chain);
        let mut held = matched;
        while held < chain.len() && tree.grow() {
            tree.commit(&chain, held);
            held += 1;
        }
        tree.release(&chain, held, 0);
        tree.take_evicted();
        hits += matched as u64;
    }
    hits
}
