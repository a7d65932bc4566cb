//! Status that a replica's thread publishes, for other threads to read at any time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use headstart_cache::tiers::TierSummary;
use headstart_core::EngineModel;
use headstart_engine::importance::ImportanceReport;
use headstart_engine::{Engine, SchedulerLoad};

/// Status that the thread published last.
#[derive(Debug, Default)]
pub(super) struct PublishedStatus {
    name: String,
    running: AtomicUsize,
    waiting: AtomicUsize,
    available_blocks: AtomicUsize,
    capacity_blocks: AtomicUsize,
    preemptions: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) annotated: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) down: AtomicBool,
    tiers: Mutex<Vec<TierSummary>>,
    learned: Mutex<Option<EngineModel>>,
    importance: Mutex<Option<ImportanceReport>>,
}

impl PublishedStatus {
    /// Status of a replica that has reported nothing yet.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Says how it is now.
    pub(super) fn report(&self, engine: &Engine) {
        // The counts are independent gauges. Readers need no common moment, so that relaxed stores
        // are enough.
        let load = engine.load();
        self.running.store(load.running, Relaxed);
        self.waiting.store(load.waiting, Relaxed);
        self.available_blocks.store(load.available_blocks, Relaxed);
        self.capacity_blocks.store(load.capacity_blocks, Relaxed);
        self.preemptions.store(load.preemptions, Relaxed);
        if let Some(tiers) = engine.tiers() {
            let tiers_told = self.tiers.lock();
            *tiers_told.unwrap_or_else(PoisonError::into_inner) = tiers.summary();
            let learned = self.learned.lock();
            *learned.unwrap_or_else(PoisonError::into_inner) = engine.learned();
        }
        if let Some(report) = engine.importance() {
            self.report_importance(report);
        }
    }

    fn report_importance(&self, report: ImportanceReport) {
        let mut told = self.importance.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Returns the cost and savings of partial loads.
    pub(super) fn importance(&self) -> Option<ImportanceReport> {
        let report = self.importance.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the running and waiting sequences, the blocks and the preemptions.
    pub(super) fn load(&self) -> SchedulerLoad {
        SchedulerLoad {
            running: self.running.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            available_blocks: self.available_blocks.load(Relaxed),
            capacity_blocks: self.capacity_blocks.load(Relaxed),
            preemptions: self.preemptions.load(Relaxed),
        }
    }

    /// Its lower tiers.
    pub(super) fn tiers(&self) -> Vec<TierSummary> {
        let tiers = self.tiers.lock();
        tiers.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the learned step costs.
    pub(super) fn learned(&self) -> Option<EngineModel> {
        let learned = self.learned.lock();
        *learned.unwrap_or_else(PoisonError::into_inner)
    }
}
