//! Changes of one update, block by block, for consumers that track blocks by key.

use headstart_core::event::BlockChange;
use headstart_core::{CacheEvent, ReplicaId};

use super::Update;
use super::draft::ViewDraft;
use super::forest::Forest;
use super::replica::TrackedReplica;
use super::spot::Spot;
use super::standing::BlockPlace;
use super::writer::IndexWriter;

impl IndexWriter {
    /// Takes over events, and adds what they change to `changes`.
    pub(super) fn update_and_tell(
        &mut self,
        draft: &mut ViewDraft<'_>,
        replica: ReplicaId,
        events: &[CacheEvent],
        changes: &mut Vec<BlockChange>,
    ) {
        let slot = self.slot_of(draft.view, replica);
        let known = slot.and_then(|slot| self.replicas[slot as usize].as_mut());
        if let Some(known) = known {
            // Lent to the replica for this update: changes are found deep inside of it.
            known.told = Some(std::mem::take(changes));
        }
        self.update(draft, replica, Update::Events(events));
        let known = slot.and_then(|slot| self.replicas[slot as usize].as_mut());
        if let Some(told) = known.and_then(|known| known.told.take()) {
            *changes = told;
        }
    }
}

impl TrackedReplica {
    /// Notes a change, if the caller of the update asked for changes.
    pub(super) fn tell(&mut self, change: impl FnOnce() -> BlockChange) {
        if let Some(told) = &mut self.told {
            told.push(change());
        }
    }

    pub(super) fn tell_stored(&mut self, forest: &Forest<'_>, spot: Spot, place: BlockPlace) {
        if place.group == 0 {
            self.tell(|| BlockChange::Stored(forest.key(spot), place.tier));
        }
    }

    pub(super) fn tell_removed(&mut self, forest: &Forest<'_>, spot: Spot, place: BlockPlace) {
        if place.group == 0 {
            self.tell(|| BlockChange::Removed(forest.key(spot), place.tier));
        }
    }
}
