//! Lateness: when what may be missing is doubted, and when that is taken back.
//!
//! | late is | since |
//! |---|---|
//! | a batch | a later one is here |
//! | an answer | the connection was lost or made, or a batch contradicted the clock |
//! | a sign of life | the publisher was asked because it was silent, if it ever answers |

use headstart_core::Nanos;

use super::Follower;
use crate::stream::doubt::{Doubt, PendingAnswer};
use crate::stream::{LATE_TIME_MAX, SILENCE_TIME_MAX, StreamEffect, StreamUpdate};

impl Follower {
    /// When what may be missing is to be doubted, unless all is in doubt already.
    pub(super) fn late_at(&self) -> Option<Nanos> {
        if self.doubt.is_some() || !self.life.has_applied() {
            return None;
        }
        let batch = self.held.first().map(|(_, since)| since);
        let answer = self.unanswered.map(|unanswered| unanswered.since);
        let silence = self.spoke + SILENCE_TIME_MAX;
        let life = self.has_answered.then_some(silence);
        let since = [batch, answer, life].into_iter().flatten().min()?;
        Some(since + LATE_TIME_MAX)
    }

    /// Doubts what may be missing, if it has been late for too long.
    pub(super) fn doubt_what_is_late(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        if self.late_at().is_some_and(|at| at <= now) {
            self.doubt_lateness(now, effects);
        }
    }

    /// Doubts the applied state because something is late; the doubt stays revocable if the
    /// publisher can replay and stamps its batches.
    pub(super) fn doubt_lateness(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        let late = Doubt::Late { told: now, was_exact: self.is_exact };
        let may_be_trusted = self.config.can_replay && self.life.is_stamped();
        self.doubt(0, effects);
        if may_be_trusted {
            self.doubt = Some(late);
        }
    }

    /// Takes a doubt about lateness back: the publisher continues right behind what was applied.
    pub(super) fn trust(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        if let Some(was_exact) = self.doubt.and_then(|doubt| doubt.was_exact(now)) {
            self.is_exact = was_exact;
            self.doubt = None;
            effects.push(StreamEffect::Update(StreamUpdate::Trust));
        }
    }

    /// Makes a pending doubt final: late batches may be lost.
    pub(super) fn trust_no_more(&mut self) {
        self.doubt = self.doubt.map(|_| Doubt::Final);
    }

    /// Whether the next batch may be applied: while it is late, only with all the others that are
    /// known to be missing, of which `num_more` are here besides those that wait.
    pub(super) fn may_apply(&self, num_more: usize) -> bool {
        let is_late = matches!(self.doubt, Some(Doubt::Late { .. }));
        // Not below 0: `next` never passes the end of what was seen.
        let num_missing = self.life.end() - self.life.next();
        !is_late || self.held.len() as u64 + num_more as u64 >= num_missing
    }

    /// Notes since when the connection or an answer is missing. Every call ends with it.
    pub(super) fn note_unanswered(&mut self, now: Nanos) {
        // Progress starts the wait over: a publisher that is catching up is not late.
        let next = self.life.next();
        let before = self.unanswered.filter(|answer| answer.next == next);
        let unanswered = before.unwrap_or(PendingAnswer { since: now, next });
        let is_so = !self.link.is_up() || self.is_catching_up;
        self.unanswered = Some(unanswered).filter(|_| is_so);
    }
}
