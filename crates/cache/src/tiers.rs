//! Lower tiers: the units they hold, the transfers between tiers, and when these are worth it.
//!
//! ```text
//!   device       committed ─┬─ write-through ──► host, disk, remote   (admission)
//!                           └─ evicted, write-back ──► host
//!   host         evicted, write-back ──► disk ──► remote              (cascade)
//!   any tier     reach ─ plan (load or recompute) ─ fetch ─ ready ─ release
//! ```
//!
//! A pure state machine: it emits the transfers to make ([`Transfer`]) and receives their results
//! ([`TransferReport`](headstart_core::transfer::TransferReport)). The device itself is
//! [`crate::PrefixCache`]; what is here are units of several blocks, in tiers of which each has its
//! own capacity, policy and admission. A unit may be in several tiers at once.
//!
//! Loads are shared: a second request for a unit on its way waits for the same load. A loaded unit
//! is *ready* until all requests for it have been released, and may stay in host memory.
//!
//! Invariants: each tier's parts sum to its capacity; what is read from a tier is pinned there; a
//! ready unit has a user. Transfers under way, and ready units, have limits.
//!
//! Source of the policies of writing: SGLang's HiCache (through, back, selective), vLLM's
//! `store_threshold`. The model of when to load is ours after Cake, see [`plan`](mod@plan).

mod admission;
mod adviser;
mod change;
mod ended;
mod external;
mod level;
mod loads;
mod owners;
mod partly;
pub mod plan;
mod speed;
mod told;
mod warm;

use std::collections::HashMap;

use headstart_core::transfer::{Transfer, TransferId, Unit};
use headstart_core::{Access, BlockHash, BlockId, EngineModel, Nanos, Tier};

use crate::Policy;
use admission::{AdmissionCandidate, Offers};
use ended::EndedUnits;
use level::{Begin, Link, TierContents};
use loads::Loads;
use speed::Speed;
use warm::Warm;

pub use admission::Admission;
pub use adviser::{Advice, LoadAdviser, StoredRun};
pub use change::{Change, ChangeKind};
pub use ended::EndedUnit;
pub use external::ExternalTier;
pub use level::TierOccupancy;
pub use loads::{Claim, FetchState};
pub use owners::Shares;
pub use partly::{Hold, PARTS_FROM, PartlyPlan, PartlyQuestion};
pub use plan::{LoadWhen, Plan, Question, TierRun, plan};
pub use speed::AssumedSpeed;

/// Stores and demotions under way to a tier at once: each holds a unit's bytes in host memory. One
/// that hangs keeps none from the others.
const MOST_WRITES: usize = 256;

/// Settings common to all tiers.
#[derive(Clone, Copy, Debug)]
pub struct TiersConfig {
    /// Blocks of a unit.
    pub unit_blocks: usize,
    /// Tokens of a block.
    pub block_tokens: usize,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Limit on units that are ready or on their way: at least those of the longest prompt.
    pub most_at_hand: usize,
    /// Cost of computing, to compare with loading.
    pub engine: EngineModel,
    /// Whether to compare.
    pub load: LoadWhen,
}

/// One lower tier.
pub struct TierConfig {
    /// The tier.
    pub tier: Tier,
    /// Units that it holds.
    pub capacity_units: usize,
    /// The tier's eviction policy.
    pub policy: Box<dyn Policy>,
    /// The rule by which units are admitted.
    pub admission: Admission,
    /// When it is written.
    pub write: WriteWhen,
    /// Units that each tenant may hold in the tier.
    pub shares: Shares,
    /// Assumed speed, until transfers are measured.
    pub assumed: AssumedSpeed,
}

/// When a unit is written to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteWhen {
    /// As soon as it is computed: an eviction above writes nothing, and a crash loses little.
    Through,
    /// When the tier above evicts it: writes least.
    Back,
    /// When a request that used it ends, behind the units before it: the policy then knows the
    /// whole prompt, and how the answer ended.
    AtEnd,
}

/// Counters of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Units that were written.
    pub stored: u64,
    /// Units that were offered and not admitted.
    pub declined: u64,
    /// Units that were offered while too many others were on their way, each time.
    pub dropped: u64,
    /// Units that went to make room.
    pub evicted: u64,
    /// Units that could not be written.
    pub unstored: u64,
    /// Units that became unreadable without an eviction.
    pub lost: u64,
    /// Units that were brought to hand.
    pub loaded: u64,
    /// Loads that failed.
    pub failed: u64,
}

/// A tier at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSummary {
    /// The tier.
    pub tier: Tier,
    /// Units that it may hold.
    pub capacity_units: usize,
    /// Units that can be read.
    pub units: usize,
    /// Counters since the start.
    pub counts: TierCounts,
}

/// All lower tiers.
pub struct Tiers {
    config: TiersConfig,
    /// The nearest first.
    shelves: Vec<Shelf>,
    /// Units whose blocks are all on the device, where a tier wants what the device evicts.
    on_device: HashMap<BlockHash, OnDevice>,
    /// Units on their way to a tier.
    writes: HashMap<(TransferId, Tier), BlockHash>,
    loads: Loads,
    offers: Offers,
    warm: Warm,
    next_id: u64,
    transfers: Vec<Transfer>,
    changes: Vec<Change>,
}

/// A tier and what is known of it.
struct Shelf {
    tier: Tier,
    level: TierContents,
    admission: Admission,
    write: WriteWhen,
    speed: Speed,
    counts: TierCounts,
    /// Units of requests that have ended, which wait for their write.
    ended: EndedUnits,
}

/// A unit on the device.
struct OnDevice {
    unit: Unit,
    blocks: Vec<BlockId>,
    access: Access,
}

impl Tiers {
    /// Empty tiers, the nearest first.
    ///
    /// # Panics
    /// When they are not in order, or the device is among them.
    #[must_use]
    pub fn new(config: TiersConfig, tiers: Vec<TierConfig>) -> Self {
        let is_in_order = tiers.windows(2).all(|pair| pair[0].tier < pair[1].tier);
        let has_device = tiers.iter().any(|tier| tier.tier == Tier::Device);
        assert!(is_in_order && !has_device, "lower tiers, nearest first");
        let shelf = |mut tier: TierConfig| Shelf {
            tier: tier.tier,
            level: {
                tier.policy.serve_tier();
                TierContents::new(tier.capacity_units, tier.policy, tier.shares)
            },
            admission: tier.admission,
            write: tier.write,
            speed: Speed::new(tier.assumed, config.unit_bytes),
            counts: TierCounts::default(),
            ended: EndedUnits::default(),
        };
        Self {
            config,
            shelves: tiers.into_iter().map(shelf).collect(),
            on_device: HashMap::new(),
            writes: HashMap::new(),
            loads: Loads::default(),
            offers: Offers::default(),
            warm: Warm::default(),
            next_id: 0,
            transfers: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Returns the settings common to all tiers.
    #[must_use]
    pub fn config(&self) -> &TiersConfig {
        &self.config
    }

    /// From now on computing costs this.
    pub fn set_engine(&mut self, engine: EngineModel) {
        self.config.engine = engine;
    }

    /// Tokens of a unit.
    #[must_use]
    pub fn unit_tokens(&self) -> usize {
        self.config.unit_blocks * self.config.block_tokens
    }

    /// All blocks of a unit are on the device, the last one since now: it is offered to the tiers
    /// that are written at once. `access.offset` is its first block's.
    pub fn committed(&mut self, unit: Unit, blocks: &[BlockId], access: &Access) {
        // Only the nearest tier takes units that the device evicts, and only if it is write-back.
        let first_is_back = self.shelves.first().map(|shelf| shelf.write) == Some(WriteWhen::Back);
        if first_is_back {
            let on_device = OnDevice { unit, blocks: blocks.to_vec(), access: *access };
            self.on_device.insert(unit.name, on_device);
        }
        let through = |shelf: &Shelf| shelf.write == WriteWhen::Through;
        self.store(unit, blocks, access, through);
    }

    /// A request that found a unit on the device offers it again, where that is counted.
    pub fn offered(&mut self, unit: Unit, blocks: &[BlockId], access: &Access) {
        let counts = |shelf: &Shelf| {
            let is_counted = matches!(shelf.admission, Admission::Offered { .. });
            is_counted && shelf.write == WriteWhen::Through
        };
        self.store(unit, blocks, access, counts);
    }

    /// The device has evicted the block called `name`. Its bytes are there until the next step,
    /// which reads them before it overwrites any.
    pub fn evicted(&mut self, name: BlockHash, now: Nanos) {
        self.shelves.iter_mut().for_each(|shelf| shelf.ended.left_device(name));
        let Some(OnDevice { unit, blocks, access }) = self.on_device.remove(&name) else {
            return;
        };
        // The time is the eviction's; session and class are those of the last use.
        let access = Access { now, ..access };
        let first = self.shelves.first().map(|shelf| shelf.tier);
        self.store(unit, &blocks, &access, |shelf| Some(shelf.tier) == first);
    }

    /// A request has used these units of its prompt, in order, wherever they were.
    pub fn used(&mut self, names: &[BlockHash], access: &Access) {
        for shelf in &mut self.shelves {
            shelf.level.touch(names, access);
        }
        // An eviction carries no request of its own, so the last use is kept for it.
        for name in names {
            if let Some(unit) = self.on_device.get_mut(name) {
                // The offset is the unit's place in its prompt, which the request's access does not
                // tell.
                let offset = unit.access.offset;
                unit.access = Access { offset, ..*access };
            }
        }
        self.remember(names);
    }

    /// Copies a unit from the device to those tiers that `wants` and that admit it.
    fn store(
        &mut self,
        unit: Unit,
        blocks: &[BlockId],
        access: &Access,
        wants: impl Fn(&Shelf) -> bool,
    ) {
        let id = self.new_id();
        let link = told::link(&unit);
        let mut to = Vec::new();
        // The loop is by index, because `begin` borrows all tiers.
        for index in 0..self.shelves.len() {
            let is_wanted = wants(&self.shelves[index]);
            if is_wanted && self.begin(index, link, access) {
                to.push(self.shelves[index].tier);
            }
        }
        for &tier in &to {
            self.writes.insert((id, tier), unit.name);
        }
        if !to.is_empty() {
            self.transfers.push(Transfer::Store { id, unit, blocks: blocks.to_vec(), to });
        }
    }

    /// Whether another unit may be on its way to a tier.
    fn may_write(&self, index: usize) -> bool {
        let to = self.shelves[index].tier;
        let writing = self.writes.keys().filter(|(_, tier)| *tier == to);
        writing.count() < MOST_WRITES
    }

    /// Gives a unit a place in a tier, if it is admitted; what must go for it goes down.
    fn begin(&mut self, index: usize, link: Link, access: &Access) -> bool {
        if self.shelves[index].level.knows(link.name) {
            return false;
        }
        // This precedes admission, so that a dropped offer does not count there as one.
        if !self.may_write(index) {
            self.shelves[index].counts.dropped += 1;
            return false;
        }
        let tokens = self.unit_tokens();
        // Attention makes deep tokens dearer, so the depth is part of the cost.
        let before = access.offset as usize * self.config.block_tokens;
        // A tier counts in units.
        let offset = access.offset / self.config.unit_blocks as u32;
        let in_units = Access { offset, ..*access };
        let shelf = &mut self.shelves[index];
        let candidate = AdmissionCandidate {
            name: link.name,
            access,
            learned: match shelf.admission {
                Admission::Likely { .. } => shelf.level.chance_of_use(link.name, &in_units),
                _ => None,
            },
            compute_s: self.config.engine.prefill_s(before, tokens, 0.0),
            load_s: self.config.unit_bytes as f64 / shelf.speed.bytes_per_s(),
            bytes: self.config.unit_bytes,
        };
        if !shelf.admission.admits(&candidate, &mut self.offers) {
            shelf.counts.declined += 1;
            return false;
        }
        let mut evicted = Vec::new();
        let begun = shelf.level.begin(link, &in_units, &mut evicted);
        if begun == Begin::Declined {
            shelf.counts.declined += 1;
        }
        // These are evicted even if the newcomer was declined: its tenant's share had to give way
        // first.
        self.demote(index, evicted, access.now);
        begun == Begin::Started
    }

    /// Demotes a tier's evicted units to the tier below, if that one is write-back and admits them.
    fn demote(&mut self, index: usize, evicted: Vec<Link>, now: Nanos) {
        if evicted.is_empty() {
            return;
        }
        let tier = self.shelves[index].tier;
        self.shelves[index].counts.evicted += evicted.len() as u64;
        for link in &evicted {
            let name = link.name;
            self.changes.push(Change { tier, name, kind: ChangeKind::Removed });
            let below = self.shelves.get(index + 1);
            // A write-through tier was offered the unit when it was computed.
            let wants = below.is_some_and(|below| below.write == WriteWhen::Back);
            let access = Access::at(now);
            if !wants || !self.begin(index + 1, *link, &access) {
                continue;
            }
            let (id, to) = (self.new_id(), self.shelves[index + 1].tier);
            self.writes.insert((id, to), name);
            self.transfers.push(Transfer::Demote { id, name, from: tier, to });
        }
        let names = evicted.into_iter().map(|link| link.name).collect();
        // This comes last, because the demotions above read the bytes that it drops.
        self.transfers.push(Transfer::Forget { tier, names });
    }

    /// Takes the transfers requested since the last call, in order.
    pub fn take_transfers(&mut self) -> Vec<Transfer> {
        std::mem::take(&mut self.transfers)
    }

    /// Takes the changes of lower tiers since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The tables of the eviction policies, of those that learn.
    #[must_use]
    pub fn learned_tables(&self) -> Vec<(Tier, Vec<u8>)> {
        let tables = |shelf: &Shelf| Some((shelf.tier, shelf.level.learned()?));
        self.shelves.iter().filter_map(tables).collect()
    }

    /// Each tier at a glance, the nearest first. O(tiers).
    #[must_use]
    pub fn summary(&self) -> Vec<TierSummary> {
        let summary = |shelf: &Shelf| {
            let (capacity_units, units) = shelf.level.size();
            TierSummary { tier: shelf.tier, capacity_units, units, counts: shelf.counts }
        };
        self.shelves.iter().map(summary).collect()
    }

    /// Returns the occupancy and the counters of each tier, the nearest first. O(capacity).
    #[must_use]
    pub fn counts(&self) -> Vec<(Tier, TierOccupancy, TierCounts)> {
        let counts = |shelf: &Shelf| (shelf.tier, shelf.level.held(), shelf.counts);
        self.shelves.iter().map(counts).collect()
    }

    /// Asserts every invariant. O(capacity); for tests and idle engines.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        for shelf in &self.shelves {
            shelf.level.check();
            let writing = self.writes.keys().filter(|(_, tier)| *tier == shelf.tier);
            let TierOccupancy { in_flight, .. } = shelf.level.held();
            assert_eq!(in_flight, writing.count(), "writes have places");
        }
        self.loads.check(self.config.most_at_hand);
    }

    fn shelf(&mut self, tier: Tier) -> Option<&mut Shelf> {
        self.shelves.iter_mut().find(|shelf| shelf.tier == tier)
    }

    fn new_id(&mut self) -> TransferId {
        self.next_id += 1;
        TransferId(self.next_id)
    }
}

#[cfg(test)]
mod tests;
