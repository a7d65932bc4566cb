//! Copying layer by layer beside computing gives what copying everything first gives: the same
//! logits, the same bytes stored, the same blocks; and what an engine stores is what its blocks
//! held when it said so, however soon they are overwritten.

mod engine;
mod shelf;

use std::sync::Arc;

use headstart_core::transfer::{BlockMover, Transfer};
use headstart_core::{BlockId, Rng, SeqId, TokenId};
use headstart_engine::kv::Dtype;
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{Batch, Copies, CpuExecutor, Entry, Executor, LanguageModel, Sampling};

use shelf::{Claims, Parts, Shelf, store, unit};

const BLOCK_SIZE: usize = 16;
const UNIT_BLOCKS: usize = 2;
const UNIT_TOKENS: usize = UNIT_BLOCKS * BLOCK_SIZE;
const BLOCKS: usize = 40;
const LAYERS: usize = 5;
const VOCAB: usize = 300;

fn model() -> Arc<LanguageModel> {
    let mut config = toy::config();
    (config.hidden, config.intermediate, config.num_layers) = (64, 96, LAYERS);
    (config.num_heads, config.num_kv_heads, config.head_dim) = (4, 2, 16);
    config.vocab = VOCAB;
    let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
    Arc::new(model)
}

/// Bytes of a part of a block.
fn part_bytes(model: &LanguageModel) -> usize {
    let config = &model.config;
    2 * config.num_kv_heads * config.head_dim * BLOCK_SIZE * Dtype::F32.bytes()
}

/// Order of copies and computation.
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
    fn new(way: Way, model: &Arc<LanguageModel>) -> Self {
        let executor = CpuExecutor::new(model.clone(), Dtype::F32, BLOCKS, BLOCK_SIZE);
        let mut rng = Rng::new(7);
        let mut part = |_| -> Vec<u8> {
            let numbers = (0..UNIT_BLOCKS * part_bytes(model) / 4).map(|_| rng.next_f64() as f32);
            numbers.flat_map(f32::to_le_bytes).collect()
        };
        let mut parts = |_| (0..LAYERS).map(&mut part).collect();
        let kept = (0..UNITS).map(|number| (unit(number).name, parts(number)));
        Self { way, executor, shelf: Shelf { kept: kept.collect(), ..Shelf::default() } }
    }

    fn step(&mut self, batch: &Batch, stores: &[Transfer]) -> Vec<f32> {
        stores.iter().for_each(|store| self.shelf.submit(store.clone()));
        let stored = stores.len() * UNIT_BLOCKS;
        let mut copies = Copies::new(&mut self.shelf, &batch.arrivals, stored);
        if self.way == Way::First
            && let Some(copies) = copies.take()
        {
            self.executor.copy(copies);
        }
        self.executor.logits_and_copies(batch, copies)
    }

    /// All that its blocks hold.
    fn dump(&mut self) -> Vec<Parts> {
        let all: Vec<BlockId> = (0..BLOCKS as u32).map(BlockId).collect();
        let stores = all.chunks(UNIT_BLOCKS).enumerate();
        let stores = stores.map(|(number, blocks)| store(9_000 + number as u64, blocks));
        stores.for_each(|transfer| self.shelf.submit(transfer));
        let copies = Copies::new(&mut self.shelf, &[], BLOCKS);
        self.executor.copy(copies.expect("there are blocks"));
        let names = (0..BLOCKS / UNIT_BLOCKS).map(|number| unit(9_000 + number as u64).name);
        names.map(|name| self.shelf.kept.remove(&name).expect("just read")).collect()
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
            pruned: None,
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
            assert!(bits(&beside.step(&batch, &stores)) == logits, "logits, {what}");
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
        let old = Batch { arrivals: vec![arrival(&mut claims, 1)], ..Batch::default() };
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
                pruned: None,
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
