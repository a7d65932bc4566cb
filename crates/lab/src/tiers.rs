//! `headstart-lab tiers`: load or compute, live.
//!
//! An engine as in `serve` over a real disk, whose reads come through a line of known speed. The
//! same prompt is asked for with its prefix on that tier and nowhere else: once loading it always,
//! once computing it always, and once as the plan decides. Does not know servers: one thread drives
//! the engines, one request at a time.

mod arm;
mod models;
mod report;
mod sweep;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use headstart_core::UsageError;
use headstart_engine::kv::Dtype;
use headstart_terminal as output;

use crate::one_by_one::ScratchFolder;
use headstart::parts::parsed;

/// Longest latency that can be asked for, milliseconds.
const MOST_LATENCY_MS: f64 = 10_000.0;

/// Rounds beyond which nothing is learned.
const MOST_ROUNDS: usize = 1_000;

/// Measure whether loading a prefix is faster than recomputing it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab tiers --prefix 1024           this disk, the built-in model
  headstart-lab tiers --model ./qwen3-0.6b --dir /mnt/nvme --prefix 2048,8192
  headstart-lab tiers --mb-per-s 100,400 --latency-ms 30      an object store
  headstart-lab tiers --model toy-small,toy,toy-large --rounds 7 --json
  headstart-lab tiers --context-cache-dtype fp8 --mb-per-s 20,50

Without --mb-per-s each prefix is measured at six speeds: that of the disk, and
1/4, 1/2, 1, 2 and 8 times the break-even speed. At the break-even speed loading
takes as long as recomputing.")]
pub(crate) struct TiersBench {
    /// Models: toy-small, toy, toy-large, folders or hub names
    #[arg(
        long,
        value_name = "M[,M…]",
        default_value = "toy",
        value_delimiter = ',',
        help_heading = "Model"
    )]
    model: Vec<String>,
    /// Type of weights and KV: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", help_heading = "Model")]
    dtype: String,
    /// Stored type: same (as the engine) or fp8
    #[arg(long, value_name = "DTYPE", default_value = "same", help_heading = "Tier")]
    context_cache_dtype: String,
    /// Lengths of the stored prefix, tokens
    #[arg(
        long,
        value_name = "N[,N…]",
        default_value = "256,1024,4096",
        value_delimiter = ',',
        help_heading = "Measurement"
    )]
    prefix: Vec<usize>,
    /// Maximum bandwidth of the tier, MB/s
    ///
    /// The disk can be slower.
    #[arg(long, value_name = "X[,X…]", value_delimiter = ',', help_heading = "Tier")]
    mb_per_s: Vec<f64>,
    /// Latency to add to the disk's
    #[arg(long, value_name = "MS", default_value_t = 0.0, help_heading = "Tier")]
    latency_ms: f64,
    /// Requests of each kind per row, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Measurement")]
    rounds: usize,
    /// Folder on the disk to measure [default: temporary folder]
    ///
    /// Its new files are deleted at the end, unless the command is interrupted.
    #[arg(long, value_name = "DIR", help_heading = "Tier")]
    dir: Option<PathBuf>,
    /// Print JSON, one line per row
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the benchmark.
pub(super) fn run(bench: &TiersBench) -> Result<()> {
    check(bench)?;
    let dtype: Dtype = parsed(&bench.dtype, "--dtype")?;
    let stored = parsed(&bench.context_cache_dtype, "--context-cache-dtype")?;
    let models = bench.model.iter().map(|spec| models::load(spec, dtype));
    let models: Vec<models::NamedModel> = models.collect::<Result<_>>()?;
    // All models must hold all prefixes before the first measurement, which takes minutes.
    for (model, &prefix) in
        models.iter().flat_map(|model| bench.prefix.iter().map(move |prefix| (model, prefix)))
    {
        model.must_hold(prefix)?;
    }
    let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = ScratchFolder::new(&parent)?;
    let asked = sweep::TierSweepParameters {
        folder: &folder.0,
        dtype,
        stored,
        prefixes: &bench.prefix,
        mb_per_s: &bench.mb_per_s,
        latency: Duration::from_secs_f64(bench.latency_ms / 1e3),
        rounds: bench.rounds,
    };
    let mut cells = Vec::new();
    for model in &models {
        sweep::run(model, &asked, |cell| {
            // Rows are printed as they are done: a sweep may take hours.
            if bench.json {
                output::line(&report::json(&cell).to_string())?;
            } else {
                output::note(&report::progress(&cell));
            }
            cells.push(cell);
            Ok(())
        })?;
    }
    if bench.json { Ok(()) } else { output::line(&output::fitted(&report::text(&cells))) }
}

fn check(bench: &TiersBench) -> Result<()> {
    let usage = |message: String| Err(UsageError(message).into());
    if !(1..=MOST_ROUNDS).contains(&bench.rounds) {
        return usage(format!("--rounds {}: expected 1 to {MOST_ROUNDS}", bench.rounds));
    }
    if !(0.0..=MOST_LATENCY_MS).contains(&bench.latency_ms) {
        return usage(format!(
            "--latency-ms {}: expected 0 to {MOST_LATENCY_MS}",
            bench.latency_ms
        ));
    }
    // NaN fails both comparisons.
    let is_rate = |&rate: &f64| rate.is_finite() && rate > 0.0;
    if let Some(rate) = bench.mb_per_s.iter().find(|rate| !is_rate(rate)) {
        return usage(format!("--mb-per-s {rate}: expected numbers above 0"));
    }
    Ok(())
}
