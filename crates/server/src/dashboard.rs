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
mod page;
mod prompts;
pub mod snapshot;
mod tree;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use headstart_core::Nanos;
use headstart_index_sync::clock::unix_seconds;
use headstart_router::PromptKeys;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::MissedTickBehavior;

use crate::gateway::HttpGateway;
use crate::kept::AnswerCache;
use failures::Failures;
use gather::DeviceOccupancy;
use history::{History, POINTS_MAX};
use prompts::RecentPrompts;
use tree::PrefixTree;

pub use failures::FailedRequest;
pub use labels::{LabelResidency, PrefixLabels};
pub use page::{icon, page};
pub use snapshot::Snapshot;

/// Time between two snapshots.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Most concurrent listeners: each costs one connection and about 30 KB/s of writes.
pub const LISTENERS_MAX: usize = 32;

/// Seconds of history in each snapshot but the first: who misses no more than these has all.
const POINTS_AGAIN: usize = 10;

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

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looked(&self) -> MutexGuard<'_, DashboardState> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Counts seconds for as long as the gateway lives, and tells those who listen.
pub async fn run(gateway: Weak<HttpGateway>) {
    let mut ticks = tokio::time::interval(PERIOD);
    // After a stall, a burst of ticks would add seconds without requests to the history.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(gateway) = gateway.upgrade() else {
            return;
        };
        let dashboard = &gateway.dashboard;
        let totals = gateway.metrics.totals();
        let at = unix_seconds() as u64;
        dashboard.history().end_second(at, totals);
        if gateway.draining.load(Relaxed) {
            // Ends the streams, so that shutdown does not wait for them.
            dashboard.newest.send_replace(None);
            return;
        }
        if dashboard.newest.receiver_count() > 0
            && let Some(snapshot) = latest(&gateway).await
        {
            let part = with_history(&gateway, &snapshot, POINTS_AGAIN);
            dashboard.newest.send_replace(Some(event(&part)));
        }
    }
}

/// The newest snapshot with all of its history; at most a second old. None where the making failed.
pub async fn whole(gateway: &Arc<HttpGateway>) -> Option<Snapshot> {
    let snapshot = latest(gateway).await?;
    Some(with_history(gateway, &snapshot, POINTS_MAX))
}

/// A snapshot as a server-sent event.
#[must_use]
pub fn event(snapshot: &Snapshot) -> Bytes {
    let json = serde_json::to_string(snapshot);
    format!("data: {}\n\n", json.unwrap_or_default()).into()
}

async fn latest(gateway: &Arc<HttpGateway>) -> Option<Arc<Snapshot>> {
    let looked_at = gateway.clone();
    let made = gateway.dashboard.latest.get(move || gather::snapshot(&looked_at));
    made.await
}

fn with_history(gateway: &HttpGateway, snapshot: &Snapshot, seconds: usize) -> Snapshot {
    let mut told = snapshot.clone();
    let history = gateway.dashboard.history();
    told.history = snapshot::HistoryPart {
        columns: history::COLUMNS.map(str::to_owned).to_vec(),
        is_whole: seconds == POINTS_MAX,
        points: history.last(seconds).into_iter().map(Vec::from).collect(),
        ttft: history.ttft(seconds),
    };
    told
}
