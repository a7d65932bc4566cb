//! The key that clients must send: as a bearer token, or as Anthropic's clients send it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};

use super::headers::API_KEY_HEADER;
use crate::gateway::HttpGateway;
use crate::openai::ApiError;

/// Lets requests with the right key through.
pub(super) async fn authorize(
    State(gateway): State<Arc<HttpGateway>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(key) = &gateway.api_key else {
        return next.run(request).await;
    };
    if is_right(request.headers(), key) {
        return next.run(request).await;
    }
    let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY` or \
                   `x-api-key: KEY`";
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
}

fn is_right(headers: &HeaderMap, key: &str) -> bool {
    let bearer =
        headers.get(header::AUTHORIZATION).and_then(|value| bearer_token(value.as_bytes()));
    let api_key = headers.get(API_KEY_HEADER).map(|value| value.as_bytes());
    let mut given = bearer.into_iter().chain(api_key);
    given.any(|given| same_secret(given, key.as_bytes()))
}

/// The token of `Bearer TOKEN`; schemes have no case (RFC 9110, section 11.1).
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
    is_bearer.then(|| token.trim_ascii_start())
}

/// Compares in a time that does not depend on where the two differ.
fn same_secret(given: &[u8], secret: &[u8]) -> bool {
    let differences = given.iter().zip(secret).fold(0, |sum, (a, b)| sum | (a ^ b));
    // `zip` stops at the shorter one: a prefix of the key has no differences, only another length.
    given.len() == secret.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_key_comes_in_either_header_and_the_scheme_in_any_case() {
        let check = |name: &'static str, value: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(is_right(&headers, "k1"), expected, "{name}: {value}");
        };
        check("authorization", "Bearer k1", true);
        check("authorization", "bearer k1", true);
        check("authorization", "BEARER  k1", true);
        check("authorization", "Bearer k2", false);
        check("authorization", "Bearer", false);
        check("authorization", "Bearerk1", false);
        check("authorization", "Basic k1", false);
        check("authorization", "k1", false);
        check("x-api-key", "k1", true);
        check("x-api-key", "k12", false);
        check("x-api-key", "", false);
    }
}
