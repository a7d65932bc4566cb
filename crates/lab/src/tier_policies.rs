//! `headstart-lab tier-policies`: eviction policies of host memory and disk, by what they find and
//! what they write.

use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use clap::Args;
use headstart_cache::Policy;
use headstart_cache::policy::{self, PolicyError, Setting};
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::{Tier, TraceRequest, UsageError};
use headstart_sim::TierReplay;
use headstart_trace::Reader;

use headstart::parts::{parallel, policy_option, threads, unknown_engine};

/// Tokens of a block, for policies that weigh them.
const BLOCK_TOKENS: u32 = 64;

/// Why a policy can be made: `run` has made each of them.
const CHECKED: &str = "the policies were checked";

const POLICIES: &str = "lru,fifo,s3fifo,sieve,arc,gdsf,tlru,wa,hazard";

/// Policies of lower tiers.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab tier-policies agents.jsonl
  headstart-lab tier-policies agents.jsonl --disk 5 --policies lru,hazard

Sizes are percentages of the trace's distinct blocks. Blocks are found on the
device, else in host memory, else on disk. Host memory and disk use one policy.
Blocks are written when they are computed. With `hazard` they are written to
host memory when a request ends, and to disk when host memory evicts them.")]
pub(crate) struct TierPolicies {
    /// Canonical trace, plain or compressed
    trace: PathBuf,

    /// Blocks of the device, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    device: f64,

    /// Blocks of host memory, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    host: f64,

    /// Blocks of the disk, percent
    #[arg(long, value_name = "PERCENT[,PERCENT…]", value_delimiter = ',', default_value = "10")]
    disk: Vec<f64>,

    /// Least chance of another use for a write to disk, percent
    ///
    /// Only `hazard` learns it.
    #[arg(long, value_name = "PERCENT[,PERCENT…]", value_delimiter = ',', default_value = "0")]
    least_chance: Vec<f64>,

    /// Eviction policy of the device
    #[arg(long, value_name = "P", default_value = "lru", value_parser = policy_option)]
    device_policy: String,

    /// Eviction policies
    #[arg(
        long,
        value_name = "P[,P…]",
        value_delimiter = ',',
        default_value = POLICIES,
        value_parser = policy_option
    )]
    policies: Vec<String>,
}

/// Replays the trace for each policy and size of the disk, and prints a table.
pub(crate) fn run(options: &TierPolicies) -> Result<()> {
    for name in options.policies.iter().chain([&options.device_policy]) {
        policy_of(name, 1).map_err(|error| UsageError(error.to_string()))?;
    }
    let name = options.trace.display().to_string();
    let raw = File::open(&options.trace).with_context(|| format!("cannot read {name}"))?;
    let mut requests = Vec::new();
    for request in Reader::new(&name, raw)? {
        requests.push(request?);
    }
    let distinct: HashSet<u64> =
        requests.iter().flat_map(|request| request.blocks.iter()).collect();
    let blocks = |percent: f64| (distinct.len() as f64 * percent / 100.0) as usize;
    let sizes = options.disk.iter().chain([&options.device, &options.host]);
    for &percent in sizes {
        ensure!(
            (0.0..=100.0).contains(&percent) && blocks(percent) > 0,
            "{percent} % of the {} distinct blocks of {name}: expected at least one of them, and \
             at most all",
            distinct.len()
        );
    }
    for percent in &options.least_chance {
        ensure!((0.0..=100.0).contains(percent), "--least-chance {percent}: expected 0 to 100");
    }
    println!(
        "| policy | least chance | disk | found | device | host | disk | written to disk, blocks \
         | found for each |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut cells = Vec::new();
    for &disk in &options.disk {
        for policy in &options.policies {
            for &least_chance in &options.least_chance {
                cells.push(Cell { policy, disk, least_chance });
            }
        }
    }
    let printed = Mutex::new(());
    parallel(&cells, threads(None), |cell| {
        let row = cell.run(options, &requests, distinct.len());
        let _printing = printed.lock();
        println!("{row}");
    });
    Ok(())
}

/// A policy of host memory and disk.
struct Cell<'a> {
    policy: &'a str,
    /// Blocks of the disk, percent.
    disk: f64,
    /// Least chance of another use for a write, percent.
    least_chance: f64,
}

impl Cell<'_> {
    /// Replays the trace, and returns a row of the table.
    fn run(&self, options: &TierPolicies, requests: &[TraceRequest], distinct: usize) -> String {
        let blocks = |percent: f64| (distinct as f64 * percent / 100.0) as usize;
        let config = TiersConfig {
            unit_blocks: 1,
            block_tokens: BLOCK_TOKENS as usize,
            unit_bytes: 1,
            most_at_hand: 2,
            engine: unknown_engine(),
            load: LoadWhen::Always,
        };
        let is_learned = policy::learns_ends(self.policy);
        let tier = |tier, capacity_units| TierConfig {
            tier,
            capacity_units,
            policy: policy_of(self.policy, capacity_units).expect(CHECKED),
            admission: match tier {
                Tier::Disk => Admission::Likely { chance: self.least_chance / 100.0 },
                _ => Admission::Always,
            },
            write: match tier {
                Tier::Host if is_learned => WriteWhen::AtEnd,
                Tier::Disk if is_learned => WriteWhen::Back,
                _ => WriteWhen::Through,
            },
            shares: Shares::default(),
            assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e12 },
        };
        let tiers =
            vec![tier(Tier::Host, blocks(options.host)), tier(Tier::Disk, blocks(self.disk))];
        let device = blocks(options.device);
        let policy = policy_of(&options.device_policy, device).expect(CHECKED);
        let mut replay = TierReplay::new(device, policy, config, tiers);
        requests.iter().for_each(|request| replay.serve(request));
        self.row(&replay)
    }

    fn row(&self, replay: &TierReplay) -> String {
        let outcome = replay.outcome();
        let percent = |count: u64| 100.0 * count as f64 / outcome.lookups as f64;
        let below: u64 = outcome.found.iter().map(|(_, found)| found).sum();
        let written = replay.tier_counts()[1].1.stored;
        format!(
            "| {} | {} % | {} % | {:.2} % | {:.2} % | {:.2} % | {:.2} % | {written} | {:.2} |",
            self.policy,
            self.least_chance,
            self.disk,
            percent(outcome.device + below),
            percent(outcome.device),
            percent(outcome.found[0].1),
            percent(outcome.found[1].1),
            below as f64 / written.max(1) as f64,
        )
    }
}

fn policy_of(name: &str, capacity: usize) -> Result<Box<dyn Policy>, PolicyError> {
    policy::by_name(name, Setting { capacity, block_tokens: BLOCK_TOKENS })
}
