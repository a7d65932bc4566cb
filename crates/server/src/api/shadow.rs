//! `GET /debug/shadow`: the fleets that are simulated beside the real one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::gateway::HttpGateway;
use crate::openai::ApiError;

/// The report of all shadow fleets.
pub(super) async fn report(State(gateway): State<Arc<HttpGateway>>) -> Response {
    match &gateway.observers.shadow {
        Some(shadow) => Json(shadow.report()).into_response(),
        None => {
            let message = "no shadow fleet runs; start the server with --shadow and one --upstream";
            ApiError::new(StatusCode::NOT_FOUND, "no_shadow", message).into_response()
        }
    }
}
