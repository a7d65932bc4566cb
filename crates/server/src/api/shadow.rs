//! `GET /debug/shadow`: the fleets that are simulated beside the real one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use crate::gateway::HttpGateway;
use crate::openai::ApiError;
use crate::shadow::ShadowReport;

/// The report of all shadow fleets.
pub(super) async fn report(
    State(gateway): State<Arc<HttpGateway>>,
) -> Result<Json<ShadowReport>, ApiError> {
    let shadow = gateway.observers.shadow.as_ref().ok_or_else(|| {
        let message = "no shadow fleet runs; start the server with --shadow and one --upstream";
        ApiError::new(StatusCode::NOT_FOUND, "no_shadow", message)
    })?;
    Ok(Json(shadow.report()))
}
