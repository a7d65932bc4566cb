//! Channel between a publisher and its subscriber, with all of its faults.
//!
//! It carries what it is given or does not, late, twice, or in another order. It does not look
//! into batches and keeps no state of either side beyond "is there a connection".

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_core::{Nanos, Rng};
use headstart_router::stream::{ReplayId, SETTLE_TIME, StreamBatch};

/// Longest that messages take which are still on their way when the process behind them ends.
const HELD_UP_MAX: Duration = Duration::from_secs(8);

/// Frequencies of faults, in percent of the occasions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
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
    /// The connection breaks for so long that all is doubted, in percent of the steps.
    pub away: usize,
    /// The connection stays and carries nothing any more, in percent of the live messages.
    pub deaf: usize,
    /// The connection stays and carries nothing for a while, in either direction, in percent of the
    /// steps.
    pub partition: usize,
    /// A replay is refused.
    pub replay_fail: usize,
    /// A replay is never answered.
    pub replay_silent: usize,
    /// A replay breaks off.
    pub replay_cut: usize,
    /// A replay takes its time.
    pub replay_late: usize,
    /// Messages of a broken connection arrive before there is another one.
    pub leftovers: usize,
}

/// An arrival at the subscriber.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// There is a connection.
    Connected,
    /// The connection is gone.
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

/// Outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAnswer {
    /// Nothing comes.
    None,
    /// A part.
    Cut,
    /// All that the publisher has.
    Whole,
}

/// The way from one publisher to its subscriber.
#[derive(Debug, Default)]
pub struct FaultyChannel {
    /// Frequencies of its faults.
    pub faults: FaultRates,
    /// On its way, by time of arrival and order of departure.
    queue: BTreeMap<(Nanos, u64), Delivery>,
    num_sent: u64,
    /// Arrival of the last message in the ordered stream, which no other overtakes.
    tail: Nanos,
    /// The last one that was sent surely.
    sure: Option<(Nanos, u64)>,
    /// Since when live messages come through, if there is a connection.
    open: Option<Nanos>,
    /// Until when no question comes through.
    mute_until: Nanos,
}

impl FaultyChannel {
    /// When something arrives next.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        let first = self.queue.first_key_value();
        first.map(|((at, _), _)| *at)
    }

    /// Takes an arrival that is due at `now`, if there is one.
    pub fn receive(&mut self, now: Nanos) -> Option<Delivery> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    /// Whether anything is on its way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Makes a connection after `pause`.
    pub fn connect(&mut self, now: Nanos, pause: Duration, rng: &mut Rng) {
        // Not before the last message in order, which arrived on the earlier connection.
        let at = (now + pause).max(self.tail);
        let is_slow = hits(self.faults.slow_join, rng);
        // A subscription takes a moment to arrive, and a publisher sends nothing until then.
        let until_joined = if is_slow { below(SETTLE_TIME, rng) } else { Duration::ZERO };
        self.open = Some(at + until_joined);
        self.tail = at;
        // Live messages of an earlier connection are not read any more.
        let is_live = |delivery: &Delivery| matches!(delivery, Delivery::Live(_));
        self.queue.retain(|key, delivery| !is_live(delivery) || key.0 < at);
        self.put(at, Delivery::Connected);
    }

    /// Loses what is on its way live.
    pub fn lose(&mut self) {
        let is_live = |delivery: &Delivery| matches!(delivery, Delivery::Live(_));
        self.queue.retain(|_, delivery| !is_live(delivery));
    }

    /// Breaks the connection: what was on its way is lost, but for leftovers, and for what was sent
    /// surely.
    pub fn disconnect(&mut self, now: Nanos, rng: &mut Rng) {
        let (faults, sure) = (self.faults, self.sure);
        self.queue.retain(|key, delivery| match delivery {
            Delivery::Live(_) => Some(*key) == sure || hits(faults.leftovers, rng),
            _ => false,
        });
        self.open = None;
        self.tail = now + below(Duration::from_millis(50), rng);
        self.put(self.tail, Delivery::Disconnected);
    }

    /// Ends the process behind the channel, unnoticed at this end: what is on its way arrives, but
    /// for replays, which stop or break off.
    pub fn outlive_process(&mut self, now: Nanos, rng: &mut Rng) {
        let mut replay = None;
        self.queue.retain(|_, delivery| match delivery {
            Delivery::Reply(id, _) | Delivery::End(id) => {
                replay = Some(*id);
                false
            }
            _ => true,
        });
        self.hold_up(now, rng);
        if let Some(replay) = replay {
            self.fail(replay, now, rng);
        }
    }

    /// Live messages on their way arrive much later, in any order.
    fn hold_up(&mut self, now: Nanos, rng: &mut Rng) {
        let is_live = |delivery: &Delivery| matches!(delivery, Delivery::Live(_));
        let held = self.queue.extract_if(.., |_, delivery| is_live(delivery));
        // Taken out before any is put back, or a held message could be held again.
        let held: Vec<Delivery> = held.map(|(_, delivery)| delivery).collect();
        for delivery in held {
            self.put(now + below(HELD_UP_MAX, rng), delivery);
        }
    }

    /// Breaks the connection because this end of it is gone: nothing arrives here any more.
    pub fn abandon(&mut self) {
        self.queue.clear();
        self.open = None;
    }

    /// Drops everything sent or asked for `time`, without notice to either end.
    pub fn partition(&mut self, now: Nanos, time: Duration) {
        self.mute_until = now + time;
        // A connection in the making is held up as well.
        self.open = self.open.map(|open| open.max(self.mute_until));
    }

    /// Nothing goes wrong any more, but with what is on its way.
    pub fn heal(&mut self) {
        (self.faults, self.mute_until) = (FaultRates::default(), Nanos(0));
    }

    /// Whether there is a connection, or one that is being made.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.open.is_some()
    }

    /// Whether a message sent now would find a connection, be it a deaf one.
    #[must_use]
    pub fn is_open(&self, now: Nanos) -> bool {
        self.is_deaf() || self.open.is_some_and(|open| open <= now)
    }

    /// Whether a connection is there or on its way, and nothing will come through before `until`.
    #[must_use]
    pub fn is_silent(&self, until: Nanos) -> bool {
        self.open.is_some_and(|open| open > until)
    }

    /// Whether the connection carries nothing any more.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.open == Some(Nanos(u64::MAX))
    }

    /// Whether a connection has ended and this end of it does not know yet.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        let mut deliveries = self.queue.values();
        deliveries.any(|delivery| matches!(delivery, Delivery::Disconnected))
    }

    /// Sends a live message that arrives in order wherever one can arrive.
    pub fn send_surely(&mut self, batch: &StreamBatch, now: Nanos) {
        if self.open.is_some_and(|open| open <= now) {
            self.tail = self.tail.max(now);
            self.put(self.tail, Delivery::Live(batch.clone()));
            self.sure = Some((self.tail, self.num_sent));
        }
    }

    /// Sends a live message. Breaks the connection where that is what goes wrong.
    pub fn send(&mut self, batch: &StreamBatch, now: Nanos, rng: &mut Rng) {
        // A publisher without a subscriber drops the message, and its number is used up.
        if self.open.is_none_or(|open| now < open) || hits(self.faults.drop, rng) {
            return;
        }
        if hits(self.faults.deaf, rng) {
            // A time that never comes: the connection stays and carries nothing.
            self.open = Some(Nanos(u64::MAX));
            return;
        }
        let usual = (now + below(Duration::from_millis(4), rng)).max(self.tail);
        let at = if hits(self.faults.delay, rng) {
            usual + below(Duration::from_secs(2), rng)
        } else {
            usual
        };
        // A delayed message leaves the tail where it is, so later ones overtake it.
        if at == usual {
            self.tail = usual;
        }
        self.put(at, Delivery::Live(batch.clone()));
        if hits(self.faults.repeat, rng) {
            let again = at + below(Duration::from_secs(1), rng);
            self.put(again, Delivery::Live(batch.clone()));
        }
    }

    /// Asks for a replay, which consists of `replies`; `None`: no process is alive to answer.
    pub fn ask(
        &mut self,
        replay: ReplayId,
        replies: Option<Vec<StreamBatch>>,
        now: Nanos,
        rng: &mut Rng,
    ) -> ReplayAnswer {
        let mut at = now + below(Duration::from_millis(20), rng);
        // Silence, not a refusal: the subscriber has to give up by its own time.
        if hits(self.faults.replay_silent, rng) || now < self.mute_until {
            return ReplayAnswer::None;
        }
        let replies = replies.filter(|_| self.is_connected());
        let Some(replies) = replies.filter(|_| !hits(self.faults.replay_fail, rng)) else {
            self.fail(replay, now, rng);
            return ReplayAnswer::None;
        };
        if hits(self.faults.replay_late, rng) {
            at = at + below(Duration::from_secs(4), rng);
        }
        let is_cut = hits(self.faults.replay_cut, rng);
        let num_sent = if is_cut { rng.below(replies.len() + 1) } else { replies.len() };
        for batch in replies.into_iter().take(num_sent) {
            at = at + below(Duration::from_millis(2), rng);
            self.put(at, Delivery::Reply(replay, batch));
        }
        // Drawn in any case, so that a whole replay takes as many draws as a cut one.
        match (is_cut, rng.below(2)) {
            (false, _) => self.put(at, Delivery::End(replay)),
            (true, 0) => self.put(at, Delivery::Failed(replay)),
            (true, _) => {}
        }
        if is_cut { ReplayAnswer::Cut } else { ReplayAnswer::Whole }
    }

    /// A replay breaks off, or nothing is ever heard of it again.
    fn fail(&mut self, replay: ReplayId, now: Nanos, rng: &mut Rng) {
        let at = now + below(Duration::from_millis(20), rng);
        if rng.below(4) > 0 {
            self.put(at, Delivery::Failed(replay));
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
