//! `headstart bench importance`: what loading only what matters saves, and what it changes.
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
use headstart_engine::kv::Dtype;

use super::one_by_one::Scratch;
use crate::config::importance::merge;
use crate::config::{UsageError, parsed};
use crate::output;
use sweep::Row;
use variants::Variant;
use workload::Workload;

/// Questions beyond which nothing is learned.
const MOST_QUESTIONS: usize = 10_000;

/// What loading only what matters of a stored prefix saves, and what it changes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart bench importance                              32 heads, 5,000 tokens, from disk
  headstart bench importance --model needle-gqa --ratio 0.05,0.1,0.25,0.5
  headstart bench importance --device-cache 0.1 --host-cache 0.3 --documents 4
  headstart bench importance --io-share 0.51,0.75,0.98 --ratio 0.25
  headstart bench importance --task majority --variant full,impress    a task that needs all of it
  headstart bench importance --model ./qwen3-0.6b --text notes.txt --prefix 4096

The models needle-mha, needle-gqa and needle-small are set by formula: their answers can be proved,
and what they show of trained models is that the parts work, not how much accuracy is lost. Other
models are asked about the text of --text, or about noise.

I/O is exposed waiting: time with nothing to compute until the first token. It is not how long the
disk is busy, much of which computing hides (--json tells both).

Variants: recompute; full (all of it through the parts' caches, LRU); units (as serve without
--importance: whole units, always from the disk); h2o-lru, h2o-lfu (all heads' keys, then values);
impress (probes, packs, scores); impress-no-probe, impress-no-reorder, impress-no-score (each
part switched off); impress-blind (probes 0, 1, 2, whatever they share); chunks (as serve with
--importance: impress, and whole chunks instead of tokens), chunks-no-reorder. Those of h2o and
impress, too, leave out what hardly matters (--spared 0.02; as published, --spared 0).")]
pub(crate) struct ImportanceBench {
    /// needle-mha, needle-gqa, needle-small, toy, a folder or a hub name
    #[arg(long, value_name = "MODEL", default_value = "needle-mha")]
    model: String,
    /// f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    dtype: String,
    /// Tokens of a document, of which whole chunks are stored
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    prefix: usize,
    /// Documents; the first is asked about most (each half as often as the one before it)
    #[arg(long, value_name = "N", default_value_t = 2)]
    documents: usize,
    /// What is asked of needle models: value, or majority, which no part of a document tells
    #[arg(long, value_name = "TASK", default_value = "value")]
    task: String,
    /// A text that documents and questions are taken from, for models with a tokenizer
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Shares of the tokens that each probe names
    #[arg(
        long,
        value_name = "R[,R…]",
        default_value = "0.25",
        value_delimiter = ','
    )]
    ratio: Vec<f64>,
    /// Share of its attention that a query misses in the mean, at most, because what hardly
    /// matters is left out of what a probe names; in all variants with a ratio (published: 0)
    #[arg(long, value_name = "S", default_value_t = 0.02)]
    spared: f64,
    /// What becomes of the probes' sets in the impress and chunks variants: union, majority, or
    /// sum (no more than the ratio together)
    #[arg(long, value_name = "HOW", default_value = "union")]
    merge: String,
    /// Tokens of a chunk: 16, 32 or 64
    #[arg(long, value_name = "N", default_value_t = 64)]
    chunk: usize,
    /// Which variants [default: all]
    #[arg(long, value_name = "V[,V…]", value_delimiter = ',')]
    variant: Vec<Variant>,
    /// Share of a full load's time to the first token that is loading: the disk's speed follows
    #[arg(
        long,
        value_name = "S[,S…]",
        default_value = "0.9",
        value_delimiter = ','
    )]
    io_share: Vec<f64>,
    /// The disk's speed instead, bytes a second in millions
    #[arg(long, value_name = "X", conflicts_with = "io_share")]
    mb_per_s: Option<f64>,
    /// Latency of the disk's line
    #[arg(long, value_name = "MS", default_value_t = 0.1)]
    latency_ms: f64,
    /// Times by which host memory is faster than the disk
    #[arg(long, value_name = "X", default_value_t = 5.0)]
    host_speed: f64,
    /// Share of all documents' keys and values that stays on the device
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    device_cache: f64,
    /// Share of them that stays in host memory
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    host_cache: f64,
    /// Questions that are measured
    #[arg(long, value_name = "N", default_value_t = 12)]
    questions: usize,
    /// Questions before those, for each document: packs are made of what they select
    #[arg(long, value_name = "N", default_value_t = 6)]
    warm_up: usize,
    /// A folder on a disk, where each variant has its own copy of all documents until its row is
    /// done; nothing is left unless it is interrupted [default: the system's folder for temporary
    /// files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON, one line a row
    #[arg(long)]
    json: bool,
}

/// Runs the benchmark.
pub(super) fn run(bench: &ImportanceBench) -> Result<()> {
    check(bench)?;
    let dtype: Dtype = parsed(&bench.dtype, "--dtype")?;
    let workload = workload::load(bench, dtype)?;
    let mut rows = Vec::new();
    measure(bench, &workload, dtype, |row| {
        match bench.json {
            true => output::line(&report::json(bench, &row, workload.tokens()).to_string())?,
            false => eprintln!("{}", report::progress(&row, workload.tokens())),
        }
        rows.push(row);
        Ok(())
    })?;
    match bench.json {
        true => Ok(()),
        false => output::line(report::text(&workload, &rows).trim_end()),
    }
}

/// Measures what is asked for. Each row is told when it is done.
fn measure(
    bench: &ImportanceBench,
    workload: &Workload,
    dtype: Dtype,
    tell: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Scratch::new(&parent)?;
    let asked = sweep::Asked {
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

fn check(bench: &ImportanceBench) -> Result<()> {
    let usage = |message: String| Err(UsageError(message).into());
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    if let Some(ratio) = bench
        .ratio
        .iter()
        .find(|ratio| !(0.001..=1.0).contains(*ratio))
    {
        return usage(format!("--ratio {ratio}: expected shares from 0.001 to 1"));
    }
    if let Some(share) = bench
        .io_share
        .iter()
        .find(|it| !(0.01..0.999).contains(*it))
    {
        return usage(format!(
            "--io-share {share}: expected shares from 0.01 to 0.99"
        ));
    }
    if !(0.0..=1.0).contains(&bench.spared) {
        return usage(format!(
            "--spared {}: expected a share from 0 to 1",
            bench.spared
        ));
    }
    if ![16, 32, 64].contains(&bench.chunk) {
        return usage(format!("--chunk {}: expected 16, 32 or 64", bench.chunk));
    }
    if !(1..=MOST_QUESTIONS).contains(&bench.questions) || bench.warm_up > MOST_QUESTIONS {
        return usage(format!(
            "--questions, --warm-up: expected 1 to {MOST_QUESTIONS}"
        ));
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
    match (0.0..=10_000.0).contains(&bench.latency_ms) {
        true => Ok(()),
        false => usage(format!(
            "--latency-ms {}: expected 0 to 10000",
            bench.latency_ms
        )),
    }
}
