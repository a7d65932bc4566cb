//! Counters of a remote tier.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::backend::Failure;

/// Counts since the start, for anybody to read at any time. Each only grows.
#[derive(Debug, Default)]
pub struct RemoteStats {
    /// Records read and verified.
    pub gets: AtomicU64,
    /// Objects written.
    pub puts: AtomicU64,
    /// Puts that moved nothing: the object was there, or the same put was under way.
    pub puts_saved: AtomicU64,
    /// Bytes of records read.
    pub bytes_in: AtomicU64,
    /// Bytes of records written.
    pub bytes_out: AtomicU64,
    /// Attempts after the first, of any request.
    pub retries: AtomicU64,
    /// Objects deleted, for whatever reason.
    pub deletes: AtomicU64,
    /// Listings that were read to their end.
    pub listings: AtomicU64,
    /// Objects under our prefix, in the last listing, whose names are not ours.
    pub strangers: AtomicU64,
    failures: [AtomicU64; FAILURES.len()],
}

/// All of them, in the order they are kept.
const FAILURES: [Failure; 7] = Failure::ALL;

impl RemoteStats {
    /// Commands that were answered by this failure.
    #[must_use]
    pub fn failures(&self, failure: Failure) -> u64 {
        let place = FAILURES.iter().position(|&known| known == failure);
        place.map_or(0, |place| self.failures[place].load(Relaxed))
    }

    pub(super) fn failed(&self, failure: Failure) {
        if let Some(place) = FAILURES.iter().position(|&known| known == failure) {
            add(&self.failures[place], 1);
        }
    }
}

/// Counts `more`.
pub(super) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_kind() {
        let stats = RemoteStats::default();
        stats.failed(Failure::Io);
        stats.failed(Failure::Io);
        stats.failed(Failure::Offline);
        let counts = FAILURES.map(|failure| stats.failures(failure));
        assert_eq!(counts, [0, 0, 1, 0, 0, 2, 0]);
    }
}
