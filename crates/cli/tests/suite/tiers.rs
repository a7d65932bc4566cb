//! The engine with a real disk below it: answers are those of an engine that keeps nothing, though
//! most of a prompt comes from files, also after a restart, and also when these are damaged.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_cache::Tiers;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::{EngineModel, Nanos, Rng, SeqId, Tier, TokenId};
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{Engine, EngineConfig, Submission};
use headstart_engine::{LanguageModel, Output, QueueOrder, Submit};
use headstart_store::backend::no_waker;
use headstart_store::disk::unix_seconds;
use headstart_store::record::Exactness;
use headstart_store::tiered::{Below, Lifetimes, StoreConfig};
use headstart_store::{Disk, DiskOptions, TieredStore};

const BLOCK_SIZE: usize = 16;
const UNIT_BLOCKS: usize = 2;

fn model(dtype: Dtype) -> Arc<LanguageModel> {
    let mut config = toy::config();
    (config.hidden, config.intermediate, config.num_layers) = (64, 96, 3);
    (config.num_heads, config.num_kv_heads, config.head_dim) = (4, 2, 16);
    config.vocab = 300;
    let defaults = GenerationDefaults::default();
    Arc::new(toy::with_config(config, defaults, dtype))
}

/// Format of keys and values in an engine, and in its tiers.
type Kept = (Dtype, KvStorageFormat);

fn engine(model: &Arc<LanguageModel>, (dtype, stored): Kept, cache_blocks: usize) -> Engine {
    let config = EngineConfig {
        cache_blocks,
        block_size: BLOCK_SIZE,
        kv_dtype: dtype,
        stored,
        max_batched_tokens: 64,
        max_sequences: 4,
        max_waiting: 64,
        order: QueueOrder::FirstCome,
    };
    let policy = Box::new(Lru::new(cache_blocks));
    Engine::new(model.clone(), "toy", config, policy)
}

/// An engine with little memory of its own and a disk in `folder`.
fn tiered(
    model: &Arc<LanguageModel>,
    (dtype, kept): Kept,
    folder: &Path,
    host_units: usize,
    (write, load): (WriteWhen, LoadWhen),
) -> Engine {
    let layer_bytes = kept.layer_bytes(&model.config, dtype, BLOCK_SIZE);
    let store = StoreConfig {
        part_bytes: vec![layer_bytes; model.config.num_layers],
        exactness: match kept {
            KvStorageFormat::Same => Exactness::Exact,
            KvStorageFormat::Fp8 => Exactness::Lossy,
        },
        unit_blocks: UNIT_BLOCKS,
        unit_tokens: (UNIT_BLOCKS * BLOCK_SIZE) as u32,
        host_units,
        staging_units: 48,
        lifetimes: Lifetimes::default(),
        now_s: unix_seconds,
        notes: None,
        parts: None,
    };
    let options = DiskOptions::new(folder, 32 << 20);
    let (disk, found) = Disk::open(options, no_waker()).expect("it opens");
    let config = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_SIZE,
        unit_bytes: store.unit_bytes(),
        most_at_hand: 24,
        engine: EngineModel::default_engine(),
        load,
    };
    let tier = |tier, capacity_units| TierConfig {
        tier,
        capacity_units,
        policy: Box::new(Lru::new(capacity_units)),
        admission: Admission::Always,
        write,
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 1e-4, bytes_per_s: 1e9 },
    };
    let host = (host_units > 0).then(|| tier(Tier::Host, host_units));
    let tiers = host.into_iter().chain([tier(Tier::Disk, 2_000)]).collect();
    let below = Below { tier: Tier::Disk, backend: Box::new(disk), found };
    let store = TieredStore::new(store, vec![below], no_waker()).expect("memory");
    engine(model, (dtype, kept), 30).with_tiers(Tiers::new(config, tiers), Box::new(store))
}

/// Answers of twelve tokens, several prompts at once, and how many tokens were loaded for them.
fn answers(engine: &mut Engine, prompts: &[Vec<TokenId>]) -> (Vec<Vec<TokenId>>, usize) {
    answers_at(engine, prompts, 1)
}

/// The same, with time `times` as fast, so that loads are late.
fn answers_at(
    engine: &mut Engine,
    prompts: &[Vec<TokenId>],
    times: u64,
) -> (Vec<Vec<TokenId>>, usize) {
    for (index, prompt) in prompts.iter().enumerate() {
        let submission = Submission::greedy(SeqId(index as u64), prompt.clone(), 12);
        assert_eq!(engine.submit(submission, Nanos(0)), Submit::Queued);
    }
    let mut answers = vec![Vec::new(); prompts.len()];
    let mut loaded = 0;
    let started = Instant::now();
    while !engine.is_idle() {
        assert!(started.elapsed() < Duration::from_secs(60), "it ends");
        let now = Nanos(started.elapsed().as_nanos() as u64 * times);
        let step = engine.step(now);
        for output in &step.outputs {
            match *output {
                Output::Started { .. } | Output::Partly { .. } => {}
                Output::Loaded { tokens, .. } => loaded += tokens,
                Output::Token { seq, token, .. } => answers[seq.0 as usize].push(token),
            }
        }
        engine.check();
        if step.is_empty {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    // What was handed over is written by then, or is not needed.
    for _ in 0..200 {
        engine.look_round(Nanos(started.elapsed().as_nanos() as u64));
        std::thread::sleep(Duration::from_micros(100));
    }
    (answers, loaded)
}

/// Conversations that begin alike and take turns: more than the device holds.
fn turns(seed: u64) -> Vec<Vec<Vec<TokenId>>> {
    let mut rng = Rng::new(seed);
    let mut tokens =
        |count: usize| -> Vec<TokenId> { (0..count).map(|_| rng.below(300) as TokenId).collect() };
    let system = tokens(70);
    let mut conversations: Vec<Vec<TokenId>> = vec![system; 6];
    let mut turns = Vec::new();
    for _ in 0..4 {
        for conversation in &mut conversations {
            let more = tokens(45);
            conversation.extend(more);
        }
        turns.push(conversations.clone());
    }
    turns
}

/// Plays all turns, each on a newly started engine, and returns the tokens loaded.
fn play(dtype: Dtype, host_units: usize, write: WriteWhen, harm: impl Fn(&Path, usize)) -> usize {
    let model = model(dtype);
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("cache");
    let mut all_loaded = 0;
    for (number, prompts) in turns(3).into_iter().enumerate() {
        let mut plain = engine(&model, (dtype, KvStorageFormat::Same), 400);
        let expected: Vec<_> = prompts
            .iter()
            .map(|prompt| answers(&mut plain, std::slice::from_ref(prompt)).0.remove(0))
            .collect();
        let mut engine = tiered(
            &model,
            (dtype, KvStorageFormat::Same),
            &folder,
            host_units,
            (write, LoadWhen::Always),
        );
        for round in 0..2 {
            let (got, loaded) = answers(&mut engine, &prompts);
            assert_eq!(got, expected, "turn {number}, round {round}");
            all_loaded += loaded;
        }
        drop(engine);
        harm(&folder, number);
    }
    all_loaded
}

#[test]
fn answers_from_disk_are_those_of_an_engine_that_keeps_nothing() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let loaded = play(dtype, 0, WriteWhen::Through, |_, _| {});
        assert!(loaded > 2_000, "{dtype:?}: {loaded} tokens were loaded");
    }
}

#[test]
fn so_they_are_through_host_memory_and_with_write_back() {
    let loaded = play(Dtype::F32, 8, WriteWhen::Back, |_, _| {});
    assert!(loaded > 500, "{loaded} tokens were loaded");
    let loaded = play(Dtype::F32, 8, WriteWhen::Through, |_, _| {});
    assert!(loaded > 2_000, "{loaded} tokens were loaded");
}

#[test]
fn damaged_files_cost_time_and_nothing_else() {
    let harm = |folder: &Path, number: usize| {
        let mut rng = Rng::new(number as u64);
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if !path.to_string_lossy().contains("segment-") {
                continue;
            }
            let mut options = std::fs::File::options();
            let file = options.read(true).write(true).open(path).expect("a file");
            let bytes = file.metadata().expect("a file").len() as usize;
            for _ in 0..60 {
                let at = 4096 + rng.below(bytes - 4096) as u64;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("in the file");
                file.write_all_at(&[byte[0] ^ 4], at).expect("in the file");
            }
        }
    };
    let loaded = play(Dtype::F32, 0, WriteWhen::Through, harm);
    assert!(loaded > 500, "{loaded} tokens were loaded");
}

/// Loads that come too late, in the middle of computing what they bring.
#[test]
fn what_comes_late_is_computed_and_the_rest_is_loaded() {
    let model = model(Dtype::F32);
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("cache");
    let (mut loaded, mut prompt_tokens) = (0, 0);
    for (number, prompts) in turns(5).into_iter().enumerate() {
        for prompt in &prompts {
            let exact = (Dtype::F32, KvStorageFormat::Same);
            let mut plain = engine(&model, exact, 400);
            let (expected, _) = answers(&mut plain, std::slice::from_ref(prompt));
            for times in [1, 20, 100, 1_000] {
                let when = (WriteWhen::Through, LoadWhen::Faster);
                let mut engine = tiered(&model, exact, &folder, 0, when);
                engine.look_round(Nanos(0));
                let (got, some) = answers_at(&mut engine, std::slice::from_ref(prompt), times);
                assert_eq!(got, expected, "turn {number}, time {times} times as fast");
                loaded += some;
                prompt_tokens += prompt.len();
            }
        }
    }
    assert!(loaded > prompt_tokens / 10 && loaded < prompt_tokens, "{loaded} of {prompt_tokens}");
}

/// Engines whose tiers are lossy and engines whose tiers are exact, in turns on one folder: neither
/// finds what the other stored, and the exact ones answer as if nothing were kept.
#[test]
fn what_is_lossy_is_never_taken_for_what_is_exact() {
    let model = model(Dtype::F32);
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("cache");
    let mut rng = Rng::new(7);
    let prompt = |_| (0..200).map(|_| rng.below(300) as TokenId).collect();
    let prompts: Vec<Vec<TokenId>> = (0..6).map(prompt).collect();
    let [exact, lossy] =
        [KvStorageFormat::Same, KvStorageFormat::Fp8].map(|kept| (Dtype::F32, kept));
    for (kept, is_new) in [(lossy, true), (exact, true), (lossy, false), (exact, false)] {
        let when = (WriteWhen::Through, LoadWhen::Always);
        let mut engine = tiered(&model, kept, &folder, 0, when);
        engine.look_round(Nanos(0));
        let mut all_loaded = 0;
        for prompt in &prompts {
            let prompt = std::slice::from_ref(prompt);
            let (got, loaded) = answers(&mut engine, prompt);
            all_loaded += loaded;
            if kept == exact || is_new {
                let mut plain = self::engine(&model, exact, 400);
                assert_eq!(got, answers(&mut plain, prompt).0, "{kept:?}");
            }
        }
        if is_new {
            assert_eq!(all_loaded, 0, "{kept:?}: what the other kind stored");
        } else {
            assert!(all_loaded > 600, "{kept:?}: {all_loaded} tokens");
        }
        let tiers = engine.tiers().expect("made with tiers").summary();
        assert!(tiers.iter().all(|tier| tier.counts.failed == 0), "{kept:?}");
    }
}
