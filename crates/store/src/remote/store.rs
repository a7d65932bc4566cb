//! State shared by all requests: the store, the options, and the retry loop.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headstart_core::Rng;
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::time::{Instant, timeout};

use super::RemoteOptions;
use super::backoff::Backoff;
use super::key::ObjectLayout;
use super::stats::{RemoteStats, add};
use super::trouble::{Trouble, TroubleKind};
use crate::record::Headers;

/// Slowest transfer that is waited for, bytes a second: below it, computing is quicker.
const SLOWEST_BYTES_S: usize = 4 << 20;

/// The store and how it is asked.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) layout: ObjectLayout,
    pub(super) options: RemoteOptions,
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
        root: Path,
        options: RemoteOptions,
    ) -> Arc<Self> {
        // `RandomState` has random keys, so that replicas draw different pauses.
        let seed = RandomState::new().hash_one(std::process::id());
        Arc::new(Self {
            objects,
            layout: ObjectLayout::under(root),
            options,
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
        let backoff = Backoff { first: self.options.backoff, most: self.options.max_backoff };
        tokio::time::sleep(backoff.wait(failed, self.jitter())).await;
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
            longest: store.options.request_timeout + moving,
            until: Instant::now() + store.options.deadline + moving,
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
        let is_over = self.failed >= self.store.options.attempts || Instant::now() >= self.until;
        if is_over || !trouble.kind.is_passing() {
            return Err(trouble);
        }
        self.store.pause(self.failed).await;
        Ok(())
    }
}
