//! Headers that cross the gateway: all end-to-end headers, in both directions. Headers of a single
//! connection do not (RFC 9110, section 7.6.1), nor do a few that the gateway answers for.

use http::header::{self, HeaderMap, HeaderName};

use crate::gateway::HttpGateway;

/// Headers of one connection.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers of a request that describe the body as it came, or the address that was called.
const REQUEST_FRAMING: [HeaderName; 4] =
    [header::HOST, header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::EXPECT];

/// Anthropic's clients send their key in this header.
pub(super) const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// Headers between a client or an engine and its proxy.
const PROXY_PREFIX: &str = "proxy-";

/// Headers of an answer by which an engine opens itself to web pages. Behind a gateway the gateway
/// decides about that.
const CORS_PREFIX: &str = "access-control-";

/// Returns the client's headers that the engine gets. The client's key is removed if the gateway
/// has a key of its own.
pub(super) fn to_engine(gateway: &HttpGateway, client: &HeaderMap) -> HeaderMap {
    let mut headers = client.clone();
    remove_hop_by_hop(&mut headers);
    for name in REQUEST_FRAMING {
        headers.remove(name);
    }
    // The key is the gateway's own; the engines must not see it.
    if gateway.api_key.is_some() {
        headers.remove(header::AUTHORIZATION);
        headers.remove(API_KEY_HEADER);
    }
    headers
}

/// Returns the engine's headers that the client gets.
pub(super) fn to_client(engine: &HeaderMap) -> HeaderMap {
    let mut headers = engine.clone();
    remove_hop_by_hop(&mut headers);
    // The body is framed again on the client's connection.
    headers.remove(header::CONTENT_LENGTH);
    remove_prefix(&mut headers, CORS_PREFIX);
    headers
}

fn remove_prefix(headers: &mut HeaderMap, prefix: &str) {
    let is_one = |name: &&HeaderName| name.as_str().starts_with(prefix);
    let names: Vec<HeaderName> = headers.keys().filter(is_one).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // `Connection` names further headers that are for this connection only.
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
    remove_prefix(headers, PROXY_PREFIX);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let answer = map(&[
            ("connection", "close, X-Of-This-Hop"),
            ("x-of-this-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("trailer", "x"),
            ("proxy-authenticate", "Basic"),
            ("upgrade", "h2c"),
            ("content-length", "5"),
            ("access-control-allow-origin", "*"),
            ("content-encoding", "gzip"),
            ("x-ratelimit-remaining-tokens", "7"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("retry-after", "3"),
        ]);
        let passed = to_client(&answer);
        let mut names: Vec<_> = passed.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let expected = [
            "content-encoding",
            "retry-after",
            "set-cookie",
            "set-cookie",
            "x-ratelimit-remaining-tokens",
        ];
        assert_eq!(names, expected);
    }
}
