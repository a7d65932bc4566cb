//! Load or recompute, over prefix lengths, tiers and engines: the plan against always loading and
//! always computing, in virtual time.
//!
//! ```bash
//! cargo test --release -p headstart-sim --test suite load_or_compute -- --nocapture
//! ```

use std::time::Duration;

use headstart_cache::PrefixCache;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, Tiers, TiersConfig, WriteWhen,
};
use headstart_core::cost::roofline::{Gpu, ModelShape};
use headstart_core::{EngineModel, Tier, TokenId};
use headstart_scheduler::{QueueOrder, SchedulerConfig};
use headstart_sim::{Channel, SimMover, TieredReplica, TieredRequest};

const BLOCK_TOKENS: usize = 16;
const UNIT_BLOCKS: usize = 4;

/// Tokens behind the prefix, which are always computed.
const NEW_TOKENS: usize = 100;

#[derive(Clone, Copy)]
struct Cell {
    engine: EngineModel,
    token_bytes: f64,
    prefix_tokens: usize,
    channel: Channel,
}

fn engine(model: &str, gpu: &str) -> (EngineModel, f64) {
    let model = ModelShape::find(model).expect("a known model");
    let gpu = Gpu::find(gpu).expect("a known GPU");
    let engine = EngineModel::derived(&model, &gpu, 1).expect("it fits");
    (engine, model.kv_token_bytes())
}

impl Cell {
    fn replica(&self, load: LoadWhen, assumed: AssumedSpeed) -> TieredReplica {
        let unit_bytes = (self.token_bytes * (BLOCK_TOKENS * UNIT_BLOCKS) as f64) as u64;
        let units = self.prefix_tokens / BLOCK_TOKENS / UNIT_BLOCKS + 10;
        let config = TiersConfig {
            unit_blocks: UNIT_BLOCKS,
            block_tokens: BLOCK_TOKENS,
            unit_bytes,
            most_at_hand: units,
            engine: self.engine,
            load,
        };
        let disk = TierConfig {
            tier: Tier::Disk,
            capacity_units: units,
            policy: Box::new(Lru::new(units)),
            admission: Admission::Always,
            write: WriteWhen::Through,
            shares: Shares::default(),
            assumed,
        };
        let blocks = self.prefix_tokens / BLOCK_TOKENS + 200;
        let scheduler = SchedulerConfig {
            max_batched_tokens: self.engine.max_batched_tokens,
            max_sequences: 8,
            max_waiting: 8,
            max_context: 1 << 20,
            block_size: BLOCK_TOKENS,
            order: QueueOrder::FirstCome,
        };
        TieredReplica::new(
            scheduler,
            PrefixCache::new(blocks, Box::new(Lru::new(blocks))),
            self.engine.cost,
            Tiers::new(config, vec![disk]),
            SimMover::new(unit_bytes, &[(Tier::Disk, self.channel)]),
        )
    }

    fn truth(&self) -> AssumedSpeed {
        AssumedSpeed {
            latency_s: self.channel.latency.as_secs_f64(),
            bytes_per_s: self.channel.bytes_per_s,
        }
    }

    /// Stores the prefix, empties the device, and asks for it again.
    fn ttft(&self, load: LoadWhen) -> (Duration, usize) {
        let mut replica = self.replica(load, self.truth());
        ask(&mut replica, self.prefix_tokens, 1);
        replica.clear_device();
        ask(&mut replica, self.prefix_tokens, 2)
    }
}

/// The prefix and something new behind it; its TTFT, and how many tokens were loaded.
fn ask(replica: &mut TieredReplica, prefix_tokens: usize, new: TokenId) -> (Duration, usize) {
    let mut prompt: Vec<TokenId> = (0..prefix_tokens as TokenId).collect();
    prompt.extend((0..NEW_TOKENS as TokenId).map(|at| 1_000_000 * new + at));
    let request = TieredRequest { arrival: replica.now(), prompt, answer_tokens: 1, session: None };
    let outcome = replica.serve(&[request]).remove(0);
    assert!(outcome.is_answered);
    (outcome.ttft, outcome.loaded_tokens.values().sum())
}

fn cells() -> Vec<(String, Cell)> {
    let engines = [("llama-3.1-8b", "h100"), ("llama-3.1-8b", "l4"), ("qwen3-32b-fp8", "h100")];
    let mut cells = Vec::new();
    for (model, gpu) in engines {
        let (engine, token_bytes) = engine(model, gpu);
        for prefix_tokens in [512, 2_048, 8_192, 32_768] {
            for gb_per_s in [0.1, 0.3, 1.0, 3.0, 10.0, 30.0] {
                for latency_ms in [0, 30] {
                    let channel = Channel {
                        latency: Duration::from_millis(latency_ms),
                        bytes_per_s: gb_per_s * 1e9,
                    };
                    let name = format!(
                        "{model} on {gpu}, {prefix_tokens} tokens, {gb_per_s} GB/s, {latency_ms} ms"
                    );
                    let cell = Cell { engine, token_bytes, prefix_tokens, channel };
                    cells.push((name, cell));
                }
            }
        }
    }
    cells
}

#[test]
fn the_plan_is_as_good_as_the_better_and_beats_both_where_mixing_wins() {
    let (mut mixed, mut best_gain) = (0, 1.0_f64);
    for (name, cell) in cells() {
        let (loaded, _) = cell.ttft(LoadWhen::Always);
        let (computed, none) = cell.ttft(LoadWhen::Never);
        let (planned, tokens) = cell.ttft(LoadWhen::Faster);
        assert_eq!(none, 0);
        let better = loaded.min(computed).as_secs_f64();
        let ratio = planned.as_secs_f64() / better;
        eprintln!("{name}: load {loaded:?}, compute {computed:?}, plan {planned:?} ({ratio:.3})");
        assert!(ratio <= 1.05, "{name}: {ratio}");
        if tokens > 0 && tokens < cell.prefix_tokens / 64 * 64 {
            mixed += 1;
            best_gain = best_gain.min(ratio);
        }
    }
    assert!(mixed >= 10, "{mixed} cells were mixed");
    assert!(best_gain < 0.75, "mixing gained at most {best_gain}");
}

/// A tier's speed is unknown beforehand: a few requests are enough to learn it.
#[test]
fn speeds_are_learned_from_what_was_loaded() {
    let (engine, token_bytes) = engine("llama-3.1-8b", "h100");
    let cell = Cell {
        engine,
        token_bytes,
        prefix_tokens: 8_192,
        channel: Channel { latency: Duration::from_millis(2), bytes_per_s: 2e9 },
    };
    let (loaded, _) = cell.ttft(LoadWhen::Always);
    let (computed, _) = cell.ttft(LoadWhen::Never);
    let better = loaded.min(computed).as_secs_f64();
    for wrong in [1e10, 1e11] {
        let assumed = AssumedSpeed { latency_s: 0.0, bytes_per_s: wrong };
        let mut replica = cell.replica(LoadWhen::Faster, assumed);
        let mut last = Duration::ZERO;
        for new in 1..=12 {
            (last, _) = ask(&mut replica, cell.prefix_tokens, new);
            replica.clear_device();
        }
        let ratio = last.as_secs_f64() / better;
        assert!(ratio <= 1.05, "assumed {wrong}: {ratio} after twelve requests");
    }
}

/// A tier that becomes slow costs a request no more than the model's patience.
#[test]
fn a_load_that_does_not_come_is_computed() {
    let (engine, token_bytes) = engine("llama-3.1-8b", "h100");
    let mut cell = Cell {
        engine,
        token_bytes,
        prefix_tokens: 8_192,
        channel: Channel { latency: Duration::ZERO, bytes_per_s: 3e7 },
    };
    let (computed, _) = cell.ttft(LoadWhen::Never);
    let believed = AssumedSpeed { latency_s: 0.0, bytes_per_s: 3e10 };
    let mut replica = cell.replica(LoadWhen::Faster, believed);
    ask(&mut replica, cell.prefix_tokens, 1);
    replica.clear_device();
    let (late, _) = ask(&mut replica, cell.prefix_tokens, 2);
    cell.channel.bytes_per_s = 3e10;
    let (predicted, _) = cell.ttft(LoadWhen::Always);
    // A twentieth of computing, and what the model said.
    let most = computed * 21 / 20 + predicted * 2 + Duration::from_millis(20);
    assert!(late <= most, "{late:?}, at most {most:?}");
}
