//! The place of a tier's records: a folder of one engine, or object storage that engines share.

use std::path::PathBuf;
use std::time::Duration;

use headstart_store::backend::{Backend, ResidentRecord, Waker};
use headstart_store::disk::DiskError;
use headstart_store::remote::{Remote, RemoteError, RemoteOptions};
use headstart_store::{Disk, DiskOptions};
use pyo3::exceptions::{PyBlockingIOError, PyOSError};
use pyo3::prelude::*;

/// Most records of a store, because each takes some 300 bytes of memory here.
const MOST_OBJECTS: usize = 1 << 20;

/// Longest attempt at a request of a store, beside the time that its bytes take. A prompt waits
/// for it.
const STORE_ATTEMPT: Duration = Duration::from_secs(3);

/// All attempts at a request of a store.
const STORE_DEADLINE: Duration = Duration::from_secs(6);

/// Requests of a store at once. Each moves one block.
const STORE_CONCURRENT: usize = 32;

/// A folder or the URL of a store, with the bytes that records may take there.
pub(crate) enum TierPlace {
    Folder(DiskOptions),
    Store(RemoteOptions),
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Store(#[from] RemoteError),
    #[error(
        "the budget of {budget_bytes} bytes has no room for a record of {record_bytes} bytes in \
         `{url}`: raise it"
    )]
    Budget { url: String, budget_bytes: u64, record_bytes: usize },
    #[error("the tier of `{place}` cannot start: {source}")]
    Start { place: String, source: std::io::Error },
}

/// An open place.
pub(crate) struct OpenPlace {
    pub(crate) backend: Box<dyn Backend>,
    /// Records that it has, oldest first.
    pub(crate) residents: Vec<ResidentRecord>,
    /// Records that fit its budget.
    pub(crate) capacity: usize,
}

impl TierPlace {
    /// A place with a scheme is a URL, any other one a folder.
    pub(crate) fn new(place: PathBuf, budget_bytes: u64) -> Self {
        match place.to_str() {
            Some(url) if url.contains("://") => Self::Store(RemoteOptions {
                budget_bytes: Some(budget_bytes),
                request_timeout: STORE_ATTEMPT,
                deadline: STORE_DEADLINE,
                max_concurrent: STORE_CONCURRENT,
                max_objects: MOST_OBJECTS,
                ..RemoteOptions::new(url)
            }),
            _ => Self::Folder(DiskOptions::new(place, budget_bytes)),
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Folder(options) => options.folder.display().to_string(),
            Self::Store(options) => options.url.clone(),
        }
    }

    /// Whether other engines store and remove records here.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Opens it for records of `record_bytes` bytes. A store that does not answer opens empty.
    pub(crate) fn open(self, record_bytes: usize, waker: Waker) -> Result<OpenPlace, PlaceError> {
        match self {
            Self::Folder(options) => {
                let (disk, residents) = Disk::open(options, waker)?;
                let capacity = disk.capacity_records(record_bytes as u64);
                Ok(OpenPlace { backend: Box::new(disk), residents, capacity })
            }
            Self::Store(options) => {
                let budget_bytes = options.budget_bytes.unwrap_or(u64::MAX);
                let capacity = (budget_bytes / record_bytes as u64).min(MOST_OBJECTS as u64);
                if capacity == 0 {
                    let url = options.url;
                    return Err(PlaceError::Budget { url, budget_bytes, record_bytes });
                }
                let (store, residents) = Remote::open(&options, waker)?;
                let capacity = capacity as usize;
                Ok(OpenPlace { backend: Box::new(store), residents, capacity })
            }
        }
    }
}

impl From<PlaceError> for PyErr {
    fn from(error: PlaceError) -> Self {
        let text = error.to_string();
        match error {
            PlaceError::Disk(DiskError::InUse { .. }) => PyBlockingIOError::new_err(text),
            _ => PyOSError::new_err(text),
        }
    }
}
