//! `headstart bench trace`.

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use headstart_cache::policy::{self, Setting};
use headstart_core::TraceRequest;
use headstart_core::figures::counted;
use headstart_loadgen::trace::{self, SPEED_MIN};
use headstart_loadgen::{ApiClient, Pace, TraceObserved, TraceReport};
use headstart_server::{EngineBackend, RunningServer, ServeConfig};
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::TraceError;
use serde_json::json;

use super::super::serve;
use super::BenchServer;
use super::prediction::{Agreement, CacheSetting, Prediction};
use super::trace_tiers::{TierAgreement, TieredServer};
use crate::config::ServeOptions;
use crate::exit::usage;
use crate::input::{TraceInput, remarks};
use crate::prompts::{PromptAlterations, PromptOptions, PromptStream};

/// Requests under way at once unless told otherwise: as many as a replica runs.
const CONCURRENCY: usize = 64;

/// Default tokens per block of the server.
const BLOCK_SIZE: usize = 16;

/// Send a trace to a server; compare its hits with a replay.
#[derive(Args, Debug)]
#[command(after_help = include_str!("trace.help.txt"))]
pub(crate) struct TraceBenchCommand {
    #[command(flatten)]
    input: TraceInput,
    /// Measure this running server
    #[arg(long, conflicts_with = "upstream", help_heading = "Server")]
    url: Option<String>,
    /// When to send requests
    #[arg(long, value_enum, default_value = "sequential")]
    #[arg(help_heading = "Load")]
    mode: Mode,
    /// Speed of the other modes, relative to the recorded times
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    #[arg(help_heading = "Load")]
    speed: f64,
    /// Maximum concurrent requests of the other modes
    #[arg(long, default_value_t = CONCURRENCY, value_name = "N", help_heading = "Load")]
    concurrency: usize,
    /// Requests to send [default: all]
    #[arg(long, value_name = "N", help_heading = "Load")]
    requests: Option<usize>,
    /// Tokens per block of the server's cache [default: 16]
    #[arg(long, value_name = "N", help_heading = "Server")]
    block_size: Option<usize>,
    /// Eviction policy of the server's cache [default: hazard; of --url, lru]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    policy: Option<String>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    prompts: PromptOptions,
    #[command(flatten)]
    server: BenchServer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// One at a time, in file order
    Sequential,
    /// At the arrival times, without waiting for answers
    Open,
    /// At the arrival times, but after the answers of the session
    Sessions,
}

/// Reference for a live run.
enum LiveRunReference {
    /// A replay of its cache, if that is known.
    Replay(Option<CacheSetting>),
    /// Its cache and tiers in virtual time.
    Tiers(Box<TieredServer>),
}

/// Results of a run.
struct TraceRunResult {
    observed: TraceObserved,
    agreement: Option<Agreement>,
    tiers: Option<TierAgreement>,
    altered: PromptAlterations,
}

/// Drives a server with a trace.
pub(super) fn run(trace: &TraceBenchCommand) -> Result<()> {
    let pace = pace(trace)?;
    let mut reader = trace.input.open_uncounted()?;
    let info = reader.info().clone();
    let prompts = trace.prompts.prompts(&info, reader.by_ref())?;
    let measured = serve::runtime()?.block_on(async {
        match &trace.url {
            Some(url) => {
                let setting = setting_of_url(trace);
                let mut beside = LiveRunReference::Replay(setting);
                let client = trace.server.client(url)?;
                measure(trace, &client, prompts, pace, &mut beside).await
            }
            None => {
                let options = options(trace);
                let config = serve::config(&options)?;
                let beside = match TieredServer::of(&options, &config) {
                    Some(tiered) => LiveRunReference::Tiers(Box::new(tiered)),
                    None => LiveRunReference::Replay(setting_of(&config)),
                };
                let (server, client) = trace.server.start(config).await?;
                // The result is kept until the server has stopped; an early return would leave it
                // running.
                let target = OwnServer { server: &server, client: &client };
                let measured = measure_own(trace, target, prompts, pace, beside).await;
                server.shutdown().await;
                measured
            }
        }
    })?;
    let remarks = remarks(&reader);
    remarks.iter().for_each(|remark| output::note(remark));
    report(trace, &measured)
}

fn pace(trace: &TraceBenchCommand) -> Result<Pace> {
    let usage = |message: &str| Err(usage(message));
    if trace.requests == Some(0) || trace.concurrency == 0 {
        return usage("--requests and --concurrency must be at least 1");
    }
    if trace.speed.is_nan() || trace.speed < SPEED_MIN {
        return usage(&format!("--speed must be at least {SPEED_MIN}"));
    }
    if trace.mode == Mode::Sessions && trace.server.context_cache.is_some() {
        return usage(
            "--context-cache: the simulation of tiers knows sequential and open mode only",
        );
    }
    // A policy's name is checked without a cache, before the server starts.
    let nowhere = Setting { capacity: 0, block_tokens: 1 };
    let known = trace.policy.as_deref().map(|name| policy::by_name(name, nowhere));
    if let Some(Err(error)) = known {
        return usage(&format!("--policy: {error}"));
    }
    Ok(match trace.mode {
        Mode::Sequential => Pace::Sequential,
        Mode::Open => Pace::Open { speed: trace.speed, concurrency: trace.concurrency },
        Mode::Sessions => Pace::Sessions { speed: trace.speed, concurrency: trace.concurrency },
    })
}

fn options(trace: &TraceBenchCommand) -> ServeOptions {
    let given = trace.server.options();
    // The engine's own options say nothing to upstreams, which refuse them.
    let replicas = given.upstream.is_empty().then_some(1);
    ServeOptions {
        replicas: given.replicas.or(replicas),
        block_size: trace.block_size,
        policy: trace.policy.clone(),
        ..given
    }
}

/// The one cache of the server that is started; several find other things than one.
fn setting_of(config: &ServeConfig) -> Option<CacheSetting> {
    match &config.backend {
        // Two replicas have two caches, and routing decides between them.
        EngineBackend::Embedded(fleet) if fleet.replicas == 1 => Some(CacheSetting {
            blocks: fleet.engine.cache_blocks,
            block_size: fleet.engine.block_size as u32,
            policy: fleet.policy.clone(),
        }),
        _ => None,
    }
}

/// The cache of the server at `--url`, as far as it was told.
fn setting_of_url(trace: &TraceBenchCommand) -> Option<CacheSetting> {
    Some(CacheSetting {
        blocks: trace.server.cache_blocks?,
        block_size: u32::try_from(trace.block_size.unwrap_or(BLOCK_SIZE)).ok()?,
        policy: trace.policy.clone().unwrap_or_else(|| "lru".to_owned()),
    })
}

/// A server of the benchmark's own, with a client of it.
#[derive(Clone, Copy)]
struct OwnServer<'a> {
    server: &'a RunningServer,
    client: &'a ApiClient,
}

/// Measures a server of the benchmark's own, whose tiers can be looked at.
async fn measure_own<I>(
    trace: &TraceBenchCommand,
    target: OwnServer<'_>,
    prompts: PromptStream<I>,
    pace: Pace,
    mut beside: LiveRunReference,
) -> Result<TraceRunResult>
where
    I: Iterator<Item = Result<TraceRequest, TraceError>>,
{
    let gateway = target.server.gateway();
    if let LiveRunReference::Tiers(_) = &beside {
        // Units of an earlier run would be hits that the simulation does not know.
        TieredServer::check_empty(gateway)?;
    }
    let mut measured = measure(trace, target.client, prompts, pace, &mut beside).await?;
    if let LiveRunReference::Tiers(tiered) = &beside {
        let samples = measured.observed.samples.iter();
        let found = samples.map(|sample| (sample.number, sample.cached_tokens));
        measured.tiers = Some(tiered.compare(gateway, pace, &found.collect())?);
    }
    Ok(measured)
}

async fn measure<I>(
    trace: &TraceBenchCommand,
    client: &ApiClient,
    mut prompts: PromptStream<I>,
    pace: Pace,
    beside: &mut LiveRunReference,
) -> Result<TraceRunResult>
where
    I: Iterator<Item = Result<TraceRequest, TraceError>>,
{
    let id_tokens = prompts.id_tokens();
    let (mut prediction, mut tiered) = match beside {
        LiveRunReference::Replay(setting) => {
            let setting = setting.take();
            let predicted = setting.map(|setting| Prediction::new(setting, id_tokens));
            (predicted.transpose()?, None)
        }
        LiveRunReference::Tiers(tiered) => (None, Some(tiered)),
    };
    // The stream is borrowed only: its counts of altered requests are read below.
    let sent = prompts.by_ref().take(trace.requests.unwrap_or(usize::MAX));
    let sent = sent.map(|prompt| {
        let (request, prompt) = prompt?;
        // The replay runs as prompts are sent, so the trace is read once.
        if let Some(prediction) = &mut prediction {
            prediction.serve(&request, &prompt);
        }
        if let Some(tiered) = &mut tiered {
            tiered.note(&prompt);
        }
        anyhow::Ok(prompt)
    });
    let progress = progress(trace.requests);
    let observed = trace::run(client, sent, pace, |ended| {
        progress.set_position(ended as u64);
    })
    .await;
    progress.end();
    // The bar ends before an error is printed.
    let observed = observed?;
    let agreement = prediction.map(|prediction| prediction.compare(&observed.samples));
    Ok(TraceRunResult {
        agreement: agreement.transpose()?,
        tiers: None,
        altered: prompts.altered(),
        observed,
    })
}

fn report(trace: &TraceBenchCommand, measured: &TraceRunResult) -> Result<()> {
    let (report, altered) = (TraceReport::of(&measured.observed), measured.altered);
    if trace.json {
        let line = json!({
            "report": report, "replay": measured.agreement, "tiers": measured.tiers,
            "cut": altered.cut, "empty": altered.empty,
        });
        output::line(&line.to_string())?;
    } else {
        // The report comes before the failures, which end the command with an error.
        output::line(&output::fitted(&report.to_markdown()))?;
        if let Some(agreement) = &measured.agreement {
            output::line(&output::fitted(&agreement.to_markdown()))?;
        }
        if let Some(tiers) = &measured.tiers {
            output::line(&output::fitted(&tiers.to_markdown()))?;
        }
        if altered != PromptAlterations::default() {
            output::line(&format!("Of the trace's requests, {altered}."))?;
        }
    }
    if let Some(first) = report.failures.first() {
        bail!(
            "{} of {} failed, the first: {first}",
            report.failed,
            counted(report.requests as u64, "request")
        );
    }
    ensure!(report.requests > 0, "no request was sent: {altered}");
    Ok(())
}

/// Requests that have ended; only a limit says of how many.
fn progress(requests: Option<usize>) -> TaskProgress {
    let progress = match requests {
        Some(requests) => TaskProgress::steps("measuring requests", requests),
        None => TaskProgress::endless("measuring requests"),
    };
    progress.announced()
}
