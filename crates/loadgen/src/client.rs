//! One completion: sent, streamed back, timed.
//!
//! Both times start when the request is handed to the connection pool, so the first request
//! includes connecting. TTFT ends with the first event that carries text (not the one that only
//! names the role), E2E with the last event.
//!
//! Plain HTTP only: what is measured stands near, and TLS would be measured along.

use std::error::Error;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headstart_core::TokenId;
use headstart_trace::format::conversation::Turn;
use headstart_trace::materialize::TokenPrompt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::answer::{RequestInterval, StreamedAnswer};
use crate::{LoadgenError, sse, wire};

/// Time to connect: a server that is there accepts in milliseconds, even across a continent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a whole answer unless told otherwise: a long prompt on a CPU, behind a queue.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Time between the last event and the end of its body. Behind it the connection can be used
/// again; a server that keeps it open costs a new connection, not a failed request. No request of
/// the same conversation goes out meanwhile, so that server extends shorter think times to this.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Idle connections kept: one per conversation of the largest closed loop that makes sense
/// from one process.
const IDLE_CONNECTIONS: usize = 1024;

/// Time that an idle connection is kept: less than the five seconds after which uvicorn, under
/// most Python servers, closes it; a request must not meet that moment.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Largest error body that is read: error bodies are one sentence, rarely an HTML page.
const ERROR_BODY_LIMIT_BYTES: usize = 64 << 10;

/// Time for an error body: a server sends it together with the status, so a late one never comes.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the tokens of a prompt.
const TOKENIZE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest list of tokens that is read: a million, with room.
const TOKENS_LIMIT_BYTES: usize = 32 << 20;

/// Header in which a Headstart gateway names the chosen replica.
const REPLICA_HEADER: &str = "x-headstart-replica";

/// Messages and how to answer them.
#[derive(Clone, Copy, Debug)]
pub struct ChatApiRequest<'a> {
    /// The messages, oldest first.
    pub messages: &'a [Turn],
    /// Longest answer, tokens.
    pub max_tokens: u32,
    /// Prompts under different salts share no cache; `None`: the field is not sent.
    pub cache_salt: Option<&'a str>,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The answer.
    pub text: String,
    /// Time to the first text; to the end when there was none.
    pub ttft: Duration,
    /// Time to the last event.
    pub e2e: Duration,
    /// When the last event came. The call may return later, at the end of the body.
    pub ended: Instant,
    /// Prompt length as the server counts it, tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens that the server found in its cache, at most `prompt_tokens`; 0 when it does
    /// not say.
    pub cached_tokens: u32,
    /// Answer length as the server counts it, tokens.
    pub output_tokens: u32,
    /// Why the answer ended: `stop`, `length` …
    pub finish_reason: String,
    /// Replica that answered, if the server names replicas.
    pub replica: Option<String>,
}

/// A client of one model at one endpoint. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct ApiClient {
    http: Client<HttpConnector, Full<Bytes>>,
    chat: Uri,
    completions: Uri,
    tokenize: Uri,
    model: String,
    headers: HeaderMap,
    request_timeout: Duration,
}

impl ApiClient {
    /// A client of `base_url` (`http://host:port`, with or without `/v1`). Connects on use.
    ///
    /// # Errors
    /// [`LoadgenError::Address`] unless `base_url` is an `http` address, [`LoadgenError::ApiKey`]
    /// for a key that no header can carry.
    pub fn new(base_url: &str, model: &str, api_key: Option<&str>) -> Result<Self, LoadgenError> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // Nagle's algorithm could hold back the end of a request, and the delay would count as
        // TTFT.
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new())
            // Without a timer the pool cannot close idle connections in the background.
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self {
            http,
            chat: endpoint(base_url, "chat/completions")?,
            completions: endpoint(base_url, "completions")?,
            tokenize: tokenize_endpoint(base_url)?,
            model: model.to_owned(),
            headers: headers(api_key)?,
            request_timeout: REQUEST_TIMEOUT,
        })
    }

    /// The same client with `limit` for a whole answer instead of ten minutes.
    #[must_use]
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// Sends one conversation and waits for the end of the answer. Never retries: a retry would
    /// hide in the times.
    ///
    /// # Errors
    /// [`LoadgenError`] for everything but a complete answer with its token counts.
    pub async fn chat(&self, request: &ChatApiRequest<'_>) -> Result<Completion, LoadgenError> {
        let body = wire::chat_body(&self.model, request);
        self.answer(&self.chat, body).await
    }

    /// The same for a prompt of token ids, with an answer of a forced length.
    ///
    /// # Errors
    /// As [`Self::chat`].
    pub async fn complete(&self, prompt: &TokenPrompt) -> Result<Completion, LoadgenError> {
        self.complete_salted(prompt, None).await
    }

    /// The same under a salt: prompts under different salts share no cache.
    ///
    /// # Errors
    /// As [`Self::chat`].
    pub async fn complete_salted(
        &self,
        prompt: &TokenPrompt,
        cache_salt: Option<&str>,
    ) -> Result<Completion, LoadgenError> {
        let body = wire::completion_body(&self.model, prompt, cache_salt);
        self.answer(&self.completions, body).await
    }

    /// The tokens that the server makes of a prompt (`POST /tokenize`, as vLLM has it). `prompt`
    /// has the fields of such a call but for the model: `messages` with `tools`, or `prompt`.
    ///
    /// # Errors
    /// [`LoadgenError`] for everything but a list of token ids.
    pub async fn tokenize(
        &self,
        mut prompt: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Vec<TokenId>, LoadgenError> {
        prompt.insert("model".to_owned(), self.model.clone().into());
        let body = serde_json::Value::Object(prompt).to_string().into();
        let answer = self.post(&self.tokenize, body);
        let timed_out =
            |_| LoadgenError::TimedOut { url: self.tokenize.to_string(), after: TOKENIZE_TIMEOUT };
        let answer = tokio::time::timeout(TOKENIZE_TIMEOUT, async {
            let body = Limited::new(answer.await?.into_body(), TOKENS_LIMIT_BYTES);
            let body = body.collect().await;
            body.map_err(|error| LoadgenError::NoTokens { reason: error.to_string() })
        });
        wire::tokens(&answer.await.map_err(timed_out)??.to_bytes())
    }

    async fn answer(&self, endpoint: &Uri, body: Bytes) -> Result<Completion, LoadgenError> {
        let answer = self.send(endpoint, body);
        // One limit for connecting, waiting and reading: a server that trickles events runs out of
        // it too.
        match tokio::time::timeout(self.request_timeout, answer).await {
            Ok(completion) => completion,
            Err(_) => Err(LoadgenError::TimedOut {
                url: endpoint.to_string(),
                after: self.request_timeout,
            }),
        }
    }

    /// Posts a body; an answer with an error status is an error.
    async fn post(&self, endpoint: &Uri, body: Bytes) -> Result<Response<Incoming>, LoadgenError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        let response = self.http.request(request).await;
        let response = response
            .map_err(|source| LoadgenError::Unreachable { url: endpoint.to_string(), source })?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        Ok(response)
    }

    async fn send(&self, endpoint: &Uri, body: Bytes) -> Result<Completion, LoadgenError> {
        let sent = Instant::now();
        let response = self.post(endpoint, body).await?;
        let replica = response.headers().get(REPLICA_HEADER);
        let replica = replica.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let (answer, ended) = read(endpoint, response.into_body()).await?;
        answer.finish(RequestInterval { sent, ended }, replica)
    }
}

/// Reads events to the last one; returns the answer and when that one came.
async fn read(
    endpoint: &Uri,
    mut body: Incoming,
) -> Result<(StreamedAnswer, Instant), LoadgenError> {
    let mut answer = StreamedAnswer::default();
    let mut decoder = sse::Decoder::default();
    while let Some(frame) = body.frame().await {
        // One time per frame and before decoding: all events of a frame arrived together.
        let now = Instant::now();
        let frame = frame
            .map_err(|source| LoadgenError::BrokenOff { url: endpoint.to_string(), source })?;
        // Trailers hold no events.
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        let payloads = decoder.feed(&bytes);
        let payloads = payloads.map_err(|sse::EventTooLong| LoadgenError::Malformed {
            reason: format!("an event is longer than {} bytes", sse::EVENT_LIMIT_BYTES),
        })?;
        for payload in payloads {
            if let ControlFlow::Break(()) = answer.apply(&payload, now)? {
                drain(body).await;
                return Ok((answer, now));
            }
        }
    }
    // Some servers end a stream without `[DONE]`; `finish` then judges by the reason and the usage.
    Ok((answer, Instant::now()))
}

/// Waits for the end of a body whose events are all known.
async fn drain(mut body: Incoming) {
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    // Late or broken: the connection is dropped with the body, the answer stands.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, end).await;
}

/// Makes an error of an answer with an error status, with the words of its body if they arrive.
pub(crate) async fn refusal(response: Response<Incoming>) -> LoadgenError {
    refusal_within(response, ERROR_BODY_TIMEOUT).await
}

async fn refusal_within<B>(response: Response<B>, limit: Duration) -> LoadgenError
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ERROR_BODY_LIMIT_BYTES);
    // The status is known already, so a body that does not end costs its words and not the error.
    let unread = match tokio::time::timeout(limit, body.collect()).await {
        Ok(Ok(body)) => return wire::refusal(status, &body.to_bytes()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not ended after {} s", limit.as_secs_f64()),
    };
    wire::refusal(status, format!("no readable body ({unread})").as_bytes())
}

fn endpoint(base_url: &str, route: &str) -> Result<Uri, LoadgenError> {
    address(base_url, &format!("v1/{route}"))
}

/// Engines have this route outside `/v1`.
fn tokenize_endpoint(base_url: &str) -> Result<Uri, LoadgenError> {
    address(base_url, "tokenize")
}

fn address(base_url: &str, path: &str) -> Result<Uri, LoadgenError> {
    let reject = |reason: String| LoadgenError::Address { url: base_url.to_owned(), reason };
    let base = base_url.trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let uri: Uri = format!("{base}/{path}")
        .parse()
        .map_err(|error| reject(format!("{error}; expected http://host:port")))?;
    match uri.scheme_str() {
        Some("http") => Ok(uri),
        Some("https") => Err(reject(
            "https is not supported; use http, through a proxy that speaks TLS if need be".into(),
        )),
        _ => Err(reject("expected http://host:port".into())),
    }
}

pub(crate) fn headers(api_key: Option<&str>) -> Result<HeaderMap, LoadgenError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(key) = api_key {
        let bearer = HeaderValue::try_from(format!("Bearer {key}"));
        let mut bearer = bearer.map_err(|_| LoadgenError::ApiKey)?;
        // A sensitive value is left out of `Debug` output, so the key reaches no log.
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[tokio::test]
    async fn an_error_body_that_never_ends_is_given_up() {
        let endless = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut response = Response::new(endless);
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        let error = refusal_within(response, Duration::ZERO).await.to_string();
        assert_eq!(error, "HTTP status 503: no readable body (not ended after 0 s)");
    }

    fn check(base_url: &str, expected: Result<&str, &str>) {
        match (endpoint(base_url, "chat/completions"), expected) {
            (Ok(uri), Ok(expected)) => assert_eq!(uri, expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn only_http_addresses_are_taken() {
        let local = Ok("http://127.0.0.1:8000/v1/chat/completions");
        check("http://127.0.0.1:8000", local);
        check("http://127.0.0.1:8000/", local);
        check("http://127.0.0.1:8000/v1", local);
        check("http://a/llm/v1/", Ok("http://a/llm/v1/chat/completions"));
        check("https://a", Err("https is not supported"));
        check("127.0.0.1:8000", Err("expected http://host:port"));
        check("localhost", Err("expected http://host:port"));
        check("", Err("expected http://host:port"));
        check("http://a b", Err("expected http://host:port"));
    }
}
