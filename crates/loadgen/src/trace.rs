//! A trace, request by request, against a live server.
//!
//! ```text
//! sequential   r0 ──► answer, r1 ──► answer, r2 …            file order, nothing overlaps
//! open         r0 at 0 s, r1 at 1.5 s, r2 at 1.6 s …         whether or not r0 is answered
//! sessions     the same, but r2 waits for r0's answer        if both are of one session
//! ```
//!
//! One at a time, a server's cache sees what a replay sees, so the hits can be compared request
//! by request; times then show an idle server. In open mode arrivals stand for users who come
//! regardless, so queues build up as they would; hits depend on what overlaps. The concurrency
//! limit is for the client's sake: a request that it holds back counts as late, and where many
//! are, the load was not the trace's. In sessions mode an agent waits for an answer before it
//! sends the next request, as agents do; what waits for the session is not late.
//!
//! Prompts are token ids and answers have a forced length (see
//! [`headstart_trace::materialize`]). They come from an iterator that is asked for the next one
//! when it can be sent, so a run holds as many as are under way, and some bytes per answer.

mod report;
mod session_order;

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::stream::{self, Stream, StreamExt};
use headstart_trace::materialize::TokenPrompt;

pub use report::TraceReport;

use crate::{ApiClient, LoadgenError};
use session_order::SessionOrder;

/// Slowest that a trace may be played, in recorded seconds per second: any slower and the longest
/// trace would outlast the clock.
pub const SPEED_MIN: f64 = 1e-3;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each when the one before it is answered.
    Sequential,
    /// Each at its arrival.
    Open {
        /// Replay speed as a multiple of the recorded one, at least [`SPEED_MIN`].
        speed: f64,
        /// Most requests under way, at least 1; more wait.
        concurrency: usize,
    },
    /// Each at its arrival, or when its session's request before it is answered, if that is later.
    Sessions {
        /// As in open mode.
        speed: f64,
        /// As in open mode; requests that wait for their session count.
        concurrency: usize,
    },
}

impl Pace {
    /// Replay speed, where arrivals matter.
    fn speed(self) -> Option<f64> {
        match self {
            Self::Sequential => None,
            Self::Open { speed, .. } | Self::Sessions { speed, .. } => Some(speed),
        }
    }

    fn concurrency(self) -> usize {
        match self {
            Self::Sequential => 1,
            Self::Open { concurrency, .. } | Self::Sessions { concurrency, .. } => concurrency,
        }
    }
}

/// One answered request.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSample {
    /// [`TokenPrompt::number`].
    pub number: u64,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Of these, found in a cache.
    pub cached_tokens: u32,
    /// Answer length, tokens.
    pub output_tokens: u32,
    /// Time to first token.
    pub ttft: Duration,
    /// Time to last token.
    pub e2e: Duration,
    /// Sent so long after it was due.
    pub late: Duration,
    /// Replica that answered, if the server names replicas.
    pub replica: Option<String>,
}

/// Everything that one run saw.
#[derive(Debug, Default)]
pub struct TraceObserved {
    /// Answered requests, in order of their answers.
    pub samples: Vec<TraceSample>,
    /// The others, by number, in the order in which they failed.
    pub failures: Vec<(u64, LoadgenError)>,
    /// From the first request to the last answer.
    pub wall: Duration,
}

/// Sends `prompts` in order; calls `progress` after each request with the number ended so far.
///
/// # Errors
/// The first error of `prompts`, at once: what is under way is given up. A failed request is not an
/// error; it is recorded among the failures.
///
/// # Panics
/// When `pace` has no concurrency, or a speed below [`SPEED_MIN`].
pub async fn run<E>(
    client: &ApiClient,
    prompts: impl Iterator<Item = Result<TokenPrompt, E>>,
    pace: Pace,
    progress: impl Fn(usize),
) -> Result<TraceObserved, E> {
    // A NaN fails this comparison as well.
    assert!(pace.speed().is_none_or(|speed| speed >= SPEED_MIN), "time passes");
    let concurrency = pace.concurrency();
    assert!(concurrency > 0, "nothing happens without requests");
    let start = Instant::now();
    let mut order = matches!(pace, Pace::Sessions { .. }).then(SessionOrder::default);
    let answers = scheduled(prompts, start, pace)
        .map(|ready| {
            // Requests come in file order, so that one waits only for those in front of it.
            let session = ready.as_ref().ok().and_then(|(_, prompt)| prompt.session);
            let turn = order.as_mut().zip(session).map(|(order, session)| order.turn(session));
            async move {
                // A fault of the trace ends the run; a failed request is only recorded.
                let (due, prompt) = ready?;
                // Waiting for room counts as late, waiting for the session does not.
                let late = due.map_or(Duration::ZERO, |due: Instant| due.elapsed());
                let _turn = match turn {
                    Some(turn) => Some(turn.taken().await),
                    None => None,
                };
                Ok((prompt.number, send(client, &prompt, late).await))
            }
        })
        .buffer_unordered(concurrency);
    let mut answers = pin!(answers);
    let mut observed = TraceObserved::default();
    while let Some(answer) = answers.next().await {
        match answer? {
            (_, Ok(sample)) => observed.samples.push(sample),
            (number, Err(error)) => observed.failures.push((number, error)),
        }
        progress(observed.samples.len() + observed.failures.len());
    }
    observed.wall = start.elapsed();
    Ok(observed)
}

async fn send(
    client: &ApiClient,
    prompt: &TokenPrompt,
    late: Duration,
) -> Result<TraceSample, LoadgenError> {
    let completion = client.complete(prompt).await?;
    Ok(TraceSample {
        number: prompt.number,
        prompt_tokens: completion.prompt_tokens,
        cached_tokens: completion.cached_tokens,
        output_tokens: completion.output_tokens,
        ttft: completion.ttft,
        e2e: completion.e2e,
        late,
        replica: completion.replica,
    })
}

/// The prompts, each when it is due at `pace` from `start`, with that time; `None` stands for "as
/// soon as it can be". The first one's arrival is the start.
fn scheduled<E>(
    prompts: impl Iterator<Item = Result<TokenPrompt, E>>,
    start: Instant,
    pace: Pace,
) -> impl Stream<Item = Result<(Option<Instant>, TokenPrompt), E>> {
    let mut first = None;
    let timed = prompts.map(move |prompt| {
        let prompt = prompt?;
        let first = *first.get_or_insert(prompt.arrival);
        let due = |speed| start + prompt.arrival.since(first).div_f64(speed);
        Ok((pace.speed().map(due), prompt))
    });
    // `then` holds one prompt while it sleeps; the later ones are not drawn from the iterator yet.
    stream::iter(timed).then(|timed| async move {
        if let Ok((Some(due), _)) = timed {
            tokio::time::sleep_until(due.into()).await;
        }
        timed
    })
}
