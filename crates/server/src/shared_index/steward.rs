//! The thread that holds leases, writes logs and keeps them short.
//!
//! ```text
//! connect ─► every tick: renew ─ take what is free ─ new bases      until something fails
//!         └► at once:    write what waits ─ give back
//! ```
//!
//! A renewal that fails, or is not tried in time, ends what this gateway writes and believes: see
//! [`note_outage`]. It does not know what entries say.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use headstart_core::ReplicaId;
use headstart_router::index::Update;
use redis::RedisResult;

use super::base;
use super::link::{Held, Keys, Lease, Link};
use super::record::Position;
use super::seat::{ENTRY_OVERHEAD, LogSize, Role, Seat};
use super::{Closed, Shared, State};

/// Entries that go to the server in one round trip, about.
const SENT_AT_ONCE: usize = 256;

/// Entries of one replica among them, so that none waits for another's backlog.
const SENT_OF_ONE: usize = 64;

/// Runs until the index is dropped.
pub(super) fn run(shared: &Shared, mut link: Option<Link>) {
    let mut times = Times::new(shared);
    while !shared.lock().is_stopping {
        if link.is_none() {
            link = reconnect(shared);
        }
        let done = link.as_mut().map(|link| round(shared, link, &mut times));
        if let Some(Err(error)) = done {
            shared.note_loss(&error.to_string());
            link = None;
        }
        note_outage(shared, &times);
        wait(shared, &times, link.is_some());
    }
    if let Some(mut link) = link {
        // Leases end by themselves otherwise.
        let _ = leave(shared, &mut link);
    }
    shared.lock().has_left = true;
    shared.changed.notify_all();
}

/// Says what is left to say, and gives all leases back.
fn leave(shared: &Shared, link: &mut Link) -> RedisResult<()> {
    while write(shared, link)? {}
    let held = shared.lock().leases();
    for (_, keys, lease) in held {
        link.release(&keys, &lease)?;
    }
    Ok(())
}

/// When what was done last.
struct Times {
    next_tick: Instant,
    /// Since then the server may have given our leases to others.
    renewed: Instant,
}

impl Times {
    fn new(shared: &Shared) -> Self {
        let now = Instant::now();
        // Without a connection at the start there is nothing to wait for.
        let is_connected = shared.counts.is_connected.load(Relaxed);
        let past = now.checked_sub(shared.timing.lease + Duration::from_millis(1));
        Self {
            next_tick: now,
            renewed: if is_connected {
                now
            } else {
                past.unwrap_or(now)
            },
        }
    }
}

fn reconnect(shared: &Shared) -> Option<Link> {
    let opened = shared.open();
    match opened {
        Ok(mut link) => {
            if let Err(error) = check_logs(shared, &mut link) {
                shared.note_loss(&error.to_string());
                return None;
            }
            tracing::info!(address = shared.address, "sharing the index");
            shared.lock().is_urgent = true;
            Some(link)
        }
        Err(Closed::Outage(reason)) => {
            shared.note_loss(&reason);
            None
        }
        Err(Closed::Refused(error)) => {
            shared.note_loss(&error.to_string());
            None
        }
    }
}

/// A server that came back may have lost what it was told last. Then we are as anybody who comes
/// to that log.
fn check_logs(shared: &Shared, link: &mut Link) -> RedisResult<()> {
    let held = shared.lock().leases();
    for (replica, keys, _) in held {
        let last = link.last(&keys)?;
        let mut state = shared.lock();
        let Some(seat) = state.seats.get_mut(&replica) else {
            continue;
        };
        let Role::Owning(owning) = &seat.role else {
            continue;
        };
        let sent = match owning.unsent.front() {
            Some(first) => Position {
                number: first.position.number - 1,
                ..first.position
            },
            None => owning.position,
        };
        if last < sent {
            seat.follow();
        }
    }
    Ok(())
}

fn round(shared: &Shared, link: &mut Link, times: &mut Times) -> RedisResult<()> {
    let is_urgent = std::mem::take(&mut shared.lock().is_urgent);
    if is_urgent || times.next_tick <= Instant::now() {
        let started = Instant::now();
        times.next_tick = started + shared.timing.tick;
        renew(shared, link)?;
        times.renewed = started;
        take_free(shared, link)?;
        rebase(shared, link)?;
    }
    while write(shared, link)? {}
    give_back(shared, link)
}

fn renew(shared: &Shared, link: &mut Link) -> RedisResult<()> {
    let (key, ours) = &shared.secret;
    link.agree(key, ours)?;
    let held = shared.lock().leases();
    let leases: Vec<_> = held
        .iter()
        .map(|(_, k, l)| (k.clone(), l.clone()))
        .collect();
    let answers = link.renew(&leases)?;
    let mut state = shared.lock();
    for ((replica, _, lease), answer) in held.into_iter().zip(answers) {
        state.check_held(shared, replica, &lease, answer);
    }
    // The server is there, so nobody has to be alone.
    for seat in state.seats.values_mut() {
        if matches!(seat.role, Role::Alone) {
            seat.follow();
        }
    }
    state.recount();
    Ok(())
}

fn take_free(shared: &Shared, link: &mut Link) -> RedisResult<()> {
    let wanted = shared.lock().those(Seat::wants_lease);
    let keys: Vec<Keys> = wanted.iter().map(|(_, keys)| keys.clone()).collect();
    let free = link.are_free(&keys, &shared.gateway)?;
    for ((replica, keys), is_free) in wanted.into_iter().zip(free) {
        if !is_free {
            continue;
        }
        let at = shared.timeline.told(shared.timeline.now());
        let Some((lease, entries)) = link.acquire(&keys, &shared.gateway, at)? else {
            continue;
        };
        let mut state = shared.lock();
        let Some(seat) = state.seats.get_mut(&replica) else {
            continue;
        };
        seat.size = LogSize {
            entries,
            ..LogSize::default()
        };
        seat.take(lease);
        shared.changed.notify_all();
    }
    Ok(())
}

/// Writes a base for every log that has become long.
fn rebase(shared: &Shared, link: &mut Link) -> RedisResult<()> {
    let timing = &shared.timing;
    let is_long = |size: &LogSize| {
        size.entries >= timing.rebase_entries
            || size.bytes >= timing.rebase_bytes.max(size.base_bytes)
    };
    let mut long = Vec::new();
    for (&replica, seat) in &shared.lock().seats {
        if let Role::Owning(owning) = &seat.role
            && is_long(&seat.size)
            && owning.unsent.is_empty()
        {
            long.push((
                replica,
                seat.keys.clone(),
                owning.lease.clone(),
                owning.position,
            ));
        }
    }
    for (replica, keys, lease, position) in long {
        let written = base::write(shared, link, (&keys, &lease), position)?;
        let mut state = shared.lock();
        if let Some(seat) = state.seats.get_mut(&replica) {
            seat.size = LogSize {
                base_bytes: written,
                ..LogSize::default()
            };
        }
    }
    Ok(())
}

/// Sends what waits. Returns whether there may be more.
fn write(shared: &Shared, link: &mut Link) -> RedisResult<bool> {
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
            let answer = answers.next().unwrap_or(Held::No);
            if state.check_held(shared, replica, &lease, answer) {
                state.note_sent(shared, replica, entry.position);
            }
        }
    }
    state.recount();
    Ok(true)
}

fn give_back(shared: &Shared, link: &mut Link) -> RedisResult<()> {
    let leaving: Vec<_> = {
        let state = shared.lock();
        let leases = state.leases().into_iter();
        leases
            .filter(|(replica, ..)| state.seats[replica].is_leaving())
            .collect()
    };
    for (replica, keys, lease) in leaving {
        link.release(&keys, &lease)?;
        let mut state = shared.lock();
        state.check_held(shared, replica, &lease, Held::No);
    }
    Ok(())
}

/// Without a renewal for as long as a lease lasts, others may write, and what was heard from
/// others may be out of date: from now on everybody is alone.
fn note_outage(shared: &Shared, times: &Times) {
    if times.renewed.elapsed() <= shared.timing.lease {
        return;
    }
    let mut state = shared.lock();
    for (&replica, seat) in &mut state.seats {
        if seat.go_alone() {
            let now = shared.timeline.now();
            shared.local.update(replica, Update::Doubt, now);
        }
    }
    state.recount();
}

fn wait(shared: &Shared, times: &Times, is_connected: bool) {
    let state = shared.lock();
    let has_work = is_connected && (state.is_urgent || state.has_work());
    if has_work || state.is_stopping {
        return;
    }
    let pause = match is_connected {
        true => times.next_tick.saturating_duration_since(Instant::now()),
        false => shared.timing.retry,
    };
    let end = Instant::now() + pause;
    let is_idle = |state: &mut State| {
        let has_work = is_connected && (state.is_urgent || state.has_work());
        !has_work && !state.is_stopping
    };
    let left = end.saturating_duration_since(Instant::now());
    let waited = shared.changed.wait_timeout_while(state, left, is_idle);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

impl State {
    /// Leases that are ours.
    fn leases(&self) -> Vec<(ReplicaId, Keys, Lease)> {
        let seats = self.seats.iter();
        let held = seats.filter_map(|(&replica, seat)| {
            let lease = seat.lease()?.clone();
            Some((replica, seat.keys.clone(), lease))
        });
        held.collect()
    }

    fn those(&self, wanted: impl Fn(&Seat) -> bool) -> Vec<(ReplicaId, Keys)> {
        let seats = self.seats.iter().filter(|(_, seat)| wanted(seat));
        seats.map(|(&id, seat)| (id, seat.keys.clone())).collect()
    }

    fn has_work(&self) -> bool {
        self.seats
            .values()
            .any(|seat| seat.unsent(1).is_some() || seat.is_leaving())
    }

    /// Ends what was under a lease that is not ours any more. Returns whether it is.
    fn check_held(
        &mut self,
        shared: &Shared,
        replica: ReplicaId,
        lease: &Lease,
        answer: Held,
    ) -> bool {
        let Some(seat) = self.seats.get_mut(&replica) else {
            return false;
        };
        if seat.lease() != Some(lease) {
            return false;
        }
        if answer == Held::No {
            if !seat.is_leaving() {
                shared.counts.lost_leases.fetch_add(1, Relaxed);
                tracing::warn!(%replica, "another gateway follows this engine now");
            }
            seat.follow();
            shared.changed.notify_all();
        }
        answer == Held::Yes
    }

    fn note_sent(&mut self, shared: &Shared, replica: ReplicaId, position: Position) {
        let Some(seat) = self.seats.get_mut(&replica) else {
            return;
        };
        let Role::Owning(owning) = &mut seat.role else {
            return;
        };
        if let Some(first) = owning.unsent.pop_front_if(|e| e.position == position) {
            seat.size.entries += 1;
            seat.size.bytes += first.payload.len() + ENTRY_OVERHEAD;
            shared.counts.written.fetch_add(1, Relaxed);
        }
    }

    fn recount(&mut self) {
        let unsent = self.seats.values().filter_map(|seat| match &seat.role {
            Role::Owning(owning) => Some(owning.unsent_bytes()),
            _ => None,
        });
        self.unsent_bytes = unsent.sum();
    }
}
