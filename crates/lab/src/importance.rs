//! `headstart-lab importance`: what loading only what matters saves, and what it changes.
//!
//! Engines as in `serve`, each over a real disk whose reads come through a line of known speed.
//! The same questions about the same documents, which are on the disk, are asked of each in turn.
//! Answers are compared with those of a full computation, which the engine's own guard makes
//! behind each.

mod arm;
mod report;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod variants;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use headstart_core::UsageError;
use headstart_engine::kv::Dtype;
use headstart_selective::Merge;
use headstart_terminal::{self as output, Progress, TaskProgress};

use crate::one_by_one::ScratchFolder;
use headstart::parts::parsed;
use sweep::ImportanceRow;
use variants::Variant;
use workload::DocumentWorkload;

/// Questions beyond which nothing is learned.
const MOST_QUESTIONS: usize = 10_000;

/// Measure what loading part of a prefix saves, and what it changes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab importance                   32 heads, 5,000 tokens, from disk
  headstart-lab importance --model needle-gqa --ratio 0.05,0.1,0.25,0.5
  headstart-lab importance --device-cache 0.1 --host-cache 0.3 --documents 4
  headstart-lab importance --io-share 0.51,0.75,0.98 --ratio 0.25
  headstart-lab importance --task majority --variant full,impress
  headstart-lab importance --model ./qwen3-0.6b --text notes.txt --prefix 4096

needle-mha, needle-gqa and needle-small are synthetic models with known answers.
They show that the right tokens are found, not how much accuracy a trained model
loses. Other models answer questions about the text of --text, or about random
tokens.

I/O is the time to first token with nothing to compute. It is less than the time
in which the disk is busy; --json prints both.

Variants:
  recompute           no stored prefix
  full                the whole prefix, with an LRU cache of parts
  units               as `serve` without --importance: whole units from disk
  h2o-lru, h2o-lfu    keys of all heads, then selected values
  impress             IMPRESS (FAST'25): probe heads, reordered chunks, scores
  impress-no-probe, impress-no-reorder, impress-no-score
                      impress without that part
  impress-blind       impress with probe heads 0, 1, 2
  chunks              as `serve` with --importance: impress with whole chunks
  chunks-no-reorder   chunks without reordered chunks")]
pub(crate) struct ImportanceBench {
    /// Model: needle-mha, needle-gqa, needle-small, toy, folder, hub name
    #[arg(long, value_name = "MODEL", default_value = "needle-mha", help_heading = "Model")]
    model: String,
    /// Type of weights and KV: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", help_heading = "Model")]
    dtype: String,
    /// Length of a document, tokens
    ///
    /// Only whole chunks are stored.
    #[arg(long, value_name = "N", default_value_t = 5_000, help_heading = "Workload")]
    prefix: usize,
    /// Number of documents
    ///
    /// Each gets half as many questions as the one before.
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Workload")]
    documents: usize,
    /// Task of the needle models: value or majority
    ///
    /// majority needs the whole document.
    #[arg(long, value_name = "TASK", default_value = "value", help_heading = "Workload")]
    task: String,
    /// Text for documents and questions
    ///
    /// For models with a tokenizer.
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    text: Option<PathBuf>,
    /// Share of the tokens that each probe selects
    #[arg(
        long,
        value_name = "R[,R…]",
        default_value = "0.25",
        value_delimiter = ',',
        help_heading = "Selection"
    )]
    ratio: Vec<f64>,
    /// Maximum share of a query's attention to leave out, on average
    ///
    /// Selections drop their least important tokens up to this share, in all variants with a
    /// ratio. IMPRESS has 0.
    #[arg(long, value_name = "S", default_value_t = 0.02, help_heading = "Selection")]
    spared: f64,
    /// Merge of the probes' selections: union, majority or sum
    ///
    /// sum selects no more than the ratio. For the impress and chunks variants.
    #[arg(long, value_name = "HOW", default_value = "union", help_heading = "Selection")]
    merge: String,
    /// Tokens per chunk: 16, 32 or 64
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Selection")]
    chunk: usize,
    /// Variants [default: all]
    #[arg(long, value_name = "V[,V…]", value_delimiter = ',', help_heading = "Selection")]
    variant: Vec<Variant>,
    /// Share of loading in the TTFT of a full load
    ///
    /// The speed of the disk follows from it.
    #[arg(
        long,
        value_name = "S[,S…]",
        default_value = "0.9",
        value_delimiter = ',',
        help_heading = "Storage"
    )]
    io_share: Vec<f64>,
    /// Bandwidth of the disk, MB/s, in place of --io-share
    #[arg(long, value_name = "X", conflicts_with = "io_share", help_heading = "Storage")]
    mb_per_s: Option<f64>,
    /// Latency of the disk
    #[arg(long, value_name = "MS", default_value_t = 0.1, help_heading = "Storage")]
    latency_ms: f64,
    /// Speed of host memory, relative to the disk
    #[arg(long, value_name = "X", default_value_t = 5.0, help_heading = "Storage")]
    host_speed: f64,
    /// Share of all KV that fits the device
    #[arg(long, value_name = "S", default_value_t = 0.0, help_heading = "Storage")]
    device_cache: f64,
    /// Share of all KV that fits host memory
    #[arg(long, value_name = "S", default_value_t = 0.0, help_heading = "Storage")]
    host_cache: f64,
    /// Questions to measure
    #[arg(long, value_name = "N", default_value_t = 12, help_heading = "Workload")]
    questions: usize,
    /// Questions per document before the measurement
    ///
    /// Their selections determine how chunks are reordered.
    #[arg(long, value_name = "N", default_value_t = 6, help_heading = "Workload")]
    warm_up: usize,
    /// Folder on the disk to measure [default: temporary folder]
    ///
    /// Each variant stores a copy of all documents, deleted at its end unless the command is
    /// interrupted.
    #[arg(long, value_name = "DIR", help_heading = "Storage")]
    dir: Option<PathBuf>,
    /// Print JSON, one line per row
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the benchmark.
pub(super) fn run(bench: &ImportanceBench) -> Result<()> {
    check(bench)?;
    let dtype: Dtype = parsed(&bench.dtype, "--dtype")?;
    let progress = TaskProgress::endless("preparing the workload").announced();
    let workload = workload::load(bench, dtype)?;
    progress.end();
    let mut rows = Vec::new();
    measure(bench, &workload, dtype, |row| {
        if bench.json {
            output::line(&report::json(bench, &row, workload.tokens()).to_string())?;
        } else {
            output::note(&report::progress(&row, workload.tokens()));
        }
        rows.push(row);
        Ok(())
    })?;
    if bench.json { Ok(()) } else { output::line(&output::fitted(&report::text(&workload, &rows))) }
}

/// Measures the requested variants. Passes each row to `tell` when it is done.
fn measure(
    bench: &ImportanceBench,
    workload: &DocumentWorkload,
    dtype: Dtype,
    tell: impl FnMut(ImportanceRow) -> Result<()>,
) -> Result<()> {
    let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = ScratchFolder::new(&parent)?;
    let asked = sweep::ImportanceSweepParameters {
        folder: &folder.0,
        dtype,
        chunk_tokens: bench.chunk,
        ratios: &bench.ratio,
        spared: bench.spared,
        merge: merge(&bench.merge).map_err(|expected| {
            UsageError(format!("--merge {}: expected {expected}", bench.merge))
        })?,
        variants: match &bench.variant[..] {
            [] => Variant::all(&workload.model.config),
            chosen => chosen.to_vec(),
        },
        io_shares: &bench.io_share,
        bytes_per_s: bench.mb_per_s.map(|rate| rate * 1e6),
        latency: Duration::from_secs_f64(bench.latency_ms / 1e3),
        host_speed: bench.host_speed,
        kept: [bench.device_cache, bench.host_cache],
        questions: bench.questions,
        warm_up: bench.warm_up,
    };
    sweep::run(workload, &asked, tell)
}

/// Parses the rule that merges the token sets of several probes.
fn merge(value: &str) -> Result<Merge, &'static str> {
    match value {
        "union" => Ok(Merge::Union),
        "majority" => Ok(Merge::Majority),
        "sum" => Ok(Merge::Sum),
        _ => Err("union, majority or sum"),
    }
}

fn check(bench: &ImportanceBench) -> Result<()> {
    let usage = |message: String| Err(UsageError(message).into());
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    if let Some(ratio) = bench.ratio.iter().find(|ratio| !(0.001..=1.0).contains(*ratio)) {
        return usage(format!("--ratio {ratio}: expected shares from 0.001 to 1"));
    }
    if let Some(share) = bench.io_share.iter().find(|share| !(0.01..0.999).contains(*share)) {
        return usage(format!("--io-share {share}: expected shares from 0.01 to 0.99"));
    }
    if !(0.0..=1.0).contains(&bench.spared) {
        return usage(format!("--spared {}: expected a share from 0 to 1", bench.spared));
    }
    if ![16, 32, 64].contains(&bench.chunk) {
        return usage(format!("--chunk {}: expected 16, 32 or 64", bench.chunk));
    }
    if !(1..=MOST_QUESTIONS).contains(&bench.questions) || bench.warm_up > MOST_QUESTIONS {
        return usage(format!("--questions, --warm-up: expected 1 to {MOST_QUESTIONS}"));
    }
    if !(1..=64).contains(&bench.documents) {
        return usage(format!("--documents {}: expected 1 to 64", bench.documents));
    }
    if ![bench.device_cache, bench.host_cache].iter().all(is_share) {
        return usage("--device-cache, --host-cache: expected shares from 0 to 1".to_owned());
    }
    let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
    if !bench.mb_per_s.is_none_or(is_rate) || !is_rate(bench.host_speed) {
        return usage("--mb-per-s, --host-speed: expected numbers above 0".to_owned());
    }
    if (0.0..=10_000.0).contains(&bench.latency_ms) {
        Ok(())
    } else {
        usage(format!("--latency-ms {}: expected 0 to 10000", bench.latency_ms))
    }
}
