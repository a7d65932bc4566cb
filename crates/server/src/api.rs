//! The HTTP routes.

mod about;
mod anything;
mod auth;
mod body;
mod cors;
mod counted;
mod dashboard;
mod debug;
mod embedded;
mod encoding;
mod errors;
mod explain;
mod headers;
mod multipart;
mod normalized;
mod openapi;
mod paths;
mod proxied;
pub mod reference;
mod respond;
mod routed;
mod session;
mod tokenize;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, RawQuery, Request, State};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use headstart_prompt::Normalizers;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use tokio::sync::Notify;

use crate::anthropic;
use crate::gateway::{Fleet, HttpGateway};
use crate::openai::ApiError;
use crate::openai::response::ApiKind;
use crate::spans::RequestTimeline;

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
pub fn routes(gateway: Arc<HttpGateway>) -> Router {
    // Open to all: load balancers, scrapers and browsers send no key.
    let open = Router::new()
        .route("/", get(|| async { crate::dashboard::page() }))
        .route("/favicon.ico", get(|| async { crate::dashboard::icon() }))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ready", get(about::ready))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi::document))
        .method_not_allowed_fallback(method_not_allowed);
    let cors = cors::layer(&gateway.edge.cors);
    // A layer covers the routes that were merged before it, so only the API and the debug routes
    // need the key. Errors are counted outside of it, so a refused key counts too.
    let router = api(&gateway)
        .merge(debugging())
        .layer(middleware::from_fn_with_state(gateway.clone(), auth::authorize))
        .merge(open)
        .layer(middleware::from_fn_with_state(gateway.clone(), counted::errors))
        .layer(middleware::from_fn(anthropic::error::translated));
    // Outermost: a browser's preflight request carries no key, and every answer needs the headers.
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.with_state(gateway)
}

/// Routes for clients. A gateway of upstreams passes all other paths on.
fn api(gateway: &HttpGateway) -> Router<Arc<HttpGateway>> {
    let common = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(about::models))
        .route("/v1/models/{*name}", get(about::model))
        .route("/tokenize", post(tokenize));
    match &gateway.fleet {
        Fleet::Embedded(_) => common
            .route("/version", get(about::version))
            .route("/v1/messages", post(messages))
            .route("/v1/messages/count_tokens", post(count_tokens))
            .route("/v1/responses", post(responses))
            .route("/v1/responses/{id}", get(stored_response).delete(delete_response))
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(not_found),
        // An engine may take other methods on these paths, and has paths of its own.
        Fleet::Upstreams(_) => common
            .route("/v1/messages", post(messages))
            .route("/v1/responses", post(responses))
            .method_not_allowed_fallback(anything::pass)
            .fallback(anything::pass),
    }
}

/// Routes for operators.
fn debugging() -> Router<Arc<HttpGateway>> {
    Router::new()
        .route("/debug/index", get(debug_index))
        .route("/debug/shadow", get(debug_shadow))
        .route("/debug/index/entries", get(debug_entries))
        .route("/dashboard/snapshot", get(dashboard_snapshot))
        .route("/dashboard/events", get(dashboard_events))
        .route("/debug/requests", get(explain::requests))
        .route("/debug/requests/{id}", get(explain::request))
        .route("/debug/waterfall", get(explain::waterfall))
        .method_not_allowed_fallback(method_not_allowed)
}

async fn chat(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    answer(gateway, request, ApiKind::Chat).await
}

async fn completions(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    answer(gateway, request, ApiKind::Text).await
}

async fn messages(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    answer(gateway, request, ApiKind::Messages).await
}

async fn responses(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    answer(gateway, request, ApiKind::Responses).await
}

async fn count_tokens(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match body::read(&head.headers, body, &gateway.limits).await {
        Ok(body) => embedded::count_tokens(&gateway, &body).await,
        Err(error) => Err(error),
    }
    .unwrap_or_else(ApiError::into_response)
}

async fn stored_response(
    State(gateway): State<Arc<HttpGateway>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut options = query.as_deref().unwrap_or_default().split('&');
    if options.any(|option| option == "stream=true") {
        let hint = ": a stored response comes whole here";
        return Err(ApiError::unsupported("stream", hint));
    }
    embedded::stored_response(&gateway, &id)
}

async fn delete_response(
    State(gateway): State<Arc<HttpGateway>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    embedded::delete_response(&gateway, &id)
}

/// The path and the query of a request.
fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or(uri.path(), |target| target.as_str())
}

async fn answer(gateway: Arc<HttpGateway>, request: Request, kind: ApiKind) -> Response {
    let outcome = answer_or_error(gateway, request, kind).await;
    outcome.unwrap_or_else(ApiError::into_response)
}

async fn answer_or_error(
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
    let target = target(&head.uri).to_owned();
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

/// One call of a completion route.
struct CompletionCall {
    gateway: Arc<HttpGateway>,
    kind: ApiKind,
    /// The path and the query.
    target: String,
    headers: HeaderMap,
    arrival: headstart_core::Nanos,
    timeline: RequestTimeline,
    closer: Closer,
    /// Counts an error in the middle of the answer.
    errors: Option<counted::ErrorCounter>,
}

impl CompletionCall {
    fn session<'a>(&'a self, user: Option<&'a str>) -> Option<&'a str> {
        let header = self.headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
        header.or(user)
    }

    /// The client's id of the request, if present and short enough.
    fn request_id(&self) -> Option<&str> {
        request_id(&self.headers)
    }

    /// The objective that the client names, if it does.
    ///
    /// # Errors
    /// When it is no number of milliseconds.
    fn slo_ttft(&self) -> Result<Option<Duration>, ApiError> {
        let Some(value) = self.headers.get(SLO_TTFT_HEADER) else {
            return Ok(None);
        };
        let ms = value.to_str().ok().and_then(|text| text.trim().parse().ok());
        // NaN parses as a number. No comparison holds for it, so it is refused.
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
        // Without the header `all` holds as well; the answer then is that it was not asked for.
        if values.all(is_off) {
            Ok(is_asked)
        } else {
            Err(ApiError::invalid(
                IMPORTANCE_HEADER,
                format!(
                    "{IMPORTANCE_HEADER}: expected off, which has all of a stored prefix loaded; \
                     leave it out to have what the server is set to"
                ),
            ))
        }
    }
}

async fn debug_index(State(gateway): State<Arc<HttpGateway>>) -> Response {
    debug::index(&gateway).await
}

async fn debug_shadow(State(gateway): State<Arc<HttpGateway>>) -> Response {
    match &gateway.observers.shadow {
        Some(shadow) => Json(shadow.report()).into_response(),
        None => {
            let message = "no shadow fleet runs; start the server with --shadow and one --upstream";
            ApiError::new(StatusCode::NOT_FOUND, "no_shadow", message).into_response()
        }
    }
}

async fn debug_entries(
    State(gateway): State<Arc<HttpGateway>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    debug::entries(&gateway, &query)
}

async fn dashboard_snapshot(State(gateway): State<Arc<HttpGateway>>) -> Response {
    dashboard::snapshot(&gateway).await
}

async fn dashboard_events(State(gateway): State<Arc<HttpGateway>>, request: Request) -> Response {
    let closer = request.extensions().get::<Closer>().cloned();
    dashboard::events(&gateway, closer.unwrap_or_default()).await
}

async fn tokenize(state: State<Arc<HttpGateway>>, request: Request) -> Response {
    let gateway = &state.0;
    let is_upstream = matches!(gateway.fleet, Fleet::Upstreams(_));
    if is_upstream && gateway.prompt_tokens().is_none() {
        // An engine knows its own tokenizer.
        return anything::pass(state, request).await;
    }
    let (head, body) = request.into_parts();
    match body::read(&head.headers, body, &gateway.limits).await {
        Ok(body) => tokenize::answer(gateway, body).await,
        Err(error) => Err(error),
    }
    .unwrap_or_else(ApiError::into_response)
}

async fn metrics(State(gateway): State<Arc<HttpGateway>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], gateway.render_metrics()).into_response()
}

async fn not_found(uri: Uri) -> ApiError {
    let message = format!(
        "there is no {}; served are /v1/chat/completions, /v1/completions, /v1/messages, \
         /v1/messages/count_tokens, /v1/responses, /v1/responses/ID, /v1/models, \
         /v1/models/NAME, /version, /tokenize, /debug/index, /debug/index/entries, \
         /debug/requests, /debug/waterfall, /debug/shadow, /dashboard/snapshot, \
         /dashboard/events, /openapi.json, /health, /ready, /metrics and / (the dashboard)",
        uri.path()
    );
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// The client's id of its request, if present and short enough.
fn request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    (!id.is_empty() && id.len() <= REQUEST_ID_BYTES).then_some(id)
}

/// A header value from digits or a replica's name.
fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
}
