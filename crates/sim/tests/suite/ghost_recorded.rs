//! Ghost caches on Mooncake's conversation trace: exact where every block is followed, within a
//! point where they are sampled. Skips, saying so, where the shared data is absent.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use headstart_core::{Nanos, TraceRequest};
use headstart_insight::ghost::{BLOCKS_MAX, Estimate, Ghost, GhostConfig, LOOKUPS_MAX};
use headstart_trace::characterize::{Characterizer, Settings as Character};
use headstart_trace::format::mooncake;

/// Capacity in blocks and LRU's hits, as pinned in `mooncake_golden.rs`.
const GOLDEN: [(u64, u64); 6] = [
    (1_000, 12_847),
    (6_000, 40_183),
    (20_000, 83_035),
    (45_697, 101_978),
    (91_395, 104_759),
    (182_790, 105_710),
];

const LOOKUPS: f64 = 288_500.0;

fn recorded() -> Option<Vec<TraceRequest>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/mooncake-fast25/conversation_trace.jsonl.zst");
    let Ok(file) = File::open(&path) else {
        eprintln!("SKIPPED: ../shared/data/mooncake-fast25 is absent");
        return None;
    };
    let reader = mooncake::Reader::new("conversation_trace", file).expect("the trace opens");
    Some(reader.collect::<Result<_, _>>().expect("the trace reads"))
}

fn estimate(trace: &[TraceRequest], blocks_max: usize) -> Estimate {
    let mut ghost = Ghost::new(GhostConfig {
        capacities: GOLDEN.map(|(capacity, _)| capacity).to_vec(),
        block_tokens: mooncake::BLOCK_TOKENS,
        blocks_max,
        memory: Duration::MAX,
    });
    for request in trace {
        let chain: Vec<u64> = request.blocks.iter().collect();
        let tokens = request.input_tokens.unwrap_or(0);
        ghost.record(&chain, tokens, request.arrival);
    }
    let now = trace.last().expect("it has requests").arrival;
    assert_eq!(ghost.total(), ghost.last_hour(now), "it is an hour long");
    ghost.total()
}

#[test]
fn ghosts_hit_what_a_replay_hits() {
    let Some(trace) = recorded() else { return };
    let exact = estimate(&trace, usize::MAX);
    for ((capacity, hits), point) in GOLDEN.iter().zip(&exact.points) {
        assert_eq!(point.hit_blocks.round() as u64, *hits, "{capacity}");
    }
    for blocks_max in [1 << 15, 1 << 14] {
        let sampled = estimate(&trace, blocks_max);
        assert!(sampled.rate < 0.2 && sampled.followed <= 2 * blocks_max as u64);
        for ((capacity, hits), point) in GOLDEN.iter().zip(&sampled.points) {
            let error = point.block_hit_rate - *hits as f64 / LOOKUPS;
            assert!(error.abs() < 0.01, "{capacity} of {blocks_max}: {error}");
        }
        let error = sampled.infinite_block_hit_rate - exact.infinite_block_hit_rate;
        assert!(error.abs() < 0.01, "without end, of {blocks_max}: {error}");
    }
}

/// As a gateway has it, with its look-ups bounded: the hour as it was, 80 blocks a second, and the
/// same requests in six minutes and in one.
#[test]
fn a_live_ghost_is_within_a_point_of_a_replay() {
    let Some(trace) = recorded() else { return };
    let exact = estimate(&trace, usize::MAX);
    for faster in [1, 10, 60] {
        let mut live = Ghost::new(GhostConfig {
            capacities: GOLDEN.map(|(capacity, _)| capacity).to_vec(),
            block_tokens: mooncake::BLOCK_TOKENS,
            blocks_max: BLOCKS_MAX,
            memory: Duration::from_secs(24 * 3600),
        })
        .with_lookups_max(LOOKUPS_MAX);
        let mut now = Nanos(0);
        for request in &trace {
            let chain: Vec<u64> = request.blocks.iter().collect();
            now = Nanos(request.arrival.0 / faster);
            live.record(&chain, request.input_tokens.unwrap_or(0), now);
        }
        let live = live.last_hour(now);
        for (point, truth) in live.points.iter().zip(&exact.points) {
            let error = point.block_hit_rate - truth.block_hit_rate;
            let capacity = point.capacity_blocks;
            eprintln!(
                "{faster} times as fast, 1 in {:.0}: {capacity} {error:+.4}",
                1.0 / live.rate
            );
            assert!(error.abs() < 0.01, "{faster}, {capacity}: {error}");
        }
        let error = live.infinite_block_hit_rate - exact.infinite_block_hit_rate;
        assert!(error.abs() < 0.01, "{faster}, without end: {error}");
    }
}

#[test]
fn the_curve_of_the_characterization_is_the_replays() {
    let Some(trace) = recorded() else { return };
    let mut characterizer = Characterizer::new(Character {
        block_tokens: mooncake::BLOCK_TOKENS,
        ..Character::default()
    });
    trace.iter().for_each(|request| characterizer.add(request));
    let report = characterizer.finish();
    assert_eq!(report.ideal.hits, 105_710);
    assert_eq!((report.ideal.distinct_blocks, report.ideal.orphans), (182_790, 0));
    for point in report.curve.iter().step_by(7) {
        let mut ghost = Ghost::new(GhostConfig {
            capacities: vec![point.capacity_blocks],
            block_tokens: mooncake::BLOCK_TOKENS,
            blocks_max: usize::MAX,
            memory: Duration::MAX,
        });
        for request in &trace {
            let chain: Vec<u64> = request.blocks.iter().collect();
            ghost.record(&chain, 0, request.arrival);
        }
        let hits = ghost.total().points[0].hit_blocks.round() as u64;
        assert_eq!(hits, point.hits, "{}", point.capacity_blocks);
    }
}
