//! Flags, environment and `headstart.toml`, resolved once: what is given later in this list wins.
//!
//! 1. defaults  2. `headstart.toml` (or `--config FILE`)  3. `HEADSTART_…`  4. flags

pub(crate) mod cost_model;
mod edge;
pub(crate) mod importance;
pub(crate) mod prices;
mod profiles;
mod shadow;
pub(crate) mod tenants;
mod upstreams;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use headstart_core::EngineModel;
use headstart_router::Profile;
use headstart_server::UpstreamConfig;
use headstart_server::prices::PriceTable;
use headstart_server::shadow::ShadowConfig;
use serde::Deserialize;

use self::cost_model::Emulated;
use self::profiles::ProfileTable;
use self::tenants::{Tenant, TenantTable};
use crate::listen::ListenAddress;

/// Where a configuration file is looked for when none is named.
const DEFAULT_FILE: &str = "headstart.toml";

/// Arguments or configuration that cannot be: exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// What can be set of a server, by flag, by environment or under `[serve]` in `headstart.toml`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ServeOptions {
    /// Address to listen on: HOST:PORT, :PORT or PORT; port 0 picks a free one [default:
    /// 127.0.0.1:8000]
    #[arg(long, env = "HEADSTART_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<ListenAddress>,
    /// Host to listen on, in place of --listen [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", value_parser = crate::listen::host)]
    #[serde(skip)]
    pub(crate) host: Option<IpAddr>,
    /// Port to listen on, in place of --listen [default: 8000]
    #[arg(long, value_name = "PORT", value_parser = crate::listen::port)]
    #[serde(skip)]
    pub(crate) port: Option<u16>,
    /// Embedded replicas; they share one compute pool [default: 2]
    #[arg(long, env = "HEADSTART_REPLICAS", value_name = "N")]
    pub(crate) replicas: Option<usize>,
    /// `toy`, a Hugging Face folder, or a hub name such as Qwen/Qwen3-0.6B; needle-mha, needle-gqa
    /// and needle-small are set by formula and answer token ids only [default: toy]
    #[arg(long, env = "HEADSTART_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The model's name in the API [default: the last part of --model]
    #[arg(long, env = "HEADSTART_SERVED_MODEL_NAME", value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,
    /// How weights and KV are stored: f32 or bf16 [default: f32]
    #[arg(long, env = "HEADSTART_DTYPE", value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,
    /// What computes: cpu, or cost-model=FILE, which computes nothing and takes the time that the
    /// cost model in the file says: a fleet emulator [default: cpu]
    #[arg(long, env = "HEADSTART_EXECUTOR", value_name = "WHAT")]
    pub(crate) executor: Option<String>,
    /// What the upstream engines' steps cost, as `headstart calibrate` writes it: what the strategy
    /// cost reckons with [default: Llama 3.1 8B on one H100]
    #[arg(long, env = "HEADSTART_COST_MODEL", value_name = "FILE")]
    pub(crate) cost_model: Option<PathBuf>,
    /// The engine itself, in place of a file's name.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) emulated: Option<Emulated>,
    /// How replicas are chosen: random, round-robin, load, power-of-two, session, approximate,
    /// precise, cost, llm-d-load, llm-d-approximate, llm-d-precise, or a profile of the
    /// configuration file [default: precise]
    #[arg(long, env = "HEADSTART_STRATEGY", value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// Where embedded replicas publish their KV events, on 127.0.0.1: replica i on PORT + 2·i, its
    /// replays on the port after that [default: free ports, told by GET /debug/index]
    #[arg(long, env = "HEADSTART_KV_EVENTS_PORT", value_name = "PORT")]
    pub(crate) kv_events_port: Option<u16>,
    /// KV blocks per replica [default: as many as 512 MiB or 8,192 tokens need]
    #[arg(long, env = "HEADSTART_CACHE_BLOCKS", value_name = "N")]
    pub(crate) cache_blocks: Option<usize>,
    /// Keys and values are kept there as well, and found again after a restart: never text, and
    /// nothing that is not verified when it is read. A folder for this server alone, made where
    /// there is none; or s3://BUCKET/PREFIX, gs://…, az://…, file:///FOLDER, which servers can
    /// share, with credentials from the environment as AWS_* and the like
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE", value_name = "DIR|URL")]
    pub(crate) context_cache: Option<String>,
    /// How keys and values are stored below the engine's own memory: same, as they are; or fp8, a
    /// byte each (a quarter of f32, half of bf16), which loses precision: answers may differ from
    /// those without the context cache. What either stores is never used by the other
    /// [default: same]
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_DTYPE", value_name = "DTYPE")]
    pub(crate) context_cache_dtype: Option<String>,
    /// Of a long prefix in the context cache load only what matters: the keys of a few probe heads
    /// first, then the tokens that these look at. Saves loading, and changes answers a little;
    /// those that it may have changed carry x-headstart-importance: loaded=N%, and a request with
    /// x-headstart-importance: off gets an exact one. Settings with commas between them
    /// (docs/guide/selective-loading.md): ratio=0.25 of the tokens, least=1024 stored
    /// tokens, when=faster|always, keep=chunks|tokens, spared=0.02 of a query's attention,
    /// reorder=600 seconds|off, chunk=64|32|16 tokens (a multiple of --block-size), check=0.01 of
    /// the prompts, max-kl=0.1 nats, probes=auto|0:8:16, merge=union|majority|sum,
    /// fallback=on|off, policy=importance|lru|lfu|…; or off [default: off, all is loaded]
    #[arg(long, env = "HEADSTART_IMPORTANCE", value_name = "SETTINGS")]
    pub(crate) importance: Option<String>,
    /// Most that the context cache takes, all replicas together, GiB [default: 10]
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_GIB", value_name = "GIB")]
    pub(crate) context_cache_gib: Option<f64>,
    /// How long what is in the context cache may be used, hours [default: 24]
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_HOURS", value_name = "HOURS")]
    pub(crate) context_cache_hours: Option<f64>,
    /// Most of it that each tenant (each cache_salt) takes; what it stores beyond that replaces its
    /// own. Under [tenants.SALT] the file may say another share, and how long, for one of them
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_TENANT_GIB", value_name = "GIB")]
    pub(crate) context_cache_tenant_gib: Option<f64>,
    /// Host memory between the engine's own and the context cache, per replica, GiB. With
    /// --importance, prompts under way take on top of it up to the keys and values of the longest
    /// context in four layers [default: 0]
    #[arg(long, env = "HEADSTART_HOST_CACHE_GIB", value_name = "GIB")]
    pub(crate) host_cache_gib: Option<f64>,
    /// Tokens per block, a multiple of 16 [default: 16]
    #[arg(long, env = "HEADSTART_BLOCK_SIZE", value_name = "N")]
    pub(crate) block_size: Option<usize>,
    /// Eviction policy [default: lru]
    #[arg(long, env = "HEADSTART_POLICY", value_name = "NAME")]
    pub(crate) policy: Option<String>,
    /// What says whether conversations go on: a file that `headstart train` wrote; read again
    /// when it changes
    #[arg(long, env = "HEADSTART_PREDICTOR", value_name = "FILE")]
    pub(crate) predictor: Option<PathBuf>,
    /// Folder of the sentence encoder that the predictor was trained with [default: built in]
    #[arg(long, env = "HEADSTART_ENCODER", value_name = "FOLDER")]
    pub(crate) encoder: Option<String>,
    /// Log of embeddings, turn counts and outcomes, never text, for `headstart train`
    #[arg(long, env = "HEADSTART_PREDICTION_LOG", value_name = "FILE")]
    pub(crate) prediction_log: Option<PathBuf>,
    /// Silence after which a conversation counts as ended [default: 900]
    #[arg(long, env = "HEADSTART_PREDICTION_HORIZON", value_name = "SECONDS")]
    pub(crate) prediction_horizon: Option<u64>,
    /// Admission order: first-come or longest-prefix [default: first-come]
    #[arg(long, env = "HEADSTART_QUEUE_ORDER", value_name = "ORDER")]
    pub(crate) queue_order: Option<String>,
    /// Most tokens computed in one step [default: 512]
    #[arg(long, env = "HEADSTART_MAX_BATCHED_TOKENS", value_name = "N")]
    pub(crate) max_batched_tokens: Option<usize>,
    /// Most sequences running at once, per replica [default: 64]
    #[arg(long, env = "HEADSTART_MAX_SEQUENCES", value_name = "N")]
    pub(crate) max_sequences: Option<usize>,
    /// Most sequences waiting, per replica; more get 429 [default: 256]
    #[arg(long, env = "HEADSTART_MAX_WAITING", value_name = "N")]
    pub(crate) max_waiting: Option<usize>,
    /// A running engine instead of embedded replicas; repeatable. Options: kv=tcp://HOST:PORT, its
    /// KV events; replay=tcp://HOST:PORT; tokenizer=DIR; data-parallel-size=N, its ranks, which are
    /// then chosen one by one: kv= and replay= are rank 0's, the others' ports follow
    #[arg(long, value_name = "URL[,OPTION=VALUE]...")]
    pub(crate) upstream: Vec<String>,
    /// Longest wait for the first bytes of an upstream's answer, of one that is not streamed for
    /// all of it; then 504. An upstream whose health check finds it dead or frozen before is not
    /// waited for: its requests go to another one, once, or end with 502; for answers that have
    /// begun see --upstream-silence [default: 600]
    #[arg(long, env = "HEADSTART_UPSTREAM_TIMEOUT", value_name = "SECONDS")]
    pub(crate) upstream_timeout: Option<f64>,
    /// Longest silence in the middle of an upstream's answer; then it ends with an error
    /// [default: 300]
    #[arg(long, env = "HEADSTART_UPSTREAM_SILENCE", value_name = "SECONDS")]
    pub(crate) upstream_silence: Option<f64>,
    /// Most clients' connections at once; further ones wait, and a warning is logged. Each needs
    /// two open files, and the limit of these is raised as far as the system lets us
    /// [default: 16384, or what that limit allows]
    #[arg(long, env = "HEADSTART_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<usize>,
    /// Largest request body, MiB; of a compressed one, what it becomes [default: 16]
    #[arg(long, env = "HEADSTART_MAX_BODY_MIB", value_name = "MIB")]
    pub(crate) max_body_mib: Option<usize>,
    /// Web pages of this origin (scheme, host and port) may call the API, or * for all; repeatable
    /// [default: none]
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,
    /// Pass requests that administer an engine (/sleep, /reset_prefix_cache, /start_profile and
    /// the like): what only reports to one upstream, others to all. Without it they get 403
    #[arg(long, env = "HEADSTART_PASS_ADMIN_ROUTES")]
    pub(crate) pass_admin_routes: bool,
    /// Folder that keeps what is known of upstreams' caches from one start to the next: hashes,
    /// never text; made where there is none
    #[arg(long, env = "HEADSTART_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// File whose first line clients must send as bearer token; required beyond 127.0.0.1
    #[arg(long, env = "HEADSTART_API_KEY_FILE", value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Server by which gateways before the same upstreams share what they know of their caches:
    /// redis://HOST:PORT/DB (USER:PASSWORD@ before HOST if need be), Redis or Valkey. One of them
    /// follows each engine's events for all; without the server each does so itself. Needs
    /// --index-secret
    #[arg(
        long,
        env = "HEADSTART_SHARED_INDEX",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) shared_index: Option<String>,
    /// Secret of the index's keys, the same for all gateways that share one; best set by the
    /// environment, where others do not see it [default: that of --state-dir, or drawn at start]
    #[arg(
        long,
        env = "HEADSTART_INDEX_SECRET",
        value_name = "NUMBER",
        hide_env_values = true
    )]
    pub(crate) index_secret: Option<IndexSecret>,
    /// What tokens cost, for headstart_saved_money_total: a TOML file with currency = "EUR" and, by
    /// model name or "*", [models."*"] with cache_miss, cache_hit and output, each for a million
    /// tokens; or builtin for relative prices [default: none, and no money]
    #[arg(long, env = "HEADSTART_PRICE_TABLE", value_name = "FILE|builtin")]
    pub(crate) price_table: Option<String>,
    /// Beside one --upstream, which gets all requests unchanged, play what other strategies and
    /// sizes would have found: replicas=4,blocks=20000,block-size=16 or a part of that; see
    /// /debug/shadow
    #[arg(
        long,
        env = "HEADSTART_SHADOW",
        value_name = "KEY=N,…",
        num_args = 0..=1,
        default_missing_value = ""
    )]
    pub(crate) shadow: Option<String>,
    /// Collector for OpenTelemetry spans of requests (OTLP over HTTP), such as
    /// http://127.0.0.1:4318; OTEL_TRACES_SAMPLER says how many [default: none]
    #[arg(long, env = "HEADSTART_OTLP", value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// Whether requests are explained (what became of their tokens, and why: /debug/requests,
    /// /debug/waterfall, metrics): on or off [default: on]
    #[arg(long, env = "HEADSTART_INSIGHT", value_name = "on|off")]
    pub(crate) insight: Option<String>,
    /// Rewrites requests so that those which mean the same share their front: tools, json-keys,
    /// nonce, clock, white-space, thinking, or all [default: none]
    #[arg(long, env = "HEADSTART_NORMALIZE", value_name = "LIST")]
    pub(crate) normalize: Option<String>,
    /// The configuration's own profiles, by name.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// What single tenants may use, from `[tenants.SALT]`.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) tenants: Vec<Tenant>,
}

/// A secret number. What is none is refused by an error that does not repeat it: clap's would.
#[derive(Clone, Copy, Deserialize)]
#[serde(from = "u64")]
pub(crate) struct IndexSecret(Option<u64>);

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
        formatter.write_str("IndexSecret")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    serve: ServeOptions,
    profiles: BTreeMap<String, ProfileTable>,
    tenants: BTreeMap<String, TenantTable>,
}

impl ServeOptions {
    /// The engine that is emulated, if one is.
    ///
    /// # Errors
    /// When nobody knows such an executor, or the file is no cost model.
    pub(crate) fn emulated(&self) -> Result<Option<Emulated>> {
        if self.emulated.is_some() {
            return Ok(self.emulated);
        }
        match self.executor.as_deref() {
            None | Some("cpu") => Ok(None),
            Some(text) => match text.strip_prefix("cost-model=") {
                Some(file) => cost_model::read(Path::new(file)).map(Some),
                None => {
                    let message = format!("--executor {text}: expected cpu or cost-model=FILE");
                    Err(UsageError(message).into())
                }
            },
        }
    }

    /// What the upstream engines are like, where a file says.
    ///
    /// # Errors
    /// When the file is no cost model.
    pub(crate) fn engine_model(&self) -> Result<Option<EngineModel>> {
        let read = |file: &PathBuf| Ok(cost_model::read(file)?.engine);
        self.cost_model.as_ref().map(read).transpose()
    }

    /// Where to listen: `--host` and `--port`, else `--listen`.
    pub(crate) fn listen_address(&self) -> SocketAddr {
        let named = ListenAddress::of(self.host, self.port);
        let ListenAddress(address) = named.or(self.listen).unwrap_or_default();
        address
    }

    /// Fills what flags and environment left open from the file.
    pub(crate) fn with_file(self, path: Option<&Path>) -> Result<Self> {
        let File {
            serve: file,
            profiles,
            tenants,
        } = read(path)?;
        Ok(Self {
            listen: self.listen.or(file.listen),
            host: self.host,
            port: self.port,
            replicas: self.replicas.or(file.replicas),
            model: self.model.or(file.model),
            served_model_name: self.served_model_name.or(file.served_model_name),
            dtype: self.dtype.or(file.dtype),
            executor: self.executor.or(file.executor),
            cost_model: self.cost_model.or(file.cost_model),
            emulated: self.emulated,
            strategy: self.strategy.or(file.strategy),
            cache_blocks: self.cache_blocks.or(file.cache_blocks),
            context_cache: self.context_cache.or(file.context_cache),
            context_cache_dtype: self.context_cache_dtype.or(file.context_cache_dtype),
            importance: self.importance.or(file.importance),
            context_cache_gib: self.context_cache_gib.or(file.context_cache_gib),
            context_cache_hours: self.context_cache_hours.or(file.context_cache_hours),
            context_cache_tenant_gib: self
                .context_cache_tenant_gib
                .or(file.context_cache_tenant_gib),
            host_cache_gib: self.host_cache_gib.or(file.host_cache_gib),
            block_size: self.block_size.or(file.block_size),
            policy: self.policy.or(file.policy),
            predictor: self.predictor.or(file.predictor),
            encoder: self.encoder.or(file.encoder),
            prediction_log: self.prediction_log.or(file.prediction_log),
            prediction_horizon: self.prediction_horizon.or(file.prediction_horizon),
            queue_order: self.queue_order.or(file.queue_order),
            max_batched_tokens: self.max_batched_tokens.or(file.max_batched_tokens),
            max_sequences: self.max_sequences.or(file.max_sequences),
            max_waiting: self.max_waiting.or(file.max_waiting),
            otlp: self.otlp.or(file.otlp),
            insight: self.insight.or(file.insight),
            normalize: self.normalize.or(file.normalize),
            shadow: self.shadow.or(file.shadow),
            upstream: if self.upstream.is_empty() {
                file.upstream
            } else {
                self.upstream
            },
            kv_events_port: self.kv_events_port.or(file.kv_events_port),
            upstream_timeout: self.upstream_timeout.or(file.upstream_timeout),
            upstream_silence: self.upstream_silence.or(file.upstream_silence),
            max_connections: self.max_connections.or(file.max_connections),
            max_body_mib: self.max_body_mib.or(file.max_body_mib),
            cors_origin: match self.cors_origin.is_empty() {
                true => file.cors_origin,
                false => self.cors_origin,
            },
            pass_admin_routes: self.pass_admin_routes || file.pass_admin_routes,
            state_dir: self.state_dir.or(file.state_dir),
            api_key_file: self.api_key_file.or(file.api_key_file),
            shared_index: self.shared_index.or(file.shared_index),
            index_secret: self.index_secret.or(file.index_secret),
            price_table: self.price_table.or(file.price_table),
            profiles: profiles::profiles(profiles)?,
            tenants: tenants::tenants(tenants)?,
        })
    }

    /// The secret that the index's keys are made with.
    pub(crate) fn index_secret(&self) -> Result<Option<u64>> {
        let number = |secret: IndexSecret| {
            secret.0.context(
                "--index-secret (HEADSTART_INDEX_SECRET) is no whole number from 0 to 2^64 - 1; \
                 what was given is not repeated here",
            )
        };
        self.index_secret.map(number).transpose()
    }

    /// Whether requests are explained.
    ///
    /// # Errors
    /// When it is neither on nor off.
    pub(crate) fn insight(&self) -> Result<bool> {
        match self.insight.as_deref() {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => {
                let message = format!("--insight {other}: known are on, off");
                Err(UsageError(message).into())
            }
        }
    }

    /// What tokens cost, where somebody says.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(crate) fn prices(&self) -> Result<Option<PriceTable>> {
        self.price_table.as_deref().map(prices::read).transpose()
    }

    /// What is played beside an upstream, if anything is.
    pub(crate) fn shadow(&self) -> Result<Option<ShadowConfig>> {
        self.shadow.as_deref().map(shadow::parse).transpose()
    }

    /// How replicas are chosen.
    pub(crate) fn profile(&self) -> Result<Profile> {
        let name = self.strategy.as_deref().unwrap_or("precise");
        let found = Profile::find(name, &self.profiles);
        found.map_err(|error| UsageError(format!("--strategy: {error}")).into())
    }

    /// The key that clients must send.
    pub(crate) fn api_key(&self) -> Result<Option<String>> {
        let Some(path) = &self.api_key_file else {
            return Ok(None);
        };
        first_line(path).map(Some)
    }

    /// The upstreams named.
    pub(crate) fn upstreams(&self) -> Result<Vec<UpstreamConfig>> {
        upstreams::parse(&self.upstream)
    }
}

/// The key in a file: its first line.
pub(crate) fn first_line(path: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let key = text.lines().next().unwrap_or_default().trim();
    if key.is_empty() {
        return Err(UsageError(format!("{}: the first line is empty", path.display())).into());
    }
    Ok(key.to_owned())
}

/// Parses an option's text; what is wrong becomes a usage error with the option's name.
pub(crate) fn parsed<T>(text: &str, option: &str) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error| UsageError(format!("{option}: {error}")).into())
}

fn read(path: Option<&Path>) -> Result<File> {
    let path = match path {
        Some(path) => path,
        None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
        None => return Ok(File::default()),
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    toml::from_str(&text).map_err(|error| UsageError(format!("{}: {error}", path.display())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let path = std::env::temp_dir().join(format!("headstart-{}.toml", std::process::id()));
        std::fs::write(&path, "[serve]\nreplicas = 3\nstrategy = \"load\"\n").expect("writes");
        let flags = ServeOptions {
            replicas: Some(1),
            ..ServeOptions::default()
        };
        let options = flags.with_file(Some(&path)).expect("reads");
        assert_eq!(
            (options.replicas, options.strategy.as_deref()),
            (Some(1), Some("load"))
        );
        std::fs::write(&path, "[serve]\nreplicass = 3\n").expect("writes");
        let error = ServeOptions::default()
            .with_file(Some(&path))
            .expect_err("a typo is an error");
        assert!(error.to_string().contains("replicass"), "{error}");
        std::fs::remove_file(&path).expect("cleans up");
    }
}
