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
pub(super) async fn models(State(gateway): State<Arc<HttpGateway>>) -> Json<Value> {
    let models: Vec<_> = gateway.models().iter().map(|id| card(&gateway, id)).collect();
    Json(json!({"object": "list", "data": models}))
}

/// `GET /v1/models/NAME`; a name may have slashes. A gateway asks its engines before it says that
/// there is no such model.
pub(super) async fn model(
    State(gateway): State<Arc<HttpGateway>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|error| invalid_path(&error))?;
    if !gateway.models().contains(&name) {
        gateway.ask_models().await;
    }
    let models = gateway.models();
    if !models.contains(&name) {
        return Err(unknown_model(&name, &models));
    }
    Ok(Json(card(&gateway, &name)))
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
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /ready`
pub(super) async fn ready(State(gateway): State<Arc<HttpGateway>>) -> Result<(), ApiError> {
    if gateway.is_ready() {
        return Ok(());
    }
    let why = if gateway.draining.load(Relaxed) {
        "the server is shutting down; send requests to another one"
    } else {
        "no engine is up; wait until one is, or ask the operator to start one"
    };
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why))
}

/// `GET /metrics`
pub(super) async fn metrics(State(gateway): State<Arc<HttpGateway>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], gateway.render_metrics()).into_response()
}
