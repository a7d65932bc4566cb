//! Placing a request on an upstream engine.
//!
//! Until the first bytes of an answer are there, nothing was given to the client, so that the
//! request can be given to another engine. That ends the wait for the first one:
//!
//! | outcome | the request | the engine |
//! |---|---|---|
//! | no connection | goes elsewhere | counts as dead, at once |
//! | closed before an answer | goes there once more, then elsewhere | its health will tell |
//! | broken off, 502, 503, too large | goes elsewhere | its health will tell |
//! | 429 | goes elsewhere | is full |
//! | its health says it is dead | goes elsewhere | is dead |
//! | no first bytes within the limit | has had its time: 504 | its health will tell |
//!
//! A request goes elsewhere once where it is refused and up to four times where engines end with
//! it; its limit counts from its first place. Where the last engine refused it in words, the client
//! gets these, with the engine's headers.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use headstart_core::block::Namespace;
use headstart_core::{ReplicaId, TokenId};
use headstart_router::{Health, RouteRequest};
use http::{HeaderMap, StatusCode, response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout, timeout_at};

use super::{DEATHS, HttpGateway, REFUSALS, Reservation};
use crate::openai::ApiError;
use crate::spans::{Mark, RequestTimeline};
use crate::upstream::{Outgoing, Upstream, UpstreamError, of_same_engine, root_cause};

/// Largest answer that is not a stream: a context of tokens with room to spare.
const WHOLE_BYTES: usize = 64 << 20;

/// Longest refusal that is passed on, bytes.
const WORDS_BYTES: usize = 64 << 10;

/// Longest wait for the words of a refusal: another engine may answer meanwhile.
const WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// An upstream's answer whose first bytes have arrived.
pub struct ProxyAnswer {
    /// Its place; hold it while the answer runs.
    pub reservation: Reservation,
    /// Status and headers.
    pub head: response::Parts,
    /// The first bytes; empty when the body is.
    pub first: Bytes,
    /// The rest. Dropping it cancels the request.
    pub rest: Incoming,
}

impl ProxyAnswer {
    fn new(reservation: Reservation, start: AnswerStart) -> Self {
        let (head, first, rest) = start;
        Self { reservation, head, first, rest }
    }
}

/// A request to pass on.
pub struct Passing<'a> {
    /// The request as sent to the engine.
    pub request: Outgoing<'a>,
    /// The model asked for, where the request names one: only its upstreams take the request.
    pub model: Option<&'a str>,
    /// The replica that holds what the request refers to, where there is one.
    pub pinned: Option<ReplicaId>,
    /// Inputs of the routing decision, without the adapter: that follows from the model.
    pub route: RouteRequest<'a>,
    /// When what happened to it.
    pub timeline: &'a RequestTimeline,
}

impl HttpGateway {
    /// Passes a request on, up to the first bytes of the answer's body.
    ///
    /// # Errors
    /// When no upstream serves the model, or none answers.
    pub async fn pass_on(self: &Arc<Self>, request: &Passing<'_>) -> Result<ProxyAnswer, ApiError> {
        let upstreams = self.fleet.upstreams();
        let mut tries =
            Tries { excluded: self.lacking(upstreams, request.model).await?, ..Tries::default() };
        let is_adapter = |model: &&str| upstreams.iter().any(|upstream| upstream.is_adapter(model));
        // What is refused is held nowhere: it is passed on for the engine to say so, by its load.
        let fits = |tokens: &&[TokenId]| {
            let model = request.model;
            model.is_none_or(|model| !is_hopeless(upstreams, model, tokens))
        };
        // Only an adapter changes keys and values. A base model has one cache under all its
        // served names.
        let adapter = request.model.filter(is_adapter);
        let route = RouteRequest {
            tokens: request.route.tokens.filter(fits),
            namespace: Namespace { adapter, ..request.route.namespace },
            ..request.route
        };
        // One deadline for all attempts: a client waits once, however often its request moves.
        let deadline = Instant::now() + self.limits.first_token_timeout;
        while !tries.are_over() {
            let pinned = self.pinned(request, &tries);
            let placed = match pinned {
                Some(pinned) => self.place(route, &all_but(upstreams, pinned)),
                None => self.place(route, &tries.excluded),
            };
            let (decision, reservation) = match placed {
                Ok(placed) => placed,
                // The last refusal or error says more than that no engine is left.
                Err(none) => return tries.outcome(none),
            };
            request.timeline.mark(Mark::Routed);
            if tries.last.is_some() {
                self.note_retry(decision.replica);
            }
            let upstream = &upstreams[decision.replica.0 as usize];
            let begun = tokio::select! {
                // The answer is polled first: one that arrives together with the news of a death
                // still counts.
                biased;
                begun = self.begin(upstream, request, deadline) => begun,
                () = upstream.died() => Err(StartFailure::died(upstream)),
            };
            let failure = match begun {
                Ok(begun) => {
                    // An error has no first token; it must not count as a time to the first token.
                    if begun.0.status.is_success() {
                        request.timeline.mark(Mark::FirstToken);
                        reservation.first_token();
                    }
                    return Ok(ProxyAnswer::new(reservation, begun));
                }
                Err(failure) => failure,
            };
            tracing::debug!(
                replica = %decision.replica,
                upstream = upstream.base(),
                reason = failure.error.message,
                "no answer"
            );
            let is_final = failure.is_final(pinned);
            let begun = self.note_failure(&mut tries, failure, upstreams, decision.replica);
            tries.refusal = begun.map(|begun| (reservation, begun));
            if is_final {
                break;
            }
        }
        tries.outcome(ApiError::replica_gone("no engine answered; send the request again later"))
    }

    /// Returns the pinned replica, while it is up and has not failed the request.
    fn pinned(&self, request: &Passing<'_>, tries: &Tries) -> Option<ReplicaId> {
        let pinned = request.pinned?;
        let is_left = !tries.excluded.contains(&pinned) && !self.is_down(pinned);
        is_left.then_some(pinned)
    }

    /// Applies a failure on `replica` to the request and to the replica's health. Returns the
    /// engine's own answer, if it refused with one.
    fn note_failure(
        &self,
        tries: &mut Tries,
        failure: StartFailure,
        upstreams: &[Upstream],
        replica: ReplicaId,
    ) -> Option<Box<AnswerStart>> {
        let same = of_same_engine(upstreams, replica);
        match failure.what {
            FailureKind::OutOfTime => {}
            // A refusal is about this request at this moment, so the engine's health does not
            // change.
            FailureKind::Refused => {
                tries.refusals += 1;
                tries.excluded.push(replica);
            }
            FailureKind::ClosedEarly if !tries.closed.contains(&replica) => {
                tries.deaths += 1;
                // An engine that closes connections may be dying: its watcher checks now instead of
                // at the next interval.
                upstreams[replica.0 as usize].look_again();
                tries.closed.push(replica);
            }
            FailureKind::ClosedEarly | FailureKind::BrokenOff => {
                tries.deaths += 1;
                upstreams[replica.0 as usize].look_again();
                tries.excluded.push(replica);
            }
            FailureKind::Unreachable => {
                // A connection is made to the engine, so that a failure concerns all its
                // data-parallel ranks.
                for rank in same {
                    self.set_health(rank, Health::Down);
                    tries.excluded.push(rank);
                }
            }
            FailureKind::Died => {
                // Its watcher has set its health already: that is what woke this request.
                tries.deaths += 1;
                tries.excluded.extend(same);
            }
        }
        tries.last = Some(failure.error);
        failure.answer
    }

    /// The answer up to its first bytes.
    async fn begin(
        &self,
        upstream: &Upstream,
        request: &Passing<'_>,
        deadline: Instant,
    ) -> Result<AnswerStart, StartFailure> {
        let limit = self.limits.first_token_timeout;
        // Time that earlier attempts used is gone; nothing is left after the deadline, and the
        // request times out at once.
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = upstream.forward(&request.request, left).await;
        let answer = answer.map_err(|error| StartFailure::of(upstream, &error, limit))?;
        let (head, mut rest) = answer.into_parts();
        match head.status {
            // The engine, or a proxy in front of it, did not serve the request; another engine may.
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
                let what = format!("answered {}", head.status);
                let refused = StartFailure::refused(upstream, &what);
                return Err(refused.in_words(head, rest).await);
            }
            StatusCode::TOO_MANY_REQUESTS => {
                return Err(StartFailure::full().in_words(head, rest).await);
            }
            _ => {}
        }
        let is_stream = is_event_stream(&head.headers);
        let mut first = BytesMut::new();
        // A stream begins with its first frame; anything else is taken whole, so that a broken
        // one can still be asked of another replica.
        while first.is_empty() || !is_stream {
            // The deadline is for the first bytes. Later ones only have to keep coming: a long
            // answer may take longer than any limit for its start.
            let until = if first.is_empty() {
                deadline
            } else {
                Instant::now() + self.limits.silence_timeout
            };
            match timeout_at(until, rest.frame()).await {
                Err(_) if first.is_empty() => return Err(StartFailure::late(upstream, limit)),
                Err(_) => return Err(StartFailure::silent(upstream, self.limits.silence_timeout)),
                Ok(Some(Err(error))) => {
                    return Err(StartFailure::broken_off(upstream, &root_cause(&error)));
                }
                Ok(Some(Ok(frame))) => {
                    // Trailers carry no data and do not count as first bytes.
                    if let Ok(data) = frame.into_data() {
                        first.extend_from_slice(&data);
                    }
                }
                Ok(None) => break,
            }
            // Memory is bounded even if the engine never ends its answer.
            if first.len() > WHOLE_BYTES {
                return Err(StartFailure::refused(upstream, "sent too large an answer"));
            }
        }
        Ok((head, first.freeze(), rest))
    }
}

/// A short body, whole; `None` where it is empty, long, late or broken.
async fn words(rest: &mut Incoming) -> Option<Bytes> {
    let mut text = BytesMut::new();
    let read = async {
        while let Some(frame) = rest.frame().await {
            if let Ok(data) = frame.ok()?.into_data() {
                text.extend_from_slice(&data);
            }
            // A body that is cut off would be broken JSON to the client, so that a long one is
            // dropped whole.
            if text.len() > WORDS_BYTES {
                return None;
            }
        }
        Some(())
    };
    timeout(WORDS_TIMEOUT, read).await.ok()??;
    (!text.is_empty()).then(|| text.freeze())
}

/// Failed attempts of a request so far.
#[derive(Default)]
struct Tries {
    /// Whom it is not to meet again.
    excluded: Vec<ReplicaId>,
    /// Replicas that closed a connection before their answer began. An engine may close an idle
    /// connection at the moment of its reuse, so the request may go there once more.
    closed: Vec<ReplicaId>,
    refusals: usize,
    deaths: usize,
    /// Why it was not answered, if it was tried.
    last: Option<ApiError>,
    /// The last engine's own words, if it refused in words, and the request's place there.
    refusal: Option<(Reservation, Box<AnswerStart>)>,
}

impl Tries {
    fn are_over(&self) -> bool {
        // Connections that could not be made do not count: each of them excludes its engine, so
        // that the loop ends when no engine is left.
        self.refusals >= REFUSALS || self.deaths >= DEATHS
    }

    /// Returns the engine's refusal or the last error; `untried` if no engine was asked.
    fn outcome(self, untried: ApiError) -> Result<ProxyAnswer, ApiError> {
        let Some((reservation, begun)) = self.refusal else {
            return Err(self.last.unwrap_or(untried));
        };
        Ok(ProxyAnswer::new(reservation, *begun))
    }
}

/// An answer's head, its first bytes, and the rest.
type AnswerStart = (response::Parts, Bytes, Incoming);

/// Whether a body is server-sent events.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Why an upstream's answer did not begin.
struct StartFailure {
    what: FailureKind,
    error: ApiError,
    /// A refusal in words.
    answer: Option<Box<AnswerStart>>,
}

/// Kind of failure, which decides its consequences.
enum FailureKind {
    /// No connection could be made: the engine counts as dead.
    Unreachable,
    /// The engine was found dead meanwhile.
    Died,
    /// It is alive, but did not do it.
    Refused,
    /// The connection ended before the answer began.
    ClosedEarly,
    /// The connection ended within the answer. The engine may have ended as well.
    BrokenOff,
    /// The request has had all the time that it may take.
    OutOfTime,
}

impl StartFailure {
    fn of(upstream: &Upstream, error: &UpstreamError, limit: Duration) -> Self {
        let UpstreamError::Unreachable { source, .. } = error else {
            return Self::late(upstream, limit);
        };
        // A connection was there and ended. That may be an idle one that the engine closed, so that
        // this alone does not make it dead.
        if !source.is_connect() {
            let broken_off = Self::broken_off(upstream, &error.cause());
            return Self::new(FailureKind::ClosedEarly, broken_off.error);
        }
        upstream.note_trouble(error.cause());
        let message = format!("{error}, and no other replica could take the request; try again");
        Self::new(FailureKind::Unreachable, ApiError::replica_gone(message))
    }

    fn new(what: FailureKind, error: ApiError) -> Self {
        Self { what, error, answer: None }
    }

    /// The same with the engine's answer, where it says something.
    async fn in_words(self, head: response::Parts, mut rest: Incoming) -> Self {
        let words = words(&mut rest).await;
        let answer = words.map(|words| Box::new((head, words, rest)));
        Self { answer, ..self }
    }

    /// Whether no other engine can do better. One that is full still holds what a pinned request
    /// refers to, and another does not.
    fn is_final(&self, pinned: Option<ReplicaId>) -> bool {
        match self.what {
            FailureKind::OutOfTime => true,
            FailureKind::Refused => pinned.is_some(),
            _ => false,
        }
    }

    fn full() -> Self {
        Self::new(FailureKind::Refused, ApiError::queue_full())
    }

    fn refused(upstream: &Upstream, what: &str) -> Self {
        let message = format!("{} {what}; try again", upstream.base());
        Self::new(FailureKind::Refused, ApiError::replica_gone(message))
    }

    fn broken_off(upstream: &Upstream, cause: &str) -> Self {
        let message = format!(
            "{} broke off: {cause}, and no other engine could take the request; try again",
            upstream.base()
        );
        Self::new(FailureKind::BrokenOff, ApiError::replica_gone(message))
    }

    fn died(upstream: &Upstream) -> Self {
        let message = format!(
            "{} died before it answered ({}), and no other engine could take the request; try \
             again",
            upstream.base(),
            upstream.trouble()
        );
        let error = ApiError::new(StatusCode::BAD_GATEWAY, "upstream_died", message);
        Self::new(FailureKind::Died, error)
    }

    /// No first bytes in time.
    fn late(upstream: &Upstream, limit: Duration) -> Self {
        let message = format!(
            "{} was given the request and sent nothing within {} s; it may be overloaded or stuck: \
             see its log, send less at a time, stream the answer, or raise --upstream-timeout",
            upstream.base(),
            limit.as_secs_f64()
        );
        Self::out_of_time(message)
    }

    /// The answer paused in its middle for too long.
    fn silent(upstream: &Upstream, limit: Duration) -> Self {
        let message = format!(
            "{} began an answer and then sent nothing for {} s; it may be stuck: see its log, or \
             raise --upstream-silence",
            upstream.base(),
            limit.as_secs_f64()
        );
        Self::out_of_time(message)
    }

    fn out_of_time(message: String) -> Self {
        let error = ApiError::new(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message);
        Self::new(FailureKind::OutOfTime, error)
    }
}

/// Every replica but one.
fn all_but(upstreams: &[Upstream], one: ReplicaId) -> Vec<ReplicaId> {
    let replicas = (0..upstreams.len() as u32).map(ReplicaId);
    replicas.filter(|replica| *replica != one).collect()
}

/// Whether every upstream that serves the model says that it takes fewer tokens than these.
fn is_hopeless(upstreams: &[Upstream], model: &str, tokens: &[TokenId]) -> bool {
    let serving =
        upstreams.iter().filter(|upstream| upstream.models().iter().any(|name| name == model));
    let mut contexts = serving.map(|upstream| upstream.context(model)).peekable();
    // An unknown model has no serving upstreams, and `all` of an empty list is true.
    contexts.peek().is_some()
        && contexts.all(|context| context.is_some_and(|limit| tokens.len() > limit))
}
