//! Answers of upstream engines on their way to clients: whole, or as they come.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;

use super::body::{self, BodyWriter, ClientGone};
use super::call::CompletionCall;
use super::closer::Closer;
use super::counted::ErrorCounter;
use super::own_headers::{CACHED_HEADER, REPLICA_HEADER, header_value};
use super::proxied::ForwardedRequest;
use super::usage::{EngineUsage, UsageScan};
use super::{errors, headers};
use crate::gateway::{HttpGateway, ProxyAnswer, Reservation, is_event_stream};
use crate::openai::ApiError;
use crate::openai::response::ApiKind;

/// The answer to a request with a prompt, whose usage is counted.
pub(super) fn respond(
    call: &CompletionCall,
    proxied: ProxyAnswer,
    mut sent: ForwardedRequest,
) -> Response {
    let is_stream = is_event_stream(&proxied.head.headers);
    // A stream has its usage at its end: it is read while the stream passes by.
    let (whole, answer_id) = if is_stream {
        (EngineUsage::default(), None)
    } else {
        EngineUsage::of_answer(&proxied.first)
    };
    // An error has no usage, and its id names no stored response.
    let is_success = proxied.head.status.is_success();
    if is_success {
        sent.note_id(answer_id.as_deref(), &proxied.reservation);
    }
    let cached = cached_tokens(&proxied.head.headers, whole);
    let mut response = if is_stream {
        let errors = call.errors.clone();
        stream(&call.gateway, &call.closer, errors, proxied, Some((sent, cached)))
    } else {
        if is_success {
            sent.note(whole.with_cached(cached), &proxied.reservation);
        }
        whole_answer(proxied)
    };
    if let Some(cached) = cached {
        response.headers_mut().insert(CACHED_HEADER, header_value(&cached.to_string()));
    }
    response
}

/// The answer to any other request, as it is.
pub(super) fn plain(
    gateway: &Arc<HttpGateway>,
    closer: &Closer,
    errors: Option<ErrorCounter>,
    proxied: ProxyAnswer,
) -> Response {
    if is_event_stream(&proxied.head.headers) {
        stream(gateway, closer, errors, proxied, None)
    } else {
        whole_answer(proxied)
    }
}

fn whole_answer(proxied: ProxyAnswer) -> Response {
    let head = passed_head(&proxied.head.headers, &proxied.reservation);
    let mut response = Response::new(Body::from(proxied.first));
    *response.status_mut() = proxied.head.status;
    *response.headers_mut() = head;
    response
}

/// `counted`: what is to be told of the usage, and the cached tokens that the head says.
fn stream(
    gateway: &Arc<HttpGateway>,
    closer: &Closer,
    errors: Option<ErrorCounter>,
    proxied: ProxyAnswer,
    counted: Option<(ForwardedRequest, Option<usize>)>,
) -> Response {
    let (writer, body) = body::channel(body::PIECES, &gateway.limits, closer.clone());
    let mut response = Response::new(body);
    *response.status_mut() = proxied.head.status;
    *response.headers_mut() = passed_head(&proxied.head.headers, &proxied.reservation);
    let is_success = proxied.head.status.is_success();
    let copying = Copying {
        gateway: gateway.clone(),
        writer,
        errors,
        // Errors of other routes have the shape of OpenAI's chat.
        kind: counted.as_ref().map_or(ApiKind::Chat, |(sent, _)| sent.call.kind),
        scan: UsageScan::default(),
    };
    tokio::spawn(copying.run(proxied, counted, is_success));
    response
}

/// The engine's end-to-end headers and the replica's name.
fn passed_head(engine: &HeaderMap, reservation: &Reservation) -> HeaderMap {
    let mut head = headers::to_client(engine);
    let replica = header_value(reservation.replica_name());
    head.insert(REPLICA_HEADER, replica);
    head
}

/// Cached tokens as reported by the engine, in a header or in the usage of a whole answer.
fn cached_tokens(headers: &HeaderMap, usage: EngineUsage) -> Option<usize> {
    let told = headers.get(CACHED_HEADER).and_then(|value| value.to_str().ok());
    // As in the usage, a number beyond 32 bits is no count of tokens.
    let told = told.and_then(|text| text.parse::<u32>().ok()).map(|count| count as usize);
    told.or(usage.cached_tokens)
}

/// End of a stream that the client read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    Whole,
    /// The engine failed or fell silent.
    BrokenOff,
}

/// A stream on its way.
struct Copying {
    gateway: Arc<HttpGateway>,
    writer: BodyWriter,
    errors: Option<ErrorCounter>,
    kind: ApiKind,
    scan: UsageScan,
}

impl Copying {
    /// Copies the stream. The reservation is held until the answer ends or the client is gone.
    async fn run(
        mut self,
        proxied: ProxyAnswer,
        mut counted: Option<(ForwardedRequest, Option<usize>)>,
        is_success: bool,
    ) {
        let ProxyAnswer { reservation, first, rest, .. } = proxied;
        let mut note_id = |scan: &UsageScan| {
            if let (Some((sent, _)), true) = (&mut counted, is_success) {
                sent.note_id(scan.id(), &reservation);
            }
        };
        let is_whole = match self.copy(first, rest, &mut note_id).await {
            Ok(StreamEnd::BrokenOff) => false,
            Ok(StreamEnd::Whole) => true,
            // Clients hang up as soon as they have read the last event: the answer is complete.
            Err(ClientGone) => self.scan.found().prompt_tokens.is_some(),
        };
        if !is_whole {
            return;
        }
        if let (Some((sent, in_head)), true) = (counted, is_success) {
            let usage = self.scan.found();
            let cached = usage.cached_tokens.or(in_head);
            sent.note(usage.with_cached(cached), &reservation);
        }
    }

    /// Copies a stream to the client; if the engine breaks off or falls silent, the client learns
    /// of it.
    async fn copy(
        &mut self,
        first: Bytes,
        mut rest: hyper::body::Incoming,
        note_id: &mut impl FnMut(&UsageScan),
    ) -> Result<StreamEnd, ClientGone> {
        self.scan.feed(&first);
        // Before the piece is sent: a client may continue the response as soon as it reads the id.
        note_id(&self.scan);
        self.writer.send(first).await?;
        let limit = self.gateway.limits.silence_timeout;
        loop {
            // A client that hangs up during a silence is noticed at once, and its place is free
            // again.
            let frame = tokio::select! {
                frame = tokio::time::timeout(limit, rest.frame()) => frame,
                () = self.writer.closed() => return Err(ClientGone),
            };
            let error = match frame {
                Ok(None) => return Ok(StreamEnd::Whole),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.scan.feed(&data);
                        note_id(&self.scan);
                        self.writer.send(data).await?;
                    }
                    continue;
                }
                Ok(Some(Err(_))) => ApiError::replica_gone(
                    "the engine failed in the middle of the answer; send the request again",
                ),
                Err(_) => silent(limit),
            };
            if let Some(errors) = &self.errors {
                errors.broke_off(&self.gateway, &error);
            }
            // What came may have ended inside an event.
            self.writer.send(Bytes::from_static(b"\n\n")).await?;
            let event = errors::stream_event(self.kind, &error);
            self.writer.send(event).await?;
            return Ok(StreamEnd::BrokenOff);
        }
    }
}

fn silent(limit: Duration) -> ApiError {
    let message = format!(
        "the engine sent nothing for {} s in the middle of the answer; send the request again, or \
         raise --upstream-silence",
        limit.as_secs_f64()
    );
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message)
}
