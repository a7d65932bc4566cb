//! Inspection and maintenance of a context cache by its operator, outside a server.
//!
//! | file | does |
//! |---|---|
//! | `disk/inspect` | a folder: what a server that started now would find there |
//! | `remote/inspect` | object storage, by its listing |
//! | [`copy`] | verified records to another place |
//!
//! Inspection changes nothing and needs no lock: a folder may be in use meanwhile, and then the
//! report shows its state a moment ago. Operations that change a folder take its lock. Records are
//! read and verified as a server does it, so that no damaged record passes as intact.

pub mod copy;

use headstart_core::{IdentityDigest, TenantTag};

use crate::arena::Slot;
use crate::backend::ResidentRecord;
use crate::disk::{DiskError, FolderInspector};
use crate::record::{Exactness, PAGE, Record, Wrong};
use crate::remote::{RemoteError, RemoteOptions, StoreInspector};

/// No record that anybody stores is longer, bytes. For an object that is, whatever its name says,
/// no memory is asked for.
const LONGEST: u64 = 1 << 30;

/// Bytes of slots that hold any of these, as far as they can be records.
#[must_use]
pub fn slot_bytes(items: &[Item]) -> usize {
    let bytes = items.iter().map(|item| item.resident.bytes);
    let largest = bytes.filter(|&bytes| bytes <= LONGEST).max();
    largest.unwrap_or(0) as usize + PAGE
}

/// A record that can be read, as far as that is known without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The record.
    pub resident: ResidentRecord,
    /// When it was made, seconds since 1970; in object storage, when it was written there.
    pub created_s: Option<u64>,
    /// Identity of the computation.
    pub identity: Option<IdentityDigest>,
    /// Whether it is what was computed.
    pub exactness: Option<Exactness>,
    pub(crate) at: At,
}

/// Position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// In a segment of a folder.
    Segment {
        /// Its number.
        id: u32,
        /// Its life.
        sequence: u64,
        /// The record's first page.
        page: u32,
    },
    /// In an object of its own.
    Object,
}

/// Number and total size of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordTally {
    /// Records.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl RecordTally {
    /// One more.
    pub fn add(&mut self, bytes: u64) {
        self.records += 1;
        self.bytes += bytes;
    }
}

/// Contents of a context cache.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Records that can be read, oldest first.
    pub items: Vec<Item>,
    /// Records whose time is over.
    pub expired: RecordTally,
    /// Records that were found damaged and are not read any more.
    pub quarantined: RecordTally,
    /// Records that are not wanted: there is a younger copy, or their tenant was purged.
    pub garbage: RecordTally,
    /// Files or objects that look like ours and are not.
    pub strangers: usize,
    /// Of a folder, its segments.
    pub files: Option<Files>,
    /// Damage not yet on a list, in words, in a folder that is not in use.
    pub harm: Vec<String>,
    /// Whether that is all: a listing of object storage ends at a limit.
    pub is_whole: bool,
}

/// The segments of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Number of segments.
    pub segments: usize,
    /// Length of each segment, bytes.
    pub segment_bytes: u64,
    /// Bytes that the file system has given to them; their lengths count for the budget.
    pub allocated_bytes: u64,
}

impl Files {
    /// Their lengths together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments as u64 * self.segment_bytes
    }
}

/// Why a record could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordReadError {
    /// The stored bytes differ from those written.
    #[error("{0}")]
    Wrong(Wrong),
    /// It was replaced or deleted while it was looked for: nothing is wrong.
    #[error("it was replaced or deleted meanwhile")]
    Gone,
    /// Reading failed.
    #[error("reading failed: {0}")]
    Unreadable(String),
}

/// Result of a cleanup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupReport {
    /// Records whose time was over.
    pub expired: RecordTally,
    /// Records that were not wanted.
    pub garbage: RecordTally,
    /// Segments that were deleted, because nothing in them can be read.
    pub segments: usize,
    /// Bytes that the disk, or the store, has free for it.
    pub won_bytes: u64,
}

/// Why a context cache cannot be looked at or after.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The folder cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The object storage cannot be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// A context cache.
#[derive(Debug)]
pub enum Cache {
    /// In a folder.
    Folder(FolderInspector),
    /// In object storage.
    Store(StoreInspector),
}

/// Takes each record that was asked for, or why it cannot be read.
pub type Visit<'a> = dyn FnMut(&Item, Result<Record, RecordReadError>) + 'a;

impl Cache {
    /// Opens what `place` names, as `serve --context-cache` understands it, to look at it.
    ///
    /// # Errors
    /// When the place does not exist or cannot be read.
    pub fn look(place: &str) -> Result<Self, InspectError> {
        if place.contains("://") {
            Self::store(place)
        } else {
            Ok(Self::Folder(FolderInspector::look(place.as_ref())?))
        }
    }

    /// The same to change it; a folder is locked until the value is dropped.
    ///
    /// # Errors
    /// As for [`Cache::look`], and when another process uses the folder.
    pub fn open(place: &str) -> Result<Self, InspectError> {
        if place.contains("://") {
            Self::store(place)
        } else {
            Ok(Self::Folder(FolderInspector::open(place.as_ref())?))
        }
    }

    fn store(url: &str) -> Result<Self, InspectError> {
        Ok(Self::Store(StoreInspector::open(&RemoteOptions::new(url))?))
    }

    /// Surveys its contents at `now_s`, seconds since 1970. For a folder, it reads the lists of
    /// records and the records of unsealed segments.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn survey(&self, now_s: u64) -> Result<Survey, InspectError> {
        match self {
            Self::Folder(folder) => Ok(folder.survey(now_s)?),
            Self::Store(store) => Ok(store.survey(now_s)?),
        }
    }

    /// Fills in when records of a folder were made, how they were computed and whether they are
    /// exact, by reading their first bytes. What cannot be read, or is damaged, stays unknown.
    pub fn describe(&self, items: &mut [Item]) {
        if let Self::Folder(folder) = self {
            folder.describe(items);
        }
    }

    /// Reads and verifies records, into slots that `slot` gives and that are long enough for any of
    /// them. It is called from this thread, at most 16 times ahead of `visit`.
    pub fn read(&self, items: &[Item], slot: &mut dyn FnMut() -> Slot, visit: &mut Visit<'_>) {
        match self {
            Self::Folder(folder) => folder.read(items, slot, visit),
            Self::Store(store) => store.read(items, slot, visit),
        }
    }

    /// Takes damaged records out of the way: they are not read again.
    ///
    /// # Errors
    /// When that is not possible.
    ///
    /// # Panics
    /// When a folder was opened only to look at it; so do those below.
    pub fn set_aside(&self, items: &[(Item, Wrong)]) -> Result<(), InspectError> {
        match self {
            Self::Folder(folder) => folder.set_aside(items)?,
            Self::Store(store) => store.set_aside(items)?,
        }
        Ok(())
    }

    /// Clears away whatever cannot be read any more.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn clear(&self, now_s: u64) -> Result<CleanupReport, InspectError> {
        match self {
            Self::Folder(folder) => Ok(folder.clear(now_s)?),
            Self::Store(store) => Ok(store.clear(now_s)?),
        }
    }

    /// Destroys all that belongs to a tenant, also what is damaged or expired; how many records, or
    /// objects, there were.
    ///
    /// # Errors
    /// When that is not possible. Of a folder it cannot be read any more all the same, except where
    /// the first step failed.
    pub fn purge(&self, tenant: TenantTag) -> Result<u64, InspectError> {
        match self {
            Self::Folder(folder) => Ok(folder.purge(tenant)?),
            Self::Store(store) => Ok(store.purge(tenant)?),
        }
    }

    /// Destroys all; how many segments, or objects, there were.
    ///
    /// # Errors
    /// When that is not possible; some may be gone.
    pub fn purge_all(&self) -> Result<u64, InspectError> {
        match self {
            Self::Folder(folder) => Ok(folder.purge_all()?),
            Self::Store(store) => Ok(store.purge_all()?),
        }
    }
}
