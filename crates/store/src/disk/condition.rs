//! Condition of a disk, and times of retries. Pure: times in, decisions out.

use std::io;
use std::time::Duration;

use crate::backend::{Condition, Failure};

/// Pause before something that failed is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause: retries are rare enough not to matter and frequent enough to need no restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Reads that fail in a row, without one that works, before the disk counts as gone: one alone is
/// a bad spot.
const FAILED_READS: u32 = 3;

/// The state of one disk. Times are since any fixed moment.
#[derive(Debug)]
pub(super) struct DiskHealth {
    condition: Condition,
    failed_reads: u32,
    pause: Duration,
    retry_at: Duration,
}

impl DiskHealth {
    pub(super) fn new() -> Self {
        Self {
            condition: Condition::Well,
            failed_reads: 0,
            pause: FIRST_PAUSE,
            retry_at: Duration::ZERO,
        }
    }

    pub(super) fn condition(&self) -> Condition {
        self.condition
    }

    /// Why nothing can be written now, if so. Once the pause is over, one attempt is free.
    pub(super) fn refuses_writes(&self, now: Duration) -> Option<Failure> {
        match self.condition {
            // No write is tried meanwhile: `look_if_back` reopens the whole folder instead.
            Condition::Gone(failure) => Some(failure),
            Condition::WritesFail(failure) if now < self.retry_at => Some(failure),
            Condition::WritesFail(_) | Condition::Well => None,
        }
    }

    /// Why nothing can be read now, if so.
    pub(super) fn refuses_reads(&self) -> Option<Failure> {
        match self.condition {
            Condition::Gone(failure) => Some(failure),
            // A disk that is full or read-only still serves reads.
            Condition::WritesFail(_) | Condition::Well => None,
        }
    }

    /// Whether to look if a disk that was gone is back.
    pub(super) fn is_time_to_look(&self, now: Duration) -> bool {
        matches!(self.condition, Condition::Gone(_)) && now >= self.retry_at
    }

    /// A write failed. Returns whether the condition has changed.
    pub(super) fn write_failed(&mut self, failure: Failure, now: Duration) -> bool {
        self.wait(now);
        let condition = match self.condition {
            // A write that was under way when the disk went away fails
            // late: the disk is still gone.
            Condition::Gone(_) => self.condition,
            Condition::Well | Condition::WritesFail(_) => Condition::WritesFail(failure),
        };
        self.change(condition)
    }

    /// A write worked. Returns whether the condition has changed.
    pub(super) fn write_worked(&mut self, now: Duration) -> bool {
        match self.condition {
            // None begins during the pause, so this one began before the failure and proves
            // nothing.
            Condition::WritesFail(_) if now < self.retry_at => false,
            Condition::WritesFail(_) => {
                self.pause = FIRST_PAUSE;
                self.change(Condition::Well)
            }
            // A late success does not bring a lost disk back: its folder
            // has to be recovered first.
            Condition::Gone(_) | Condition::Well => false,
        }
    }

    /// A read failed. Returns whether the disk now counts as gone.
    pub(super) fn read_failed(&mut self, now: Duration) -> bool {
        self.failed_reads += 1;
        self.failed_reads >= FAILED_READS && self.gone(now)
    }

    /// A read worked.
    pub(super) fn read_worked(&mut self) {
        self.failed_reads = 0;
    }

    /// It cannot be reached. Returns whether that is new.
    pub(super) fn gone(&mut self, now: Duration) -> bool {
        self.wait(now);
        self.failed_reads = 0;
        self.change(Condition::Gone(Failure::Offline))
    }

    /// It can be reached again.
    pub(super) fn is_back(&mut self) {
        *self = Self::new();
    }

    fn wait(&mut self, now: Duration) {
        self.retry_at = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn change(&mut self, condition: Condition) -> bool {
        std::mem::replace(&mut self.condition, condition) != condition
    }
}

/// Classifies the error of a write.
pub(super) fn failure_of(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::Full,
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Failure::ReadOnly,
        // The folder is missing, or its server no longer knows the
        // file: a lost mount, not a bad write.
        io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle => Failure::Offline,
        _ => Failure::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn writes_are_tried_again_ever_less_often() {
        let mut health = DiskHealth::new();
        assert_eq!(health.refuses_writes(at(0)), None);
        assert!(health.write_failed(Failure::Full, at(0)), "this is news");
        assert_eq!(health.refuses_writes(at(0)), Some(Failure::Full));
        assert_eq!(health.refuses_reads(), None);
        assert_eq!(health.refuses_writes(at(1)), None, "one attempt");
        assert!(!health.write_failed(Failure::Full, at(1)), "no news");
        assert_eq!(health.refuses_writes(at(2)), Some(Failure::Full));
        let mut now = at(3);
        for _ in 0..10 {
            health.write_failed(Failure::Full, now);
            now += at(30);
            assert_eq!(health.refuses_writes(now), None, "never longer than 30 s");
        }
        assert!(health.write_worked(now));
        assert_eq!(health.condition(), Condition::Well);
        assert!(health.write_failed(Failure::ReadOnly, now));
        assert_eq!(health.refuses_writes(now + at(1)), None, "from the start again");
        assert!(!health.write_worked(now), "it began before the failure");
        assert!(health.write_worked(now + at(1)));
    }

    #[test]
    fn a_bad_spot_is_not_a_lost_disk() {
        let mut health = DiskHealth::new();
        for _ in 0..10 {
            assert!(!health.read_failed(at(0)) && !health.read_failed(at(0)));
            health.read_worked();
        }
        assert!(!health.read_failed(at(0)) && !health.read_failed(at(0)));
        assert!(health.read_failed(at(0)));
        assert_eq!(health.refuses_reads(), Some(Failure::Offline));
        assert!(!health.write_failed(Failure::Io, at(0)), "it stays gone");
        assert!(!health.is_time_to_look(at(0)) && health.is_time_to_look(at(9)));
        health.is_back();
        assert_eq!(health.refuses_writes(at(9)), None);
    }
}
