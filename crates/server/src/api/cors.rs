//! Requests from web pages of other origins (CORS), where the operator allows them.

use std::time::Duration;

use http::{HeaderName, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer, ExposeHeaders};

use super::own_headers::{
    CACHED_HEADER, IMPORTANCE_HEADER, NORMALIZED_HEADER, REPLICA_HEADER, REQUEST_ID_HEADER,
};
use crate::config::Cors;

/// Time for which a browser may cache the answer to a preflight request.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The layer that answers browsers; none when pages of other origins are not allowed.
pub(super) fn layer(cors: &Cors) -> Option<CorsLayer> {
    let origin = match cors {
        Cors::Off => return None,
        Cors::Any => AllowOrigin::any(),
        Cors::Origins(origins) => AllowOrigin::list(origins.iter().cloned()),
    };
    let methods =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    // Scripts of another origin see only the headers that are named here, and a few common ones.
    let exposed = [
        REPLICA_HEADER,
        CACHED_HEADER,
        IMPORTANCE_HEADER,
        NORMALIZED_HEADER,
        REQUEST_ID_HEADER,
        "x-ratelimit-limit-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-requests",
        "x-ratelimit-reset-tokens",
    ];
    let exposed = exposed.into_iter().map(HeaderName::from_static).chain([header::RETRY_AFTER]);
    // The requested headers are mirrored, because a wildcard does not cover `Authorization`.
    let layer = CorsLayer::new()
        .allow_origin(origin)
        .allow_methods(methods)
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(ExposeHeaders::list(exposed))
        .max_age(MAX_AGE);
    Some(layer)
}
