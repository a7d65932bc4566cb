//! Status that a replica's thread publishes, for other threads to read at any time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use headstart_cache::tiers::TierSummary;
use headstart_core::EngineModel;
use headstart_engine::importance::ImportanceReport;
use headstart_engine::{Engine, SchedulerLoad};

use crate::lock::lock;

/// Status that the thread published last.
#[derive(Debug, Default)]
pub(super) struct PublishedStatus {
    name: String,
    /// The running and waiting sequences, the blocks and the preemptions.
    pub(super) load: Mutex<SchedulerLoad>,
    pub(super) panics: AtomicU64,
    pub(super) annotated: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) down: AtomicBool,
    pub(super) tiers: Mutex<Vec<TierSummary>>,
    /// The learned step costs.
    pub(super) learned: Mutex<Option<EngineModel>>,
    /// The cost and savings of partial loads.
    pub(super) importance: Mutex<Option<ImportanceReport>>,
}

impl PublishedStatus {
    /// Status of a replica that has reported nothing yet.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Says how it is now.
    pub(super) fn report(&self, engine: &Engine) {
        *lock(&self.load) = engine.load();
        if let Some(tiers) = engine.tiers() {
            *lock(&self.tiers) = tiers.summary();
            *lock(&self.learned) = engine.learned();
        }
        if let Some(report) = engine.importance() {
            self.report_importance(report);
        }
    }

    fn report_importance(&self, report: ImportanceReport) {
        let mut told = lock(&self.importance);
        // The counts only grow; the log has one line per rise, not one per report.
        let before = told.as_ref().map_or(0, |report| report.barred.prefixes);
        let (guard, barred) = (&report.guard, &report.barred);
        if barred.prefixes > before {
            tracing::warn!(
                replica = self.name,
                prefixes = barred.prefixes,
                last_unit = ?barred.last,
                compared = guard.compared,
                agreed = guard.agreed,
                largest_kl = guard.kl_max,
                "answers from a part of a stored prefix were too far from those from all of it; \
                 prompts that go through it are loaded in full from now on"
            );
        }
        let before = told.as_ref().map_or(0, |report| report.tally.late);
        if report.tally.late > before {
            tracing::debug!(
                replica = self.name,
                late = report.tally.late,
                "parts of a stored prefix came late; the prompt continues with all of it"
            );
        }
        *told = Some(report);
    }
}
