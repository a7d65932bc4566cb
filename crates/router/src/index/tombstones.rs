//! Handles of one replica whose blocks are nowhere any more, oldest first.
//!
//! They are kept for a while because an engine may announce a demotion's two halves in either
//! order: what left the device may turn up in host memory next, without tokens.
//!
//! A handle stands here once for every time it departed. Whether that was its last time is known
//! to [`super::names`].

use std::collections::VecDeque;

use super::names::Names;

/// Names of a replica per departed handle that it remembers, so that these take a small part of the
/// memory of its blocks.
const PART: usize = 8;

/// Departures that are remembered beyond those of the last updates, at most: what a large engine
/// demotes in several steps.
const MAX: usize = 512;

/// The departures that are remembered.
#[derive(Debug, Default)]
pub(super) struct DepartureQueue {
    queue: VecDeque<u64>,
    /// Departures in the current update and in the one before.
    recent: [usize; 2],
    /// Number of departures that are remembered in any case.
    min: usize,
}

impl DepartureQueue {
    pub(super) fn new(min: usize) -> Self {
        Self { min, ..Self::default() }
    }

    pub(super) fn push(&mut self, handle: u64) {
        self.queue.push_back(handle);
        self.recent[0] += 1;
    }

    /// Ends an update. Departures of this one and of the last one stay: a demotion's second half
    /// follows in the same step of the engine, or in the next. Returns how many a replica with
    /// `num_names` names remembers from now on.
    pub(super) fn end_update(&mut self, num_names: usize) -> usize {
        let recent = self.recent[0] + self.recent[1];
        self.recent = [0, self.recent[0]];
        let part = (num_names / PART).min(MAX);
        part.max(self.min).max(recent)
    }

    /// Forgets and returns the oldest departure if there are more than `most`.
    pub(super) fn pop_beyond(&mut self, most: usize) -> Option<u64> {
        (self.queue.len() > most).then(|| self.queue.pop_front()).flatten()
    }

    /// Counts the entries of a handle. O(size).
    pub(super) fn count(&self, handle: u64) -> usize {
        self.queue.iter().filter(|&&known| known == handle).count()
    }

    /// Forgets handles without a name.
    pub(super) fn keep_named(&mut self, names: &Names) {
        self.queue.retain(|&handle| names.find(handle).is_some());
    }

    pub(super) fn clear(&mut self) {
        // A new queue, because a cleared one keeps its memory.
        self.queue = VecDeque::new();
        self.recent = [0, 0];
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<u64>()
    }
}
