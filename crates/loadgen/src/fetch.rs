//! Reads a document that a server offers, piece by piece.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

use crate::LoadgenError;
use crate::client::{headers, refusal};

/// Time to connect and to receive the answer's head, short because a user waits at a terminal.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two pieces: a server that writes a long document does so as fast as it is read.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Gets `path` (which begins with a slash) of the server at `base_url` and passes its body on.
///
/// # Errors
/// [`LoadgenError`] where there is no answer, another status than success, or `write` says so.
pub async fn fetch(
    base_url: &str,
    path: &str,
    api_key: Option<&str>,
    mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<(), LoadgenError> {
    let url = format!("{}{path}", base_url.trim_end_matches('/').trim_end_matches("/v1"));
    let uri: Uri = url.parse().map_err(|error| LoadgenError::Address {
        url: base_url.to_owned(),
        reason: format!("{error}; expected http://host:port"),
    })?;
    if uri.scheme_str() != Some("http") {
        return Err(LoadgenError::Address {
            url: base_url.to_owned(),
            reason: "expected http://host:port".to_owned(),
        });
    }
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(ANSWER_TIMEOUT));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers(api_key)?;
    let timed_out = |after: Duration| LoadgenError::TimedOut { url: url.clone(), after };
    // This covers connecting and the head only; a long body has a limit per piece instead.
    let response = tokio::time::timeout(ANSWER_TIMEOUT, client.request(request)).await;
    let response = response.map_err(|_| timed_out(ANSWER_TIMEOUT))?;
    let response =
        response.map_err(|source| LoadgenError::Unreachable { url: url.clone(), source })?;
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    let mut body = response.into_body();
    loop {
        // The document's length is unknown, so the limit is on a pause and not on the whole.
        let frame = tokio::time::timeout(STALL_TIMEOUT, body.frame()).await;
        let Some(frame) = frame.map_err(|_| timed_out(STALL_TIMEOUT))? else {
            return Ok(());
        };
        let frame = frame.map_err(|source| LoadgenError::BrokenOff { url: url.clone(), source })?;
        // Trailers are no part of the document.
        if let Ok(bytes) = frame.into_data() {
            write(&bytes).map_err(LoadgenError::Output)?;
        }
    }
}
