//! Predictions by the turn count alone, learnt while the trace goes by.
//!
//! Each request gets what was known when it came. What became of a request is learnt
//! [`HORIZON`] after it: it was followed by then, or it was not. To learn of the followed ones as
//! soon as they are would be to learn of them before the others, and to expect too much of every
//! conversation until the trace is much longer than the horizon.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use headstart_cache::policy::LpcOptions;
use headstart_core::{Nanos, Probability, SessionId, TraceRequest};
use headstart_predict::TurnPrior;

/// Silence after which a conversation counts as ended: five mean gaps of the policy's default. Of
/// exponential gaps 0.7 % are longer, and their turns count as ended.
pub(super) const HORIZON: Duration = Duration::from_secs(5 * LpcOptions::INTERVAL_S as u64);

/// One prediction per request; `None` for those without session or turn. Requests stand in order
/// of arrival.
pub(super) fn predictions(requests: &[TraceRequest]) -> Vec<Option<Probability>> {
    let mut turns = Turns::default();
    let numbered = (0..).zip(requests);
    numbered.map(|(number, request)| turns.predict(number, request)).collect()
}

/// Requests of the last horizon, and what was learnt of those before.
#[derive(Default)]
struct Turns {
    prior: TurnPrior,
    /// The latest request of each conversation.
    latest: HashMap<SessionId, u64>,
    /// In the order in which they came.
    waiting: VecDeque<UnresolvedRequest>,
}

/// A request whose conversation may still continue.
struct UnresolvedRequest {
    number: u64,
    came: Nanos,
    session: SessionId,
    turn: u16,
}

impl Turns {
    fn predict(&mut self, number: u64, request: &TraceRequest) -> Option<Probability> {
        let (turn, came) = (request.turn, request.arrival);
        // Earlier requests are learned first, so the prediction uses all that was known at this
        // time.
        self.learn(came);
        // A request without session or turn cannot be followed.
        let session = request.session.filter(|_| turn > 0)?;
        self.latest.insert(session, number);
        self.waiting.push_back(UnresolvedRequest { number, came, session, turn });
        Some(self.prior.p(turn))
    }

    /// Learns what became of the requests that came a horizon before `now`, or earlier.
    fn learn(&mut self, now: Nanos) {
        let is_due = |waiting: &mut UnresolvedRequest| now.since(waiting.came) >= HORIZON;
        while let Some(waiting) = self.waiting.pop_front_if(is_due) {
            // A later request of the session has taken the entry: this one was followed.
            let is_latest = self.latest.get(&waiting.session) == Some(&waiting.number);
            if is_latest {
                // The conversation ended. Its entry would otherwise stay for the whole trace.
                self.latest.remove(&waiting.session);
            }
            self.prior.observe(waiting.turn, !is_latest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests as (seconds, session, turn).
    fn requests(told: &[(f64, u64, u16)]) -> Vec<TraceRequest> {
        let request = |&(seconds, session, turn): &(f64, u64, u16)| TraceRequest {
            arrival: Nanos::from_secs_f64(seconds),
            session: (session > 0).then_some(SessionId(session)),
            turn,
            ..TraceRequest::default()
        };
        told.iter().map(request).collect()
    }

    /// Checks the prediction for the last request against a prior that has observed `seen`.
    fn check(told: &[(f64, u64, u16)], seen: &[(u16, bool)]) {
        let mut prior = TurnPrior::new();
        seen.iter().for_each(|&(turn, went_on)| prior.observe(turn, went_on));
        let requests = requests(told);
        let turn = requests.last().expect("some").turn;
        let last = *predictions(&requests).last().expect("one each");
        assert_eq!(last, Some(prior.p(turn)), "{told:?}");
    }

    #[test]
    fn only_what_was_known_by_then_is_learnt() {
        check(&[(0.0, 1, 1)], &[]);
        check(&[(0.0, 1, 1), (1.0, 1, 2), (499.9, 2, 1)], &[]);
        check(&[(0.0, 1, 1), (500.0, 2, 1)], &[(1, false)]);
        check(&[(0.0, 1, 1), (1.0, 1, 2), (500.0, 2, 1)], &[(1, true)]);
        check(&[(0.0, 1, 1), (1.0, 1, 2), (501.0, 2, 1)], &[(1, true), (2, false)]);
        // Ended, it comes again all the same: a turn like any other.
        check(
            &[(0.0, 1, 1), (500.0, 1, 2), (501.0, 1, 3), (1_000.0, 2, 1)],
            &[(1, false), (2, true)],
        );
        check(&[(0.0, 1, 1), (0.0, 1, 2), (500.0, 2, 1)], &[(1, true), (2, false)]);
    }

    #[test]
    fn what_has_no_session_or_turn_gets_no_prediction() {
        let requests = requests(&[(0.0, 0, 1), (0.0, 1, 0), (0.0, 1, 1)]);
        let is_predicted = predictions(&requests).iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(is_predicted, [false, false, true]);
    }

    #[test]
    fn the_share_of_each_turn_is_found() {
        // Every second conversation has a second turn, and none a third.
        let mut told = Vec::new();
        for session in 1..4_000_u64 {
            let begin = session as f64 * 10.0;
            told.push((begin, session, 1));
            if session % 2 == 0 {
                told.push((begin + 15.0, session, 2));
            }
        }
        told.sort_by(|one, other| one.0.total_cmp(&other.0));
        let requests = requests(&told);
        let predictions = predictions(&requests);
        for turn in [1, 2] {
            let late = requests.iter().zip(&predictions).rev();
            let (_, p) = late.into_iter().find(|(one, _)| one.turn == turn).expect("some");
            let (p, share) = (p.expect("predicted").value(), if turn == 1 { 0.5 } else { 0.0 });
            assert!((p - share).abs() < 0.03, "turn {turn}: {p}");
        }
    }
}
