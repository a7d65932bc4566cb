//! However a sequence is cut into steps, batched, paged or taken from the cache: same logits as
//! the plain forward pass, and the same greedy token wherever the two best differ by more than
//! the error.

use std::sync::Arc;

use headstart_cache::policy::Lru;
use headstart_core::{BlockId, Nanos, Rng, SeqId, TokenId};
use headstart_engine::config::Family;
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::sampler::greedy;
use headstart_engine::{CpuExecutor, LanguageModel, Output, QueueOrder, Sampling, Submit};
use headstart_engine::{Engine, EngineConfig, Submission};
use headstart_scheduler::{Batch, Entry};

use crate::reference;

/// Largest difference of a logit, relative to the largest logit.
const TOLERANCE: f32 = 1e-4;

const BLOCK_SIZE: usize = 16;

fn model(family: Family) -> Arc<LanguageModel> {
    let mut config = toy::config();
    config.family = family;
    (config.hidden, config.intermediate, config.num_layers) = (128, 160, 3);
    (config.num_heads, config.num_kv_heads, config.head_dim) = (6, 2, 32);
    config.vocab = 300;
    Arc::new(toy::with_config(config, GenerationDefaults::default(), Dtype::F32))
}

fn random_tokens(rng: &mut Rng, len: usize) -> Vec<TokenId> {
    (0..len).map(|_| rng.below(300) as TokenId).collect()
}

fn entry(tokens: &[TokenId], start: usize, blocks: &[BlockId]) -> Entry {
    Entry {
        seq: SeqId(u64::from(blocks[0].0)),
        tokens: tokens.to_vec(),
        start,
        blocks: blocks[..(start + tokens.len()).div_ceil(BLOCK_SIZE)].to_vec(),
        sampling: Some(Sampling::default()),
        pruned: None,
    }
}

fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    let scale = expected.iter().fold(0.0f32, |scale, x| scale.max(x.abs()));
    let pairs = got.iter().zip(expected);
    let error = pairs.fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
    assert!(error <= TOLERANCE * scale, "{what}: off by {}", error / scale);
    let mut sorted = expected.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    if sorted[0] - sorted[1] > 2.0 * error {
        assert_eq!(greedy(got, &[]), greedy(expected, &[]), "{what}: another greedy token");
    }
}

fn shuffled_blocks(rng: &mut Rng, count: u32) -> Vec<BlockId> {
    let mut blocks: Vec<_> = (0..count).map(BlockId).collect();
    rng.shuffle(&mut blocks);
    blocks
}

/// In one step, in chunks, token by token.
#[test]
fn chunked_is_whole_is_naive() {
    for family in [Family::Llama, Family::Qwen3] {
        let model = model(family);
        let mut rng = Rng::new(1);
        let tokens = random_tokens(&mut rng, 150);
        let plain = reference::logits(&model, &tokens);
        for chunk in [1, 7, 16, 33, 150] {
            let blocks = shuffled_blocks(&mut rng, 24);
            let mut executor = CpuExecutor::new(model.clone(), Dtype::F32, 24, BLOCK_SIZE);
            for start in (0..tokens.len()).step_by(chunk) {
                let end = tokens.len().min(start + chunk);
                let batch = Batch {
                    entries: vec![entry(&tokens[start..end], start, &blocks)],
                    ..Batch::default()
                };
                let at = (end - 1) * model.config.vocab;
                let expected = &plain[at..at + model.config.vocab];
                assert_same(&executor.logits(&batch), expected, &format!("chunks of {chunk}"));
            }
        }
    }
}

/// Prefill chunks and decodes of many sequences in one batch.
#[test]
fn batched_is_single() {
    let model = model(Family::Llama);
    let vocab = model.config.vocab;
    let mut rng = Rng::new(2);
    let lengths = [1usize, 16, 17, 40, 63, 64, 65, 100, 3, 5, 90];
    let all = shuffled_blocks(&mut rng, 96);
    let mut executor = CpuExecutor::new(model.clone(), Dtype::F32, 96, BLOCK_SIZE);
    let mut sequences = Vec::new();
    for (index, length) in lengths.into_iter().enumerate() {
        let tokens = random_tokens(&mut rng, length);
        sequences.push((tokens, &all[index * 8..index * 8 + 8]));
    }
    // Odd ones hold all but their last token already: they decode while the others prefill.
    let before =
        |index: usize, tokens: &[TokenId]| if index % 2 == 1 { tokens.len() - 1 } else { 0 };
    for (index, (tokens, blocks)) in sequences.iter().enumerate() {
        let done = before(index, tokens);
        if done > 0 {
            executor.logits(&Batch {
                entries: vec![entry(&tokens[..done], 0, blocks)],
                ..Batch::default()
            });
        }
    }
    let entries = sequences.iter().enumerate().map(|(index, (tokens, blocks))| {
        let start = before(index, tokens);
        entry(&tokens[start..], start, blocks)
    });
    let logits = executor.logits(&Batch { entries: entries.collect(), ..Batch::default() });
    for ((tokens, _), got) in sequences.iter().zip(logits.chunks_exact(vocab)) {
        let plain = reference::logits(&model, tokens);
        assert_same(got, &plain[plain.len() - vocab..], &format!("{} tokens", tokens.len()));
    }
}

/// A prompt behind blocks that another sequence computed, in another batch.
#[test]
fn cached_is_uncached() {
    let model = model(Family::Qwen3);
    let vocab = model.config.vocab;
    let mut rng = Rng::new(4);
    let shared = random_tokens(&mut rng, 96);
    let mut executor = CpuExecutor::new(model.clone(), Dtype::F32, 40, BLOCK_SIZE);
    let blocks = shuffled_blocks(&mut rng, 40);
    let noise = random_tokens(&mut rng, 50);
    let first = [entry(&noise, 0, &blocks[20..30]), entry(&shared, 0, &blocks[..10])];
    executor.logits(&Batch { entries: first.to_vec(), ..Batch::default() });
    let mut prompt = shared;
    prompt.extend(random_tokens(&mut rng, 21));
    let table: Vec<_> = blocks[..6].iter().chain(&blocks[30..40]).copied().collect();
    let got = executor
        .logits(&Batch { entries: vec![entry(&prompt[96..], 96, &table)], ..Batch::default() });
    let plain = reference::logits(&model, &prompt);
    assert_same(&got, &plain[plain.len() - vocab..], "behind cached blocks");
}

/// Runs requests through an engine, several at once; returns each one's answer and hits.
fn answers(engine: &mut Engine, prompts: &[Vec<TokenId>]) -> Vec<(Vec<TokenId>, usize)> {
    for (index, prompt) in prompts.iter().enumerate() {
        let submission = Submission::greedy(SeqId(index as u64), prompt.clone(), 12);
        assert_eq!(engine.submit(submission, Nanos(0)), Submit::Queued);
    }
    let mut answers = vec![(Vec::new(), 0); prompts.len()];
    for now in 0..10_000 {
        for output in engine.step(Nanos(now)).outputs {
            match output {
                Output::Started { seq, cached_tokens } => answers[seq.0 as usize].1 = cached_tokens,
                Output::Loaded { seq, tokens, .. } => answers[seq.0 as usize].1 += tokens,
                Output::Token { seq, token, .. } => answers[seq.0 as usize].0.push(token),
                Output::Partly { .. } => unreachable!("nothing is loaded in part"),
            }
        }
        engine.check();
        if engine.is_idle() {
            return answers;
        }
    }
    panic!("the engine did not finish");
}

fn engine(model: &Arc<LanguageModel>, cache_blocks: usize) -> Engine {
    let config = EngineConfig {
        cache_blocks,
        block_size: BLOCK_SIZE,
        kv_dtype: Dtype::F32,
        stored: KvStorageFormat::Same,
        max_batched_tokens: 40,
        max_sequences: 4,
        max_waiting: 64,
        order: QueueOrder::FirstCome,
    };
    Engine::new(model.clone(), "toy", config, Box::new(Lru::new(cache_blocks)))
}

/// Every answer token is the greedy one of the plain pass, or its logit is within the error of
/// the best: with hits, evictions and preemptions on the way.
#[test]
fn the_whole_engine_answers_like_the_plain_pass() {
    let model = model(Family::Llama);
    let mut rng = Rng::new(5);
    let system = random_tokens(&mut rng, 40);
    let prompts: Vec<Vec<TokenId>> = (0..14)
        .map(|index| {
            let mut prompt = system.clone();
            prompt.extend(random_tokens(&mut rng, 1 + index * 5));
            prompt
        })
        .collect();
    let mut engine = engine(&model, 18);
    let cold = answers(&mut engine, &prompts[..7]);
    let warm = answers(&mut engine, &prompts);
    assert!(warm.iter().filter(|(_, hits)| *hits >= 32).count() >= 10, "{warm:?}");
    assert!(engine.load().preemptions > 0, "the run is tight enough to preempt");
    for (prompt, (answer, _)) in prompts[..7].iter().zip(&cold).chain(prompts.iter().zip(&warm)) {
        let mut tokens = prompt.clone();
        tokens.extend(answer);
        let plain = reference::logits(&model, &tokens);
        for (at, token) in answer.iter().enumerate() {
            let row = (prompt.len() + at - 1) * model.config.vocab;
            let logits = &plain[row..row + model.config.vocab];
            let best = greedy(logits, &[]).expect("its logits are numbers");
            let best = logits[best as usize];
            let scale = logits.iter().fold(0.0f32, |scale, x| scale.max(x.abs()));
            assert!(best - logits[*token as usize] <= 2.0 * TOLERANCE * scale, "token {at}");
        }
    }
}

/// Equal prompts under different salts share nothing.
#[test]
fn tenants_do_not_share() {
    let model = model(Family::Llama);
    let mut engine = engine(&model, 32);
    let prompt = random_tokens(&mut Rng::new(6), 64);
    let mut hits = Vec::new();
    for (id, salt) in [None, Some("a"), Some("b"), Some("a"), None].into_iter().enumerate() {
        let submission = Submission {
            salt: salt.map(Into::into),
            ..Submission::greedy(SeqId(id as u64), prompt.clone(), 1)
        };
        assert_eq!(engine.submit(submission, Nanos(0)), Submit::Queued);
        while !engine.is_idle() {
            for output in engine.step(Nanos(0)).outputs {
                if let Output::Started { cached_tokens, .. } = output {
                    hits.push(cached_tokens);
                }
            }
        }
    }
    assert_eq!(hits, [0, 0, 0, 48, 48]);
}
