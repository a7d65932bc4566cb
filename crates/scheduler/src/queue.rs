//! In which order waiting sequences are admitted.

use std::collections::VecDeque;
use std::time::Duration;

use headstart_cache::PrefixCache;
use headstart_core::Nanos;

use crate::sequence::Sequence;

/// Waiting sequences compared at each admission under [`QueueOrder::LongestPrefix`]: bounds a
/// step's cost to some thousand look-ups of 0.1 µs.
const LOOK_AHEAD: usize = 64;

/// Order in which waiting sequences are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// First come, first served.
    FirstCome,
    /// The longest cached prefix first (SGLang's order), so that neighbours in the prefix tree run
    /// while their prefix is resident; a sequence that waited `max_age` goes before.
    LongestPrefix {
        /// The age bound, which prevents starvation.
        max_age: Duration,
    },
}

impl QueueOrder {
    /// Index of the next of the `ready` sequences to admit; `None` if no sequence is ready.
    /// Preempted sequences stand at the front and are overtaken only while they wait for loads.
    pub(crate) fn next(
        self,
        waiting: &VecDeque<Sequence>,
        cache: &PrefixCache,
        ready: impl Fn(&Sequence) -> bool,
        now: Nanos,
    ) -> Option<usize> {
        let earliest = waiting.iter().position(&ready)?;
        let first = &waiting[earliest];
        let Self::LongestPrefix { max_age } = self else {
            return Some(earliest);
        };
        // No ready one is older: after the preempted ones the queue is in the order of arrival.
        if first.started || now.since(first.arrival) >= max_age {
            return Some(earliest);
        }
        let overlap = |(index, sequence): (usize, &Sequence)| {
            // Of equal overlaps the earliest.
            (cache.overlap(sequence.matchable()), std::cmp::Reverse(index))
        };
        let best = waiting
            .iter()
            // The earliest ready one counts even beyond the limit, so that there is always a
            // candidate.
            .take(LOOK_AHEAD.max(earliest + 1))
            .enumerate()
            .filter(|(_, sequence)| ready(sequence))
            .map(overlap)
            .max()?;
        Some(best.1.0)
    }
}
