//! `headstart-lab priors`: what tables of the policy `hazard` that were learned on one trace are
//! worth on another.

use std::collections::HashSet;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use clap::Args;
use headstart_cache::Policy;
use headstart_cache::policy::{Hazard, HazardOptions, Lru};
use headstart_core::{Nanos, TraceRequest};
use headstart_sim::Replay;
use headstart_trace::Reader;

use crate::shared_policy::SharedPolicy;
use headstart::parts::{parallel, threads};

/// Time that the first columns look at, seconds.
const FIRST_S: f64 = 3_600.0;

/// Priors for the policy `hazard`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab priors agents.jsonl --on conversation.jsonl
  headstart-lab priors agents.jsonl conversation.jsonl --write prior.bin

The table shows LRU's block hit rate in percent at each size of the cache, and
what `hazard` hits beyond it in points, without the prior and with it: in the
first hour, and in the whole trace. What was learned from a trace is scaled down
to --returns before the next one is learned.")]
pub(crate) struct Priors {
    /// Traces to learn from, one after the other
    #[arg(required = true)]
    traces: Vec<PathBuf>,

    /// Traces to use the prior on
    #[arg(long, value_name = "FILE", num_args = 1..)]
    on: Vec<PathBuf>,

    /// Returns that the prior counts for, at most
    #[arg(long, value_name = "N", default_value = "1000")]
    returns: NonZeroUsize,

    /// Sizes of the cache, percent of the distinct blocks
    #[arg(
        long,
        value_name = "PERCENT[,PERCENT…]",
        value_delimiter = ',',
        default_value = "0.5,1,2,5,10"
    )]
    capacity: Vec<f64>,

    /// Write the prior to a file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Learns, and prints what it is worth.
pub(crate) fn run(options: &Priors) -> Result<()> {
    let learn: Vec<Trace> =
        options.traces.iter().map(|path| Trace::read(path)).collect::<Result<_>>()?;
    for percent in &options.capacity {
        ensure!((0.0..=100.0).contains(percent), "--capacity {percent}: expected 0 to 100");
    }
    let mut prior = None;
    for trace in &learn {
        prior = Some(trace.learn(prior.as_deref(), options.returns.get() as f64));
    }
    let prior = prior.expect("clap asks for a trace");
    if let Some(path) = &options.write {
        std::fs::write(path, &prior).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("| trace | size | LRU, 1 h | none, 1 h | prior, 1 h | LRU | none | prior |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for path in &options.on {
        let trace = Trace::read(path)?;
        let rows = Mutex::new(Vec::new());
        parallel(&options.capacity, threads(None), |&percent| {
            let blocks = ((trace.distinct as f64 * percent / 100.0) as usize).max(1);
            let lru = trace.replay(blocks, Box::new(Lru::new(blocks)));
            let hazard = || Hazard::new(blocks, HazardOptions::default());
            let without = trace.replay(blocks, Box::new(hazard()));
            let mut policy = hazard();
            policy.learn_from(&prior).expect("our own tables");
            let with = trace.replay(blocks, Box::new(policy));
            let row = format!(
                "| {} | {percent} % | {:.2} | {:+.2} | {:+.2} | {:.2} | {:+.2} | {:+.2} |",
                trace.name,
                lru[0],
                without[0] - lru[0],
                with[0] - lru[0],
                lru[1],
                without[1] - lru[1],
                with[1] - lru[1]
            );
            rows.lock().expect("no holder panics").push((percent, row));
        });
        let mut rows = rows.into_inner().expect("no holder panics");
        rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        rows.iter().for_each(|(_, row)| println!("{row}"));
    }
    Ok(())
}

struct Trace {
    name: String,
    requests: Vec<TraceRequest>,
    distinct: usize,
}

impl Trace {
    fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let raw = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let mut requests = Vec::new();
        for request in Reader::new(&name, raw)? {
            requests.push(request?);
        }
        let blocks: HashSet<u64> =
            requests.iter().flat_map(|request| request.blocks.iter()).collect();
        let stem = path
            .file_stem()
            .map_or_else(|| name.clone(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self { name: stem, requests, distinct: blocks.len() })
    }

    /// The tables after all requests.
    fn learn(&self, prior: Option<&[u8]>, returns: f64) -> Vec<u8> {
        let blocks = (self.distinct / 100).max(1);
        let mut policy = Hazard::new(blocks, HazardOptions::default());
        if let Some(prior) = prior {
            policy.learn_from(prior).expect("our own tables");
        }
        let policy = Arc::new(Mutex::new(policy));
        let mut replay = Replay::new(blocks, Box::new(SharedPolicy::new(policy.clone())));
        self.requests.iter().for_each(|request| {
            replay.serve(request);
        });
        let policy = policy.lock().expect("no holder panics");
        policy.prior(returns)
    }

    /// The block hit rate in percent: of the first hour, and of all.
    fn replay(&self, blocks: usize, policy: Box<dyn Policy>) -> [f64; 2] {
        let mut replay = Replay::new(blocks, policy);
        let first = self.requests.first().map_or(Nanos(0), |request| request.arrival);
        let (mut hits, mut lookups) = ([0, 0], [0, 0]);
        for request in &self.requests {
            let found = replay.serve(request);
            let in_hour = request.arrival.since(first).as_secs_f64() < FIRST_S;
            for at in usize::from(!in_hour)..2 {
                hits[at] += found;
                lookups[at] += request.blocks.len();
            }
        }
        [0, 1].map(|at| 100.0 * hits[at] as f64 / lookups[at].max(1) as f64)
    }
}
