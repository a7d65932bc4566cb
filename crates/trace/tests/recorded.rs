//! The recorded traces, where they are: what their READMEs count, counted here.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use headstart_core::TraceRequest;
use headstart_trace::{Arrivals, Format, Options, Provenance, Reader};

/// The trace `file` of the shared data under `options`, or `None`, said, where it is absent.
fn open(file: &str, options: Options<'static>) -> Option<Reader<'static>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(file);
    let Ok(raw) = File::open(&path) else {
        eprintln!("SKIPPED: there is no ../shared/data/{file}");
        return None;
    };
    Some(Reader::with_options(file, raw, options).expect("the trace opens"))
}

fn all(reader: &mut Reader<'_>) -> Vec<TraceRequest> {
    let requests: Result<Vec<_>, _> = reader.collect();
    let requests = requests.expect("every line is good");
    assert!(requests.is_sorted_by_key(|request| request.arrival));
    let tally = reader.tally();
    assert_eq!((tally.skipped, tally.moved, tally.oversized), (0, 0, 0));
    requests
}

/// Sizes of the sessions: how many have 1, 2, 3 and 4 requests, how many there are, the largest.
fn session_sizes(requests: &[TraceRequest]) -> ([usize; 4], usize, usize) {
    let mut sizes = HashMap::new();
    for request in requests {
        *sizes.entry(request.session).or_insert(0) += 1;
    }
    let of = |size: usize| sizes.values().filter(|&&known| known == size).count();
    let largest = sizes.values().copied().max().unwrap_or(0);
    ([of(1), of(2), of(3), of(4)], sizes.len(), largest)
}

fn distinct_blocks(requests: &[TraceRequest]) -> usize {
    let ids = requests.iter().flat_map(|request| request.blocks.iter());
    ids.collect::<std::collections::HashSet<_>>().len()
}

fn check_mooncake(file: &str, counts: [usize; 3], span_ms: u64, sessions: (usize, Option<usize>)) {
    let Some(mut reader) = open(file, Options::default()) else {
        return;
    };
    let requests = all(&mut reader);
    let blocks = requests.iter().map(|request| request.blocks.len()).sum();
    assert_eq!([requests.len(), blocks, distinct_blocks(&requests)], counts);
    let last = requests.last().expect("not empty");
    assert_eq!(last.arrival.0, span_ms * 1_000_000);
    assert_eq!(reader.info().sessions, Provenance::Inferred);
    let (_, num_sessions, largest) = session_sizes(&requests);
    assert_eq!(num_sessions, sessions.0);
    assert!(sessions.1.is_none_or(|expected| expected == largest));
    let deepest = requests.iter().map(|request| request.turn).max();
    assert!(deepest.is_some_and(|turn| usize::from(turn) <= largest));
}

#[test]
fn mooncake_conversation() {
    let file = "mooncake-fast25/conversation_trace.jsonl.zst";
    check_mooncake(file, [12_031, 288_500, 182_790], 3_536_999, (8_057, Some(43)));
    if let Some(mut reader) = open(file, Options::default()) {
        let (smallest, ..) = session_sizes(&all(&mut reader));
        assert_eq!(smallest, [6_045, 1_225, 392, 167]);
        assert_eq!(reader.info().types_from, Provenance::Inferred);
    }
}

#[test]
fn mooncake_synthetic() {
    let file = "mooncake-fast25/synthetic_trace.jsonl.zst";
    check_mooncake(file, [3_993, 121_877, 43_924], 1_022_025, (2_549, None));
}

const AGENTS: &str = "agentic-claude-code/traces_rle.jsonl.zst";

#[test]
fn agent_sessions_in_file_order() {
    let keep = Options { drop_duplicates: false, ..Options::default() };
    let Some(mut reader) = open(AGENTS, keep) else {
        return;
    };
    let requests = all(&mut reader);
    let blocks: usize = requests.iter().map(|request| request.blocks.len()).sum();
    assert_eq!((requests.len(), blocks), (29_426, 54_277_240));
    assert_eq!(session_sizes(&requests).1, 435);
    // Ids are compact: the sum over sessions of the largest local id and one, 0 being none.
    let runs = requests.iter().flat_map(|request| request.blocks.runs());
    let end = runs.map(|run| run.start + u64::from(run.count)).max();
    assert_eq!(end, Some(2_094_953));
    // Sessions do not mix in file order.
    assert!(requests.is_sorted_by_key(|request| request.session));
    let info = reader.info();
    assert_eq!((info.block_tokens, reader.format()), (64, Format::Agent));
    assert_eq!(info.types, ["unknown", "n", "Explore", "s", "general-purpose", "Plan"]);
    let of = |name: &str| {
        let index = info.types.iter().position(|known| known == name);
        let is = |request: &&TraceRequest| Some(usize::from(request.request_type)) == index;
        requests.iter().filter(is).count()
    };
    assert_eq!(["n", "s", "Explore"].map(of), [24_142, 4_754, 498]);
}

#[test]
fn agent_sessions_with_drawn_starts() {
    let drawn = |seed| Options {
        arrivals: Arrivals::Poisson { mean_gap: std::time::Duration::from_secs(60), seed },
        ..Options::default()
    };
    let Some(mut reader) = open(AGENTS, drawn(1)) else {
        return;
    };
    let requests = all(&mut reader);
    let left_out = reader.tally().duplicates as usize;
    assert!(left_out > 0 && session_sizes(&requests).1 + left_out == 435);
    let switches = requests.windows(2).filter(|pair| pair[0].session != pair[1].session).count();
    assert!(switches > 10_000, "sessions overlap: {switches}");
    let same = all(&mut open(AGENTS, drawn(1)).expect("it was there"));
    assert!(requests == same, "the seed fixes everything");
    let other = all(&mut open(AGENTS, drawn(2)).expect("it was there"));
    assert!(requests != other);
}

#[test]
fn azure() {
    for (file, count) in [("conv", 19_366), ("code", 8_819)] {
        let file = format!("azure-llm-2023/AzureLLMInferenceTrace_{file}.csv.zst");
        let Some(mut reader) = open(&file, Options::default()) else {
            return;
        };
        let requests = all(&mut reader);
        assert_eq!(requests.len(), count);
        let span_s = requests.last().expect("not empty").arrival.0 / 1_000_000_000;
        assert!((3_400..3_600).contains(&span_s), "{span_s}");
        let lengths = requests.iter().map(|r| u64::from(r.input_tokens.expect("given")));
        let mean = lengths.sum::<u64>() / requests.len() as u64;
        assert!([1_154, 1_155, 2_047, 2_048].contains(&mean), "{mean}");
    }
}
