//! Requests that are not Headstart's own, passed on to upstream engines as they come.
//!
//! - A request that names a model goes to an engine that serves it.
//! - One about a stored response goes to the engine that holds it.
//! - One that changes the models that engines serve goes to all of them.
//! - Any other goes to an engine by load.
//!
//! Protocol upgrades, such as WebSockets, are not passed on.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headstart_router::RouteRequest;
use http::{HeaderMap, Method, StatusCode, header, request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::closer::Closer;
use super::own_headers::SESSION_HEADER;
use super::paths::{self, RequestDestination};
use super::{body, headers, multipart, proxied, respond};
use crate::gateway::{EngineAnswer, HttpGateway, Passing};
use crate::openai::ApiError;
use crate::spans::RequestTimeline;
use crate::upstream::Outgoing;

/// Passes a request on.
pub(super) async fn pass(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let outcome = pass_parts(&gateway, head, body).await;
    outcome.unwrap_or_else(ApiError::into_response)
}

async fn pass_parts(
    gateway: &Arc<HttpGateway>,
    head: request::Parts,
    body: axum::body::Body,
) -> Result<Response, ApiError> {
    let arrival = gateway.clock.now();
    let target = paths::target(&head.uri);
    // Refused before the body is read and before an engine sees anything.
    let place = paths::place(&head.method, target, gateway.edge.pass_admin_routes)?;
    refuse_preflight(&head)?;
    let timeline = RequestTimeline::open(gateway.observers.spans.as_ref(), &head.headers, arrival);
    let body = body::read(&head.headers, body, &gateway.limits).await?;
    let mut headers = headers::to_engine(gateway, &head.headers);
    proxied::count_hop(&mut headers)?;
    timeline.pass_on(&mut headers);
    let model = model(&head.headers, &body);
    let request = Outgoing { method: &head.method, path: target, headers: &headers, body };
    let holder = match place {
        RequestDestination::All => return Ok(combined(gateway.fan_out(&request).await)),
        RequestDestination::Holder(id) => gateway.holder(&id, &headers).await,
        RequestDestination::One => None,
    };
    let session = head.headers.get(SESSION_HEADER);
    let passing = Passing {
        request,
        model: model.as_deref(),
        pinned: holder.map(|pin| pin.replica),
        // Only requests with a prompt have a salt, an objective, tokens and text.
        route: RouteRequest {
            session: session.and_then(|value| value.to_str().ok()),
            ..RouteRequest::default()
        },
        timeline: &timeline,
    };
    let proxied = gateway.pass_on(&passing).await?;
    let is_success = proxied.head.status.is_success();
    timeline.note(|facts| {
        facts.model.clone_from(&model);
        facts.replica = Some(proxied.reservation.replica());
        facts.is_complete = is_success;
    });
    let closer = head.extensions.get::<Closer>().cloned().unwrap_or_default();
    let errors = head.extensions.get().cloned();
    let length = proxied.head.headers.get(header::CONTENT_LENGTH).cloned();
    let mut response = respond::plain(gateway, &closer, errors, proxied);
    // The length of what GET would answer, not of this empty body.
    if let Some(length) = length.filter(|_| head.method == Method::HEAD) {
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
    }
    Ok(response)
}

/// A browser's question whether a page of another origin may call: the gateway answers it, and
/// only where `--cors-origin` says so.
fn refuse_preflight(head: &request::Parts) -> Result<(), ApiError> {
    // Only a preflight request has this header. Any other OPTIONS request is for the engine.
    let is_preflight = head.method == Method::OPTIONS
        && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !is_preflight {
        return Ok(());
    }
    let message = "pages of other origins may not call this server; start it with --cors-origin";
    Err(ApiError::new(StatusCode::FORBIDDEN, "cors_is_off", message))
}

/// The model that a body names: a field of a JSON object, or of a form.
fn model(headers: &HeaderMap, body: &Bytes) -> Option<String> {
    #[derive(Deserialize)]
    struct ModelField {
        model: Value,
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if let Some(boundary) = multipart::boundary(kind) {
        return multipart::field(body, boundary, "model").map(str::to_owned);
    }
    // A body that names no model goes to an engine by load.
    let named: ModelField = serde_json::from_slice(body).ok()?;
    named.model.as_str().map(str::to_owned)
}

/// One answer for those of all engines: 200 when all of them did it.
fn combined(answers: Vec<EngineAnswer>) -> Response {
    let is_done = |answer: &EngineAnswer| answer.status.is_some_and(|status| status.is_success());
    let failed = answers.iter().filter(|answer| !is_done(answer)).count();
    let first = answers.iter().find(|answer| !is_done(answer));
    // The first failure gives the status of all. An engine that did not answer is a bad gateway.
    let status = match first {
        None => StatusCode::OK,
        Some(answer) => answer.status.unwrap_or(StatusCode::BAD_GATEWAY),
    };
    let num_engines = answers.len();
    let engines: Vec<Value> = answers
        .into_iter()
        .map(|answer| {
            let status = answer.status.map(|status| status.as_u16());
            json!({"upstream": answer.base, "status": status, "text": answer.text})
        })
        .collect();
    let mut body = json!({"engines": engines});
    if failed > 0 {
        let message = format!(
            "{failed} of {num_engines} engines did not do it; `engines` has what each said"
        );
        body["error"] = ApiError::new(status, "engines_failed", message).body()["error"].take();
    }
    (status, Json(body)).into_response()
}
