//! Block-exact LRU counts on Mooncake's conversation trace, agreed before the code was written.
//! Skips, saying so, where the shared data is absent.

use std::fs::File;
use std::path::Path;

use headstart_cache::policy::Lru;
use headstart_core::TraceRequest;
use headstart_sim::Replay;
use headstart_trace::format::mooncake::Reader;

/// Capacity in blocks, hits.
const GOLDEN: [(usize, u64); 6] = [
    (1_000, 12_847),
    (6_000, 40_183),
    (20_000, 83_035),
    (45_697, 101_978),
    (91_395, 104_759),
    (182_790, 105_710),
];

#[test]
fn lru_counts_are_golden() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/mooncake-fast25/conversation_trace.jsonl.zst");
    let Ok(file) = File::open(&path) else {
        eprintln!("SKIPPED: {} is absent", path.display());
        return;
    };
    let reader = Reader::new("conversation_trace", file).expect("the trace opens");
    let requests: Vec<TraceRequest> = reader.collect::<Result<_, _>>().expect("the trace reads");
    for (capacity, hits) in GOLDEN {
        let mut replay = Replay::new(capacity, Box::new(Lru::new(capacity)));
        requests.iter().for_each(|request| replay.serve(request));
        replay.check();
        assert_eq!(
            (replay.blocks().lookups, replay.blocks().hits),
            (288_500, hits),
            "{capacity}"
        );
    }
}
