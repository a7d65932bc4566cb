//! `headstart replay`.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use headstart_cache::policy;
use headstart_core::TraceRequest;
use headstart_sim::Replay as Simulation;
use headstart_trace::format::mooncake;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::config::UsageError;
use crate::output;

/// What a policy would have hit on a recorded trace.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart replay conversation_trace.jsonl.zst --capacity 1000,6000,20000
  headstart replay trace.jsonl --policy lru --capacity 5000 --json

Reads Mooncake's JSONL, plain or zstd; only `hash_ids` is required, and file order stands for time.
Every id counts as one block. --json prints one object a line.")]
pub(crate) struct Replay {
    /// The trace.
    file: PathBuf,
    /// Eviction policies, separated by commas.
    #[arg(
        long,
        value_name = "P[,P…]",
        value_delimiter = ',',
        default_value = "lru"
    )]
    policy: Vec<String>,
    /// Capacities in blocks, separated by commas.
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', required = true)]
    capacity: Vec<usize>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Replays the trace once per policy and capacity.
pub(crate) fn run(replay: &Replay) -> Result<()> {
    for name in &replay.policy {
        policy::by_name(name, 0).map_err(|error| UsageError(format!("--policy: {error}")))?;
    }
    let requests = read(replay)?;
    let lookups = requests.iter().map(|request| request.blocks.len()).sum();
    let runs = replay.policy.len() * replay.capacity.len();
    let bar = progress((runs * requests.len()) as u64);
    if !replay.json {
        output::line(&format!(
            "{:<10} {:>12} {:>12} {:>12} {:>10}",
            "policy", "capacity", "lookups", "hits", "hit rate"
        ))?;
    }
    for name in &replay.policy {
        for &capacity in &replay.capacity {
            // More room than the trace has blocks changes nothing.
            let room = capacity.min(lookups);
            let policy = policy::by_name(name, room)?;
            let mut simulation = Simulation::new(room, policy);
            for request in &requests {
                simulation.serve(request);
                bar.inc(1);
            }
            simulation.check();
            let blocks = simulation.blocks();
            let line = if replay.json {
                json!({
                    "policy": name, "capacity_blocks": capacity,
                    "lookups": blocks.lookups, "hits": blocks.hits,
                    "block_hit_rate": blocks.rate(), "requests": requests.len(),
                })
                .to_string()
            } else {
                let (lookups, hits, rate) = (blocks.lookups, blocks.hits, blocks.rate() * 100.0);
                format!("{name:<10} {capacity:>12} {lookups:>12} {hits:>12} {rate:>8.2} %")
            };
            bar.suspend(|| output::line(&line))?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn read(replay: &Replay) -> Result<Vec<TraceRequest>> {
    let name = replay.file.display().to_string();
    let file = File::open(&replay.file).with_context(|| format!("cannot open the trace {name}"))?;
    let requests: Vec<_> = mooncake::Reader::new(&*name, file)?.collect::<Result<_, _>>()?;
    anyhow::ensure!(!requests.is_empty(), "{name} holds no request");
    Ok(requests)
}

/// A bar on standard error; nothing where that is no terminal.
pub(crate) fn progress(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} (eta {eta})");
    bar.set_style(style.expect("the template is valid"));
    bar
}
