//! Residency changes on the device and in lower tiers, published in order.

use headstart_cache::{Effect, Tiers};
use headstart_core::{Access, BlockHash, CacheEvent, Nanos};

use super::Scheduler;
use crate::announce;

impl Scheduler {
    /// Takes the residency changes since the last call, in order: on the device, and in lower tiers
    /// as far as their contents are known here.
    pub fn take_events(&mut self) -> Vec<CacheEvent> {
        std::mem::take(&mut self.events)
    }

    /// Drops all blocks that no lease holds from the device; lower tiers keep what they have.
    pub fn clear_device(&mut self, now: Nanos) {
        self.cache.clear(now);
        self.announce_evictions(now);
    }

    /// There is nothing to do, and was not for a while.
    pub fn rest(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            tiers.rest();
        }
    }

    pub(super) fn commit_full_blocks(&mut self, index: usize, now: Nanos) {
        let sequence = &mut self.running[index];
        if sequence.pruned.is_some() {
            // What was computed behind a prefix that was loaded in part has no name.
            return;
        }
        let access = sequence.access(now);
        let full = sequence.computed / self.config.block_size;
        let lease = sequence.lease.as_mut().expect("a running sequence holds a lease");
        let first = lease.committed();
        if first >= full {
            return;
        }
        for position in first..full {
            let access = Access { offset: position as u32, ..access };
            // A commit may swap a block for an equal resident one. Each batch entry reads the lease
            // again.
            self.cache.commit(lease, sequence.hashes[position], &access);
        }
        announce::commits(sequence, first, self.cache.drain_effects(), &mut self.events);
        self.offer_units(index, first, full, &access);
        self.announce_tiers();
    }

    pub(super) fn announce_evictions(&mut self, now: Nanos) {
        let Self { cache, tiers, lower, .. } = self;
        let tell = |effect: &Effect| {
            if let (Some(tiers), Effect::Evicted { hash, .. }) = (tiers.as_mut(), effect) {
                // The tiers come first: a unit that they write back now is still needed.
                tiers.evicted(*hash, now);
                lower.left_device(*hash, tiers.knows(*hash));
            }
        };
        announce::evictions(cache.drain_effects().inspect(tell), &mut self.events);
        self.announce_tiers();
    }

    /// Announces what has changed in lower tiers. Follows whatever may change them.
    pub(super) fn announce_tiers(&mut self) {
        let Some(tiers) = &mut self.tiers else { return };
        for change in tiers.take_changes() {
            let is_needed = tiers.knows(change.name);
            self.lower.changed(change, is_needed);
        }
        self.events.extend(self.lower.take_events());
    }

    /// Asserts that what is announced of lower tiers is what they hold.
    pub(super) fn check_lower(&self, tiers: &Tiers) {
        let on_device = |name: BlockHash| self.cache.overlap(&[name]) == 1;
        let holds = |name, tier| tiers.holding(name).any(|held| held == tier);
        self.lower.check(holds, |name| tiers.knows(name), on_device);
    }
}
