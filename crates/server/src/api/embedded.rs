//! Answers computed in this process. Each API is a way to read a request and a way to write an
//! answer; what is between the two is the same.

mod run;
mod tokens;

use axum::Json;
use axum::response::{IntoResponse, Response};
use headstart_index_sync::clock::unix_seconds;
use headstart_index_sync::random_key;
use http::StatusCode;
use serde_json::json;

pub(super) use self::tokens::plain_tokens;

use self::run::{Prompt, Reply, Run};
use self::tokens::{Input, read};
use super::Call;
use crate::anthropic::{MessageShape, MessagesRequest};
use crate::gateway::{Ask, Embedded, Fleet, Gateway, unknown_model};
use crate::openai::response::{Envelope, Kind};
use crate::openai::{ApiError, ChatRequest, CompletionRequest, Generation};
use crate::prediction::Scope;
use crate::prompt_tokens::Prompted;
use crate::responses::request::unknown_response;
use crate::responses::response::Keeping;
use crate::responses::{ResponseShape, ResponsesRequest};
use crate::shape::Shape;
use crate::spans::Mark;

/// Answers a call.
pub(super) async fn answer(call: Call, body: &[u8]) -> Result<Response, ApiError> {
    let gateway = call.gateway.clone();
    let Fleet::Embedded(embedded) = &gateway.fleet else {
        unreachable!("the caller asked for embedded replicas");
    };
    let (generation, input, reply) = parse(&call, embedded, body)?;
    check_model(&gateway, embedded, &generation.model)?;
    let (slo_ttft, is_exact) = (call.slo_ttft()?, call.is_exact()?);
    let session = call.session(generation.session.as_deref());
    let scope = Scope {
        salt: generation.cache_salt.clone(),
        session: session.map(str::to_owned),
    };
    let renamed = |error| renamed(call.kind, error);
    let prompted = read(&gateway, embedded, input, scope).await;
    let (Prompted { tokens, sketch }, chat) = prompted.map_err(renamed)?;
    call.timeline.mark(Mark::Tokenized);
    let forecast = embedded.predictions.as_ref().zip(chat);
    let forecast = forecast.map(|(predictions, chat)| predictions.forecast(chat, call.arrival));
    let ask = Ask {
        generation: &generation,
        session,
        slo_ttft,
        is_exact,
        prompt: &tokens,
        forecast: forecast.as_ref(),
        timeline: &call.timeline,
    };
    let accepted = gateway.generate(embedded, &ask).await;
    let accepted = accepted.map_err(renamed)?;
    let prompt = Prompt {
        tokens: tokens.len(),
        sketch,
        forecast,
    };
    let run = Run::start(&call, embedded, &generation, (prompt, reply), accepted);
    if generation.stream {
        Ok(run.stream(&call))
    } else {
        run.collect().await
    }
}

/// An error with the parameter's name in the API that was called.
fn renamed(kind: Kind, mut error: ApiError) -> ApiError {
    if kind == Kind::Responses {
        error.param = match error.param.as_deref() {
            Some("messages" | "prompt") => Some("input".to_owned()),
            Some("max_tokens") => Some("max_output_tokens".to_owned()),
            _ => error.param,
        };
    }
    error
}

/// Answers `POST /v1/messages/count_tokens`.
pub(super) async fn count_tokens(gateway: &Gateway, body: &[u8]) -> Result<Response, ApiError> {
    let embedded = embedded(gateway)?;
    let (model, conversation) = MessagesRequest::parse_count(body)?;
    check_model(gateway, embedded, &model)?;
    let input = Input::Chat(conversation);
    let (prompted, _) = read(gateway, embedded, input, Scope::default()).await?;
    Ok(Json(json!({"input_tokens": prompted.tokens.len()})).into_response())
}

/// Answers `GET /v1/responses/ID`.
pub(super) fn stored_response(gateway: &Gateway, id: &str) -> Result<Response, ApiError> {
    let responses = &embedded(gateway)?.responses;
    let stored = responses.get(id, gateway.clock.now());
    let stored = stored.ok_or_else(|| unknown_response(id))?;
    Ok(Json(&stored.response).into_response())
}

/// Answers `DELETE /v1/responses/ID`.
pub(super) fn delete_response(gateway: &Gateway, id: &str) -> Result<Response, ApiError> {
    let responses = &embedded(gateway)?.responses;
    match responses.remove(id, gateway.clock.now()) {
        true => {
            let answer = json!({"id": id, "object": "response", "deleted": true});
            Ok(Json(answer).into_response())
        }
        false => Err(unknown_response(id)),
    }
}

/// The replicas of this process.
///
/// # Errors
/// When engines behind HTTP compute, to whom such a request is passed on.
fn embedded(gateway: &Gateway) -> Result<&Embedded, ApiError> {
    match &gateway.fleet {
        Fleet::Embedded(embedded) => Ok(embedded),
        Fleet::Upstreams(_) => {
            let message = "this gateway computes nothing itself";
            Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}

fn check_model(gateway: &Gateway, embedded: &Embedded, model: &str) -> Result<(), ApiError> {
    match model == embedded.name {
        true => Ok(()),
        false => Err(unknown_model(model, &gateway.models())),
    }
}

/// Reads a request by its API, and prepares what writes its answer.
fn parse(
    call: &Call,
    embedded: &Embedded,
    body: &[u8],
) -> Result<(Generation, Input, Reply), ApiError> {
    match call.kind {
        Kind::Chat => {
            let chat = ChatRequest::parse(body)?;
            let reply = envelope(call, embedded, &chat.generation);
            Ok((chat.generation, Input::Chat(chat.conversation), reply))
        }
        Kind::Text => {
            let completion = CompletionRequest::parse(body)?;
            let reply = envelope(call, embedded, &completion.generation);
            Ok((
                completion.generation,
                Input::Plain(completion.prompt),
                reply,
            ))
        }
        Kind::Messages => {
            let request = MessagesRequest::parse(body)?;
            let id = unguessable_id("msg");
            let model = embedded.name.clone();
            let shape = MessageShape {
                id: id.clone(),
                model,
            };
            let reply = reply(embedded, id, shape);
            Ok((request.generation, Input::Chat(request.conversation), reply))
        }
        Kind::Responses => responses(call, embedded, body),
    }
}

fn responses(
    call: &Call,
    embedded: &Embedded,
    body: &[u8],
) -> Result<(Generation, Input, Reply), ApiError> {
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
    Ok((request.generation, Input::Chat(request.conversation), reply))
}

fn envelope(call: &Call, embedded: &Embedded, generation: &Generation) -> Reply {
    let (gateway, is_chat) = (&call.gateway, call.kind == Kind::Chat);
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

fn reply(embedded: &Embedded, id: String, shape: impl Shape + 'static) -> Reply {
    Reply {
        id,
        model: embedded.name.clone(),
        shape: Box::new(shape),
    }
}

/// An id such as `resp_5f0c…`, of 128 random bits: it is all that a client needs to read a
/// conversation that is kept here.
fn unguessable_id(prefix: &str) -> String {
    let random = random_key();
    let digits: String = random[..16].iter().map(|it| format!("{it:02x}")).collect();
    format!("{prefix}_{digits}")
}
