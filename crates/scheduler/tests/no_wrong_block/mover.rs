//! Lower tiers that keep digests, and a mover that is slow, fails, and loses what it keeps.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use headstart_cache::policy::{Hazard, HazardOptions, Lru};
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, Tiers, TiersConfig, WriteWhen,
};
use headstart_core::transfer::{
    BlockMover, DevicePart, PartName, Transfer, TransferId, TransferReport, TransferResult,
};
use headstart_core::{BlockHash, BlockId, CostModel, EngineModel, Rng, Tier};

use crate::BLOCK_SIZE;

const UNIT_BLOCKS: usize = 2;

type Unit = Vec<u8>;

pub(crate) struct Mover {
    rng: Rng,
    tiers: HashMap<(Tier, BlockHash), Unit>,
    at_hand: HashMap<BlockHash, Unit>,
    unread: Vec<Unread>,
    waiting: VecDeque<Waiting>,
    pub(crate) loads: usize,
    pub(crate) failed: usize,
}

/// A unit whose blocks are to be read.
struct Unread {
    id: TransferId,
    name: BlockHash,
    blocks: Vec<BlockId>,
    to: Vec<Tier>,
}

enum Waiting {
    Write(TransferId, BlockHash, Tier, Option<Unit>),
    Load(TransferId, BlockHash, Tier),
}

impl Mover {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed ^ 0xabc),
            tiers: HashMap::new(),
            at_hand: HashMap::new(),
            unread: Vec::new(),
            waiting: VecDeque::new(),
            loads: 0,
            failed: 0,
        }
    }

    fn carry_out(&mut self, waiting: Waiting) -> TransferReport {
        let fails = self.rng.below(10) == 0;
        match waiting {
            Waiting::Write(id, name, tier, bytes) => {
                let result = match bytes.filter(|_| !fails) {
                    Some(bytes) => {
                        self.tiers.insert((tier, name), bytes);
                        TransferResult::Done
                    }
                    None => TransferResult::Failed,
                };
                TransferReport::Stored { id, tier, result }
            }
            Waiting::Load(id, name, from) => {
                let bytes = self.tiers.get(&(from, name)).cloned();
                match bytes.filter(|_| !fails) {
                    Some(bytes) => {
                        self.loads += 1;
                        self.at_hand.insert(name, bytes);
                        let result = TransferResult::Done;
                        TransferReport::Loaded { id, result, ago: Duration::ZERO }
                    }
                    None => {
                        self.failed += 1;
                        self.tiers.remove(&(from, name));
                        let result = TransferResult::Failed;
                        TransferReport::Loaded { id, result, ago: Duration::ZERO }
                    }
                }
            }
        }
    }

    fn lose(&mut self) -> Option<TransferReport> {
        let mut held: Vec<_> = self.tiers.keys().copied().collect();
        held.sort_unstable();
        let at = (!held.is_empty()).then(|| self.rng.below(held.len()))?;
        let (tier, name) = held[at];
        self.tiers.remove(&(tier, name));
        Some(TransferReport::Lost { tier, names: vec![name] })
    }

    /// Whether a tier still has a unit.
    pub(crate) fn holds(&self, tier: Tier, name: BlockHash) -> bool {
        self.tiers.contains_key(&(tier, name))
    }

    /// Whether it holds no loaded unit and no transfer is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.at_hand.is_empty() && self.waiting.is_empty() && self.unread.is_empty()
    }
}

impl BlockMover for Mover {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { id, unit, blocks, to } => {
                assert_eq!(blocks.len(), UNIT_BLOCKS);
                let name = unit.name;
                self.unread.push(Unread { id, name, blocks, to });
            }
            Transfer::Demote { id, name, from, to } => {
                // It may have been lost, which is reported later.
                let bytes = self.tiers.get(&(from, name)).cloned();
                self.waiting.push_back(Waiting::Write(id, name, to, bytes));
            }
            Transfer::Load { id, name, from } => {
                self.waiting.push_back(Waiting::Load(id, name, from));
            }
            Transfer::Keep { name, tier } => {
                let bytes = self.at_hand[&name].clone();
                self.tiers.insert((tier, name), bytes);
            }
            Transfer::Release { name } => {
                self.at_hand.remove(&name).expect("it was at hand");
            }
            Transfer::Note { .. } => {}
            other @ (Transfer::LoadPart { .. }
            | Transfer::ReleaseParts { .. }
            | Transfer::Pack { .. }) => unreachable!("nobody asks for {other:?}"),
            Transfer::Forget { tier, names } => {
                for name in names {
                    self.tiers.remove(&(tier, name));
                }
            }
        }
    }

    fn read(&mut self, _: usize, device: &dyn DevicePart) {
        let len = device.block_bytes();
        for Unread { id, name, blocks, to } in self.unread.drain(..) {
            let mut bytes = vec![0; blocks.len() * len];
            let pieces = bytes.chunks_exact_mut(len).zip(blocks);
            pieces.for_each(|(piece, block)| device.read(block, piece));
            for tier in to {
                let write = Waiting::Write(id, name, tier, Some(bytes.clone()));
                self.waiting.push_back(write);
            }
        }
    }

    fn end_reads(&mut self) {
        assert!(self.unread.is_empty(), "there is one part");
    }

    /// Carries out some of the waiting transfers, in any order, and loses a unit now and then.
    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        while !self.waiting.is_empty() && self.rng.below(3) > 0 {
            let at = self.rng.below(self.waiting.len());
            let waiting = self.waiting.remove(at).expect("it is there");
            moved.push(self.carry_out(waiting));
        }
        if self.rng.below(40) == 0 {
            moved.extend(self.lose());
        }
    }

    fn part(&self, name: BlockHash, _: usize) -> Option<&[u8]> {
        self.at_hand.get(&name).map(Vec::as_slice)
    }

    fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
        None
    }
}

/// Tiers of every kind, by seed; computing and loading cost about the same, so that all plans
/// occur.
pub(crate) fn tiers(seed: u64) -> Tiers {
    let mut rng = Rng::new(seed);
    let cost = CostModel {
        overhead_s: 1e-4,
        weights_s: 0.0,
        token_s: 1e-4,
        pair_s: 0.0,
        kv_token_s: 0.0,
        sequence_s: 0.0,
    };
    let config = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_SIZE,
        unit_bytes: 1_000,
        most_at_hand: 3 + rng.below(20),
        engine: EngineModel { cost, max_batched_tokens: 10, kv_tokens: 100, load_token_s: 0.0 },
        load: match seed % 7 {
            0 => LoadWhen::Always,
            _ => LoadWhen::Faster,
        },
    };
    let mut tier = |tier, capacity_units| TierConfig {
        tier,
        capacity_units,
        policy: match rng.below(2) {
            0 => Box::new(Lru::new(capacity_units)),
            _ => Box::new(Hazard::new(capacity_units, HazardOptions::default())),
        },
        admission: match rng.below(3) {
            0 => Admission::Offered { times: 2 },
            _ => Admission::Always,
        },
        write: match rng.below(3) {
            0 => WriteWhen::Through,
            1 => WriteWhen::Back,
            _ => WriteWhen::AtEnd,
        },
        shares: Shares { each: seed.is_multiple_of(3).then_some(9), ..Shares::default() },
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: [5e5, 1e6, 1e9][rng.below(3)] },
    };
    let tiers = match seed % 3 {
        0 => vec![tier(Tier::Disk, 30)],
        1 => vec![tier(Tier::Host, 8), tier(Tier::Disk, 30)],
        _ => vec![tier(Tier::Host, 4), tier(Tier::Disk, 10), tier(Tier::Remote, 40)],
    };
    Tiers::new(config, tiers)
}
