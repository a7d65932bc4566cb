//! Errors in Anthropic's shape.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::openai::ApiError;

/// The routes whose errors have this shape.
const PATH: &str = "/v1/messages";

/// The body, `{"type": "error", "error": {…}}`.
#[must_use]
pub fn body(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {
        "type": kind, "message": error.message, "code": error.code, "param": error.param,
    }})
}

/// Middleware: the server's own errors on these routes, written again in this shape. What an engine
/// answers stays as it is.
pub async fn translated(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let rest = path.strip_prefix(PATH);
    let is_ours = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let response = next.run(request).await;
    match response.extensions().get::<ApiError>() {
        Some(error) if is_ours => {
            let body = body(error).to_string();
            let (mut head, _) = response.into_parts();
            let json = HeaderValue::from_static("application/json");
            head.headers.insert(header::CONTENT_TYPE, json);
            // The length is that of the body before.
            head.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(head, Body::from(body))
        }
        _ => response,
    }
}
