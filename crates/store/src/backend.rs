//! The interface of every store for records: put, get and remove.
//!
//! Commands go in and reports come out, in any order; no call waits. The buffer of a transfer
//! travels with it, so that nothing else can touch it meanwhile. The contents of a backend are a
//! hint: it may lose a record at any time and reports it ([`Report::Lost`]). Every record it
//! returns was verified, so that a fault of a backend is a miss and nothing worse.

use std::sync::Arc;

use headstart_core::{BlockHash, TenantTag};

use crate::arena::Slot;
use crate::record::{Content, Meta, PartBytes, Record};

/// The id of a command, chosen by the caller and repeated in its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A place for records.
pub trait Backend: Send {
    /// Hands over a command. Each is answered by one [`Report::Done`], also where it fails.
    ///
    /// # Errors
    /// Gives it back when as many wait as may: nothing happened, try again later.
    fn submit(&mut self, command: Command) -> Result<(), Command>;

    /// Adds what has happened since the last call to `reports`. Does not wait.
    fn poll(&mut self, reports: &mut Vec<Report>);
}

/// Something to do.
#[derive(Debug)]
pub enum Command {
    /// Keep `record`. Another one of its name is the same by definition: one of both is kept.
    Put {
        /// Its ticket.
        ticket: Ticket,
        /// The record to store.
        record: Record,
    },
    /// Read the record called `name`.
    Get {
        /// Its ticket.
        ticket: Ticket,
        /// Its name.
        name: BlockHash,
        /// Slot for the record.
        slot: Slot,
    },
    /// Read one part of the record called `name`: its pages alone, and the record's header where
    /// that is not known from before.
    GetPart {
        /// Its ticket.
        ticket: Ticket,
        /// The record's name.
        name: BlockHash,
        /// Index of the part.
        part: u16,
        /// Slot with room for all pages that the part touches
        /// ([`Layout::slot_bytes`](crate::record::Layout::slot_bytes)).
        slot: Slot,
    },
    /// Forget these. They may be found again after a restart.
    Remove {
        /// Its ticket.
        ticket: Ticket,
        /// Their names; unknown ones are ignored.
        names: Vec<BlockHash>,
    },
    /// Destroy all that belongs to a tenant, for good.
    Purge {
        /// Its ticket.
        ticket: Ticket,
        /// The tenant whose records are destroyed.
        tenant: TenantTag,
    },
}

impl Command {
    /// Its ticket.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Put { ticket, .. }
            | Self::Get { ticket, .. }
            | Self::GetPart { ticket, .. }
            | Self::Remove { ticket, .. }
            | Self::Purge { ticket, .. } => *ticket,
        }
    }
}

/// Something that happened.
#[derive(Debug)]
pub enum Report {
    /// A command was carried out, or cannot be.
    Done {
        /// Its ticket.
        ticket: Ticket,
        /// The outcome.
        outcome: CommandOutcome,
    },
    /// Records that can no longer be read, though no command removed them.
    Lost {
        /// Their names.
        names: Vec<BlockHash>,
        /// Why.
        loss: LossReason,
    },
    /// Records that can be read though this caller did not put them: found at start or when the
    /// place came back, or put by another user. Oldest first.
    Found(Vec<ResidentRecord>),
    /// The place works worse than before, or better again.
    Condition(Condition),
}

/// Outcome of a command.
#[derive(Debug)]
pub enum CommandOutcome {
    /// Put: the record can be read, also after a crash.
    Stored,
    /// Get: here it is, verified.
    Loaded(Record),
    /// Get part: here it is, verified.
    Part(PartBytes),
    /// Get: the record does not exist. Get part: the record or the part does not exist.
    Missing,
    /// Remove, purge: this number of records can no longer be read.
    Removed(usize),
    /// It did not work. What a get asked for is gone, or may be tried again where `Busy`.
    Failed(Failure),
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Failure {
    /// No room, and none can be made.
    #[error("there is no room")]
    Full,
    /// It may only be read.
    #[error("it is read-only")]
    ReadOnly,
    /// It cannot be reached.
    #[error("it cannot be reached")]
    Offline,
    /// The bytes read differ from those written. The record is quarantined and not read again.
    #[error("what was read is damaged")]
    Corrupt,
    /// The record is larger than the slot, or than what may be stored.
    #[error("the record is too large")]
    TooLarge,
    /// Reading or writing failed in another way.
    #[error("reading or writing failed")]
    Io,
    /// It was not done in time, or the place was closed before.
    #[error("it was given up")]
    Aborted,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Full,
        Self::ReadOnly,
        Self::Offline,
        Self::Corrupt,
        Self::TooLarge,
        Self::Io,
        Self::Aborted,
    ];
}

/// Why records are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossReason {
    /// Their time was over.
    Expired,
    /// They were damaged, and set aside.
    Corrupt,
    /// Their room was needed.
    Evicted,
    /// The place cannot be reached.
    Offline,
}

/// A record that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentRecord {
    /// Its name.
    pub name: BlockHash,
    /// The one before it, where known.
    pub parent: Option<BlockHash>,
    /// The tenant that it belongs to.
    pub tenant: TenantTag,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Its tokens.
    pub tokens: u32,
    /// From when on it cannot be read, seconds since 1970.
    pub expires_s: Option<u64>,
    /// Kind of its parts.
    pub content: Content,
}

impl ResidentRecord {
    /// Describes a record in memory.
    pub(crate) fn of_record(record: &Record) -> Self {
        Self::of(record.meta(), record.bytes().len() as u64)
    }

    /// A record of `bytes` bytes.
    #[must_use]
    pub fn of(meta: &Meta, bytes: u64) -> Self {
        Self {
            name: meta.name,
            parent: meta.parent,
            tenant: meta.tenant,
            bytes,
            tokens: meta.tokens,
            expires_s: meta.expires_s,
            content: meta.content,
        }
    }
}

/// Condition of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As it should.
    Well,
    /// Writing fails for this reason; what is there can be read. It is tried again.
    WritesFail(Failure),
    /// Nothing works; it is tried again.
    Gone(Failure),
}

/// Callback for a backend that has something to report. The backend calls it from its own threads:
/// it must be quick and must not call the backend.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Returns a waker that does nothing.
#[must_use]
pub fn no_waker() -> Waker {
    Arc::new(|| {})
}

#[cfg(test)]
mod tests {
    use crate::conformance::{Trial, check};
    use crate::reference::Map;

    #[test]
    fn the_map_conforms() {
        for seed in 0..4 {
            let trial = Trial { seed, commands: 2_000, names: 60, part_bytes: 300 };
            check(&mut Map::default(), trial);
        }
    }
}
