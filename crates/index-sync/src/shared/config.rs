//! Server, replicas and limits of a shared index.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headstart_core::{Nanos, ReplicaId};
use headstart_router::index::ledger::DepartedHandles;

use crate::clock::{Clock, unix_seconds};

/// A server to share an index by.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedServer {
    /// `redis://[user:password@]host:port[/db]`, or `valkey://…`.
    pub url: String,
    /// The limits.
    pub timing: Timing,
}

impl fmt::Debug for SharedServer {
    /// Without the address, which may have a password in it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("SharedServer");
        // The address is left out on purpose, and the output shows that a field is missing.
        fields.field("timing", &self.timing).finish_non_exhaustive()
    }
}

/// Server, identity and replicas of a shared index.
#[derive(Clone, Debug)]
pub struct SharedIndexConfig {
    /// The server that keeps the index.
    pub server: SharedServer,
    /// Model of the replicas: gateways of several models may use one server.
    pub model: String,
    /// Model name given to the local index, with the secret in it; the same in every gateway.
    pub identity: String,
    /// The replicas, each with a name that every gateway gives it: where it publishes.
    pub replicas: Vec<(ReplicaId, String)>,
}

/// Every limit of a shared index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time after which a silent gateway is no longer the writer. A gateway that does not hear from
    /// the server trusts its own state for as long. Five seconds: longer than any harmless pause.
    pub lease: Duration,
    /// Between two renewals of leases; several must fit into a lease.
    pub tick: Duration,
    /// Longest wait for a connection, and for an answer.
    pub reply: Duration,
    /// Longest wait for new entries in one read; then the reader asks again.
    pub wait: Duration,
    /// Between two attempts to connect.
    pub retry: Duration,
    /// Time for which the server remembers a fleet that is gone: longer than any doubt lasts.
    pub keep: Duration,
    /// Entries of one replica's log, about, that the server keeps in any case.
    pub log_entries: usize,
    /// Entries behind a base after which there is a new one.
    pub rebase_entries: usize,
    /// Bytes behind a base after which there is a new one, if the base itself has no more.
    pub rebase_bytes: usize,
    /// Handles of one replica that a base is written for: half a second of work, well within a
    /// lease. Of larger ones, who comes late knows what the log has.
    pub base_handles: usize,
    /// Most bytes of a base, written or read: more than `base_handles` handles take.
    pub base_bytes: usize,
    /// Whether bases keep handles that no block needs; for comparisons.
    pub departed: DepartedHandles,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            tick: Duration::from_secs(1),
            reply: Duration::from_secs(1),
            wait: Duration::from_millis(200),
            retry: Duration::from_millis(500),
            keep: Duration::from_secs(600),
            // Minutes of a busy engine, some megabytes, as an entry is one step's events; more than
            // the log behind two bases.
            log_entries: 32_768,
            rebase_entries: 8_192,
            rebase_bytes: 4 << 20,
            // Four million tokens in blocks of 16.
            base_handles: 1 << 18,
            base_bytes: 64 << 20,
            departed: DepartedHandles::Dropped,
        }
    }
}

/// The gateway's clock, and how it relates to everybody's.
#[derive(Clone)]
pub struct Timeline {
    now: Arc<dyn Fn() -> Nanos + Send + Sync>,
    /// Nanoseconds from 1970 to the clock's start.
    start: u64,
}

impl Timeline {
    /// By a server's clock and the machine's.
    #[must_use]
    pub fn of(clock: Clock) -> Self {
        let unix = (unix_seconds() * 1e9) as u64;
        // Saturating: the clock starts at an hour, and a machine's clock may be near 1970.
        Self { start: unix.saturating_sub(clock.now().0), now: Arc::new(move || clock.now()) }
    }

    /// By a clock that everybody has in common.
    pub fn common(now: impl Fn() -> Nanos + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), start: 0 }
    }

    pub(super) fn now(&self) -> Nanos {
        (self.now)()
    }

    /// As others know it.
    pub(super) fn told(&self, at: Nanos) -> u64 {
        self.start.saturating_add(at.0)
    }

    /// As this gateway knows it: not later than now, and at its start where it was before.
    pub(super) fn heard(&self, at: u64) -> Nanos {
        // Another gateway's clock may be ahead. An event from the future would never grow old.
        Nanos(at.saturating_sub(self.start)).min(self.now())
    }
}
