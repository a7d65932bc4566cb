//! Between the sockets and the stream: decodes what comes, reads the clock, passes updates on.
//!
//! It decides nothing: that is [`Follower`]'s, which the simulator runs as well.

use std::sync::{Arc, Mutex};

use headstart_core::Nanos;
use headstart_router::stream::{Damage, Effect, Follower, ReplayId, StreamBatch, StreamReport};
use tokio::time::Instant;

use super::StreamUpdate;
use crate::events::wire::{Numbered, Reply};
use crate::events::{Batch, decode_batch};

/// What the connection has to do, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Ask for a replay from a batch on.
    pub(super) ask: Option<(ReplayId, u64)>,
    /// Give the connection up: it only looks alive.
    pub(super) reconnect: bool,
}

/// One stream and where its updates go.
pub(super) struct Inbox {
    follower: Follower,
    /// The start of this stream's time.
    start: Instant,
    effects: Vec<Effect>,
    report: Arc<Mutex<StreamReport>>,
    sink: Box<dyn FnMut(StreamUpdate) + Send>,
}

impl Inbox {
    /// A stream that writes where it stands to `report`.
    pub(super) fn new(
        follower: Follower,
        report: Arc<Mutex<StreamReport>>,
        sink: Box<dyn FnMut(StreamUpdate) + Send>,
    ) -> Self {
        Self {
            follower,
            start: Instant::now(),
            effects: Vec::new(),
            report,
            sink,
        }
    }

    /// A connection was made.
    pub(super) fn on_connected(&mut self) -> Todo {
        self.tell(Follower::on_connected)
    }

    /// The connection was lost.
    pub(super) fn on_disconnected(&mut self) {
        // Whatever is asked for meanwhile is asked for again by the next connection.
        let _ = self.tell(Follower::on_disconnected);
    }

    /// A live message came.
    pub(super) fn on_live(&mut self, batch: Numbered) -> Todo {
        let batch = decoded(&batch);
        self.tell(|follower, now, effects| follower.on_live(batch, now, effects))
    }

    /// A live message came that is no batch.
    pub(super) fn on_bad_message(&mut self) -> Todo {
        self.tell(Follower::on_bad_message)
    }

    /// Replay `id` said something; nothing: it broke off.
    pub(super) fn on_reply(&mut self, id: ReplayId, reply: Option<Reply>) -> Todo {
        match reply {
            Some(Reply::Batch(batch)) => {
                let batch = decoded(&batch);
                self.tell(|follower, now, effects| follower.on_reply(id, batch, now, effects))
            }
            Some(Reply::End) => {
                self.tell(|follower, now, effects| follower.on_replay_end(id, now, effects))
            }
            None => self.tell(|follower, now, effects| follower.on_replay_failed(id, now, effects)),
        }
    }

    /// The time of [`Self::due`] has come.
    pub(super) fn on_time(&mut self) -> Todo {
        self.tell(Follower::on_time)
    }

    /// When [`Self::on_time`] is to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.follower.due()?;
        Some(self.start + due.since(Nanos(0)))
    }

    /// The replay whose news are wanted.
    pub(super) fn replay(&self) -> Option<ReplayId> {
        self.follower.replay()
    }

    fn tell(&mut self, event: impl FnOnce(&mut Follower, Nanos, &mut Vec<Effect>)) -> Todo {
        let now = Nanos(0) + self.start.elapsed();
        let mut effects = std::mem::take(&mut self.effects);
        event(&mut self.follower, now, &mut effects);
        *self.report.lock().expect("no panic while copying a report") = self.follower.report();
        let mut todo = Todo::default();
        for effect in effects.drain(..) {
            self.carry_out(effect, &mut todo);
        }
        self.effects = effects;
        todo
    }

    fn carry_out(&mut self, effect: Effect, todo: &mut Todo) {
        let update = match effect {
            Effect::Apply { events, .. } if events.is_empty() => return,
            Effect::Apply { events, .. } => StreamUpdate::Events(events),
            Effect::Clear => StreamUpdate::Clear,
            Effect::Doubt { batches } => StreamUpdate::Doubt { batches },
            Effect::Trust => StreamUpdate::Trust,
            Effect::Skipped { reason, events } => StreamUpdate::Skipped {
                reason,
                count: events,
            },
            Effect::Status(status) => StreamUpdate::Status(status),
            Effect::Ask { replay, from } => {
                todo.ask = Some((replay, from));
                return;
            }
            Effect::Reconnect => {
                todo.reconnect = true;
                return;
            }
        };
        (self.sink)(update);
    }
}

/// A message as the stream sees it. The payload is known again by its hash.
fn decoded(message: &Numbered) -> StreamBatch {
    let hash = blake3::hash(&message.payload);
    let half = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    let fingerprint = u128::from_le_bytes(*half);
    match decode_batch(&message.payload) {
        Ok(batch) => StreamBatch {
            seq: message.seq,
            ts: batch.ts,
            fingerprint,
            rank: batch.rank,
            damage: damage(&batch),
            events: batch.events,
        },
        Err(error) => {
            tracing::warn!(%error, seq = message.seq, "unreadable cache events");
            StreamBatch {
                seq: message.seq,
                fingerprint,
                damage: Damage::Unreadable,
                ..StreamBatch::default()
            }
        }
    }
}

fn damage(batch: &Batch) -> Damage {
    if batch.num_skipped == 0 {
        return Damage::None;
    }
    let mut reasons: Vec<(&'static str, u64)> = Vec::new();
    let listed = batch
        .skipped
        .iter()
        .map(|skipped| (skipped.reason.label(), 1));
    let unlisted = (batch.num_skipped - batch.skipped.len()) as u64;
    for (label, count) in listed.chain([("unlisted", unlisted)]) {
        match reasons.iter_mut().find(|(reason, _)| *reason == label) {
            Some((_, sum)) => *sum += count,
            None => reasons.push((label, count)),
        }
    }
    reasons.retain(|&(_, count)| count > 0);
    Damage::Skipped {
        reasons,
        may_have_removed: batch.may_have_removed,
    }
}

#[cfg(test)]
mod tests;
