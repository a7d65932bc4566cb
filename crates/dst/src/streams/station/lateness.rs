//! Evidence that a subscriber may be behind, from its arrivals and its applied batches alone.
//!
//! | since a second | so nothing may be confirmed |
//! |---|---|
//! | the connection is gone, or there again and unanswered | until a replay ends or continues |
//! | a batch is here and an earlier one is not | until all of those are |
//! | nothing was heard for long, after an earlier answer | until something is |

use std::collections::BTreeMap;

use headstart_core::Nanos;
use headstart_router::stream::{Damage, LATE_TIME_MAX, SILENCE_TIME_MAX};

use crate::streams::channel::Delivery;
use crate::streams::publisher::{BatchPosition, position_of};
use crate::streams::scenario::StationSpec;

/// Evidence that something may be missing.
#[derive(Clone, Debug)]
pub struct Lateness {
    can_replay: bool,
    /// Whether timestamps order the batches, and are right, and a replay can resolve
    /// contradictions. If not, a late batch passes for a new process, or a new one for a late one.
    is_order_known: bool,
    is_connected: bool,
    /// Start of the time without a connection, or without an answer on the new one.
    unanswered: Option<Nanos>,
    /// Batches that arrived live behind the last applied one, and when.
    waiting: BTreeMap<BatchPosition, Nanos>,
    /// When anything was heard last.
    heard: Nanos,
    /// Whether a question was answered.
    has_answer: bool,
    applied: Option<BatchPosition>,
}

/// Why nothing may be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// There is no connection, or no answer on it.
    Unanswered,
    /// A batch is missing.
    Behind,
    /// Nothing is heard.
    Silent,
}

impl Lateness {
    /// Of a subscriber that has heard nothing.
    pub fn new(spec: &StationSpec) -> Self {
        Self {
            can_replay: spec.follower.can_replay,
            is_order_known: spec.has_ts && spec.follower.can_replay,
            is_connected: false,
            unanswered: None,
            waiting: BTreeMap::new(),
            heard: Nanos(0),
            has_answer: false,
            applied: None,
        }
    }

    /// Starts over with a new subscriber of the publisher.
    pub fn begin_anew(&mut self, spec: &StationSpec) {
        let is_order_known = self.is_order_known;
        *self = Self { is_order_known, ..Self::new(spec) };
    }

    /// Something arrives; `is_asked`: if it is of a replay, then of the one that is running.
    pub fn on_delivery(&mut self, delivery: &Delivery, is_asked: bool, now: Nanos) {
        match delivery {
            Delivery::Connected | Delivery::Disconnected => {
                self.is_connected = matches!(delivery, Delivery::Connected);
                // Who cannot ask doubts all that was before a connection, and knows no more.
                let is_settled = self.is_connected && !self.can_replay;
                self.unanswered = self.unanswered.or(Some(now)).filter(|_| !is_settled);
                self.waiting.clear();
            }
            Delivery::Live(batch) => {
                // What cannot be read says not even of which process it is.
                let is_readable = batch.damage != Damage::Unreadable;
                let position = position_of(&batch.events).filter(|_| is_readable);
                let position = position.filter(|position| Some(*position) > self.applied);
                if let Some(position) = position.filter(|_| self.is_order_known) {
                    self.waiting.entry(position).or_insert(now);
                }
                self.heard = now;
            }
            Delivery::Reply(..) if is_asked => (self.has_answer, self.heard) = (true, now),
            Delivery::End(_) if is_asked => {
                (self.unanswered, self.has_answer, self.heard) = (None, true, now);
            }
            Delivery::Reply(..) | Delivery::End(_) | Delivery::Failed(_) => {}
        }
    }

    /// The batch at `position` is applied.
    pub fn on_applied(&mut self, position: BatchPosition, now: Nanos) {
        self.applied = Some(position);
        // Applied without a connection, as leftovers are, it restarts the time that is allowed.
        self.unanswered = (!self.is_connected).then_some(now);
        self.heard = now;
        self.waiting.retain(|waiting, _| *waiting > position);
    }

    /// The publisher's clock is set.
    pub fn on_clock_set(&mut self) {
        self.is_order_known = false;
        self.waiting.clear();
    }

    /// Everything is forgotten: it was of another process. Whether what waits is of its successor
    /// cannot always be told, so that may be given up too.
    pub fn on_forgotten(&mut self) {
        self.applied = None;
        self.waiting.clear();
    }

    /// Why nothing may be confirmed at `now`.
    pub fn at(&self, now: Nanos) -> Option<Late> {
        let is_over = |since: Nanos| since + LATE_TIME_MAX < now;
        let is_silent =
            // Without an earlier answer silence is no evidence: the publisher may have no replays.
            self.can_replay && self.has_answer && is_over(self.heard + SILENCE_TIME_MAX);
        if self.unanswered.is_some_and(is_over) {
            Some(Late::Unanswered)
        } else if self.waiting.values().next().copied().is_some_and(is_over) {
            Some(Late::Behind)
        } else {
            is_silent.then_some(Late::Silent)
        }
    }
}
