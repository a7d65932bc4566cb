//! `headstart-lab hazard`: what the policy `hazard` has learned from a trace, as numbers and as a
//! picture.

mod picture;

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use clap::Args;
use headstart_cache::policy::{Hazard, HazardCurve, HazardOptions};
use headstart_sim::Replay;
use headstart_trace::Reader;

use crate::shared_policy::SharedPolicy;

/// Fewest requests that a curve is the mean of: fewer are not shown.
const FEWEST: usize = 100;

/// Learned hazards.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab hazard agents.jsonl --blocks 20000
  headstart-lab hazard agents.jsonl --blocks 20000 --picture hazard.svg")]
pub(crate) struct HazardCurves {
    /// Trace, plain or compressed
    trace: PathBuf,

    /// KV blocks of the cache
    #[arg(long, value_name = "N")]
    blocks: NonZeroUsize,

    /// Write the curves as an SVG picture
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// Replays the trace, and prints what was learned.
pub(crate) fn run(options: &HazardCurves) -> Result<()> {
    let name = options.trace.display().to_string();
    let raw = File::open(&options.trace).with_context(|| format!("cannot read {name}"))?;
    let blocks = options.blocks.get();
    let policy = Arc::new(Mutex::new(Hazard::new(blocks, HazardOptions::default())));
    let mut replay = Replay::new(blocks, Box::new(SharedPolicy::new(policy.clone())));
    for request in Reader::new(&name, raw)? {
        replay.serve(&request?);
    }
    let mut curves = policy.lock().expect("no holder panics").curves();
    curves.retain(|curve| curve.requests >= FEWEST);
    ensure!(
        !curves.is_empty(),
        "{name}: no curve, because fewer than {FEWEST} requests whose answers ended alike are \
         remembered; take a longer trace"
    );
    print!("{}", table(&curves));
    if let Some(picture) = &options.picture {
        let written = std::fs::write(picture, picture::svg(&curves));
        written.with_context(|| format!("cannot write {}", picture.display()))?;
    }
    Ok(())
}

/// The chance to return within the next second, in percent, at each octave of age.
fn table(curves: &[HazardCurve]) -> String {
    let mut table = "seconds".to_owned();
    for curve in curves {
        table += &format!("  {:>10}", curve.finish.name());
    }
    table += "\n";
    let ages = curves.first().map_or(0, |curve| curve.per_second.len());
    for age in (1..ages).step_by(2) {
        table += &format!("{:>7}", format_seconds(curves[0].per_second[age].0));
        for curve in curves {
            table += &format!("  {:>8.4} %", 100.0 * curve.per_second[age].1);
        }
        table += "\n";
    }
    table
}

fn format_seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{seconds:.2}") } else { format!("{seconds:.0}") }
}
