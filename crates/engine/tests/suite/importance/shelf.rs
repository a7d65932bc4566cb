//! A disk in memory that answers in its own time, and sometimes does not find what it is asked for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_cache::Tiers;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::transfer::{
    BlockMover, DevicePart, Pack, PartName, TokenFormat, Transfer, TransferReport, TransferResult,
};
use headstart_core::{BlockHash, BlockId, EngineModel, Rng, Tier};

use headstart_engine::LanguageModel;
use headstart_engine::kv::{Dtype, Probes, RestFormat};

use super::{BLOCK_SIZE, UNIT_BLOCKS};

/// Counters of all requests to the shelf, for assertions.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) stored: HashSet<BlockHash>,
    pub(crate) whole_loads: usize,
    pub(crate) part_loads: usize,
    pub(crate) failed: usize,
    pub(crate) at_hand: usize,
    /// Whether nothing comes for the time being.
    pub(crate) is_stuck: bool,
}

pub(crate) type Shared = Arc<Mutex<Seen>>;

pub(crate) struct Shelf {
    seen: Shared,
    rng: Rng,
    /// Share of part loads that fail, in percent.
    fails: usize,
    /// Whether answers wait for some polls.
    is_slow: bool,
    to_read: Vec<(BlockHash, Vec<BlockId>, Vec<Vec<u8>>)>,
    kept: HashMap<BlockHash, Vec<Vec<u8>>>,
    at_hand: HashSet<PartName>,
    waiting: VecDeque<(TransferReport, Option<PartName>)>,
    /// Layout of tokens in the rest parts, for packs.
    format: Option<RestFormat>,
}

impl Shelf {
    pub(crate) fn new(seed: u64, fails: usize, is_slow: bool) -> (Self, Shared) {
        let seen = Shared::default();
        let shelf = Self {
            seen: seen.clone(),
            rng: Rng::new(seed),
            fails,
            is_slow,
            to_read: Vec::new(),
            kept: HashMap::new(),
            at_hand: HashSet::new(),
            waiting: VecDeque::new(),
            format: None,
        };
        (shelf, seen)
    }

    /// The same, which makes packs.
    pub(crate) fn with_format(self, model: &LanguageModel, probes: &Probes) -> Self {
        let format = probes.rest_format(&model.config, Dtype::F32, BLOCK_SIZE);
        Self { format: Some(format), ..self }
    }

    /// Writes a pack; part 0, its description, stays empty.
    fn pack(&mut self, pack: &Pack) {
        let format = self.format.expect("packs need a format");
        let unit_tokens = UNIT_BLOCKS * BLOCK_SIZE;
        let mut parts = vec![Vec::new()];
        for chunk in pack.order.chunks(unit_tokens) {
            let mut bytes = vec![0; format.block_bytes() * UNIT_BLOCKS];
            for (place, &token) in chunk.iter().enumerate() {
                let unit = pack.units[token as usize / unit_tokens];
                let from = &self.kept[&unit][usize::from(pack.part)];
                format.copy_token(from, token as usize % unit_tokens, &mut bytes, place);
            }
            parts.push(bytes);
        }
        self.kept.insert(pack.name, parts);
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("one thread")
    }
}

impl BlockMover for Shelf {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { id, unit, blocks, to } => {
                self.seen().stored.insert(unit.name);
                self.to_read.push((unit.name, blocks, Vec::new()));
                let result = TransferResult::Done;
                for tier in to {
                    let stored = TransferReport::Stored { id, tier, result };
                    self.waiting.push_back((stored, None));
                }
            }
            Transfer::Load { id, .. } => {
                self.seen().whole_loads += 1;
                let loaded = TransferReport::Loaded {
                    id,
                    result: TransferResult::Done,
                    ago: Duration::ZERO,
                };
                self.waiting.push_back((loaded, None));
            }
            Transfer::LoadPart { id, name, from } => {
                let fails = self.rng.below(100) < self.fails;
                let is_there = self.kept.contains_key(&name.record);
                assert!(is_there, "only what was stored is asked for");
                assert!(from == Tier::Disk || self.at_hand.contains(&name));
                let mut seen = self.seen();
                seen.part_loads += 1;
                seen.failed += usize::from(fails);
                drop(seen);
                let result = if fails { TransferResult::Failed } else { TransferResult::Done };
                let ago = Duration::ZERO;
                let loaded = TransferReport::PartLoaded { id, result, ago, took: Duration::ZERO };
                self.waiting.push_back((loaded, (!fails).then_some(name)));
            }
            Transfer::ReleaseParts { names } => {
                for name in names {
                    assert!(self.at_hand.remove(&name), "{name:?} is released once");
                }
                self.seen().at_hand = self.at_hand.len();
            }
            Transfer::Pack { id, pack, .. } => {
                self.pack(&pack);
                let result = TransferResult::Done;
                self.waiting.push_back((TransferReport::Packed { id, result }, None));
            }
            Transfer::Forget { names, .. } => names.iter().for_each(|name| {
                self.kept.remove(name);
            }),
            _ => {}
        }
    }

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        for (_, blocks, parts) in &mut self.to_read {
            let mut bytes = vec![0; blocks.len() * device.block_bytes()];
            let pieces = bytes.chunks_exact_mut(device.block_bytes()).zip(&*blocks);
            pieces.for_each(|(piece, &block)| device.read(block, piece));
            parts.resize_with(parts.len().max(part + 1), Vec::new);
            parts[part] = bytes;
        }
    }

    fn end_reads(&mut self) {
        for (name, _, parts) in self.to_read.drain(..) {
            self.kept.insert(name, parts);
        }
    }

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        let is_stuck = self.seen().is_stuck;
        let most = match (is_stuck, self.is_slow) {
            (true, _) => 0,
            (false, true) => self.rng.below(8),
            (false, false) => usize::MAX,
        };
        for _ in 0..most.min(self.waiting.len()) {
            let (there, name) = self.waiting.pop_front().expect("it was counted");
            self.at_hand.extend(name);
            moved.push(there);
        }
        self.seen().at_hand = self.at_hand.len();
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.kept.get(&name).map(|parts| &*parts[part])
    }

    fn loaded_part(&self, name: PartName) -> Option<&[u8]> {
        let is_here = self.at_hand.contains(&name);
        is_here.then(|| &*self.kept[&name.record][usize::from(name.part)])
    }
}

/// A disk tier that is always loaded from.
pub(crate) fn disk(capacity_units: usize) -> Tiers {
    let config = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_SIZE,
        unit_bytes: 1,
        most_at_hand: 1_000,
        engine: EngineModel::default_engine(),
        load: LoadWhen::Always,
    };
    let disk = TierConfig {
        tier: Tier::Disk,
        capacity_units,
        policy: Box::new(Lru::new(capacity_units)),
        admission: Admission::Always,
        write: WriteWhen::Through,
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
    };
    Tiers::new(config, vec![disk])
}
