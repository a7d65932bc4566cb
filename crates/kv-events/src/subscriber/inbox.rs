//! Between the sockets and the stream: decodes messages, reads the clock, passes updates on, and
//! notes problems for the log.
//!
//! It decides nothing: [`Follower`], which the simulator runs as well, decides about the stream,
//! and [`Notes`](super::notes::Notes) about the log.

use headstart_core::Nanos;
use headstart_router::stream::{
    Damage, Follower, ReplayId, StreamBatch, StreamEffect, StreamUpdate,
};
use tokio::time::Instant;

use super::SubscriberConfig;
use super::cause::SocketProblem;
use super::notes::{Notes, STOOD_TIME, StreamLogLine};
use super::reporter::StreamReporter;
use crate::decode_batch;
use crate::wire::{BadFrames, Reply, SequencedPayload};

/// Actions for the connection, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Ask for a replay from a batch on.
    pub(super) ask: Option<(ReplayId, u64)>,
    /// Give the connection up: it only looks alive.
    pub(super) reconnect: bool,
}

/// One stream and where its updates go.
pub(super) struct Inbox {
    config: SubscriberConfig,
    follower: Follower,
    /// The start of this stream's time.
    start: Instant,
    effects: Vec<StreamEffect>,
    /// When the present connection will have stood for long enough.
    stood_at: Option<Instant>,
    /// Whether the running replay said something.
    was_answered: bool,
    reporter: StreamReporter,
    sink: Box<dyn FnMut(StreamUpdate) + Send>,
}

impl Inbox {
    /// A stream that tells `reporter` where it stands.
    pub(super) fn new(
        config: SubscriberConfig,
        follower: Follower,
        reporter: StreamReporter,
        sink: Box<dyn FnMut(StreamUpdate) + Send>,
    ) -> Self {
        Self {
            config,
            follower,
            start: Instant::now(),
            effects: Vec::new(),
            stood_at: None,
            was_answered: false,
            reporter,
            sink,
        }
    }

    /// A connection was made.
    pub(super) fn on_connected(&mut self) -> Todo {
        self.stood_at = Some(Instant::now() + STOOD_TIME);
        self.note(Notes::on_connected);
        self.tell(Follower::on_connected)
    }

    /// The connection was lost.
    pub(super) fn on_disconnected(&mut self, cause: SocketProblem) {
        self.on_unconnected(cause);
        // Whatever is asked for meanwhile is asked for again by the next connection.
        let _ = self.tell(Follower::on_disconnected);
    }

    /// A connection could not be made.
    pub(super) fn on_unconnected(&mut self, cause: SocketProblem) {
        self.stood_at = None;
        self.note(|notes| notes.on_trouble(cause));
    }

    /// A live message came.
    pub(super) fn on_live(&mut self, batch: SequencedPayload) -> Todo {
        self.note(Notes::on_live);
        let batch = self.decoded(&batch);
        self.tell(|follower, now, effects| follower.on_live(batch, now, effects))
    }

    /// A live message came that is no batch.
    pub(super) fn on_bad_message(&mut self, error: &BadFrames) -> Todo {
        self.note_unreadable(error.to_string());
        self.tell(Follower::on_bad_message)
    }

    /// Replay `id` said something, or broke off.
    pub(super) fn on_reply(&mut self, id: ReplayId, reply: Result<Reply, SocketProblem>) -> Todo {
        match reply {
            Ok(Reply::Batch(batch)) => {
                self.was_answered = true;
                let batch = self.decoded(&batch);
                self.tell(|follower, now, effects| follower.on_reply(id, batch, now, effects))
            }
            Ok(Reply::End) => {
                self.note(Notes::on_replayed);
                self.tell(|follower, now, effects| follower.on_replay_end(id, now, effects))
            }
            Err(cause) => {
                self.note(|notes| notes.on_replay_failed(cause));
                self.tell(|follower, now, effects| follower.on_replay_failed(id, now, effects))
            }
        }
    }

    /// The time of [`Self::due`] has come.
    pub(super) fn on_time(&mut self) -> Todo {
        // Taken, so that one connection is noted once.
        if self.stood_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.note(Notes::on_stood);
        }
        let asked = self.follower.replay();
        let was_answered = self.was_answered;
        let todo = self.tell(Follower::on_time);
        if asked.is_some() && self.follower.replay() != asked {
            // Nothing but its time ends a replay now.
            self.note(|notes| {
                notes.on_replay_failed(if was_answered {
                    SocketProblem::Unfinished
                } else {
                    SocketProblem::Unanswered
                })
            });
        }
        todo
    }

    /// When [`Self::on_time`] is to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.follower.due().map(|due| self.start + due.since(Nanos(0)));
        let notes = self.reporter.lock().notes.due();
        [due, notes, self.stood_at].into_iter().flatten().min()
    }

    /// The replay whose news are wanted.
    pub(super) fn replay(&self) -> Option<ReplayId> {
        self.follower.replay()
    }

    fn tell(&mut self, event: impl FnOnce(&mut Follower, Nanos, &mut Vec<StreamEffect>)) -> Todo {
        let now = Nanos(0) + self.start.elapsed();
        // The list goes back afterwards: its memory serves all messages of the stream.
        let mut effects = std::mem::take(&mut self.effects);
        event(&mut self.follower, now, &mut effects);
        // The lock ends before the sink runs, so a report never waits for the index.
        let line = self.show(&effects);
        let mut todo = Todo::default();
        for effect in effects.drain(..) {
            self.carry_out(effect, &mut todo);
        }
        self.effects = effects;
        // Logged last: writing a line may take long, and updates must not wait for it.
        self.write(line);
        todo
    }

    /// Shows where the stream stands; what is to be said of its losses.
    fn show(&self, effects: &[StreamEffect]) -> Option<StreamLogLine> {
        let mut shown = self.reporter.lock();
        shown.report = self.follower.report();
        for effect in effects {
            if let StreamEffect::Update(StreamUpdate::Doubt { batches }) = effect {
                shown.notes.on_doubt(*batches);
            }
        }
        shown.notes.flush(Instant::now())
    }

    /// Takes note of something, and says what is to be said of it.
    fn note(&self, note: impl FnOnce(&mut Notes) -> Option<StreamLogLine>) {
        let line = note(&mut self.reporter.lock().notes);
        self.write(line);
    }

    fn note_unreadable(&self, error: String) {
        let mut shown = self.reporter.lock();
        shown.notes.on_unreadable(error, Instant::now());
    }

    fn write(&self, line: Option<StreamLogLine>) {
        if let Some(line) = line {
            line.write(&self.config);
        }
    }

    fn carry_out(&mut self, effect: StreamEffect, todo: &mut Todo) {
        match effect {
            // A batch without events changes nothing in the index.
            StreamEffect::Update(StreamUpdate::Events { events, .. }) if events.is_empty() => {}
            StreamEffect::Update(update) => (self.sink)(update),
            StreamEffect::Ask { replay, from } => {
                self.was_answered = false;
                todo.ask = Some((replay, from));
            }
            StreamEffect::Reconnect => todo.reconnect = true,
        }
    }

    /// A message as the stream sees it. The payload is known again by its hash.
    fn decoded(&self, message: &SequencedPayload) -> StreamBatch {
        let hash = blake3::hash(&message.payload);
        let half = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        let fingerprint = u128::from_le_bytes(*half);
        let decoded = decode_batch(&message.payload);
        let mut batch = decoded.unwrap_or_else(|error| {
            self.note_unreadable(format!("batch {}: {error}", message.seq));
            StreamBatch { damage: Damage::Unreadable, ..StreamBatch::default() }
        });
        if let Some(name) = batch.unknown_type.take() {
            self.note(|notes| notes.on_unknown_type(&name, Instant::now()));
        }
        if let (Some(ours), Some(named)) = (self.config.rank, batch.rank)
            && named != ours
        {
            self.note(|notes| notes.on_other_rank(named, Instant::now()));
        }
        StreamBatch { seq: message.seq, fingerprint, ..batch }
    }
}

#[cfg(test)]
mod tests;
