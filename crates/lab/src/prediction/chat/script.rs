//! The traffic of a run: conversations, and when each of them starts.
//!
//! Starts come from a run of their own in which answers take no time: a conversation holds one of
//! `slots` places from its first prompt to its last, and the next one starts when a place is
//! free. So no more than `slots` are open at once, but for what answers really take. A
//! conversation of one turn holds its place for no time at all: it and the next one start
//! together.
//!
//! Source: the study's pre-run. It does not say how the first conversations start; here the
//! places open one after the other over `ramp_s`, because all at once would be thousands of
//! requests where few conversations have a second turn.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use headstart_core::Nanos;

use super::{Place, ScriptedConversation};

/// Most conversations of a script: bounds memory where conversations are short and time is long.
pub(crate) const CONVERSATIONS_MAX: usize = 1 << 22;

/// Most turns of a conversation; later ones are cut off. They are numbered with 16 bits.
pub(crate) const TURNS_MAX: usize = u16::MAX as usize;

/// Spacing of conversations in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pacing {
    /// Conversations open at once, at most.
    pub(crate) slots: usize,
    /// Seconds over which the places open, evenly; 0 for all at the start.
    pub(crate) ramp_s: f64,
    /// Assumed time per token of an answer while starts are spaced, seconds; 0 as in the study.
    /// Where most conversations have one turn, many of the open ones are being answered.
    pub(crate) answer_token_s: f64,
    /// Length of the run, seconds.
    pub(crate) seconds: f64,
}

/// Conversations and their starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    conversations: Vec<ScriptedConversation>,
    starts: Vec<Nanos>,
    seconds: f64,
    /// Seconds behind that in which what is under way may end.
    slack_s: f64,
}

impl Script {
    /// Takes conversations from `source` until the next one would start after the run.
    ///
    /// # Panics
    /// When there is no slot, or a time is negative or not finite.
    #[must_use]
    pub(crate) fn new(
        source: impl IntoIterator<Item = ScriptedConversation>,
        pacing: Pacing,
    ) -> Self {
        assert!(pacing.slots > 0, "conversations need a place");
        // The place that is free first is on top.
        let mut free: BinaryHeap<Reverse<Nanos>> = opening_times(pacing).map(Reverse).collect();
        let end = Nanos::from_secs_f64(pacing.seconds);
        let (mut conversations, mut starts) = (Vec::new(), Vec::new());
        for mut conversation in
            source.into_iter().filter(|conversation| !conversation.turns.is_empty())
        {
            // Before the place is taken: turns that are cut off hold no place.
            conversation.turns.truncate(TURNS_MAX);
            let Some(Reverse(start)) = free.pop() else {
                break;
            };
            // The first start after the end stops the source, which may be endless.
            if start >= end || conversations.len() == CONVERSATIONS_MAX {
                break;
            }
            let open_s = conversation.open_s(pacing.answer_token_s);
            assert!(open_s >= 0.0 && open_s.is_finite(), "a gap is a time");
            free.push(Reverse(start + Duration::from_secs_f64(open_s)));
            conversations.push(conversation);
            starts.push(start);
        }
        Self { conversations, starts, seconds: pacing.seconds, slack_s: 0.0 }
    }

    /// Conversations with starts that are known, to repeat a run of `seconds` that was recorded.
    /// The simulated engine may be slower by `slack_s`.
    #[must_use]
    pub(crate) fn recorded(
        mut started: Vec<(Nanos, ScriptedConversation)>,
        seconds: f64,
        slack_s: f64,
    ) -> Self {
        started.retain(|(_, conversation)| !conversation.turns.is_empty());
        for (_, conversation) in &mut started {
            conversation.turns.truncate(TURNS_MAX);
        }
        let (starts, conversations) = started.into_iter().unzip();
        Self { conversations, starts, seconds, slack_s }
    }

    /// The conversations; those that were spaced stand in the order of their starts.
    #[must_use]
    pub(crate) fn conversations(&self) -> &[ScriptedConversation] {
        &self.conversations
    }

    /// When each of them starts.
    #[must_use]
    pub(crate) fn starts(&self) -> &[Nanos] {
        &self.starts
    }

    /// Length of the run, seconds.
    #[must_use]
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// When nothing more is simulated, seconds: at the end of the run or some slack later.
    #[must_use]
    pub(crate) fn end_s(&self) -> f64 {
        self.seconds + self.slack_s
    }

    /// Every turn, with whether another one follows it.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (Place, bool)> + '_ {
        let conversations = self.conversations.iter().enumerate();
        conversations.flat_map(|(conversation, scripted)| {
            let length = scripted.turns.len();
            (0..length).map(move |turn| (Place { conversation, turn }, turn + 1 < length))
        })
    }
}

fn opening_times(pacing: Pacing) -> impl Iterator<Item = Nanos> {
    let step_s = pacing.ramp_s / pacing.slots as f64;
    assert!(step_s >= 0.0 && step_s.is_finite(), "a ramp is a time");
    (0..pacing.slots).map(move |slot| Nanos::from_secs_f64(slot as f64 * step_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::chat::ScriptedTurn;

    fn conversation(gaps_s: &[f64]) -> ScriptedConversation {
        let turn = |&gap_s: &f64| ScriptedTurn { new_tokens: 1, answer_tokens: 1, gap_s };
        let last = [f64::NAN];
        ScriptedConversation { turns: gaps_s.iter().chain(&last).map(turn).collect(), head: None }
    }

    fn check(slots: usize, ramp_s: f64, gaps: &[&[f64]], expected_s: &[f64]) {
        let pacing = Pacing { slots, ramp_s, answer_token_s: 0.0, seconds: 100.0 };
        let script = Script::new(gaps.iter().map(|gaps| conversation(gaps)), pacing);
        let starts: Vec<_> = script.starts().iter().map(|at| at.0 as f64 / 1e9).collect();
        assert_eq!(starts, expected_s);
    }

    #[test]
    fn a_place_is_taken_again_when_its_conversation_would_be_over() {
        check(1, 0.0, &[&[10.0, 5.0], &[20.0], &[1.0]], &[0.0, 15.0, 35.0]);
        check(2, 0.0, &[&[10.0], &[4.0], &[4.0], &[1.0]], &[0.0, 0.0, 4.0, 8.0]);
    }

    #[test]
    fn a_single_turn_takes_no_time() {
        check(1, 0.0, &[&[], &[], &[7.0], &[]], &[0.0, 0.0, 0.0, 7.0]);
    }

    #[test]
    fn places_open_one_after_the_other() {
        check(2, 50.0, &[&[60.0], &[60.0], &[1.0]], &[0.0, 25.0, 60.0]);
    }

    #[test]
    fn what_would_start_after_the_run_is_not_drawn() {
        check(1, 0.0, &[&[99.0], &[1.0], &[1.0]], &[0.0, 99.0]);
        let endless = std::iter::repeat_with(|| conversation(&[1.0]));
        let pacing = Pacing { slots: 3, ramp_s: 0.0, answer_token_s: 0.0, seconds: 10.0 };
        let script = Script::new(endless, pacing);
        assert_eq!(script.conversations().len(), 30);
        let more = script.turns().filter(|(_, goes_on)| *goes_on).count();
        assert_eq!((script.turns().count(), more), (60, 30));
    }
}
