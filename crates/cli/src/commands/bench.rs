//! `headstart bench`: measures servers. One file per kind of load.

mod chat;
mod continuation;
mod fleet;
mod prediction;
mod recording;
mod runs;
mod trace;
mod trace_tiers;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use headstart_loadgen::ApiClient;
use headstart_server::{RunningServer, ServeConfig};

use crate::config::ServeOptions;

/// Measure a server.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Play multi-turn conversations; compare strategies and policies.
    Chat(Box<chat::ChatBenchCommand>),
    /// Send a trace to a server; compare its hits with a replay.
    Trace(Box<trace::TraceBenchCommand>),
    /// Send load to a fleet; compare strategies with the simulation.
    Fleet(Box<fleet::FleetBenchCommand>),
}

/// Runs the benchmark.
pub(crate) fn run(bench: BenchCommand) -> Result<()> {
    match bench {
        BenchCommand::Chat(chat) => chat::run(&chat),
        BenchCommand::Trace(trace) => trace::run(&trace),
        BenchCommand::Fleet(fleet) => fleet::run(&fleet),
    }
}

/// The servers that the benchmark starts: options of `headstart serve`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct BenchServer {
    /// Embedded replicas [default: by command]
    ///
    /// `bench chat` starts 2, `bench trace` and `calibrate` 1, `bench fleet` those of the preset.
    #[arg(long, value_name = "N")]
    replicas: Option<NonZeroUsize>,
    /// Model, as for `serve` [default: toy]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Model name in the API
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// KV blocks per replica
    #[arg(long, value_name = "N")]
    cache_blocks: Option<usize>,
    /// Type of weights and KV: f32 or bf16
    #[arg(long, value_name = "DTYPE")]
    dtype: Option<String>,
    /// Model that predicts whether conversations continue
    ///
    /// `headstart train` writes it.
    #[arg(long, value_name = "FILE")]
    predictor: Option<PathBuf>,
    /// Sentence encoder of the predictor [default: built in]
    #[arg(long, value_name = "FOLDER", requires = "predictor")]
    encoder: Option<String>,
    /// Context cache, as for `serve`
    #[arg(long, value_name = "DIR|URL")]
    context_cache: Option<String>,
    /// Budget of the context cache, GiB
    #[arg(long, value_name = "GIB", requires = "context_cache")]
    context_cache_gib: Option<f64>,
    /// Host memory below the engine's cache, per replica, GiB
    #[arg(long, value_name = "GIB", requires = "context_cache")]
    host_cache_gib: Option<f64>,
    /// Running engine, as for `serve`, in place of embedded replicas
    #[arg(long, value_name = "SPEC", id = "upstream")]
    upstream: Vec<String>,
    /// File whose first line is the server's API key, for --url
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
}

impl BenchServer {
    /// Returns the options of a server that the benchmark starts: a free port, no configuration
    /// file.
    pub(crate) fn options(&self) -> ServeOptions {
        ServeOptions {
            // A free port: several servers run one after the other, and another may be in use.
            port: Some(0),
            replicas: self.replicas.map(usize::from),
            model: self.model.clone(),
            served_model_name: self.served_model_name.clone(),
            cache_blocks: self.cache_blocks,
            dtype: self.dtype.clone(),
            predictor: self.predictor.clone(),
            encoder: self.encoder.clone(),
            context_cache: self.context_cache.clone(),
            context_cache_gib: self.context_cache_gib,
            host_cache_gib: self.host_cache_gib,
            upstream: self.upstream.clone(),
            ..ServeOptions::default()
        }
    }

    /// Starts a server and a client of it.
    pub(crate) async fn start(&self, config: ServeConfig) -> Result<(RunningServer, ApiClient)> {
        let server = headstart_server::serve(config).await?;
        let models = server.gateway().models();
        // Without a name from the user the first model of the server is asked.
        let model = self.served_model_name.as_deref().or(models.first().map(String::as_str));
        let model = model.context("the upstreams name no model; do they run and listen there?")?;
        let client = ApiClient::new(&format!("http://{}", server.address()), model, None)?;
        Ok((server, client))
    }

    /// A client of a server that runs already.
    pub(crate) fn client(&self, url: &str) -> Result<ApiClient> {
        let options =
            ServeOptions { api_key_file: self.api_key_file.clone(), ..ServeOptions::default() };
        let model = self.served_model_name.as_deref().unwrap_or("toy");
        Ok(ApiClient::new(url, model, options.api_key()?.as_deref())?)
    }
}
