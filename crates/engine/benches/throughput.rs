//! Prefill and decode speed of the toy beside this machine's ceilings.
//!
//! `cargo bench -p headstart-engine --bench throughput -- [f32|bf16] [MODEL_DIR]`
//!
//! Prefill: one prompt of 2,048 tokens. Decode: 64 tokens behind a context of 256, batch 1 and 8.
//! Ceilings: `gemm` on the shapes of a prefill chunk, and reading memory once. All interleaved,
//! median of five.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use headstart_cache::policy::Lru;
use headstart_core::{Nanos, SeqId, TokenId};
use headstart_engine::cpu::linear::{Linear, Write};
use headstart_engine::kv::{Dtype, KvStorageFormat, Numbers};
use headstart_engine::model::toy;
use headstart_engine::{Engine, EngineConfig, Submission};
use headstart_engine::{LanguageModel, QueueOrder};
use rayon::prelude::*;

const ROUNDS: usize = 5;
const PROMPT: usize = 2_048;
const CONTEXT: usize = 256;
const DECODED: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let dtype: Dtype = args.next().as_deref().unwrap_or("f32").parse()?;
    let model = match args.next() {
        Some(dir) => LanguageModel::load(Path::new(&dir), dtype)?,
        None => toy::build(toy::config(), &[300, 301, 302], None, dtype),
    };
    let model = Arc::new(model);
    let bandwidth_buffer = vec![1.0f32; 64 << 20];
    let mut columns: [Vec<f64>; 5] = Default::default();
    for round in 0..ROUNDS {
        columns[0].push(prefill(&model, dtype, round));
        columns[1].push(decode(&model, dtype, 1));
        columns[2].push(decode(&model, dtype, 8));
        columns[3].push(matrix_ceiling(&model));
        columns[4].push(read_ceiling(&bandwidth_buffer));
    }
    let names = [
        "prefill of 2,048 tokens, tokens/s",
        "decode, batch 1, context 256, tokens/s",
        "decode, batch 8, context 256, tokens/s",
        "ceiling: gemm at the chunk's shapes, GFLOP/s",
        "ceiling: memory read, GB/s",
    ];
    println!("| {} | median of {ROUNDS} | lowest | highest |\n|---|---|---|---|", dtype.name());
    for (name, mut values) in names.into_iter().zip(columns) {
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[0], values[ROUNDS - 1]);
        println!("| {name} | {:.0} | {low:.0} | {high:.0} |", values[ROUNDS / 2]);
    }
    Ok(())
}

fn engine(model: &Arc<LanguageModel>, dtype: Dtype) -> Engine {
    let cache_blocks = 512;
    let config = EngineConfig {
        cache_blocks,
        block_size: 16,
        kv_dtype: dtype,
        stored: KvStorageFormat::Same,
        max_batched_tokens: 512,
        max_sequences: 16,
        max_waiting: 16,
        order: QueueOrder::FirstCome,
    };
    Engine::new(model.clone(), "toy", config, Box::new(Lru::new(cache_blocks)))
}

fn submit(engine: &mut Engine, id: usize, length: usize, max_tokens: usize) {
    let prompt = (0..length).map(|at| ((at * 131 + id * 977) % 4_000) as TokenId).collect();
    engine.submit(Submission::greedy(SeqId(id as u64), prompt, max_tokens), Nanos(0));
}

fn prefill(model: &Arc<LanguageModel>, dtype: Dtype, round: usize) -> f64 {
    let mut engine = engine(model, dtype);
    // The first prompt touches the pool's pages and grows the buffers.
    submit(&mut engine, 100 + round, PROMPT, 1);
    while !engine.is_idle() {
        engine.step(Nanos(0));
    }
    submit(&mut engine, round, PROMPT, 1);
    let start = Instant::now();
    while !engine.is_idle() {
        engine.step(Nanos(0));
    }
    PROMPT as f64 / start.elapsed().as_secs_f64()
}

fn decode(model: &Arc<LanguageModel>, dtype: Dtype, batch: usize) -> f64 {
    let mut engine = engine(model, dtype);
    for id in 0..batch {
        submit(&mut engine, id, CONTEXT, DECODED + 16);
    }
    let mut decoding = 0;
    while decoding < batch {
        decoding = engine.step(Nanos(0)).outputs.len();
    }
    let start = Instant::now();
    let mut tokens = 0;
    for _ in 0..DECODED {
        tokens += engine.step(Nanos(0)).num_tokens;
    }
    tokens as f64 / start.elapsed().as_secs_f64()
}

fn matrix_ceiling(model: &LanguageModel) -> f64 {
    let (rows, k, n) = (512, model.config.hidden, 2 * model.config.intermediate);
    let linear = Linear::new(Numbers::F32(vec![0.5; k * n]), k, n, None);
    let x = vec![0.25; rows * k];
    let mut y = vec![0.0; rows * n];
    linear.apply(&x, &mut y, Write::Replace);
    let repeats = 20;
    let start = Instant::now();
    (0..repeats).for_each(|_| linear.apply(&x, &mut y, Write::Replace));
    (2 * rows * k * n * repeats) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn read_ceiling(buffer: &[f32]) -> f64 {
    let start = Instant::now();
    let sum: f32 = buffer
        .par_chunks(1 << 20)
        .map(|piece| {
            let mut sums = [0.0f32; 64];
            for values in piece.as_chunks::<64>().0 {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            sums.iter().sum::<f32>()
        })
        .sum();
    assert!(std::hint::black_box(sum) > 0.0);
    (buffer.len() * 4) as f64 / start.elapsed().as_secs_f64() / 1e9
}
