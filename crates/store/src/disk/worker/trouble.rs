//! Reactions to a failure of the disk, and to its return.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{FEWEST_SEGMENTS, IoOperation, LOOK_ROUND, PAGE, SWEEP, Worker, fresh};
use crate::backend::{Condition, Failure, LossReason, Report};
use crate::disk::folder::{DiskFolder, is_back};
use crate::disk::io::Buffer;
use crate::disk::recover::{RecoveredState, recover};

/// Pause before files that could not be made are tried again: the disk is shared.
const UNBAR: Duration = Duration::from_secs(30);

/// Longest wait for a disk that may be back.
const PROBE: Duration = Duration::from_secs(2);

impl Worker {
    /// Performs the periodic work.
    pub(super) fn look_round(&mut self) {
        let now = self.now();
        // Operations of the lost disk end first, because `resume`
        // replaces the segments that they use.
        if self.health.is_time_to_look(now) && self.ops.is_empty() {
            self.look_if_back();
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_ROUND;
            // Open files still work after their folder was deleted or
            // replaced, so reads alone do not tell.
            let is_there = self.folder.as_ref().is_some_and(DiskFolder::is_there);
            if !is_there && self.health.refuses_reads().is_none() {
                self.health.gone(now);
                self.went_away();
            }
        }
        if now >= self.next_unbar {
            self.next_unbar = now + UNBAR;
            self.space.unbar();
        }
        self.try_to_write(now);
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep();
        }
    }

    /// Writing failed, and the pause is over: something is written, so that it is known.
    fn try_to_write(&mut self, now: Duration) {
        let fails = matches!(self.health.condition(), Condition::WritesFail(_));
        // Writes that are under way will tell whether the disk works again.
        let is_quiet = self.writes.is_empty() && self.segments.next.is_none();
        if !fails || !is_quiet || self.health.refuses_writes(now).is_some() {
            return;
        }
        match &self.segments.active {
            Some(active) if active.has_room(0, 0, self.segments.pages()) => {
                // An empty group is the smallest proof: two tables and a commit.
                self.write_group(Vec::new());
            }
            Some(_) | None => self.open_next(0),
        }
    }

    pub(super) fn write_worked(&mut self) {
        let now = self.now();
        if self.health.write_worked(now) {
            self.report_condition();
        }
    }

    /// Forgets records whose time is over.
    fn sweep(&mut self) {
        let now_s = self.now_s();
        let is_over = |at: u64| at <= now_s;
        let expired = self.index.iter();
        let expired = expired.filter(|(_, place)| place.expires_s.is_some_and(is_over));
        let names: Vec<_> = expired.map(|(name, _)| name).collect();
        for &name in &names {
            self.forget(name);
        }
        self.lost(names, LossReason::Expired);
    }

    /// Writing failed: what waits is refused, and so is what comes, until it is tried again.
    pub(super) fn write_failed(&mut self, failure: Failure) {
        let now = self.now();
        if self.health.write_failed(failure, now) {
            self.report_condition();
        }
        self.give_up_cleaning();
        self.fail_puts(failure);
    }

    /// The disk is gone: so is all that it held, until it is back.
    pub(super) fn went_away(&mut self) {
        self.report_condition();
        self.fail_reads(Failure::Offline);
        self.give_up_cleaning();
        self.fail_puts(Failure::Offline);
        // Groups may be incomplete: a later start reads the segment group by group.
        self.abandon_active();
        let names: Vec<_> = self.index.iter().map(|(name, _)| name).collect();
        for &name in &names {
            self.forget(name);
        }
        self.lost(names, LossReason::Offline);
    }

    pub(super) fn report_condition(&mut self) {
        let condition = self.health.condition();
        self.report(Report::Condition(condition));
    }

    fn look_if_back(&mut self) {
        match self.reopen() {
            Ok((folder, recovered)) => self.resume(folder, recovered),
            Err(_) => {
                let now = self.now();
                // Doubles the pause before the next attempt.
                self.health.gone(now);
            }
        }
    }

    fn reopen(&mut self) -> io::Result<(DiskFolder, RecoveredState)> {
        if !is_back(&self.options.folder, self.device) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Our own lock would be in the way.
        self.folder = None;
        let folder = DiskFolder::open(&self.options.folder).map_err(io::Error::other)?;
        let segment_bytes = self.segments.bytes();
        let recovered = recover(&folder, self.budget_bytes, segment_bytes, self.now_s())
            .map_err(io::Error::other)?;
        let is_enough = recovered.space.count() as u64 >= FEWEST_SEGMENTS;
        if !is_enough {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.probe(&folder, &recovered)?;
        Ok((folder, recovered))
    }

    /// Reads a page the way records are read, if there is any: what can be listed may still fail.
    fn probe(&mut self, folder: &DiskFolder, recovered: &RecoveredState) -> io::Result<()> {
        let Some((_, place)) = recovered.index.iter().next() else {
            return Ok(());
        };
        let file = folder.open_segment(place.segment, recovered.segment_bytes)?;
        let op = IoOperation::Read {
            file: Arc::new(file),
            offset: 0,
            buffer: Buffer::Pages(Buffer::pages(1)?),
            len: PAGE,
        };
        // Not entered in `ops`: `finish` ignores an answer that comes after the limit.
        self.last_op += 1;
        self.edges.io.start(self.last_op, op);
        let started = self.now();
        let mut finished = Vec::new();
        while self.now() < started + PROBE {
            self.edges.io.wait(PROBE, &mut finished);
            // Nothing else is under way: other completions are those of earlier probes.
            let ours = finished.iter().position(|done| done.id == self.last_op);
            if let Some(at) = ours {
                return finished.swap_remove(at).result;
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn resume(&mut self, folder: DiskFolder, mut recovered: RecoveredState) {
        let residents = std::mem::take(&mut recovered.residents);
        // A number that was used before the loss must not be given to another segment.
        recovered.space.skip_to(self.space.sequences().0);
        self.device = folder.device();
        let (index, space, segments) = fresh(recovered, &folder);
        // Stored while it went, and not found again.
        let missing = self.index.iter().map(|(name, _)| name);
        let missing: Vec<_> = missing.filter(|name| index.get(*name).is_none()).collect();
        self.lost(missing, LossReason::Offline);
        (self.index, self.space, self.segments) = (index, space, segments);
        self.folder = Some(folder);
        self.health.is_back();
        if !residents.is_empty() {
            self.report(Report::Found(residents));
        }
        self.report(Report::Condition(Condition::Well));
    }
}
