//! Block-exact counts on Mooncake's conversation trace, agreed before the code was written.
//! Skips, saying so, where the shared data is absent.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use headstart_cache::Future;
use headstart_cache::policy::{self, Setting};
use headstart_core::TraceRequest;
use headstart_sim::Replay;
use headstart_trace::format::mooncake;

/// Capacity in blocks, hits of LRU, hits of Belady.
const GOLDEN: [(usize, u64, u64); 6] = [
    (1_000, 12_847, 51_705),
    (6_000, 40_183, 101_995),
    (20_000, 83_035, 105_710),
    (45_697, 101_978, 105_710),
    (91_395, 104_759, 105_710),
    (182_790, 105_710, 105_710),
];

#[test]
fn lru_and_belady_counts_are_golden() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/mooncake-fast25/conversation_trace.jsonl.zst");
    let Ok(file) = File::open(&path) else {
        eprintln!("SKIPPED: ../shared/data/mooncake-fast25 is absent");
        return;
    };
    let reader = mooncake::Reader::new("conversation_trace", file).expect("the trace opens");
    let requests: Vec<TraceRequest> = reader.collect::<Result<_, _>>().expect("the trace reads");
    let future = Arc::new(Future::of(&requests));
    for (capacity, lru, belady) in GOLDEN {
        for (name, hits) in [("lru", lru), ("belady", belady)] {
            let setting = Setting { capacity, block_tokens: mooncake::BLOCK_TOKENS };
            let policy = policy::offline(name, setting, &future).expect("a known policy");
            let mut replay = Replay::new(capacity, policy);
            for request in &requests {
                replay.serve(request);
            }
            replay.check();
            let blocks = replay.outcome().all().blocks;
            assert_eq!((blocks.lookups, blocks.hits), (288_500, hits), "{name} at {capacity}");
        }
    }
}
