//! Puts batches in order and turns them into updates. No sockets, no clock.
//!
//! [`StreamState`] decides by number; the inbox keeps the payloads that wait behind a replay,
//! compares payloads where numbers alone cannot tell two publishers apart, and decodes.

use std::collections::VecDeque;

use headstart_router::stream::{ReplayEnd, Replayed, Step, StreamState};

use super::StreamUpdate;
use crate::events::decode_batch;
use crate::events::wire::Numbered;

/// Most batches that wait behind a replay: minutes of a busy engine's steps.
const HELD_BATCHES_MAX: usize = 8192;

/// Most bytes of payload that wait behind a replay, 32 MiB: as many batches of 4 KiB.
const HELD_BYTES_MAX: usize = 32 << 20;

/// What the connection has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing beyond what runs already.
    Follow,
    /// Ask for a replay, in place of the running one.
    Replay {
        /// The first batch wanted.
        from: u64,
    },
}

/// The order of one stream, and where its updates go.
pub(super) struct Inbox {
    state: StreamState,
    held: Held,
    /// The last applied batch. A publisher that has another one of its number is another one.
    last: Option<Numbered>,
    num_applied: u64,
    sink: Box<dyn FnMut(StreamUpdate) + Send>,
}

impl Inbox {
    pub(super) fn new(sink: Box<dyn FnMut(StreamUpdate) + Send>) -> Self {
        Self {
            state: StreamState::default(),
            held: Held::default(),
            last: None,
            num_applied: 0,
            sink,
        }
    }

    /// A connection was made or is in doubt. Returns the batch to ask for.
    pub(super) fn resume(&mut self) -> u64 {
        self.held.clear();
        self.state.resume()
    }

    /// Takes a live batch.
    pub(super) fn on_live(&mut self, batch: Numbered) -> Next {
        if self.contradicts(&batch) {
            self.restart();
        }
        let mut step = self.state.on_batch(batch.seq);
        if step == Step::Restart {
            self.restart();
            step = self.state.on_batch(batch.seq);
        }
        match step {
            Step::Apply => self.apply(batch),
            Step::Duplicate => {}
            Step::Hold => self.held.push(batch),
            Step::Gap { from, missing } => {
                tracing::debug!(from, missing, "a gap in the cache events");
                self.held.push(batch);
                return Next::Replay { from };
            }
            Step::Restart => unreachable!("a fresh stream has nothing to regress from"),
        }
        Next::Follow
    }

    /// Takes a batch of the replay.
    pub(super) fn on_replayed(&mut self, batch: Numbered) -> Next {
        if self.contradicts(&batch) {
            self.restart();
            return Next::Replay {
                from: self.resume(),
            };
        }
        match self.state.on_replay_batch(batch.seq) {
            Replayed::Apply => self.apply(batch),
            Replayed::ApplyAfterLoss { lost } => {
                self.lose(lost);
                self.apply(batch);
            }
            Replayed::Duplicate => {}
        }
        Next::Follow
    }

    /// The replay is complete.
    pub(super) fn on_replay_end(&mut self) -> Next {
        match self.state.on_replay_end() {
            ReplayEnd::Continue { lost } => self.catch_up(lost),
            ReplayEnd::Restart => {
                self.restart();
                Next::Replay {
                    from: self.resume(),
                }
            }
        }
    }

    /// There is no replay, or it broke off.
    pub(super) fn on_replay_failed(&mut self) -> Next {
        let lost = self.state.on_replay_failed();
        self.catch_up(lost)
    }

    /// A message came that is no batch.
    pub(super) fn on_bad_message(&mut self) -> Next {
        (self.sink)(StreamUpdate::Skipped { count: 1 });
        Next::Follow
    }

    /// Whether a replay is wanted and has not ended.
    pub(super) fn is_replaying(&self) -> bool {
        self.state.is_replaying()
    }

    /// Batches applied since the start.
    pub(super) fn num_applied(&self) -> u64 {
        self.num_applied
    }

    fn catch_up(&mut self, lost: u64) -> Next {
        self.lose(lost);
        while let Some(batch) = self.held.pop() {
            match self.state.on_held(batch.seq) {
                Step::Apply => self.apply(batch),
                Step::Duplicate => {}
                Step::Gap { from, .. } => {
                    self.held.put_back(batch);
                    return Next::Replay { from };
                }
                Step::Hold | Step::Restart => unreachable!("no replay runs, no batch is live"),
            }
        }
        Next::Follow
    }

    fn contradicts(&self, batch: &Numbered) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|last| last.seq == batch.seq && last.payload != batch.payload)
    }

    fn restart(&mut self) {
        tracing::info!("a publisher of cache events restarted");
        self.state.restart();
        self.held.clear();
        self.last = None;
        (self.sink)(StreamUpdate::Clear);
    }

    fn lose(&mut self, batches: u64) {
        if batches > 0 {
            tracing::warn!(batches, "cache events lost");
            (self.sink)(StreamUpdate::Lost { batches });
        }
    }

    fn apply(&mut self, batch: Numbered) {
        self.num_applied += 1;
        match decode_batch(&batch.payload) {
            Ok(decoded) => {
                if !decoded.skipped.is_empty() {
                    let count = decoded.skipped.len();
                    (self.sink)(StreamUpdate::Skipped { count });
                }
                if !decoded.events.is_empty() {
                    (self.sink)(StreamUpdate::Events(decoded.events));
                }
            }
            Err(error) => {
                tracing::warn!(%error, seq = batch.seq, "unreadable cache events");
                self.lose(1);
            }
        }
        self.last = Some(batch);
    }
}

/// Live batches that wait behind a replay. When full, new ones are dropped: the next live batch
/// shows the gap, and they are asked for again.
#[derive(Default)]
struct Held {
    batches: VecDeque<Numbered>,
    bytes: usize,
}

impl Held {
    fn push(&mut self, batch: Numbered) {
        let bytes = self.bytes + batch.payload.len();
        if self.batches.len() < HELD_BATCHES_MAX && bytes <= HELD_BYTES_MAX {
            self.bytes = bytes;
            self.batches.push_back(batch);
        }
    }

    fn pop(&mut self) -> Option<Numbered> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.payload.len();
        Some(batch)
    }

    fn put_back(&mut self, batch: Numbered) {
        self.bytes += batch.payload.len();
        self.batches.push_front(batch);
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
