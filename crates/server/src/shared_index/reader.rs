//! The thread that reads the logs which others write, and applies them.
//!
//! What was read is applied only if nothing else has happened to the seat meanwhile. It has a
//! connection of its own, because it waits for entries; whether the server is there is for the
//! steward to say.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use headstart_core::{Nanos, ReplicaId};
use headstart_router::index::Update;
use redis::RedisResult;

use super::link::{Keys, Link};
use super::record::{Entry, Position, update};
use super::seat::{Following, Role, Seat};
use super::{Shared, base};

/// A log to be read.
struct Log {
    replica: ReplicaId,
    keys: Keys,
    block_size: Option<u32>,
    is_blank: bool,
    epoch: u64,
    position: Option<Position>,
}

/// Runs until the index is dropped.
pub(super) fn run(shared: &Shared) {
    let mut link = None;
    while !shared.lock().is_stopping {
        let logs = logs(shared);
        if logs.is_empty() || !shared.counts.is_connected.load(Relaxed) {
            wait(shared);
            continue;
        }
        if link.is_none() {
            link = Link::open(&shared.client, shared.timing).ok();
        }
        let done = link.as_mut().map(|link| read(shared, link, logs));
        if !matches!(done, Some(Ok(()))) {
            link = None;
            wait(shared);
        }
    }
}

fn logs(shared: &Shared) -> Vec<Log> {
    let state = shared.lock();
    let log = |(&replica, seat): (&ReplicaId, &Seat)| match &seat.role {
        Role::Following(following) if seat.tracked.is_some() => Some(Log {
            replica,
            keys: seat.keys.clone(),
            block_size: seat.tracked.flatten(),
            is_blank: seat.is_blank,
            epoch: seat.epoch,
            position: following.position,
        }),
        _ => None,
    };
    state.seats.iter().filter_map(log).collect()
}

fn read(shared: &Shared, link: &mut Link, logs: Vec<Log>) -> RedisResult<()> {
    let (known, unknown): (Vec<_>, Vec<_>) =
        logs.into_iter().partition(|log| log.position.is_some());
    if !unknown.is_empty() {
        for log in &unknown {
            load(shared, link, log)?;
        }
        return Ok(());
    }
    let question: Vec<_> = known
        .iter()
        .map(|log| (log.keys.clone(), log.position.unwrap_or_default()))
        .collect();
    for (at, entries) in link.read(&question)? {
        let entries = entries.iter();
        let entries: Vec<_> = entries.map(|(id, f)| Entry::read(id, f)).collect();
        apply(shared, &known[at], entries);
    }
    Ok(())
}

/// Takes the base for all that is known; where there is none, the log's own beginning must do, and
/// what is known already is in doubt.
fn load(shared: &Shared, link: &mut Link, log: &Log) -> RedisResult<()> {
    let base = base::read(link, &log.keys)?;
    shared.counts.loads.fetch_add(1, Relaxed);
    let now = shared.timeline.now();
    let Some(base) = base else {
        shared.if_unchanged(log, |following, tell| {
            if !log.is_blank {
                tell(Update::Doubt, now);
            }
            following.position = Some(Position::START);
        });
        return Ok(());
    };
    let block_size = log.block_size;
    let mut is_ours = shared.if_unchanged(log, |_, tell| tell(Update::Track { block_size }, now));
    for (at, events) in &base.parts {
        let at = shared.timeline.heard(*at);
        is_ours = is_ours && shared.if_unchanged(log, |_, tell| tell(Update::Events(events), at));
    }
    if is_ours {
        shared.if_unchanged(log, |following, _| following.position = Some(base.position));
    }
    Ok(())
}

fn apply(shared: &Shared, log: &Log, entries: Vec<Entry>) {
    let mut state = shared.lock();
    let Some(seat) = state.seats.get_mut(&log.replica) else {
        return;
    };
    for entry in entries {
        if seat.epoch != log.epoch {
            return;
        }
        let Role::Following(following) = &mut seat.role else {
            return;
        };
        let now = shared.timeline.now();
        let position = following.position.unwrap_or_default();
        if !entry.follows(position) {
            if !following.is_lost_before(entry.position) {
                return seat.reload();
            }
            shared.counts.holes.fetch_add(1, Relaxed);
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
        shared.counts.applied.fetch_add(1, Relaxed);
        if seat.own_if_met() {
            tracing::info!(replica = %log.replica, "following this engine for all gateways");
            shared.changed.notify_all();
        }
    }
}

impl Shared {
    /// Does something with a log's seat and the index, if nothing happened to the seat. Returns
    /// whether.
    fn if_unchanged(
        &self,
        log: &Log,
        act: impl FnOnce(&mut Following, &dyn Fn(Update<'_>, Nanos)),
    ) -> bool {
        let mut state = self.lock();
        let seats = state.seats.get_mut(&log.replica).into_iter();
        let mut unchanged = seats.filter(|seat| seat.epoch == log.epoch);
        let Some(Role::Following(following)) = unchanged.next().map(|seat| &mut seat.role) else {
            return false;
        };
        let tell = |update: Update<'_>, at| self.local.update(log.replica, update, at);
        act(following, &tell);
        true
    }
}

fn wait(shared: &Shared) {
    let state = shared.lock();
    if !state.is_stopping {
        let waited = shared.changed.wait_timeout(state, shared.timing.wait);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
