//! Routes about the server itself: models, version, readiness, metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::gateway::{HttpGateway, unknown_model};
use crate::openai::ApiError;

/// `GET /v1/models`
pub(super) async fn models(State(gateway): State<Arc<HttpGateway>>) -> Response {
    let models: Vec<_> = gateway.models();
    let models: Vec<_> = models.iter().map(|id| card(&gateway, id)).collect();
    Json(json!({"object": "list", "data": models})).into_response()
}

/// `GET /v1/models/NAME`; a name may have slashes. A gateway asks its engines before it says that
/// there is no such model.
pub(super) async fn model(
    State(gateway): State<Arc<HttpGateway>>,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    let name = match name {
        Ok(Path(name)) => name,
        Err(error) => return invalid_path(&error).into_response(),
    };
    if !gateway.models().contains(&name) {
        gateway.ask_models().await;
    }
    let models = gateway.models();
    if models.contains(&name) {
        Json(card(&gateway, &name)).into_response()
    } else {
        unknown_model(&name, &models).into_response()
    }
}

/// The error for a path whose variable part is no text.
pub(super) fn invalid_path(error: &PathRejection) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_path", error.body_text())
}

fn card(gateway: &HttpGateway, id: &str) -> Value {
    // The name by which engines tell it, and by which a gateway in front of this one reads it.
    let max_model_len = gateway.context(id);
    json!({
        "id": id, "object": "model", "created": gateway.started_unix_s(),
        "owned_by": "headstart", "max_model_len": max_model_len,
    })
}

/// `GET /version`
pub(super) async fn version() -> Response {
    Json(json!({"version": env!("CARGO_PKG_VERSION")})).into_response()
}

/// `GET /ready`
pub(super) async fn ready(State(gateway): State<Arc<HttpGateway>>) -> Response {
    if gateway.is_ready() {
        return StatusCode::OK.into_response();
    }
    let why = if gateway.draining.load(Relaxed) {
        "the server is shutting down; send requests to another one"
    } else {
        "no engine is up; wait until one is, or ask the operator to start one"
    };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why).into_response()
}

/// `GET /metrics`
pub(super) async fn metrics(State(gateway): State<Arc<HttpGateway>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], gateway.render_metrics()).into_response()
}
