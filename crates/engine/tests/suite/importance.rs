//! Prompts whose stored prefix is loaded in part, against those whose prefix is not.

mod oracle;
mod shelf;

use std::sync::Arc;

use headstart_cache::policy::Lru;
use headstart_core::{CacheEvent, Nanos, Rng, SeqId, TokenId};
use headstart_engine::config::ModelConfig;
use headstart_engine::engine::EngineConfig;
use headstart_engine::importance::ImportanceConfig;
use headstart_engine::kv::{Dtype, KvStorageFormat, Probes};
use headstart_engine::model::toy;
use headstart_engine::{Engine, GenerationDefaults, LanguageModel, Output, QueueOrder, Submission};
use headstart_selective::{GuardOptions, Selecting};

use shelf::{Shared, Shelf, disk};

const BLOCK_SIZE: usize = 16;
const UNIT_BLOCKS: usize = 4;
const UNIT_TOKENS: usize = BLOCK_SIZE * UNIT_BLOCKS;

fn model_of(num_kv_heads: usize) -> Arc<LanguageModel> {
    let config = ModelConfig {
        hidden: 64,
        intermediate: 96,
        num_layers: 3,
        num_heads: 8,
        num_kv_heads,
        head_dim: 16,
        vocab: 200,
        ..toy::config()
    };
    let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
    Arc::new(model)
}

fn config(blocks: usize) -> EngineConfig {
    EngineConfig {
        cache_blocks: blocks,
        block_size: BLOCK_SIZE,
        kv_dtype: Dtype::F32,
        stored: KvStorageFormat::Same,
        max_batched_tokens: 256,
        max_sequences: 8,
        max_waiting: 100,
        order: QueueOrder::FirstCome,
    }
}

fn importance(model: &LanguageModel, ratio: f64, kept_bytes: [u64; 2]) -> ImportanceConfig {
    ImportanceConfig {
        probes: Probes::of(&model.config),
        selecting: Selecting {
            ratio,
            // Random weights agree on nothing.
            falls_back: false,
            ..Selecting::default()
        },
        least_tokens: 2 * UNIT_TOKENS,
        guard: GuardOptions { sample: 0.0, ..GuardOptions::default() },
        most_at_once: 2,
        packing: None,
        kept_bytes,
        is_host_far: false,
        policy: Arc::new(|slots| Box::new(Lru::new(slots))),
    }
}

fn engine(
    model: &Arc<LanguageModel>,
    blocks: usize,
    importance: Option<ImportanceConfig>,
    shelf: Shelf,
) -> Engine {
    let policy = Box::new(Lru::new(blocks));
    let engine = Engine::new(model.clone(), "importance", config(blocks), policy);
    let engine = engine.with_tiers(disk(1_000), Box::new(shelf));
    match importance {
        Some(importance) => engine.with_importance(importance),
        None => engine,
    }
}

fn tokens(rng: &mut Rng, count: usize) -> Vec<TokenId> {
    (0..count).map(|_| rng.below(200) as TokenId).collect()
}

fn submission(id: u64, prompt: Vec<TokenId>, max_tokens: usize) -> Submission {
    Submission::greedy(SeqId(id), prompt, max_tokens)
}

/// Result of a prompt.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    tokens: Vec<TokenId>,
    cached: usize,
    loaded: usize,
    partly: Option<(u64, u64)>,
}

#[derive(Default)]
struct Clock(u64);

/// Runs until nothing is left to do.
fn run(engine: &mut Engine, clock: &mut Clock, answers: &mut [Answer]) -> Vec<CacheEvent> {
    let mut events = Vec::new();
    for _ in 0..100_000 {
        clock.0 += 100_000;
        let step = engine.step(Nanos(clock.0));
        engine.check();
        events.extend(step.events);
        for output in step.outputs {
            match output {
                Output::Started { seq, cached_tokens } => {
                    answers[seq.0 as usize].cached = cached_tokens;
                }
                Output::Loaded { seq, tokens, .. } => answers[seq.0 as usize].loaded += tokens,
                Output::Partly { seq, loaded_bytes, whole_bytes, .. } => {
                    answers[seq.0 as usize].partly = Some((loaded_bytes, whole_bytes));
                }
                Output::Token { seq, token, .. } => answers[seq.0 as usize].tokens.push(token),
            }
        }
        if engine.is_idle() {
            // What was handed over is stored.
            for _ in 0..100 {
                events.extend(engine.look_round(Nanos(clock.0)));
            }
            return events;
        }
    }
    panic!("the engine did not finish");
}

/// A document and questions about it, one after the other, the device cleared between them.
fn converse(
    engine: &mut Engine,
    (document, questions): (&[TokenId], &[Vec<TokenId>]),
    is_cleared: bool,
) -> (Vec<Answer>, Vec<CacheEvent>) {
    let mut clock = Clock::default();
    let mut answers: Vec<Answer> = Vec::new();
    answers.resize_with(questions.len() + 1, Answer::default);
    engine.submit(submission(0, document.to_vec(), 1), Nanos(0));
    run(engine, &mut clock, &mut answers);
    let mut events = Vec::new();
    for (index, question) in questions.iter().enumerate() {
        if is_cleared {
            engine.clear_device(Nanos(clock.0));
        }
        let prompt = [document, question].concat();
        engine.submit(submission(index as u64 + 1, prompt, 6), Nanos(clock.0));
        events.extend(run(engine, &mut clock, &mut answers));
    }
    (answers, events)
}

fn talk(seed: u64) -> (Vec<TokenId>, Vec<Vec<TokenId>>) {
    let mut rng = Rng::new(seed);
    let document = tokens(&mut rng, 9 * UNIT_TOKENS + 7);
    let questions = (0..4).map(|_| {
        let count = 5 + rng.below(60);
        tokens(&mut rng, count)
    });
    let questions = questions.collect();
    (document, questions)
}

#[test]
fn all_that_matters_is_all_of_it() {
    for num_kv_heads in [8, 4, 1] {
        let model = model_of(num_kv_heads);
        let (document, questions) = talk(1);
        for kept in [0, 1 << 30] {
            let (shelf, _) = Shelf::new(1, 0, false);
            let mut plain = engine(&model, 200, None, shelf);
            let (expected, _) = converse(&mut plain, (&document, &questions), true);
            let (shelf, seen) = Shelf::new(1, 0, false);
            let importance = importance(&model, 1.0, [0, kept]);
            let mut partly = engine(&model, 200, Some(importance), shelf);
            let (answers, _) = converse(&mut partly, (&document, &questions), true);
            for (answer, expected) in answers.iter().zip(&expected).skip(1) {
                assert_eq!(answer.tokens, expected.tokens);
                assert_eq!(answer.loaded, 9 * UNIT_TOKENS);
                assert_eq!(answer.partly, None, "nothing was left out");
            }
            let seen = seen.lock().expect("one thread");
            assert_eq!(seen.whole_loads, 0);
            // Layers, parts of each, units.
            let parts = 3 * 2 * 9;
            let (loads, at_hand) = match kept {
                0 => (4 * parts, 0),
                _ => (parts, parts),
            };
            assert_eq!((seen.part_loads, seen.at_hand), (loads, at_hand));
        }
    }
}

#[test]
fn nothing_behind_it_is_committed_announced_or_stored() {
    let model = model_of(4);
    let (document, questions) = talk(2);
    let (shelf, seen) = Shelf::new(1, 0, true);
    let importance = importance(&model, 0.02, [0, 0]);
    let mut engine = engine(&model, 200, Some(importance), shelf);
    let (answers, events) = converse(&mut engine, (&document, &questions), true);
    for answer in &answers[1..] {
        let (loaded, whole) = answer.partly.expect("it was loaded in part");
        assert!(loaded < whole, "{loaded} of {whole}");
        assert_eq!(answer.tokens.len(), 6);
    }
    let stored = |event: &&CacheEvent| matches!(event, CacheEvent::Stored { .. });
    assert_eq!(events.iter().filter(stored).count(), 0, "{events:?}");
    let stored = seen.lock().expect("one thread").stored.len();
    assert_eq!(stored, 9, "the document's units and no others");
    // The same prompt again finds what the document alone left, and no more.
    let report = engine.importance().expect("it is on");
    assert_eq!((report.tally.prompts, report.tally.failed), (4, 0));
}

/// A replica's thread calls `look_round` when it is woken; a step reports the resulting token.
#[test]
fn one_that_ends_with_its_first_token_is_told_it() {
    let model = model_of(4);
    let (document, questions) = talk(6);
    let (shelf, _) = Shelf::new(1, 0, true);
    let importance = importance(&model, 0.5, [0, 0]);
    let mut engine = engine(&model, 200, Some(importance), shelf);
    let mut answers = [Answer::default(), Answer::default()];
    let mut clock = Clock::default();
    engine.submit(submission(0, document.clone(), 1), Nanos(0));
    run(&mut engine, &mut clock, &mut answers);
    engine.clear_device(Nanos(clock.0));
    let prompt = [&document[..], &questions[0]].concat();
    engine.submit(submission(1, prompt, 1), Nanos(clock.0));
    let mut told = 0;
    while !engine.is_idle() {
        clock.0 += 100_000;
        let step = engine.step(Nanos(clock.0));
        let tokens = step.outputs.iter();
        told += tokens.filter(|output| matches!(output, Output::Token { .. })).count();
        engine.look_round(Nanos(clock.0));
    }
    assert_eq!(told, 1);
    assert_eq!(engine.importance().expect("it is on").tally.prompts, 1);
}

#[test]
fn whoever_wants_all_of_it_gets_it() {
    let model = model_of(4);
    let (document, questions) = talk(3);
    let prompt = [&document[..], &questions[0]].concat();
    let (shelf, seen) = Shelf::new(1, 0, false);
    let mut partly = engine(&model, 200, Some(importance(&model, 0.1, [0, 0])), shelf);
    let mut clock = Clock::default();
    let mut answers = [Answer::default(), Answer::default()];
    partly.submit(submission(0, document, 1), Nanos(0));
    run(&mut partly, &mut clock, &mut answers);
    partly.clear_device(Nanos(clock.0));
    let exact = Submission { is_exact: true, ..submission(1, prompt.clone(), 6) };
    partly.submit(exact, Nanos(clock.0));
    let events = run(&mut partly, &mut clock, &mut answers);
    assert_eq!(answers[1].partly, None);
    assert_eq!(seen.lock().expect("one thread").whole_loads, 9);
    let (shelf, _) = Shelf::new(1, 0, false);
    let mut plain = engine(&model, 200, None, shelf);
    let mut expected = [Answer::default(), Answer::default()];
    plain.submit(submission(1, prompt, 6), Nanos(0));
    run(&mut plain, &mut Clock::default(), &mut expected);
    assert_eq!(answers[1].tokens, expected[1].tokens);
    let stored = |event: &&CacheEvent| matches!(event, CacheEvent::Stored { .. });
    assert!(events.iter().filter(stored).count() > 0, "and it is kept");
}

#[test]
fn what_does_not_come_is_computed() {
    let model = model_of(8);
    let (document, questions) = talk(4);
    let (shelf, _) = Shelf::new(1, 0, false);
    let (expected, _) =
        converse(&mut engine(&model, 200, None, shelf), (&document, &questions), true);
    let (shelf, seen) = Shelf::new(7, 2, true);
    let importance = importance(&model, 1.0, [0, 1 << 20]);
    let mut partly = engine(&model, 200, Some(importance), shelf);
    let (answers, _) = converse(&mut partly, (&document, &questions), true);
    for (answer, expected) in answers.iter().zip(&expected).skip(1) {
        assert_eq!(answer.tokens, expected.tokens);
    }
    let tally = partly.importance().expect("it is on").tally;
    assert!(tally.failed > 0, "{tally:?}");
    assert!(seen.lock().expect("one thread").failed > 0);
}

/// Two prompts that need the same parts at once: what is read for one is not read for the other.
#[test]
fn what_two_prompts_need_at_once_is_read_once() {
    let model = model_of(4);
    let (document, questions) = talk(8);
    let (shelf, seen) = Shelf::new(1, 0, true);
    let mut engine = engine(&model, 200, Some(importance(&model, 1.0, [0, 0])), shelf);
    let mut answers = [Answer::default(), Answer::default(), Answer::default()];
    let mut clock = Clock::default();
    engine.submit(submission(0, document.clone(), 1), Nanos(0));
    run(&mut engine, &mut clock, &mut answers);
    engine.clear_device(Nanos(clock.0));
    for (id, question) in (1..).zip(&questions[..2]) {
        let prompt = [&document[..], question].concat();
        engine.submit(submission(id, prompt, 2), Nanos(clock.0));
    }
    run(&mut engine, &mut clock, &mut answers);
    let tally = engine.importance().expect("it is on").tally;
    let [_, _, read, shared] = tally.parts;
    let reads = seen.lock().expect("one thread").part_loads as u64;
    assert_eq!((tally.prompts, read), (2, reads), "{tally:?}");
    assert!(shared > 0 && read + shared == tally.parts.iter().sum::<u64>());
    assert_eq!(tally.bytes.iter().sum::<u64>(), tally.loaded_bytes());
}

/// A prompt whose parts come too late, and one that is cancelled meanwhile, are no failures.
#[test]
fn who_is_late_and_who_leaves_is_told_apart() {
    let model = model_of(4);
    let (document, questions) = talk(7);
    let (shelf, _) = Shelf::new(1, 0, false);
    let mut plain = engine(&model, 200, None, shelf);
    let talk = (&document[..], &questions[..1]);
    let (expected, _) = converse(&mut plain, talk, true);
    let (shelf, seen) = Shelf::new(1, 0, false);
    let mut partly = engine(&model, 200, Some(importance(&model, 0.1, [0, 0])), shelf);
    let mut answers = [Answer::default(), Answer::default(), Answer::default()];
    let mut clock = Clock::default();
    partly.submit(submission(0, document.clone(), 1), Nanos(0));
    run(&mut partly, &mut clock, &mut answers);
    let stuck = |is_stuck| seen.lock().expect("one thread").is_stuck = is_stuck;
    for id in [1, 2] {
        partly.clear_device(Nanos(clock.0));
        stuck(true);
        let prompt = [&document[..], &questions[0]].concat();
        partly.submit(submission(id, prompt, 6), Nanos(clock.0));
        for _ in 0..10 {
            clock.0 += 100_000;
            partly.step(Nanos(clock.0));
        }
        match id {
            // Longer than anybody waits.
            1 => clock.0 += 1_000 * 1_000_000_000,
            _ => partly.cancel(SeqId(id), Nanos(clock.0)),
        }
        partly.step(Nanos(clock.0));
        stuck(false);
        run(&mut partly, &mut clock, &mut answers);
    }
    assert_eq!(answers[1].tokens, expected[1].tokens);
    assert_eq!(answers[1].partly, None, "all of it was loaded");
    let tally = partly.importance().expect("it is on").tally;
    let ends = (tally.prompts, tally.failed, tally.late, tally.left);
    assert_eq!(ends, (0, 0, 1, 1), "{tally:?}");
    assert_eq!(seen.lock().expect("one thread").at_hand, 0);
}

/// Prompts that come and go while others run, on a device that is too small for all.
fn crowd(
    seed: u64,
    importance: impl Fn(&LanguageModel) -> Option<ImportanceConfig>,
) -> (Vec<Answer>, Shared, Engine) {
    let model = model_of(4);
    let mut rng = Rng::new(seed);
    let documents: Vec<_> = (0..3).map(|_| tokens(&mut rng, 5 * UNIT_TOKENS)).collect();
    let (shelf, seen) = Shelf::new(seed, 1, true);
    let mut engine = engine(&model, 44, importance(&model), shelf);
    let mut clock = Clock::default();
    let mut answers: Vec<Answer> = Vec::new();
    answers.resize_with(40, Answer::default);
    for id in 0..40 {
        let document = &documents[rng.below(3)][..rng.below(6) * UNIT_TOKENS];
        let count = 1 + rng.below(90);
        let prompt = [document, &tokens(&mut rng, count)].concat();
        engine.submit(submission(id, prompt, 1 + rng.below(40)), Nanos(clock.0));
        let is_cancelled = rng.below(8) == 0;
        for _ in 0..rng.below(30) {
            clock.0 += 100_000;
            for output in engine.step(Nanos(clock.0)).outputs {
                if let Output::Token { seq, token, .. } = output {
                    answers[seq.0 as usize].tokens.push(token);
                }
            }
            engine.check();
        }
        if is_cancelled {
            engine.cancel(SeqId(id), Nanos(clock.0));
        }
        if rng.below(6) == 0 {
            engine.clear_device(Nanos(clock.0));
        }
    }
    run(&mut engine, &mut clock, &mut answers);
    (answers, seen, engine)
}

#[test]
fn a_crowd_gets_the_answers_that_it_gets_without() {
    let (mut prompts, mut failed, mut left, mut preempted) = (0, 0, 0, 0);
    for seed in 0..12 {
        let (expected, _, _) = crowd(seed, |_| None);
        let (answers, seen, engine) = crowd(seed, |model| {
            let kept = [0, [0, 1 << 16, 1 << 30][seed as usize % 3]];
            Some(importance(model, 1.0, kept))
        });
        for (id, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
            // Who is cancelled has got so far as steps went.
            let common = answer.tokens.len().min(expected.tokens.len());
            let (got, wanted) = (&answer.tokens[..common], &expected.tokens[..common]);
            assert_eq!(got, wanted, "seed {seed}, prompt {id}");
        }
        let tally = engine.importance().expect("it is on").tally;
        prompts += tally.prompts;
        failed += tally.failed;
        left += tally.left;
        preempted += engine.load().preemptions;
        if seed % 3 == 0 {
            assert_eq!(seen.lock().expect("one thread").at_hand, 0, "nothing is kept");
        }
    }
    assert!(
        prompts > 50 && failed > 5 && left > 2 && preempted > 5,
        "{prompts} {failed} {left} {preempted}"
    );
}
