//! Answers where no route matches: no such path, or another method.

use http::{Method, StatusCode, Uri};

use crate::openai::ApiError;

/// The error for a path that is not served.
pub(super) async fn not_found(uri: Uri) -> ApiError {
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

/// The error for a method that a path does not take.
pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
