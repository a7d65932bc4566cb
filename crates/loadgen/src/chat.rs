//! The closed loop: many conversations at once, each turn behind the answer before it.
//!
//! ```text
//! history:   U1        → A1'
//!            U1 A1' U2 → A2'      the server's own answers, or the recorded ones
//! ```
//!
//! With [`Starts::Chained`], `active` conversations are under way at any time; when one ends, the
//! next of the file begins. So the load adapts to the server: a faster one gets more requests, and
//! a TTFT holds no backlog of the client's. It does not show what happens when users keep coming
//! regardless. With [`Starts::Spaced`] the beginnings are fixed beforehand by the users' think
//! times, so that two servers meet the same ones at the same times; only what follows an answer
//! still waits for it. A user thinks from the last event of an answer on.
//!
//! With [`Answers::Generated`] the history is what the server itself wrote, token for token, as
//! in real use. With [`Answers::Recorded`] every strategy sees the same prompts, but the server
//! never computed the answers in them, so it can find less.

use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use headstart_trace::format::conversation::{Conversation, Role, Turn};
use tokio::time::{Instant, sleep_until};

use crate::observed::{ChatObservations, Ending, TurnSample};
use crate::script::{Exchange, exchanges};
use crate::think::spaced_starts;
use crate::{ApiClient, ChatApiRequest, LoadgenError, Think};

/// Bytes of text per token until the server has counted some: about that of English.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Longest time until all slots of spaced starts are open, seconds: an hour, for think times
/// whose mean is a few draws' doing.
const RAMP_MAX_S: f64 = 3_600.0;

/// Options of a run of conversations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChatBench {
    /// Conversations under way at once, at least 1; with spaced starts as if answers took no time.
    pub active: usize,
    /// When conversations begin.
    pub starts: Starts,
    /// Think times of the users.
    pub think: Think,
    /// Fixes the think times.
    pub seed: u64,
    /// Time after which no request is sent any more; those under way are still answered.
    pub duration: Option<Duration>,
    /// Longest answer, tokens.
    pub max_tokens: u32,
    /// Source of the answers in the history.
    pub answers: Answers,
    /// Requests per conversation at most; the rest of it is not played.
    pub max_turns: Option<usize>,
    /// Longest prompt, tokens: a conversation ends, truncated, where its next prompt is expected
    /// to exceed this (by its bytes and the server's count of its last prompt).
    pub max_prompt_tokens: Option<u32>,
}

/// When conversations begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Starts {
    /// Each when one before it ends.
    #[default]
    Chained,
    /// At times that a pre-run with immediate answers gives, see [`spaced_starts`].
    Spaced,
}

/// Source of the answers in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The server's.
    Generated,
    /// The recorded ones, where there are any; the server's are thrown away.
    Recorded,
}

/// Progress of a run, reported after each request and each conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatProgress {
    /// Conversations given.
    pub conversations: usize,
    /// Of these, ended in whatever way.
    pub ended: usize,
    /// Requests answered.
    pub requests: usize,
    /// Conversations that ended in an error.
    pub failed: usize,
}

/// Plays `conversations` in order and returns what the server made of them.
///
/// # Panics
/// When `bench.active` is 0.
pub async fn run(
    client: &ApiClient,
    conversations: &[Conversation],
    bench: &ChatBench,
    progress: impl Fn(ChatProgress),
) -> ChatObservations {
    assert!(bench.active > 0, "nothing happens without active conversations");
    let (starts, at_once) = match bench.starts {
        // The slots bound the load, and the start times are all zero: a free slot sends at once.
        Starts::Chained => (vec![Duration::ZERO; conversations.len()], bench.active),
        // The start times bound the load; a limit here would delay starts if answers are slow.
        Starts::Spaced => (planned_starts(conversations, bench), conversations.len()),
    };
    let begin = Instant::now();
    let run = ChatRunContext { client, bench, begin };
    let mut observed = ChatObservations::default();
    // By index: a closure over references would keep this future from being `Send`.
    let mut steps = stream::iter(0..conversations.len())
        .map(|index| play(run, &conversations[index], index, starts[index]).boxed())
        .flatten_unordered(at_once.max(1));
    while let Some(step) = steps.next().await {
        match step {
            ConversationStep::Answered(sample) => observed.samples.push(sample),
            ConversationStep::Ended(ending) => observed.endings.push(ending),
        }
        progress(ChatProgress {
            conversations: conversations.len(),
            ended: observed.endings.len(),
            requests: observed.samples.len(),
            failed: observed.failed(),
        });
    }
    observed.wall = begin.elapsed();
    observed
}

/// When each conversation begins if starts are spaced. Slots open within a mean think time.
fn planned_starts(conversations: &[Conversation], bench: &ChatBench) -> Vec<Duration> {
    let think = |number, turn| bench.think.draw(bench.seed, number, turn);
    let span = |(number, conversation)| {
        // As many turns as `play` will send: those beyond the limit take no time in the slot.
        let turns = exchanges(conversation).len();
        let turns = bench.max_turns.map_or(turns, |max| max.min(turns));
        // From 2, because no think time comes before the first request.
        (2..=turns).map(|turn| think(number, turn)).sum()
    };
    let spans: Vec<Duration> = conversations.iter().enumerate().map(span).collect();
    // A log-normal's mean can exceed all that a `Duration` holds; the limit also prevents that
    // panic.
    let ramp = Duration::from_secs_f64(bench.think.mean_s().min(RAMP_MAX_S));
    spaced_starts(&spans, bench.active, ramp)
}

/// The next step of one conversation.
enum ConversationStep {
    Answered(TurnSample),
    Ended(Ending),
}

/// Context common to all conversations of a run.
#[derive(Clone, Copy)]
struct ChatRunContext<'a> {
    client: &'a ApiClient,
    bench: &'a ChatBench,
    begin: Instant,
}

/// The conversation's requests, one after another, and its ending.
fn play<'a>(
    run: ChatRunContext<'a>,
    conversation: &'a Conversation,
    number: usize,
    start: Duration,
) -> impl Stream<Item = ConversationStep> + Send + 'a {
    let player = Player {
        run,
        number,
        id: &conversation.id,
        exchanges: exchanges(conversation).into_iter(),
        history: Vec::new(),
        turn: 0,
        answered: run.begin + start,
        tokens_per_byte: 1.0 / BYTES_PER_TOKEN,
    };
    stream::unfold(Some(player), |player| async move {
        let mut player = player?;
        let step = player.step().await;
        // Any ending drops the player, so no request follows a failed one.
        let goes_on = matches!(step, ConversationStep::Answered(_));
        Some((step, goes_on.then_some(player)))
    })
}

/// One conversation under way.
struct Player<'a> {
    run: ChatRunContext<'a>,
    number: usize,
    id: &'a str,
    exchanges: std::vec::IntoIter<Exchange>,
    history: Vec<Turn>,
    turn: usize,
    /// When the last answer ended; before the first request, when the conversation begins.
    answered: Instant,
    /// As the server counted the last prompt, its template included.
    tokens_per_byte: f64,
}

impl Player<'_> {
    async fn step(&mut self) -> ConversationStep {
        let bench = self.run.bench;
        // Before the length check: a conversation that reaches both limits counts as completed.
        if bench.max_turns.is_some_and(|max| self.turn >= max) {
            return ConversationStep::Ended(Ending::Completed);
        }
        let Some(exchange) = self.exchanges.next() else {
            return ConversationStep::Ended(Ending::Completed);
        };
        self.turn += 1;
        self.history.extend(exchange.added);
        // Before the think time: a conversation that cannot continue ends without a wait.
        if self.is_too_long() {
            return ConversationStep::Ended(Ending::Truncated);
        }
        let think = bench.think.draw(bench.seed, self.number, self.turn);
        let due = self.answered + think;
        let end = bench.duration.map(|duration| self.run.begin + duration);
        // An answer may come so late that `due` lies in the past; the request would go out now.
        if end.is_some_and(|end| due.max(Instant::now()) > end) {
            return ConversationStep::Ended(Ending::Unfinished);
        }
        sleep_until(due).await;
        match self.ask(exchange.recorded, think).await {
            Ok(sample) => ConversationStep::Answered(sample),
            // The estimate may be too low. The server's refusal then ends the conversation in the
            // same way.
            Err(error) if error.is_context_overflow() => ConversationStep::Ended(Ending::Truncated),
            Err(error) => ConversationStep::Ended(Ending::Failed(format!(
                "conversation {}, turn {}: {error}",
                self.id, self.turn
            ))),
        }
    }

    /// Sends the history and keeps the answer in it.
    async fn ask(
        &mut self,
        recorded: Option<String>,
        think: Duration,
    ) -> Result<TurnSample, LoadgenError> {
        let request = ChatApiRequest {
            messages: &self.history,
            max_tokens: self.run.bench.max_tokens,
            cache_salt: None,
        };
        // Read here and not taken from `due`, because a timer may fire late.
        let sent = self.run.begin.elapsed();
        let completion = self.run.client.chat(&request).await?;
        // The call returns at the end of the body, which some servers keep open, and users think
        // from the last event on.
        self.answered = Instant::from_std(completion.ended);
        let sample = TurnSample {
            conversation: self.number,
            turn: self.turn,
            think,
            sent,
            prompt_tokens: completion.prompt_tokens,
            cached_tokens: completion.cached_tokens,
            output_tokens: completion.output_tokens,
            ttft: completion.ttft,
            e2e: completion.e2e,
            replica: completion.replica,
        };
        // Before the answer joins the history: the server counted the prompt without it.
        self.tokens_per_byte = f64::from(sample.prompt_tokens) / self.history_bytes().max(1) as f64;
        let recorded = recorded.filter(|_| self.run.bench.answers == Answers::Recorded);
        // A recording may end with a user turn; the server's answer then takes the place.
        let text = recorded.unwrap_or(completion.text);
        self.history.push(Turn::new(Role::Assistant, text));
        Ok(sample)
    }

    fn is_too_long(&self) -> bool {
        let expected = self.history_bytes() as f64 * self.tokens_per_byte;
        let limit = self.run.bench.max_prompt_tokens;
        limit.is_some_and(|limit| expected > f64::from(limit))
    }

    fn history_bytes(&self) -> usize {
        self.history.iter().map(|turn| turn.text.len()).sum()
    }
}
