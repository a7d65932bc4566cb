//! `headstart bench`: measures servers. One file per kind of load.

mod chat;
mod continuation;
mod fleet;
mod importance;
mod one_by_one;
mod prediction;
mod recording;
mod runs;
mod tiers;
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
pub(crate) enum Bench {
    /// Multi-turn conversations, closed loop, one run per strategy and policy.
    Chat(Box<chat::Chat>),
    /// A trace, with tokens in place of its blocks, beside what a replay predicts.
    Trace(Box<trace::Trace>),
    /// A fleet under load, strategy by strategy, beside what the simulator says.
    Fleet(Box<fleet::Fleet>),
    /// What a hit in a lower tier costs on this machine, and whether loading is faster.
    Tiers(tiers::TiersBench),
    /// What loading only what matters of a stored prefix saves, and what it changes.
    Importance(Box<importance::ImportanceBench>),
}

/// Runs the benchmark.
pub(crate) fn run(bench: Bench) -> Result<()> {
    match bench {
        Bench::Chat(chat) => chat::run(&chat),
        Bench::Trace(trace) => trace::run(&trace),
        Bench::Fleet(fleet) => fleet::run(&fleet),
        Bench::Tiers(bench) => tiers::run(&bench),
        Bench::Importance(bench) => importance::run(&bench),
    }
}

/// The servers that the benchmark starts: options of `headstart serve`.
#[derive(Args, Debug, Default)]
pub(crate) struct BenchServer {
    /// Embedded replicas [default: 2; for a trace and for calibrate 1, for a fleet the preset's]
    #[arg(long, value_name = "N")]
    replicas: Option<NonZeroUsize>,
    /// Model, as for serve [default: toy]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The model's name in the API
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// KV blocks per replica
    #[arg(long, value_name = "N")]
    cache_blocks: Option<usize>,
    /// f32 or bf16
    #[arg(long, value_name = "DTYPE")]
    dtype: Option<String>,
    /// What says whether conversations go on, as for serve
    #[arg(long, value_name = "FILE")]
    predictor: Option<PathBuf>,
    /// Folder of the sentence encoder that it was trained with [default: built in]
    #[arg(long, value_name = "FOLDER", requires = "predictor")]
    encoder: Option<String>,
    /// Where to keep keys and values below memory, as for serve
    #[arg(long, value_name = "DIR|URL")]
    context_cache: Option<String>,
    /// Most that is kept there, GiB
    #[arg(long, value_name = "GIB", requires = "context_cache")]
    context_cache_gib: Option<f64>,
    /// Host memory per replica between the two, GiB
    #[arg(long, value_name = "GIB", requires = "context_cache")]
    host_cache_gib: Option<f64>,
    /// Running engines instead of embedded replicas, as for serve
    #[arg(long, value_name = "SPEC", id = "upstream")]
    upstream: Vec<String>,
    /// File whose first line is the server's API key (with --url)
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
}

impl BenchServer {
    /// What a server of the benchmark's own is started with: a free port, no file's settings.
    pub(crate) fn options(&self) -> ServeOptions {
        ServeOptions {
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
        let model = self
            .served_model_name
            .as_deref()
            .or(models.first().map(String::as_str));
        let model = model.context("the upstreams name no model; do they run and listen there?")?;
        let client = ApiClient::new(&format!("http://{}", server.address()), model, None)?;
        Ok((server, client))
    }

    /// A client of a server that runs already.
    pub(crate) fn client(&self, url: &str) -> Result<ApiClient> {
        let options = ServeOptions {
            api_key_file: self.api_key_file.clone(),
            ..ServeOptions::default()
        };
        let model = self.served_model_name.as_deref().unwrap_or("toy");
        Ok(ApiClient::new(url, model, options.api_key()?.as_deref())?)
    }
}
