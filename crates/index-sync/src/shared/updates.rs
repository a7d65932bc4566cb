//! Updates from engines and from this gateway's router, written to its index and to the logs that
//! it owns.
//!
//! Both happen under one lock, so that the order is the same. It does not know connections: what
//! is to be sent waits for the steward.

use headstart_core::event::BlockChange;
use headstart_core::{CacheEvent, Nanos, ReplicaId};
use headstart_router::index::Update;

use super::replica_role::LeaseRole;
use super::{SyncContext, SyncState, record};

/// Entries that wait to be sent, bytes, all replicas together: some minutes of a busy fleet while
/// the server restarts. Beyond it, what follows is for this gateway alone.
const UNSENT_BYTES_MAX: usize = 32 << 20;

impl SyncContext {
    pub(super) fn track(&self, replica: ReplicaId, block_size: Option<u32>, now: Nanos) {
        let mut state = self.lock();
        self.local.update(replica, Update::Track { block_size }, now);
        let Some(seat) = state.seats.get_mut(&replica) else {
            return;
        };
        let was_tracked = seat.tracked.replace(block_size).is_some();
        match &seat.role {
            // Followers hold blocks of this replica and have to drop them as well.
            LeaseRole::Owning(_) if was_tracked => {
                self.write(&mut state, replica, "reset", &[], now);
            }
            LeaseRole::Owning(_) | LeaseRole::Following(_) => {
                seat.reload();
                seat.is_blank = true;
            }
            LeaseRole::Alone => {}
        }
        state.is_urgent = true;
        self.changed.notify_all();
    }

    pub(super) fn forget(&self, replica: ReplicaId, now: Nanos) {
        let mut state = self.lock();
        self.local.update(replica, Update::Forget, now);
        // Written while the seat is still an owner's: followers must forget, too.
        self.write(&mut state, replica, "reset", &[], now);
        if let Some(seat) = state.seats.get_mut(&replica) {
            seat.tracked = None;
            seat.reload();
        }
        state.is_urgent = true;
        self.changed.notify_all();
    }

    /// Events of the replica's engine, or of the router, which clears a replica that goes or comes.
    /// What they change is added to `changes`.
    pub(super) fn heard(
        &self,
        replica: ReplicaId,
        events: &[CacheEvent],
        now: Nanos,
        changes: &mut Vec<BlockChange>,
    ) {
        // Hashing takes the longest, so it comes before the lock that requests wait for.
        let named: Vec<_> = events.iter().filter_map(|e| self.names.event(e)).collect();
        let payloads = record::payloads(&named);
        let mut state = self.lock();
        let Some(seat) = state.seats.get_mut(&replica) else {
            // A replica that publishes nothing.
            return self.local.update_and_tell(replica, &named, now, changes);
        };
        match &seat.role {
            // Only the router says something then, or a stream that is about to end.
            LeaseRole::Following(_) if named.contains(&CacheEvent::Cleared) => {
                let cleared = &[CacheEvent::Cleared];
                self.local.update_and_tell(replica, cleared, now, changes);
                seat.reload();
                seat.is_blank = true;
            }
            LeaseRole::Following(_) => {}
            LeaseRole::Owning(_) | LeaseRole::Alone => {
                seat.is_blank = false;
                self.local.update_and_tell(replica, &named, now, changes);
                for payload in payloads {
                    self.write(&mut state, replica, "events", &payload, now);
                }
            }
        }
    }

    pub(super) fn doubt(&self, replica: ReplicaId, now: Nanos) {
        let mut state = self.lock();
        let Some(seat) = state.seats.get_mut(&replica) else {
            return self.local.update(replica, Update::Doubt, now);
        };
        if let LeaseRole::Owning(_) | LeaseRole::Alone = seat.role {
            // Only the engine's stream can take this doubt back.
            seat.can_trust = true;
            self.local.update(replica, Update::Doubt, now);
            self.write(&mut state, replica, "doubt", &[], now);
        }
    }

    /// The engine's stream takes its last doubt back. What was doubted since for another reason
    /// stays so.
    pub(super) fn trust(&self, replica: ReplicaId, now: Nanos) {
        let mut state = self.lock();
        let Some(seat) = state.seats.get_mut(&replica) else {
            return self.local.update(replica, Update::Trust, now);
        };
        let is_listening = matches!(seat.role, LeaseRole::Owning(_) | LeaseRole::Alone);
        if is_listening && std::mem::take(&mut seat.can_trust) {
            self.local.update(replica, Update::Trust, now);
            self.write(&mut state, replica, "trust", &[], now);
        }
    }

    /// Adds an entry to what is to be sent, where the log is ours.
    fn write(
        &self,
        state: &mut SyncState,
        replica: ReplicaId,
        kind: &'static str,
        payload: &[u8],
        now: Nanos,
    ) {
        let Some(seat) = state.seats.get_mut(&replica) else {
            return;
        };
        let LeaseRole::Owning(owning) = &mut seat.role else {
            return;
        };
        state.unsent_bytes += owning.push(kind, self.timeline.told(now), payload.to_vec());
        if state.unsent_bytes > UNSENT_BYTES_MAX {
            state.unsent_bytes -= owning.unsent_bytes();
            // The next round takes the lease again, in a new term that puts the replica in doubt
            // for all.
            seat.go_alone();
        }
        self.changed.notify_all();
    }
}
