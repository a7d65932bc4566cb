//! Errors in the middle of streams, in the shape of the API that was called.

use bytes::Bytes;
use serde_json::{Value, json};

use super::body::event;
use crate::anthropic;
use crate::openai::ApiError;
use crate::openai::response::ApiKind;

/// An error in the middle of a stream, as an event of it.
pub(super) fn stream_event(kind: ApiKind, error: &ApiError) -> Bytes {
    let named = |data: Value| Bytes::from(format!("event: error\ndata: {data}\n\n"));
    match kind {
        ApiKind::Chat | ApiKind::Text => event(&error.body()),
        ApiKind::Messages => named(anthropic::error::body(error)),
        ApiKind::Responses => named(json!({
            "type": "error", "code": error.code, "message": error.message, "param": error.param,
        })),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

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
        check(ApiKind::Chat, "data: ", "/error/message");
        check(ApiKind::Messages, "event: error\ndata: ", "/error/message");
        check(ApiKind::Responses, "event: error\ndata: ", "/message");
    }
}
