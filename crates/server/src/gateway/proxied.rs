//! Placing a request on an upstream engine.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use headstart_core::block::Namespace;
use headstart_core::{ReplicaId, TokenId};
use headstart_router::Health;
use http::{HeaderMap, StatusCode, response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{ATTEMPTS, Fleet, Gateway, Placing, Reservation};
use crate::openai::ApiError;
use crate::upstream::{Upstream, UpstreamError, of_same_engine};

/// Largest answer that is not a stream: a context of tokens with room to spare.
const WHOLE_BYTES: usize = 64 << 20;

/// An upstream's answer whose first bytes have arrived.
pub struct Proxied {
    /// Its place; hold it while the answer runs.
    pub reservation: Reservation,
    /// Status and headers.
    pub head: response::Parts,
    /// The first bytes; empty when the body is.
    pub first: Bytes,
    /// The rest. Dropping it cancels the request.
    pub rest: Incoming,
}

/// A request to pass on.
pub struct Passing<'a> {
    /// Path of the API.
    pub path: &'static str,
    /// The client's headers.
    pub headers: &'a HeaderMap,
    /// The client's body.
    pub body: Bytes,
    /// The model asked for.
    pub model: &'a str,
    /// Tenant salt.
    pub salt: Option<&'a str>,
    /// Session key.
    pub session: Option<&'a str>,
    /// The prompt's tokens, where a tokenizer was given.
    pub tokens: Option<&'a [TokenId]>,
}

impl Gateway {
    /// Passes a request on, up to the first bytes of the answer's body.
    ///
    /// # Errors
    /// When no upstream serves the model, or none answers.
    pub async fn pass_on(self: &Arc<Self>, request: &Passing<'_>) -> Result<Proxied, ApiError> {
        let Fleet::Upstreams(upstreams) = &self.fleet else {
            unreachable!("only a gateway of upstreams passes requests on");
        };
        let mut excluded = not_serving(upstreams, request.model);
        if excluded.len() == upstreams.len() {
            return Err(unknown_model(request.model, &self.models()));
        }
        let is_adapter = upstreams
            .iter()
            .any(|upstream| upstream.is_adapter(request.model));
        let placing = Placing {
            tokens: request.tokens,
            namespace: Namespace {
                adapter: is_adapter.then_some(request.model),
                salt: request.salt,
            },
            session: request.session,
        };
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            let placed = self.place(placing, &excluded);
            let (decision, reservation) = match (placed, last.take()) {
                (Ok(placed), _) => placed,
                (Err(_), Some(first)) => return Err(first),
                (Err(none), None) => return Err(none),
            };
            if attempt > 0 {
                self.note_retry(decision.replica);
            }
            let upstream = &upstreams[decision.replica.0 as usize];
            match self.first_bytes(upstream, request).await {
                Ok((head, first, rest)) => {
                    reservation.first_token();
                    return Ok(Proxied {
                        reservation,
                        head,
                        first,
                        rest,
                    });
                }
                Err(failure) => {
                    if failure.is_dead {
                        for rank in of_same_engine(upstreams, decision.replica) {
                            self.set_health(rank, Health::Down);
                            excluded.push(rank);
                        }
                    }
                    tracing::debug!(
                        upstream = upstream.base(),
                        reason = failure.error.message,
                        "no answer"
                    );
                    excluded.push(decision.replica);
                    last = Some(failure.error);
                }
            }
        }
        Err(last.unwrap_or_else(|| ApiError::replica_gone("no upstream answered; try again")))
    }

    async fn first_bytes(
        &self,
        upstream: &Upstream,
        request: &Passing<'_>,
    ) -> Result<(response::Parts, Bytes, Incoming), Failure> {
        let body = request.body.clone();
        let limit = self.limits.first_token_timeout;
        let answer = upstream
            .forward(request.path, request.headers, body, limit)
            .await;
        let (head, mut rest) = answer.map_err(|error| Failure::of(&error))?.into_parts();
        match head.status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
                return Err(Failure::alive(
                    upstream,
                    &format!("answered {}", head.status),
                ));
            }
            StatusCode::TOO_MANY_REQUESTS => return Err(Failure::full()),
            _ => {}
        }
        let is_stream = is_event_stream(&head.headers);
        let mut first = BytesMut::new();
        // A stream begins with its first frame; anything else is taken whole, so that a broken
        // one can still be asked of another replica.
        while first.is_empty() || !is_stream {
            match tokio::time::timeout(limit, rest.frame()).await {
                Err(_) => return Err(Failure::alive(upstream, "sent no body in time")),
                Ok(Some(Err(_))) => return Err(Failure::alive(upstream, "broke off")),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        first.extend_from_slice(&data);
                    }
                }
                Ok(None) => break,
            }
            if first.len() > WHOLE_BYTES {
                return Err(Failure::alive(upstream, "sent too large an answer"));
            }
        }
        Ok((head, first.freeze(), rest))
    }
}

/// Whether a body is server-sent events.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Why an upstream's answer did not begin.
struct Failure {
    is_dead: bool,
    error: ApiError,
}

impl Failure {
    fn of(error: &UpstreamError) -> Self {
        let is_dead = matches!(error, UpstreamError::Unreachable { .. });
        Self {
            is_dead,
            error: ApiError::replica_gone(error.to_string()),
        }
    }

    fn full() -> Self {
        Self {
            is_dead: false,
            error: ApiError::queue_full(),
        }
    }

    fn alive(upstream: &Upstream, what: &str) -> Self {
        let message = format!("{} {what}; try again", upstream.base());
        Self {
            is_dead: false,
            error: ApiError::replica_gone(message),
        }
    }
}

/// Upstreams that said what they serve, and `model` is not among it.
fn not_serving(upstreams: &[Upstream], model: &str) -> Vec<ReplicaId> {
    let lacks = |upstream: &Upstream| {
        let models = upstream.models();
        !models.is_empty() && !models.iter().any(|name| name == model)
    };
    let indexed = upstreams.iter().enumerate();
    let lacking = indexed.filter(|(_, upstream)| lacks(upstream));
    lacking.map(|(index, _)| ReplicaId(index as u32)).collect()
}

/// The error for a model that nobody serves.
#[must_use]
pub fn unknown_model(model: &str, known: &[String]) -> ApiError {
    let message = format!(
        "the model `{model}` is not served here; served: {}",
        known.join(", ")
    );
    let error = ApiError::invalid("model", message);
    ApiError {
        status: StatusCode::NOT_FOUND,
        code: "model_not_found",
        ..error
    }
}
