//! The closed loop: many conversations at once, each turn behind the answer before it.
//!
//! ```text
//! history:   U1        → A1'
//!            U1 A1' U2 → A2'      the server's own answers, or the recorded ones
//! ```
//!
//! `active` conversations are under way at any time; when one ends, the next of the file begins.
//! So the load adapts to the server: a faster one gets more requests, and a TTFT holds no
//! backlog of the client's. It does not show what happens when users keep coming regardless.
//!
//! With [`Answers::Generated`] the history is what the server itself wrote, token for token, as
//! in real use. With [`Answers::Recorded`] every strategy sees the same prompts, but the server
//! never computed the answers in them, so it can find less.

use std::time::Instant;

use futures::stream::{self, Stream, StreamExt};
use headstart_trace::format::conversation::{Conversation, Role, Turn};

use crate::observed::{Ending, Observed, TurnSample};
use crate::script::{Exchange, exchanges};
use crate::{ApiClient, ChatReport, ChatRequest, LoadError};

/// Bytes of text per token until the server has counted some: about that of English.
const BYTES_PER_TOKEN: f64 = 4.0;

/// How to play conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatBench {
    /// Conversations under way at once, at least 1.
    pub active: usize,
    /// Longest answer, tokens.
    pub max_tokens: u32,
    /// Whose answers the history keeps.
    pub answers: Answers,
    /// Requests per conversation at most; the rest of it is not played.
    pub max_turns: Option<usize>,
    /// Longest prompt, tokens: a conversation ends, truncated, where its next prompt is expected
    /// to exceed this (by its bytes and the server's count of its last prompt).
    pub max_prompt_tokens: Option<u32>,
}

/// Whose answers the history keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The server's.
    Generated,
    /// The recorded ones, where there are any; the server's are thrown away.
    Recorded,
}

/// How far a run is, told after each request and each conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Conversations given.
    pub conversations: usize,
    /// Of these, ended in whatever way.
    pub ended: usize,
    /// Requests answered.
    pub requests: usize,
    /// Conversations that ended in an error.
    pub failed: usize,
}

/// Plays `conversations` in order and reports what the server made of them.
///
/// # Panics
/// When `bench.active` is 0.
pub async fn run(
    client: &ApiClient,
    conversations: &[Conversation],
    bench: &ChatBench,
    progress: impl Fn(Progress),
) -> ChatReport {
    assert!(
        bench.active > 0,
        "nothing happens without active conversations"
    );
    let start = Instant::now();
    let mut observed = Observed::default();
    // By index: a closure over references would keep this future from being `Send`.
    let mut steps = stream::iter(0..conversations.len())
        .map(|index| play(client, &conversations[index], bench).boxed())
        .flatten_unordered(bench.active);
    while let Some(step) = steps.next().await {
        match step {
            Step::Answered(sample) => observed.samples.push(sample),
            Step::Ended(ending) => observed.endings.push(ending),
        }
        progress(Progress {
            conversations: conversations.len(),
            ended: observed.endings.len(),
            requests: observed.samples.len(),
            failed: observed.failed(),
        });
    }
    observed.wall = start.elapsed();
    ChatReport::of(&observed)
}

/// What one conversation does next.
enum Step {
    Answered(TurnSample),
    Ended(Ending),
}

/// The conversation's requests, one after another, and its ending.
fn play<'a>(
    client: &'a ApiClient,
    conversation: &'a Conversation,
    bench: &'a ChatBench,
) -> impl Stream<Item = Step> + Send + 'a {
    let player = Player {
        client,
        bench,
        id: &conversation.id,
        exchanges: exchanges(conversation).into_iter(),
        history: Vec::new(),
        turn: 0,
        tokens_per_byte: 1.0 / BYTES_PER_TOKEN,
    };
    stream::unfold(Some(player), |player| async move {
        let mut player = player?;
        let step = player.step().await;
        let goes_on = matches!(step, Step::Answered(_));
        Some((step, goes_on.then_some(player)))
    })
}

/// One conversation under way.
struct Player<'a> {
    client: &'a ApiClient,
    bench: &'a ChatBench,
    id: &'a str,
    exchanges: std::vec::IntoIter<Exchange>,
    history: Vec<Turn>,
    turn: usize,
    /// As the server counted the last prompt, its template included.
    tokens_per_byte: f64,
}

impl Player<'_> {
    async fn step(&mut self) -> Step {
        if self.bench.max_turns.is_some_and(|max| self.turn >= max) {
            return Step::Ended(Ending::Completed);
        }
        let Some(exchange) = self.exchanges.next() else {
            return Step::Ended(Ending::Completed);
        };
        self.turn += 1;
        self.history.extend(exchange.added);
        if self.is_too_long() {
            return Step::Ended(Ending::Truncated);
        }
        match self.ask(exchange.recorded).await {
            Ok(sample) => Step::Answered(sample),
            Err(error) if error.is_context_overflow() => Step::Ended(Ending::Truncated),
            Err(error) => Step::Ended(Ending::Failed(format!(
                "conversation {}, turn {}: {error}",
                self.id, self.turn
            ))),
        }
    }

    /// Sends the history and keeps the answer in it.
    async fn ask(&mut self, recorded: Option<String>) -> Result<TurnSample, LoadError> {
        let request = ChatRequest {
            messages: &self.history,
            max_tokens: self.bench.max_tokens,
            cache_salt: None,
        };
        let completion = self.client.chat(&request).await?;
        let sample = TurnSample {
            turn: self.turn,
            prompt_tokens: completion.prompt_tokens,
            cached_tokens: completion.cached_tokens,
            output_tokens: completion.output_tokens,
            ttft: completion.ttft,
            replica: completion.replica,
        };
        self.tokens_per_byte = f64::from(sample.prompt_tokens) / self.history_bytes().max(1) as f64;
        let recorded = recorded.filter(|_| self.bench.answers == Answers::Recorded);
        self.history.push(Turn {
            role: Role::Assistant,
            text: recorded.unwrap_or(completion.text),
        });
        Ok(sample)
    }

    fn is_too_long(&self) -> bool {
        let expected = self.history_bytes() as f64 * self.tokens_per_byte;
        let limit = self.bench.max_prompt_tokens;
        limit.is_some_and(|limit| expected > f64::from(limit))
    }

    fn history_bytes(&self) -> usize {
        self.history.iter().map(|turn| turn.text.len()).sum()
    }
}
