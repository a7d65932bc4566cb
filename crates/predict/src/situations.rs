//! Known features at each user message of a conversation, for training and prediction.
//!
//! ```text
//! recorded   A0  S  U1  U2  A2  A3  U3  A4
//! turn               1   2           3          behind those that the record leaves out
//!
//! at U3      prompts  U1  U2  U3                the last ones, as many as a model reads
//!            answers   –  A3                    one beside each prompt but the current one
//! ```
//!
//! System messages say nothing. Of several answers in a row the last one counts; what stands before
//! the first prompt answers nothing. A gap is from the message before, where both have a time.

use headstart_core::Nanos;
use headstart_trace::format::conversation::{Conversation, Role, Turn};

use crate::{Definition, Situation};

/// Blanks that stand for a withheld prompt at most, which counts as this long then: a few bytes of
/// a file must not become gigabytes.
const WITHHELD_CHARS_MAX: usize = 1 << 14;

/// The latest prompts that a model reads.
pub fn num_prompts(definition: &Definition) -> usize {
    if definition.behaviour {
        // Lengths of all prompts are columns of a row.
        usize::MAX
    } else {
        definition.text.window.saturating_add(1)
    }
}

/// Returns the known features at each request, where the user waits for an answer. Consecutive user
/// messages are separate turns, but only the last of them is a request.
pub fn of_requests(conversation: &Conversation, num_prompts: usize) -> Vec<Situation> {
    let mut known = Situations::of(conversation, num_prompts);
    let mut requests = Vec::new();
    while known.next_prompt().is_some() {
        if known.is_request() {
            requests.push(known.situation.clone());
        }
    }
    requests
}

/// Goes through a conversation, from user message to user message.
pub struct Situations<'a> {
    turns: std::slice::Iter<'a, Turn>,
    num_prompts: usize,
    situation: Situation,
    /// User messages so far, also those before the record.
    count: u32,
    /// When the message before was sent.
    last_at: Option<Nanos>,
}

impl<'a> Situations<'a> {
    /// Starts before the first message. Keeps the last `num_prompts` prompts, at least one.
    pub fn of(conversation: &'a Conversation, num_prompts: usize) -> Self {
        Self {
            turns: conversation.turns.iter(),
            num_prompts: num_prompts.max(1),
            situation: Situation::default(),
            count: conversation.first_turn.unwrap_or(0),
            last_at: None,
        }
    }

    /// Returns the known features at the next user message; `None` after the last. Copies only the
    /// messages since the previous one.
    pub fn next_prompt(&mut self) -> Option<&Situation> {
        self.situation.answer_chars = None;
        while let Some(turn) = self.turns.next() {
            match turn.role {
                Role::System | Role::Tool => continue,
                Role::Assistant => self.answered(turn),
                Role::User => self.asked(turn),
            }
            self.last_at = turn.at;
            if turn.role == Role::User {
                return Some(&self.situation);
            }
        }
        None
    }

    fn asked(&mut self, turn: &Turn) {
        self.count = self.count.saturating_add(1);
        let known = &mut self.situation;
        known.turn = u16::try_from(self.count).unwrap_or(u16::MAX);
        let times = turn.at.zip(self.last_at);
        known.gap_s = times.map(|(at, before)| at.since(before).as_secs_f32());
        // Where no answer stood behind the prompt before, an empty one does now.
        known.answers.resize(known.prompts.len(), String::new());
        known.prompts.push(match turn.withheld_chars {
            None => turn.text.clone(),
            Some(chars) => " ".repeat((chars as usize).min(WITHHELD_CHARS_MAX)),
        });
        let unread = known.prompts.len().saturating_sub(self.num_prompts);
        known.prompts.drain(..unread);
        known.answers.drain(..unread);
    }

    fn answered(&mut self, turn: &Turn) {
        let known = &mut self.situation;
        if let Some(behind) = known.prompts.len().checked_sub(1) {
            known.answer_chars = Some(turn.chars());
            known.answers.truncate(behind);
            known.answers.push(turn.text.clone());
        }
    }

    /// Whether nothing more is said before the answer.
    fn is_request(&self) -> bool {
        let mut coming = self.turns.as_slice().iter().map(|turn| turn.role);
        coming.find(|&role| role != Role::System) != Some(Role::User)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headstart_core::Rng;

    use super::*;

    /// Up to twelve messages of any role, with and without times, texts and turns before.
    fn random(rng: &mut Rng) -> Conversation {
        let mut one_of = |count: usize| rng.below(count);
        let turns = (0..one_of(13)).map(|number| {
            let role =
                [Role::System, Role::User, Role::User, Role::Assistant, Role::Assistant][one_of(5)];
            let is_withheld = one_of(5) == 0;
            Turn {
                role,
                text: if is_withheld { String::new() } else { format!("é{number}") },
                withheld_chars: is_withheld.then(|| one_of(9) as u32),
                at: (one_of(4) > 0).then(|| Nanos(1_500_000_000 * (number + one_of(2)) as u64)),
            }
        });
        Conversation {
            turns: turns.collect(),
            first_turn: [Some(0), Some(3), Some(u32::MAX), None][one_of(4)],
            ..Conversation::default()
        }
    }

    /// Computes the known features at the user message at `end` from scratch.
    fn reference(conversation: &Conversation, end: usize, num_prompts: usize) -> Situation {
        let heard = |at: &usize| conversation.turns[*at].role != Role::System;
        let before: Vec<usize> = (0..end).filter(heard).collect();
        let user = |at: &usize| conversation.turns[*at].role == Role::User;
        let users: Vec<usize> = before.iter().copied().filter(user).chain([end]).collect();
        let read = &users[users.len().saturating_sub(num_prompts)..];
        let answer = |from: usize, to: usize| {
            let mut between = conversation.turns[from..to].iter().rev();
            between.find(|turn| turn.role == Role::Assistant)
        };
        let told = |&at: &usize| {
            let turn = &conversation.turns[at];
            let blanks = |chars| " ".repeat(chars as usize);
            turn.withheld_chars.map_or_else(|| turn.text.clone(), blanks)
        };
        let text = |pair: &[usize]| answer(pair[0], pair[1]).map(|turn| turn.text.clone());
        let previous = users.iter().rev().nth(1);
        let at = |index: usize| conversation.turns[index].at;
        let number = users.len() + conversation.first_turn.unwrap_or(0) as usize;
        Situation {
            prompts: read.iter().map(told).collect(),
            answers: read.windows(2).map(|pair| text(pair).unwrap_or_default()).collect(),
            turn: number.min(usize::from(u16::MAX)) as u16,
            answer_chars: previous.and_then(|&from| answer(from, end)).map(Turn::chars),
            gap_s: before.last().and_then(|&last| {
                let nanos = at(end)?.0.saturating_sub(at(last)?.0);
                Some(Duration::from_nanos(nanos).as_secs_f32())
            }),
        }
    }

    #[test]
    fn the_running_situation_is_that_looked_up_anew_at_every_user_message() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let conversation = random(&mut rng);
            let num_prompts = [1, 2, 3, usize::MAX][rng.below(4)];
            let mut known = Situations::of(&conversation, num_prompts);
            for (end, turn) in conversation.turns.iter().enumerate() {
                if turn.role == Role::User {
                    let expected = reference(&conversation, end, num_prompts);
                    assert_eq!(
                        known.next_prompt(),
                        Some(&expected),
                        "seed {seed}: {conversation:?}"
                    );
                }
            }
            assert_eq!(known.next_prompt(), None, "seed {seed}: {conversation:?}");
        }
    }

    #[test]
    fn a_withheld_prompt_has_a_limit() {
        let mut turn = Turn::new(Role::User, String::new());
        turn.withheld_chars = Some(u32::MAX);
        let conversation = Conversation { turns: vec![turn], ..Conversation::default() };
        let known = of_requests(&conversation, 9);
        assert_eq!(known[0].prompts[0].len(), WITHHELD_CHARS_MAX);
    }
}
