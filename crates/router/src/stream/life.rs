//! One life of a publisher: how far we are in it, and whether a batch belongs to it.
//!
//! A process numbers its batches upwards and stamps them with a clock that grows. So numbers and
//! timestamps of one life grow together, and what breaks that is of another one:
//!
//! ```text
//!  time
//!   ▲   earlier │ restart            the mark ✛: the highest number with a timestamp
//!   │           │                      above, to its left    a restart
//!   │  ─────────┼──✛───────            below, to its right   an earlier life's, late
//!   │   late or │ earlier              below, to its left    late, or repeated
//!   │  repeated │ life, late
//!   └───────────┴──────────▶ number
//! ```
//!
//! Without timestamps a live number below an earlier live one is a restart: a publisher's socket
//! neither repeats nor re-orders.

use std::collections::VecDeque;

use super::batch::StreamBatch;

/// Applied batches that are remembered, by which repeats are known: 3 KiB per stream. What comes
/// later than that is dropped all the same, but looks suspicious.
const RECENT_MAX: usize = 64;

/// Relation of a batch to the current life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchVerdict {
    /// Part of it, and not seen yet.
    New,
    /// Part of it, and seen before.
    Duplicate,
    /// Contradicted by what is known: to be dropped.
    Stale,
    /// The beginning of another one.
    Restart,
}

#[derive(Clone, Copy, Debug)]
struct BatchMark {
    seq: u64,
    ts: f64,
}

/// Position in one life. Starts before batch 0.
#[derive(Debug, Default)]
pub(super) struct PublisherLife {
    /// The first batch neither applied nor given up.
    next: u64,
    applied: u64,
    lost: u64,
    /// The last applied batch.
    last: Option<u64>,
    /// The last applied batch that has a timestamp.
    last_mark: Option<BatchMark>,
    /// The highest number seen, applied or not.
    top: Option<u64>,
    /// The highest number seen live.
    live: Option<u64>,
    /// The highest number seen with a timestamp.
    mark: Option<BatchMark>,
    /// The latest timestamp seen.
    newest: Option<f64>,
    /// The latest timestamp of earlier lives: nothing of this one is that old.
    floor: Option<f64>,
    /// The latest applied batches.
    recent: VecDeque<Recent>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    seq: u64,
    fingerprint: u128,
    ts: Option<f64>,
}

impl PublisherLife {
    /// Another life begins, known by a batch stamped `ts`, or by the absence of what was applied.
    pub(super) fn restart(&mut self, ts: Option<f64>) {
        let newest = self.newest.or(self.floor);
        *self = Self {
            // A clock that was set back gives no floor: all of the new life would lie below it.
            floor: newest.filter(|newest| ts.is_none_or(|ts| ts > *newest)),
            ..Self::default()
        };
    }

    /// Forgets batches that were seen and not applied. A new connection begins, and they may be of
    /// another life.
    pub(super) fn forget_unapplied(&mut self) {
        // Nothing waits any more, so nothing beyond the applied batches is known.
        self.top = self.next.checked_sub(1);
        self.mark = self.last_mark;
    }

    /// Timestamps so far are not to be compared with any more: the clock was set.
    pub(super) fn forget_times(&mut self) {
        (self.mark, self.last_mark, self.newest, self.floor) = (None, None, None, None);
        // Fingerprints stay: they do not depend on the clock.
        self.recent.iter_mut().for_each(|recent| recent.ts = None);
    }

    /// Judges a live batch. `held`: the fingerprint of the batch of its number that waits.
    pub(super) fn judge_live(&self, batch: &StreamBatch, held: Option<u128>) -> BatchVerdict {
        let known = held.or_else(|| self.fingerprint_of(batch.seq));
        let is_same = known.map(|known| known == batch.fingerprint);
        let floor = self.floor.zip(batch.time());
        if floor.is_some_and(|(floor, ts)| ts <= floor) {
            return BatchVerdict::Stale;
        }
        match self.mark {
            Some(mark) => self.judge_by_time(batch, mark, is_same),
            None => self.judge_by_number(batch.seq, is_same),
        }
    }

    /// Judges a batch of the running replay. Who answers lives now, so a contradiction always
    /// speaks against what we know.
    pub(super) fn judge_reply(&self, batch: &StreamBatch, held: Option<u128>) -> BatchVerdict {
        let known = held.or_else(|| self.fingerprint_of(batch.seq));
        match known {
            Some(known) if known != batch.fingerprint => BatchVerdict::Restart,
            _ if self.is_ahead(batch) => BatchVerdict::Restart,
            Some(_) => BatchVerdict::Duplicate,
            // Applied too long ago for a fingerprint to be remembered.
            None if batch.seq < self.next => BatchVerdict::Duplicate,
            None => BatchVerdict::New,
        }
    }

    fn judge_by_time(
        &self,
        batch: &StreamBatch,
        mark: BatchMark,
        is_same: Option<bool>,
    ) -> BatchVerdict {
        if let Some(ts) = batch.time() {
            // An equal payload under the same number is a repeat, not another life.
            if self.is_ahead(batch) && is_same != Some(true) {
                return BatchVerdict::Restart;
            }
            let is_early = batch.seq > mark.seq && ts < mark.ts;
            if is_early || batch.seq >= self.next && self.is_overtaken(batch) {
                return BatchVerdict::Stale;
            }
        }
        match is_same {
            Some(true) => BatchVerdict::Duplicate,
            Some(false) => BatchVerdict::Stale,
            // Late, unless it is newer than all else: then only unreadable batches were numbered
            // higher, and those need not be of this life.
            None if batch.seq < self.next && is_older(self.newest, batch.time()) => {
                BatchVerdict::Restart
            }
            None if batch.seq < self.next => BatchVerdict::Stale,
            None => BatchVerdict::New,
        }
    }

    fn judge_by_number(&self, seq: u64, is_same: Option<bool>) -> BatchVerdict {
        let is_regress = self.live.is_some_and(|live| seq < live);
        if is_regress || is_same == Some(false) {
            return BatchVerdict::Restart;
        }
        match is_same {
            None if seq >= self.next => BatchVerdict::New,
            _ => BatchVerdict::Duplicate,
        }
    }

    /// Whether `batch` is newer than one that should come later, or that has its number.
    fn is_ahead(&self, batch: &StreamBatch) -> bool {
        let at = self.recent.partition_point(|recent| recent.seq < batch.seq);
        let applied = self.recent.range(at..).find_map(|recent| recent.ts);
        let mark = self.mark.filter(|mark| batch.seq <= mark.seq).map(|mark| mark.ts);
        is_older(applied, batch.time()) || is_older(mark, batch.time())
    }

    /// Takes note of a batch of this life, applied or not.
    pub(super) fn see(&mut self, batch: &StreamBatch) {
        let seq = batch.seq;
        self.top = self.top.max(Some(seq));
        let Some(ts) = batch.time() else { return };
        // A batch that comes late must not pull the mark back.
        if self.mark.is_none_or(|mark| seq >= mark.seq) {
            self.mark = Some(BatchMark { seq, ts });
        }
        if !is_older(Some(ts), self.newest) {
            self.newest = Some(ts);
        }
    }

    /// Takes note of a batch that a replay brought. One that is as old as earlier lives shows that
    /// the clock was set back between them.
    pub(super) fn see_reply(&mut self, batch: &StreamBatch) {
        self.see(batch);
        self.floor = self.floor.filter(|floor| is_older(Some(*floor), batch.time()));
    }

    /// Takes note of a number of this life that came live.
    pub(super) fn see_live(&mut self, seq: u64) {
        self.live = self.live.max(Some(seq));
    }

    /// The next batch is applied (`is_lost`: it came, but says nothing).
    pub(super) fn apply(&mut self, batch: &StreamBatch, is_lost: bool) {
        assert_eq!(batch.seq, self.next, "batches are applied in order");
        *(if is_lost { &mut self.lost } else { &mut self.applied }) += 1;
        self.next = batch.seq + 1;
        self.last = Some(batch.seq);
        let mark = batch.time().map(|ts| BatchMark { seq: batch.seq, ts });
        self.last_mark = mark.or(self.last_mark);
        // Older repeats are recognized by their number alone.
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent {
            seq: batch.seq,
            fingerprint: batch.fingerprint,
            ts: batch.time(),
        });
    }

    /// Gives up everything below `bound`. Returns how many that is.
    pub(super) fn lose_below(&mut self, bound: u64) -> u64 {
        let lost = bound.saturating_sub(self.next);
        self.lost += lost;
        self.next += lost;
        lost
    }

    /// The first batch neither applied nor given up.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// One above the highest number seen.
    pub(super) fn end(&self) -> u64 {
        self.top.map_or(0, |top| top + 1)
    }

    /// Whether a batch was applied.
    pub(super) fn has_applied(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the last applied batch has a timestamp, which tells it from one of another life.
    pub(super) fn is_stamped(&self) -> bool {
        self.last.is_some() && self.last == self.last_mark.map(|mark| mark.seq)
    }

    /// Whether `batch`, which would come later, is older than the last applied one.
    pub(super) fn is_overtaken(&self, batch: &StreamBatch) -> bool {
        is_older(batch.time(), self.last_mark.map(|mark| mark.ts))
    }

    /// Number and timestamp of the last applied batch that has one.
    pub(super) fn last_mark(&self) -> Option<(u64, f64)> {
        self.last_mark.map(|mark| (mark.seq, mark.ts))
    }

    /// Returns the first batch of a replay: the last applied one, which identifies the publisher.
    /// If the batches after it were given up, it is the next one.
    pub(super) fn ask_from(&self) -> u64 {
        // The last applied batch identifies its sender only while no given up batches follow it.
        let last = self.last.filter(|last| last + 1 == self.next);
        last.unwrap_or(self.next)
    }

    /// Whether `batch` was applied before: then its sender is the publisher that we know.
    pub(super) fn is_repeat(&self, batch: &StreamBatch) -> bool {
        self.fingerprint_of(batch.seq) == Some(batch.fingerprint)
    }

    /// Asserts its invariants.
    pub(super) fn check(&self) {
        assert_eq!(self.applied + self.lost, self.next, "each number is one of the two");
        assert!(self.last.is_none_or(|last| last < self.next));
        assert!(self.recent.len() <= RECENT_MAX);
        assert!(self.recent.iter().is_sorted_by(|a, b| a.seq < b.seq), "{:?}", self.recent);
    }

    fn fingerprint_of(&self, seq: u64) -> Option<u128> {
        let at = self.recent.binary_search_by_key(&seq, |recent| recent.seq);
        at.ok().map(|at| self.recent[at].fingerprint)
    }
}

/// Whether both are known and `ts` is the earlier one.
fn is_older(ts: Option<f64>, other: Option<f64>) -> bool {
    matches!((ts, other), (Some(ts), Some(other)) if ts < other)
}
