//! Moving units in virtual time: each tier is a channel with a latency and a rate in bytes/s.
//!
//! Transfers of one tier follow one another, those of different tiers go side by side. What a unit
//! holds is not kept, only where it is: a load of what is not there fails.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use headstart_core::transfer::{
    BlockMover, DevicePart, PartName, Transfer, TransferId, TransferReport, TransferResult,
};
use headstart_core::{BlockHash, Nanos, Tier};

/// Latency and rate of a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// Until the first byte.
    pub latency: Duration,
    /// Bytes a second after that.
    pub bytes_per_s: f64,
}

/// A mover in virtual time.
pub struct SimMover {
    now: Nanos,
    unit_bytes: u64,
    tiers: BTreeMap<Tier, SimTier>,
    at_hand: HashSet<BlockHash>,
    /// Transfers in order of completion; equal times in the order asked.
    due: BTreeMap<(Nanos, u64), PendingTransfer>,
    asked: u64,
    /// Single parts and packs, which it does not know.
    refused: Vec<TransferReport>,
    moved_bytes: BTreeMap<Tier, u64>,
}

/// A tier: its channel and its blocks.
struct SimTier {
    channel: Channel,
    busy_until: Nanos,
    held: BTreeSet<BlockHash>,
}

/// A transfer under way.
enum PendingTransfer {
    Write(TransferId, BlockHash, Tier),
    Load(TransferId, BlockHash, Tier),
}

impl SimMover {
    /// Empty tiers for units of `unit_bytes` bytes.
    #[must_use]
    pub fn new(unit_bytes: u64, tiers: &[(Tier, Channel)]) -> Self {
        let place = |&(tier, channel): &(Tier, Channel)| {
            let place = SimTier { channel, busy_until: Nanos::default(), held: BTreeSet::new() };
            (tier, place)
        };
        Self {
            now: Nanos::default(),
            unit_bytes,
            tiers: tiers.iter().map(place).collect(),
            at_hand: HashSet::new(),
            due: BTreeMap::new(),
            asked: 0,
            refused: Vec::new(),
            moved_bytes: BTreeMap::new(),
        }
    }

    /// It is `now`: what is handed over begins then, and what is due by then has happened.
    pub fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// When something happens next, if anything does.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        if !self.refused.is_empty() {
            return Some(self.now);
        }
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Bytes written to and read from a tier.
    #[must_use]
    pub fn moved_bytes(&self, tier: Tier) -> u64 {
        self.moved_bytes.get(&tier).copied().unwrap_or(0)
    }

    fn plan(&mut self, tier: Tier, due: PendingTransfer) {
        let place = self.tiers.get_mut(&tier).expect("a tier that there is");
        let took = self.unit_bytes as f64 / place.channel.bytes_per_s;
        // Transfers of a tier share its rate, so each starts after the last one.
        let start = place.busy_until.max(self.now);
        place.busy_until = start + Duration::from_secs_f64(took);
        // The latency occupies no bandwidth: the next transfer starts before it is over.
        let at = place.busy_until + place.channel.latency;
        self.asked += 1;
        // The number keeps transfers with equal times apart, and in order.
        self.due.insert((at, self.asked), due);
        *self.moved_bytes.entry(tier).or_default() += self.unit_bytes;
    }

    fn held(&mut self, tier: Tier) -> &mut BTreeSet<BlockHash> {
        let place = self.tiers.get_mut(&tier).expect("a tier that there is");
        &mut place.held
    }

    fn carry_out(&mut self, due: PendingTransfer, ago: Duration) -> TransferReport {
        match due {
            PendingTransfer::Write(id, name, tier) => {
                self.held(tier).insert(name);
                let result = TransferResult::Done;
                TransferReport::Stored { id, tier, result }
            }
            PendingTransfer::Load(id, name, from) => {
                // Blocks may be dropped between the request and its turn.
                let result = if self.held(from).contains(&name) {
                    self.at_hand.insert(name);
                    TransferResult::Done
                } else {
                    TransferResult::Failed
                };
                TransferReport::Loaded { id, result, ago }
            }
        }
    }
}

impl BlockMover for SimMover {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { id, unit, to, .. } => {
                for tier in to {
                    self.plan(tier, PendingTransfer::Write(id, unit.name, tier));
                }
            }
            Transfer::Demote { id, name, to, .. } => {
                self.plan(to, PendingTransfer::Write(id, name, to));
            }
            Transfer::Load { id, name, from } => {
                self.plan(from, PendingTransfer::Load(id, name, from));
            }
            Transfer::Keep { name, tier } => {
                self.held(tier).insert(name);
            }
            Transfer::Release { name } => {
                self.at_hand.remove(&name);
            }
            Transfer::LoadPart { id, .. } => self.refused.push(TransferReport::PartLoaded {
                id,
                result: TransferResult::Failed,
                ago: Duration::ZERO,
                took: Duration::ZERO,
            }),
            Transfer::Pack { id, .. } => {
                self.refused.push(TransferReport::Packed { id, result: TransferResult::Failed });
            }
            Transfer::ReleaseParts { .. } | Transfer::Note { .. } => {}
            Transfer::Forget { tier, names } => {
                let held = self.held(tier);
                names.iter().for_each(|name| {
                    held.remove(name);
                });
            }
        }
    }

    fn read(&mut self, _: usize, _: &dyn DevicePart) {}

    fn end_reads(&mut self) {}

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        moved.append(&mut self.refused);
        // In order of time, and only what is due.
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            // A poll may come later than the end of the transfer.
            let ago = self.now.since(entry.key().0);
            let due = entry.remove();
            moved.push(self.carry_out(due, ago));
        }
    }

    fn part(&self, _: BlockHash, _: usize) -> Option<&[u8]> {
        None
    }

    fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
        None
    }
}
