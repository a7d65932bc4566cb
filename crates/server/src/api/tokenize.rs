//! `POST /tokenize`: what tokens a prompt becomes here, as vLLM answers it. A gateway in front
//! compares them with its own.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headstart_core::TokenId;
use headstart_prompt::{Api, Dialect, NoExactTokens};
use http::StatusCode;
use serde_json::{Value, json};

use super::embedded::plain_tokens;
use super::{anything, body};
use crate::gateway::{Fleet, HttpGateway};
use crate::openai::{ApiError, request};

/// `POST /tokenize`. Passed on where only an engine has the tokenizer.
pub(super) async fn tokenize(state: State<Arc<HttpGateway>>, request: Request) -> Response {
    let gateway = &state.0;
    let is_upstream = matches!(gateway.fleet, Fleet::Upstreams(_));
    if is_upstream && gateway.prompt_tokens().is_none() {
        // An engine knows its own tokenizer.
        return anything::pass(state, request).await;
    }
    let (head, body) = request.into_parts();
    match body::read(&head.headers, body, &gateway.limits).await {
        Ok(body) => answer(gateway, body).await,
        Err(error) => Err(error),
    }
    .unwrap_or_else(ApiError::into_response)
}

/// Answers a call: `messages` are rendered as a chat, `prompt` is taken as it is.
async fn answer(gateway: &Arc<HttpGateway>, body: Bytes) -> Result<Response, ApiError> {
    let gateway = gateway.clone();
    let tokens = tokio::task::spawn_blocking(move || tokens(&gateway, &body));
    let failed = |_| ApiError::internal("the tokenizer failed on this prompt");
    let (tokens, context) = tokens.await.map_err(failed)??;
    let answer = json!({"count": tokens.len(), "max_model_len": context, "tokens": tokens});
    Ok(Json(answer).into_response())
}

/// The tokens, and the longest sequence that fits, where that is known.
fn tokens(gateway: &HttpGateway, body: &[u8]) -> Result<(Vec<TokenId>, Option<usize>), ApiError> {
    let fields: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::invalid("body", format!("the body is no JSON: {error}")))?;
    let missing = || {
        let message = "this gateway has no tokenizer: name one for an upstream (tokenizer=FOLDER), \
                       or ask the engine";
        ApiError::new(StatusCode::NOT_IMPLEMENTED, "no_tokenizer", message)
    };
    let prompt = gateway.prompt_tokens().ok_or_else(missing)?;
    let context = match &gateway.fleet {
        Fleet::Embedded(embedded) => Some(embedded.context()),
        Fleet::Upstreams(_) => fields["model"].as_str().and_then(|model| gateway.context(model)),
    };
    let salt = fields["cache_salt"].as_str().map(str::to_owned);
    if let Value::Object(fields) = &fields
        && fields.contains_key("messages")
    {
        let tokens = prompt.request(Dialect::default(), Api::Chat, fields.clone(), salt.as_deref());
        let refused = |error: NoExactTokens| ApiError::invalid("messages", error.to_string());
        return Ok((tokens.map_err(refused)?.tokens, context));
    }
    let input = request::prompt(fields.get("prompt").cloned())?;
    let prompted = plain_tokens(prompt, input, salt.as_deref())?;
    Ok((prompted.tokens, context))
}
