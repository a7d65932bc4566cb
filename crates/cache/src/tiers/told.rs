//! Reports to lower tiers: units stored, lost and found.

use headstart_core::transfer::{
    FoundUnit, Transfer, TransferId, TransferReport, TransferResult, Unit,
};
use headstart_core::{Access, BlockHash, BlockId, Nanos, Tier};

use super::level::{Begin, Link};
use super::{Change, ChangeKind, Tiers};

impl Tiers {
    /// Takes note of what was moved, or of what happened otherwise.
    pub fn moved(&mut self, moved: TransferReport, now: Nanos) {
        match moved {
            TransferReport::Stored { id, tier, result } => self.stored(id, tier, result),
            TransferReport::Loaded { id, result, ago } => self.loaded(id, result, ago, now),
            TransferReport::Lost { tier, names } => {
                let names = names.into_iter();
                names.for_each(|name| self.lose(tier, name));
            }
            TransferReport::Found { tier, units } => self.found(tier, &units, now),
            TransferReport::Noted { tails } => self.recall(&tails, now),
            // Only loading by importance uses these.
            TransferReport::PartLoaded { .. }
            | TransferReport::Packed { .. }
            | TransferReport::FoundPacks { .. } => {}
        }
    }

    fn stored(&mut self, id: TransferId, tier: Tier, result: TransferResult) {
        let Some(name) = self.writes.remove(&(id, tier)) else {
            return;
        };
        let Some(shelf) = self.shelf(tier) else {
            return;
        };
        match result {
            TransferResult::Done => {
                shelf.level.commit(name, 0);
                shelf.counts.stored += 1;
                self.changes.push(Change { tier, name, kind: ChangeKind::Stored });
            }
            TransferResult::Failed => {
                shelf.level.abort(name);
                shelf.counts.unstored += 1;
                self.changes.push(Change { tier, name, kind: ChangeKind::NotStored });
            }
        }
        self.write_ended();
    }

    fn lose(&mut self, tier: Tier, name: BlockHash) {
        if let Some(shelf) = self.shelf(tier)
            && shelf.level.lose(name)
        {
            shelf.counts.lost += 1;
            self.changes.push(Change { tier, name, kind: ChangeKind::Removed });
        }
    }

    /// The same for what was read from a slot, unless its name has another one by now.
    pub(super) fn lose_slot(&mut self, tier: Tier, slot: Option<BlockId>, name: BlockHash) {
        if let (Some(shelf), Some(slot)) = (self.shelf(tier), slot)
            && shelf.level.lose_slot(slot, name)
        {
            shelf.counts.lost += 1;
            self.changes.push(Change { tier, name, kind: ChangeKind::Removed });
        }
    }

    /// Takes in what a tier turned out to hold; what has no place there is forgotten.
    fn found(&mut self, tier: Tier, units: &[FoundUnit], now: Nanos) {
        // `self.shelf` would borrow the changes and transfers as well.
        let Some(shelf) = self.shelves.iter_mut().find(|shelf| shelf.tier == tier) else {
            return;
        };
        let access = Access::at(now);
        let mut gone = Vec::new();
        for &unit in units {
            let FoundUnit { name, .. } = unit;
            let mut evicted = Vec::new();
            let begun = shelf.level.begin(unit, &access, &mut evicted);
            let evicted = evicted.into_iter().map(|link| link.name);
            for name in evicted {
                self.changes.push(Change { tier, name, kind: ChangeKind::Removed });
                gone.push(name);
            }
            match begun {
                Begin::Started => {
                    shelf.level.commit(name, 0);
                    self.changes.push(Change { tier, name, kind: ChangeKind::Stored });
                }
                // Found again: another process has used it.
                Begin::Present => shelf.level.touch(&[name], &access),
                // No room, or its tenant's share is full: bytes that no lookup finds only take up
                // space.
                Begin::Declined => gone.push(name),
            }
        }
        if !gone.is_empty() {
            let names = gone;
            self.transfers.push(Transfer::Forget { tier, names });
        }
    }
}

/// A unit as tiers know it.
pub(super) fn link(unit: &Unit) -> Link {
    Link { name: unit.name, parent: unit.parent, tenant: unit.tenant }
}
