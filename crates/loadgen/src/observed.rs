//! Observations of one run of conversations, before they become figures.

use std::time::Duration;

/// One answered request.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnSample {
    /// The conversation's number among those given, from 0.
    pub conversation: usize,
    /// Number of the request in its conversation, from 1.
    pub turn: usize,
    /// Think time of the user before it.
    pub think: Duration,
    /// When it was sent, from the start of the run.
    pub sent: Duration,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Of these, found in a cache.
    pub cached_tokens: u32,
    /// Answer length, tokens.
    pub output_tokens: u32,
    /// Time to first token.
    pub ttft: Duration,
    /// Time to the last event.
    pub e2e: Duration,
    /// Replica that answered, if the server names replicas.
    pub replica: Option<String>,
}

/// The way in which a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As recorded, or after the turns asked for.
    Completed,
    /// Its next prompt would have been too long.
    Truncated,
    /// Its next request would have been sent after the run's time.
    Unfinished,
    /// A request failed; which one and why.
    Failed(String),
}

/// Everything that one run saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatObservations {
    /// Answered requests, in order of their answers.
    pub samples: Vec<TurnSample>,
    /// One per conversation.
    pub endings: Vec<Ending>,
    /// From the first request to the last answer.
    pub wall: Duration,
}

impl ChatObservations {
    /// Conversations that ended in an error.
    #[must_use]
    pub fn failed(&self) -> usize {
        let endings = self.endings.iter();
        endings.filter(|e| matches!(e, Ending::Failed(_))).count()
    }
}
