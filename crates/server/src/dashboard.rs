//! The live dashboard: what a page, a terminal or a script is shown of a running server.
//!
//! ```text
//! requests ── keys ──► prompts ─┐
//! metrics, router, index ───────┴─ once a second ──► snapshot ──► each listener the newest
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`snapshot`] | [`Snapshot`], the contract as JSON |
//! | `failures` | the last requests that ended in an error |
//! | `gather` | a snapshot of a gateway |
//! | `history` | the last quarter of an hour, second by second |
//! | `prompts` | the last prompts' keys, until a snapshot takes them |
//! | `occupancy` | how many blocks each replica's device holds |
//! | `publish` | a snapshot a second, for those who listen |
//! | `labels` | names of prefixes, in place of hashes |
//! | `tree` | the prefixes that prompts shared lately |
//! | [`page()`] | the page, with its style and scripts |
//!
//! Requests pay for it with one entry in a short list, whether a client watches or not. Everything
//! else happens beside them: a sum of the counters once a second, and a snapshot while a client
//! listens. It shows keyed hashes and counts, never a token or a text.

mod failures;
mod gather;
mod history;
mod labels;
mod occupancy;
mod page;
mod prompts;
mod publish;
pub mod snapshot;
mod tree;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headstart_core::Nanos;
use headstart_router::PromptKeys;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::kept::AnswerCache;
use failures::Failures;
use history::History;
use occupancy::DeviceOccupancy;
use prompts::RecentPrompts;
use tree::PrefixTree;

pub use failures::FailedRequest;
pub use labels::{LabelResidency, PrefixLabels};
pub use page::{icon, page};
pub use publish::{PERIOD, event, run, whole};
pub use snapshot::Snapshot;

/// Most concurrent listeners: each costs one connection and about 30 KB/s of writes.
pub const LISTENERS_MAX: usize = 32;

/// The dashboard's part of a gateway.
#[derive(Debug)]
pub struct Dashboard {
    prompts: RecentPrompts,
    /// The last requests that ended in an error.
    pub failures: Failures,
    /// Names of prefixes.
    pub labels: PrefixLabels,
    seats: Arc<Semaphore>,
    /// The newest snapshot as an event; none before the first, and once nothing more comes.
    newest: watch::Sender<Option<Bytes>>,
    /// One snapshot is made at a time, and several who ask at once get the same.
    latest: AnswerCache<Snapshot>,
    /// The same for the sums of `/debug/waterfall`.
    pub sums: AnswerCache<serde_json::Value>,
    history: Mutex<History>,
    /// Held for as long as a snapshot is made, off the network threads.
    looked: Mutex<DashboardState>,
}

/// State kept from one snapshot to the next.
#[derive(Debug, Default)]
struct DashboardState {
    tree: PrefixTree,
    skipped: u64,
    occupancy: DeviceOccupancy,
}

/// A place among the listeners; given back when dropped.
#[derive(Debug)]
pub struct Listener {
    newest: watch::Receiver<Option<Bytes>>,
    _seat: OwnedSemaphorePermit,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self {
            prompts: RecentPrompts::default(),
            failures: Failures::default(),
            labels: PrefixLabels::default(),
            seats: Arc::new(Semaphore::new(LISTENERS_MAX)),
            newest: watch::channel(None).0,
            latest: AnswerCache::default(),
            sums: AnswerCache::default(),
            history: Mutex::default(),
            looked: Mutex::default(),
        }
    }
}

impl Dashboard {
    /// A dashboard with names of prefixes.
    #[must_use]
    pub fn with(labels: PrefixLabels) -> Self {
        Self { labels, ..Self::default() }
    }

    /// A prompt was sent to a replica.
    pub fn note_prompt(&self, keys: PromptKeys, now: Nanos) {
        self.prompts.note(keys, now);
    }

    /// A place among the listeners, unless all are taken.
    #[must_use]
    pub fn listen(&self) -> Option<Listener> {
        let seat = self.seats.clone().try_acquire_owned().ok()?;
        Some(Listener { newest: self.newest.subscribe(), _seat: seat })
    }
}

impl Listener {
    /// The next snapshot as a server-sent event: the newest there is, however many were missed.
    /// None once no more come.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.newest.changed().await.ok()?;
        self.newest.borrow_and_update().clone()
    }
}
