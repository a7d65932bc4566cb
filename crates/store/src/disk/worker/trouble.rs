//! What happens when the disk fails, and when it comes back.

use std::io;

use super::{FEWEST_SEGMENTS, LOOK_ROUND, SWEEP, Worker, fresh};
use crate::backend::{Condition, Failure, Loss, Report};
use crate::disk::folder::{Folder, is_back};
use crate::disk::recover::{Recovered, recover};

impl Worker {
    /// What is done from time to time.
    pub(super) fn look_round(&mut self) {
        let now = self.now();
        if self.health.is_time_to_look(now) && self.ops.is_empty() {
            self.look_if_back();
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_ROUND;
            let is_there = self.folder.as_ref().is_some_and(Folder::is_there);
            if !is_there && self.health.refuses_reads().is_none() {
                self.health.gone(now);
                self.went_away();
            }
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep();
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
        self.lost(names, Loss::Expired);
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
        self.abandon_active();
        let names: Vec<_> = self.index.iter().map(|(name, _)| name).collect();
        for &name in &names {
            self.forget(name);
        }
        self.lost(names, Loss::Offline);
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
                self.health.gone(now);
            }
        }
    }

    fn reopen(&mut self) -> io::Result<(Folder, Recovered)> {
        if !is_back(&self.options.folder, self.device) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Our own lock would be in the way.
        self.folder = None;
        let folder = Folder::open(&self.options.folder).map_err(io::Error::other)?;
        let segment_bytes = self.segments.bytes();
        let recovered = recover(&folder, self.budget_bytes, segment_bytes, self.now_s())?;
        let is_enough = recovered.space.count() as u64 >= FEWEST_SEGMENTS;
        is_enough
            .then_some((folder, recovered))
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn resume(&mut self, folder: Folder, mut recovered: Recovered) {
        let residents = std::mem::take(&mut recovered.residents);
        self.device = folder.device();
        self.folder = Some(folder);
        (self.index, self.space, self.segments) = fresh(recovered);
        self.health.is_back();
        if !residents.is_empty() {
            self.report(Report::Found(residents));
        }
        self.report(Report::Condition(Condition::Well));
    }
}
