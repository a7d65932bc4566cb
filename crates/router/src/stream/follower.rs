//! The stream itself: takes what comes, says what is to be done.

use headstart_core::Nanos;

use super::batch::StreamBatch;
use super::doubt::{Doubt, PendingAnswer};
use super::effect::{StreamEffect, StreamUpdate};
use super::held::{HELD_TIME_MAX, HeldBatches, REORDER_TIME_MAX};
use super::life::{BatchVerdict, PublisherLife};
use super::link::ConnectionState;
use super::replays::{REPLIES_SAFE, ReplayId, Replays};
use super::report::{PriorPosition, StreamReport, StreamStatus};

mod lateness;
mod order;
mod replies;

use replies::ReplyPosition;

/// Live batches in a row that contradict the publisher's clock before the clock is taken for the
/// liar: a re-ordering network brings a few, a clock that was set back brings no others.
pub const STALE_BATCHES_MAX: u32 = 8;

/// Why a message that is no batch was skipped.
const BAD_MESSAGE: &str = "bad_message";

/// Known properties of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerConfig {
    /// Whether the publisher can be asked for old batches.
    pub can_replay: bool,
    /// The data-parallel rank that its batches should name.
    pub rank: Option<u32>,
}

/// Follows one publisher for ever. Starts without a connection.
///
/// Every method appends to `effects` what is to be done about it. A replay that is no longer
/// [`Self::replay`] after a call may be dropped; what it still says is ignored.
#[derive(Debug)]
pub struct Follower {
    config: FollowerConfig,
    life: PublisherLife,
    held: HeldBatches,
    replays: Replays,
    link: ConnectionState,
    /// Whether what was applied is all that the publisher held after the last applied batch.
    is_exact: bool,
    /// The last doubt, if nothing was applied since.
    doubt: Option<Doubt>,
    /// The wait for a connection, or for the answer to whether anything is missing.
    unanswered: Option<PendingAnswer>,
    /// Whether the publisher may have changed unnoticed: live batches wait until it is known.
    is_stranger: bool,
    /// Whether the publisher was asked who it is, and has not come to the end of what it told.
    is_catching_up: bool,
    /// Whether what is known was told by this follower: nothing is left of what was known before.
    is_own: bool,
    /// Whether the publisher ever brought a batch again: if not, it may keep none.
    has_replied: bool,
    /// Whether a question was ever answered, be it with nothing: if not, there may be no replay
    /// socket.
    has_answered: bool,
    /// When the publisher said anything last.
    spoke: Nanos,
    /// When a batch contradicted the clock last, until a later question is answered.
    contradicted: Option<Nanos>,
    /// The life that an earlier follower saw last, until it is known whether it continues.
    before: Option<PriorPosition>,
    /// Live batches in a row that were dropped as stale.
    stale_in_a_row: u32,
    /// Counters; where it stands is filled in by [`Self::report`].
    counts: StreamReport,
    /// The status that was told last.
    told: StreamStatus,
}

impl Follower {
    /// A stream of which nothing is known.
    #[must_use]
    pub fn new(config: FollowerConfig) -> Self {
        Self {
            config,
            life: PublisherLife::default(),
            held: HeldBatches::default(),
            replays: Replays::default(),
            link: ConnectionState::Down,
            is_exact: true,
            doubt: None,
            unanswered: None,
            is_stranger: false,
            is_catching_up: false,
            is_own: true,
            has_replied: false,
            has_answered: false,
            spoke: Nanos(0),
            contradicted: None,
            before: None,
            stale_in_a_row: 0,
            counts: StreamReport::default(),
            told: StreamStatus::Down,
        }
    }

    /// A stream that was followed before, up to `before`. Something of its replica may be known
    /// still, in doubt: from a dump, or from another follower. Counts continue from there. What is
    /// known is forgotten before batch 0 of a life is applied.
    #[must_use]
    pub fn resumed(config: FollowerConfig, before: StreamReport) -> Self {
        Self {
            is_own: false,
            before: PriorPosition::of(&before),
            counts: before,
            ..Self::new(config)
        }
    }

    /// A connection was made, which need not be the first. What was still on its way over an
    /// earlier one is not to be passed on any more.
    pub fn on_connected(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.link = ConnectionState::up(now);
        self.replays.stop();
        // Earlier failures were of another connection; the new one has all its tries.
        self.replays.judge(false);
        if self.config.can_replay {
            self.drop_held();
            self.ask_who_it_is(now);
        } else {
            self.settle_below(self.life.end(), now, effects);
            // Without replays no one can tell what happened while there was no connection.
            self.doubt(0, effects);
        }
        self.finish(now, effects);
    }

    /// The connection was lost.
    pub fn on_disconnected(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.link = ConnectionState::Down;
        self.replays.stop();
        if self.config.can_replay {
            self.drop_held();
        } else {
            // Without replays, what is missing stays lost, and what follows may be another life.
            self.settle_below(self.life.end(), now, effects);
        }
        self.finish(now, effects);
    }

    /// A batch came live.
    pub fn on_live(&mut self, batch: StreamBatch, now: Nanos, effects: &mut Vec<StreamEffect>) {
        // On the wire this number marks the end of a replay.
        if batch.seq == u64::MAX {
            return self.on_bad_message(now, effects);
        }
        if self.config.can_replay && !self.link.is_up() {
            // Left over from a connection that is gone: the next one's replay brings it again.
            self.counts.overflown_batches += 1;
            return;
        }
        self.on_live_message(&batch, now);
        let seq = batch.seq;
        // A waiting batch's fingerprint counts too, so that its repeat is known as one.
        match self.life.judge_live(&batch, self.held.fingerprint_of(seq)) {
            BatchVerdict::Duplicate => {
                self.stale_in_a_row = 0;
                self.life.see_live(seq);
                self.counts.duplicate_batches += 1;
            }
            BatchVerdict::Stale => self.on_stale(seq, now, effects),
            verdict @ (BatchVerdict::New | BatchVerdict::Restart) => {
                self.stale_in_a_row = 0;
                if verdict == BatchVerdict::Restart {
                    self.restart(Some(&batch), effects);
                    if batch.time().is_none() && self.config.can_replay {
                        // Only its number says so, and it may just be late.
                        self.replays.want(now);
                    }
                }
                self.life.see(&batch);
                self.life.see_live(seq);
                self.place(batch, now, effects);
            }
        }
        self.finish(now, effects);
    }

    /// A live message came that is no batch. If it was one, its number will be missing.
    pub fn on_bad_message(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.link.on_live(now);
        self.spoke = now;
        self.counts.bad_messages += 1;
        effects.push(StreamEffect::Update(StreamUpdate::Skipped { reason: BAD_MESSAGE, count: 1 }));
        self.finish(now, effects);
    }

    /// A replay brought a batch.
    pub fn on_reply(
        &mut self,
        replay: ReplayId,
        batch: StreamBatch,
        now: Nanos,
        effects: &mut Vec<StreamEffect>,
    ) {
        let Some(running) = self.replays.running(replay).filter(|_| batch.seq < u64::MAX) else {
            self.counts.duplicate_batches += 1;
            return;
        };
        running.heard = now;
        running.replies += 1;
        let has_gap = running.last.is_none_or(|last| batch.seq > last + 1);
        running.last = Some(batch.seq);
        let place = ReplyPosition {
            is_first: running.replies == 1,
            is_asked: batch.seq == running.from,
            // Replies come in order, so what is missing between them does not exist. Beyond
            // `REPLIES_SAFE` the publisher's socket may have dropped some.
            is_final: has_gap && running.replies <= REPLIES_SAFE,
        };
        self.note_answer(now);
        self.count_rank(&batch);
        match self.life.judge_reply(&batch, self.held.fingerprint_of(batch.seq)) {
            BatchVerdict::Restart => {
                self.restart(Some(&batch), effects);
                self.replays.want(now);
            }
            verdict => self.take_reply(batch, verdict, place, now, effects),
        }
        self.has_replied = true;
        self.note_silent_socket(effects);
        self.finish(now, effects);
    }

    /// A replay came to its end.
    pub fn on_replay_end(&mut self, replay: ReplayId, now: Nanos, effects: &mut Vec<StreamEffect>) {
        // A replay that was given up may still end; its answer is of no use.
        let Some(running) = self.replays.take(replay) else {
            return;
        };
        self.counts.replays_completed += 1;
        self.note_answer(now);
        self.link.on_replay(now, running.asked, true);
        if running.replies == 0 && running.is_known && self.has_replied {
            // The publisher does not even have what it sent us, and it keeps what it sends: it is
            // another one.
            self.restart(None, effects);
            self.replays.want(now);
        } else {
            if running.replies == 0 {
                self.doubt_stranger(effects);
                // Asked from batch 0 on, the publisher has nothing: all that is known is of an
                // earlier life.
                if running.next == 0 {
                    self.begin(effects);
                }
            }
            // A question that was asked before a contradiction is no answer to it.
            let is_answer = self.contradicted.is_none_or(|at| at <= running.asked);
            self.contradicted.take_if(|_| is_answer);
            (self.is_stranger, self.is_catching_up) = (false, !is_answer);
            self.drain(now, effects);
            if !is_answer {
                self.replays.want(now);
            } else if running.replies > 0 && !self.has_hole() {
                self.trust(now, effects);
            }
            self.judge(running, false, now, effects);
        }
        self.finish(now, effects);
    }

    /// A replay broke off, or could not be asked for.
    pub fn on_replay_failed(
        &mut self,
        replay: ReplayId,
        now: Nanos,
        effects: &mut Vec<StreamEffect>,
    ) {
        let Some(running) = self.replays.take(replay) else {
            return;
        };
        self.counts.replays_failed += 1;
        self.link.on_replay(now, running.asked, false);
        self.judge(running, true, now, effects);
        if !self.replays.is_hopeless() {
            self.replays.want(now);
        }
        self.finish(now, effects);
    }

    /// To be called at [`Self::due`]; earlier or later does no harm.
    pub fn on_time(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.doubt_what_is_late(now, effects);
        if let Some(replay) = self.replays.overdue(now) {
            self.on_replay_failed(replay, now, effects);
        }
        // A hole may be followed by others that are as old.
        while let Some((seq, since)) = self.held.first()
            && since + self.held_time_max() <= now
        {
            self.doubt_stranger(effects);
            self.trust_no_more();
            self.settle_below(seq, now, effects);
            self.drain(now, effects);
        }
        // What was applied just now may have left others behind a hole that is as old.
        self.doubt_what_is_late(now, effects);
        if self.silent_at().is_some_and(|at| at <= now) {
            self.replays.want(now);
        }
        self.finish(now, effects);
    }

    /// When [`Self::on_time`] has something to do; changes with every call.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        let held = self.held.first().map(|(_, since)| since + self.held_time_max());
        let times = [held, self.replays.due(), self.silent_at(), self.late_at()];
        times.into_iter().flatten().min()
    }

    /// The replay that runs.
    #[must_use]
    pub fn replay(&self) -> Option<ReplayId> {
        self.replays.id()
    }

    /// Returns the reliability of the stream.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        let is_settled = self.link.is_settled();
        let may_settle = self.config.can_replay && !self.replays.is_hopeless();
        if !self.link.is_up() {
            StreamStatus::Down
        } else if self.replays.is_busy() || self.has_hole() || !is_settled && may_settle {
            StreamStatus::Replaying
        } else if self.is_exact && is_settled {
            StreamStatus::Complete
        } else {
            StreamStatus::Partial
        }
    }

    /// Returns the stream's position and counters.
    #[must_use]
    pub fn report(&self) -> StreamReport {
        StreamReport {
            status: self.status(),
            next_seq: self.life.next(),
            last_seq: self.life.last_mark().map(|(seq, _)| seq),
            last_ts: self.life.last_mark().map(|(_, ts)| ts),
            held_batches: self.held.len(),
            held_bytes: self.held.bytes(),
            replays_asked: self.counts.replays_asked + self.replays.num_asked(),
            ..self.counts
        }
    }

    /// Asserts its invariants. Costs what is held; for tests and simulations.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.life.check();
        self.held.check(self.life.next());
        assert!(self.held.first().is_none() || self.has_hole(), "a wait has something to wait for");
        let is_asked = self.replays.is_busy() || !self.config.can_replay || !self.link.is_up();
        assert!(!self.has_hole() || is_asked, "what is missing is asked for");
        assert!(!self.has_hole() || !self.link.is_up() || self.due().is_some());
    }

    fn on_live_message(&mut self, batch: &StreamBatch, now: Nanos) {
        self.link.on_live(now);
        self.spoke = now;
        self.count_rank(batch);
        // A live message shows that the socket works, so the replay checks nothing more.
        if let Some(running) = self.replays.any_running() {
            running.is_check = false;
        }
    }

    /// A few such batches are late. One that should come later, or many in a row, may as well mean
    /// that the publisher's clock was set back.
    fn on_stale(&mut self, seq: u64, now: Nanos, effects: &mut Vec<StreamEffect>) {
        self.counts.stale_batches += 1;
        self.stale_in_a_row += 1;
        let is_many = self.stale_in_a_row >= STALE_BATCHES_MAX;
        if is_many {
            self.stale_in_a_row = 0;
            self.life.forget_times();
        }
        // A single batch with an old number is late; the network may bring a few of these.
        if !is_many && seq < self.life.next() {
            return;
        }
        if self.config.can_replay {
            self.contradicted = Some(now);
            self.ask_who_it_is(now);
        } else if self.doubt.is_none() {
            self.doubt(0, effects);
        }
    }

    /// The publisher may be another one, or be further than is known: nothing live is believed
    /// before a replay has told.
    fn ask_who_it_is(&mut self, now: Nanos) {
        // Without anything applied there is nothing to protect from another publisher's batches.
        let has_applied = self.life.has_applied();
        (self.is_stranger, self.is_catching_up) = (has_applied, has_applied);
        self.replays.want(now);
    }

    fn note_answer(&mut self, now: Nanos) {
        (self.has_answered, self.spoke) = (true, now);
    }

    /// Whether a batch was seen that cannot be applied yet.
    fn has_hole(&self) -> bool {
        self.life.next() < self.life.end()
    }

    fn held_time_max(&self) -> std::time::Duration {
        if self.config.can_replay { HELD_TIME_MAX } else { REORDER_TIME_MAX }
    }

    /// When silence has lasted too long, if a question about it can be asked and none is under way.
    fn silent_at(&self) -> Option<Nanos> {
        let can_ask = self.config.can_replay && !self.replays.is_busy();
        self.link.silent_at().filter(|_| can_ask)
    }

    fn count_rank(&mut self, batch: &StreamBatch) {
        let differs = self.config.rank.zip(batch.rank).is_some_and(|(ours, its)| ours != its);
        self.counts.rank_mismatches += u64::from(differs);
    }

    /// Asks for what is missing, and tells of a change of status. The end of every call.
    fn finish(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        if self.config.can_replay && self.link.is_up() {
            if self.has_hole() {
                self.replays.want(now);
            }
            self.start(now, effects);
        }
        if !self.config.can_replay && self.held.len() == 0 {
            // What was seen turned out to be of an earlier life: nothing waits behind the hole.
            self.settle_below(self.life.end(), now, effects);
        }
        self.note_unanswered(now);
        let status = self.status();
        if status != self.told {
            self.told = status;
            effects.push(StreamEffect::Update(StreamUpdate::Status(status)));
        }
    }

    fn start(&mut self, now: Nanos, effects: &mut Vec<StreamEffect>) {
        let is_silent = self.link.silent_at().is_some_and(|at| at <= now);
        let is_check = is_silent && self.link.is_settled();
        let next = self.life.next();
        // What waits for the rest of what is late need not come again, but for the last of it, by
        // which the publisher is known.
        let waits = self.held.last_of_run(next).filter(|_| !self.is_stranger);
        let from = waits.unwrap_or(self.life.ask_from());
        let is_known = waits.is_some() || from < next;
        if let Some(running) = self.replays.start(now, from, next) {
            (running.is_check, running.is_known) = (is_check, is_known);
            effects.push(StreamEffect::Ask { replay: running.id, from });
        }
    }
}

#[cfg(test)]
mod tests;
