//! `headstart calibrate`: what an engine's steps cost, measured or derived.

mod file;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use headstart_core::EngineModel;
use headstart_core::cost::roofline::{Gpu, ModelShape};
use headstart_loadgen::{ApiClient, TimingPlan, TimingSample, timing};
use headstart_report::calibrate::{self as report, CostModelFile};
use headstart_server::{EngineBackend, ServeConfig};
use headstart_sim::calibrate::{EngineFit, TimedWork, WorkTiming};
use headstart_terminal::{self as output, Progress, TaskProgress};

use super::bench::BenchServer;
use super::serve;
use crate::config::{ServeOptions, cost_model};
use crate::exit::usage;
use crate::prompts::{unseen_seed, vocabulary};

/// Longest prompt that is timed unless told otherwise, tokens.
const MAX_PROMPT_TOKENS: u32 = 4_096;

/// Tokens of a step of a server that does not say: vLLM's default on GPUs below an H100.
const MAX_BATCHED_TOKENS: usize = 2_048;

/// Calibrate a cost model on an engine, or derive one.
#[derive(Args, Debug)]
#[command(after_help = include_str!("calibrate.help.txt"))]
pub(crate) struct Calibrate {
    /// Measure this running server
    #[arg(long, conflicts_with_all = ["upstream", "derive"], help_heading = "Server")]
    url: Option<String>,
    /// Derive the cost model of this model from data sheets
    ///
    /// The error for an unknown name lists the known ones.
    #[arg(long, value_name = "MODEL", requires = "gpu", help_heading = "Data sheets")]
    derive: Option<String>,
    /// GPU: l4, l40s, a100, h100, h200, b200 or mi300x
    #[arg(long, value_name = "NAME", requires = "derive", help_heading = "Data sheets")]
    gpu: Option<String>,
    /// Tensor-parallel GPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, 64),
        help_heading = "Data sheets")]
    gpus: u32,
    /// Also write the cost model to a file
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Maximum prompt length, tokens [default: 4096, if it fits]
    #[arg(long, value_name = "N", value_parser = within(16, u32::MAX),
        help_heading = "Measurement")]
    max_prompt_tokens: Option<u32>,
    /// Maximum concurrent answers
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = within(1, 1_024),
        help_heading = "Measurement")]
    max_sequences: u32,
    /// Tokens per timed answer
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = within(2, 4_096),
        help_heading = "Measurement")]
    answer_tokens: u32,
    /// Runs per shape, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within(1, 100),
        help_heading = "Measurement")]
    rounds: u32,
    /// Maximum tokens per step of the server [default: the server's]
    ///
    /// 2048 for a server at --url.
    #[arg(long, value_name = "N", value_parser = within(1, 1 << 20),
        help_heading = "Measurement")]
    max_batched_tokens: Option<u32>,
    /// KV capacity of the server, tokens [default: the server's]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    kv_tokens: Option<usize>,
    /// Range of random token ids, without HIGH
    ///
    /// Leave out the model's special tokens.
    #[arg(long, value_name = "LOW..HIGH", default_value = "512..4093")]
    #[arg(help_heading = "Measurement")]
    vocab: String,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    server: BenchServer,
}

fn within(least: u32, most: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

/// Limits of the server that need no timing.
#[derive(Clone, Copy, Debug)]
struct ServerLimits {
    max_batched_tokens: usize,
    kv_tokens: usize,
    max_sequences: usize,
    max_context: usize,
}

/// Measures or derives, and tells.
pub(crate) fn run(calibrate: &Calibrate) -> Result<()> {
    // The file is written after minutes of measurements, so its place is checked now.
    if let Some(file) = &calibrate.output {
        output::files(&[("--output", file)], &[])?;
    }
    match (&calibrate.derive, &calibrate.gpu) {
        (Some(model), Some(gpu)) => tell(calibrate, &derived(calibrate, model, gpu)?, None),
        _ => measure(calibrate),
    }
}

/// Derives the cost model of `model` on `gpu` from data sheets.
fn derived(calibrate: &Calibrate, model: &str, gpu: &str) -> Result<CostModelFile> {
    let unknown = |option: &str, name: &str, known: &[&str]| {
        usage(format!("{option} {name}: known are {}", known.join(", ")))
    };
    let models = ModelShape::KNOWN.map(|shape| shape.name);
    let (model, gpu) = (&model.to_lowercase()[..], &gpu.to_lowercase()[..]);
    let shape = ModelShape::find(model).ok_or_else(|| unknown("--derive", model, &models))?;
    let gpus = Gpu::KNOWN.map(|gpu| gpu.name);
    let known = Gpu::find(gpu).ok_or_else(|| unknown("--gpu", gpu, &gpus))?;
    let number = calibrate.gpus;
    // Tensor parallelism gives each GPU the same number of heads.
    ensure!(
        (shape.query_heads as u32).is_multiple_of(number),
        usage(format!(
            "--gpus {number}: {model} has {} query heads, which {number} GPUs cannot share equally",
            shape.query_heads
        ))
    );
    let Some(engine) = EngineModel::derived(&shape, &known, number) else {
        bail!(usage(format!("--gpus {number}: the weights of {model} alone fill {number} {gpu}")));
    };
    let max_batched_tokens = calibrate.batched().unwrap_or(engine.max_batched_tokens);
    Ok(CostModelFile {
        told: vec![format!(
            "derived, not measured: {model} on {number} {gpu}, by the data sheets' roofs"
        )],
        engine: EngineModel {
            kv_tokens: calibrate.kv_tokens.unwrap_or(engine.kv_tokens),
            max_batched_tokens,
            ..engine
        },
        // A step must have room for a token of each sequence.
        max_sequences: cost_model::MAX_SEQUENCES.min(max_batched_tokens),
        latency_s: 0.0,
    })
}

fn measure(calibrate: &Calibrate) -> Result<()> {
    let starting = TaskProgress::endless("measuring the engine's steps: about three minutes");
    // The measurement takes minutes, so a log gets its first line at once.
    let starting = starting.announced();
    let (timed, limits) = serve::runtime()?.block_on(async {
        match &calibrate.url {
            Some(url) => {
                let client = calibrate.server.client(url)?;
                let limits = calibrate.limits_of_url(url).await?;
                let timed = calibrate.time(&client, limits).await?;
                anyhow::Ok((timed, limits))
            }
            None => {
                let given = calibrate.server.options();
                let config = serve::config(&ServeOptions {
                    // One replica, because several would share the machine's threads and disturb
                    // each other.
                    replicas: Some(given.replicas.unwrap_or(1)),
                    ..given
                })?;
                let limits = calibrate.limits_of(&config)?;
                let (server, client) = calibrate.server.start(config).await?;
                let timed = calibrate.time(&client, limits).await;
                // The server is stopped even if the measurement failed.
                server.shutdown().await;
                Ok((timed?, limits))
            }
        }
    })?;
    starting.end();
    let timings: Vec<WorkTiming> = timed.iter().map(timing_of).collect();
    // The budget of a step matters: longer prompts are computed in several steps.
    let fit = EngineFit::of(&timings, limits.max_batched_tokens);
    let shown = report::CalibrationReport::new(fit, &timings);
    let written = CostModelFile {
        told: shown.in_short(),
        engine: EngineModel {
            cost: fit.cost,
            max_batched_tokens: limits.max_batched_tokens,
            kv_tokens: limits.kv_tokens,
            load_token_s: 0.0,
        },
        // A step must have room for a token of each sequence.
        max_sequences: limits.max_sequences.min(limits.max_batched_tokens),
        latency_s: fit.latency_s,
    };
    tell(calibrate, &written, Some(&shown))
}

fn timing_of(timed: &TimingSample) -> WorkTiming {
    let shape = match *timed {
        TimingSample::Prefill { cached, new, .. } => {
            TimedWork::Prefill { before: cached as usize, new: new as usize }
        }
        TimingSample::Decode { sequences, context, .. } => {
            TimedWork::Decode { sequences: sequences as usize, context: context as usize }
        }
    };
    WorkTiming {
        shape,
        // A clock that does not move would be a time of nothing.
        seconds: timed.time().as_secs_f64().max(1e-9),
    }
}

fn tell(
    calibrate: &Calibrate,
    written: &CostModelFile,
    shown: Option<&report::CalibrationReport>,
) -> Result<()> {
    let text = written.to_toml();
    // The file is read back as `serve` reads it, so a bad fit is not written.
    cost_model::parse(&text)
        .map_err(|error| anyhow::anyhow!("no cost model that can be: {error}"))?;
    if let Some(file) = &calibrate.output {
        output::save(file, &text)?;
    }
    match (calibrate.json, shown) {
        (true, _) => output::line(&report::json(written, shown).to_string()),
        (false, Some(shown)) => output::line(&format!("{}\n{text}", shown.table())),
        (false, None) => output::line(&text),
    }
}

impl Calibrate {
    fn batched(&self) -> Option<usize> {
        self.max_batched_tokens.map(|tokens| tokens as usize)
    }

    fn limits_of(&self, config: &ServeConfig) -> Result<ServerLimits> {
        let EngineBackend::Embedded(fleet) = &config.backend else {
            bail!(usage("--upstream: give the engine itself with --url"));
        };
        if fleet.replicas > 1 {
            bail!(usage("--replicas: an engine is measured alone"));
        }
        let engine = &fleet.engine;
        let kv_tokens = engine.cache_blocks * engine.block_size;
        Ok(ServerLimits {
            max_batched_tokens: self.batched().unwrap_or(engine.max_batched_tokens),
            kv_tokens: self.kv_tokens.unwrap_or(kv_tokens),
            max_sequences: engine.max_sequences,
            // An emulated engine has no model whose context could limit a prompt.
            max_context: match fleet.emulated {
                Some(_) => kv_tokens,
                None => fleet.model.config.max_context,
            },
        })
    }

    async fn limits_of_url(&self, url: &str) -> Result<ServerLimits> {
        let kv_tokens = match self.kv_tokens {
            Some(tokens) => Some(tokens),
            None => file::kv_tokens_of(url).await?,
        };
        let Some(kv_tokens) = kv_tokens else {
            bail!("{url} does not say how many tokens fit its KV memory; give --kv-tokens");
        };
        Ok(ServerLimits {
            max_batched_tokens: self.batched().unwrap_or(MAX_BATCHED_TOKENS),
            kv_tokens,
            max_sequences: cost_model::MAX_SEQUENCES,
            max_context: kv_tokens,
        })
    }

    async fn time(&self, client: &ApiClient, limits: ServerLimits) -> Result<Vec<TimingSample>> {
        // A prompt and its answer fit the context, and half of the memory.
        let answer = self.answer_tokens as usize;
        let fit = limits.max_context.min(limits.kv_tokens / 2).saturating_sub(answer);
        let default = (MAX_PROMPT_TOKENS as usize).min(fit) as u32;
        let plan = TimingPlan {
            max_prompt_tokens: self.max_prompt_tokens.unwrap_or(default),
            max_sequences: self.max_sequences.min(limits.max_sequences as u32),
            max_cached_tokens: (limits.kv_tokens / 2).min(u32::MAX as usize) as u32,
            answer_tokens: self.answer_tokens,
            rounds: self.rounds as usize,
            vocabulary: vocabulary(&self.vocab)?,
            // A new seed for each run: prompts of an earlier one may still be cached.
            seed: unseen_seed(),
        };
        if plan.is_empty() {
            bail!(
                "a KV memory of {} tokens is too small for a prompt; give more",
                limits.kv_tokens
            );
        }
        let progress = TaskProgress::steps("measuring", plan.len());
        let timed = timing::run(client, &plan, |done| progress.set_position(done as u64)).await;
        progress.end();
        Ok(timed?)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    /// Requests at once in the file that `args` derive.
    fn max_sequences(args: &[&str]) -> usize {
        let given = ["calibrate", "--derive", "qwen3-32b", "--gpu", "h100"];
        let command = Calibrate::augment_args(Command::new("calibrate"));
        let matches = command.get_matches_from([&given[..], args].concat());
        let calibrate = Calibrate::from_arg_matches(&matches).expect("valid");
        let written = derived(&calibrate, "qwen3-32b", "h100").expect("it fits");
        cost_model::parse(&written.to_toml()).expect("a cost model").max_sequences
    }

    #[test]
    fn a_derived_step_has_room_for_a_token_of_each_sequence() {
        assert_eq!(max_sequences(&[]), 1_024);
        assert_eq!(max_sequences(&["--max-batched-tokens", "512"]), 512);
        assert_eq!(max_sequences(&["--max-batched-tokens", "4096"]), 1_024);
    }
}
