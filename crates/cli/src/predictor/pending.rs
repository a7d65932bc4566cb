//! Turns whose outcome is not known yet.

use std::collections::BTreeMap;

use headstart_core::Probability;
use headstart_server::prediction::TurnId;

/// Most turns that wait: with a row of two vectors each some 50 MB. At a quarter of an hour of
/// waiting that is 18 turns a second; the oldest of more go without being scored or logged.
const LIMIT: usize = 16_384;

/// A turn whose outcome is unknown: data known at the time of the question.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingTurn {
    /// The conversation, as the log names it.
    pub(super) conversation: u64,
    /// Prediction of the model.
    pub(super) said: Option<Probability>,
    /// Prediction of the turn prior.
    pub(super) prior: Probability,
    /// Version of the model.
    pub(super) version: Option<u64>,
    /// For the log, where there is one.
    pub(super) row: Option<Vec<f32>>,
}

/// Turns that wait, oldest first; ids grow with time.
#[derive(Debug, Default)]
pub(super) struct PendingTurns(BTreeMap<TurnId, PendingTurn>);

impl PendingTurns {
    /// Keeps a turn until [`Self::take`], or until it is the oldest of too many.
    pub(super) fn put(&mut self, id: TurnId, waiting: PendingTurn) {
        if self.0.len() >= LIMIT {
            self.0.pop_first();
        }
        self.0.insert(id, waiting);
    }

    /// Gives a turn back.
    pub(super) fn take(&mut self, id: TurnId) -> Option<PendingTurn> {
        self.0.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_goes() {
        let waiting = PendingTurn {
            conversation: 0,
            said: None,
            prior: Probability::EVEN,
            version: None,
            row: None,
        };
        let mut pending = PendingTurns::default();
        (0..=LIMIT as u64).for_each(|id| pending.put(TurnId(id), waiting.clone()));
        assert_eq!(pending.0.len(), LIMIT);
        assert_eq!(pending.take(TurnId(0)), None);
        assert_eq!(pending.take(TurnId(1)), Some(waiting));
        assert_eq!(pending.take(TurnId(1)), None, "once");
    }
}
