//! Answers computed in this process. Each API is a way to read a request and a way to write an
//! answer; what is between the two is the same.

mod run;
mod tokens;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use headstart_core::block::Namespace;
use headstart_index_sync::clock::unix_seconds;
use headstart_index_sync::random_key;
use headstart_router::RouteRequest;
use http::StatusCode;
use serde_json::json;

pub(super) use self::tokens::plain_tokens;

use self::run::{AcceptedRun, GenerationRun, ReplyFormat};
use self::tokens::{UntokenizedPrompt, read};
use super::body;
use super::call::CompletionCall;
use crate::anthropic::{self, MessageShape};
use crate::gateway::{EmbeddedReplicas, GenerationObservers, HttpGateway, unknown_model};
use crate::openai::response::{ApiKind, Envelope};
use crate::openai::{ApiError, ChatRequest, CompletionRequest, Generation};
use crate::prediction::{Forecast, Scope};
use crate::prompt_tokens::TokenizedPrompt;
use crate::responses::request::unknown_response;
use crate::responses::response::Keeping;
use crate::responses::{ResponseShape, ResponsesRequest};
use crate::shape::AnswerWriter;
use crate::spans::Mark;

/// Answers a call.
pub(super) async fn answer(call: CompletionCall, body: &[u8]) -> Result<Response, ApiError> {
    let gateway = call.gateway.clone();
    let embedded = embedded(&gateway)?;
    let (generation, input, reply) = parse(&call, embedded, body)?;
    check_model(&gateway, embedded, &generation.model)?;
    let (slo_ttft, is_exact) = (call.slo_ttft()?, call.is_exact()?);
    let session = call.session(generation.session.as_deref());
    let scope = Scope { salt: generation.cache_salt.clone(), session: session.map(str::to_owned) };
    let kind = call.kind;
    let renamed = |error| renamed(kind, error);
    let prompted = read(&gateway, embedded, input, scope).await;
    let (TokenizedPrompt { tokens, sketch }, chat) = prompted.map_err(renamed)?;
    call.timeline.mark(Mark::Tokenized);
    let forecast = embedded.predictions.as_ref().zip(chat);
    let forecast = forecast.map(|(predictions, chat)| predictions.forecast(chat, call.arrival));
    // Checked before the request takes a place, so that a bad one never reaches a replica.
    let mut submission = gateway.submission(embedded, &generation, tokens).map_err(renamed)?;
    submission.is_exact |= is_exact;
    submission.access.session = forecast.as_ref().map(Forecast::conversation);
    let salt = generation.cache_salt.as_deref();
    let route = RouteRequest {
        tokens: Some(&submission.prompt),
        namespace: Namespace { salt, ..Namespace::default() },
        session,
        slo_ttft,
        ..RouteRequest::default()
    };
    let observers = GenerationObservers { forecast: forecast.as_ref(), timeline: &call.timeline };
    let accepted = gateway.generate(embedded, &submission, route, observers).await;
    let accepted = accepted.map_err(renamed)?;
    let run =
        AcceptedRun { prompt_tokens: submission.prompt.len(), sketch, forecast, reply, accepted };
    let run = GenerationRun::start(call, embedded, &generation, run);
    if generation.stream { Ok(run.stream()) } else { run.collect().await }
}

/// An error with the parameter's name in the API that was called.
fn renamed(kind: ApiKind, mut error: ApiError) -> ApiError {
    if kind == ApiKind::Responses {
        error.param = match error.param.as_deref() {
            Some("messages" | "prompt") => Some("input".to_owned()),
            Some("max_tokens") => Some("max_output_tokens".to_owned()),
            _ => error.param,
        };
    }
    error
}

/// Answers `POST /v1/messages/count_tokens`.
pub(super) async fn count_tokens(
    State(gateway): State<Arc<HttpGateway>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, &gateway.limits).await?;
    let embedded = embedded(&gateway)?;
    let (model, conversation) = anthropic::request::parse_count(&body)?;
    check_model(&gateway, embedded, &model)?;
    let input = UntokenizedPrompt::Chat(conversation);
    let (prompted, _) = read(&gateway, embedded, input, Scope::default()).await?;
    Ok(Json(json!({"input_tokens": prompted.tokens.len()})).into_response())
}

/// Answers `GET /v1/responses/ID`.
pub(super) async fn stored_response(
    State(gateway): State<Arc<HttpGateway>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut options = query.as_deref().unwrap_or_default().split('&');
    if options.any(|option| option == "stream=true") {
        let hint = ": a stored response comes whole here";
        return Err(ApiError::unsupported("stream", hint));
    }
    let responses = &embedded(&gateway)?.responses;
    let stored = responses.get(&id, gateway.clock.now());
    let stored = stored.ok_or_else(|| unknown_response(&id))?;
    Ok(Json(&stored.response).into_response())
}

/// Answers `DELETE /v1/responses/ID`.
pub(super) async fn delete_response(
    State(gateway): State<Arc<HttpGateway>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let responses = &embedded(&gateway)?.responses;
    if responses.remove(&id, gateway.clock.now()) {
        let answer = json!({"id": id, "object": "response", "deleted": true});
        Ok(Json(answer).into_response())
    } else {
        Err(unknown_response(&id))
    }
}

/// The replicas of this process.
///
/// # Errors
/// When engines behind HTTP compute, to whom such a request is passed on.
fn embedded(gateway: &HttpGateway) -> Result<&EmbeddedReplicas, ApiError> {
    gateway.fleet.embedded().ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", "this gateway computes nothing itself")
    })
}

fn check_model(
    gateway: &HttpGateway,
    embedded: &EmbeddedReplicas,
    model: &str,
) -> Result<(), ApiError> {
    if model == embedded.name { Ok(()) } else { Err(unknown_model(model, &gateway.models())) }
}

/// Reads a request by its API, and prepares what writes its answer.
fn parse(
    call: &CompletionCall,
    embedded: &EmbeddedReplicas,
    body: &[u8],
) -> Result<(Generation, UntokenizedPrompt, ReplyFormat), ApiError> {
    match call.kind {
        ApiKind::Chat => {
            let chat = ChatRequest::parse(body)?;
            let reply = envelope(call, embedded, &chat.generation);
            Ok((chat.generation, UntokenizedPrompt::Chat(chat.conversation), reply))
        }
        ApiKind::Text => {
            let completion = CompletionRequest::parse(body)?;
            let reply = envelope(call, embedded, &completion.generation);
            Ok((completion.generation, UntokenizedPrompt::Plain(completion.prompt), reply))
        }
        ApiKind::Messages => {
            let request = anthropic::request::parse(body)?;
            let id = unguessable_id("msg");
            let model = embedded.name.clone();
            let shape = MessageShape { id: id.clone(), model };
            let reply = reply(embedded, id, shape);
            Ok((request.generation, UntokenizedPrompt::Chat(request.conversation), reply))
        }
        ApiKind::Responses => responses(call, embedded, body),
    }
}

fn responses(
    call: &CompletionCall,
    embedded: &EmbeddedReplicas,
    body: &[u8],
) -> Result<(Generation, UntokenizedPrompt, ReplyFormat), ApiError> {
    let store = &embedded.responses;
    let request = ResponsesRequest::parse(body, |id| store.get(id, call.arrival))?;
    let id = unguessable_id("resp");
    let keeping = request.history.map(|history| Keeping {
        store: store.clone(),
        history,
        session: request.generation.session.clone(),
        now: call.arrival,
    });
    let shape = ResponseShape {
        id: id.clone(),
        model: embedded.name.clone(),
        created: unix_seconds() as u64,
        echo: request.echo,
        keeping,
        progress: Default::default(),
    };
    let reply = reply(embedded, id, shape);
    Ok((request.generation, UntokenizedPrompt::Chat(request.conversation), reply))
}

fn envelope(
    call: &CompletionCall,
    embedded: &EmbeddedReplicas,
    generation: &Generation,
) -> ReplyFormat {
    let (gateway, is_chat) = (&call.gateway, call.kind == ApiKind::Chat);
    let prefix = if is_chat { "chatcmpl" } else { "cmpl" };
    let id = gateway.answer_id(prefix, gateway.next_id());
    let envelope = Envelope {
        is_chat,
        id: id.clone(),
        model: embedded.name.clone(),
        created: unix_seconds() as u64,
        stream_usage: generation.stream_usage,
    };
    reply(embedded, id, envelope)
}

fn reply(
    embedded: &EmbeddedReplicas,
    id: String,
    shape: impl AnswerWriter + 'static,
) -> ReplyFormat {
    ReplyFormat { id, model: embedded.name.clone(), shape: Box::new(shape) }
}

/// An id such as `resp_5f0c…`, of 128 random bits: it is all that a client needs to read a
/// conversation that is kept here.
fn unguessable_id(prefix: &str) -> String {
    let random = random_key();
    let digits: String = random[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}_{digits}")
}
