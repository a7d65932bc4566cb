//! Batches that wait for earlier ones.

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_core::Nanos;

use super::batch::StreamBatch;

/// Most batches that wait: minutes of a busy engine's steps.
pub const HELD_BATCHES_MAX: usize = 8192;

/// Most memory of what waits, 32 MiB: as many batches of 4 KiB.
pub const HELD_BYTES_MAX: usize = 32 << 20;

/// Longest wait for what is asked for, as long as one replay may take. Beyond that, news that are
/// held back do more harm than a hole.
pub const HELD_TIME_MAX: Duration = super::REPLAY_TIME_MAX;

/// Longest wait without replays: time for a batch that was overtaken on the way.
/// Networks take milliseconds; a route computed meanwhile is slightly worse, not wrong.
pub const REORDER_TIME_MAX: Duration = Duration::from_millis(100);

/// By number. Everything in it comes after the next expected batch.
#[derive(Debug, Default)]
pub(super) struct HeldBatches {
    batches: BTreeMap<u64, WaitingBatch>,
    bytes: usize,
}

#[derive(Debug)]
struct WaitingBatch {
    batch: StreamBatch,
    /// When it came, or one that comes behind it: never falls with the number.
    since: Nanos,
}

impl HeldBatches {
    /// Keeps `batch`, or returns it if it exceeds a limit.
    pub(super) fn insert(&mut self, batch: StreamBatch, now: Nanos) -> Option<StreamBatch> {
        let bytes = self.bytes + batch.footprint();
        // Both limits: many small batches cost entries, few large ones cost bytes.
        if self.batches.len() >= HELD_BATCHES_MAX || bytes > HELD_BYTES_MAX {
            return Some(batch);
        }
        self.bytes = bytes;
        // What is missing below it has been for as long as the next one above it waits.
        let above = self.batches.range(batch.seq..).next();
        let since = above.map_or(now, |(_, waiting)| waiting.since);
        let before = self.batches.insert(batch.seq, WaitingBatch { batch, since });
        debug_assert!(before.is_none(), "held numbers are known numbers");
        None
    }

    /// Takes out batch `seq`, if it is here.
    pub(super) fn take(&mut self, seq: u64) -> Option<StreamBatch> {
        let waiting = self.batches.remove(&seq)?;
        self.bytes -= waiting.batch.footprint();
        Some(waiting.batch)
    }

    /// The lowest number, and since when it waits.
    pub(super) fn first(&self) -> Option<(u64, Nanos)> {
        let (seq, waiting) = self.batches.first_key_value()?;
        Some((*seq, waiting.since))
    }

    /// The last batch of the unbroken run that begins with `seq`.
    pub(super) fn last_of_run(&self, seq: u64) -> Option<u64> {
        let run = self.batches.range(seq..).zip(seq..);
        let run = run.take_while(|((is, _), expected)| *is == expected);
        run.last().map(|((last, _), _)| *last)
    }

    /// The fingerprint of batch `seq`, if it is here.
    pub(super) fn fingerprint_of(&self, seq: u64) -> Option<u128> {
        let waiting = self.batches.get(&seq)?;
        Some(waiting.batch.fingerprint)
    }

    /// Gives up what is not to be kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&StreamBatch) -> bool) {
        self.batches.retain(|_, waiting| is_kept(&waiting.batch));
        // Batches differ in size, so the sum is taken again.
        self.bytes = self.iter().map(StreamBatch::footprint).sum();
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamBatch> {
        self.batches.values().map(|waiting| &waiting.batch)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asserts its invariants; everything waits for batch `next`.
    pub(super) fn check(&self, next: u64) {
        let bytes: usize = self.iter().map(StreamBatch::footprint).sum();
        assert_eq!(self.bytes, bytes, "held bytes");
        assert!(self.bytes <= HELD_BYTES_MAX && self.len() <= HELD_BATCHES_MAX);
        assert!(self.first().is_none_or(|(first, _)| first >= next));
    }
}
