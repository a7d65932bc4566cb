//! State and counters of a shared index.

use headstart_core::ReplicaId;

use super::SharedIndex;
use super::record::Position;
use super::replica_role::LeaseRole;

/// Role of a gateway towards a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatewayRole {
    /// Another gateway listens; we read its log, up to the position.
    Following,
    /// We listen and write the log, up to the position.
    Owning,
    /// There is no server; we listen for ourselves.
    Alone,
}

/// State of this gateway towards one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleReport {
    /// Role of this gateway.
    pub role: GatewayRole,
    /// The last entry of its log that was applied or made here; `None` before the first.
    pub position: Option<Position>,
    /// Entries made that the server does not have yet.
    pub unsent: usize,
}

/// Counters since the start, and the current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedIndexStats {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Replicas whose logs we write.
    pub owned: usize,
    /// Replicas whose logs we read.
    pub followed: usize,
    /// Replicas that we listen to for ourselves.
    pub alone: usize,
    /// Connections that failed or broke.
    pub errors: u64,
    /// Times that a base was read.
    pub loads: u64,
    /// Holes in logs that no base filled.
    pub holes: u64,
    /// Leases that were lost to others while we held them.
    pub lost_leases: u64,
    /// Entries written.
    pub written: u64,
    /// Entries applied.
    pub applied: u64,
    /// Bases written.
    pub bases: u64,
    /// Bases that were not written because the replica holds too much.
    pub too_large: u64,
}

impl SharedIndex {
    /// Returns the state of this gateway towards a replica.
    #[must_use]
    pub fn report(&self, replica: ReplicaId) -> Option<RoleReport> {
        let state = self.shared.lock();
        let seat = state.seats.get(&replica)?;
        let (role, position, unsent) = match &seat.role {
            LeaseRole::Following(following) => (GatewayRole::Following, following.position, 0),
            LeaseRole::Owning(owning) => {
                (GatewayRole::Owning, Some(owning.position), owning.unsent.len())
            }
            LeaseRole::Alone => (GatewayRole::Alone, None, 0),
        };
        Some(RoleReport { role, position, unsent })
    }

    /// Returns the counters and the current state.
    #[must_use]
    pub fn shared_stats(&self) -> SharedIndexStats {
        let state = self.shared.lock();
        let is = |wanted: fn(&LeaseRole) -> bool| {
            let seats = state.seats.values();
            seats.filter(|seat| wanted(&seat.role)).count()
        };
        SharedIndexStats {
            owned: is(|role| matches!(role, LeaseRole::Owning(_))),
            followed: is(|role| matches!(role, LeaseRole::Following(_))),
            alone: is(|role| matches!(role, LeaseRole::Alone)),
            ..state.counts
        }
    }
}
