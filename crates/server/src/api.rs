//! The HTTP routes.

mod body;
mod dashboard;
mod debug;
mod embedded;
mod explain;
mod normalized;
mod proxied;
mod routed;
mod tokenize;
mod usage;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use serde_json::json;
use tokio::sync::Notify;

use crate::anthropic;
use crate::gateway::{Fleet, Gateway};
use crate::openai::ApiError;
use crate::openai::response::Kind;
use crate::spans::Timeline;

/// Response header: who computed.
pub const REPLICA_HEADER: &str = "x-headstart-replica";

/// Response header: prompt tokens taken from the cache.
pub const CACHED_HEADER: &str = "x-headstart-cached-tokens";

/// Response header: how much of a prompt's stored prefix was loaded, where that was not all of it:
/// the answer is not what a full computation gives. Request header: `off` asks for what it gives.
pub const IMPORTANCE_HEADER: &str = "x-headstart-importance";

/// Response header: which normalizers changed the request, where some did.
pub const NORMALIZED_HEADER: &str = "x-headstart-normalized";

/// Request header: the conversation, for `session` routing.
pub const SESSION_HEADER: &str = "x-session-id";

/// Request header with the longest time to the first token that the client wants, milliseconds.
pub const SLO_TTFT_HEADER: &str = "x-slo-ttft-ms";

/// Request header: what the client calls the request, to ask for it later.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// Longest of them that is kept, bytes.
const REQUEST_ID_BYTES: usize = 200;

/// Longest objective, milliseconds: an hour.
const SLO_TTFT_MAX_MS: f64 = 3_600_000.0;

/// A request extension: ends the request's connection, for clients that stopped reading.
#[derive(Clone, Debug, Default)]
pub struct Closer(pub Arc<Notify>);

/// All routes.
pub fn routes(gateway: Arc<Gateway>) -> Router {
    let open = Router::new()
        .route("/", get(|| async { crate::dashboard::page() }))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics));
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/responses", post(responses))
        .route(
            "/v1/responses/{id}",
            get(stored_response).delete(delete_response),
        )
        .route("/v1/models", get(models))
        .route("/tokenize", post(tokenize))
        .route("/debug/index", get(debug_index))
        .route("/debug/shadow", get(debug_shadow))
        .route("/debug/index/entries", get(debug_entries))
        .route("/dashboard/snapshot", get(dashboard_snapshot))
        .route("/dashboard/events", get(dashboard_events))
        .route("/debug/requests", get(explain::requests))
        .route("/debug/requests/{id}", get(explain::request))
        .route("/debug/waterfall", get(explain::waterfall))
        .layer(middleware::from_fn_with_state(gateway.clone(), authorize))
        .merge(open)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(
            gateway.clone(),
            count_errors,
        ))
        .layer(middleware::from_fn(anthropic::error::translated))
        .with_state(gateway)
}

async fn chat(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    answer(gateway, request, Kind::Chat).await
}

async fn completions(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    answer(gateway, request, Kind::Text).await
}

async fn messages(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    answer(gateway, request, Kind::Messages).await
}

async fn responses(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    answer(gateway, request, Kind::Responses).await
}

async fn count_tokens(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let Fleet::Embedded(embedded) = &gateway.fleet else {
        return not_found(request.uri().clone()).await.into_response();
    };
    let (head, body) = request.into_parts();
    match body::read(&head.headers, body, &gateway.limits).await {
        Ok(body) => embedded::count_tokens(&gateway, embedded, &body).await,
        Err(error) => Err(error),
    }
    .unwrap_or_else(ApiError::into_response)
}

async fn stored_response(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    match &gateway.fleet {
        Fleet::Embedded(embedded) => embedded::stored_response(embedded, &id, gateway.clock.now()),
        Fleet::Upstreams(_) => Err(not_found(uri).await),
    }
}

async fn delete_response(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    match &gateway.fleet {
        Fleet::Embedded(embedded) => embedded::delete_response(embedded, &id, gateway.clock.now()),
        Fleet::Upstreams(_) => Err(not_found(uri).await),
    }
}

async fn answer(gateway: Arc<Gateway>, request: Request, kind: Kind) -> Response {
    let arrival = gateway.clock.now();
    let (head, body) = request.into_parts();
    let timeline = Timeline::open(gateway.observers.spans.as_ref(), &head.headers, arrival);
    let closer = head.extensions.get::<Closer>().cloned().unwrap_or_default();
    let body = match body::read(&head.headers, body, &gateway.limits).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let (body, changed) = normalized::normalized(&gateway, body).await;
    let call = Call {
        gateway: gateway.clone(),
        kind,
        headers: head.headers,
        arrival,
        timeline,
        closer,
    };
    let outcome = match &call.gateway.fleet {
        Fleet::Embedded(_) => embedded::answer(call, &body).await,
        Fleet::Upstreams(_) => proxied::answer(call, body).await,
    };
    let response = outcome.unwrap_or_else(ApiError::into_response);
    normalized::say(&gateway, response, changed)
}

/// One call of a completion route.
struct Call {
    gateway: Arc<Gateway>,
    kind: Kind,
    headers: HeaderMap,
    arrival: headstart_core::Nanos,
    timeline: Timeline,
    closer: Closer,
}

impl Call {
    fn session<'a>(&'a self, user: Option<&'a str>) -> Option<&'a str> {
        let header = self
            .headers
            .get(SESSION_HEADER)
            .and_then(|value| value.to_str().ok());
        header.or(user)
    }

    /// What the client calls the request, if it calls it something short.
    fn request_id(&self) -> Option<&str> {
        let value = self.headers.get(REQUEST_ID_HEADER)?;
        let id = value.to_str().ok()?;
        (!id.is_empty() && id.len() <= REQUEST_ID_BYTES).then_some(id)
    }

    /// The objective that the client names, if it does.
    ///
    /// # Errors
    /// When it is no number of milliseconds.
    fn slo_ttft(&self) -> Result<Option<Duration>, ApiError> {
        let Some(value) = self.headers.get(SLO_TTFT_HEADER) else {
            return Ok(None);
        };
        let ms = value
            .to_str()
            .ok()
            .and_then(|text| text.trim().parse().ok());
        match ms.filter(|ms: &f64| *ms > 0.0 && *ms <= SLO_TTFT_MAX_MS) {
            Some(ms) => Ok(Some(Duration::from_secs_f64(ms / 1e3))),
            None => Err(ApiError::invalid(
                SLO_TTFT_HEADER,
                format!(
                    "{SLO_TTFT_HEADER}: expected milliseconds above 0, up to {SLO_TTFT_MAX_MS}"
                ),
            )),
        }
    }

    /// Whether the client wants what a full computation gives, and nothing else.
    ///
    /// # Errors
    /// When its header says something else than that.
    fn is_exact(&self) -> Result<bool, ApiError> {
        let mut values = self.headers.get_all(IMPORTANCE_HEADER).iter().peekable();
        let is_asked = values.peek().is_some();
        let is_off =
            |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"off");
        match values.all(is_off) {
            true => Ok(is_asked),
            false => Err(ApiError::invalid(
                IMPORTANCE_HEADER,
                format!(
                    "{IMPORTANCE_HEADER}: expected off, which has all of a stored prefix loaded; \
                     leave it out to have what the server is set to"
                ),
            )),
        }
    }
}

async fn debug_index(State(gateway): State<Arc<Gateway>>) -> Response {
    debug::index(&gateway).await
}

async fn debug_shadow(State(gateway): State<Arc<Gateway>>) -> Response {
    match &gateway.observers.shadow {
        Some(shadow) => Json(shadow.report()).into_response(),
        None => {
            let message = "nothing is played; start the server with --shadow and one --upstream";
            ApiError::new(StatusCode::NOT_FOUND, "no_shadow", message).into_response()
        }
    }
}

async fn debug_entries(
    State(gateway): State<Arc<Gateway>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    debug::entries(&gateway, &query)
}

async fn dashboard_snapshot(State(gateway): State<Arc<Gateway>>) -> Response {
    dashboard::snapshot(&gateway).await
}

async fn dashboard_events(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let closer = request.extensions().get::<Closer>().cloned();
    dashboard::events(&gateway, closer.unwrap_or_default()).await
}

async fn tokenize(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match body::read(&head.headers, body, &gateway.limits).await {
        Ok(body) => tokenize::answer(&gateway, body).await,
        Err(error) => Err(error),
    }
    .unwrap_or_else(ApiError::into_response)
}

async fn models(State(gateway): State<Arc<Gateway>>) -> Response {
    let created = gateway.started_unix_s();
    let model = |id: String| {
        // The name by which engines tell it, and by which a gateway in front of this one reads it.
        let max_model_len = gateway.context(&id);
        json!({
            "id": id, "object": "model", "created": created, "owned_by": "headstart",
            "max_model_len": max_model_len,
        })
    };
    let models: Vec<_> = gateway.models().into_iter().map(model).collect();
    Json(json!({"object": "list", "data": models})).into_response()
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.is_ready() {
        return StatusCode::OK.into_response();
    }
    let why = if gateway.draining.load(Relaxed) {
        "shutting down"
    } else {
        "no replica is up"
    };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why).into_response()
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], gateway.render_metrics()).into_response()
}

async fn not_found(uri: Uri) -> ApiError {
    let message = format!(
        "there is no {}; served are /v1/chat/completions, /v1/completions, /v1/messages, \
         /v1/messages/count_tokens, /v1/responses, /v1/models, /tokenize, /debug/index, \
         /debug/index/entries, /debug/requests, /debug/waterfall, /debug/shadow, \
         /dashboard/snapshot, /dashboard/events, /health, /ready, /metrics and / (the dashboard)",
        uri.path()
    );
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        message,
    )
}

async fn authorize(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let Some(key) = &gateway.api_key else {
        return next.run(request).await;
    };
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(HeaderValue::as_bytes);
    let given = given
        .and_then(|value| value.strip_prefix(b"Bearer "))
        .unwrap_or_default();
    if same_secret(given, key.as_bytes()) {
        return next.run(request).await;
    }
    let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`";
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
}

/// Compares in a time that does not depend on where the two differ.
fn same_secret(given: &[u8], secret: &[u8]) -> bool {
    let differences = given
        .iter()
        .zip(secret)
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == secret.len() && differences == 0
}

async fn count_errors(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        gateway
            .metrics
            .requests
            .errors
            .with_label_values(&[status.as_str()])
            .inc();
    }
    response
}

/// A header value from digits or a replica's name.
fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
}
