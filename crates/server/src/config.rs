//! Server configuration and all limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::Tiers;
use headstart_core::{BlockMover, EngineModel};
use headstart_engine::importance::ImportanceConfig;
use headstart_engine::{EngineConfig, LanguageModel};
use headstart_index_sync::shared::SharedServer;
use headstart_insight::prices::PriceTable;
use headstart_prompt::{Normalizers, PromptModel};
use headstart_router::Profile;
use http::HeaderValue;

use crate::metrics::TierReport;
use crate::prediction::PredictionConfig;
use crate::replica::ReplicaWaker;
use crate::shadow::ShadowConfig;

/// All settings of a server, validated by the code that builds it.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Listen address; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Clients must send it as a bearer token.
    pub api_key: Option<String>,
    /// Routing strategy.
    pub profile: Profile,
    /// Fixes the router's random choices.
    pub seed: u64,
    /// Fixes the keys of the router's index, to compare a dump with an engine's events. Otherwise
    /// they are random, and kept in the state folder if there is one.
    pub index_secret: Option<u64>,
    /// Folder in which the router's index is kept from one start to the next; only in front of
    /// upstreams.
    pub state_dir: Option<PathBuf>,
    /// Server through which gateways in front of the same upstreams share their index.
    pub shared_index: Option<SharedServer>,
    /// Costs and limits of the engines, if known; used by `cost`. An emulated fleet uses those of
    /// its emulated engine.
    pub engine_model: Option<EngineModel>,
    /// The engines: replicas in this process, or upstreams.
    pub backend: EngineBackend,
    /// Token prices, to count the money that caches save.
    pub prices: Option<PriceTable>,
    /// Shadow mode, which simulates other strategies and cache sizes beside one upstream.
    pub shadow: Option<ShadowConfig>,
    /// The collector that spans of requests go to, `http://host:port`, if they do.
    pub otlp: Option<String>,
    /// Whether requests are explained: what became of their tokens, and why.
    pub insight: bool,
    /// Rewrites applied to requests before anything else; none by default.
    pub normalizers: Normalizers,
    /// Whether requests tell the policies inside upstream engines their kind, turn and session.
    pub has_engine_hints: bool,
    /// The limits.
    pub limits: EdgeLimits,
    /// CORS and admin-route settings.
    pub edge: Edge,
    /// Names of prefixes on the dashboard.
    pub labels: Vec<PrefixLabel>,
}

/// A prefix and its name.
#[derive(Clone)]
pub struct PrefixLabel {
    /// Its name.
    pub name: String,
    /// A system prompt, or the start of a plain prompt.
    pub text: String,
}

impl std::fmt::Debug for PrefixLabel {
    /// Without the text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PrefixLabel").field(&self.name).finish()
    }
}

/// Settings of the HTTP edge: CORS and admin routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Web pages that may call the API, by origin.
    pub cors: Cors,
    /// Whether requests that administer an engine (sleep, reset, profile) pass to it.
    pub pass_admin_routes: bool,
}

/// Origins of web pages that may call the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// None of another origin: browsers keep answers from them.
    #[default]
    Off,
    /// These origins, such as `https://chat.example.com`.
    Origins(Vec<HeaderValue>),
    /// All.
    Any,
}

/// The engines behind the API.
#[derive(Clone, Debug)]
pub enum EngineBackend {
    /// Replicas in this process.
    Embedded(Box<EmbeddedFleet>),
    /// Engines behind HTTP; at least one.
    Upstreams(Vec<UpstreamConfig>),
}

/// Replicas in this process: one model, one compute pool, a KV pool each.
#[derive(Clone, Debug)]
pub struct EmbeddedFleet {
    /// The weights, shared.
    pub model: Arc<LanguageModel>,
    /// Tokenizer and chat template.
    pub prompt: Arc<PromptModel>,
    /// The model's name in the API.
    pub name: String,
    /// Number of replicas.
    pub replicas: usize,
    /// Limits of each.
    pub engine: EngineConfig,
    /// The engine that is played in place of computing, where one is.
    pub emulated: Option<Box<EngineModel>>,
    /// Eviction policy, by name.
    pub policy: String,
    /// Folder, which no other process uses, for what the policies have learned. It exists.
    pub learned_tables: Option<PathBuf>,
    /// Predictor of whether conversations continue, if there is one.
    pub prediction: Option<PredictionConfig>,
    /// Base port of KV events on loopback: replica `i` publishes on this port + 2 · `i` and
    /// replays on the next port. `None` picks free ports.
    pub kv_events_port: Option<u16>,
    /// Its lower tiers, if it has any.
    pub tiers: Option<TiersOf>,
}

/// The lower tiers of replicas.
#[derive(Clone)]
pub struct TiersOf {
    /// Makes those of a replica, by its number, which may call the waker when something was moved.
    /// The error says why there are none.
    pub make: Arc<MakeTiers>,
    /// Settings for partial loading of stored prefixes, if enabled.
    pub importance: Option<Arc<ImportanceConfig>>,
    /// Reports on the tiers that all replicas share; empty before one is open.
    pub reports: Arc<TierReports>,
}

/// See [`TiersOf`].
pub type MakeTiers =
    dyn Fn(u32, ReplicaWaker) -> Result<(Tiers, Box<dyn BlockMover>), String> + Send + Sync;

/// See [`TiersOf`].
pub type TierReports = dyn Fn() -> Vec<TierReport> + Send + Sync;

impl std::fmt::Debug for TiersOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TiersOf")
    }
}

/// One engine behind HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// `http://host:port`, without `/v1`.
    pub url: String,
    /// Its KV events, `tcp://host:port`.
    pub kv_events: Option<String>,
    /// Replay address for missed events, `tcp://host:port`.
    pub kv_replay: Option<String>,
    /// Its data-parallel ranks, each with a cache and an event stream of its own, on the ports
    /// from rank 0's upwards; 1 where it has none.
    pub data_parallel_size: u32,
    /// Folder with its `tokenizer.json`: without it, prompts are routed by their text.
    pub tokenizer: Option<PathBuf>,
}

/// Every limit of the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Largest request body.
    pub body_bytes: usize,
    /// Longest wait for a request's head, on a new connection and on one that is kept open.
    pub head_timeout: Duration,
    /// Longest wait for a request's body.
    pub read_timeout: Duration,
    /// Longest wait for a client to take the next piece of its answer.
    pub stall_timeout: Duration,
    /// Bytes of answers that the system holds for one connection: what a stalled client costs.
    pub send_buffer_bytes: u32,
    /// Most connections at once; further ones wait to be accepted. As many as the limit of open
    /// files allows, up to some thousands, where none is given.
    pub connections: Option<usize>,
    /// Longest wait for running requests at shutdown.
    pub drain_timeout: Duration,
    /// Longest wait for a replica's first token, or the first bytes of an upstream's answer.
    pub first_token_timeout: Duration,
    /// Longest silence of an upstream between two pieces of its answer.
    pub silence_timeout: Duration,
    /// Pause between two looks at an upstream's health; a dead one is noticed within two.
    pub health_interval: Duration,
    /// Pause between two looks at an upstream's load.
    pub load_interval: Duration,
    /// Pause between two saves of the index: what is lost when the process is killed.
    pub save_interval: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            // A million tokens of text are some 4 MiB.
            body_bytes: 16 << 20,
            // Any client sends its head at once; what does not is a connection that holds a place.
            head_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
            // Some thousand pieces of a stream; enough for any client that reads.
            send_buffer_bytes: 256 << 10,
            connections: None,
            drain_timeout: Duration::from_secs(30),
            // A cold prefill of a long prompt behind a queue takes minutes, and an answer that is
            // not streamed comes when it is whole. As long as OpenAI's clients wait.
            first_token_timeout: Duration::from_secs(600),
            // A stream that began pauses while longer prompts are computed, not for minutes.
            silence_timeout: Duration::from_secs(300),
            health_interval: Duration::from_millis(250),
            // A step of a busy engine. What was sent meanwhile the router knows by itself.
            load_interval: Duration::from_millis(100),
            // A fifth of the time that anything saved is of use.
            save_interval: Duration::from_secs(60),
        }
    }
}
