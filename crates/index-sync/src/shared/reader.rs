//! The thread that reads the logs which others write, and applies them.
//!
//! What was read is applied only if nothing else has happened to the seat meanwhile. The reader has
//! a connection of its own, because it waits for entries; the steward decides whether the server is
//! there and who writes a log. If reading makes no progress for as long as a lease lasts, what
//! others reported is in doubt until it does, and is then read again.

use std::sync::PoisonError;
use std::time::Instant;

use headstart_core::{Nanos, ReplicaId};
use headstart_router::index::Update;
use redis::RedisResult;

use super::link::{ReplicaKeys, ServerLink, reason};
use super::record::{LogEntry, Position, update};
use super::replica_role::{Following, Lead, LeaseRole, ReplicaRole};
use super::{SyncContext, snapshot};

/// A log to be read.
struct ReplicaLog {
    replica: ReplicaId,
    keys: ReplicaKeys,
    block_size: Option<u32>,
    is_blank: bool,
    epoch: u64,
    position: Option<Position>,
}

/// Runs until the index is dropped.
pub(super) fn run(shared: &SyncContext) {
    let mut link = None;
    while !shared.lock().is_stopping {
        let logs = logs(shared);
        // Without a server the steward's outage counts, and not a stall of this thread.
        if logs.is_empty() || !shared.lock().counts.is_connected {
            shared.note_read();
            wait(shared);
            continue;
        }
        let open = || ServerLink::open(&shared.client, shared.timing);
        let opened = link.take().map_or_else(open, Ok);
        let done = opened.and_then(|mut link| read(shared, &mut link, logs).map(|()| link));
        match done {
            Ok(opened) => {
                link = Some(opened);
                shared.note_read();
            }
            Err(error) => {
                shared.lock().read_error = reason(&error);
                shared.note_stall();
                wait(shared);
            }
        }
    }
}

fn logs(shared: &SyncContext) -> Vec<ReplicaLog> {
    let state = shared.lock();
    let log = |(&replica, seat): (&ReplicaId, &ReplicaRole)| match &seat.role {
        LeaseRole::Following(following)
            if seat.tracked.is_some() && following.lead == Lead::Somebody =>
        {
            Some(ReplicaLog {
                replica,
                keys: seat.keys.clone(),
                block_size: seat.tracked.flatten(),
                is_blank: seat.is_blank,
                epoch: seat.epoch,
                position: following.position,
            })
        }
        _ => None,
    };
    state.seats.iter().filter_map(log).collect()
}

fn read(shared: &SyncContext, link: &mut ServerLink, logs: Vec<ReplicaLog>) -> RedisResult<()> {
    let ask = |logs: &[ReplicaLog]| -> Vec<_> {
        let question = |log: &ReplicaLog| (log.keys.clone(), log.position.unwrap_or_default());
        logs.iter().map(question).collect()
    };
    if shared.lock().is_stalled {
        // Whether they can be read at all.
        // `note_read` ends the stall then, and the next round reads the bases again.
        return link.read(&ask(&logs), false).map(drop);
    }
    let (known, unknown): (Vec<_>, Vec<_>) =
        logs.into_iter().partition(|log| log.position.is_some());
    // One at a time, so that none waits for all others.
    if let Some(log) = unknown.first() {
        load(shared, link, log)?;
    }
    if known.is_empty() {
        return Ok(());
    }
    // A wait would delay the logs whose bases are still to be read.
    for (at, entries) in link.read(&ask(&known), unknown.is_empty())? {
        let entries = entries.iter();
        let entries: Vec<_> = entries.map(|(id, f)| LogEntry::read(id, f)).collect();
        apply(shared, &known[at], entries);
    }
    Ok(())
}

/// Replaces all that is known by the base. Without a base the log's own beginning must do, and what
/// is known already is in doubt.
fn load(shared: &SyncContext, link: &mut ServerLink, log: &ReplicaLog) -> RedisResult<()> {
    let base = snapshot::read(link, &log.keys)?;
    shared.lock().counts.loads += 1;
    let Some(base) = base else {
        shared.begin_log(log, log.is_blank);
        return Ok(());
    };
    let block_size = log.block_size;
    let now = shared.timeline.now();
    let mut is_ours = shared.if_unchanged(log, |_, tell| tell(Update::Track { block_size }, now));
    for part in base.parts() {
        let Some((at, events)) = part else {
            // Earlier parts were applied already, so the index is not blank.
            shared.begin_log(log, false);
            return Ok(());
        };
        let at = shared.timeline.heard(at);
        is_ours = is_ours && shared.if_unchanged(log, |_, tell| tell(Update::Events(&events), at));
        // A large base takes time, and each part is progress.
        shared.lock().read_at = Instant::now();
    }
    if is_ours {
        // Set last: until then a reader that fails starts over with the base.
        shared.if_unchanged(log, |following, _| following.position = Some(base.position));
    }
    Ok(())
}

fn apply(shared: &SyncContext, log: &ReplicaLog, entries: Vec<LogEntry>) {
    let state = &mut *shared.lock();
    let Some(seat) = state.seats.get_mut(&log.replica) else {
        return;
    };
    for entry in entries {
        // Also after `own_if_met` below: entries that follow our own first one are ours to write.
        if seat.epoch != log.epoch {
            return;
        }
        let LeaseRole::Following(following) = &mut seat.role else {
            return;
        };
        let now = shared.timeline.now();
        let position = following.position.unwrap_or_default();
        if !entry.follows(position) {
            // The base may cover a hole, so it is read again before anything is given up.
            if !following.is_lost_before(entry.position) {
                return seat.reload();
            }
            state.counts.holes += 1;
            shared.local.update(log.replica, Update::Doubt, now);
            seat.can_trust = false;
        }
        following.position = Some(entry.position);
        following.reloads = 0;
        seat.is_blank = false;
        let at = shared.timeline.heard(entry.at);
        let block_size = seat.tracked.flatten();
        if let Some(update) = update(&entry.record, block_size, &mut seat.can_trust) {
            shared.local.update(log.replica, update, at);
        }
        state.counts.applied += 1;
        if seat.own_if_met() {
            tracing::info!(replica = %log.replica, "following this engine for all gateways");
            shared.changed.notify_all();
        }
    }
}

impl SyncContext {
    /// Reads a log from where it begins. What is known is in doubt, unless nothing is.
    fn begin_log(&self, log: &ReplicaLog, is_blank: bool) {
        let now = self.timeline.now();
        self.if_unchanged(log, |following, tell| {
            if !is_blank {
                tell(Update::Doubt, now);
            }
            following.position = Some(Position::START);
        });
    }

    /// Reading gets on, or there is nothing to read.
    fn note_read(&self) {
        let mut state = self.lock();
        state.read_at = Instant::now();
        if std::mem::take(&mut state.is_stalled) {
            tracing::info!(address = self.address, "reading the shared index again");
        }
    }

    /// Doubts what others said if it was not read for as long as a lease lasts; says so once.
    pub(super) fn note_stall(&self) {
        let mut state = self.lock();
        if state.is_stalled || state.read_at.elapsed() <= self.timing.lease {
            return;
        }
        state.is_stalled = true;
        state.counts.errors += 1;
        let (address, reason) = (&self.address, &state.read_error);
        tracing::warn!(
            address,
            reason,
            "cannot read the shared index; what other gateways said is in doubt"
        );
        let now = self.timeline.now();
        for (&replica, seat) in &mut state.seats {
            if seat.note_stall() {
                self.local.update(replica, Update::Doubt, now);
            }
        }
    }

    /// Does something with a log's seat and the index, if nothing happened to the seat. Returns
    /// whether.
    fn if_unchanged(
        &self,
        log: &ReplicaLog,
        act: impl FnOnce(&mut Following, &dyn Fn(Update<'_>, Nanos)),
    ) -> bool {
        let mut state = self.lock();
        let seats = state.seats.get_mut(&log.replica).into_iter();
        let mut unchanged = seats.filter(|seat| seat.epoch == log.epoch);
        let Some(LeaseRole::Following(following)) = unchanged.next().map(|seat| &mut seat.role)
        else {
            return false;
        };
        let tell = |update: Update<'_>, at| self.local.update(log.replica, update, at);
        act(following, &tell);
        true
    }
}

fn wait(shared: &SyncContext) {
    let state = shared.lock();
    if !state.is_stopping {
        let waited = shared.changed.wait_timeout(state, shared.timing.wait);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
