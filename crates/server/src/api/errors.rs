//! Errors in the shape of the API that was called.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::body::event;
use crate::openai::ApiError;
use crate::openai::response::Kind;

/// An error as an answer.
pub(super) fn response(kind: Kind, error: ApiError) -> Response {
    let body = (kind == Kind::Messages).then(|| anthropic(&error));
    let response = error.into_response();
    let Some(body) = body else {
        return response;
    };
    let (mut head, _) = response.into_parts();
    head.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(head, body.to_string().into())
}

/// An error in the middle of a stream, as an event of it.
pub(super) fn stream_event(kind: Kind, error: &ApiError) -> Bytes {
    let named = |data: Value| Bytes::from(format!("event: error\ndata: {data}\n\n"));
    match kind {
        Kind::Chat | Kind::Text => event(&error.body()),
        Kind::Messages => named(anthropic(error)),
        Kind::Responses => named(json!({
            "type": "error", "code": error.code, "message": error.message, "param": error.param,
        })),
    }
}

/// Anthropic's error object.
fn anthropic(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {
        "type": kind, "message": error.message, "code": error.code, "param": error.param,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_with_an_event_that_clients_of_its_api_know() {
        let error = ApiError::new(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", "late");
        let check = |kind, begin: &str, field: &str| {
            let event = stream_event(kind, &error);
            let text = std::str::from_utf8(&event).expect("text");
            let data = text.strip_prefix(begin).expect("its begin").trim_end();
            let data: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(data.pointer(field), Some(&json!("late")), "{text}");
        };
        check(Kind::Chat, "data: ", "/error/message");
        check(Kind::Messages, "event: error\ndata: ", "/error/message");
        check(Kind::Responses, "event: error\ndata: ", "/message");
    }

    #[test]
    fn statuses_have_anthropics_names() {
        for (status, name) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (404, "not_found_error"),
            (413, "request_too_large"),
            (429, "rate_limit_error"),
            (502, "api_error"),
            (503, "overloaded_error"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let error = anthropic(&ApiError::new(status, "x", "y"));
            assert_eq!(
                (&error["type"], &error["error"]["type"]),
                (&json!("error"), &json!(name))
            );
        }
    }
}
