//! A step's copies between device and host memory: all before the step, or each layer's while the
//! layer before is computed.
//!
//! ```bash
//! cargo bench -p headstart-engine --bench layer_copies              # 41 rounds
//! cargo bench -p headstart-engine --bench layer_copies -- 101
//! ```
//!
//! In each step, units of 64 tokens arrive or are stored while new tokens are computed behind 1,024
//! that the device holds or receives. The models are three built-in ones in f32. The ways take
//! turns. The output has medians, and of the ratios to the first way in the same round the median
//! and the middle half.
//!
//! Copying beside computing brings the step into the pool that computes, where a task is begun at
//! less cost than from a thread outside. What that alone does is seen in `pool`: all copies before
//! the step, and all of that in the pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use headstart_cache::Tiers;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::transfer::{
    BlockMover, DevicePart, FoundUnit, PartName, Transfer, TransferReport, Unit,
};
use headstart_core::{
    BlockHash, BlockId, EngineModel, IdentityDigest, Nanos, SeqId, TenantTag, Tier, TokenId,
};
use headstart_engine::kv::Dtype;
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{Arrival, Batch, Copies, CpuExecutor, Entry, Executor, Sampling};

const BLOCK_TOKENS: usize = 16;
const UNIT_BLOCKS: usize = 4;
const UNIT_TOKENS: usize = UNIT_BLOCKS * BLOCK_TOKENS;
/// Tokens before those that are computed.
const CONTEXT: usize = 1_024;
/// Blocks of the sequence, and others that are stored.
const BLOCKS: usize = 256;
/// Units in host memory: more than the processor's caches hold.
const UNITS: usize = 96;

/// Units that arrive, units that are stored, tokens that are computed.
const STEPS: [(usize, usize, usize); 7] =
    [(1, 0, 100), (4, 0, 100), (16, 0, 100), (16, 0, 1), (0, 1, 1), (0, 8, 1), (0, 8, 512)];

const WAYS: [&str; 3] = ["before", "beside", "pool"];

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let rounds: usize = rounds.unwrap_or(41);
    println!(
        "model      arrive  store  tokens  MB     before ms  beside ms  pool ms  beside/before \
         (middle half)  pool/before (middle half)"
    );
    for (name, hidden, intermediate, num_layers, num_heads) in [
        ("toy-small", 256, 512, 6, 4),
        ("toy", 512, 1_024, 8, 8),
        ("toy-large", 768, 2_048, 10, 12),
    ] {
        let mut config = toy::config();
        (config.hidden, config.intermediate) = (hidden, intermediate);
        (config.num_layers, config.num_heads) = (num_layers, num_heads);
        let mut bench = Bench::new(config);
        for step in STEPS {
            bench.compare(name, step, rounds);
        }
    }
}

struct Bench {
    executor: CpuExecutor,
    shelf: Shelf,
    tiers: Tiers,
    block_bytes: usize,
}

impl Bench {
    fn new(config: headstart_engine::ModelConfig) -> Self {
        let part_bytes =
            2 * config.num_kv_heads * config.head_dim * BLOCK_TOKENS * Dtype::F32.bytes();
        let num_parts = config.num_layers;
        let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
        let executor = CpuExecutor::new(Arc::new(model), Dtype::F32, BLOCKS, BLOCK_TOKENS);
        let parts = || vec![vec![1; UNIT_BLOCKS * part_bytes]; num_parts];
        let units = (0..UNITS).map(|number| (unit(number).name, parts()));
        Self {
            executor,
            shelf: Shelf {
                at_hand: units.collect(),
                drafts: (0..16).map(|_| parts()).collect(),
                stores: Vec::new(),
            },
            tiers: disk(),
            block_bytes: part_bytes * num_parts,
        }
    }

    fn compare(&mut self, name: &str, step: (usize, usize, usize), rounds: usize) {
        let mut took: [Vec<f64>; 3] = Default::default();
        for round in 0..rounds + 2 {
            for turn in 0..WAYS.len() {
                let way = (round + turn) % WAYS.len();
                let seconds = self.step(step, way, round * WAYS.len() + turn);
                // The first rounds grow buffers and touch pages.
                if round >= 2 {
                    took[way].push(seconds);
                }
            }
        }
        let ratios = |way: usize| {
            let pairs = took[way].iter().zip(&took[0]);
            let [low, middle, high] = quartiles(pairs.map(|(one, other)| one / other).collect());
            format!("{middle:.3} ({low:.3} – {high:.3})")
        };
        let (arrive, store, tokens) = step;
        let [before, beside, pool] = [0, 1, 2].map(|way| quartiles(took[way].clone())[1] * 1e3);
        println!(
            "{name:9}  {arrive:6}  {store:5}  {tokens:6}  {:5.2}  {before:9.3}  {beside:9.3}  \
             {pool:7.3}  {:>27}  {:>27}",
            ((arrive + store) * UNIT_BLOCKS * self.block_bytes) as f64 / 1e6,
            ratios(1),
            ratios(2),
        );
    }

    /// Seconds that a step takes.
    fn step(
        &mut self,
        (arrive, store, tokens): (usize, usize, usize),
        way: usize,
        number: usize,
    ) -> f64 {
        let blocks: Vec<BlockId> = (0..BLOCKS as u32).map(BlockId).collect();
        let arrivals = (0..arrive).map(|at| {
            let unit = unit((number * arrive + at) % UNITS);
            let own = blocks.iter().copied().skip(at * UNIT_BLOCKS);
            Arrival {
                seq: SeqId(1),
                claim: self.tiers.fetch(&unit, Nanos(0)).expect("found"),
                end: (at + 1) * UNIT_TOKENS,
                blocks: (0..UNIT_BLOCKS).zip(own).collect(),
            }
        });
        let batch = Batch {
            arrivals: arrivals.collect(),
            entries: vec![Entry {
                seq: SeqId(1),
                tokens: (0..tokens as TokenId).collect(),
                start: CONTEXT,
                blocks: blocks.clone(),
                sampling: Some(Sampling::default()),
                pruned: None,
            }],
        };
        let stored = blocks.chunks_exact(UNIT_BLOCKS).rev().take(store);
        self.shelf.stores = stored.map(<[BlockId]>::to_vec).collect();
        let executor = &mut self.executor;
        let began = Instant::now();
        let copies = Copies::new(&mut self.shelf, &batch.arrivals, store * UNIT_BLOCKS);
        let before = |executor: &mut CpuExecutor, copies| {
            executor.copy(copies);
            executor.logits(&batch)
        };
        let copies = copies.expect("each step copies something");
        let logits = match WAYS[way] {
            "beside" => executor.logits_and_copies(&batch, Some(copies)),
            "pool" => rayon::scope(|_| before(executor, copies)),
            _ => before(executor, copies),
        };
        let took = began.elapsed().as_secs_f64();
        assert!(std::hint::black_box(logits)[0].is_finite());
        took
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn unit(number: usize) -> Unit {
    Unit {
        name: BlockHash::from_u64(number as u64),
        parent: None,
        identity: IdentityDigest::default(),
        tenant: TenantTag::default(),
    }
}

/// A tier that holds all units, for claims on them.
fn disk() -> Tiers {
    let config = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_TOKENS,
        unit_bytes: 1,
        most_at_hand: UNITS,
        engine: EngineModel::default_engine(),
        load: LoadWhen::Always,
    };
    let disk = TierConfig {
        tier: Tier::Disk,
        capacity_units: UNITS,
        policy: Box::new(Lru::new(UNITS)),
        admission: Admission::Always,
        write: WriteWhen::Through,
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
    };
    let mut tiers = Tiers::new(config, vec![disk]);
    let found =
        |number| FoundUnit { name: unit(number).name, parent: None, tenant: TenantTag::default() };
    let units = (0..UNITS).map(found).collect();
    let tier = Tier::Disk;
    tiers.moved(TransferReport::Found { tier, units }, Nanos(0));
    tiers
}

/// Bytes of each part.
type Parts = Vec<Vec<u8>>;

/// Host memory.
struct Shelf {
    at_hand: HashMap<BlockHash, Parts>,
    drafts: Vec<Parts>,
    /// The blocks of each unit that is to be stored.
    stores: Vec<Vec<BlockId>>,
}

impl BlockMover for Shelf {
    fn submit(&mut self, _: Transfer) {}

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        for (draft, blocks) in self.drafts.iter_mut().zip(&self.stores) {
            let pieces = draft[part].chunks_exact_mut(device.block_bytes());
            for (piece, &block) in pieces.zip(blocks) {
                device.read(block, piece);
            }
        }
    }

    fn end_reads(&mut self) {}

    fn poll(&mut self, _: &mut Vec<TransferReport>) {}

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.at_hand.get(&name).map(|parts| &*parts[part])
    }

    fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
        None
    }
}
