//! Host memory that keeps all units it receives, and claims on them.

use std::collections::HashMap;
use std::time::Duration;

use headstart_cache::Tiers;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::transfer::{
    BlockMover, DevicePart, FoundUnit, PartName, Transfer, TransferId, TransferReport,
    TransferResult, Unit,
};
use headstart_core::{
    BlockHash, BlockId, EngineModel, IdentityDigest, Nanos, SeqId, TenantTag, Tier,
};
use headstart_engine::Arrival;

use super::{BLOCK_SIZE, LAYERS, UNIT_BLOCKS, UNIT_TOKENS};

/// Bytes of each part.
pub(crate) type Parts = Vec<Vec<u8>>;

pub(crate) fn disk(write: WriteWhen, most_at_hand: usize) -> Tiers {
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
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
    };
    Tiers::new(config, vec![disk])
}

/// Keeps each stored unit and reports it as stored at once.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) to_read: Vec<(BlockHash, Vec<BlockId>)>,
    /// Of these, the parts that were read.
    pub(crate) reading: Vec<Parts>,
    /// Parts that the device came to since the last end.
    pub(crate) passed: usize,
    pub(crate) kept: HashMap<BlockHash, Parts>,
    pub(crate) moved: Vec<TransferReport>,
    pub(crate) loads: usize,
}

impl BlockMover for Shelf {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { id, unit, blocks, to } => {
                self.to_read.push((unit.name, blocks));
                self.reading.push(Vec::new());
                let result = TransferResult::Done;
                let stored = |tier| TransferReport::Stored { id, tier, result };
                self.moved.extend(to.into_iter().map(stored));
            }
            Transfer::Load { id, .. } => {
                self.loads += 1;
                self.moved.push(TransferReport::Loaded {
                    id,
                    result: TransferResult::Done,
                    ago: Duration::ZERO,
                });
            }
            _ => {}
        }
    }

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        assert_eq!(part, self.passed, "from the first part on, each once");
        self.passed += 1;
        for ((_, blocks), parts) in self.to_read.iter().zip(&mut self.reading) {
            assert_eq!(parts.len(), part, "one part after the other");
            let mut bytes = vec![0; blocks.len() * device.block_bytes()];
            let pieces = bytes.chunks_exact_mut(device.block_bytes()).zip(blocks);
            pieces.for_each(|(piece, &block)| device.read(block, piece));
            parts.push(bytes);
        }
    }

    fn end_reads(&mut self) {
        assert_eq!(std::mem::take(&mut self.passed), LAYERS, "also without stores");
        let read = self.to_read.drain(..).zip(self.reading.drain(..));
        for ((name, _), parts) in read {
            assert_eq!(parts.len(), LAYERS, "every part is read");
            self.kept.insert(name, parts);
        }
    }

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        moved.append(&mut self.moved);
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.kept.get(&name).map(|parts| &*parts[part])
    }

    fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
        None
    }
}

pub(crate) fn unit(number: u64) -> Unit {
    Unit {
        name: BlockHash::from_u64(number),
        parent: None,
        identity: IdentityDigest::default(),
        tenant: TenantTag::default(),
    }
}

pub(crate) fn store(number: u64, blocks: &[BlockId]) -> Transfer {
    Transfer::Store {
        id: TransferId(number),
        unit: unit(number),
        blocks: blocks.to_vec(),
        to: vec![Tier::Disk],
    }
}

/// Arrivals of units that are kept already, by number.
pub(crate) struct Claims(Tiers);

impl Claims {
    pub(crate) fn new(units: u64) -> Self {
        let mut tiers = disk(WriteWhen::Through, units as usize);
        let found = |number| FoundUnit {
            name: unit(number).name,
            parent: None,
            tenant: TenantTag::default(),
        };
        let units = (0..units).map(found).collect();
        let tier = Tier::Disk;
        tiers.moved(TransferReport::Found { tier, units }, Nanos(0));
        Self(tiers)
    }

    pub(crate) fn arrival(&mut self, number: u64, blocks: Vec<(usize, BlockId)>) -> Arrival {
        let claim = self.0.fetch(&unit(number), Nanos(0));
        Arrival {
            seq: SeqId(number),
            claim: claim.expect("it was found"),
            end: UNIT_TOKENS,
            blocks,
        }
    }
}
