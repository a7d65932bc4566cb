//! Order: what is applied, what waits, what is given up, and what that does to our trust.

use headstart_core::Nanos;

use super::Follower;
use crate::stream::doubt::Doubt;
use crate::stream::{Damage, StreamBatch, StreamEffect, StreamUpdate};

impl Follower {
    /// Applies a batch of this life, or keeps it until it can be.
    pub(super) fn place(
        &mut self,
        batch: StreamBatch,
        now: Nanos,
        effects: &mut Vec<StreamEffect>,
    ) {
        let is_next = batch.seq == self.life.next() && !self.is_stranger;
        if batch.has_clear() && batch.time().is_some() {
            // Whatever is missing before it counts no more, nor does what was asked about that.
            // (Without a timestamp it may be late, and then that does count.)
            self.is_stranger = false;
            self.replays.stop_unanswered();
            self.settle_below(batch.seq, now, effects);
            self.apply(batch, now, effects);
        } else if is_next && self.may_apply(1) {
            self.apply(batch, now, effects);
        } else if let Some(batch) = self.held.insert(batch, now) {
            self.overflow(batch, now, effects);
        }
        self.drain(now, effects);
    }

    /// There is no room for `batch` among those that wait. What is late waits no longer then, for
    /// all of it might never fit.
    fn overflow(&mut self, batch: StreamBatch, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.counts.overflown_batches += 1;
        self.trust_no_more();
        self.drain(now, effects);
        if !self.config.can_replay {
            self.settle_below(batch.seq, now, effects);
        }
        if batch.seq == self.life.next() && !self.is_stranger {
            self.apply(batch, now, effects);
        }
    }

    /// Gives back what waits: a replay from the last applied batch brings it again, if it still is
    /// true.
    pub(super) fn drop_held(&mut self) {
        self.held.clear();
        self.life.forget_unapplied();
    }

    /// Applies what waits and is next.
    pub(super) fn drain(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        while !self.is_stranger
            && self.may_apply(0)
            && let Some(batch) = self.take_next()
        {
            self.apply(batch, now, effects);
        }
    }

    /// The next batch, if it waits, and unless what was applied meanwhile shows that it is of an
    /// earlier life.
    pub(super) fn take_next(&mut self) -> Option<StreamBatch> {
        let batch = self.held.take(self.life.next())?;
        if self.life.is_overtaken(&batch) {
            self.counts.stale_batches += 1;
            return None;
        }
        Some(batch)
    }

    /// Applies what waits below `bound`, and gives up what is missing there.
    pub(super) fn settle_below(&mut self, bound: u64, now: Nanos, effects: &mut Vec<StreamEffect>) {
        while self.life.next() < bound {
            if !self.may_apply(0) {
                // Some of the missing batches are given up, so a doubt about them cannot be taken
                // back.
                self.trust_no_more();
            }
            if let Some(batch) = self.take_next() {
                self.apply(batch, now, effects);
                continue;
            }
            let first = self.held.first().map_or(bound, |(first, _)| first);
            let lost = self.life.lose_below(first.min(bound));
            self.lose(lost, effects);
        }
    }

    /// Waits no longer: applies what is there.
    pub(super) fn give_up(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.replays.stop();
        self.doubt_stranger(effects);
        // Batches from before the reconnection may be missing unnoticed once the question is given
        // up.
        if std::mem::take(&mut self.is_catching_up) && self.doubt.is_none() {
            self.doubt_lateness(now, effects);
        }
        self.settle_below(self.life.end(), now, effects);
    }

    pub(super) fn apply(
        &mut self,
        batch: StreamBatch,
        now: Nanos,
        effects: &mut Vec<StreamEffect>,
    ) {
        if batch.seq == 0 {
            self.begin(effects);
        }
        self.compare_before(&batch);
        let is_unreadable = batch.damage == Damage::Unreadable;
        self.life.apply(&batch, is_unreadable);
        if is_unreadable {
            return self.lose(1, effects);
        }
        self.counts.applied_batches += 1;
        // Had anything been lost before it, that would have been told.
        self.trust(now, effects);
        self.doubt = None;
        self.is_catching_up &= self.replays.is_busy();
        self.is_exact |= batch.has_clear();
        let StreamBatch { seq, events, damage, .. } = batch;
        effects.push(StreamEffect::Update(StreamUpdate::Events { seq, events }));
        if let Damage::Skipped { reasons, may_have_removed } = damage {
            self.counts.damaged_batches += 1;
            // Skipped events leave what is applied incomplete, even if none of them is a removal.
            self.is_exact = false;
            let skipped =
                |(reason, count)| StreamEffect::Update(StreamUpdate::Skipped { reason, count });
            effects.extend(reasons.into_iter().map(skipped));
            if may_have_removed {
                self.doubt(0, effects);
            }
        }
    }

    /// Takes note of batches lost for good.
    pub(super) fn lose(&mut self, batches: u64, effects: &mut Vec<StreamEffect>) {
        self.counts.lost_batches = self.counts.lost_batches.saturating_add(batches);
        self.is_exact = false;
        self.doubt(batches, effects);
    }

    /// Doubts the applied state, if there is any, after `batches` lost batches.
    pub(super) fn doubt(&mut self, batches: u64, effects: &mut Vec<StreamEffect>) {
        if !self.life.has_applied() {
            return;
        }
        self.is_exact = false;
        self.doubt = Some(Doubt::Final);
        match effects.last_mut() {
            Some(StreamEffect::Update(StreamUpdate::Doubt { batches: before })) => {
                *before = before.saturating_add(batches);
            }
            _ => effects.push(StreamEffect::Update(StreamUpdate::Doubt { batches })),
        }
    }

    /// Doubts all that is known, if the publisher may be another one.
    pub(super) fn doubt_stranger(&mut self, effects: &mut Vec<StreamEffect>) {
        if std::mem::take(&mut self.is_stranger) {
            self.doubt(0, effects);
        }
    }

    /// The publisher has told nothing before: whatever is known of it is of an earlier life.
    pub(super) fn begin(&mut self, effects: &mut Vec<StreamEffect>) {
        if !std::mem::replace(&mut self.is_own, true) {
            effects.push(StreamEffect::Update(StreamUpdate::Clear));
        }
    }

    /// Counts a restart that happened between an earlier follower and this one.
    fn compare_before(&mut self, batch: &StreamBatch) {
        let Some(before) = self.before else { return };
        let is_later = batch.time().is_some_and(|ts| ts > before.ts);
        self.counts.epoch += u64::from(is_later && batch.seq <= before.seq);
        if is_later || batch.seq >= before.seq {
            self.before = None;
        }
    }

    /// Another process has begun, known by `first`, or by the absence of what was applied. What
    /// waits is of the earlier one, unless it comes after `first` in every respect.
    pub(super) fn restart(&mut self, first: Option<&StreamBatch>, effects: &mut Vec<StreamEffect>) {
        self.life.restart(first.and_then(StreamBatch::time));
        // Only a batch that is later by number and by time can be of the new life.
        self.held.retain(|batch| first.is_some_and(|first| batch.is_after(first)));
        // The new life has seen nothing yet, but these of its batches are here.
        self.held.iter().for_each(|batch| self.life.see(batch));
        self.replays.stop();
        // Replays that failed were questions to the earlier process.
        self.replays.judge(false);
        self.is_exact = true;
        self.doubt = None;
        (self.is_stranger, self.is_catching_up) = (false, false);
        self.is_own = true;
        self.has_replied = false;
        self.before = None;
        self.counts.epoch += 1;
        effects.push(StreamEffect::Update(StreamUpdate::Clear));
    }
}
