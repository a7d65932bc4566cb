//! Replies: what a replay brings, and what its end says.

use headstart_core::Nanos;

use super::Follower;
use crate::stream::life::BatchVerdict;
use crate::stream::replays::ActiveReplay;
use crate::stream::{StreamBatch, StreamEffect};

/// Position of a reply in its replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyPosition {
    pub(super) is_first: bool,
    /// Whether it is the first that was asked for.
    pub(super) is_asked: bool,
    /// Whether what is missing before it is lost.
    pub(super) is_final: bool,
}

impl Follower {
    /// A reply that does not speak of a restart.
    pub(super) fn take_reply(
        &mut self,
        batch: StreamBatch,
        verdict: BatchVerdict,
        place: ReplyPosition,
        now: Nanos,
        effects: &mut Vec<StreamEffect>,
    ) {
        // The sender is settled by this reply: the same publisher, or one whose state is doubted
        // below.
        self.is_stranger = false;
        // It does not have what it was to be known by, so it may be another process.
        let waits = self.held.fingerprint_of(batch.seq) == Some(batch.fingerprint);
        let is_expected = place.is_asked && waits;
        let is_unknown = place.is_first && !is_expected && !self.life.is_repeat(&batch);
        if is_unknown {
            self.trust_no_more();
        }
        self.life.see_reply(&batch);
        if place.is_final && !is_expected {
            self.settle_below(batch.seq, now, effects);
        }
        if is_unknown {
            // Nor need it be the one whose batches waited.
            self.doubt(0, effects);
        }
        let before = (self.life.next(), self.held.len());
        match verdict {
            BatchVerdict::New => self.place(batch, now, effects),
            _ => self.drain(now, effects),
        }
        if let Some(running) = self.replays.any_running() {
            running.has_news |= before != (self.life.next(), self.held.len());
        }
    }

    /// A replay that was to bring nothing brought something: the live socket should have.
    pub(super) fn note_silent_socket(&mut self, effects: &mut Vec<StreamEffect>) {
        let next = self.life.next();
        let running = self.replays.any_running();
        if let Some(running) = running.filter(|running| running.is_check && next > running.next) {
            running.is_check = false;
            effects.push(StreamEffect::Reconnect);
        }
    }

    /// A replay is over: was it good for anything, and is there hope left?
    pub(super) fn judge(
        &mut self,
        running: ActiveReplay,
        has_failed: bool,
        now: Nanos,
        effects: &mut Vec<StreamEffect>,
    ) {
        // An empty answer is no failure while nothing is missing.
        let is_fruitless = !running.has_news && (has_failed || self.has_hole());
        self.replays.judge(is_fruitless);
        if self.replays.is_hopeless() {
            self.give_up(now, effects);
        }
    }
}
