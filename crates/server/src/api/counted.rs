//! Error counts of clients' API requests, all of them `POST`. Operators' pages do not count, nor do
//! statuses 401, 404 and 405 on paths of no known API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use headstart_index_sync::clock::unix_seconds;
use http::{Method, StatusCode};

use super::own_headers::request_id;
use crate::dashboard::FailedRequest;
use crate::gateway::HttpGateway;
use crate::openai::ApiError;

/// Pages and figures for operators, and what lies below these.
const OPERATORS: [&str; 7] =
    ["/dashboard", "/debug", "/docs", "/favicon.ico", "/health", "/metrics", "/openapi.json"];

/// Routes as rows of requests name them.
const ROUTES: [&str; 10] = [
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/rerank",
    "/v1/responses",
    "/tokenize",
];

/// Middleware: counts errors, and keeps the last ones for the dashboard.
pub(super) async fn errors(
    State(gateway): State<Arc<HttpGateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route =
        (request.method() == Method::POST).then(|| ClientRoute::by(request.uri().path())).flatten();
    let Some(asked) = route else {
        return next.run(request).await;
    };
    let counter = ErrorCounter {
        route: asked.route,
        request_id: request_id(request.headers()).map(str::to_owned),
    };
    // A stream may fail long after its head was sent with a success.
    request.extensions_mut().insert(counter.clone());
    let response = next.run(request).await;
    let status = response.status();
    if asked.is_error(status) {
        let error = response.extensions().get::<ApiError>();
        counter.note(&gateway, status, error.map(|error| error.code));
    }
    response
}

/// A request extension: counts an error of the request, be it in the middle of its answer.
#[derive(Clone, Debug)]
pub(super) struct ErrorCounter {
    route: &'static str,
    request_id: Option<String>,
}

impl ErrorCounter {
    /// The answer began well, and broke off with `error`.
    pub(super) fn broke_off(&self, gateway: &HttpGateway, error: &ApiError) {
        self.note(gateway, error.status, Some(error.code));
    }

    fn note(&self, gateway: &HttpGateway, status: StatusCode, code: Option<&'static str>) {
        let errors = &gateway.metrics.requests.errors;
        errors.with_label_values(&[status.as_str()]).inc();
        gateway.dashboard.failures.note(FailedRequest {
            request_id: self.request_id.clone(),
            at_unix_s: unix_seconds(),
            status: status.as_u16(),
            code,
            route: self.route,
        });
    }
}

/// Route of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientRoute {
    /// Its route, without what a client may have put there.
    route: &'static str,
    /// Whether its path is an API's for certain: an engine may have others.
    is_api: bool,
}

impl ClientRoute {
    /// None of what is not a client's request to an API.
    fn by(path: &str) -> Option<Self> {
        let is_below = |parent: &str| {
            let rest = path.strip_prefix(parent);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if path == "/" || OPERATORS.iter().any(|parent| is_below(parent)) {
            return None;
        }
        let known = ROUTES.iter().find(|route| **route == path);
        Some(Self {
            route: known.copied().unwrap_or("another route"),
            is_api: known.is_some() || path.starts_with("/v1/"),
        })
    }

    fn is_error(self, status: StatusCode) -> bool {
        // On a path of no known API these say that a scanner asked for other software.
        let is_elsewhere = matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        (status.is_client_error() || status.is_server_error()) && (self.is_api || !is_elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_to_api_requests_are_errors() {
        for path in ["/", "/dashboard/events", "/debug/requests/x", "/docs", "/favicon.ico"] {
            assert_eq!(ClientRoute::by(path), None, "{path}");
        }
        let check = |path: &str, status: u16, is_error: bool| {
            let status = StatusCode::from_u16(status).expect("a status");
            let asked = ClientRoute::by(path).expect("a client's");
            assert_eq!(asked.is_error(status), is_error, "{path} {status}");
        };
        check("/v1/chat/completions", 401, true);
        check("/v1/chat/completions", 200, false);
        check("/v1/models/a%20secret/unload", 404, true);
        check("/wp-login.php", 404, false);
        check("/wp-login.php", 401, false);
        check("/classify", 503, true);
        let asked = ClientRoute::by("/v1/models/a%20secret/unload").expect("a client's");
        assert_eq!(asked.route, "another route");
    }
}
