//! Conversations of requests, silences of their users, and outcomes of earlier turns.
//!
//! Turns that were seen stand in a table under the name of their prefix. A request whose *earlier*
//! prefix stands there continues that turn.
//!
//! - A request whose *whole* prefix stands there repeats a turn: a retry, a regeneration, or the
//!   same first words of another user, indistinguishable from it. It continues nothing and adds no
//!   turn; turn and repeat have one outcome, as they share their blocks.
//! - The first continuation of a turn takes its conversation over. A second, different one is a
//!   branch: its history is shared, its future is not, so it is a conversation of its own. The
//!   turn that it leaves has had its outcome, and has no other.
//! - The outcome of a turn is reported when the horizon after its answer has passed, whatever it
//!   is. If continuations were reported at once, they would outnumber the endings not yet known,
//!   and a predictor that learns from outcomes would start out too optimistic.
//! - A turn without a continuation within the horizon after its answer has ended. While it is being
//!   answered it cannot end; a turn that never was answered (refused, failed) has no outcome.
//!
//! The table is bounded. When it is full, the turn that has waited longest is forgotten, without an
//! outcome, since none is known. Knows no text, clock or thread; `now` is passed in.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use headstart_core::{Nanos, SessionId};

use super::chat::PrefixKey;
use super::{Became, TurnId, TurnOutcome};

/// Limits of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerLimits {
    /// Turns in the table; some 150 bytes each.
    pub turns: usize,
    /// Silence after which a turn has ended.
    pub horizon: Duration,
}

/// Turns of conversations.
#[derive(Debug)]
pub struct Tracker {
    limits: TrackerLimits,
    turns: HashMap<PrefixKey, TrackedTurn>,
    /// Turns that wait for a continuation or for their end, by the end of their answer.
    waiting: BTreeMap<(Nanos, TurnId), PrefixKey>,
    outcomes: Vec<TurnOutcome>,
    forgotten: u64,
    next_turn: u64,
    next_conversation: u64,
}

/// One turn.
#[derive(Clone, Debug)]
struct TrackedTurn {
    id: TurnId,
    conversation: SessionId,
    number: u16,
    /// Requests for it that are being answered.
    in_flight: u32,
    /// When it was answered last.
    answered: Option<Nanos>,
    is_continued: bool,
}

/// Turn and conversation of a request, as the tracker identified them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The turn.
    pub id: TurnId,
    /// The conversation.
    pub conversation: SessionId,
    /// Between the end of the previous turn's answer and now, where that turn was seen.
    pub gap: Option<Duration>,
    /// The turn was seen before.
    pub is_repeat: bool,
}

impl Tracker {
    /// An empty one.
    #[must_use]
    pub fn new(limits: TrackerLimits) -> Self {
        Self {
            limits,
            turns: HashMap::new(),
            waiting: BTreeMap::new(),
            outcomes: Vec::new(),
            forgotten: 0,
            next_turn: 0,
            next_conversation: 0,
        }
    }

    /// Takes note of a request with its latest prefixes, oldest first, its own last (at least
    /// that), which is the conversation's `number`-th user message. [`Self::answered`] or
    /// [`Self::withdrawn`] must follow. Constant time but for the turns that end.
    pub fn observe(&mut self, prefixes: &[PrefixKey], number: u16, now: Nanos) -> Sighting {
        // A turn whose horizon has passed must not count as continued by this request.
        self.expire(now);
        let Some((own, earlier)) = prefixes.split_last() else {
            let (id, conversation) = (self.new_turn(), self.new_conversation());
            return Sighting { id, conversation, gap: None, is_repeat: false };
        };
        let (parent, gap) = self.go_on(earlier, now);
        if let Some(turn) = self.turns.get_mut(own) {
            turn.in_flight += 1;
            let repeated =
                Sighting { id: turn.id, conversation: turn.conversation, gap, is_repeat: true };
            // It is being answered again. Its horizon starts when that answer ends.
            self.stop_waiting(own);
            return repeated;
        }
        let conversation = parent.unwrap_or_else(|| self.new_conversation());
        let id = self.new_turn();
        let turn = TrackedTurn {
            id,
            conversation,
            number,
            in_flight: 1,
            answered: None,
            is_continued: false,
        };
        if self.make_room() {
            self.turns.insert(*own, turn);
        }
        Sighting { id, conversation, gap, is_repeat: false }
    }

    /// The latest known turn among `earlier` has gone on. Returns its conversation, if this is its
    /// first continuation, and the gap, if it is the turn right before.
    fn go_on(
        &mut self,
        earlier: &[PrefixKey],
        now: Nanos,
    ) -> (Option<SessionId>, Option<Duration>) {
        let mut known = earlier.iter().enumerate().rev();
        let Some((index, key)) = known.find(|(_, key)| self.turns.contains_key(*key)) else {
            return (None, None);
        };
        let Some(turn) = self.turns.get_mut(key) else {
            return (None, None);
        };
        // If turns that another server answered lie between, the silence before this one is
        // unknown.
        let is_previous = index + 1 == earlier.len();
        let answered = turn.answered.filter(|_| is_previous);
        let gap = answered.map(|answered| now.since(answered));
        if turn.is_continued {
            return (None, gap);
        }
        turn.is_continued = true;
        (Some(turn.conversation), gap)
    }

    /// A request for this turn was answered, as far as its client wanted.
    pub fn answered(&mut self, key: &PrefixKey, id: TurnId, now: Nanos) {
        self.landed(key, id, Some(now));
    }

    /// A request for this turn got no answer.
    pub fn withdrawn(&mut self, key: &PrefixKey, id: TurnId) {
        self.landed(key, id, None);
    }

    fn landed(&mut self, key: &PrefixKey, id: TurnId, answered: Option<Nanos>) {
        // A turn that was forgotten, or never fitted, is not there.
        let Some(turn) = self.turns.get_mut(key).filter(|turn| turn.id == id) else {
            return;
        };
        turn.in_flight = turn.in_flight.saturating_sub(1);
        // An earlier answer still counts if this request was withdrawn.
        turn.answered = answered.or(turn.answered);
        if turn.in_flight > 0 {
            return;
        }
        match turn.answered {
            Some(answered) => {
                self.waiting.insert((answered, id), *key);
            }
            None => {
                self.turns.remove(key);
            }
        }
    }

    /// Tells what became of the turns whose horizon has passed.
    pub fn expire(&mut self, now: Nanos) {
        // Sorted by the end of their answers, so the first one that is not due ends the search.
        while let Some((&(answered, id), &key)) = self.waiting.first_key_value() {
            if now < answered + self.limits.horizon {
                return;
            }
            self.waiting.pop_first();
            if let Some(turn) = self.turns.remove(&key) {
                self.outcomes.push(TurnOutcome {
                    id,
                    turn: turn.number,
                    became: if turn.is_continued { Became::Continued } else { Became::Ended },
                });
            }
        }
    }

    /// Takes the outcomes since the last call, in the order in which they became known.
    pub fn take_outcomes(&mut self) -> Vec<TurnOutcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Turns in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether no turn is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Turns that had to be forgotten, or could not be kept, before anything was known of them.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Makes place for one more. False when all that is there is being answered.
    fn make_room(&mut self) -> bool {
        if self.turns.len() < self.limits.turns {
            return true;
        }
        let Some((_, key)) = self.waiting.pop_first() else {
            self.forgotten += 1;
            return false;
        };
        self.turns.remove(&key);
        self.forgotten += 1;
        true
    }

    fn stop_waiting(&mut self, key: &PrefixKey) {
        if let Some(turn) = self.turns.get(key)
            && let Some(answered) = turn.answered
        {
            self.waiting.remove(&(answered, turn.id));
        }
    }

    fn new_turn(&mut self) -> TurnId {
        self.next_turn += 1;
        TurnId(self.next_turn)
    }

    fn new_conversation(&mut self) -> SessionId {
        self.next_conversation += 1;
        SessionId(self.next_conversation)
    }

    /// Asserts its invariants.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        assert!(self.turns.len() <= self.limits.turns, "the table is bounded");
        let idle = self.turns.values().filter(|turn| turn.in_flight == 0);
        assert_eq!(
            idle.count(),
            self.waiting.len(),
            "exactly the turns that are not being answered wait"
        );
        for (&(answered, id), key) in &self.waiting {
            let turn = self.turns.get(key);
            assert!(
                turn.is_some_and(|turn| (turn.answered, turn.id) == (Some(answered), id)),
                "who waits is in the table, as of its last answer"
            );
        }
    }
}

#[cfg(test)]
mod tests;
