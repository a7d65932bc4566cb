//! Records in object storage, one object each: S3 and its kin, Google's, Azure's, a folder.
//!
//! Many replicas share one store. What is there is known from a listing at start and from others
//! now and then (the names of objects say enough): so a replica starts warm with what others wrote,
//! and a record that another one deletes is lost here a little later. [`Remote`] is the handle, a
//! thread of its own does the work, and requests that fail are tried again, with a limit to
//! everything.
//!
//! | file | knows |
//! |---|---|
//! | `place` | URLs, credentials |
//! | `key` | the names of objects |
//! | `store`, `transfer`, `parts`, `sweep` | requests |
//! | `index`, `health`, `backoff`, `trouble` | decisions, without a clock |
//! | `service` | the loop |
//!
//! It does not know the meaning or the value of records: its owner decides what to put. It does not
//! encrypt; the bucket does. Uploads that a crash cuts off stay until a rule of the bucket removes
//! them, and so do the unfinished files of a folder. A store without conditional writes needs
//! `AWS_CONDITIONAL_PUT=disabled`, one without deletion in bulk `AWS_DISABLE_BULK_DELETE=true`.
//!
//! Invariant: whatever the store does, each command is answered once and in time, and a record
//! that is given back was verified.

mod backoff;
mod health;
mod index;
mod inspect;
mod key;
mod parts;
mod place;
mod service;
mod stats;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod transfer;
mod trouble;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::backend::{Backend, Command, CommandOutcome, Failure, Report, ResidentRecord, Waker};
use backoff::Backoff;
use health::RemoteHealth;
use index::{ObjectIndex, ObjectLimits};
use place::StoreLocation;
use service::{Service, Setup};
use store::Store;
use trouble::{Trouble, TroubleKind};

pub use inspect::StoreInspector;
pub use stats::RemoteStats;

/// Threads that move bytes: encryption and copying of one keep a fast network busy, almost.
const WORKERS: usize = 2;

/// Threads that verify records, and wait for files where the store is a folder.
const BLOCKING: usize = 8;

/// Longest wait, at the end, for threads that a folder does not answer.
const STUCK: Duration = Duration::from_secs(1);

/// Address of a store, with limits and timeouts. The defaults suit a store in the same region.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `file:///FOLDER` or a
    /// folder. The rest of a URL is taken as it stands: `%20` is no space.
    pub url: String,
    /// Commands that are carried out at once. 16.
    pub max_concurrent: usize,
    /// Commands whose report was not polled yet; one more is given back. 1024.
    pub queue: usize,
    /// Longest attempt at a request, beside the time that its bytes take. 20 s.
    pub request_timeout: Duration,
    /// All attempts at a request together, likewise. 60 s.
    pub deadline: Duration,
    /// Attempts at a request, the first one included. 4.
    pub attempts: u32,
    /// Longest wait before the second attempt; later ones double it, and each is drawn at random
    /// below. 100 ms.
    pub backoff: Duration,
    /// Longest wait before any attempt. 5 s.
    pub max_backoff: Duration,
    /// Records from this length on are sent in parts. 16 MiB.
    pub multipart_bytes: usize,
    /// The length of a part; S3 wants 5 MiB or more. 8 MiB.
    pub part_bytes: usize,
    /// Objects older than that are not used, and deleted. None: only their own end counts.
    pub ttl: Option<Duration>,
    /// All records together; the oldest are deleted at the next listing. None: no limit.
    pub budget_bytes: Option<u64>,
    /// Between two listings, a quarter more or less. 60 s.
    pub refresh: Duration,
    /// Longest listing. 120 s.
    pub listing_timeout: Duration,
    /// Objects that are known at most, about 200 bytes of memory each. 262,144.
    pub max_objects: usize,
    /// Requests in a row that did not reach the store, after which it is gone. 5.
    pub offline_after: u32,
    /// Longest wait before the first look whether it is back; later ones double it. 1 s.
    pub probe: Duration,
    /// Longest wait before any such look. 30 s.
    pub max_probe: Duration,
}

impl RemoteOptions {
    /// The store at `url`, and everything else as documented.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            max_concurrent: 16,
            queue: 1024,
            request_timeout: Duration::from_secs(20),
            deadline: Duration::from_secs(60),
            attempts: 4,
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            multipart_bytes: 16 << 20,
            part_bytes: 8 << 20,
            ttl: None,
            budget_bytes: None,
            refresh: Duration::from_secs(60),
            listing_timeout: Duration::from_secs(120),
            max_objects: 1 << 18,
            offline_after: 5,
            probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(30),
        }
    }

    fn check(&self, least_part_bytes: usize) -> Result<(), RemoteError> {
        let at_least = |name, value: usize, least: usize| {
            (value >= least).then_some(()).ok_or(RemoteError::Option { name, value, least })
        };
        at_least("max_concurrent", self.max_concurrent, 1)?;
        at_least("queue", self.queue, 1)?;
        at_least("attempts", self.attempts as usize, 1)?;
        at_least("max_objects", self.max_objects, 1)?;
        at_least("offline_after", self.offline_after as usize, 1)?;
        at_least("part_bytes", self.part_bytes, least_part_bytes)
    }
}

/// Why there is no remote tier.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The URL names no store.
    #[error(
        "`{url}` is no store: {reason}; write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, \
         az://CONTAINER/PREFIX, file:///FOLDER or a folder"
    )]
    Url {
        /// As it was given.
        url: String,
        /// The cause.
        reason: String,
    },
    /// An option is too small.
    #[error("the option `{name}` of the remote tier is {value}; set it to {least} or more")]
    Option {
        /// Its name.
        name: &'static str,
        /// As it was given.
        value: usize,
        /// The smallest that works here.
        least: usize,
    },
    /// The environment does not say how to reach it.
    #[error("`{place}` cannot be used: {reason}; check the variables {variables}*")]
    Settings {
        /// The bucket or container.
        place: String,
        /// The cause.
        reason: String,
        /// Common prefix of its environment variables.
        variables: &'static str,
    },
    /// The folder cannot be used.
    #[error("the folder {folder:?} cannot be used: {reason}; make it, or give another")]
    Folder {
        /// As it was given.
        folder: PathBuf,
        /// The cause.
        reason: String,
    },
    /// It answered, and said no.
    #[error(
        "`{url}` refused to be listed: {reason}; check that the bucket is there and that the \
         credentials may list, read, write and delete under the prefix"
    )]
    Refused {
        /// As it was given.
        url: String,
        /// In the store's words.
        reason: String,
    },
    /// The system gives no thread.
    #[error("no thread for the remote tier: {0}; raise the limit of threads of this process")]
    Thread(#[from] std::io::Error),
}

/// Records in object storage. Dropping it waits some seconds for what is under way.
#[derive(Debug)]
pub struct Remote {
    commands: mpsc::Sender<Command>,
    reports: Receiver<Report>,
    /// Answers to what came after the thread had ended.
    late: VecDeque<Report>,
    /// Commands whose report was not polled yet.
    unanswered: usize,
    queue: usize,
    stats: Arc<RemoteStats>,
    closing: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    /// Opens the store and lists it: what can be read there comes along, oldest first. One that
    /// does not answer is reported as gone and watched; so this takes the options' `deadline` at
    /// worst, or their `listing_timeout` where there is much to list.
    ///
    /// # Errors
    /// When the store cannot be named or used, or says no.
    pub fn open(
        options: &RemoteOptions,
        waker: Waker,
    ) -> Result<(Self, Vec<ResidentRecord>), RemoteError> {
        let place = StoreLocation::parse(&options.url)?;
        options.check(place.least_part_bytes())?;
        let (objects, root) = place.open()?;
        Self::over(objects, root, options, waker)
    }

    /// The same over a store that is open.
    fn over(
        objects: Arc<dyn ObjectStore>,
        root: Path,
        options: &RemoteOptions,
        waker: Waker,
    ) -> Result<(Self, Vec<ResidentRecord>), RemoteError> {
        let store = Store::new(objects, root, options.clone());
        let stats = store.stats.clone();
        let (commands, to_do) = mpsc::channel(options.queue);
        let (done, reports) = channel();
        let (closing, is_closing) = oneshot::channel();
        let probes = Backoff { first: options.probe, most: options.max_probe };
        let setup = Setup {
            store,
            index: ObjectIndex::new(ObjectLimits {
                ttl_s: options.ttl.map(|ttl| ttl.as_secs()),
                budget_bytes: options.budget_bytes,
            }),
            health: RemoteHealth::new(options.offline_after, probes),
            commands: to_do,
            closing: is_closing,
            reports: done,
            waker,
        };
        let (ready, is_ready) = channel();
        let thread = std::thread::Builder::new()
            .name("headstart-remote".to_owned())
            .spawn(move || serve(setup, &ready))?;
        let remote = Self {
            commands,
            reports,
            late: VecDeque::new(),
            unanswered: 0,
            queue: options.queue,
            stats,
            closing: Some(closing),
            thread: Some(thread),
        };
        match is_ready.recv() {
            Ok(Ok(residents)) => Ok((remote, residents)),
            Ok(Err(trouble)) if trouble.kind == TroubleKind::Full => {
                Err(RemoteError::Thread(std::io::Error::other(trouble.text)))
            }
            Ok(Err(trouble)) => {
                Err(RemoteError::Refused { url: options.url.clone(), reason: trouble.text })
            }
            Err(_) => Err(RemoteError::Thread(std::io::Error::other("it ended"))),
        }
    }

    /// Returns the counters, which stay readable after the tier is gone.
    #[must_use]
    pub fn stats(&self) -> Arc<RemoteStats> {
        self.stats.clone()
    }

    /// Ends it, waiting some seconds for what is under way, and returns the last reports: each
    /// command is answered.
    #[must_use]
    pub fn close(mut self) -> Vec<Report> {
        self.stop();
        let mut reports = Vec::new();
        self.poll(&mut reports);
        reports
    }

    fn stop(&mut self) {
        if let Some(closing) = self.closing.take() {
            // Sending fails only if the thread has ended.
            let _ = closing.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The threads that requests run on.
fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .thread_name("headstart-remote-io")
        .enable_all()
        .build()
}

/// The thread: a runtime, and the loop in it.
fn serve(setup: Setup, ready: &Sender<Result<Vec<ResidentRecord>, Trouble>>) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(Trouble::new(TroubleKind::Full, error.to_string())));
            return;
        }
    };
    runtime.block_on(async {
        let mut service = Service::new(setup);
        match service.begin().await {
            Ok(changes) => {
                // The one who opens waits for this; if not, it closes next.
                let _ = ready.send(Ok(changes.found));
                service.run().await;
            }
            Err(trouble) => {
                let _ = ready.send(Err(trouble));
            }
        }
    });
    // A folder that does not answer blocks threads of the pool: they are left to themselves.
    runtime.shutdown_timeout(STUCK);
}

impl Backend for Remote {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        // Reports that were not polled count as well, because their channel has no limit.
        if self.unanswered >= self.queue {
            return Err(command);
        }
        match self.commands.try_send(command) {
            Ok(()) => {}
            Err(TrySendError::Full(command)) => return Err(command),
            Err(TrySendError::Closed(command)) => self.late.push_back(Report::Done {
                ticket: command.ticket(),
                outcome: CommandOutcome::Failed(Failure::Aborted),
            }),
        }
        self.unanswered += 1;
        Ok(())
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let before = reports.len();
        reports.extend(self.reports.try_iter());
        reports.extend(self.late.drain(..));
        // Only these answer a command; losses and finds come by themselves.
        let is_answer = |report: &&Report| matches!(report, Report::Done { .. });
        let num_answers = reports[before..].iter().filter(is_answer).count();
        self.unanswered = self.unanswered.saturating_sub(num_answers);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.stop();
    }
}
