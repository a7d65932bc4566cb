//! The routes that take a prompt: a request's way from its head to the engines that answer it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use headstart_prompt::Normalizers;

use super::call::CompletionCall;
use super::closer::Closer;
use super::{body, embedded, normalized, paths, proxied};
use crate::gateway::{Fleet, HttpGateway};
use crate::openai::ApiError;
use crate::openai::response::ApiKind;
use crate::spans::RequestTimeline;

/// The route of an API whose requests have a prompt.
pub(super) fn route(kind: ApiKind) -> MethodRouter<Arc<HttpGateway>> {
    post(move |State(gateway): State<Arc<HttpGateway>>, request: Request| {
        answer(gateway, request, kind)
    })
}

async fn answer(
    gateway: Arc<HttpGateway>,
    request: Request,
    kind: ApiKind,
) -> Result<Response, ApiError> {
    // Before the body is read: the time to the first token counts from here.
    let arrival = gateway.clock.now();
    let (head, body) = request.into_parts();
    let timeline = RequestTimeline::open(gateway.observers.spans.as_ref(), &head.headers, arrival);
    let closer = head.extensions.get::<Closer>().cloned().unwrap_or_default();
    let errors = head.extensions.get().cloned();
    let target = paths::target(&head.uri).to_owned();
    paths::check_length(&target)?;
    let body = body::read(&head.headers, body, &gateway.limits).await?;
    let (body, changed) = match kind {
        ApiKind::Chat | ApiKind::Text => normalized::normalized(&gateway, body).await,
        ApiKind::Messages | ApiKind::Responses => (body, Normalizers::default()),
    };
    let call = CompletionCall {
        gateway: gateway.clone(),
        kind,
        target,
        headers: head.headers,
        arrival,
        timeline,
        closer,
        errors,
    };
    let outcome = match &call.gateway.fleet {
        Fleet::Embedded(_) => embedded::answer(call, &body).await,
        Fleet::Upstreams(_) => proxied::answer(call, body).await,
    };
    // An error, too, says what was changed of its request.
    let response = outcome.unwrap_or_else(ApiError::into_response);
    Ok(normalized::say(&gateway, response, changed))
}
