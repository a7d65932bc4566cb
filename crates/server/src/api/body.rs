//! Reading a request's body within its limits, and writing an answer's at the client's pace.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::mpsc;

use super::closer::Closer;
use super::encoding;
use crate::config::EdgeLimits;
use crate::openai::ApiError;

/// Pieces between an answer and its connection: a little slack, no buffer.
pub(super) const PIECES: usize = 16;

/// The whole body, without its content encoding.
///
/// # Errors
/// 413 beyond the limit, 415 for an unknown encoding, 408 when it does not come in time, 400 when
/// it breaks off.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: &EdgeLimits,
) -> Result<Bytes, ApiError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced: Option<u64> = announced.and_then(|text| text.parse().ok());
    // By the announced length, before a byte of the body is read.
    if announced.is_some_and(|bytes| bytes > limits.body_bytes as u64) {
        return Err(too_large(limits));
    }
    let codings = encoding::codings(headers)?;
    // The header may be absent or wrong. This limit counts the bytes that come.
    let body = Limited::new(body, limits.body_bytes).collect();
    match tokio::time::timeout(limits.read_timeout, body).await {
        Ok(Ok(body)) => encoding::decoded(body.to_bytes(), codings, limits).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limits)),
        Ok(Err(_)) => {
            let message = "the body broke off before its announced end";
            Err(ApiError::new(StatusCode::BAD_REQUEST, "incomplete_body", message))
        }
        Err(_) => {
            let seconds = limits.read_timeout.as_secs_f64();
            let message = format!("the body did not arrive within {seconds} s");
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
        }
    }
}

/// The error for a body beyond the limit.
pub(super) fn too_large(limits: &EdgeLimits) -> ApiError {
    let mib = limits.body_bytes as f64 / f64::from(1 << 20);
    let message = format!(
        "the body is larger than {mib:.1} MiB (unpacked, where it came packed); send less, or \
         raise --max-body-mib"
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

/// Sending end of a response body.
pub(super) struct BodyWriter {
    pieces: mpsc::Sender<Bytes>,
    stall_timeout: Duration,
    closer: Closer,
}

/// The client is gone or has stopped reading.
#[derive(Debug)]
pub(super) struct ClientGone;

/// A body and the writer that feeds it, with room for `pieces` pieces between the two.
pub(super) fn channel(pieces: usize, limits: &EdgeLimits, closer: Closer) -> (BodyWriter, Body) {
    let (pieces, received) = mpsc::channel(pieces);
    let stream = stream::unfold(received, |mut received| async move {
        let piece = received.recv().await?;
        Some((Ok::<_, Infallible>(piece), received))
    });
    let writer = BodyWriter { pieces, stall_timeout: limits.stall_timeout, closer };
    (writer, Body::from_stream(stream))
}

impl BodyWriter {
    /// Hands over a piece.
    ///
    /// # Errors
    /// When the client hung up, or took nothing for the stall time-out: its connection is then
    /// closed, because nothing else would end it.
    pub(super) async fn send(&self, piece: Bytes) -> Result<(), ClientGone> {
        match tokio::time::timeout(self.stall_timeout, self.pieces.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ClientGone),
            Err(_) => {
                tracing::warn!("a client stopped reading; its connection is closed");
                self.closer.0.notify_one();
                Err(ClientGone)
            }
        }
    }

    /// Resolves when the client hung up.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

/// One server-sent event.
#[must_use]
pub(super) fn event(data: &serde_json::Value) -> Bytes {
    format!("data: {data}\n\n").into()
}
