//! The thread that holds leases, writes logs and keeps them short.
//!
//! ```text
//! connect ─► every tick: renew ─ take what is free ─ a new base     until something fails
//!         └► at once:    write what waits ─ give back
//! ```
//!
//! If nothing of it fails the server counts as there; if that is not so for as long as a lease
//! lasts, this gateway neither writes nor believes any more: see [`SyncContext::note_outage`]. It
//! does not know what entries say.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use headstart_core::ReplicaId;
use headstart_router::index::Update;
use redis::{ErrorKind, RedisResult};

use super::link::{LeaseCheck, ReplicaKeys, ReplicaLease, ServerLink, reason};
use super::record::Position;
use super::replica_role::{ENTRY_OVERHEAD, LeaseRole, LogSize, ReplicaRole};
use super::snapshot::{self, BaseWriteOutcome};
use super::{ConnectFailure, LEAVE_TIME_MAX, SyncContext, SyncState};

/// Entries that go to the server in one round trip, about.
const SENT_AT_ONCE: usize = 256;

/// Entries of one replica among them, so that none waits for another's backlog.
const SENT_OF_ONE: usize = 64;

/// Runs until the index is dropped.
pub(super) fn run(shared: &SyncContext, mut link: Option<ServerLink>) {
    let mut next_tick = Instant::now();
    while !shared.lock().is_stopping {
        if link.is_none() {
            link = reconnect(shared);
        }
        let done = link.as_mut().map(|link| round(shared, link, &mut next_tick));
        if let Some(Err(error)) = done {
            shared.note_loss(&reason(&error));
            // Answers under way would be taken for those of the next command.
            link = None;
        }
        // Both depend on time alone, so they are checked with a connection and without one.
        shared.note_outage();
        shared.note_stall();
        wait(shared, next_tick, link.is_some());
    }
    if let Some(mut link) = link {
        // Leases end by themselves otherwise.
        let _ = leave(shared, &mut link);
    }
    // Also without a connection: `SharedIndex::leave` waits for this.
    shared.lock().has_left = true;
    shared.changed.notify_all();
}

/// Says what is left to say, and gives all leases back.
fn leave(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<()> {
    let end = Instant::now() + LEAVE_TIME_MAX;
    // Written before the leases go: a new owner's term begins with what the log has by then.
    while write(shared, link)? && Instant::now() < end {}
    let held = shared.lock().leases();
    for (_, keys, lease) in held {
        link.release(&keys, &lease)?;
    }
    Ok(())
}

fn reconnect(shared: &SyncContext) -> Option<ServerLink> {
    let opened = shared.open();
    match opened {
        Ok(mut link) => {
            if let Err(error) = check_logs(shared, &mut link) {
                shared.note_loss(&reason(&error));
                return None;
            }
            // Leases may have run out meanwhile: the next round must not wait for a tick.
            shared.lock().is_urgent = true;
            Some(link)
        }
        Err(ConnectFailure::Outage(reason)) => {
            shared.note_loss(&reason);
            None
        }
        // No reason to end a gateway that serves requests: the operator may restore the server.
        Err(ConnectFailure::Refused(error)) => {
            shared.note_loss(&error.to_string());
            None
        }
    }
}

/// A server that came back may have lost what it was told last. Then we are as anybody who comes
/// to that log.
fn check_logs(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<()> {
    let held = shared.lock().leases();
    for (replica, keys, _) in held {
        let last = link.last(&keys)?;
        let mut state = shared.lock();
        let Some(seat) = state.seats.get_mut(&replica) else {
            continue;
        };
        let LeaseRole::Owning(owning) = &seat.role else {
            continue;
        };
        // A server may restart from an older save, without entries that it had confirmed.
        if last < owning.sent() {
            seat.follow();
        }
    }
    Ok(())
}

fn round(shared: &SyncContext, link: &mut ServerLink, next_tick: &mut Instant) -> RedisResult<()> {
    // Taken before the work, so that a change during the round makes the next one urgent.
    let is_urgent = std::mem::take(&mut shared.lock().is_urgent);
    let started = Instant::now();
    let is_tick = is_urgent || *next_tick <= started;
    if is_tick {
        *next_tick = started + shared.timing.tick;
        // Our own leases come first, because they run out. Free ones and bases can wait.
        renew(shared, link)?;
        settle(shared, link)?;
        rebase(shared, link)?;
    }
    // A backlog must not keep leases from being renewed.
    while write(shared, link)? && Instant::now() < *next_tick {}
    give_back(shared, link)?;
    // The start counts: other gateways may have taken a lease while the round ran.
    if is_tick {
        shared.note_round(started);
    }
    Ok(())
}

fn renew(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<()> {
    let (key, ours) = &shared.secret;
    if link.agree(key, ours)? != *ours {
        // It was lost, and others were faster.
        return Err((ErrorKind::Client, "gateways with another --index-secret").into());
    }
    // Copied: requests need the lock, and must not wait for a round trip.
    let held = shared.lock().leases();
    let leases: Vec<_> = held.iter().map(|(_, k, l)| (k.clone(), l.clone())).collect();
    let answers = link.renew(&leases)?;
    let mut state = shared.lock();
    for ((replica, _, lease), answer) in held.into_iter().zip(answers) {
        state.check_held(shared, replica, &lease, answer);
    }
    state.recount();
    Ok(())
}

/// Finds out who writes the logs that we do not, and takes what is free.
fn settle(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<()> {
    let end = Instant::now() + shared.timing.tick;
    let others = shared.lock().those(|seat| seat.lease().is_none());
    let keys: Vec<ReplicaKeys> = others.iter().map(|(_, keys)| keys.clone()).collect();
    let holders = link.holders(&keys)?;
    for ((replica, keys), holder) in others.into_iter().zip(holders) {
        let mut state = shared.lock();
        let may_read = !state.is_stalled;
        let Some(seat) = state.seats.get_mut(&replica) else {
            continue;
        };
        match holder.filter(|holder| holder.gateway != shared.gateway) {
            // Who is alone stays so until it can read.
            Some(holder) if may_read => seat.note_leader(holder.term),
            Some(_) => {}
            None if may_read && seat.is_wanted() => {
                // The lock ends before the round trip, and `take` needs it as well.
                drop(state);
                if Instant::now() < end {
                    take(shared, link, replica, &keys)?;
                } else {
                    // Leases are renewed first.
                    shared.lock().is_urgent = true;
                }
            }
            None => {
                if seat.note_no_leader() {
                    let now = shared.timeline.now();
                    shared.local.update(replica, Update::Doubt, now);
                }
            }
        }
    }
    shared.changed.notify_all();
    Ok(())
}

fn take(
    shared: &SyncContext,
    link: &mut ServerLink,
    replica: ReplicaId,
    keys: &ReplicaKeys,
) -> RedisResult<()> {
    let at = shared.timeline.told(shared.timeline.now());
    let Some((lease, entries)) = link.acquire(keys, &shared.gateway, at)? else {
        return Ok(());
    };
    let mut state = shared.lock();
    if let Some(seat) = state.seats.get_mut(&replica) {
        // The bytes of earlier owners are unknown. Their entries were counted by the server.
        seat.size = LogSize { entries, ..LogSize::default() };
        seat.take(lease);
    }
    Ok(())
}

/// Writes a base for a log that has become long: one at a time, as leases must be renewed.
fn rebase(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<()> {
    let timing = &shared.timing;
    let is_long = |size: &LogSize| {
        size.entries >= timing.rebase_entries
            // Not before the log is as large as the base, so a large base is not rewritten for a
            // few entries.
            || size.bytes >= timing.rebase_bytes.max(size.base_bytes)
    };
    let mut long = Vec::new();
    for (&replica, seat) in &shared.lock().seats {
        if let LeaseRole::Owning(owning) = &seat.role
            && is_long(&seat.size)
        {
            // Only entries that the server has can be summed up there.
            long.push((replica, seat.keys.clone(), owning.lease.clone(), owning.sent()));
        }
    }
    // More than one base in a round could take longer than a lease lasts.
    let has_more = long.len() > 1;
    let Some((replica, keys, lease, position)) = long.into_iter().next() else {
        return Ok(());
    };
    let written = snapshot::write(shared, link, &keys, &lease, position)?;
    let mut state = shared.lock();
    state.is_urgent |= has_more;
    state.note_base(shared, replica, written);
    Ok(())
}

/// Sends what waits. Returns whether there may be more.
fn write(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<bool> {
    let mut batch = Vec::new();
    let mut number = 0;
    for (&replica, seat) in &shared.lock().seats {
        if number >= SENT_AT_ONCE {
            break;
        }
        if let Some(entries) = seat.unsent(SENT_OF_ONE) {
            number += entries.2.len();
            batch.push((replica, entries));
        }
    }
    if batch.is_empty() {
        return Ok(false);
    }
    let entries: Vec<_> = batch.iter().map(|(_, entries)| entries.clone()).collect();
    let mut answers = link.append(&entries)?.into_iter();
    let mut state = shared.lock();
    for (replica, (_, lease, entries)) in batch {
        for entry in entries {
            // Without an answer the entry may be missing, and later ones would leave a hole.
            let answer = answers.next().unwrap_or(LeaseCheck::No);
            if state.check_held(shared, replica, &lease, answer) {
                state.note_sent(replica, entry.position);
            }
        }
    }
    state.recount();
    Ok(true)
}

fn give_back(shared: &SyncContext, link: &mut ServerLink) -> RedisResult<()> {
    let leaving: Vec<_> = {
        let state = shared.lock();
        let leases = state.leases().into_iter();
        leases
            .filter(|(replica, ..)| state.seats[replica].is_leaving(shared.timing.lease))
            .collect()
    };
    for (replica, keys, lease) in leaving {
        link.release(&keys, &lease)?;
        let mut state = shared.lock();
        // Marked as lost at once: an entry made from now on would have no lease.
        state.check_held(shared, replica, &lease, LeaseCheck::No);
    }
    Ok(())
}

impl SyncContext {
    /// All was done that began then: the server is there.
    fn note_round(&self, started: Instant) {
        let mut state = self.lock();
        state.renewed = Some(started);
        if !std::mem::replace(&mut state.counts.is_connected, true) {
            tracing::info!(address = self.address, "sharing the index");
        }
        self.changed.notify_all();
    }

    /// Makes every seat go alone after a lease's time without a whole round: others may write, and
    /// what they reported may be out of date. `SharedIndex::listening` calls this as well, as the
    /// steward may be in a wait without a limit, such as a name's look-up.
    pub(super) fn note_outage(&self) {
        let mut state = self.lock();
        let is_there = |renewed: Instant| renewed.elapsed() <= self.timing.lease;
        if state.renewed.is_some_and(is_there) {
            return;
        }
        for (&replica, seat) in &mut state.seats {
            if seat.go_alone() {
                let now = self.timeline.now();
                self.local.update(replica, Update::Doubt, now);
            }
        }
        state.recount();
    }
}

fn wait(shared: &SyncContext, next_tick: Instant, is_connected: bool) {
    let patience = shared.timing.lease;
    // Checked under the lock: a notification between the check and the wait would get lost.
    let state = shared.lock();
    let has_work = is_connected && (state.is_urgent || state.has_work(patience));
    if has_work || state.is_stopping {
        return;
    }
    let pause = if is_connected {
        next_tick.saturating_duration_since(Instant::now())
    } else {
        shared.timing.retry
    };
    let end = Instant::now() + pause;
    let is_idle = |state: &mut SyncState| {
        let has_work = is_connected && (state.is_urgent || state.has_work(patience));
        !has_work && !state.is_stopping
    };
    let left = end.saturating_duration_since(Instant::now());
    let waited = shared.changed.wait_timeout_while(state, left, is_idle);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

impl SyncState {
    /// Leases that are ours.
    fn leases(&self) -> Vec<(ReplicaId, ReplicaKeys, ReplicaLease)> {
        let seats = self.seats.iter();
        let held = seats.filter_map(|(&replica, seat)| {
            let lease = seat.lease()?.clone();
            Some((replica, seat.keys.clone(), lease))
        });
        held.collect()
    }

    fn those(&self, wanted: impl Fn(&ReplicaRole) -> bool) -> Vec<(ReplicaId, ReplicaKeys)> {
        let seats = self.seats.iter().filter(|(_, seat)| wanted(seat));
        seats.map(|(&id, seat)| (id, seat.keys.clone())).collect()
    }

    fn has_work(&self, patience: Duration) -> bool {
        self.seats.values().any(|seat| seat.unsent(1).is_some() || seat.is_leaving(patience))
    }

    /// Ends what was under a lease that is not ours any more. Returns whether it is.
    fn check_held(
        &mut self,
        shared: &SyncContext,
        replica: ReplicaId,
        lease: &ReplicaLease,
        answer: LeaseCheck,
    ) -> bool {
        let Some(seat) = self.seats.get_mut(&replica) else {
            return false;
        };
        // The seat took another lease during the round trip, and the answer is about the old one.
        if seat.lease() != Some(lease) {
            return false;
        }
        if answer == LeaseCheck::No {
            // A lease that was being given back is no loss.
            if !seat.is_leaving(shared.timing.lease) {
                self.counts.lost_leases += 1;
                tracing::warn!(
                    %replica,
                    "this engine is not ours to follow any more: another gateway took over, or \
                     the server of the shared index forgot who did"
                );
            }
            seat.follow();
            // The steward has to find out who leads now.
            self.is_urgent = true;
            shared.changed.notify_all();
        }
        answer == LeaseCheck::Yes
    }

    fn note_sent(&mut self, replica: ReplicaId, position: Position) {
        let Some(seat) = self.seats.get_mut(&replica) else {
            return;
        };
        let LeaseRole::Owning(owning) = &mut seat.role else {
            return;
        };
        // The role may have changed during the round trip, and with it the entries that wait.
        if let Some(first) = owning.unsent.pop_front_if(|e| e.position == position) {
            seat.size.entries += 1;
            seat.size.bytes += first.payload.len() + ENTRY_OVERHEAD;
            self.counts.written += 1;
        }
    }

    fn note_base(&mut self, shared: &SyncContext, replica: ReplicaId, written: BaseWriteOutcome) {
        let Some(seat) = self.seats.get_mut(&replica) else {
            return;
        };
        let was_too_large = seat.size.is_too_large;
        // This thread alone sends entries, so no entry follows the base's position.
        seat.size =
            LogSize { is_too_large: written == BaseWriteOutcome::TooLarge, ..LogSize::default() };
        match written {
            BaseWriteOutcome::Bytes(bytes) => {
                seat.size.base_bytes = bytes;
                self.counts.bases += 1;
            }
            BaseWriteOutcome::TooLarge => {
                self.counts.too_large += 1;
                if !was_too_large {
                    let handles = shared.timing.base_handles;
                    tracing::warn!(
                        %replica,
                        handles,
                        "holds too many blocks for the shared index to write down; a gateway that \
                         starts knows only what was said lately"
                    );
                }
            }
            BaseWriteOutcome::Not => {}
        }
    }

    fn recount(&mut self) {
        let unsent = self.seats.values().filter_map(|seat| match &seat.role {
            LeaseRole::Owning(owning) => Some(owning.unsent_bytes()),
            _ => None,
        });
        self.unsent_bytes = unsent.sum();
    }
}
