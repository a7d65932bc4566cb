//! An engine behind HTTP: requests are passed on as they came, answers as they come.
//!
//! It does not know which engine is chosen, nor what follows from one that does not answer; whether
//! it is alive is found in `health`.

mod health;
mod load;
mod render;

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headstart_core::ReplicaId;
use headstart_prompt::{Dialect, PromptModel};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{Notify, watch};

use crate::config::UpstreamConfig;
use crate::lock::lock;

/// Longest wait for a connection: a dead host must not look like a slow one.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Age of an idle connection that is used again at most: uvicorn, which serves vLLM and SGLang,
/// closes them after five seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Idle connections that are kept for the next requests, per engine: each is an open file.
pub(crate) const IDLE_CONNECTIONS: usize = 64;

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

/// Age at which the list is read again: models and adapters come and go at run time.
const MODELS_AGE: Duration = Duration::from_secs(5);

/// Longest wait for an engine's metrics: what is older says little.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest page of metrics that is read; vLLM's have some 100 KiB.
const METRICS_BYTES: usize = 4 << 20;

/// Request header by which a caller names the data-parallel rank that is to serve it. Source:
/// vLLM's OpenAI entry points; SGLang reads the same since its #19832.
pub const RANK_HEADER: &str = "x-data-parallel-rank";

pub(crate) use health::root_cause;
pub use load::EngineLoad;
pub use render::RenderedPrompt;

/// One upstream engine, or one data-parallel rank of it: ranks share everything but their number.
pub struct Upstream {
    engine: Arc<UpstreamEngine>,
    rank: Option<u32>,
    /// Its tokenizer and template, when its prompts are to be routed by prefix.
    pub prompt: Option<Arc<PromptModel>>,
}

/// State of the engine behind one address.
struct UpstreamEngine {
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    models: Mutex<Vec<ServedModel>>,
    /// Start of the last question for them that came to its end.
    models_read: Mutex<Option<Instant>>,
    missed_checks: AtomicU32,
    /// The engine's way to prepare chat requests, if known.
    dialect: Mutex<Option<Dialect>>,
    /// Whether it has no route that renders requests, as far as is known.
    has_no_render: AtomicBool,
    /// Why it last was no good.
    trouble: Mutex<String>,
    /// Whether the router takes it for dead.
    is_down: watch::Sender<bool>,
    /// Told when its health is to be looked at, before it is time.
    look: Notify,
}

/// A request as an engine gets it.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path with the query: it begins with `/`, and a URI has been made of it before.
    pub path: &'a str,
    /// Its headers, without those of the client's connection.
    pub headers: &'a HeaderMap,
    /// Its body, without a content encoding.
    pub body: Bytes,
}

/// The replicas that are ranks of the same engine as `replica`, itself among them.
pub fn of_same_engine(
    upstreams: &[Upstream],
    replica: ReplicaId,
) -> impl Iterator<Item = ReplicaId> {
    let engine = &upstreams[replica.0 as usize].engine;
    let replicas = (0..).map(ReplicaId).zip(upstreams);
    let same = replicas.filter(move |(_, upstream)| Arc::ptr_eq(&upstream.engine, engine));
    same.map(|(id, _)| id)
}

/// The first of the replicas that are ranks of the same engine as `replica`.
#[must_use]
pub fn first_of_engine(upstreams: &[Upstream], replica: ReplicaId) -> ReplicaId {
    let first = of_same_engine(upstreams, replica).next();
    first.expect("a replica is one of its own engine")
}

/// A model as an upstream lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServedModel {
    name: String,
    /// A LoRA adapter on another model, in vLLM's list one with a parent: its keys and values are
    /// its own.
    is_adapter: bool,
    /// Tokens of prompt and answer together, where the list says (`max_model_len`).
    context: Option<usize>,
    /// Owner of the model; engines write their own name there.
    owner: Option<String>,
}

/// Why an upstream could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It cannot be reached, or the connection broke before the answer.
    #[error("{base} cannot be reached: {}", health::root_cause(source))]
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
        /// The given URL.
        url: String,
        /// The problem with the URL.
        reason: String,
    },
}

impl Upstream {
    /// For `config`, with `prompt` read from its tokenizer folder.
    ///
    /// # Errors
    /// When the URL is invalid, or not plain HTTP.
    pub fn new(
        config: &UpstreamConfig,
        prompt: Option<Arc<PromptModel>>,
    ) -> Result<Self, UpstreamError> {
        // OpenAI's clients write the base URL with `/v1`.
        let base = config.url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let wrong = |reason: String| UpstreamError::Address { url: config.url.clone(), reason };
        let uri: Uri = base.parse().map_err(|error| wrong(format!("{error}")))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(wrong("only plain http is spoken to engines".to_owned()));
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if let Some((_, host)) = authority.rsplit_once('@') {
            // It would appear in metrics.
            return Err(UpstreamError::Address {
                url: format!("http://…@{host}"),
                reason: "a user and a password are sent to no engine".to_owned(),
            });
        }
        // A port beyond 65535 reads as no port, and requests would go to port 80.
        if uri.port_u16().is_none() && uri.host() != Some(authority) {
            return Err(wrong("its port is not one from 0 to 65535".to_owned()));
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Self {
            engine: Arc::new(UpstreamEngine {
                base,
                client,
                models: Mutex::default(),
                models_read: Mutex::default(),
                missed_checks: AtomicU32::new(0),
                dialect: Mutex::default(),
                has_no_render: AtomicBool::new(false),
                trouble: Mutex::default(),
                is_down: watch::Sender::new(false),
                look: Notify::new(),
            }),
            rank: None,
            prompt,
        })
    }

    /// The same engine, whose rank `rank` is to serve what is passed on to it; whichever the
    /// engine likes, without one.
    #[must_use]
    pub fn of_rank(&self, rank: Option<u32>) -> Self {
        Self { engine: self.engine.clone(), rank, prompt: self.prompt.clone() }
    }

    /// Its address.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.engine.base
    }

    /// The data-parallel rank that serves, where the engine has several.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// The models it said it serves; empty before it was asked.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        let models = self.lock_models();
        models.iter().map(|model| model.name.clone()).collect()
    }

    /// Whether it serves `model` as an adapter on another one.
    #[must_use]
    pub fn is_adapter(&self, model: &str) -> bool {
        let models = self.lock_models();
        models.iter().any(|served| served.is_adapter && served.name == model)
    }

    /// Tokens of prompt and answer together that it takes for `model`, where it says.
    #[must_use]
    pub fn context(&self, model: &str) -> Option<usize> {
        let models = self.lock_models();
        let served = models.iter().find(|served| served.name == model);
        served.and_then(|served| served.context)
    }

    fn lock_models(&self) -> MutexGuard<'_, Vec<ServedModel>> {
        lock(&self.engine.models)
    }

    /// Whether it said what it serves, and `model` is not among it.
    #[must_use]
    pub fn lacks(&self, model: &str) -> bool {
        let models = self.lock_models();
        !models.is_empty() && !models.iter().any(|served| served.name == model)
    }

    /// Passes a request on as it is; the answer's body is still to come.
    ///
    /// # Errors
    /// When there is no answer within `limit`.
    pub async fn forward(
        &self,
        outgoing: &Outgoing<'_>,
        limit: Duration,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let body = outgoing.body.clone();
        let mut request = self.request(outgoing.method.clone(), outgoing.path, body);
        *request.headers_mut() = outgoing.headers.clone();
        if let Some(rank) = self.rank {
            // Chosen here, whatever the client asked for.
            request.headers_mut().insert(RANK_HEADER, rank.into());
        }
        self.send(request, limit).await
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.engine.base));
        request.body(Full::new(body)).expect("the base address was checked")
    }

    /// The body of a GET that succeeds within `limit` and has at most `bytes` bytes.
    async fn get(&self, path: &str, limit: Duration, bytes: usize) -> Option<Bytes> {
        let request = self.request(Method::GET, path, Bytes::new());
        let response = self.send(request, limit).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        whole_body(response, limit, bytes).await
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let base = || self.engine.base.clone();
        match tokio::time::timeout(limit, self.engine.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) => Err(UpstreamError::Unreachable { base: base(), source }),
            Err(_) => Err(UpstreamError::TimedOut { base: base(), seconds: limit.as_secs() }),
        }
    }
}

/// The body of a response, if it comes within `limit` and has at most `bytes` bytes.
async fn whole_body(response: Response<Incoming>, limit: Duration, bytes: usize) -> Option<Bytes> {
    let body = Limited::new(response.into_body(), bytes).collect();
    Some(tokio::time::timeout(limit, body).await.ok()?.ok()?.to_bytes())
}
