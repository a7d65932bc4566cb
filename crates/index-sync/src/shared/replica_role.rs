//! Role of this gateway towards one replica: writer of its log, reader of it, or alone.
//!
//! ```text
//!            ┌──────────── another gateway has the lease, or the log has a hole ──┐
//!            ▼                                                                    │
//!        Following ── lease taken ─► (reads on) ── meets its own `taken` ─►   Owning
//!            │ ▲                                                                  │
//!  no server │ └─ a lease exists ───  Alone  ◄── no server for as long as a lease ┘
//!            └───────────────────────►
//! ```
//!
//! A gateway that owns or is alone listens to the engine itself, from the start whenever
//! [`ReplicaRole::starts`] changes. A log without a writer is not followed: see [`Lead`]. A role
//! does not know the server or the index.
//!
//! Invariants: only an owner has entries to send; their positions have no holes; whatever happens
//! to a seat but reading changes its `epoch`, so that what was being read meanwhile is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::link::{ReplicaKeys, ReplicaLease, UnsentEntry};
use super::record::Position;

/// State of one replica's log in this gateway.
#[derive(Debug)]
pub(super) struct ReplicaRole {
    pub(super) keys: ReplicaKeys,
    /// As the configuration says; none while the replica is not tracked.
    pub(super) tracked: Option<Option<u32>>,
    /// Whether this gateway can hear the engine.
    pub(super) is_candidate: bool,
    pub(super) role: LeaseRole,
    /// Restarts of listening to the engine.
    pub(super) starts: u64,
    pub(super) epoch: u64,
    /// Whether nothing was applied since the replica was tracked or cleared.
    pub(super) is_blank: bool,
    /// Whether the last doubt was the engine's stream's, which alone can say that nothing was lost.
    /// The doubts that sharing brings (handovers, holes, outages) are never taken back.
    pub(super) can_trust: bool,
    pub(super) size: LogSize,
}

/// See the picture above.
#[derive(Debug)]
pub(super) enum LeaseRole {
    Following(Following),
    Owning(Owning),
    Alone,
}

#[derive(Debug, Default)]
pub(super) struct Following {
    /// The last entry applied; none where the base must be read first.
    pub(super) position: Option<Position>,
    /// Consecutive reloads of the base without an entry that follows it.
    pub(super) reloads: u32,
    /// The entry before which something is missing, as was seen before the base was read again.
    pub(super) hole: Option<Position>,
    /// Our term begins when we meet its first entry; and since when we wait for it.
    pub(super) taking: Option<(ReplicaLease, Instant)>,
    pub(super) lead: Lead,
}

/// Whether a gateway writes a log. A log without a writer does not say what the engine dropped
/// since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lead {
    /// The server was not asked yet.
    #[default]
    Unknown,
    /// No gateway does, and what is known is in doubt.
    Nobody,
    /// A gateway has the lease.
    Somebody,
}

/// Reloads in a row before a hole that is never the same counts as one that stays: a log that is
/// cut faster than it is read.
const RELOADS_MAX: u32 = 3;

impl Following {
    /// Something is missing before an entry. Returns whether it is lost, being looked for already.
    pub(super) fn is_lost_before(&mut self, entry: Position) -> bool {
        // The base was read since and did not cover the same hole: the entries are gone.
        let is_lost = self.hole == Some(entry) || self.reloads >= RELOADS_MAX;
        self.hole = Some(entry);
        self.reloads += 1;
        is_lost
    }
}

#[derive(Debug)]
pub(super) struct Owning {
    pub(super) lease: ReplicaLease,
    /// The last entry made.
    pub(super) position: Position,
    pub(super) unsent: VecDeque<UnsentEntry>,
}

/// Size of the log behind its base, and of the base.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogSize {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) base_bytes: usize,
    /// The replica holds more than a base may say.
    pub(super) is_too_large: bool,
}

impl ReplicaRole {
    pub(super) fn new(keys: ReplicaKeys) -> Self {
        Self {
            keys,
            tracked: None,
            is_candidate: false,
            role: LeaseRole::Following(Following::default()),
            starts: 0,
            epoch: 0,
            is_blank: false,
            can_trust: false,
            size: LogSize::default(),
        }
    }

    /// Number of the wanted start of listening to the engine; `None` where others listen.
    pub(super) fn listening(&self) -> Option<u64> {
        let listens = matches!(self.role, LeaseRole::Owning(_) | LeaseRole::Alone);
        (listens && self.is_candidate && self.tracked.is_some()).then_some(self.starts)
    }

    /// Makes the reader start over from the base. A lease that was taken stays so.
    pub(super) fn reload(&mut self) {
        self.epoch += 1;
        self.can_trust = false;
        if let LeaseRole::Following(following) = &mut self.role {
            following.position = None;
        }
    }

    /// Whatever it was, it reads the log now.
    pub(super) fn follow(&mut self) {
        self.epoch += 1;
        self.can_trust = false;
        self.role = LeaseRole::Following(Following::default());
    }

    /// Notes that another gateway has the lease, and writes in this term. A term before the last
    /// one read means that the log was lost and restarted by a clock that is late.
    pub(super) fn note_leader(&mut self, term: u64) {
        if matches!(self.role, LeaseRole::Alone) {
            self.follow();
        }
        if let LeaseRole::Following(following) = &mut self.role {
            following.lead = Lead::Somebody;
            if following.position.is_some_and(|read| read.term > term) {
                self.reload();
            }
        }
    }

    /// Notes that no gateway has the lease, and that we shall not take it. Returns whether what is
    /// known is in doubt from now on.
    pub(super) fn note_no_leader(&mut self) -> bool {
        if matches!(self.role, LeaseRole::Alone) && !self.is_wanted() {
            self.follow();
        }
        let LeaseRole::Following(following) = &mut self.role else {
            return false;
        };
        let was = std::mem::replace(&mut following.lead, Lead::Nobody);
        if was == Lead::Nobody {
            return false;
        }
        // What is being read was written before.
        self.epoch += 1;
        self.can_trust = false;
        true
    }

    /// Reading does not get on. Returns whether what is known is in doubt from now on.
    pub(super) fn note_stall(&mut self) -> bool {
        let is_following = matches!(self.role, LeaseRole::Following(_));
        if is_following {
            self.reload();
        }
        is_following
    }

    /// There is no server. Returns whether what is known may be out of date.
    pub(super) fn go_alone(&mut self) -> bool {
        self.epoch += 1;
        match std::mem::replace(&mut self.role, LeaseRole::Alone) {
            LeaseRole::Following(_) => {
                // A follower begins without events of its own, so the engine is listened to from
                // the start.
                self.starts += 1;
                self.can_trust = false;
                true
            }
            // It continues to listen.
            LeaseRole::Owning(_) | LeaseRole::Alone => false,
        }
    }

    /// The lease is ours; we write once our own first entry was met, which may be so already.
    pub(super) fn take(&mut self, lease: ReplicaLease) {
        if matches!(self.role, LeaseRole::Alone) {
            self.follow();
        }
        if let LeaseRole::Following(following) = &mut self.role {
            following.taking = Some((lease, Instant::now()));
            following.lead = Lead::Somebody;
            // The server writes our first entry before it answers, so the reader may have met it
            // already.
            self.own_if_met();
        }
    }

    /// From our own first entry on we write. Returns whether it was just met.
    pub(super) fn own_if_met(&mut self) -> bool {
        let LeaseRole::Following(following) = &mut self.role else {
            return false;
        };
        let first = |lease: &ReplicaLease| Position { term: lease.term, number: 0 };
        let met = following.position;
        let is_met = |(lease, _): &mut (ReplicaLease, Instant)| met == Some(first(lease));
        let Some((lease, _)) = following.taking.take_if(is_met) else {
            return false;
        };
        let position = first(&lease);
        self.can_trust = false;
        self.epoch += 1;
        // A new owner listens from the start, to confirm what the engine still holds.
        self.starts += 1;
        self.role = LeaseRole::Owning(Owning { lease, position, unsent: VecDeque::new() });
        true
    }

    /// The lease that is ours.
    pub(super) fn lease(&self) -> Option<&ReplicaLease> {
        match &self.role {
            LeaseRole::Owning(owning) => Some(&owning.lease),
            LeaseRole::Following(following) => following.taking.as_ref().map(|(lease, _)| lease),
            LeaseRole::Alone => None,
        }
    }

    /// Whether the lease has to be held, and we may hold it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_candidate && self.tracked.is_some()
    }

    /// Whether the lease is to be given back, all being said; or because its first entry was not
    /// met for as long as `patience`: the log was lost, or cannot be read.
    pub(super) fn is_leaving(&self, patience: Duration) -> bool {
        match &self.role {
            LeaseRole::Owning(owning) => !self.is_wanted() && owning.unsent.is_empty(),
            LeaseRole::Following(following) => following
                .taking
                .as_ref()
                .is_some_and(|(_, since)| !self.is_wanted() || since.elapsed() > patience),
            LeaseRole::Alone => false,
        }
    }

    /// Returns the entries to send, at most `most`.
    pub(super) fn unsent(
        &self,
        most: usize,
    ) -> Option<(ReplicaKeys, ReplicaLease, Vec<UnsentEntry>)> {
        let LeaseRole::Owning(owning) = &self.role else {
            return None;
        };
        let entries: Vec<UnsentEntry> = owning.unsent.iter().take(most).cloned().collect();
        (!entries.is_empty()).then(|| (self.keys.clone(), owning.lease.clone(), entries))
    }
}

impl Owning {
    /// The last entry that the server has, as far as is known.
    pub(super) fn sent(&self) -> Position {
        // Number 0 begins the term, so an unsent entry has one before it.
        let before = |first: &UnsentEntry| Position {
            number: first.position.number.saturating_sub(1),
            ..first.position
        };
        self.unsent.front().map_or(self.position, before)
    }

    /// Makes an entry. Returns its bytes.
    pub(super) fn push(&mut self, kind: &'static str, at: u64, payload: Vec<u8>) -> usize {
        self.position = self.position.next();
        let payload: Arc<[u8]> = payload.into();
        let bytes = payload.len() + ENTRY_OVERHEAD;
        self.unsent.push_back(UnsentEntry { position: self.position, kind, at, payload });
        bytes
    }

    /// Returns the size of the unsent entries, bytes.
    pub(super) fn unsent_bytes(&self) -> usize {
        let bytes = |entry: &UnsentEntry| entry.payload.len() + ENTRY_OVERHEAD;
        self.unsent.iter().map(bytes).sum()
    }
}

/// Approximate size of an entry without its payload, here and in the server, bytes.
pub(super) const ENTRY_OVERHEAD: usize = 64;
