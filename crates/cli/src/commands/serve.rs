//! `headstart serve`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{ArgMatches, Args};
use headstart_core::figures::counted;
use headstart_engine::kv::KvStorageFormat;
use headstart_engine::{EngineConfig, ModelConfig, QueueOrder};
use headstart_index_sync::shared::{SharedServer, Timing};
use headstart_prompt::Normalizers;
use headstart_server::{EmbeddedFleet, EngineBackend, RunningServer, ServeConfig, ServeError};
use headstart_terminal::{self as output, Progress, TaskProgress};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::banner;
use crate::config::ablations;
use crate::config::importance::wanted;
use crate::config::{EffectiveSettings, ServeOptions, parsed, variables};
use crate::exit::{refuse, usage};
use crate::machine::memory_bytes;
use crate::model::{self, TOY};
use crate::predictor;
use crate::tiers;

/// KV memory per replica where the user does not say; pages that are never used cost nothing.
const DEFAULT_CACHE_BYTES: usize = 512 << 20;

/// Tokens that a replica can hold at least where the user does not say: one long conversation.
const DEFAULT_CONTEXT: usize = 8192;

/// Largest block: beyond it nearly nothing is a full block, and nothing is cached.
const BLOCK_SIZE_MAX: usize = 4096;

/// Age after which a waiting request goes before those with a longer prefix.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Serve an OpenAI-compatible API.
#[derive(Args, Debug)]
#[command(after_help = include_str!("serve.help.txt"))]
pub(crate) struct Serve {
    #[command(flatten)]
    options: ServeOptions,
    /// Configuration file [default: headstart.toml where there is one]
    #[arg(long, env = "HEADSTART_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Serves until interrupted.
pub(crate) fn run(serve: Serve, matches: &ArgMatches) -> Result<()> {
    // The hook is set first: any later panic may hold text of a prompt.
    predictor::keep_text_out_of_panics();
    // The log comes before all settings, because reading them may warn.
    log_to_stderr()?;
    variables::warn();
    let settings = EffectiveSettings::resolve(serve.options, serve.config.as_deref(), matches)?;
    // Errors name the source of an option, which may be a file that the user forgot.
    run_with(&settings.options).map_err(|error| settings.sources.named(error))
}

fn run_with(options: &ServeOptions) -> Result<()> {
    let starting = TaskProgress::endless("starting the server");
    let config = config(options)?;
    let model = options.model.as_deref().unwrap_or(TOY);
    let is_toy = options.upstream.is_empty() && model::is_toy(model);
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        // Signals are caught before the server is ready: a supervisor may stop it at once.
        let signals = Signals::new()?;
        let server = headstart_server::serve(config).await.map_err(explained)?;
        // The progress bar must be gone before the banner is printed.
        starting.end();
        if let Some(note) = predictor::note(options) {
            output::note(note);
        }
        banner::ready(&server, is_toy)?;
        until_interrupted(server, signals).await
    });
    // Work for clients that are gone must not hold up the end.
    runtime.shutdown_background();
    outcome
}

/// Errors that another configuration would avoid are usage errors.
fn explained(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Exposed(_) => usage(format!("--listen {error}")),
        ServeError::Policy(_) => usage(format!("--policy: {error}")),
        ServeError::NoReplica
        | ServeError::NothingToKeep(_)
        | ServeError::Engine(_)
        | ServeError::State(_)
        | ServeError::Shared(_)
        | ServeError::Rank(_)
        | ServeError::Otlp(_)
        | ServeError::Shadow(_)
        | ServeError::Upstream(_) => usage(error),
        other => other.into(),
    }
}

/// Threads for what would hold up others: long prompts, files. Each keeps what its tokenizer
/// remembers, some 2.5 MB.
const BLOCKING_THREADS: usize = 32;

/// Most threads that pass requests on; beyond, they would wait for each other.
const WORKERS_MAX: usize = 16;

/// The runtime of servers and load generators: its threads wait, the engine's compute.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(cores.min(WORKERS_MAX))
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// A server's configuration from its options.
pub(crate) fn config(options: &ServeOptions) -> Result<ServeConfig> {
    let upstreams = options.upstreams()?;
    let backend = if upstreams.is_empty() {
        // Options of the other kind would be ignored, so they are refused by name.
        refuse_upstream_options(options)?;
        EngineBackend::Embedded(Box::new(embedded(options)?))
    } else {
        refuse_engine_options(options)?;
        EngineBackend::Upstreams(upstreams)
    };
    Ok(ServeConfig {
        listen: options.listen_address(),
        api_key: options.api_key()?,
        profile: options.profile()?,
        seed: 0,
        index_secret: options.index_secret()?,
        state_dir: options.state_dir.clone(),
        shared_index: options
            .shared_index
            .clone()
            .map(|url| SharedServer { url, timing: Timing::default() }),
        engine_model: options.engine_model()?,
        // Labels need the tokenizers of the backend, so it moves into the configuration below.
        labels: options.labels(&backend)?,
        backend,
        prices: options.prices()?,
        otlp: options.otlp.clone(),
        shadow: options.shadow()?,
        insight: options.insight()?,
        normalizers: normalizers(options)?,
        has_engine_hints: has_engine_hints(options)?,
        limits: options.limits()?,
        edge: options.edge()?,
    })
}

/// Refuses what a server refuses, without the files of a model, a context cache or a predictor.
pub(crate) fn check(options: &ServeOptions) -> Result<()> {
    if options.upstream.is_empty() {
        // The lean options below leave these settings out, so they are checked here.
        tiers::refuse_without_place(options, stored(options)?)?;
        predictor::horizon(options)?;
    } else {
        refuse_engine_options(options)?;
    }
    // Only files are left out; every other setting is resolved as for a server.
    let lean = ServeOptions {
        model: None,
        context_cache: None,
        context_cache_gib: None,
        context_cache_hours: None,
        context_cache_tenant_gib: None,
        context_cache_dtype: None,
        host_cache_gib: None,
        importance: None,
        predictor: None,
        encoder: None,
        prediction_log: None,
        prediction_horizon: None,
        ..options.clone()
    };
    config(&lean)?.check().map_err(explained)
}

/// Parses how keys and values are stored below the engine's own memory.
fn stored(options: &ServeOptions) -> Result<KvStorageFormat> {
    let stored = options.context_cache_dtype.as_deref().unwrap_or("same");
    parsed(stored, "--context-cache-dtype")
}

/// Parses the request normalizers, if any.
fn normalizers(options: &ServeOptions) -> Result<Normalizers> {
    let Some(list) = &options.normalize else {
        return Ok(Normalizers::default());
    };
    // Shadow mode passes requests unchanged, and normalizing changes them.
    ensure!(
        options.shadow.is_none(),
        usage("--normalize does not go with --shadow, which passes requests on unchanged")
    );
    parsed(list, "--normalize")
}

/// Whether requests get hints for the policies inside engines.
fn has_engine_hints(options: &ServeOptions) -> Result<bool> {
    ensure!(
        options.shadow.is_none() || !options.engine_hints,
        usage("--engine-hints does not go with --shadow, which passes requests on unchanged")
    );
    ensure!(
        !options.upstream.is_empty() || !options.engine_hints,
        usage("--engine-hints needs --upstream: it is for engines elsewhere")
    );
    Ok(options.engine_hints)
}

/// Bytes of an emulated block, which has a key but no data: its entries in the cache and the index.
const EMULATED_BLOCK_BYTES: usize = 256;

fn embedded(options: &ServeOptions) -> Result<EmbeddedFleet> {
    let dtype = parsed(options.dtype.as_deref().unwrap_or("f32"), "--dtype")?;
    let stored = stored(options)?;
    let queue_order = match options.queue_order.as_deref().unwrap_or("first-come") {
        "first-come" => QueueOrder::FirstCome,
        "longest-prefix" => QueueOrder::LongestPrefix { max_age: MAX_AGE },
        other => {
            bail!(usage(format!("--queue-order {other}: known are first-come, longest-prefix")));
        }
    };
    // The model is loaded here, so that its size is known for the cache.
    let loaded = model::load(options.model.as_deref().unwrap_or(TOY), dtype)?;
    let block_size = options.block_size.unwrap_or(16);
    ensure!(
        (16..=BLOCK_SIZE_MAX).contains(&block_size),
        usage(format!("--block-size must be a multiple of 16, at most {BLOCK_SIZE_MAX}"))
    );
    let emulated = options.emulated()?;
    let default_blocks = || match &emulated {
        Some(it) => (it.engine.kv_tokens / block_size).max(1),
        None => default_blocks(&loaded.model.config, dtype.bytes(), block_size),
    };
    let cache_blocks = options.cache_blocks.unwrap_or_else(default_blocks);
    let replicas = options.replicas.unwrap_or(2);
    let block_bytes = match &emulated {
        // Names of blocks take memory too, so even an emulated cache has a limit.
        Some(_) => EMULATED_BLOCK_BYTES,
        None => loaded.model.config.kv_bytes_per_token(dtype.bytes()) * block_size,
    };
    // The pool is allocated at once, so a size beyond the memory ends the process.
    check_memory(cache_blocks, block_bytes, replicas)?;
    // As vLLM has it on such an engine; the embedded one is smaller.
    let limits = match &emulated {
        Some(it) => (it.engine.max_batched_tokens, it.max_sequences, 16_384),
        None => (512, 64, 256),
    };
    let tiers = tiers::of(
        options,
        &tiers::FleetShape {
            model: &loaded.model.config,
            dtype,
            stored,
            block_size,
            is_emulated: emulated.is_some(),
        },
    )?;
    Ok(EmbeddedFleet {
        tiers,
        name: options.served_model_name.clone().unwrap_or(loaded.name),
        replicas,
        engine: EngineConfig {
            cache_blocks,
            block_size,
            kv_dtype: dtype,
            stored,
            max_batched_tokens: options.max_batched_tokens.unwrap_or(limits.0),
            max_sequences: options.max_sequences.unwrap_or(limits.1),
            max_waiting: options.max_waiting.unwrap_or(limits.2),
            order: queue_order,
        },
        policy: policy(options.eviction_policy())?,
        model: loaded.model,
        prompt: loaded.prompt,
        emulated: emulated.map(|emulated| Box::new(emulated.engine)),
        learned_tables: tiers::learned_tables(options),
        prediction: predictor::config(options)?,
        kv_events_port: options.kv_events_port,
    })
}

/// Checks the eviction policy.
fn policy(spec: &str) -> Result<String> {
    let checked = ablations::policy(spec);
    checked.map_err(|wrong| usage(format!("--policy {spec}: {wrong}")))
}

fn default_blocks(config: &ModelConfig, element_bytes: usize, block_size: usize) -> usize {
    let block_bytes = config.kv_bytes_per_token(element_bytes) * block_size.max(1);
    let one_conversation = config.max_context.min(DEFAULT_CONTEXT).div_ceil(block_size.max(1));
    // The memory may be too small for one long conversation of a large model.
    (DEFAULT_CACHE_BYTES / block_bytes).max(one_conversation)
}

/// Refuses KV pools that this machine could never hold: the allocation would end the process.
fn check_memory(cache_blocks: usize, block_bytes: usize, replicas: usize) -> Result<()> {
    // A product that overflows is more than any memory.
    let wanted = cache_blocks.checked_mul(block_bytes).and_then(|one| one.checked_mul(replicas));
    let limit = memory_bytes().unwrap_or(1 << 40);
    // Blocks are numbered with 32 bits.
    if wanted.is_some_and(|wanted| wanted <= limit) && u32::try_from(cache_blocks).is_ok() {
        return Ok(());
    }
    bail!(usage(format!(
        "--cache-blocks {cache_blocks} on {}, {block_bytes} bytes a block, are more than \
         this machine's memory of {} MiB",
        counted(replicas as u64, "replica"),
        limit >> 20
    )))
}

/// Options of upstream engines say nothing to embedded ones.
fn refuse_upstream_options(options: &ServeOptions) -> Result<()> {
    let given = [
        ("--upstream-timeout", options.upstream_timeout.is_some()),
        ("--upstream-silence", options.upstream_silence.is_some()),
        ("--cost-model", options.cost_model.is_some()),
        ("--pass-admin-routes", options.pass_admin_routes),
    ];
    refuse(&given, |name| format!("{name} concerns --upstream engines, and none is named"))
}

/// Options of embedded engines say nothing to upstream ones.
fn refuse_engine_options(options: &ServeOptions) -> Result<()> {
    let given = [
        ("--replicas", options.replicas.is_some()),
        ("--kv-events-port", options.kv_events_port.is_some()),
        ("--model", options.model.is_some()),
        ("--executor", options.executor.is_some()),
        ("--host-cache-gib", options.host_cache_gib.is_some()),
        ("--context-cache", options.context_cache.is_some()),
        ("--context-cache-gib", options.context_cache_gib.is_some()),
        ("--context-cache-hours", options.context_cache_hours.is_some()),
        ("--context-cache-tenant-gib", options.context_cache_tenant_gib.is_some()),
        ("--context-cache-dtype", options.context_cache_dtype.is_some()),
        ("[tenants.SALT]", !options.tenants.is_empty()),
        ("--importance", wanted(options.importance.as_deref()).is_some()),
        ("--cache-blocks", options.cache_blocks.is_some()),
        ("--block-size", options.block_size.is_some()),
        ("--dtype", options.dtype.is_some()),
        ("--policy", options.policy.is_some()),
        ("--predictor", options.predictor.is_some()),
        ("--encoder", options.encoder.is_some()),
        ("--prediction-log", options.prediction_log.is_some()),
        ("--prediction-horizon", options.prediction_horizon.is_some()),
        ("--served-model-name", options.served_model_name.is_some()),
        ("--queue-order", options.queue_order.is_some()),
        ("--max-batched-tokens", options.max_batched_tokens.is_some()),
        ("--max-sequences", options.max_sequences.is_some()),
        ("--max-waiting", options.max_waiting.is_some()),
    ];
    refuse(&given, |name| format!("{name} concerns embedded replicas, not --upstream ones"))
}

/// Ctrl-C and SIGTERM, listened for before anybody can be told that the server is ready.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn until_interrupted(server: RunningServer, mut signals: Signals) -> Result<()> {
    // The first signal stops new requests; running ones are finished.
    signals.next().await;
    output::note("finishing the running requests; interrupt again to stop at once");
    tokio::select! {
        () = server.shutdown() => Ok(()),
        // The second signal is a user who does not want to wait.
        () = signals.next() => Err(anyhow!("stopped before all requests were done")),
    }
}

fn log_to_stderr() -> Result<()> {
    let variable = |name| std::env::var(name).ok();
    let wanted = variable("HEADSTART_LOG").unwrap_or_else(|| "warn".to_owned());
    // Health checks of upstreams would drown everything else.
    let filter = format!("hyper=warn,hyper_util=warn,{wanted}");
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        let message = format!(
            "HEADSTART_LOG {wanted}: {error}; give a level (error, warn, info, debug or trace)"
        );
        usage(message)
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(|| output::Stderr)
        // What cannot be written is lost; to say so on the same stream would panic.
        .log_internal_errors(false);
    // A second call (in one process) keeps the first.
    let _ = match variable("HEADSTART_LOG_FORMAT").as_deref() {
        None | Some("" | "text") => log.try_init(),
        Some("json") => {
            let log = log.json().flatten_event(true);
            log.with_writer(|| output::JsonStderr).try_init()
        }
        Some(other) => {
            bail!(usage(format!("HEADSTART_LOG_FORMAT {other}: known are text, json")));
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, FromArgMatches};
    use headstart_core::TenantTag;

    use super::*;
    use crate::config::tenants::Tenant;

    /// Headings of the options that concern embedded replicas only.
    const EMBEDDED: [&str; 4] = ["Built-in engine", "KV cache", "Context cache", "Prediction"];

    /// The error of `serve`, which `config show` repeats.
    fn refused(options: &ServeOptions) -> String {
        let served = config(options).err().map(|error| error.to_string());
        let checked = check(options).err().map(|error| error.to_string());
        assert_eq!(served, checked);
        served.unwrap_or_default()
    }

    #[test]
    fn no_option_of_embedded_replicas_is_ignored_with_an_upstream() {
        let command = ServeOptions::augment_args(Command::new("serve"));
        let is_embedded = |arg: &&Arg| {
            let heading = arg.get_help_heading();
            heading.is_some_and(|heading| EMBEDDED.contains(&heading))
        };
        let args = command.get_arguments().filter(is_embedded);
        let flags: Vec<_> = args.filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
        assert!(flags.len() > 20, "{flags:?}");
        for flag in flags {
            let flag = format!("--{flag}");
            let given = ["serve", "--upstream", "http://h:1", &flag, "1"];
            let matches = command.clone().get_matches_from(given);
            let options = ServeOptions::from_arg_matches(&matches).expect("valid");
            let refusal = refused(&options);
            assert!(refusal.starts_with(&format!("{flag} concerns embedded")), "{refusal}");
        }
        let tenant = Tenant { tag: TenantTag::of(Some("acme")), gib: Some(1.0), hours: None };
        let upstream = vec!["http://h:1".to_owned()];
        let options = ServeOptions { upstream, tenants: vec![tenant], ..ServeOptions::default() };
        assert!(refused(&options).starts_with("[tenants.SALT] concerns embedded"));
    }
}
