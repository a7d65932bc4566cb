//! The settings of a server, and how a file fills those that are not given.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};
use headstart_router::Profile;
use serde::{Deserialize, Serialize};

use self::heading::{CACHE, CONTEXT, ENGINE, NET, OBSERVE, PREDICT, ROUTE, UP};
use super::cost_model::ReplicaCostModel;
use super::tenants::Tenant;
use super::{ConfigFile, profiles, tenants};
use crate::listen::ListenAddress;

/// Headings of `serve --help`.
pub(super) mod heading {
    pub(in crate::config) const NET: &str = "Network";
    pub(in crate::config) const ENGINE: &str = "Built-in engine";
    pub(in crate::config) const CACHE: &str = "KV cache";
    pub(in crate::config) const CONTEXT: &str = "Context cache";
    pub(in crate::config) const ROUTE: &str = "Routing";
    pub(in crate::config) const UP: &str = "Upstream engines";
    pub(in crate::config) const PREDICT: &str = "Prediction";
    pub(in crate::config) const OBSERVE: &str = "Observability";
}

/// Settings of a server: by flag, by environment, or under `[serve]` in `headstart.toml`.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ServeOptions {
    /// Address: HOST:PORT, :PORT or PORT [default: 127.0.0.1:8000]
    ///
    /// Port 0 picks a free port. Beyond 127.0.0.1 the server requires --api-key-file.
    #[arg(long, help_heading = NET, env = "HEADSTART_LISTEN", value_name = "ADDR")]
    #[serde(skip_serializing)]
    pub(crate) listen: Option<ListenAddress>,
    /// Host, in place of --listen [default: 127.0.0.1]
    #[arg(long, help_heading = NET, value_name = "HOST", value_parser = crate::listen::host)]
    #[serde(skip)]
    pub(crate) host: Option<IpAddr>,
    /// Port, in place of --listen [default: 8000]
    #[arg(long, help_heading = NET, value_name = "PORT", value_parser = crate::listen::port)]
    #[serde(skip)]
    pub(crate) port: Option<u16>,
    /// File whose first line clients send as bearer token
    ///
    /// Required when the server listens beyond 127.0.0.1.
    #[arg(long, help_heading = NET, env = "HEADSTART_API_KEY_FILE", value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Allow web pages of this origin to call the API; repeatable
    ///
    /// Scheme, host and port, such as `https://chat.example.org`; * allows all. [default: none]
    #[arg(long, help_heading = NET, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,
    /// Maximum client connections [default: 16384]
    ///
    /// Further connections wait, and the server logs a warning. Each connection needs two open
    /// files; the server raises its limit of open files as far as the system allows.
    #[arg(long, help_heading = NET, env = "HEADSTART_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<usize>,
    /// Maximum request body, MiB [default: 16]
    ///
    /// For compressed bodies this is the size after decompression.
    #[arg(long, help_heading = NET, env = "HEADSTART_MAX_BODY_MIB", value_name = "MIB")]
    pub(crate) max_body_mib: Option<usize>,
    /// `toy`, a Hugging Face folder, or a hub name [default: toy]
    ///
    /// A hub name is downloaded once, such as Qwen/Qwen3-0.6B. `toy-tiny` computes a thirtieth of
    /// `toy` for keys and values of the same size: for tests of clients. needle-mha, needle-gqa
    /// and needle-small are synthetic models with known answers; they take token ids only.
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Model name in the API [default: last part of --model]
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_SERVED_MODEL_NAME", value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,
    /// Embedded replicas [default: 2]
    ///
    /// All replicas share one pool of compute threads.
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_REPLICAS", value_name = "N")]
    pub(crate) replicas: Option<usize>,
    /// Type of weights and KV: f32 or bf16 [default: f32]
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_DTYPE", value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,
    /// Backend: cpu, or cost-model=FILE to emulate [default: cpu]
    ///
    /// With cost-model=FILE the engine computes nothing and takes the time that the cost model
    /// predicts. `headstart calibrate` writes such a file.
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_EXECUTOR", value_name = "BACKEND")]
    pub(crate) executor: Option<String>,
    /// Admission: first-come or longest-prefix [default: first-come]
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_QUEUE_ORDER", value_name = "ORDER")]
    pub(crate) queue_order: Option<String>,
    /// Maximum tokens per step [default: 512]
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_MAX_BATCHED_TOKENS", value_name = "N")]
    pub(crate) max_batched_tokens: Option<usize>,
    /// Maximum running sequences per replica [default: 64]
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_MAX_SEQUENCES", value_name = "N")]
    pub(crate) max_sequences: Option<usize>,
    /// Maximum waiting sequences per replica [default: 256]
    ///
    /// Further requests get 429.
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_MAX_WAITING", value_name = "N")]
    pub(crate) max_waiting: Option<usize>,
    /// First port of the KV events of embedded replicas
    ///
    /// Replica i publishes on 127.0.0.1, port PORT + 2·i, and answers replay requests on the next
    /// port. [default: free ports, listed by GET /debug/index]
    #[arg(long, help_heading = ENGINE, env = "HEADSTART_KV_EVENTS_PORT", value_name = "PORT")]
    pub(crate) kv_events_port: Option<u16>,
    /// KV blocks per replica [default: 512 MiB or 8,192 tokens]
    #[arg(long, help_heading = CACHE, env = "HEADSTART_CACHE_BLOCKS", value_name = "N")]
    pub(crate) cache_blocks: Option<usize>,
    /// Tokens per block, a multiple of 16 [default: 16]
    #[arg(long, help_heading = CACHE, env = "HEADSTART_BLOCK_SIZE", value_name = "N")]
    pub(crate) block_size: Option<usize>,
    /// Eviction policy [default: hazard]
    ///
    /// `headstart replay --help` lists the policies.
    #[arg(long, help_heading = CACHE, env = "HEADSTART_POLICY", value_name = "NAME")]
    pub(crate) policy: Option<String>,
    /// Host memory below the engine's cache, per replica [default: 0]
    ///
    /// Needs --context-cache. With --importance, running prompts use in addition up to the KV of
    /// the longest context in four layers.
    #[arg(long, help_heading = CACHE, env = "HEADSTART_HOST_CACHE_GIB", value_name = "GIB")]
    pub(crate) host_cache_gib: Option<f64>,
    /// Store KV in a folder or an object store
    ///
    /// The cache survives restarts. It stores no text and verifies everything that it reads. A
    /// folder belongs to one server and is created if absent. s3://BUCKET/PREFIX, gs://…, az://…
    /// and file:///FOLDER can be shared by servers; credentials come from the environment (AWS_*
    /// and so on).
    #[arg(long, help_heading = CONTEXT, env = "HEADSTART_CONTEXT_CACHE", value_name = "DIR|URL")]
    pub(crate) context_cache: Option<String>,
    /// Budget of all replicas together, GiB [default: 10]
    #[arg(long, help_heading = CONTEXT, env = "HEADSTART_CONTEXT_CACHE_GIB", value_name = "GIB")]
    pub(crate) context_cache_gib: Option<f64>,
    /// Lifetime of stored KV, hours [default: 24]
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_HOURS", value_name = "HOURS")]
    #[arg(help_heading = CONTEXT)]
    pub(crate) context_cache_hours: Option<f64>,
    /// Budget of each tenant (cache_salt), GiB
    ///
    /// Beyond it a tenant replaces its own entries. [tenants.SALT] in headstart.toml sets a
    /// budget and a lifetime for one tenant. [default: none]
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_TENANT_GIB", value_name = "GIB")]
    #[arg(help_heading = CONTEXT)]
    pub(crate) context_cache_tenant_gib: Option<f64>,
    /// Stored type: same, or fp8 [default: same]
    ///
    /// fp8 takes one byte per value, a quarter of f32, and loses precision: answers can differ
    /// from those without the context cache. KV stored as one type is never used as the other.
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_DTYPE", value_name = "DTYPE")]
    #[arg(help_heading = CONTEXT)]
    pub(crate) context_cache_dtype: Option<String>,
    /// Load only part of a long stored prefix [default: off]
    ///
    /// The server loads the keys of a few probe heads, then the chunks of tokens with high
    /// attention. This saves loading and changes answers a little. Such answers carry
    /// x-headstart-importance: loaded=N%; a request with x-headstart-importance: off gets an
    /// exact answer. SETTINGS are separated by commas: ratio=0.25 of the tokens, least=1024
    /// stored tokens, check=0.01 of the prompts; or off. See docs/guide/selective-loading.md.
    #[arg(long, help_heading = CONTEXT, env = "HEADSTART_IMPORTANCE", value_name = "SETTINGS")]
    pub(crate) importance: Option<String>,
    /// Routing strategy [default: precise]
    ///
    /// random, round-robin, load, power-of-two, session, approximate, precise, cost, llm-d-load,
    /// llm-d-approximate, llm-d-precise, or a profile of headstart.toml.
    #[arg(long, help_heading = ROUTE, env = "HEADSTART_STRATEGY", value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// Cost model of the engines, for --strategy cost
    ///
    /// `headstart calibrate` writes it. [default: Llama 3.1 8B on one H100]
    #[arg(long, help_heading = ROUTE, env = "HEADSTART_COST_MODEL", value_name = "FILE")]
    pub(crate) cost_model: Option<PathBuf>,
    /// Rewrite requests so that equal ones share a prefix
    ///
    /// tools, json-keys, nonce, clock, white-space, thinking, or all. [default: none]
    #[arg(long, help_heading = ROUTE, env = "HEADSTART_NORMALIZE", value_name = "LIST")]
    pub(crate) normalize: Option<String>,
    /// Folder that keeps what was learned across restarts
    ///
    /// The index of upstream engines, as keyed hashes and no text. The counts of the policy
    /// `hazard` of replicas in this process; without the folder they are in that of
    /// --context-cache. It is created if absent.
    #[arg(long, help_heading = ROUTE, env = "HEADSTART_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Redis or Valkey by which gateways share their index
    ///
    /// redis://HOST:PORT/DB, with USER:PASSWORD@ in front of HOST if required. One gateway
    /// follows each engine's events for all. If Redis fails, each gateway follows the events
    /// itself. Needs --index-secret.
    #[arg(long, env = "HEADSTART_SHARED_INDEX", value_name = "URL", hide_env_values = true)]
    #[arg(help_heading = ROUTE)]
    pub(crate) shared_index: Option<String>,
    /// Secret of the index's keys, equal on all gateways
    ///
    /// Prefer the environment variable: other users can read the command line. [default: that of
    /// --state-dir, or random]
    #[arg(long, env = "HEADSTART_INDEX_SECRET", value_name = "NUMBER", hide_env_values = true)]
    #[arg(help_heading = ROUTE)]
    #[serde(skip_serializing)]
    pub(crate) index_secret: Option<IndexSecret>,
    /// Route to this engine; repeatable
    ///
    /// Without --upstream the server runs the built-in engine. Options: kv=tcp://HOST:PORT for
    /// its KV events; replay=tcp://HOST:PORT for lost events; tokenizer=DIR (or toy);
    /// data-parallel-size=N if it has N ranks, with kv= and replay= those of rank 0 and
    /// consecutive ports for the others.
    #[arg(long, help_heading = UP, value_name = "URL[,OPTION=VALUE]...")]
    pub(crate) upstream: Vec<String>,
    /// Timeout of the first byte, then 504 [default: 600]
    ///
    /// For answers that are not streamed it limits the whole answer. Requests to an engine whose
    /// health check fails are retried once on another engine, or end with 502.
    #[arg(long, help_heading = UP, env = "HEADSTART_UPSTREAM_TIMEOUT", value_name = "SECONDS")]
    pub(crate) upstream_timeout: Option<f64>,
    /// Timeout between two bytes of an answer [default: 300]
    #[arg(long, help_heading = UP, env = "HEADSTART_UPSTREAM_SILENCE", value_name = "SECONDS")]
    pub(crate) upstream_silence: Option<f64>,
    /// Tell the policies inside vLLM each request's kind, turn and session
    ///
    /// For engines with the Python package `headstart`, in the field `kv_transfer_params`. A
    /// request that has this field keeps it. Other engines may refuse it.
    #[arg(long, help_heading = UP, env = "HEADSTART_ENGINE_HINTS")]
    pub(crate) engine_hints: bool,
    /// Pass requests that administer an engine
    ///
    /// /sleep, /reset_prefix_cache, /start_profile and others. Requests that only report go to
    /// one engine, others to all. Without this option they get 403.
    #[arg(long, help_heading = UP, env = "HEADSTART_PASS_ADMIN_ROUTES")]
    pub(crate) pass_admin_routes: bool,
    /// Simulate other strategies beside one upstream
    ///
    /// The upstream gets all requests unchanged. replicas=4,blocks=20000,block-size=16 or a part
    /// of it; `headstart shadow` shows the result.
    #[arg(long, help_heading = UP, env = "HEADSTART_SHADOW", value_name = "KEY=N,…")]
    #[arg(num_args = 0..=1, default_missing_value = "")]
    pub(crate) shadow: Option<String>,
    /// Model that predicts whether conversations continue
    ///
    /// `headstart train` writes it. The server reads it again when it changes.
    #[arg(long, help_heading = PREDICT, env = "HEADSTART_PREDICTOR", value_name = "FILE")]
    pub(crate) predictor: Option<PathBuf>,
    /// Sentence encoder of the predictor [default: built in]
    #[arg(long, help_heading = PREDICT, env = "HEADSTART_ENCODER", value_name = "FOLDER")]
    pub(crate) encoder: Option<String>,
    /// Log embeddings and outcomes for `headstart train`
    ///
    /// The log holds no text.
    #[arg(long, help_heading = PREDICT, env = "HEADSTART_PREDICTION_LOG", value_name = "FILE")]
    pub(crate) prediction_log: Option<PathBuf>,
    /// Silence that ends a conversation [default: 900]
    #[arg(long, env = "HEADSTART_PREDICTION_HORIZON", value_name = "SECONDS")]
    #[arg(help_heading = PREDICT)]
    pub(crate) prediction_horizon: Option<u64>,
    /// Explain recomputed tokens [default: on]
    ///
    /// /debug/requests, /debug/waterfall, the dashboard and metrics.
    #[arg(long, help_heading = OBSERVE, env = "HEADSTART_INSIGHT", value_name = "on|off")]
    pub(crate) insight: Option<String>,
    /// Prices, for headstart_saved_money_total
    ///
    /// A TOML file with currency = "EUR" and, by model name or "*", [models."*"] with cache_miss,
    /// cache_hit and output, each for a million tokens; or builtin for relative prices. [default:
    /// none]
    #[arg(long, help_heading = OBSERVE, env = "HEADSTART_PRICE_TABLE", value_name = "FILE|builtin")]
    pub(crate) price_table: Option<String>,
    /// Name a prefix on the dashboard; repeatable
    ///
    /// FILE has a system prompt, or the start of a plain prompt. The dashboard and `headstart
    /// index show` use NAME in place of a hash. Prompts with a cache_salt get no name.
    #[arg(long, help_heading = OBSERVE, value_name = "NAME=FILE")]
    pub(crate) label_prefix: Vec<String>,
    /// OpenTelemetry collector (OTLP over HTTP) [default: none]
    ///
    /// Such as `http://127.0.0.1:4318`; OTEL_TRACES_SAMPLER sets the sampling.
    #[arg(long, help_heading = OBSERVE, env = "HEADSTART_OTLP", value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// The engine itself, in place of a file's name.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) emulated: Option<ReplicaCostModel>,
    /// The configuration's own profiles, by name.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// Limits of single tenants, from `[tenants.SALT]`.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) tenants: Vec<Tenant>,
}

impl ServeOptions {
    /// The eviction policy of replicas in this process.
    pub(crate) fn eviction_policy(&self) -> &str {
        self.policy.as_deref().unwrap_or(headstart_cache::policy::DEFAULT)
    }

    /// The options of the command line and the environment, which are in `matches`, over those of
    /// `file`.
    pub(super) fn over(file: ConfigFile, matches: &ArgMatches) -> Result<Self> {
        let ConfigFile { serve, profiles, tenants } = file;
        let profiles = profiles::profiles(profiles)?;
        let mut options = Self { profiles, tenants: tenants::tenants(tenants)?, ..serve };
        let (pass_admin_routes, engine_hints) = (options.pass_admin_routes, options.engine_hints);
        options.update_from_arg_matches(matches)?;
        // A flag that is not given has a value too, which the file's replaces.
        if matches.value_source("pass_admin_routes") == Some(ValueSource::DefaultValue) {
            options.pass_admin_routes = pass_admin_routes;
        }
        if matches.value_source("engine_hints") == Some(ValueSource::DefaultValue) {
            options.engine_hints = engine_hints;
        }
        Ok(options)
    }
}

/// A secret number; `None` for other text, whose error must not repeat it, as clap's would.
#[derive(Clone, Copy, Deserialize)]
#[serde(from = "u64")]
pub(crate) struct IndexSecret(pub(super) Option<u64>);

impl From<u64> for IndexSecret {
    fn from(number: u64) -> Self {
        Self(Some(number))
    }
}

impl std::str::FromStr for IndexSecret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse().ok()))
    }
}

impl std::fmt::Debug for IndexSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `{:?}` of the settings must not print the secret.
        formatter.write_str("IndexSecret")
    }
}
