//! What lies between a publisher and its subscriber, with all that goes wrong there.
//!
//! It carries what it is given or does not, late, twice, or in another order. It does not look
//! into batches and keeps no state of either side beyond "is there a connection".

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_core::{Nanos, Rng};
use headstart_router::stream::{ReplayId, SETTLE_TIME, StreamBatch};

/// How often things go wrong, in percent of the occasions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A live message never arrives.
    pub drop: usize,
    /// A live message arrives twice.
    pub repeat: usize,
    /// A live message is overtaken by others.
    pub delay: usize,
    /// A new connection misses what is sent in its first moment.
    pub slow_join: usize,
    /// The connection breaks, in percent of the live messages.
    pub flap: usize,
    /// The connection stays and carries nothing any more, in percent of the live messages.
    pub deaf: usize,
    /// A replay is refused.
    pub replay_fail: usize,
    /// A replay is never answered.
    pub replay_silent: usize,
    /// A replay breaks off.
    pub replay_cut: usize,
    /// A replay takes its time.
    pub replay_late: usize,
    /// Messages of a broken connection arrive when there is another one.
    pub leftovers: usize,
}

/// What arrives at the subscriber.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// There is a connection.
    Connected,
    /// There is none any more.
    Disconnected,
    /// A batch, live.
    Live(StreamBatch),
    /// A batch of a replay.
    Reply(ReplayId, StreamBatch),
    /// The end of a replay.
    End(ReplayId),
    /// A replay broke off.
    Failed(ReplayId),
}

/// The way from one publisher to its subscriber.
#[derive(Debug, Default)]
pub struct Channel {
    /// What goes wrong.
    pub faults: Faults,
    /// On its way, by time of arrival and order of departure.
    queue: BTreeMap<(Nanos, u64), Delivery>,
    num_sent: u64,
    /// When the last message that nobody overtakes arrives: there is one order of those.
    tail: Nanos,
    /// Since when live messages come through, if there is a connection.
    open: Option<Nanos>,
}

impl Channel {
    /// When something arrives next.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        let first = self.queue.first_key_value();
        first.map(|((at, _), _)| *at)
    }

    /// What arrives at `now`.
    pub fn receive(&mut self, now: Nanos) -> Option<Delivery> {
        let entry = self
            .queue
            .first_entry()
            .filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    /// Whether anything is on its way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Makes a connection after `pause`.
    pub fn connect(&mut self, now: Nanos, pause: Duration, rng: &mut Rng) {
        let at = (now + pause).max(self.tail);
        let is_slow = hits(self.faults.slow_join, rng);
        let until_joined = match is_slow {
            true => below(SETTLE_TIME, rng),
            false => Duration::ZERO,
        };
        self.open = Some(at + until_joined);
        self.tail = at;
        self.put(at, Delivery::Connected);
    }

    /// Breaks the connection: what was on its way is lost, but for leftovers.
    pub fn disconnect(&mut self, now: Nanos, rng: &mut Rng) {
        let faults = self.faults;
        self.queue.retain(|_, delivery| match delivery {
            Delivery::Live(_) => hits(faults.leftovers, rng),
            Delivery::Disconnected => true,
            _ => false,
        });
        self.open = None;
        self.tail = now + below(Duration::from_millis(50), rng);
        self.put(self.tail, Delivery::Disconnected);
    }

    /// Whether there is a connection, or one that is being made.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.open.is_some()
    }

    /// Sends a live message. Breaks the connection where that is what goes wrong.
    pub fn send(&mut self, batch: &StreamBatch, now: Nanos, rng: &mut Rng) {
        if self.open.is_none_or(|open| now < open) || hits(self.faults.drop, rng) {
            return;
        }
        if hits(self.faults.deaf, rng) {
            self.open = Some(Nanos(u64::MAX));
            return;
        }
        let usual = (now + below(Duration::from_millis(4), rng)).max(self.tail);
        let at = match hits(self.faults.delay, rng) {
            true => usual + below(Duration::from_secs(2), rng),
            false => usual,
        };
        if at == usual {
            self.tail = usual;
        }
        self.put(at, Delivery::Live(batch.clone()));
        if hits(self.faults.repeat, rng) {
            let again = at + below(Duration::from_secs(1), rng);
            self.put(again, Delivery::Live(batch.clone()));
        }
    }

    /// Asks for a replay, which consists of `replies`.
    pub fn ask(
        &mut self,
        replay: ReplayId,
        replies: impl Iterator<Item = StreamBatch>,
        now: Nanos,
        rng: &mut Rng,
    ) {
        let mut at = now + below(Duration::from_millis(20), rng);
        if hits(self.faults.replay_silent, rng) {
            return;
        }
        if !self.is_connected() || hits(self.faults.replay_fail, rng) {
            return self.put(at, Delivery::Failed(replay));
        }
        if hits(self.faults.replay_late, rng) {
            at = at + below(Duration::from_secs(4), rng);
        }
        let replies: Vec<StreamBatch> = replies.collect();
        let is_cut = hits(self.faults.replay_cut, rng);
        let num_sent = if is_cut {
            rng.below(replies.len() + 1)
        } else {
            replies.len()
        };
        for batch in replies.into_iter().take(num_sent) {
            at = at + below(Duration::from_millis(2), rng);
            self.put(at, Delivery::Reply(replay, batch));
        }
        match (is_cut, rng.below(2)) {
            (false, _) => self.put(at, Delivery::End(replay)),
            (true, 0) => self.put(at, Delivery::Failed(replay)),
            (true, _) => {}
        }
    }

    fn put(&mut self, at: Nanos, delivery: Delivery) {
        self.num_sent += 1;
        let key = (at, self.num_sent);
        self.queue.insert(key, delivery);
    }
}

/// Whether it happens this time.
pub(super) fn hits(percent: usize, rng: &mut Rng) -> bool {
    percent > 0 && rng.below(100) < percent
}

/// A time below `limit`.
pub(super) fn below(limit: Duration, rng: &mut Rng) -> Duration {
    Duration::from_nanos(rng.below(limit.as_nanos() as usize) as u64)
}
