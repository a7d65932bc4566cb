//! Headers with a meaning of Headstart's own: their names, and the reading and writing of values.

use http::{HeaderMap, HeaderValue};

/// Response header: who computed.
pub const REPLICA_HEADER: &str = "x-headstart-replica";

/// Response header: prompt tokens taken from the cache.
pub const CACHED_HEADER: &str = "x-headstart-cached-tokens";

/// Response header: how much of a prompt's stored prefix was loaded, where that was not all of it:
/// the answer is not what a full computation gives. Request header: `off` asks for what it gives.
pub const IMPORTANCE_HEADER: &str = "x-headstart-importance";

/// Response header: which normalizers changed the request, where some did.
pub const NORMALIZED_HEADER: &str = "x-headstart-normalized";

/// Request header: the conversation, for `session` routing.
pub const SESSION_HEADER: &str = "x-session-id";

/// Request header with the longest time to the first token that the client wants, milliseconds.
pub const SLO_TTFT_HEADER: &str = "x-slo-ttft-ms";

/// Request header: what the client calls the request, to ask for it later.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// Longest client's id that is kept, bytes.
const REQUEST_ID_BYTES: usize = 200;

/// The client's id of its request, if present and short enough.
pub(super) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    (!id.is_empty() && id.len() <= REQUEST_ID_BYTES).then_some(id)
}

/// A header value from digits or a replica's name.
pub(super) fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
}
