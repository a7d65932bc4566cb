//! Errors in OpenAI's shape: what is wrong, with which parameter, and what to do.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// An error as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable name for programs.
    pub code: &'static str,
    /// The parameter at fault.
    pub param: Option<String>,
    /// The problem and the suggested fix.
    pub message: String,
}

/// Length of a prompt, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptLength {
    /// So long.
    Exactly(usize),
    /// Longer, and counting went no further.
    MoreThan(usize),
}

impl std::fmt::Display for PromptLength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(tokens) => write!(f, "{tokens}"),
            Self::MoreThan(tokens) => write!(f, "more than {tokens}"),
        }
    }
}

impl ApiError {
    /// An error without a parameter.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, param: None, message: message.into() }
    }

    /// A request that can never be served as it stands.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let param = Some(param.to_owned());
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_value", message) }
    }

    /// A parameter that is not supported.
    #[must_use]
    pub fn unsupported(param: &str, hint: &str) -> Self {
        let message = format!("`{param}` is not supported{hint}; leave it out");
        Self { code: "unsupported_parameter", ..Self::invalid(param, message) }
    }

    /// More tokens than fit.
    #[must_use]
    pub fn context_length(prompt: PromptLength, limit: usize) -> Self {
        let message = format!(
            "the prompt has {prompt} tokens, but this server takes at most {limit} (the model's \
             context or the KV cache, whichever is smaller); shorten it or raise --cache-blocks"
        );
        Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
    }

    /// No replica can take the request now.
    #[must_use]
    pub fn queue_full() -> Self {
        let message = "all replicas have full queues; try again in a second";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
    }

    /// A failure of this server, which its log explains.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The replica died and no other took over.
    pub fn replica_gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "replica_gone", message)
    }

    /// The body, `{"error": {…}}`.
    #[must_use]
    pub fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {
            "message": self.message, "type": kind, "param": self.param, "code": self.code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        // Clients wait as many seconds before they try again.
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // Routes of other APIs write it again in their own shape.
        response.extensions_mut().insert(self);
        response
    }
}
