//! Snapshot of a log: the sum of its entries, which keeps the log short. Its owner writes it, and
//! any gateway reads it.
//!
//! The owner keeps nothing for it. Now and then it reads the base and the log that it and its
//! predecessors wrote, adds them up in a [`Ledger`], writes the result, and cuts the log. So every
//! gateway can take over at any time, and memory is taken by one replica at a time.
//!
//! It does not know what updates mean.

use headstart_core::{CacheEvent, Nanos};
use headstart_router::index::Update;
use headstart_router::index::ledger::Ledger;
use redis::RedisResult;

use super::SyncContext;
use super::link::{LeaseCheck, ReplicaKeys, ReplicaLease, ServerLink};
use super::record::{LogEntry, LogRecord, Position, events, payloads, update};

/// Events of one part, about as many blocks as fit into an entry.
const PART_EVENTS: usize = 16;

/// Result of writing a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaseWriteOutcome {
    /// It was written.
    Bytes(usize),
    /// The replica holds too much.
    TooLarge,
    /// The log is not what it was, or not ours any more: the next renewal tells.
    Not,
}

/// Writes the base of a log as of `upto`.
pub(super) fn write(
    shared: &SyncContext,
    link: &mut ServerLink,
    keys: &ReplicaKeys,
    lease: &ReplicaLease,
    upto: Position,
) -> RedisResult<BaseWriteOutcome> {
    // Nothing was later than now, whatever others say.
    let latest = shared.timeline.told(shared.timeline.now());
    let (mut ledger, mut position) = begin(link, keys, latest)?;
    let mut can_trust = false;
    while position < upto {
        // Checked before each read, because the ledger must not grow far beyond its limit.
        if ledger.num_handles() > shared.timing.base_handles {
            return Ok(BaseWriteOutcome::TooLarge);
        }
        let entries = link.range(keys, position, upto)?;
        // The log was cut or lost meanwhile, so the sum would have a hole.
        if entries.is_empty() {
            return Ok(BaseWriteOutcome::Not);
        }
        for (id, fields) in &entries {
            let mut entry = LogEntry::read(id, fields);
            entry.at = entry.at.min(latest);
            add(&mut ledger, &entry, position, &mut can_trust);
            position = entry.position;
        }
    }
    let is_fitting = ledger.num_handles() <= shared.timing.base_handles;
    let parts = is_fitting.then(|| parts(shared, &ledger));
    let bytes = |parts: &Vec<Vec<u8>>| parts.iter().map(Vec::len).sum::<usize>();
    let Some(parts) = parts.filter(|parts| bytes(parts) <= shared.timing.base_bytes) else {
        return Ok(BaseWriteOutcome::TooLarge);
    };
    // The base in the server may be later than `upto` already.
    if position != upto {
        return Ok(BaseWriteOutcome::Not);
    }
    Ok(match link.rebase(keys, lease, upto, &parts)? {
        LeaseCheck::Yes => BaseWriteOutcome::Bytes(bytes(&parts)),
        LeaseCheck::No => BaseWriteOutcome::Not,
    })
}

/// Reads the previous base; returns an empty one if it is missing or a part is damaged.
fn begin(
    link: &mut ServerLink,
    keys: &ReplicaKeys,
    latest: u64,
) -> RedisResult<(Ledger, Position)> {
    let mut ledger = Ledger::default();
    let Some(base) = read(link, keys)? else {
        return Ok((ledger, Position::START));
    };
    for part in base.parts() {
        let Some((at, events)) = part else {
            // Half a base would pass for a whole one. The log's own beginning is at least
            // consistent.
            return Ok((Ledger::default(), Position::START));
        };
        ledger.apply(Update::Events(&events), Nanos(at.min(latest)));
    }
    Ok((ledger, base.position))
}

/// The same as a follower does, in everybody's time.
fn add(ledger: &mut Ledger, entry: &LogEntry, position: Position, can_trust: &mut bool) {
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
fn parts(shared: &SyncContext, ledger: &Ledger) -> Vec<Vec<u8>> {
    let now = Nanos(shared.timeline.told(shared.timeline.now()));
    let written = ledger.write_out(shared.timing.departed, now);
    let mut parts = Vec::new();
    // A part has one time, so events of different times go apart.
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

/// Sum of a log's entries up to a position.
pub(super) struct LogSnapshot {
    pub(super) position: Position,
    parts: Vec<Vec<u8>>,
}

impl LogSnapshot {
    /// Events to be applied in order, each with its time, nanoseconds since 1970; none where a
    /// part is damaged. Read when they are asked for, because they take more than their bytes.
    pub(super) fn parts(&self) -> impl Iterator<Item = Option<(u64, Vec<CacheEvent>)>> {
        self.parts.iter().map(|bytes| part(bytes))
    }
}

/// Reads the base of a log; `None` if it is missing, incomplete or too large.
pub(super) fn read(link: &mut ServerLink, keys: &ReplicaKeys) -> RedisResult<Option<LogSnapshot>> {
    let base = link.base(keys)?;
    Ok(base.map(|(position, parts)| LogSnapshot { position, parts }))
}

fn part(bytes: &[u8]) -> Option<(u64, Vec<CacheEvent>)> {
    let (at, payload) = bytes.split_first_chunk()?;
    match events(payload) {
        LogRecord::Events(events) => Some((u64::from_le_bytes(*at), events)),
        _ => None,
    }
}
