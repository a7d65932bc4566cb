//! Where a stream stands, for whoever asks: the one place that its task and others share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_router::stream::{StreamReport, StreamStatus};
use tokio::time::Instant;

use super::SubscriberConfig;
use super::notes::Notes;

/// Where a stream stands, to be asked from anywhere, also after its subscription has ended.
#[derive(Clone, Debug, Default)]
pub struct StreamReporter(Arc<Mutex<Shown>>);

/// What a stream's task shows.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) config: SubscriberConfig,
    pub(super) report: StreamReport,
    pub(super) notes: Notes,
    /// Nobody follows it any more.
    pub(super) is_over: bool,
}

impl StreamReporter {
    /// Of a stream of which this is known.
    pub(super) fn new(config: SubscriberConfig, report: StreamReport, notes: Notes) -> Self {
        Self(Arc::new(Mutex::new(Shown {
            config,
            report,
            notes,
            is_over: false,
        })))
    }

    /// What the stream said last. It is down where nobody follows it.
    #[must_use]
    pub fn report(&self) -> StreamReport {
        let shown = self.lock();
        match shown.is_over {
            true => StreamReport {
                status: StreamStatus::Down,
                ..shown.report
            },
            false => shown.report,
        }
    }

    /// What is wrong with it and what to do about that, in a sentence or two; none where nothing
    /// is, or where nobody follows it.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let shown = self.lock();
        let problem = || shown.notes.problem(&shown.config, Instant::now());
        (!shown.is_over).then(problem)?
    }

    pub(super) fn notes(&self) -> Notes {
        self.lock().notes.clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
