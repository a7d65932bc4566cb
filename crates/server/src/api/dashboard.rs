//! The dashboard's routes: `/`, the page; `/dashboard/events`, a snapshot a second as server-sent
//! events; `/dashboard/snapshot`, one of them. The page holds no data: where the server has an API
//! key, the other two want it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::body;
use super::closer::Closer;
use crate::dashboard::{self, LISTENERS_MAX, Listener};
use crate::gateway::HttpGateway;
use crate::openai::ApiError;

/// Snapshots between a listener and his connection: who is slower gets the newest later.
const PIECES: usize = 1;

/// One snapshot with all of its history.
pub(super) async fn snapshot(
    State(gateway): State<Arc<HttpGateway>>,
) -> Result<Response, ApiError> {
    let snapshot = dashboard::whole(&gateway).await.ok_or_else(failed)?;
    Ok((no_store(), Json(snapshot)).into_response())
}

/// Snapshots until the client goes or the server stops.
pub(super) async fn events(
    State(gateway): State<Arc<HttpGateway>>,
    request: Request,
) -> Result<Response, ApiError> {
    let closer = request.extensions().get::<Closer>().cloned().unwrap_or_default();
    // Before the first snapshot, so that none is missed between the two.
    let listener = gateway.dashboard.listen().ok_or_else(full)?;
    let first = dashboard::whole(&gateway).await.ok_or_else(failed)?;
    let (writer, body) = body::channel(PIECES, &gateway.limits, closer);
    tokio::spawn(async move {
        // An error means that the client is gone.
        let _ = send(listener, &dashboard::event(&first), &writer).await;
    });
    let kind = HeaderValue::from_static("text/event-stream");
    Ok(([(header::CONTENT_TYPE, kind)], no_store(), body).into_response())
}

async fn send(
    mut listener: Listener,
    first: &bytes::Bytes,
    writer: &body::BodyWriter,
) -> Result<(), body::ClientGone> {
    writer.send(first.clone()).await?;
    loop {
        // A page that was closed gives its place back at once.
        let event = tokio::select! {
            event = listener.next() => event,
            () = writer.closed() => return Err(body::ClientGone),
        };
        match event {
            Some(event) => writer.send(event).await?,
            None => return Ok(()),
        }
    }
}

fn no_store() -> [(header::HeaderName, HeaderValue); 1] {
    [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]
}

fn full() -> ApiError {
    let message = format!(
        "{LISTENERS_MAX} dashboards are open already; close one, or ask /dashboard/snapshot now \
         and then (`headstart top` does)"
    );
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", message)
}

fn failed() -> ApiError {
    let message = "the snapshot could not be made; see the server's log";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
}
