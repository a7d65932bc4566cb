//! State shared by all requests: the store, their limits, and the retry loop.

use std::future::Future;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headstart_core::Rng;
use object_store::ObjectStore;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::key::ObjectLayout;
use super::stats::{RemoteStats, add};
use super::trouble::{Trouble, TroubleKind};
use crate::record::Headers;

/// Slowest transfer that is waited for, bytes a second: below it, computing is quicker.
const SLOWEST_BYTES_S: usize = 4 << 20;

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) attempts: u32,
    /// One attempt, without the time that its bytes take.
    pub(super) request: Duration,
    /// All attempts together, likewise.
    pub(super) deadline: Duration,
    pub(super) backoff: Backoff,
    /// Records from this length on are sent in parts, bytes.
    pub(super) multipart: usize,
    pub(super) part: usize,
    /// A whole listing.
    pub(super) listing: Duration,
    /// Objects of a listing that are kept.
    pub(super) max_objects: usize,
}

/// The store and how it is asked.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) layout: ObjectLayout,
    pub(super) rules: Rules,
    pub(super) stats: Arc<RemoteStats>,
    /// Objects that were set aside.
    pub(super) quarantined: AtomicUsize,
    /// Of records of which parts were read.
    pub(super) headers: Mutex<Headers>,
    rng: Mutex<Rng>,
}

impl Store {
    pub(super) fn new(
        objects: Arc<dyn ObjectStore>,
        layout: ObjectLayout,
        rules: Rules,
        seed: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            objects,
            layout,
            rules,
            stats: Arc::default(),
            quarantined: AtomicUsize::new(0),
            headers: Mutex::default(),
            rng: Mutex::new(Rng::new(seed)),
        })
    }

    /// A number in `[0, 1)`.
    pub(super) fn jitter(&self) -> f64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.next_f64()
    }

    /// Waits before the next attempt, after `failed` failed ones.
    pub(super) async fn pause(&self, failed: u32) {
        add(&self.stats.retries, 1);
        let wait = self.rules.backoff.wait(failed, self.jitter());
        tokio::time::sleep(wait).await;
    }

    /// Asks until it works, it never will, or it was asked often enough.
    pub(super) async fn retried<T, E, R>(
        &self,
        mut request: impl FnMut() -> R,
    ) -> Result<T, Trouble>
    where
        R: Future<Output = Result<T, E>>,
        E: Into<Trouble>,
    {
        let mut attempts = Attempts::new(self, 0);
        loop {
            match attempts.within(request()).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => attempts.again(trouble).await?,
            }
        }
    }
}

/// The attempts at one thing.
pub(super) struct Attempts<'a> {
    store: &'a Store,
    failed: u32,
    longest: Duration,
    until: Instant,
}

impl<'a> Attempts<'a> {
    /// Starts attempts at a request that moves `bytes` bytes.
    pub(super) fn new(store: &'a Store, bytes: usize) -> Self {
        let moving = Duration::from_secs_f64(bytes as f64 / SLOWEST_BYTES_S as f64);
        Self {
            store,
            failed: 0,
            longest: store.rules.request + moving,
            until: Instant::now() + store.rules.deadline + moving,
        }
    }

    /// One attempt, or a part of one.
    pub(super) async fn within<T, E: Into<Trouble>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Trouble> {
        let left = self.until.saturating_duration_since(Instant::now());
        let limit = self.longest.min(left);
        match timeout(limit, work).await {
            Ok(result) => result.map_err(Into::into),
            Err(_) => Err(Trouble::new(TroubleKind::Late, format!("no answer in {limit:?}"))),
        }
    }

    /// Waits before another attempt, if there should be one.
    pub(super) async fn again(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        self.failed += 1;
        let is_over = self.failed >= self.store.rules.attempts || Instant::now() >= self.until;
        if is_over || !trouble.kind.is_passing() {
            return Err(trouble);
        }
        self.store.pause(self.failed).await;
        Ok(())
    }
}
