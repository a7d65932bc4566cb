//! What shows a subscriber that it may be behind, told by what arrives and what it applies alone.
//!
//! | since a second | so nothing may be confirmed |
//! |---|---|
//! | the connection is gone, or there again and unanswered | until a replay ends or goes on |
//! | a batch is here and an earlier one is not | until the next one is |
//! | nothing was heard for long, and somebody answered before | until something is |

use headstart_core::Nanos;
use headstart_router::stream::{Damage, LATE_TIME_MAX, SILENCE_TIME_MAX};

use crate::streams::channel::Delivery;
use crate::streams::publisher::{Position, position_of};
use crate::streams::scenario::StationSpec;

/// Evidence that something may be missing.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    can_replay: bool,
    /// Whether timestamps tell what comes later, and are right, and somebody can be asked where
    /// they contradict each other. If not, a late batch passes for a new process, or a new one
    /// for a late one.
    is_order_known: bool,
    is_connected: bool,
    /// Since when the connection is gone, or nobody has answered over another one.
    unanswered: Option<Nanos>,
    /// Since when the latest batch waits for the next one.
    behind: Option<Nanos>,
    /// When anything was heard last.
    heard: Nanos,
    /// Whether a question was answered with something.
    has_reply: bool,
    /// The latest batch that arrived live, and the last applied one.
    arrived: Option<Position>,
    applied: Option<Position>,
}

/// Why nothing may be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// There is no connection, or nobody answers over it.
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
            behind: None,
            heard: Nanos(0),
            has_reply: false,
            arrived: None,
            applied: None,
        }
    }

    /// Whoever follows the publisher begins anew.
    pub fn begin_anew(&mut self, spec: &StationSpec) {
        let is_order_known = self.is_order_known;
        *self = Self {
            is_order_known,
            ..Self::new(spec)
        };
    }

    /// Something arrives; `is_asked`: if it is of a replay, then of the one that is running.
    pub fn on_delivery(&mut self, delivery: &Delivery, is_asked: bool, now: Nanos) {
        match delivery {
            Delivery::Connected | Delivery::Disconnected => {
                self.is_connected = matches!(delivery, Delivery::Connected);
                // Who cannot ask doubts all that was before a connection, and knows no more.
                let is_settled = self.is_connected && !self.can_replay;
                self.unanswered = self.unanswered.or(Some(now)).filter(|_| !is_settled);
            }
            Delivery::Live(batch) => {
                // What cannot be read says not even of which process it is.
                let is_readable = batch.damage != Damage::Unreadable;
                let position = position_of(&batch.events).filter(|_| is_readable);
                self.arrived = self.arrived.max(position);
                self.heard = now;
            }
            Delivery::Reply(..) if is_asked => (self.has_reply, self.heard) = (true, now),
            Delivery::End(_) if is_asked => (self.unanswered, self.heard) = (None, now),
            Delivery::Reply(..) | Delivery::End(_) | Delivery::Failed(_) => {}
        }
        self.look(now);
    }

    /// The batch at `position` is applied.
    pub fn on_applied(&mut self, position: Position, now: Nanos) {
        self.applied = Some(position);
        self.unanswered = (!self.is_connected).then_some(now);
        (self.behind, self.heard) = (None, now);
        self.look(now);
    }

    /// The publisher's clock is set.
    pub fn on_clock_set(&mut self) {
        self.is_order_known = false;
    }

    /// Everything is forgotten: it was of another process.
    pub fn on_forgotten(&mut self) {
        (self.applied, self.behind, self.has_reply) = (None, None, false);
    }

    /// Why nothing may be confirmed at `now`.
    pub fn at(&self, now: Nanos) -> Option<Late> {
        let is_over = |since: Nanos| since + LATE_TIME_MAX < now;
        let is_silent = self.can_replay && self.has_reply && is_over(self.heard + SILENCE_TIME_MAX);
        if self.unanswered.is_some_and(is_over) {
            Some(Late::Unanswered)
        } else if self.behind.is_some_and(is_over) {
            Some(Late::Behind)
        } else {
            is_silent.then_some(Late::Silent)
        }
    }

    fn look(&mut self, now: Nanos) {
        if self.arrived > self.applied && self.is_order_known {
            self.behind = self.behind.or(Some(now));
        }
    }
}
