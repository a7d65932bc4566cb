//! What a replica's thread says of itself, for others to read at any time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use headstart_cache::tiers::TierSummary;
use headstart_core::EngineModel;
use headstart_engine::{Engine, Load};

/// What the thread last said of itself.
#[derive(Debug, Default)]
pub(super) struct Status {
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
}

impl Status {
    /// Says how it is now.
    pub(super) fn report(&self, engine: &Engine) {
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
    }

    /// How busy it is.
    pub(super) fn load(&self) -> Load {
        Load {
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

    /// What its steps cost.
    pub(super) fn learned(&self) -> Option<EngineModel> {
        let learned = self.learned.lock();
        *learned.unwrap_or_else(PoisonError::into_inner)
    }
}
