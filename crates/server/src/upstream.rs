//! An engine behind HTTP: requests are passed on as they came, answers as they come.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headstart_prompt::PromptModel;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

use crate::config::UpstreamConfig;

/// Longest wait for a connection: a dead host must not look like a slow one.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Longest wait for an answer to a health check. A busy engine may be slow to answer; a dead
/// one refuses at once.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Request header: gateways that the request has passed.
pub const HOPS_HEADER: &str = "x-headstart-hops";

/// Health checks in a row without an answer after which an upstream counts as dead: a busy
/// engine may miss one or two.
const MISSED_CHECKS: u32 = 3;

/// Largest model list that is read.
const MODELS_BYTES: usize = 1 << 20;

/// One upstream engine.
pub struct Upstream {
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Its tokenizer and template, when its prompts are to be routed by prefix.
    pub prompt: Option<PromptModel>,
    models: Mutex<Vec<String>>,
    missed_checks: AtomicU32,
}

/// Why an upstream could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It cannot be reached, or the connection broke before the answer.
    #[error("{base} cannot be reached: {source}")]
    Unreachable {
        /// The upstream.
        base: String,
        /// The cause.
        source: hyper_util::client::legacy::Error,
    },
    /// It took too long.
    #[error("{base} did not answer within {seconds} s")]
    TimedOut {
        /// The upstream.
        base: String,
        /// The limit.
        seconds: u64,
    },
    /// Its address is not one.
    #[error("`{url}` is not an upstream address ({reason}); use http://host:port")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong.
        reason: String,
    },
}

impl Upstream {
    /// For `config`, with `prompt` read from its tokenizer folder.
    ///
    /// # Errors
    /// When the URL is none, or not plain HTTP.
    pub fn new(
        config: &UpstreamConfig,
        prompt: Option<PromptModel>,
    ) -> Result<Self, UpstreamError> {
        let base = config
            .url
            .trim_end_matches('/')
            .trim_end_matches("/v1")
            .to_owned();
        let wrong = |reason: String| UpstreamError::Address {
            url: config.url.clone(),
            reason,
        };
        let uri: Uri = base.parse().map_err(|error| wrong(format!("{error}")))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(wrong("only plain http is spoken to engines".to_owned()));
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self {
            base,
            client,
            prompt,
            models: Mutex::default(),
            missed_checks: AtomicU32::new(0),
        })
    }

    /// Its address.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The models it said it serves; empty before it was asked.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        self.models
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Passes a request on; the answer's body is still to come. Of the client's headers only
    /// `authorization` and what is meant for engines goes with it.
    ///
    /// # Errors
    /// When there is no answer within `limit`.
    pub async fn forward(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
        limit: Duration,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let mut request = self.request(Method::POST, path, body);
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/json"),
        );
        for name in [
            "authorization",
            "x-request-id",
            "x-data-parallel-rank",
            "x-session-id",
            HOPS_HEADER,
        ] {
            if let Some(value) = headers.get(name) {
                request
                    .headers_mut()
                    .insert(http::HeaderName::from_static(name), value.clone());
            }
        }
        self.send(request, limit).await
    }

    /// Whether it is alive. Asks for its models the first time that it is.
    pub async fn is_alive(&self) -> bool {
        let request = self.request(Method::GET, "/health", Bytes::new());
        let alive = match self.send(request, HEALTH_TIMEOUT).await {
            Ok(response) => response.status().is_success(),
            // Too busy to answer once is not dead.
            Err(UpstreamError::TimedOut { .. }) => {
                return self.missed_checks.fetch_add(1, Relaxed) + 1 < MISSED_CHECKS;
            }
            Err(_) => false,
        };
        self.missed_checks.store(0, Relaxed);
        if !alive {
            // Whoever answers here next may serve another model.
            self.set_models(Vec::new());
        }
        if alive && self.models().is_empty() {
            self.ask_models().await;
        }
        alive
    }

    async fn ask_models(&self) {
        let request = self.request(Method::GET, "/v1/models", Bytes::new());
        let Ok(response) = self.send(request, HEALTH_TIMEOUT).await else {
            return;
        };
        let body = Limited::new(response.into_body(), MODELS_BYTES).collect();
        let Ok(Ok(body)) = tokio::time::timeout(HEALTH_TIMEOUT, body).await else {
            return;
        };
        let json: serde_json::Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let names = json["data"].as_array().into_iter().flatten();
        let names = names
            .filter_map(|model| model["id"].as_str().map(str::to_owned))
            .collect();
        self.set_models(names);
    }

    fn set_models(&self, names: Vec<String>) {
        *self.models.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        request
            .body(Full::new(body))
            .expect("the base address was checked")
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let base = || self.base.clone();
        match tokio::time::timeout(limit, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) => Err(UpstreamError::Unreachable {
                base: base(),
                source,
            }),
            Err(_) => Err(UpstreamError::TimedOut {
                base: base(),
                seconds: limit.as_secs(),
            }),
        }
    }
}
