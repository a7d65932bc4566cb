//! `headstart bench fleet`: the simulator's requests, sent for real.
//!
//! ```text
//! Workload ─┬─ measured: emulated fleet, upstreams or a server's URL ─┬─ the same tables
//!           └─ simulated: the same engine and the same strategy ──────┘  and how far apart
//! ```

mod drive;
mod running;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use headstart_loadgen::ApiClient;
use headstart_router::Profile;
use headstart_server::{EngineBackend, ServeConfig};
use headstart_sim::fleet::replica::ReplicaSpec;
use headstart_sim::fleet::{FleetConfig, FleetOutcome, FleetPreset, FleetRun, FleetWorkload};
use headstart_terminal::{self as output, Progress, TaskProgress};

use self::drive::Driver;
use self::running::RunningFleet;
use super::BenchServer;
use crate::commands::simulate::SourceOptions;
use crate::commands::{fleet_engine, serve};
use crate::config::{ServeOptions, cost_model, parsed};
use crate::exit::usage;
use crate::prompts::{unseen_seed, vocabulary};
use headstart_report::fleet::{self as report, FigureOrigin, FleetReport, StrategyRun};

/// Default preset of the workload.
const PRESET: FleetPreset = FleetPreset::Laptop;

/// Strategies compared by default.
const STRATEGIES: &[&str] = &["random", "load", "approximate", "precise", "cost"];

/// Send load to a fleet; compare strategies with the simulation.
#[derive(Args, Debug)]
#[command(after_help = include_str!("fleet.help.txt"))]
pub(crate) struct FleetBenchCommand {
    /// Published workload: laptop, llm-d-73 or llm-d-37 [default: laptop]
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    #[arg(help_heading = "Load")]
    preset: Option<String>,
    #[command(flatten, next_help_heading = "Load")]
    source: SourceOptions,
    /// Strategies [default: random,load,approximate,precise,cost]
    ///
    /// With --url, the strategy to simulate. [default there: the one that the server reports]
    #[arg(long, value_name = "S[,S…]", value_delimiter = ',', help_heading = "Server")]
    strategies: Vec<String>,
    /// Measure this running server
    #[arg(long, conflicts_with = "upstream", help_heading = "Server")]
    url: Option<String>,
    /// Cost model to emulate and simulate [default: the preset's engine]
    ///
    /// `headstart calibrate` writes it. With --url, --upstream or --real there is no default, and
    /// without a cost model no simulation.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    cost_model: Option<PathBuf>,
    /// Run a real model instead of emulating an engine
    #[arg(long, conflicts_with_all = ["url", "upstream"], help_heading = "Server")]
    real: bool,
    /// Tokens per block [default: 16]
    #[arg(long, value_name = "N", help_heading = "Server")]
    block_size: Option<NonZeroUsize>,
    /// Maximum concurrent requests
    ///
    /// Further requests wait, and their latency counts from the due time.
    #[arg(long, value_name = "N", default_value = "4096", help_heading = "Load")]
    concurrency: NonZeroUsize,
    /// Range of random token ids, without HIGH
    ///
    /// Leave out the model's special tokens.
    #[arg(long, value_name = "LOW..HIGH", default_value = "512..4093", help_heading = "Load")]
    vocab: String,
    /// Seed of the arrivals
    #[arg(long, value_name = "SEED", default_value_t = 1, help_heading = "Load")]
    seed: u64,
    /// Print JSON, one object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Also write an HTML page with curves
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    #[command(flatten)]
    server: BenchServer,
}

/// Simulates all strategies, then measures them.
pub(super) fn run(bench: &FleetBenchCommand) -> Result<()> {
    // The page is written after minutes of measurements, so its place is checked now.
    if let Some(page) = &bench.html {
        let trace = bench.source.trace.as_deref();
        output::files(&[("--html", page)], &trace.into_iter().collect::<Vec<_>>())?;
    }
    let (workload, asked) = bench.source.workload(bench.preset()?, bench.seed)?;
    // Requests of a chat depend on answers; only due times can be simulated and sent alike.
    drive::check(&workload)?;
    let servers = bench.servers()?;
    // The simulator takes a second, so that what cannot be is known before minutes have passed.
    let simulated: Vec<_> =
        servers.iter().filter_map(|server| server.simulated(&workload)).collect();
    let progress =
        TaskProgress::steps("measuring requests", servers.len() * workload.num_requests());
    // The measurement takes minutes, so a log gets its first line at once.
    let progress = progress.announced();
    let engine = servers.iter().find_map(Server::told);
    let (measured, unanswered) = serve::runtime()?.block_on(async {
        let (mut measured, mut unanswered) = (Vec::new(), Vec::new());
        for server in servers {
            let (run, failure) = bench.measure(server, &workload, &|| progress.inc(1)).await?;
            // A failure ends this strategy only; the others are still measured.
            unanswered.extend(failure.map(|failure| format!("{}: {failure}", run.name)));
            measured.push(run);
        }
        anyhow::Ok((measured, unanswered))
    })?;
    progress.end();
    let report = FleetReport {
        asked,
        engine: engine.unwrap_or_default(),
        runs: measured.into_iter().chain(simulated).collect(),
    };
    fleet_engine::tell(&report, bench.json, bench.html.as_deref())?;
    // The report above includes all measurements from before a failure.
    if unanswered.is_empty() { Ok(()) } else { bail!("{}", unanswered.join("; ")) }
}

/// The server of one strategy.
struct Server {
    strategy: String,
    /// Configuration of the server to start; `None` for a running one.
    config: Option<ServeConfig>,
    /// Fleet to simulate, if the engine's cost is known.
    fleet: Option<FleetConfig>,
}

impl Server {
    fn simulated(&self, workload: &FleetWorkload) -> Option<StrategyRun> {
        Some(StrategyRun {
            name: self.strategy.clone(),
            origin: FigureOrigin::Simulated,
            outcome: FleetRun::new(self.fleet.as_ref()?, workload).finish(),
        })
    }

    fn told(&self) -> Option<Vec<String>> {
        let fleet = self.fleet.as_ref()?;
        Some(report::told(fleet, "for the simulator, and the emulator if it is one"))
    }
}

impl FleetBenchCommand {
    fn preset(&self) -> Result<FleetPreset> {
        self.preset.as_deref().map_or(Ok(PRESET), fleet_engine::preset)
    }

    fn strategies(&self) -> Vec<String> {
        if self.strategies.is_empty() {
            STRATEGIES.iter().map(|&name| name.to_owned()).collect()
        } else {
            self.strategies.clone()
        }
    }

    /// Whether the engines are other people's, or real.
    fn is_emulated(&self) -> bool {
        // Only an emulated engine has a cost that is known without a file.
        self.url.is_none() && !self.real && self.server.upstream.is_empty()
    }

    fn servers(&self) -> Result<Vec<Server>> {
        if let Some(url) = &self.url {
            return Ok(vec![self.running(url)?]);
        }
        let server = |name: &String| {
            let profile = parsed::<Profile>(name, "--strategies")?;
            let config = self.config(name)?;
            Ok(Server {
                strategy: name.clone(),
                fleet: self.fleet(profile, &config)?,
                config: Some(config),
            })
        };
        self.strategies().iter().map(server).collect()
    }

    /// The server at `url`. It is simulated with the strategy and the replicas that it reports.
    fn running(&self, url: &str) -> Result<Server> {
        let given = match &self.strategies[..] {
            [] => None,
            [one] => Some(one.clone()),
            _ => {
                bail!(usage("--strategies: a server at --url has one; name that one"));
            }
        };
        // A wrong name must fail here, before the server is asked.
        if let Some(name) = &given {
            parsed::<Profile>(name, "--strategies")?;
        }
        let reported = RunningFleet::ask(url, self.server.api_key_file.clone());
        let strategy = given.or(reported.strategy);
        // A server may have a profile of its own configuration, which cannot be simulated.
        let profile = strategy.as_deref().and_then(|name| name.parse::<Profile>().ok());
        let replicas = self.server.replicas.map(usize::from).or(reported.replicas);
        let mut fleet = None;
        if let Some(file) = &self.cost_model {
            let cost = cost_model::read(file)?;
            let block_size = self.block_size.map(usize::from).or(reported.block_tokens);
            let spec = fleet_engine::of_file(&cost, block_size);
            fleet = match (profile, replicas) {
                (Some(profile), Some(replicas)) => {
                    Some(self.simulated(profile, &cost, vec![spec; replicas])?)
                }
                (profile, replicas) => {
                    let (strategy, replicas) = (profile.is_none(), replicas.is_none());
                    output::note(&unknown(url, MissingFacts { strategy, replicas }));
                    None
                }
            };
        }
        Ok(Server {
            strategy: strategy.unwrap_or_else(|| "unknown".to_owned()),
            config: None,
            fleet,
        })
    }

    async fn measure(
        &self,
        server: Server,
        workload: &FleetWorkload,
        on_answer: &dyn Fn(),
    ) -> Result<(StrategyRun, Option<String>)> {
        let (outcome, failure) = match (server.config, &self.url) {
            // A server that was started is stopped even if the run failed.
            (Some(config), _) => {
                let (running, client) = self.server.start(config).await?;
                let url = format!("http://{}", running.address());
                let outcome = self.drive(&client, &url, workload, on_answer).await;
                running.shutdown().await;
                outcome?
            }
            (None, Some(url)) => {
                let client = self.server.client(url)?;
                self.drive(&client, url, workload, on_answer).await?
            }
            (None, None) => unreachable!("a server has a configuration or an address"),
        };
        let run = StrategyRun { name: server.strategy, origin: FigureOrigin::Measured, outcome };
        Ok((run, failure))
    }

    async fn drive(
        &self,
        client: &ApiClient,
        url: &str,
        workload: &FleetWorkload,
        on_answer: &dyn Fn(),
    ) -> Result<(FleetOutcome, Option<String>)> {
        let driver = Driver {
            client,
            url,
            vocabulary: vocabulary(&self.vocab)?,
            // A salt per strategy keeps it from hitting the cache entries of another one.
            salt: unseen_seed() as u32,
            concurrency: self.concurrency.get(),
            pause: fleet_engine::fleet_of(self.preset()?).pause,
        };
        Ok(driver.run(workload, on_answer).await)
    }

    /// The server to start.
    fn config(&self, strategy: &str) -> Result<ServeConfig> {
        let given = self.server.options();
        let emulated = if self.is_emulated() { Some(self.emulated()?) } else { None };
        let replicas = self.is_emulated().then(|| self.preset_replicas());
        // The engines of the published runs evict by LRU.
        let published = self.is_emulated().then(|| "lru".to_owned());
        serve::config(&ServeOptions {
            replicas: given.replicas.or(replicas.transpose()?),
            strategy: Some(strategy.to_owned()),
            block_size: self.block_size.map(usize::from),
            policy: given.policy.clone().or(published),
            emulated,
            ..given
        })
    }

    fn emulated(&self) -> Result<cost_model::ReplicaCostModel> {
        match &self.cost_model {
            Some(file) => cost_model::read(file),
            None => Ok(fleet_engine::of_preset(self.preset()?)),
        }
    }

    fn preset_replicas(&self) -> Result<usize> {
        Ok(fleet_engine::fleet_of(self.preset()?).replicas.len())
    }

    /// Returns the fleet to simulate, if the engine's cost is known.
    fn fleet(&self, profile: Profile, config: &ServeConfig) -> Result<Option<FleetConfig>> {
        if !self.is_emulated() && self.cost_model.is_none() {
            return Ok(None);
        }
        let cost = self.emulated()?;
        let (spec, replicas, policy) = match &config.backend {
            EngineBackend::Embedded(fleet) => {
                (fleet_engine::of_server(&cost, fleet), fleet.replicas, &*fleet.policy)
            }
            EngineBackend::Upstreams(engines) => {
                // Each data-parallel rank is a replica of the fleet.
                let ranks = engines.iter().map(|engine| engine.data_parallel_size.max(1) as usize);
                let block_size = self.block_size.map(usize::from);
                (fleet_engine::of_file(&cost, block_size), ranks.sum(), "lru")
            }
        };
        let fleet = self.simulated(profile, &cost, vec![spec; replicas])?;
        Ok(Some(FleetConfig { policy: policy.to_owned(), ..fleet }))
    }

    fn simulated(
        &self,
        profile: Profile,
        cost: &cost_model::ReplicaCostModel,
        replicas: Vec<ReplicaSpec>,
    ) -> Result<FleetConfig> {
        let fleet = self.preset()?.fleet(profile);
        Ok(FleetConfig {
            replicas,
            seed: self.seed,
            ..fleet_engine::with_latency(fleet, cost.latency_s)
        })
    }
}

/// Facts about a server that neither it nor the caller gives.
#[derive(Clone, Copy)]
struct MissingFacts {
    strategy: bool,
    replicas: bool,
}

/// Explains why the server at `url` is not simulated, and how to change that.
fn unknown(url: &str, missing: MissingFacts) -> String {
    let (what, give) = match (missing.strategy, missing.replicas) {
        (true, true) => ("strategy and replicas", "--strategies and --replicas"),
        (true, false) => ("strategy", "--strategies"),
        (false, _) => ("number of replicas", "--replicas"),
    };
    format!("no simulation: {url} reports no known {what}; give {give}")
}
