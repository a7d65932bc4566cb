//! What a log adds up to, so that it can be short: written by the owner, read by whoever comes.
//!
//! The owner keeps nothing for it. Now and then it reads the base and the log that it and its
//! predecessors wrote, adds them up in a [`Ledger`], writes the result, and cuts the log. So every
//! gateway can take over at any time, and memory is taken by one replica at a time.
//!
//! It does not know what updates mean.

use std::sync::atomic::Ordering::Relaxed;

use headstart_core::{CacheEvent, Nanos};
use headstart_router::index::Update;
use headstart_router::index::reference::ledger::Ledger;
use redis::RedisResult;

use super::Shared;
use super::link::{Held, Keys, Lease, Link};
use super::record::{Entry, Position, Record, events, payloads, update};

/// Handles of one replica that a base is written for: half a second of work, well within a lease.
/// Four million tokens in blocks of 16. Larger ones go without; who comes late to them knows what
/// the log has.
const HANDLES_MAX: usize = 1 << 18;

/// Events of one part, about as many blocks as fit into an entry.
const PART_EVENTS: usize = 16;

/// Writes the base of a log as of `upto`. Returns its bytes; 0 where there is none now.
pub(super) fn write(
    shared: &Shared,
    link: &mut Link,
    (keys, lease): (&Keys, &Lease),
    upto: Position,
) -> RedisResult<usize> {
    let mut ledger = Ledger::default();
    let mut position = Position::START;
    let mut can_trust = false;
    if let Some(base) = read(link, keys)? {
        position = base.position;
        for (at, events) in &base.parts {
            ledger.apply(Update::Events(events), Nanos(*at));
        }
    }
    while position < upto {
        let entries = link.range(keys, position, upto)?;
        if entries.is_empty() {
            break;
        }
        for (id, fields) in &entries {
            let entry = Entry::read(id, fields);
            add(&mut ledger, &entry, position, &mut can_trust);
            position = entry.position;
        }
        if ledger.num_handles() > HANDLES_MAX {
            break;
        }
    }
    if position != upto || ledger.num_handles() > HANDLES_MAX {
        return Ok(0);
    }
    let parts = parts(shared, &ledger);
    let bytes = parts.iter().map(Vec::len).sum();
    match link.rebase((keys, lease), upto, &parts)? {
        Held::Yes => shared.counts.bases.fetch_add(1, Relaxed),
        // The next renewal tells.
        Held::No => 0,
    };
    Ok(bytes)
}

/// The same as a follower does, in everybody's time.
fn add(ledger: &mut Ledger, entry: &Entry, position: Position, can_trust: &mut bool) {
    let at = Nanos(entry.at);
    if !entry.follows(position) {
        ledger.apply(Update::Doubt, at);
        *can_trust = false;
    }
    if let Some(update) = update(&entry.record, None, can_trust) {
        ledger.apply(update, at);
    }
}

/// A time, and then events as in an entry.
fn parts(shared: &Shared, ledger: &Ledger) -> Vec<Vec<u8>> {
    let now = Nanos(shared.timeline.told(shared.timeline.now()));
    let written = ledger.write_out(shared.timing.departed, now);
    let mut parts = Vec::new();
    for same_time in written.chunk_by(|a, b| a.0 == b.0) {
        for piece in same_time.chunks(PART_EVENTS) {
            let events: Vec<CacheEvent> = piece.iter().map(|(_, event)| event.clone()).collect();
            for payload in payloads(&events) {
                let Nanos(at) = piece[0].0;
                parts.push([&at.to_le_bytes()[..], &payload].concat());
            }
        }
    }
    parts
}

/// What a log adds up to, up to a position.
pub(super) struct Base {
    pub(super) position: Position,
    /// Events to be applied in order, each with its time, nanoseconds since 1970.
    pub(super) parts: Vec<(u64, Vec<CacheEvent>)>,
}

/// The base of a log; none where there is none, or a part of it is missing or damaged.
pub(super) fn read(link: &mut Link, keys: &Keys) -> RedisResult<Option<Base>> {
    Ok(link.base(keys)?.and_then(|(position, parts)| {
        let parts = parts
            .iter()
            .map(|bytes| part(bytes))
            .collect::<Option<_>>()?;
        Some(Base { position, parts })
    }))
}

fn part(bytes: &[u8]) -> Option<(u64, Vec<CacheEvent>)> {
    let (at, payload) = bytes.split_first_chunk()?;
    match events(payload) {
        Record::Events(events) => Some((u64::from_le_bytes(*at), events)),
        _ => None,
    }
}
