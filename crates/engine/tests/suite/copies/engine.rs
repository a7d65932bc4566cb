//! Units stored by an engine, against the contents of their blocks when each store was issued.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use headstart_cache::policy::Random;
use headstart_cache::tiers::WriteWhen;
use headstart_core::transfer::{BlockMover, DevicePart, PartName, Transfer, TransferReport};
use headstart_core::{BlockHash, BlockId, Nanos, Rng, SeqId, TokenId};
use headstart_engine::engine::{BoundedExecutor, EngineConfig};
use headstart_engine::kv::Dtype;
use headstart_engine::{
    Batch, Copies, Engine, Executor, LanguageModel, Output, QueueOrder, Submission,
};

use super::shelf::{Parts, Shelf, disk};
use super::{BLOCK_SIZE, BLOCKS, Bench, LAYERS, UNIT_BLOCKS, UNIT_TOKENS, Way, model, tokens};

/// Device contents after the last step, as a reference that copies everything at once reads them.
type Snapshot = Arc<Mutex<Vec<Parts>>>;

/// Notes what its blocks hold whenever they may have changed.
struct Watched {
    bench: Bench,
    snapshot: Snapshot,
}

impl Executor for Watched {
    fn execute(&mut self, batch: &Batch, copies: Option<Copies<'_>>) -> Vec<TokenId> {
        let tokens = self.bench.executor.execute(batch, copies);
        *self.snapshot.lock().expect("one thread") = self.bench.dump();
        tokens
    }

    fn copy(&mut self, copies: Copies<'_>) {
        self.bench.executor.copy(copies);
        *self.snapshot.lock().expect("one thread") = self.bench.dump();
    }
}

/// Knows what each unit held when it was to be stored.
struct Witness {
    shelf: Shelf,
    snapshot: Snapshot,
    expected: HashMap<BlockHash, Parts>,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    stored: usize,
    loaded: usize,
    /// Stores that were not read when they were handed over.
    waiting: usize,
}

impl BlockMover for Witness {
    fn submit(&mut self, transfer: Transfer) {
        if let Transfer::Store { unit, blocks, .. } = &transfer {
            let snapshot = self.snapshot.lock().expect("one thread");
            let part = |part: usize| -> Vec<u8> {
                let block = |block: &BlockId| {
                    let unit: &Parts = &snapshot[block.index() / UNIT_BLOCKS];
                    let len = unit[part].len() / UNIT_BLOCKS;
                    let at = block.index() % UNIT_BLOCKS * len;
                    unit[part][at..at + len].to_vec()
                };
                blocks.iter().flat_map(block).collect()
            };
            let parts = (0..LAYERS).map(part).collect();
            self.expected.insert(unit.name, parts);
        }
        self.shelf.submit(transfer);
    }

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        self.shelf.read(part, device);
    }

    fn end_reads(&mut self) {
        self.shelf.end_reads();
        let mut counts = self.counts.lock().expect("one thread");
        for (name, expected) in self.expected.drain() {
            assert!(self.shelf.kept[&name] == expected, "what it held then");
            counts.stored += 1;
        }
    }

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        let mut counts = self.counts.lock().expect("one thread");
        counts.loaded += std::mem::take(&mut self.shelf.loads);
        // A unit cannot be reported as stored before it was read.
        let is_there = |report: &TransferReport| !matches!(report, TransferReport::Stored { .. });
        counts.waiting += usize::from(!self.expected.is_empty());
        let (there, later) = if self.expected.is_empty() {
            (std::mem::take(&mut self.shelf.moved), Vec::new())
        } else {
            self.shelf.moved.drain(..).partition(is_there)
        };
        self.shelf.moved = later;
        moved.extend(there);
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.shelf.part(name, part)
    }

    fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
        None
    }
}

/// Writes back or through by `seed`.
fn watched_engine(model: &Arc<LanguageModel>, seed: u64, counts: &Arc<Mutex<Counts>>) -> Engine {
    let mut bench = Bench::new(Way::Beside, model);
    let snapshot = Arc::new(Mutex::new(bench.dump()));
    let watched = Watched { bench, snapshot: snapshot.clone() };
    let witness = Witness {
        shelf: Shelf::default(),
        snapshot,
        expected: HashMap::new(),
        counts: counts.clone(),
    };
    let config = EngineConfig {
        cache_blocks: BLOCKS,
        block_size: BLOCK_SIZE,
        kv_dtype: Dtype::F32,
        stored: headstart_engine::kv::KvStorageFormat::Same,
        max_batched_tokens: 70,
        max_sequences: 6,
        max_waiting: 100,
        order: QueueOrder::FirstCome,
    };
    // What was committed last is overwritten next, at times.
    let policy = Box::new(Random::new(BLOCKS, seed));
    let write = [WriteWhen::Through, WriteWhen::Back][seed as usize % 2];
    let executor = BoundedExecutor { executor: Box::new(watched), max_context: 512 };
    let engine = Engine::with_executor(model.clone(), "copies", config, policy, executor);
    engine.with_tiers(disk(write, 20), Box::new(witness))
}

fn submission(id: u64, prompt: Vec<TokenId>, max_tokens: usize) -> Submission {
    Submission::greedy(SeqId(id), prompt, max_tokens)
}

/// More prompts than the device holds, which come again: preempted, cancelled, cleared away.
#[test]
fn an_engine_stores_what_its_blocks_held_when_it_said_so() {
    let model = model();
    let counts = Arc::new(Mutex::new(Counts::default()));
    let mut preempted = 0;
    for seed in 0..12 {
        let mut engine = watched_engine(&model, seed, &counts);
        let mut rng = Rng::new(seed);
        let starts: Vec<_> = (0..6).map(|_| tokens(&mut rng, 130)).collect();
        let mut now = 0;
        for id in 0..40 {
            let mut prompt = starts[rng.below(starts.len())][..1 + rng.below(130)].to_vec();
            let more = rng.below(40);
            prompt.extend(tokens(&mut rng, more));
            engine.submit(submission(id, prompt, 1 + rng.below(50)), Nanos(now));
            for _ in 0..rng.below(12) {
                now += 1_000_000;
                engine.step(Nanos(now));
                engine.check();
            }
            match rng.below(12) {
                0 => engine.cancel(SeqId(rng.below(id as usize + 1) as u64), Nanos(now)),
                1 => engine.clear_device(Nanos(now)),
                2 => drop(engine.look_round(Nanos(now))),
                _ => {}
            }
        }
        let mut answered = 0;
        while !engine.is_idle() {
            now += 1_000_000;
            let outputs = engine.step(Nanos(now)).outputs;
            let is_last = |output: &&Output| match output {
                Output::Token { finish, .. } => finish.is_some(),
                _ => false,
            };
            answered += outputs.iter().filter(is_last).count();
        }
        assert!(answered > 0, "seed {seed}: some were left for the end");
        preempted += engine.load().preemptions;
    }
    let counts = counts.lock().expect("one thread");
    let has_met = counts.stored > 500 && counts.loaded > 100 && counts.waiting > 100;
    assert!(has_met && preempted > 10, "{counts:?}, {preempted} preempted");
}

/// Nothing more comes that could copy it.
#[test]
fn an_idle_engine_has_nothing_left_to_copy() {
    let model = model();
    for is_cancelled in [false, true] {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let mut engine = watched_engine(&model, 0, &counts);
        let prompt = tokens(&mut Rng::new(1), 3 * UNIT_TOKENS + 5);
        let max_tokens = if is_cancelled { 9 } else { 1 };
        engine.submit(submission(1, prompt, max_tokens), Nanos(0));
        // In chunks of 70 tokens; the second one has the third unit.
        for at in 1..3 {
            engine.step(Nanos(at));
        }
        if is_cancelled {
            assert_eq!(counts.lock().expect("one thread").stored, 2);
            engine.cancel(SeqId(1), Nanos(3));
        }
        assert!(engine.is_idle());
        assert_eq!(counts.lock().expect("one thread").stored, 3);
    }
}
