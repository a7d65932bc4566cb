//! `headstart simulate fleet`: a fleet in virtual time, strategy by strategy.

mod source;

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use headstart_cache::policy::{self, Setting};
use headstart_core::CostModel;
use headstart_core::figures::counted;
use headstart_router::Profile;
use headstart_sim::fleet::replica::ReplicaSpec;
use headstart_sim::fleet::{Fault, FleetConfig, FleetOutcome, FleetPreset, FleetRun};
use headstart_terminal::{self as output, Progress, TaskProgress};

pub(crate) use self::source::SourceOptions;
use crate::commands::fleet_engine;
use crate::config::ablations::policy as policy_option;
use crate::config::cost_model;
use crate::exit::usage;
use crate::parallel::{parallel, threads};
use headstart_report::fleet::{FigureOrigin, FleetReport, RunParameters, StrategyRun, told};

/// Most replicas, and most event streams of gateways to them: what a run holds in memory.
const REPLICAS_MAX: usize = 4_096;
const STREAMS_MAX: usize = 16_384;

/// Most tokens of KV memory of a replica: what its blocks take in ours.
const KV_TOKENS_MAX: usize = 1 << 26;

/// Most gateways: each remembers prompts, some 20 MB of them.
const GATEWAYS_MAX: usize = 64;

/// Longest delay of events, milliseconds.
const DELAY_MAX_MS: f64 = 60_000.0;

/// Allowed speeds of a replica relative to the preset's engine.
const SPEEDS: RangeInclusive<f64> = 0.01..=100.0;

/// Downtimes after a gateway restart and a replica crash.
const GATEWAY_DOWN: Duration = Duration::from_secs(1);
const REPLICA_DOWN: Duration = Duration::from_secs(30);

/// Latest fault, seconds from the start.
const FAULT_MAX_S: f64 = 1e6;

/// Routing strategies on a fleet.
#[derive(Args, Debug)]
#[command(after_help = include_str!("fleet.help.txt"))]
#[command(next_help_heading = "Fleet")]
pub(crate) struct FleetSimulation {
    /// Published run: llm-d-73, llm-d-37, or laptop, a small llm-d-73
    ///
    /// Required without --trace.
    #[arg(long, value_name = "NAME", help_heading = "Traffic")]
    preset: Option<String>,
    /// Strategies, as for `serve` [default: published,precise]
    ///
    /// `published` is the preset's four published strategies. [default of a trace:
    /// random,load,approximate,precise]
    #[arg(long, value_name = "NAME[,NAME…]", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Replicas [default: the preset's]
    #[arg(long, value_name = "N")]
    replicas: Option<NonZeroUsize>,
    /// Gateways [default: 1]
    ///
    /// They take requests in turn and share nothing.
    #[arg(long, value_name = "N")]
    gateways: Option<NonZeroUsize>,
    /// Cost model of the engine [default: the preset's engine]
    ///
    /// A file of `headstart calibrate`, with the engine's limits and memory. [default of a trace:
    /// the engine of llm-d-73]
    #[arg(long, value_name = "FILE")]
    cost_model: Option<PathBuf>,
    /// KV capacity of a replica, tokens [default: the preset's]
    ///
    /// Replicas take several values in turn.
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',')]
    kv_tokens: Vec<NonZeroUsize>,
    /// Speed of a replica, relative to the preset's engine [default: 1]
    ///
    /// Replicas take several values in turn.
    #[arg(long, value_name = "X[,X…]", value_delimiter = ',')]
    replica_speeds: Vec<f64>,
    /// Delay of KV events on their way to a gateway [default: 5]
    #[arg(long, value_name = "MS")]
    event_delay: Option<f64>,
    /// Share of KV events to lose [default: 0]
    #[arg(long, value_name = "PERCENT")]
    event_loss: Option<f64>,
    /// Time of a gateway restart
    ///
    /// Counted from the start of the run. The gateway serves again a second later.
    #[arg(long, value_name = "SECONDS")]
    gateway_restart: Option<f64>,
    /// Time of a replica crash
    ///
    /// Counted from the start of the run. An empty replica replaces it after 30 seconds.
    #[arg(long, value_name = "SECONDS")]
    replica_crash: Option<f64>,
    /// Eviction policy of the replicas [default: hazard; of a preset, lru]
    ///
    /// `hazard` is that of `serve`. The engines of the published runs, as vLLM and SGLang by
    /// default, evict by lru.
    #[arg(long, value_name = "NAME", value_parser = policy_option)]
    policy: Option<String>,
    /// Seed of arrivals and random choices [default: 1]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    #[command(flatten)]
    source: SourceOptions,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<NonZeroUsize>,
    /// Print JSON, one object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Also write an HTML page with curves
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

/// Runs all strategies and prints what came out.
pub(super) fn run(fleet: &FleetSimulation) -> Result<()> {
    if let Some(page) = &fleet.html {
        let files: Vec<_> = fleet.files().collect();
        output::files(&[("--html", page)], &files)?;
    }
    let preset = match &fleet.preset {
        // Whose engine a trace gets, unless another one is named.
        None if fleet.is_of_trace() => FleetPreset::LlmD73,
        None => {
            bail!(usage(
                "what to simulate is missing: give --preset laptop (or llm-d-73, \
                           llm-d-37), or --trace FILE"
            ));
        }
        Some(name) => fleet_engine::preset(name)?,
    };
    let report = fleet.simulated(preset)?;
    fleet_engine::tell(&report, fleet.json, fleet.html.as_deref())
}

/// Name in `--strategies` that stands for the published strategies.
const PUBLISHED: &str = "published";

impl FleetSimulation {
    /// Runs all strategies.
    ///
    /// # Errors
    /// When an option makes no sense.
    fn simulated(&self, preset: FleetPreset) -> Result<FleetReport> {
        let seed = self.seed.unwrap_or(1);
        let profiles = self.profiles(preset)?;
        let fleets = profiles.into_iter().map(|profile| {
            let fleet = self.fleet(preset, profile)?;
            Ok(FleetConfig { seed, ..fleet })
        });
        let fleets = fleets.collect::<Result<Vec<_>>>()?;
        // The workload is drawn once: every strategy meets the same requests.
        let (workload, mut asked) = self.source.workload(preset, seed)?;
        if self.cost_model.is_some() {
            asked = asked.of_another_engine();
        }
        let progress = TaskProgress::steps("simulating", fleets.len() * workload.rungs.len());
        let outcomes = parallel(&fleets, threads(self.threads), |fleet| {
            FleetRun::new(fleet, &workload).finish_with(|_| progress.inc(1))
        });
        progress.end();
        self.warn_of_faults(&outcomes);
        let origin = match &self.cost_model {
            Some(file) => format!("cost model {}", file.display()),
            None => "calibrated on the published precise run at 20 and 60 requests/s".to_owned(),
        };
        Ok(report(asked, &origin, &fleets, outcomes))
    }

    /// Says so if something was to go wrong when all was over.
    fn warn_of_faults(&self, outcomes: &[FleetOutcome]) {
        let asked = [self.gateway_restart, self.replica_crash];
        let asked = asked.iter().flatten().count();
        // A fault after the end of a run has no recovery, and the user would miss its effect.
        if outcomes.iter().any(|outcome| outcome.recoveries.len() < asked) {
            output::note(
                "warning: --gateway-restart or --replica-crash: a run was over before that time",
            );
        }
    }

    /// Whether a trace is asked for.
    fn is_of_trace(&self) -> bool {
        self.source.trace.is_some()
    }

    /// Returns the input files of the options.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.source.trace, &self.cost_model];
        files.into_iter().filter_map(|file| file.as_deref())
    }

    fn profiles(&self, preset: FleetPreset) -> Result<Vec<Profile>> {
        let default: &[&str] = if self.is_of_trace() {
            &["random", "load", "approximate", "precise"]
        } else {
            &[PUBLISHED, "precise"]
        };
        let names = if self.strategies.is_empty() {
            default.to_vec()
        } else {
            self.strategies.iter().map(String::as_str).collect()
        };
        let mut profiles: Vec<Profile> = Vec::new();
        for name in names {
            let named = match name {
                PUBLISHED => preset.profiles(),
                name => vec![one(preset, name)?],
            };
            for profile in named {
                // `published` may name a strategy that the user named as well.
                if profiles.iter().all(|known| known.name != profile.name) {
                    profiles.push(profile);
                }
            }
        }
        Ok(profiles)
    }

    fn fleet(&self, preset: FleetPreset, profile: Profile) -> Result<FleetConfig> {
        let mut fleet = self.of_engine(preset, preset.fleet(profile))?;
        let spec = fleet.replicas[0];
        let replicas = self.replicas.map_or(fleet.replicas.len(), usize::from);
        let gateways = self.gateways.map_or(fleet.gateways, usize::from);
        if replicas > REPLICAS_MAX {
            bail!(usage(format!("--replicas {replicas}: expected up to {REPLICAS_MAX}")));
        }
        // Each gateway holds a stream of every replica, so the product is limited.
        if gateways.saturating_mul(replicas) > STREAMS_MAX || gateways > GATEWAYS_MAX {
            bail!(usage(format!(
                "--gateways {gateways} for {}: expected up to {}",
                counted(replicas as u64, "replica"),
                GATEWAYS_MAX.min(STREAMS_MAX / replicas)
            )));
        }
        fleet.replicas = vec![spec; replicas];
        fleet.gateways = gateways;
        // Values of the options repeat, so two sizes alternate over all replicas.
        for (it, tokens) in fleet.replicas.iter_mut().zip(self.kv_tokens.iter().cycle()) {
            it.capacity_blocks = self.capacity_blocks(preset, tokens.get(), &spec)?;
        }
        for (it, &speed) in fleet.replicas.iter_mut().zip(self.replica_speeds.iter().cycle()) {
            it.cost = scaled(&it.cost, speed)?;
        }
        if self.is_of_trace() || self.cost_model.is_some() {
            // Long prompts are what a trace is asked for; memory is the limit.
            for it in &mut fleet.replicas {
                it.scheduler.max_context = it.capacity_blocks * it.scheduler.block_size;
            }
        }
        if let Some(ms) = within("--event-delay", self.event_delay, DELAY_MAX_MS)? {
            fleet.network.event_delay = Duration::from_secs_f64(ms / 1e3);
        }
        if let Some(percent) = within("--event-loss", self.event_loss, 100.0)? {
            fleet.network.event_loss = percent / 100.0;
        }
        fleet.faults = self.faults()?;
        match &self.policy {
            Some(policy) => fleet.policy.clone_from(policy),
            None if self.is_of_trace() => policy::DEFAULT.clone_into(&mut fleet.policy),
            None => {}
        }
        let known = policy::by_name(&fleet.policy, Setting { capacity: 1, block_tokens: 1 });
        known.map_err(|error| usage(format!("--policy: {error}")))?;
        Ok(fleet)
    }

    /// `fleet`, of the engine that was named.
    fn of_engine(&self, preset: FleetPreset, mut fleet: FleetConfig) -> Result<FleetConfig> {
        let Some(file) = &self.cost_model else {
            return Ok(fleet);
        };
        let cost = cost_model::read(file)?;
        let spec = fleet_engine::of_file(&cost, None);
        // A replica must hold the longest request of the preset.
        if self.kv_tokens.is_empty() && self.least_blocks(preset, &spec) > spec.capacity_blocks {
            bail!(usage(format!(
                "cost model {}: kv_tokens {}: expected at least {}, which one request needs",
                file.display(),
                cost.engine.kv_tokens,
                self.least_blocks(preset, &spec) * spec.scheduler.block_size
            )));
        }
        fleet.replicas = vec![spec; fleet.replicas.len()];
        Ok(fleet_engine::with_latency(fleet, cost.latency_s))
    }

    /// Blocks that the longest request needs.
    fn least_blocks(&self, preset: FleetPreset, spec: &ReplicaSpec) -> usize {
        if self.is_of_trace() {
            // The lengths of a trace are not known yet.
            1
        } else {
            preset.ladder().longest().div_ceil(spec.scheduler.block_size)
        }
    }

    fn faults(&self) -> Result<Vec<Fault>> {
        let at = |option, value| {
            let seconds = within(option, value, FAULT_MAX_S)?;
            anyhow::Ok(seconds.map(Duration::from_secs_f64))
        };
        let restart = at("--gateway-restart", self.gateway_restart)?;
        let restart =
            restart.map(|at| Fault::GatewayRestart { gateway: 0, at, down: GATEWAY_DOWN });
        let crash = at("--replica-crash", self.replica_crash)?;
        let crash = crash.map(|at| Fault::Crash { replica: 0, at, down: REPLICA_DOWN });
        Ok(restart.into_iter().chain(crash).collect())
    }

    fn capacity_blocks(
        &self,
        preset: FleetPreset,
        tokens: usize,
        spec: &ReplicaSpec,
    ) -> Result<usize> {
        let block_size = spec.scheduler.block_size;
        let needed = self.least_blocks(preset, spec);
        if tokens > KV_TOKENS_MAX || tokens / block_size < needed {
            bail!(usage(format!(
                "--kv-tokens {tokens}: expected {}, which one request needs, to {KV_TOKENS_MAX}",
                needed * block_size
            )));
        }
        Ok(tokens / block_size)
    }
}

/// Returns an engine that is `speed` times as fast.
fn scaled(cost: &CostModel, speed: f64) -> Result<CostModel> {
    if !SPEEDS.contains(&speed) {
        let (least, most) = (SPEEDS.start(), SPEEDS.end());
        bail!(usage(format!("--replica-speeds {speed}: expected {least} to {most}")));
    }
    Ok(cost.faster(speed))
}

/// The preset's own strategy of that name, if it has one, else any.
fn one(preset: FleetPreset, name: &str) -> Result<Profile> {
    let own = preset.profiles().into_iter().find(|profile| profile.name == name);
    let found = own.map_or_else(|| name.parse::<Profile>(), Ok);
    found.map_err(|error| usage(format!("--strategies: {error}")))
}

fn within(option: &str, value: Option<f64>, most: f64) -> Result<Option<f64>> {
    match value {
        Some(value) if !(0.0..=most).contains(&value) => {
            bail!(usage(format!("{option} {value}: expected a number from 0 to {most}")))
        }
        value => Ok(value),
    }
}

fn report(
    asked: RunParameters,
    origin: &str,
    fleets: &[FleetConfig],
    outcomes: Vec<FleetOutcome>,
) -> FleetReport {
    let runs = fleets.iter().zip(outcomes);
    FleetReport {
        asked,
        engine: told(&fleets[0], origin),
        runs: runs
            .map(|(fleet, outcome)| StrategyRun {
                name: fleet.profile.name.clone(),
                origin: FigureOrigin::Simulated,
                outcome,
            })
            .collect(),
    }
}
