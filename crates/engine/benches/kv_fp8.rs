//! Cost of storing keys and values as FP8 in tiers, and its effect on answers.
//!
//! ```bash
//! cargo bench -p headstart-engine --bench kv_fp8                        # the built-in models
//! cargo bench -p headstart-engine --bench kv_fp8 -- ./qwen3-0.6b
//! ```
//!
//! Four tables: bytes of a unit; speed of storing and loading blocks, one thread, in bytes of the
//! device's memory; errors of the keys and values of a prompt, by the group that shares an
//! exponent; and answers behind a prefix of 1,024 tokens that went through FP8, beside those behind
//! the prefix itself.
//!
//! The built-in models' weights are random: they attend to everything, so that errors cancel out,
//! and their head, being their embedding, makes them repeat the last token whatever was before it.
//! So one with a head of its own stands beside them, and drawn tokens beside the likeliest ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use headstart_core::{BlockId, Rng, SeqId, TokenId};
use headstart_engine::kv::{Dtype, KvPool, KvStorageFormat, fp8};
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::sampler::{greedy, sample};
use headstart_engine::{Batch, CpuExecutor, Entry, LanguageModel, ModelConfig, Sampling};

const BLOCK_TOKENS: usize = 16;
const UNIT_BLOCKS: usize = 4;
const PREFIX_TOKENS: usize = 1_024;
const PREFIX_BLOCKS: u32 = (PREFIX_TOKENS / BLOCK_TOKENS) as u32;
const ANSWER_TOKENS: usize = 128;
const PROMPTS: u64 = 4;
const ROUNDS: usize = 9;

/// Blocks of the pool whose speed is measured: of the toy's layers 67 MB of f32.
const SPEED_BLOCKS: usize = 512;

/// Sampling of the drawn tokens.
const DRAW: Sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 1 };

fn main() {
    let named = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let models = |dtype: Dtype| -> Vec<(String, Arc<LanguageModel>)> {
        match &named {
            Some(folder) => {
                let model = LanguageModel::load(Path::new(folder), dtype).expect("a model");
                vec![(folder.clone(), Arc::new(model))]
            }
            None => built_in(dtype),
        }
    };
    let config = models(Dtype::F32).swap_remove(0).1.config.clone();
    bytes(&config);
    speeds(&config);
    println!("\n| numbers | group | largest error / group's largest | RMS error / RMS |");
    println!("|---|---|--:|--:|");
    for (name, model) in models(Dtype::F32) {
        errors(&name, &computed(&model), &model.config);
    }
    errors("made up, channels of 2^-10 to 1", &made_up(&config), &config);
    println!(
        "\n| model | dtype | equal greedy tokens | equal drawn tokens | equal greedy answers | \
         mean \\|Δ logit\\| | of their deviation | mean \\|Δ log p\\| |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (name, model) in models(dtype) {
            answers(&name, &model, dtype);
        }
    }
}

/// The toy, and those of about a quarter and three times its cost, as in `headstart-lab tiers`.
fn built_in(dtype: Dtype) -> Vec<(String, Arc<LanguageModel>)> {
    let shapes = [
        ("toy", (512, 1_024, 8, 8), true),
        ("toy-small", (256, 512, 6, 4), true),
        ("toy-large", (768, 2_048, 10, 12), true),
        ("toy, another head", (512, 1_024, 8, 8), false),
    ];
    let model = |(name, shape, tied): (&str, _, _)| {
        let (hidden, intermediate, num_layers, num_heads) = shape;
        let config =
            ModelConfig { hidden, intermediate, num_layers, num_heads, tied, ..toy::config() };
        let model = toy::with_config(config, GenerationDefaults::default(), dtype);
        (name.to_owned(), Arc::new(model))
    };
    shapes.into_iter().map(model).collect()
}

fn bytes(config: &ModelConfig) {
    println!("| a unit of 64 tokens | bytes | fp8 | of it |\n|---|--:|--:|--:|");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let unit = |stored: KvStorageFormat| {
            stored.layer_bytes(config, dtype, BLOCK_TOKENS) * config.num_layers * UNIT_BLOCKS
        };
        let (same, fp8) = (unit(KvStorageFormat::Same), unit(KvStorageFormat::Fp8));
        let share = fp8 as f64 / same as f64 * 100.0;
        println!("| {} | {same} | {fp8} | {share:.2} % |", dtype.name());
    }
}

/// All blocks of a pool, stored and loaded, the two ways in turns.
fn speeds(config: &ModelConfig) {
    println!("\n| dtype | stored as | store GB/s | load GB/s |\n|---|---|--:|--:|");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let mut pools = [KvStorageFormat::Same, KvStorageFormat::Fp8]
            .map(|stored| (stored, filled(config, dtype, stored)));
        let mut taken = [const { [const { Vec::new() }; 2] }; 2];
        for _ in 0..ROUNDS {
            for ((_, pool), [stores, loads]) in pools.iter_mut().zip(&mut taken) {
                let (store_s, load_s) = speed(pool);
                stores.push(store_s);
                loads.push(load_s);
            }
        }
        let device = KvStorageFormat::Same.layer_bytes(config, dtype, BLOCK_TOKENS);
        let device = (device * config.num_layers * SPEED_BLOCKS) as f64;
        for ((stored, _), taken) in pools.iter().zip(taken) {
            let [store, load] = taken.map(|mut seconds| {
                seconds.sort_by(f64::total_cmp);
                device / seconds[ROUNDS / 2] / 1e9
            });
            println!("| {} | {} | {store:.1} | {load:.1} |", dtype.name(), stored.name());
        }
    }
}

fn filled(config: &ModelConfig, dtype: Dtype, stored: KvStorageFormat) -> KvPool {
    let pool = KvPool::new(config, dtype, SPEED_BLOCKS, BLOCK_TOKENS);
    let mut pool = pool.with_stored(stored);
    let mut rng = Rng::new(1);
    let width = config.num_kv_heads * config.head_dim;
    for layer in 0..config.num_layers {
        for block in 0..SPEED_BLOCKS as u32 {
            for slot in 0..BLOCK_TOKENS {
                let token: Vec<f32> = (0..width).map(|_| normal(&mut rng)).collect();
                pool.layer_mut(layer).write(BlockId(block), slot, &token, &token);
            }
        }
    }
    pool
}

/// About a normal deviate.
fn normal(rng: &mut Rng) -> f32 {
    ((0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0) as f32
}

/// Seconds of storing all blocks to one place after the other, and of loading them.
fn speed(pool: &mut KvPool) -> (f64, f64) {
    let (parts, bytes) = (pool.layers_mut().len(), pool.layer(0).stored_bytes());
    let mut stored = vec![1; parts * SPEED_BLOCKS * bytes];
    let began = Instant::now();
    for (index, bytes) in stored.chunks_exact_mut(bytes).enumerate() {
        pool.layer(index % parts).store(BlockId((index / parts) as u32), bytes);
    }
    let store_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    for (index, bytes) in stored.chunks_exact(bytes).enumerate() {
        pool.layer_mut(index % parts).load(BlockId((index / parts) as u32), bytes);
    }
    (store_s, began.elapsed().as_secs_f64())
}

fn tokens(seed: u64, len: usize, vocab: usize) -> Vec<TokenId> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(vocab) as TokenId).collect()
}

fn batch(tokens: &[TokenId], start: usize) -> Batch {
    let blocks = (start + tokens.len()).div_ceil(BLOCK_TOKENS) as u32;
    Batch {
        entries: vec![Entry {
            seq: SeqId(1),
            tokens: tokens.to_vec(),
            start,
            blocks: (0..blocks).map(BlockId).collect(),
            sampling: Some(Sampling::default()),
            pruned: None,
        }],
        ..Batch::default()
    }
}

fn executor(model: &Arc<LanguageModel>, dtype: Dtype) -> CpuExecutor {
    let blocks = (PREFIX_TOKENS + ANSWER_TOKENS) / BLOCK_TOKENS + 1;
    CpuExecutor::new(model.clone(), dtype, blocks, BLOCK_TOKENS)
}

/// Keys and values of a prefix, block by block, in f32: `[kv_head][head_dim][block_size]` and
/// `[kv_head][block_size][head_dim]`.
fn computed(model: &Arc<LanguageModel>) -> Vec<Vec<f32>> {
    let mut executor = executor(model, Dtype::F32);
    executor.logits(&batch(&tokens(1, PREFIX_TOKENS, model.config.vocab), 0));
    let mut blocks = Vec::new();
    for layer in executor.pool_mut().layers_mut() {
        for block in (0..PREFIX_BLOCKS).map(BlockId) {
            let mut bytes = vec![0; layer.stored_bytes()];
            layer.store(block, &mut bytes);
            let numbers = bytes.as_chunks().0.iter().map(|&chunk| f32::from_ne_bytes(chunk));
            let numbers: Vec<f32> = numbers.collect();
            let (keys, values) = numbers.split_at(numbers.len() / 2);
            blocks.extend([keys.to_vec(), values.to_vec()]);
        }
    }
    blocks
}

/// Keys some of whose channels are a thousand times as large as others, as trained models have
/// them, and such values.
fn made_up(config: &ModelConfig) -> Vec<Vec<f32>> {
    let mut rng = Rng::new(2);
    let channel: Vec<f32> = (0..config.num_kv_heads * config.head_dim)
        .map(|_| f32::exp2(-10.0 * rng.next_f64() as f32))
        .collect();
    let mut blocks = Vec::new();
    for _ in 0..PREFIX_BLOCKS {
        let keys = channel.iter().flat_map(|&size| [size; BLOCK_TOKENS]);
        let heads = channel.chunks_exact(config.head_dim);
        let values = heads.flat_map(|head| head.repeat(BLOCK_TOKENS));
        let sizes: [Vec<f32>; 2] = [keys.collect(), values.collect()];
        blocks.extend(sizes.map(|sizes| {
            let numbers = sizes.into_iter().map(|size| size * normal(&mut rng));
            numbers.collect::<Vec<f32>>()
        }));
    }
    blocks
}

/// Errors of keys (the even ones) and values, by group.
fn errors(name: &str, blocks: &[Vec<f32>], config: &ModelConfig) {
    let head = config.head_dim * BLOCK_TOKENS;
    let groups = [
        ("a block's heads", [head * config.num_kv_heads; 2]),
        ("a head of a block", [head; 2]),
        ("a channel's keys, a token's values", [BLOCK_TOKENS, config.head_dim]),
    ];
    for (group, lengths) in groups {
        let (mut largest, mut square, mut all) = (0.0f64, 0.0, 0.0);
        for (index, block) in blocks.iter().enumerate() {
            for group in block.chunks_exact(lengths[index % 2]) {
                let mut codes = vec![0; group.len()];
                let exponent = fp8::encode(group, &mut codes);
                let mut back = vec![0.0; group.len()];
                fp8::decode(&codes, exponent, &mut back);
                let most = group.iter().fold(0.0f64, |most, &x| most.max(f64::from(x).abs()));
                for (&x, &got) in group.iter().zip(&back) {
                    let error = (f64::from(x) - f64::from(got)).abs();
                    largest = largest.max(error / most);
                    square += error * error;
                    all += f64::from(x) * f64::from(x);
                }
            }
        }
        let rms = (square / all).sqrt() * 100.0;
        println!("| {name} | {group} | {:.2} % | {rms:.3} % |", largest * 100.0);
    }
}

/// Greedy answers behind the prefix, and what the lossy one would have said at each of their
/// tokens.
fn answers(name: &str, model: &Arc<LanguageModel>, dtype: Dtype) {
    let vocab = model.config.vocab;
    let mut sums = Sums::default();
    for seed in 0..PROMPTS {
        let prompt = tokens(seed, PREFIX_TOKENS + 1, vocab);
        let mut exact = executor(model, dtype);
        exact.logits(&batch(&prompt[..PREFIX_TOKENS], 0));
        let mut lossy = loaded(&mut exact, model, dtype);
        let (mut next, mut is_equal) = (prompt[PREFIX_TOKENS], true);
        for position in PREFIX_TOKENS..PREFIX_TOKENS + ANSWER_TOKENS {
            let step = batch(&[next], position);
            let (right, got) = (exact.logits(&step), lossy.logits(&step));
            next = greedy(&right, &[]).expect("its logits are numbers");
            let is_same = greedy(&got, &[]) == Some(next);
            is_equal &= is_same;
            sums.tokens += usize::from(is_same);
            let drawn = [&right, &got].map(|logits| sample(logits, &[], &DRAW, position));
            sums.drawn += usize::from(drawn[0] == drawn[1]);
            sums.add(&right, &got);
        }
        sums.answers += usize::from(is_equal);
    }
    let tokens = PROMPTS as usize * ANSWER_TOKENS;
    let numbers = (tokens * vocab) as f64;
    println!(
        "| {name} | {} | {:.1} % | {:.1} % | {} of {PROMPTS} | {:.4} | {:.2} % | {:.4} |",
        dtype.name(),
        sums.tokens as f64 / tokens as f64 * 100.0,
        sums.drawn as f64 / tokens as f64 * 100.0,
        sums.answers,
        sums.logits / numbers,
        sums.logits / sums.deviation * 100.0,
        sums.log_p / numbers,
    );
}

/// An executor whose prefix is another's, by way of FP8.
fn loaded(exact: &mut CpuExecutor, model: &Arc<LanguageModel>, dtype: Dtype) -> CpuExecutor {
    let mut lossy = executor(model, dtype);
    let to = lossy.pool_mut().layers_mut();
    let mut between = KvPool::new(&model.config, dtype, 1, BLOCK_TOKENS);
    for (part, from) in exact.pool_mut().layers_mut().iter().enumerate() {
        for block in (0..PREFIX_BLOCKS).map(BlockId) {
            let mut bytes = vec![0; from.stored_bytes()];
            from.store(block, &mut bytes);
            between.layer_mut(part).load(BlockId(0), &bytes);
            between = between.with_stored(KvStorageFormat::Fp8);
            let mut coded = vec![0; between.layer(part).stored_bytes()];
            between.layer(part).store(BlockId(0), &mut coded);
            between.layer_mut(part).load(BlockId(0), &coded);
            between = between.with_stored(KvStorageFormat::Same);
            between.layer(part).store(BlockId(0), &mut bytes);
            to[part].load(block, &bytes);
        }
    }
    lossy
}

/// Sums of agreement and error over answers.
#[derive(Default)]
struct Sums {
    tokens: usize,
    drawn: usize,
    answers: usize,
    logits: f64,
    deviation: f64,
    log_p: f64,
}

impl Sums {
    fn add(&mut self, right: &[f32], got: &[f32]) {
        let mean = right.iter().map(|&x| f64::from(x)).sum::<f64>() / right.len() as f64;
        let norms = [right, got].map(log_sum);
        for (&right, &got) in right.iter().zip(got) {
            let (right, got) = (f64::from(right), f64::from(got));
            self.logits += (right - got).abs();
            self.deviation += (right - mean).abs();
            self.log_p += ((right - norms[0]) - (got - norms[1])).abs();
        }
    }
}

/// Returns the log-sum-exp of `logits`, by which they exceed log probabilities.
fn log_sum(logits: &[f32]) -> f64 {
    let most = logits.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(f64::from(x)));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    most + sum.ln()
}
