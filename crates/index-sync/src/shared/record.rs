//! Entries in the log of one replica, and their positions.
//!
//! ```text
//! 1790000000000-0   taken   by a gateway, behind 1789999990000-41    everything is in doubt
//! 1790000000000-1   events  [stored …, removed …]
//! 1790000000000-2   doubt                                            the engine's stream broke
//! ```
//!
//! A position is a *term*, in which one gateway writes, and a number within it. Terms are the
//! server's milliseconds when they began, later than all before. So a log that was lost and
//! restarted does not repeat positions, and the server itself refuses late writes of an earlier
//! term, because entries of a stream must grow. Within a term numbers have no holes, and a new term
//! names the last entry it found, so that a reader knows when something is missing.
//!
//! It does not know who writes.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use headstart_core::CacheEvent;
use headstart_core::event::StoredBlocks;
use headstart_kv_events::{decode_batch, encode_batch};
use headstart_router::index::Update;
use headstart_router::stream::Damage;

use super::names::is_well_formed;

/// Bytes of events in one entry, about: what fits into a network buffer or two. One event is
/// never divided.
const ENTRY_BYTES: usize = 256 << 10;

/// Bytes that a block takes in an entry, about; only used to divide events.
const BLOCK_BYTES: usize = 48;

/// A place in a log: a term and a number within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// In which term; 0 before the first.
    pub term: u64,
    /// The entry's number in that term; 0 is the one that begins it.
    pub number: u64,
}

impl Position {
    /// Before everything.
    pub const START: Self = Self { term: 0, number: 0 };

    /// The next one in the same term.
    #[must_use]
    pub fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.term, self.number)
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (term, number) = text.split_once('-').unwrap_or((text, "0"));
        Ok(Self { term: term.parse()?, number: number.parse()? })
    }
}

/// Content of a log entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogRecord {
    /// The replica's cache changed.
    Events(Vec<CacheEvent>),
    /// Some of its events are lost.
    Doubt,
    /// The entry cannot be read.
    Damaged,
    /// Nothing was lost when its engine's stream was doubted last.
    Trust,
    /// Tracking starts over, and the replica holds nothing.
    Reset,
    /// Another gateway writes from here on; before this it found that entry last.
    Taken { before: Position },
}

/// The fields of an entry: what it is, when that was (nanoseconds since 1970), and the rest.
pub(super) type EntryFields = HashMap<String, Vec<u8>>;

/// An entry that was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogEntry {
    pub(super) position: Position,
    /// Nanoseconds since 1970, by the writer's clock.
    pub(super) at: u64,
    pub(super) record: LogRecord,
}

impl LogEntry {
    /// Parses an entry; an unreadable one becomes [`LogRecord::Damaged`].
    pub(super) fn read(id: &str, fields: &EntryFields) -> Self {
        let text = |name: &str| fields.get(name).and_then(|text| str::from_utf8(text).ok());
        let payload = || fields.get("p").map_or(&[][..], Vec::as_slice);
        let record = match text("k") {
            Some("events") => events(payload()),
            Some("doubt") => LogRecord::Doubt,
            Some("reset") => LogRecord::Reset,
            Some("trust") => LogRecord::Trust,
            Some("taken") => LogRecord::Taken {
                before: text("p").and_then(|text| text.parse().ok()).unwrap_or_default(),
            },
            // A newer gateway may write kinds that we do not know, and one may have been a removal.
            _ => LogRecord::Damaged,
        };
        Self {
            // An unreadable position follows nothing, so the reader looks for what is missing.
            position: id.parse().unwrap_or_default(),
            at: text("t").and_then(|at| at.parse().ok()).unwrap_or_default(),
            record,
        }
    }

    /// Whether nothing is missing between `position` and this.
    pub(super) fn follows(&self, position: Position) -> bool {
        match self.record {
            LogRecord::Taken { before } => before == position,
            _ => self.position == position.next(),
        }
    }
}

/// Returns the update that a record means for an index that tracks its replica with this block
/// size. `can_trust` is true while the last doubt is of the engine's stream; other doubts are never
/// withdrawn.
pub(super) fn update<'a>(
    record: &'a LogRecord,
    block_size: Option<u32>,
    can_trust: &mut bool,
) -> Option<Update<'a>> {
    match record {
        LogRecord::Events(events) => Some(Update::Events(events)),
        LogRecord::Doubt => {
            *can_trust = true;
            Some(Update::Doubt)
        }
        LogRecord::Trust => std::mem::take(can_trust).then_some(Update::Trust),
        LogRecord::Taken { .. } | LogRecord::Damaged => {
            *can_trust = false;
            Some(Update::Doubt)
        }
        LogRecord::Reset => {
            *can_trust = false;
            Some(Update::Track { block_size })
        }
    }
}

/// Events from their bytes.
pub(super) fn events(payload: &[u8]) -> LogRecord {
    match decode_batch(payload) {
        // One event left out is a hole that no position shows.
        Ok(batch) if batch.damage == Damage::None => LogRecord::Events(batch.events),
        _ => LogRecord::Damaged,
    }
}

/// Events as bytes, divided where they are many. Those that no index can use are left out.
pub(super) fn payloads(events: &[CacheEvent]) -> Vec<Vec<u8>> {
    let is_usable = |event: &CacheEvent| match event {
        CacheEvent::Stored(stored) => is_well_formed(stored),
        CacheEvent::Removed { .. } | CacheEvent::Cleared => true,
    };
    let usable: Vec<CacheEvent> = events.iter().filter(|e| is_usable(e)).cloned().collect();
    let mut payloads = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (at, event) in usable.iter().enumerate() {
        bytes += size(event);
        if bytes >= ENTRY_BYTES || at + 1 == usable.len() {
            // The time is a field of the entry. A log belongs to one replica, so it needs no rank.
            payloads.push(encode_batch(0.0, &usable[first..=at], None));
            (first, bytes) = (at + 1, 0);
        }
    }
    payloads
}

fn size(event: &CacheEvent) -> usize {
    match event {
        CacheEvent::Stored(StoredBlocks { blocks, tokens, .. }) => {
            BLOCK_BYTES * blocks.len() + tokens.len()
        }
        CacheEvent::Removed { blocks, .. } => BLOCK_BYTES * blocks.len(),
        CacheEvent::Cleared => BLOCK_BYTES,
    }
}
