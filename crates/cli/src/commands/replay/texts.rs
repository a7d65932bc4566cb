//! Conversations as a model reads them: what is known when each of their requests comes.
//!
//! The requests of a conversation trace carry no text, so the file is read a second time, and its
//! conversations are found by their place: the sessions of the requests, in order, are theirs.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, ensure};
use headstart_core::{Probability, SessionId, TraceRequest};
use headstart_predict::Situation;
use headstart_trace::format::conversation::Conversation;

use headstart_predict::situations::Situations;

/// The conversations of a trace by session.
#[derive(Debug)]
pub(super) struct SessionConversations(HashMap<SessionId, Conversation>);

impl SessionConversations {
    /// Gives each of the sessions its conversation; both are all of the trace.
    pub(super) fn new(
        sessions: &BTreeSet<SessionId>,
        conversations: Vec<Conversation>,
    ) -> Result<Self> {
        ensure!(
            // Sessions and conversations are paired by place, so one missing line would shift all
            // others.
            sessions.len() == conversations.len(),
            "{} sessions were replayed, but the file holds {} conversations; a model needs a file \
             that does not change and has no bad line",
            sessions.len(),
            conversations.len()
        );
        Ok(Self(sessions.iter().copied().zip(conversations).collect()))
    }

    /// Returns the known features at `request`, with the last `num_prompts` prompts. `None` if the
    /// conversation has no such turn.
    pub(super) fn situation(
        &self,
        request: &TraceRequest,
        num_prompts: usize,
    ) -> Option<Situation> {
        let conversation = self.0.get(&request.session?)?;
        let mut situations = Situations::of(conversation, num_prompts);
        // Turns count from one, so this stops before the wanted one.
        for _ in 1..usize::from(request.turn) {
            situations.next_prompt()?;
        }
        situations.next_prompt().filter(|_| request.turn > 0).cloned()
    }

    /// The true probability that the request is followed, where its conversation was generated
    /// and says so.
    pub(super) fn truth(&self, request: &TraceRequest) -> Option<Probability> {
        let conversation = self.0.get(&request.session?)?;
        // Turn 0 means that the trace has no turns.
        let index = usize::from(request.turn).checked_sub(1)?;
        conversation.truth.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_trace::format::conversation;

    fn texts(lines: &str) -> SessionConversations {
        let conversations = conversation::read("t", lines.as_bytes(), None).expect("good");
        // Numbered by line, as a reader does; gaps are lines without a user.
        let sessions = (0..conversations.len() as u64).map(|index| SessionId(3 * index));
        SessionConversations::new(&sessions.collect(), conversations).expect("one each")
    }

    fn request(session: u64, turn: u16) -> TraceRequest {
        TraceRequest { session: Some(SessionId(session)), turn, ..TraceRequest::default() }
    }

    const LONG: &str = concat!(
        r#"{"first_turn": 4, "truth": [0.5, 0.25, 0.125], "turns": ["#,
        r#"{"role": "assistant", "text": "hi"}, {"role": "system", "text": "s"},"#,
        r#"{"role": "user", "text": "one", "at": 1}, {"role": "user", "text": "two", "at": 3},"#,
        r#"{"role": "assistant", "text": "x"}, {"role": "assistant", "text": "yz", "at": 5},"#,
        r#"{"role": "user", "text": "three", "at": 9.5}, {"role": "assistant", "text": "end"}]}"#,
        "\n",
        r#"{"turns": [{"role": "user", "text": "other"}]}"#,
    );

    type Expected<'a> = (&'a [&'a str], &'a [&'a str], u16, Option<u32>, Option<f32>);

    fn check((session, turn, num_prompts): (u64, u16, usize), expected: Option<Expected<'_>>) {
        let got = texts(LONG).situation(&request(session, turn), num_prompts);
        let expected = expected.map(|(prompts, answers, turn, answer_chars, gap_s)| Situation {
            prompts: prompts.iter().map(ToString::to_string).collect(),
            answers: answers.iter().map(ToString::to_string).collect(),
            turn,
            answer_chars,
            gap_s,
        });
        assert_eq!(got, expected);
    }

    #[test]
    fn what_was_said_before_a_prompt_is_known_and_nothing_later() {
        check((0, 1, 9), Some((&["one"], &[], 5, None, None)));
        check((0, 2, 9), Some((&["one", "two"], &[""], 6, None, Some(2.0))));
        let (all, answers): (&[_], &[_]) = (&["one", "two", "three"], &["", "yz"]);
        check((0, 3, 9), Some((all, answers, 7, Some(2), Some(4.5))));
        check((0, 3, 2), Some((&all[1..], &answers[1..], 7, Some(2), Some(4.5))));
        check((0, 3, 1), Some((&all[2..], &[], 7, Some(2), Some(4.5))));
        check((3, 1, 5), Some((&["other"], &[], 1, None, None)));
    }

    #[test]
    fn what_the_file_does_not_hold_has_no_situation() {
        for (session, turn) in [(0, 0), (0, 4), (3, 2), (1, 1)] {
            check((session, turn, 5), None);
        }
        let sessions = BTreeSet::from([SessionId(0)]);
        let error = SessionConversations::new(&sessions, Vec::new()).expect_err("none").to_string();
        assert!(error.contains("1 sessions were replayed, but the file holds 0"), "{error}");
    }

    #[test]
    fn the_truth_is_that_of_the_turn() {
        let texts = texts(LONG);
        let truth = |session, turn| texts.truth(&request(session, turn)).map(Probability::value);
        assert_eq!([truth(0, 1), truth(0, 3)], [Some(0.5), Some(0.125)]);
        assert_eq!([truth(0, 0), truth(0, 4), truth(3, 1)], [None; 3]);
    }
}
