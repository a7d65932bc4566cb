//! Requests of a workload, and their arrival times.
//!
//! A prompt is a row of segments of texts that are never written down: the token at a position is
//! a function of the text and the position. Two prompts that begin with the same segments share a
//! prefix, an answer continues the text that its request names, and nothing is stored of either.

use std::sync::Arc;
use std::time::Duration;

use headstart_core::{Access, SeqId, SessionId, TokenId};

use crate::tokens;

/// First number of the texts of answers without a follow-up, behind those of prompts.
pub(super) const ANSWERS: u64 = 1 << 40;

/// Part of a text: `tokens` tokens, from the position on at which it stands in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Number of the text, below 2⁴⁸.
    pub text: u64,
    /// Tokens.
    pub tokens: u32,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its name, which no other request has: [`Request::name`].
    pub seq: SeqId,
    /// When it is sent, from its rung's start; none for one that follows another.
    pub at: Option<Duration>,
    /// Segments of its prompt.
    pub prompt: Arc<[Segment]>,
    /// Tokens that it is answered with, at least one.
    pub answer_tokens: u32,
    /// Data for the router and the cache policy: type, turn, conversation, end of the answer.
    pub access: Access,
    /// The client's next request, after the answer to this one.
    pub next: Option<FollowUpRequest>,
}

/// A request that waits for the answer to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowUpRequest {
    /// Its position in the rung.
    pub request: u32,
    /// From the end of the answer, or from the failure, until it is sent.
    pub think: Duration,
}

/// Requests under one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Requests per second that were meant.
    pub rate: f64,
    /// For so long, seconds.
    pub seconds: f64,
    /// The requests; those with a time in order of it.
    pub requests: Vec<Request>,
}

/// Rungs, one after the other: each begins when all requests of the one before are answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetWorkload {
    /// The rungs.
    pub rungs: Vec<Rung>,
}

impl Request {
    /// The name of a request whose answer continues `text`, as the `turn`th that does.
    #[must_use]
    pub fn name(text: u64, turn: u16) -> SeqId {
        tokens::sequence(SessionId(text), turn)
    }

    /// Length of the prompt, tokens.
    #[must_use]
    pub fn prompt_tokens(&self) -> usize {
        self.prompt.iter().map(|segment| segment.tokens as usize).sum()
    }
}

/// The tokens of a prompt.
#[must_use]
pub fn tokens_of(prompt: &[Segment]) -> Vec<TokenId> {
    let length = prompt.iter().map(|segment| segment.tokens as usize).sum();
    let mut all = Vec::with_capacity(length);
    for segment in prompt {
        let text = SessionId(segment.text);
        let (from, tokens) = (all.len(), segment.tokens as usize);
        all.extend((from..from + tokens).map(|position| tokens::token(text, position)));
    }
    all
}

impl FleetWorkload {
    /// Asserts that every request is sent: at its time, or after exactly one other.
    ///
    /// # Panics
    /// When one is not.
    pub fn check(&self) {
        for rung in &self.rungs {
            // Each request is sent by its own time, or by the one other that it follows.
            let mut ways: Vec<u32> =
                rung.requests.iter().map(|request| request.at.is_some().into()).collect();
            for next in rung.requests.iter().filter_map(|request| request.next) {
                ways[next.request as usize] += 1;
            }
            assert!(ways.iter().all(|&ways| ways == 1), "each is sent once");
        }
    }

    /// Requests in all rungs.
    #[must_use]
    pub fn num_requests(&self) -> usize {
        self.rungs.iter().map(|rung| rung.requests.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: u64, tokens: u32) -> Segment {
        Segment { text, tokens }
    }

    #[test]
    fn prompts_share_what_they_begin_with() {
        let one = tokens_of(&[segment(1, 10), segment(2, 5)]);
        let other = tokens_of(&[segment(1, 10), segment(3, 5)]);
        assert_eq!((one.len(), &one[..10]), (15, &other[..10]));
        assert!(one[10..].iter().zip(&other[10..]).all(|(a, b)| a != b));
    }

    #[test]
    fn an_answer_continues_its_text() {
        let seq = Request::name(7, 1);
        let mut prompt = tokens_of(&[segment(1, 4), segment(7, 6)]);
        prompt.extend((10..13).map(|position| tokens::of_sequence(seq, position)));
        assert_eq!(prompt, tokens_of(&[segment(1, 4), segment(7, 9)]));
    }
}
