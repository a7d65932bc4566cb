//! Behind a prefix that went through FP8, logits are near those behind the prefix itself, and not
//! the same; and what is named there is named otherwise.

use std::collections::HashSet;
use std::sync::Arc;

use headstart_cache::policy::Lru;
use headstart_core::{BlockHash, BlockId, CacheEvent, Nanos, Rng, SeqId, TokenId};
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{CpuExecutor, LanguageModel, QueueOrder, Sampling, Submit};
use headstart_engine::{Engine, EngineConfig, Submission};
use headstart_scheduler::{Batch, Entry};

const BLOCK_SIZE: usize = 16;

/// Blocks of the prefix, and of all.
const PREFIX: usize = 12;
const ALL: usize = 16;

fn model(dtype: Dtype) -> Arc<LanguageModel> {
    let mut config = toy::config();
    (config.hidden, config.intermediate, config.num_layers) = (128, 160, 3);
    (config.num_heads, config.num_kv_heads, config.head_dim) = (6, 2, 32);
    config.vocab = 300;
    let defaults = GenerationDefaults::default();
    Arc::new(toy::with_config(config, defaults, dtype))
}

fn tokens(count: usize) -> Vec<TokenId> {
    let mut rng = Rng::new(1);
    (0..count).map(|_| rng.below(300) as TokenId).collect()
}

fn batch(tokens: &[TokenId], start: usize) -> Batch {
    let blocks = (0..(start + tokens.len()).div_ceil(BLOCK_SIZE) as u32).map(BlockId);
    let entry = Entry {
        seq: SeqId(1),
        tokens: tokens.to_vec(),
        start,
        blocks: blocks.collect(),
        sampling: Some(Sampling::default()),
        pruned: None,
    };
    Batch { entries: vec![entry], ..Batch::default() }
}

/// Logits behind a prefix that was stored and loaded.
fn logits(dtype: Dtype, stored: KvStorageFormat) -> Vec<f32> {
    let model = model(dtype);
    let pool = || CpuExecutor::new(model.clone(), dtype, ALL, BLOCK_SIZE).with_stored(stored);
    let (mut first, mut second) = (pool(), pool());
    let all = tokens(ALL * BLOCK_SIZE);
    let (prefix, rest) = all.split_at(PREFIX * BLOCK_SIZE);
    first.logits(&batch(prefix, 0));
    let from = first.pool_mut().layers_mut().iter();
    for (from, to) in from.zip(second.pool_mut().layers_mut()) {
        for block in (0..PREFIX as u32).map(BlockId) {
            let mut bytes = vec![0; from.stored_bytes()];
            from.store(block, &mut bytes);
            to.load(block, &bytes);
        }
    }
    second.logits(&batch(rest, prefix.len()))
}

#[test]
fn behind_what_was_rounded_logits_are_near_and_not_the_same() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let [exact, lossy] =
            [KvStorageFormat::Same, KvStorageFormat::Fp8].map(|stored| logits(dtype, stored));
        let largest = exact.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let errors = exact.iter().zip(&lossy).map(|(a, b)| (a - b).abs());
        let error = errors.fold(0.0, f32::max) / largest;
        assert!(error > 1e-4, "{dtype:?}: {error}: nothing was rounded");
        assert!(error < 0.1, "{dtype:?}: {error}");
    }
}

/// Names of the blocks that a prompt leaves.
fn names(dtype: Dtype, stored: KvStorageFormat) -> HashSet<BlockHash> {
    let config = EngineConfig {
        cache_blocks: ALL,
        block_size: BLOCK_SIZE,
        kv_dtype: dtype,
        stored,
        max_batched_tokens: 512,
        max_sequences: 1,
        max_waiting: 1,
        order: QueueOrder::FirstCome,
    };
    let mut engine = Engine::new(model(dtype), "toy", config, Box::new(Lru::new(ALL)));
    let submission = Submission::greedy(SeqId(1), tokens(PREFIX * BLOCK_SIZE), 1);
    assert_eq!(engine.submit(submission, Nanos(0)), Submit::Queued);
    let mut names = HashSet::new();
    while !engine.is_idle() {
        for event in engine.step(Nanos(0)).events {
            if let CacheEvent::Stored(stored) = event {
                names.extend(stored.blocks);
            }
        }
    }
    assert_eq!(names.len(), PREFIX);
    names
}

#[test]
fn beside_lossy_tiers_blocks_have_names_of_their_own_also_on_the_device() {
    let kinds = [
        (Dtype::F32, KvStorageFormat::Same),
        (Dtype::F32, KvStorageFormat::Fp8),
        (Dtype::Bf16, KvStorageFormat::Same),
        (Dtype::Bf16, KvStorageFormat::Fp8),
    ];
    let mut all = HashSet::new();
    for (dtype, stored) in kinds {
        all.extend(names(dtype, stored));
    }
    assert_eq!(all.len(), kinds.len() * PREFIX, "none is shared");
}
