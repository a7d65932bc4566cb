//! The HTTP routes.

mod about;
mod anything;
mod auth;
mod body;
mod call;
mod closer;
mod completions;
mod cors;
mod counted;
mod dashboard;
mod debug;
mod embedded;
mod encoding;
mod engine_hints;
mod errors;
mod explain;
mod headers;
mod multipart;
mod normalized;
mod openapi;
mod own_headers;
mod paths;
mod proxied;
mod respond;
mod routed;
mod session;
mod shadow;
mod tokenize;
mod unserved;
mod usage;

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Router, middleware};
use http::StatusCode;

use crate::anthropic;
use crate::gateway::{Fleet, HttpGateway};
use crate::openai::response::ApiKind;

pub use closer::Closer;
pub use openapi::parts as openapi_parts;
pub use own_headers::{
    CACHED_HEADER, IMPORTANCE_HEADER, NORMALIZED_HEADER, REPLICA_HEADER, REQUEST_ID_HEADER,
    SESSION_HEADER, SLO_TTFT_HEADER,
};
pub use paths::admin_parts;

/// All routes.
pub fn routes(gateway: Arc<HttpGateway>) -> Router {
    // Open to all: load balancers, scrapers and browsers send no key.
    let open = Router::new()
        .route("/", get(|| async { crate::dashboard::page() }))
        .route("/favicon.ico", get(|| async { crate::dashboard::icon() }))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ready", get(about::ready))
        .route("/metrics", get(about::metrics))
        .route("/openapi.json", get(openapi::document))
        .method_not_allowed_fallback(unserved::method_not_allowed);
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
        .route("/v1/chat/completions", completions::route(ApiKind::Chat))
        .route("/v1/completions", completions::route(ApiKind::Text))
        .route("/v1/messages", completions::route(ApiKind::Messages))
        .route("/v1/responses", completions::route(ApiKind::Responses))
        .route("/v1/models", get(about::models))
        .route("/v1/models/{*name}", get(about::model))
        .route("/tokenize", post(tokenize::tokenize));
    match &gateway.fleet {
        Fleet::Embedded(_) => common
            .route("/version", get(about::version))
            .route("/v1/messages/count_tokens", post(embedded::count_tokens))
            .route(
                "/v1/responses/{id}",
                get(embedded::stored_response).delete(embedded::delete_response),
            )
            .method_not_allowed_fallback(unserved::method_not_allowed)
            .fallback(unserved::not_found),
        // An engine may take other methods on these paths, and has paths of its own.
        Fleet::Upstreams(_) => {
            common.method_not_allowed_fallback(anything::pass).fallback(anything::pass)
        }
    }
}

/// Routes for operators.
fn debugging() -> Router<Arc<HttpGateway>> {
    Router::new()
        .route("/debug/index", get(debug::index))
        .route("/debug/shadow", get(shadow::report))
        .route("/debug/index/entries", get(debug::entries))
        .route("/dashboard/snapshot", get(dashboard::snapshot))
        .route("/dashboard/events", get(dashboard::events))
        .route("/debug/requests", get(explain::requests))
        .route("/debug/requests/{id}", get(explain::request))
        // An empty id names no parameter, and must not reach an engine.
        .route("/debug/requests/", get(unserved::not_found))
        .route("/debug/waterfall", get(explain::waterfall))
        .method_not_allowed_fallback(unserved::method_not_allowed)
}
