//! Flags, environment and `headstart.toml`, resolved once: what is given later in this list wins.
//!
//! 1. defaults  2. `headstart.toml` (or `--config FILE`)  3. `HEADSTART_…`  4. flags

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use headstart_router::Strategy;
use headstart_server::UpstreamConfig;
use serde::Deserialize;

/// Where a configuration file is looked for when none is named.
const DEFAULT_FILE: &str = "headstart.toml";

/// How an upstream is named.
const UPSTREAM_FORM: &str =
    "URL[,kv=tcp://HOST:PORT][,replay=tcp://HOST:PORT][,tokenizer=DIR][,data-parallel-size=N]";

/// Most data-parallel ranks of one engine: each is a replica to choose from. Far more than any
/// engine of one address has.
const DATA_PARALLEL_SIZE_MAX: u32 = 1024;

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
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:8000]
    #[arg(long, env = "HEADSTART_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Embedded replicas; they share one compute pool [default: 2]
    #[arg(long, env = "HEADSTART_REPLICAS", value_name = "N")]
    pub(crate) replicas: Option<usize>,
    /// `toy`, a Hugging Face folder, or a hub name such as Qwen/Qwen3-0.6B [default: toy]
    #[arg(long, env = "HEADSTART_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The model's name in the API [default: the last part of --model]
    #[arg(long, env = "HEADSTART_SERVED_MODEL_NAME", value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,
    /// How weights and KV are stored: f32 or bf16 [default: f32]
    #[arg(long, env = "HEADSTART_DTYPE", value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,
    /// random, round-robin, load, session or precise [default: precise]
    #[arg(long, env = "HEADSTART_STRATEGY", value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// KV blocks per replica [default: as many as 512 MiB or 8,192 tokens need]
    #[arg(long, env = "HEADSTART_CACHE_BLOCKS", value_name = "N")]
    pub(crate) cache_blocks: Option<usize>,
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
    pub(crate) index_secret: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    serve: ServeOptions,
}

impl ServeOptions {
    /// Fills what flags and environment left open from the file.
    pub(crate) fn with_file(self, path: Option<&Path>) -> Result<Self> {
        let file = read(path)?.serve;
        Ok(Self {
            listen: self.listen.or(file.listen),
            replicas: self.replicas.or(file.replicas),
            model: self.model.or(file.model),
            served_model_name: self.served_model_name.or(file.served_model_name),
            dtype: self.dtype.or(file.dtype),
            strategy: self.strategy.or(file.strategy),
            cache_blocks: self.cache_blocks.or(file.cache_blocks),
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
            upstream: if self.upstream.is_empty() {
                file.upstream
            } else {
                self.upstream
            },
            state_dir: self.state_dir.or(file.state_dir),
            api_key_file: self.api_key_file.or(file.api_key_file),
            shared_index: self.shared_index.or(file.shared_index),
            index_secret: self.index_secret.or(file.index_secret),
        })
    }

    /// The strategy.
    pub(crate) fn strategy(&self) -> Result<Strategy> {
        parsed(self.strategy.as_deref().unwrap_or("precise"), "--strategy")
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
        self.upstream.iter().map(|spec| upstream(spec)).collect()
    }
}

/// The key in a file: its first line.
pub(crate) fn first_line(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the API key file {}", path.display()))?;
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

fn upstream(spec: &str) -> Result<UpstreamConfig> {
    let wrong = |what: &str| -> anyhow::Error {
        UsageError(format!(
            "--upstream {spec}: {what}; the form is {UPSTREAM_FORM}"
        ))
        .into()
    };
    let mut parts = spec.split(',');
    let url = parts.next().filter(|url| !url.is_empty());
    let mut config = UpstreamConfig {
        url: url.ok_or_else(|| wrong("the URL is missing"))?.to_owned(),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: None,
    };
    for part in parts {
        match part.split_once('=') {
            Some(("kv", address)) => config.kv_events = Some(tcp(address, &wrong)?),
            Some(("replay", address)) => config.kv_replay = Some(tcp(address, &wrong)?),
            Some(("tokenizer", folder)) => config.tokenizer = Some(folder.into()),
            Some(("data-parallel-size" | "dp", ranks)) => {
                config.data_parallel_size = data_parallel_size(ranks, &wrong)?;
            }
            _ => return Err(wrong(&format!("`{part}` is not understood"))),
        }
    }
    if config.kv_events.is_some() && config.tokenizer.is_none() {
        return Err(wrong(
            "kv= needs tokenizer=, or prompts cannot be matched with the events",
        ));
    }
    if config.kv_replay.is_some() && config.kv_events.is_none() {
        return Err(wrong("replay= needs kv="));
    }
    if shares_ports(&config) {
        return Err(wrong(
            "the ranks' ports of kv= and replay= overlap; set them further apart, here and there",
        ));
    }
    Ok(config)
}

fn data_parallel_size(ranks: &str, wrong: &impl Fn(&str) -> anyhow::Error) -> Result<u32> {
    match ranks.parse() {
        Ok(ranks @ 1..=DATA_PARALLEL_SIZE_MAX) => Ok(ranks),
        _ => Err(wrong(&format!(
            "data-parallel-size is a number from 1 to {DATA_PARALLEL_SIZE_MAX}, not `{ranks}`"
        ))),
    }
}

/// Whether a rank's events would come from the port where another one's are replayed.
fn shares_ports(config: &UpstreamConfig) -> bool {
    let port = |address: &Option<String>| {
        let (host, port) = address.as_deref()?.rsplit_once(':')?;
        Some((host.to_owned(), port.parse::<u32>().ok()?))
    };
    match (port(&config.kv_events), port(&config.kv_replay)) {
        (Some((host, kv)), Some((other, replay))) => {
            host == other && kv.abs_diff(replay) < config.data_parallel_size
        }
        _ => false,
    }
}

fn tcp(address: &str, wrong: &impl Fn(&str) -> anyhow::Error) -> Result<String> {
    let rest = address
        .strip_prefix("tcp://")
        .and_then(|rest| rest.rsplit_once(':'));
    match rest {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(address.to_owned())
        }
        _ => Err(wrong(&format!("`{address}` is not tcp://HOST:PORT"))),
    }
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

    fn check(spec: &str, expected: Result<(&str, Option<&str>), &str>) {
        match (upstream(spec), expected) {
            (Ok(got), Ok((url, events))) => {
                assert_eq!((got.url.as_str(), got.kv_events.as_deref()), (url, events));
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, expected) => panic!("{spec}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn upstream_specifications_are_checked() {
        check("http://h:1", Ok(("http://h:1", None)));
        check(
            "http://h:1,kv=tcp://h:2,tokenizer=d",
            Ok(("http://h:1", Some("tcp://h:2"))),
        );
        check("http://h:1,kv=tcp://h:2", Err("needs tokenizer="));
        check("http://h:1,replay=tcp://h:2", Err("needs kv="));
        check("http://h:1,kv=h:2,tokenizer=d", Err("not tcp://"));
        check("http://h:1,what=1", Err("`what=1`"));
        check("http://h:1,data-parallel-size=0", Err("from 1 to 1024"));
        check("http://h:1,dp=1025", Err("from 1 to 1024"));
        let ports = |kv, replay, ranks| {
            format!("http://h:1,kv=tcp://h:{kv},replay=tcp://h:{replay},tokenizer=d,dp={ranks}")
        };
        check(&ports(10, 14, 4), Ok(("http://h:1", Some("tcp://h:10"))));
        check(&ports(10, 13, 4), Err("overlap"));
        check(&ports(10, 7, 4), Err("overlap"));
        check(&ports(10, 10, 1), Err("overlap"));
        check("", Err("URL is missing"));
    }

    #[test]
    fn ranks_are_counted_under_either_name() {
        let ranks = |spec| upstream(spec).expect("is understood").data_parallel_size;
        assert_eq!(ranks("http://h:1"), 1);
        assert_eq!(ranks("http://h:1,data-parallel-size=8"), 8);
        assert_eq!(ranks("http://h:1,dp=2"), 2);
    }
}
