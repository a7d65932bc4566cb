//! Hit rate that a larger cache would bring, from a trace in memory.
//!
//! `cargo run --example replay`

use headstart_cache::policy::Lru;
use headstart_sim::Replay;
use headstart_trace::TraceError;
use headstart_trace::format::mooncake::Reader;

/// Three conversations under one system prompt (block 0), taking turns.
const TRACE: &str = r#"{"hash_ids": [0, 10, 11]}
{"hash_ids": [0, 20, 21, 22]}
{"hash_ids": [0, 30]}
{"hash_ids": [0, 10, 11, 12, 13]}
{"hash_ids": [0, 20, 21, 22, 23]}
{"hash_ids": [0, 30, 31, 32]}
"#;

fn main() -> Result<(), TraceError> {
    for capacity in [4, 8, 16] {
        let mut replay = Replay::new(capacity, Box::new(Lru::new(capacity)));
        for request in Reader::new("example", TRACE.as_bytes())? {
            replay.serve(&request?);
        }
        let blocks = replay.outcome().all().blocks;
        println!("{capacity:>3} blocks: {} of {} look-ups hit", blocks.hits, blocks.lookups);
    }
    Ok(())
}
