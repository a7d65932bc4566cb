//! Copying layer by layer beside computing gives what copying everything first gives: the same
//! logits, the same bytes stored, the same blocks; and what an engine stores is what its blocks held
//! when it said so, however soon they are overwritten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_cache::Tiers;
use headstart_cache::policy::{Lru, Random};
use headstart_cache::tiers::{
    Admission, Assumed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::transfer::{
    BlockMover, DevicePart, FoundUnit, Moved, Transfer, TransferId, TransferResult, Unit,
};
use headstart_core::{
    BlockHash, BlockId, EngineModel, IdentityDigest, Nanos, Rng, SeqId, TenantTag, Tier, TokenId,
};
use headstart_engine::engine::{EngineConfig, StopTokens};
use headstart_engine::kv::Dtype;
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{
    Arrival, Batch, Copies, CpuExecutor, Engine, Entry, Executor, Model, Output, QueueOrder,
    Sampling, Submission,
};

const BLOCK_SIZE: usize = 16;
const UNIT_BLOCKS: usize = 2;
const UNIT_TOKENS: usize = UNIT_BLOCKS * BLOCK_SIZE;
const BLOCKS: usize = 40;
const LAYERS: usize = 5;
const VOCAB: usize = 300;

/// Bytes of each part.
type Parts = Vec<Vec<u8>>;

fn model() -> Arc<Model> {
    let mut config = toy::config();
    (config.hidden, config.intermediate, config.num_layers) = (64, 96, LAYERS);
    (config.num_heads, config.num_kv_heads, config.head_dim) = (4, 2, 16);
    config.vocab = VOCAB;
    let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
    Arc::new(model)
}

/// Bytes of a part of a block.
fn part_bytes(model: &Model) -> usize {
    let config = &model.config;
    2 * config.num_kv_heads * config.head_dim * BLOCK_SIZE * Dtype::F32.bytes()
}

fn disk(write: WriteWhen, most_at_hand: usize) -> Tiers {
    let config = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_SIZE,
        unit_bytes: 1,
        most_at_hand,
        engine: EngineModel::default_engine(),
        load: LoadWhen::Always,
    };
    let disk = TierConfig {
        tier: Tier::Disk,
        capacity_units: 1_000,
        policy: Box::new(Lru::new(1_000)),
        admission: Admission::Always,
        write,
        shares: Shares::default(),
        assumed: Assumed {
            latency_s: 0.0,
            bytes_per_s: 1e9,
        },
    };
    Tiers::new(config, vec![disk])
}

/// Keeps what it is told to, and says at once that it is there.
#[derive(Default)]
struct Shelf {
    to_read: Vec<(BlockHash, Vec<BlockId>)>,
    /// Of these, the parts that were read.
    reading: Vec<Parts>,
    kept: HashMap<BlockHash, Parts>,
    moved: Vec<Moved>,
    loads: usize,
}

impl BlockMover for Shelf {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store {
                id,
                unit,
                blocks,
                to,
            } => {
                self.to_read.push((unit.name, blocks));
                self.reading.push(Vec::new());
                let result = TransferResult::Done;
                let stored = |tier| Moved::Stored { id, tier, result };
                self.moved.extend(to.into_iter().map(stored));
            }
            Transfer::Load { id, .. } => {
                self.loads += 1;
                self.moved.push(Moved::Loaded {
                    id,
                    result: TransferResult::Done,
                    ago: Duration::ZERO,
                });
            }
            _ => {}
        }
    }

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        for ((_, blocks), parts) in self.to_read.iter().zip(&mut self.reading) {
            assert_eq!(parts.len(), part, "one part after the other");
            let mut bytes = vec![0; blocks.len() * device.block_bytes()];
            let pieces = bytes.chunks_exact_mut(device.block_bytes()).zip(blocks);
            pieces.for_each(|(piece, &block)| device.read(block, piece));
            parts.push(bytes);
        }
    }

    fn end_reads(&mut self) {
        let read = self.to_read.drain(..).zip(self.reading.drain(..));
        for ((name, _), parts) in read {
            assert_eq!(parts.len(), LAYERS, "every part is read");
            self.kept.insert(name, parts);
        }
    }

    fn poll(&mut self, moved: &mut Vec<Moved>) {
        moved.append(&mut self.moved);
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.kept.get(&name).map(|parts| &*parts[part])
    }
}

fn unit(number: u64) -> Unit {
    Unit {
        name: BlockHash::from_u64(number),
        parent: None,
        identity: IdentityDigest::default(),
        tenant: TenantTag::default(),
    }
}

fn store(number: u64, blocks: &[BlockId]) -> Transfer {
    Transfer::Store {
        id: TransferId(number),
        unit: unit(number),
        blocks: blocks.to_vec(),
        to: vec![Tier::Disk],
    }
}

/// Arrivals of units that are kept already, by number.
struct Claims(Tiers);

impl Claims {
    fn new(units: u64) -> Self {
        let mut tiers = disk(WriteWhen::Through, units as usize);
        let found = |number| FoundUnit {
            name: unit(number).name,
            parent: None,
            tenant: TenantTag::default(),
        };
        let units = (0..units).map(found).collect();
        let tier = Tier::Disk;
        tiers.moved(Moved::Found { tier, units }, Nanos(0));
        Self(tiers)
    }

    fn arrival(&mut self, number: u64, blocks: Vec<(usize, BlockId)>) -> Arrival {
        let claim = self.0.fetch(&unit(number), Nanos(0));
        Arrival {
            seq: SeqId(number),
            claim: claim.expect("it was found"),
            end: UNIT_TOKENS,
            blocks,
        }
    }
}

/// How copies are carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// All of them, then everything is computed: the reference.
    First,
    /// Each layer while the one before is computed.
    Beside,
}

/// An executor and its shelf, on which some units of noise lie.
struct Bench {
    way: Way,
    executor: CpuExecutor,
    shelf: Shelf,
}

const UNITS: u64 = 8;

impl Bench {
    fn new(way: Way, model: &Arc<Model>) -> Self {
        let executor = CpuExecutor::new(model.clone(), Dtype::F32, BLOCKS, BLOCK_SIZE);
        let mut rng = Rng::new(7);
        let mut part = |_| -> Vec<u8> {
            let numbers = (0..UNIT_BLOCKS * part_bytes(model) / 4).map(|_| rng.next_f64() as f32);
            numbers.flat_map(f32::to_le_bytes).collect()
        };
        let mut parts = |_| (0..LAYERS).map(&mut part).collect();
        let kept = (0..UNITS).map(|number| (unit(number).name, parts(number)));
        Self {
            way,
            executor,
            shelf: Shelf {
                kept: kept.collect(),
                ..Shelf::default()
            },
        }
    }

    fn step(&mut self, batch: &Batch, stores: &[Transfer]) -> Vec<f32> {
        stores.iter().for_each(|it| self.shelf.submit(it.clone()));
        let stored = stores.len() * UNIT_BLOCKS;
        let mut copies = Copies::new(&mut self.shelf, &batch.arrivals, stored);
        if self.way == Way::First
            && let Some(copies) = copies.take()
        {
            self.executor.copy(copies);
        }
        let logits = self.executor.logits_and_copies(batch, copies);
        self.shelf.end_reads();
        logits
    }

    /// All that its blocks hold.
    fn dump(&mut self) -> Vec<Parts> {
        let all: Vec<BlockId> = (0..BLOCKS as u32).map(BlockId).collect();
        let stores = all.chunks(UNIT_BLOCKS).enumerate();
        let stores = stores.map(|(number, blocks)| store(9_000 + number as u64, blocks));
        stores.for_each(|transfer| self.shelf.submit(transfer));
        let copies = Copies::new(&mut self.shelf, &[], BLOCKS);
        self.executor.copy(copies.expect("there are blocks"));
        self.shelf.end_reads();
        let names = (0..BLOCKS / UNIT_BLOCKS).map(|number| unit(9_000 + number as u64).name);
        names
            .map(|name| self.shelf.kept.remove(&name).expect("just read"))
            .collect()
    }
}

fn tokens(rng: &mut Rng, len: usize) -> Vec<TokenId> {
    (0..len).map(|_| rng.below(VOCAB) as TokenId).collect()
}

/// Sequences of an own context each, some of it arrived; stores of any blocks.
fn random_step(rng: &mut Rng, claims: &mut Claims, number: u64) -> (Batch, Vec<Transfer>) {
    let mut blocks: Vec<BlockId> = (0..BLOCKS as u32).map(BlockId).collect();
    rng.shuffle(&mut blocks);
    let stores = (0..rng.below(4) as u64).map(|at| {
        let first = rng.below(BLOCKS - UNIT_BLOCKS);
        store(100 + 10 * number + at, &blocks[first..first + UNIT_BLOCKS])
    });
    let stores = stores.collect();
    let mut batch = Batch::default();
    for (at, own) in blocks.chunks_exact(6).take(1 + rng.below(5)).enumerate() {
        let start = UNIT_TOKENS + rng.below(20);
        let count = 1 + rng.below(6 * BLOCK_SIZE - start);
        batch.entries.push(Entry {
            seq: SeqId(at as u64),
            tokens: tokens(rng, count),
            start,
            blocks: own.to_vec(),
            sampling: Some(Sampling::default()),
        });
        if rng.below(2) == 0 {
            let first = rng.below(UNIT_BLOCKS);
            let numbered = (0..UNIT_BLOCKS).zip(own.iter().copied()).skip(first);
            let number = rng.below(UNITS as usize) as u64;
            let arrival = claims.arrival(number, numbered.collect());
            batch.arrivals.push(arrival);
        }
    }
    (batch, stores)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn layer_by_layer_is_all_before() {
    let model = model();
    let (mut arrived, mut stored) = (0, 0);
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut claims = Claims::new(UNITS);
        let [mut first, mut beside] = [Way::First, Way::Beside].map(|way| Bench::new(way, &model));
        for number in 0..10 {
            let (batch, stores) = random_step(&mut rng, &mut claims, number);
            arrived += batch.arrivals.len();
            stored += stores.len();
            let logits = bits(&first.step(&batch, &stores));
            let what = format!("seed {seed}, step {number}: {batch:?}");
            assert!(
                bits(&beside.step(&batch, &stores)) == logits,
                "logits, {what}"
            );
            assert!(beside.shelf.kept == first.shelf.kept, "stored, {what}");
        }
        assert!(beside.dump() == first.dump(), "blocks, seed {seed}");
    }
    assert!(arrived > 200 && stored > 200, "{arrived}, {stored}");
}

/// A block that is stored, arrives and is computed into, all in one step.
#[test]
fn what_is_stored_is_what_was_there_before_the_step() {
    let model = model();
    let own: Vec<BlockId> = [7, 3, 12].map(BlockId).to_vec();
    for way in [Way::First, Way::Beside] {
        let mut claims = Claims::new(UNITS);
        let mut bench = Bench::new(way, &model);
        let arrival = |claims: &mut Claims, number| {
            let blocks = (0..UNIT_BLOCKS).zip(own.iter().copied()).collect();
            claims.arrival(number, blocks)
        };
        let old = Batch {
            arrivals: vec![arrival(&mut claims, 1)],
            ..Batch::default()
        };
        bench.step(&old, &[]);
        // A unit arrives where the other is, and its last tokens are computed once more.
        let new = Batch {
            arrivals: vec![arrival(&mut claims, 2)],
            entries: vec![Entry {
                seq: SeqId(1),
                tokens: (0..20).collect(),
                start: UNIT_TOKENS - 10,
                blocks: own.clone(),
                sampling: None,
            }],
        };
        bench.step(&new, &[store(50, &own[..UNIT_BLOCKS])]);
        let kept = &bench.shelf.kept;
        let [stored, arrived] = [50, 1].map(|number| &kept[&unit(number).name]);
        assert!(stored == arrived, "{way:?}: what was there before");
        bench.step(&Batch::default(), &[store(51, &own[..UNIT_BLOCKS])]);
        let kept = &bench.shelf.kept;
        let [after, arrived] = [51, 2].map(|number| &kept[&unit(number).name]);
        let half = part_bytes(&model);
        for (after, arrived) in after.iter().zip(arrived) {
            assert!(after[..half] == arrived[..half], "{way:?}: as it arrived");
            assert!(after[half..] != arrived[half..], "{way:?}: computed");
        }
    }
}

/// What the device held after each step, as whoever copies everything at once would read it.
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

    fn poll(&mut self, moved: &mut Vec<Moved>) {
        let mut counts = self.counts.lock().expect("one thread");
        counts.loaded += std::mem::take(&mut self.shelf.loads);
        // A unit that nobody has read yet can be stored nowhere.
        let is_there = |it: &Moved| !matches!(it, Moved::Stored { .. });
        counts.waiting += usize::from(!self.expected.is_empty());
        let (there, later) = match self.expected.is_empty() {
            true => (std::mem::take(&mut self.shelf.moved), Vec::new()),
            false => self.shelf.moved.drain(..).partition(is_there),
        };
        self.shelf.moved = later;
        moved.extend(there);
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.shelf.part(name, part)
    }
}

/// Writes back or through by `seed`.
fn watched_engine(model: &Arc<Model>, seed: u64, counts: &Arc<Mutex<Counts>>) -> Engine {
    let mut bench = Bench::new(Way::Beside, model);
    let snapshot = Arc::new(Mutex::new(bench.dump()));
    let watched = Watched {
        bench,
        snapshot: snapshot.clone(),
    };
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
        max_batched_tokens: 70,
        max_sequences: 6,
        max_waiting: 100,
        order: QueueOrder::FirstCome,
    };
    // What was committed last is overwritten next, at times.
    let policy = Box::new(Random::new(BLOCKS, seed));
    let write = [WriteWhen::Through, WriteWhen::Back][seed as usize % 2];
    let executor: (Box<dyn Executor + Send>, usize) = (Box::new(watched), 512);
    let engine = Engine::with_executor(model.clone(), "copies", config, policy, executor);
    engine.with_tiers(disk(write, 20), Box::new(witness))
}

fn submission(id: u64, prompt: Vec<TokenId>, max_tokens: usize) -> Submission {
    Submission {
        id: SeqId(id),
        prompt,
        max_tokens,
        sampling: Sampling::default(),
        stop_at_end: StopTokens::Ignore,
        salt: None,
        request_type: 0,
        turn: 0,
        session: None,
        p_continue: None,
    }
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
            let is_last =
                |it: &&Output| matches!(it, Output::Token { finish, .. } if finish.is_some());
            answered += outputs.iter().filter(is_last).count();
        }
        assert!(answered > 0, "seed {seed}: some were left for the end");
        preempted += engine.load().preemptions;
    }
    let counts = counts.lock().expect("one thread");
    let has_met = counts.stored > 500 && counts.loaded > 100 && counts.waiting > 100;
    assert!(
        has_met && preempted > 10,
        "{counts:?}, {preempted} preempted"
    );
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
