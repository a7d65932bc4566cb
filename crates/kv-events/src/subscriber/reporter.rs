//! State of a stream, shared between its task and all readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_router::stream::{StreamReport, StreamStatus};
use tokio::time::Instant;

use super::SubscriberConfig;
use super::notes::Notes;

/// Handle to the state of a stream, readable from any thread, also after its subscription ended.
#[derive(Clone, Debug, Default)]
pub struct StreamReporter(Arc<Mutex<StreamSnapshot>>);

/// State that a stream's task publishes.
#[derive(Debug, Default)]
pub(super) struct StreamSnapshot {
    pub(super) config: SubscriberConfig,
    pub(super) report: StreamReport,
    pub(super) notes: Notes,
    /// Its subscription has ended.
    pub(super) is_over: bool,
}

impl StreamReporter {
    /// Of a stream of which this is known.
    pub(super) fn new(config: SubscriberConfig, report: StreamReport, notes: Notes) -> Self {
        Self(Arc::new(Mutex::new(StreamSnapshot { config, report, notes, is_over: false })))
    }

    /// The latest report. The status is down once nothing follows the stream.
    #[must_use]
    pub fn report(&self) -> StreamReport {
        let shown = self.lock();
        if shown.is_over {
            StreamReport { status: StreamStatus::Down, ..shown.report }
        } else {
            shown.report
        }
    }

    /// The current problems, each with a suggested fix. `None` without problems, or once nothing
    /// follows the stream.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let shown = self.lock();
        let problem = || shown.notes.problem(&shown.config, Instant::now());
        (!shown.is_over).then(problem)?
    }

    pub(super) fn notes(&self) -> Notes {
        self.lock().notes.clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, StreamSnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
