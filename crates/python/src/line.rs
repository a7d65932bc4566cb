//! The loads of a tier, which follow one another, and the speeds that they show.

use std::time::Instant;

use headstart_cache::tiers::{Advice, LoadAdviser, StoredRun};
use headstart_core::Nanos;

/// A tier's line of loads, and what it says of the speeds.
pub(crate) struct LoadLine {
    adviser: LoadAdviser,
    waiting_bytes: usize,
    /// Since when the next load has had the line for itself.
    since: Instant,
    opened: Instant,
}

impl LoadLine {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { adviser: LoadAdviser::default(), waiting_bytes: 0, since: now, opened: now }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A load of `bytes` joins the line.
    pub(crate) fn begin(&mut self, bytes: usize) {
        if self.waiting_bytes == 0 {
            self.since = Instant::now();
        }
        self.waiting_bytes += bytes;
    }

    /// A load of `bytes` has ended, of which `moved` are there.
    pub(crate) fn end(&mut self, bytes: usize, moved: u64) {
        let (seconds, now) = (self.since.elapsed().as_secs_f64(), self.now());
        self.since = Instant::now();
        self.waiting_bytes -= bytes;
        self.adviser.observe_load(moved as usize, seconds, now);
    }

    /// Bytes of the loads in the line.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// See [`LoadAdviser::observe_step`].
    pub(crate) fn observe_step(&mut self, entries: &[(usize, usize)], seconds: f64) {
        self.adviser.observe_step(entries, seconds);
    }

    /// See [`LoadAdviser::observe_wait`].
    pub(crate) fn observe_wait(&mut self, expected_s: f64, seconds: f64) {
        self.adviser.observe_wait(expected_s, seconds);
    }

    /// See [`LoadAdviser::advise`].
    pub(crate) fn advise(&self, run: &StoredRun) -> Advice {
        self.adviser.advise(run, self.now())
    }
}
