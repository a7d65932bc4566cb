//! Exact hits of every policy on the committed generated trace, `data/traces/golden.jsonl`
//! (9,881 distinct blocks). A change here is a change of a policy, and needs an explanation.
//!
//! To write the table again:
//!
//! ```text
//! headstart replay data/traces/golden.jsonl --policy all --capacity 100,500,2k,5k --csv \
//!   | cut -d, -f1,2,5
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use headstart_cache::policy::{NAMES, OFFLINE_NAMES};
use headstart_core::TraceRequest;
use headstart_sim::sweep::SweepCell;
use headstart_sim::{Sweep, SweepConfig};
use headstart_trace::Reader;

/// In blocks.
const CAPACITIES: [u64; 4] = [100, 500, 2_000, 5_000];

/// Blocks looked up, and those of them that a cache finds which never evicts.
const LOOKUPS: u64 = 30_615;
const INFINITE: u64 = 20_734;

/// Block hits at each capacity.
const GOLDEN: &[(&str, [u64; 4])] = &[
    ("lru", [4_960, 15_971, 20_487, 20_676]),
    ("fifo", [4_960, 15_959, 20_401, 20_676]),
    ("lfu", [5_110, 9_457, 13_471, 19_931]),
    ("s3fifo", [5_047, 13_946, 18_281, 20_275]),
    ("sieve", [5_365, 14_824, 19_153, 20_451]),
    ("arc", [5_131, 15_799, 20_077, 20_475]),
    ("gdsf", [5_278, 14_848, 19_927, 20_676]),
    ("tlru", [4_970, 15_961, 20_489, 20_676]),
    ("wa", [4_973, 16_400, 20_487, 20_676]),
    ("hazard", [5_361, 16_586, 20_536, 20_691]),
    ("lpc", [4_960, 15_971, 20_487, 20_676]),
    ("importance", [5_110, 9_457, 13_471, 19_931]),
    ("random", [5_345, 14_841, 19_129, 20_441]),
    ("belady", [6_611, 19_732, 20_734, 20_734]),
    ("belady-bypass", [9_935, 19_820, 20_734, 20_734]),
    ("continuation-oracle", [5_392, 17_415, 20_455, 20_655]),
];

fn requests() -> (Vec<TraceRequest>, u32) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces/golden.jsonl");
    let file = File::open(&path).expect("the trace is committed");
    let mut reader = Reader::new("golden.jsonl", file).expect("it opens");
    let requests: Result<_, _> = reader.by_ref().collect();
    (requests.expect("it reads"), reader.info().block_tokens)
}

#[test]
fn hits_are_golden_for_every_policy() {
    let (requests, block_tokens) = requests();
    let config = SweepConfig { block_tokens, cold_requests: 0 };
    let names: Vec<String> = NAMES.iter().chain(OFFLINE_NAMES).map(|&name| name.into()).collect();
    let sweep = Sweep::new(&requests, config, &names).expect("known policies");
    let mut got = BTreeMap::new();
    for name in &names {
        let hits = CAPACITIES.map(|capacity| {
            let arm = SweepCell { spec: name, capacity, predictions: None };
            let outcome = sweep.run(arm, |_| ()).expect("a known policy");
            let blocks = outcome.all().blocks;
            assert_eq!(blocks.lookups, LOOKUPS);
            blocks.hits
        });
        got.insert(name.as_str(), hits);
    }
    assert_eq!(sweep.extent().infinite.all().blocks.hits, INFINITE);
    assert_eq!(got, GOLDEN.iter().copied().collect());
}

/// The table itself is plausible, independent of the code that wrote it.
#[test]
fn no_policy_beats_the_bounds() {
    let golden: BTreeMap<_, _> = GOLDEN.iter().copied().collect();
    for (name, hits) in &golden {
        let never_shrinks = hits.is_sorted();
        assert!(never_shrinks && hits[3] <= INFINITE, "{name}");
    }
    assert_eq!(golden["lpc"], golden["lru"], "the trace has no predictions");
    assert_eq!(golden["importance"], golden["lfu"], "nor importances");
    for name in NAMES {
        let hits = golden.get(name).unwrap_or_else(|| panic!("{name} has no row in GOLDEN"));
        for (index, hits) in hits.iter().enumerate() {
            assert!(*hits <= golden["belady-bypass"][index], "{name} {index}");
            assert!(*name == "random" || *hits <= golden["belady"][index], "{name} {index}");
        }
    }
}
