//! `headstart-lab host-memory`: the evaluation of "KVCache Cache in the Wild" (Wang et al., USENIX
//! ATC'25), with our own cache, tiers and scheduler in virtual time.
//!
//! ```text
//! cell = model × host memory (0 to 4 times the device's) × policy
//!
//! traffic ─► Scheduler ─ PrefixCache (policy) ─ evicted ─► host: Tiers (the same policy)
//!                └──────────── loaded, where that is faster ◄──┘      SimMover: PCIe
//! ```
//!
//! From the study: models, GPUs and their memory ([`WildModel`]), host memory in multiples of it,
//! policies, and blocks of 16 tokens. As in its code, the first part of a trace fills the caches,
//! the second one counts, and requests only prefill (one token of answer).
//!
//! Our own: the engine's speed (data sheets), the rate (a [`load`]), the traffic (drawn after the
//! study's characterization), units of 64 tokens between device and host.
//!
//! The study prints its results as plots and ranges ([`published`]), so that only ranges can stand
//! beside ours.

mod cell;
mod load;
mod published;
mod report;
mod traffic;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use headstart_cache::policy;
use headstart_core::figures::counted;
use headstart_core::{Nanos, TraceRequest, UsageError};
use headstart_sim::wild::WildModel;
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::TraceError;

use self::cell::{WildCell, WildMeasurements, WildSettings};
use self::report::{self as wild_report, WildFacts, WildReport, WildRow};
use self::traffic::{BLOCK_TOKENS, LoadTarget, WildTraffic};
use headstart::parts::{TraceInput, parallel, policy_option, remarks, threads};

/// The study's baselines, its policy as published (our guard is not part of it), and ours.
const POLICIES: &str = "lru,fifo,lfu,s3fifo,wa:published:no-guard,wa";

/// Host memory over the device's, as in the study.
const HOST: [f64; 5] = [0.0, 1.0, 2.0, 3.0, 4.0];

/// Most host memory, in multiples of the device's.
const HOST_MAX: f64 = 64.0;

/// Length of the study's traces, minutes.
const MINUTES: f64 = 120.0;

/// Runs of each cell.
const SEEDS: u64 = 3;

/// Seconds of prefill a second.
const LOAD: f64 = 1.0;

/// Most of that.
const LOAD_MAX: f64 = 10.0;

/// Host memory and eviction policies.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab host-memory --preset wild-consumer \\
    --models qwen2-7b --host 0,2 --seeds 1                  a minute
  headstart-lab host-memory --preset wild-business     half an hour
  headstart-lab host-memory --trace sessions.jsonl --models qwen2-7b

Device and host use the same policy. KV is loaded over PCIe if that is faster
than recomputing. Traffic follows the statistics of the ATC'25 study, and the
engines follow data sheets. The report prints the study's ranges next to ours.")]
pub(crate) struct HostMemory {
    /// Traffic of the study: wild-consumer or wild-business
    ///
    /// Required without --trace.
    #[arg(long, value_name = "NAME", help_heading = "Traffic")]
    preset: Option<String>,
    #[command(flatten)]
    options: WildOptions,
    /// Eviction policies [default: those of the study, and wa]
    #[arg(
        long,
        value_name = "P[,P…]",
        value_delimiter = ',',
        value_parser = policy_option,
        help_heading = "Experiment"
    )]
    policies: Option<Vec<String>>,
    /// Length of a run [default: 120]
    #[arg(long, value_name = "MINUTES", help_heading = "Experiment")]
    minutes: Option<f64>,
    /// Time to leave out of the figures, at the start [default: half]
    #[arg(long, value_name = "MINUTES", help_heading = "Experiment")]
    warm_up: Option<f64>,
    /// Runs per point, with seeds from 1 [default: 3]
    #[arg(long, value_name = "N", help_heading = "Experiment")]
    seeds: Option<NonZeroUsize>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<NonZeroUsize>,
    /// Print JSON, one object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs all cells and prints what came out.
pub(super) fn run(host: &HostMemory) -> Result<()> {
    let traffic = host.preset.as_deref().map(|name| {
        let known = "known are wild-consumer, wild-business";
        WildTraffic::find(name).ok_or_else(|| UsageError(format!("--preset {name}: {known}")))
    });
    let shared = SharedOptions {
        policies: host.policies.as_deref(),
        minutes: host.minutes,
        warm_up: host.warm_up,
        seeds: host.seeds.map(usize::from),
        threads: threads(host.threads),
    };
    let report = host.options.run(traffic.transpose()?, &shared)?;
    output::line(&if host.json {
        wild_report::json_lines(&report)
    } else {
        output::fitted(&wild_report::table(&report))
    })
}

/// Traffic and memory.
#[derive(Args, Debug)]
#[command(next_help_heading = "Experiment")]
pub(super) struct WildOptions {
    /// Trace, in place of a preset
    ///
    /// Plain, gzip or zstd, in any format that `headstart replay` reads.
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    trace: Option<PathBuf>,
    /// Mean gap between sessions of a trace without start times
    ///
    /// Each seed draws other gaps.
    #[arg(long, value_name = "SECONDS", requires = "trace")]
    session_gap: Option<f64>,
    /// Models [default: qwen2-7b,llama2-13b,llama3-70b]
    #[arg(long, value_name = "NAME[,NAME…]", value_delimiter = ',')]
    models: Vec<String>,
    /// Host memory, in multiples of device memory [default: 0,1,2,3,4]
    #[arg(long, value_name = "X[,X…]", value_delimiter = ',')]
    host: Vec<f64>,
    /// Load of a preset, seconds of prefill per second [default: 1]
    ///
    /// The load without any cache, after the warm-up.
    #[arg(long, value_name = "X", conflicts_with = "trace")]
    load: Option<f64>,
}

/// Values of shared options, if given.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedOptions<'a> {
    pub(super) policies: Option<&'a [String]>,
    pub(super) minutes: Option<f64>,
    pub(super) warm_up: Option<f64>,
    pub(super) seeds: Option<usize>,
    pub(super) threads: usize,
}

/// Checked options.
struct WildPlan {
    models: Vec<WildModel>,
    host: Vec<f64>,
    policies: Vec<String>,
    asked: LoadTarget,
    seeds: u64,
}

/// The requests of each model and seed.
struct WildRequests {
    /// By model, then by seed; one model's are all models' where they come from a trace.
    by_model: Vec<Vec<Vec<TraceRequest>>>,
    block_tokens: u32,
    told: Vec<String>,
}

impl WildOptions {
    /// Runs all cells.
    ///
    /// # Errors
    /// When an option makes no sense or the trace cannot be read.
    pub(super) fn run(
        &self,
        traffic: Option<WildTraffic>,
        shared: &SharedOptions<'_>,
    ) -> Result<WildReport> {
        let mut plan = self.plan(shared)?;
        // A preset draws its own requests; a trace is read, once for each seed that changes it.
        let requests = match (traffic, &self.trace) {
            (Some(traffic), _) => plan.drawn(traffic, shared.threads)?,
            (None, Some(file)) => self.read(file, &mut plan, shared)?,
            (None, None) => bail!(UsageError(
                "what to simulate is missing: give --preset wild-consumer or wild-business, or \
                 --trace FILE"
                    .to_owned()
            )),
        };
        let rows = plan.measure(&requests, shared.threads)?;
        let name = match (traffic, &self.trace) {
            (Some(traffic), _) => traffic.name.to_owned(),
            (None, file) => file.as_deref().map_or_else(String::new, shown),
        };
        let facts = WildFacts {
            name,
            told: requests.told,
            block_tokens: requests.block_tokens,
            minutes: plan.asked.seconds / 60.0,
            warm_up_minutes: plan.asked.warm_up_s / 60.0,
            seeds: requests.by_model[0].len(),
        };
        Ok(WildReport { facts, rows })
    }

    fn plan(&self, shared: &SharedOptions<'_>) -> Result<WildPlan> {
        let minutes = shared.minutes.unwrap_or(MINUTES);
        // By default the first half of a run is warm-up.
        let warm_up = shared.warm_up.unwrap_or(minutes / 2.0);
        if !(minutes > 0.0 && minutes <= crate::MINUTES_MAX) {
            let most = crate::MINUTES_MAX;
            let message = format!("--minutes {minutes:?}: expected up to {most}");
            bail!(UsageError(message));
        }
        if !(0.0..minutes).contains(&warm_up) {
            let message = format!("--warm-up {warm_up:?}: the run has {minutes:.1} minutes");
            bail!(UsageError(message));
        }
        let asked_load = self.load.unwrap_or(LOAD);
        if !(0.01..=LOAD_MAX).contains(&asked_load) {
            let message = format!("--load {asked_load:?}: expected 0.01 to {LOAD_MAX}");
            bail!(UsageError(message));
        }
        Ok(WildPlan {
            models: self.models()?,
            host: self.host()?,
            policies: policies(shared.policies)?,
            asked: LoadTarget {
                load: asked_load,
                seconds: minutes * 60.0,
                warm_up_s: warm_up * 60.0,
            },
            seeds: shared.seeds.map_or(SEEDS, |seeds| seeds as u64),
        })
    }

    fn models(&self) -> Result<Vec<WildModel>> {
        if self.models.is_empty() {
            return Ok(WildModel::ALL.to_vec());
        }
        let found = self.models.iter().map(|name| {
            WildModel::find(name).ok_or_else(|| {
                let known = WildModel::ALL.map(|model| model.shape.name).join(", ");
                UsageError(format!("--models {name}: known are {known}")).into()
            })
        });
        found.collect()
    }

    fn host(&self) -> Result<Vec<f64>> {
        if self.host.is_empty() {
            return Ok(HOST.to_vec());
        }
        let wrong = self.host.iter().find(|times| !(0.0..=HOST_MAX).contains(*times));
        match wrong {
            Some(wrong) => {
                let message = format!("--host {wrong:?}: expected a number from 0 to {HOST_MAX}");
                Err(UsageError(message).into())
            }
            None => Ok(self.host.clone()),
        }
    }

    /// The trace, once for each seed that changes it.
    fn read(
        &self,
        file: &Path,
        plan: &mut WildPlan,
        shared: &SharedOptions<'_>,
    ) -> Result<WildRequests> {
        // Without drawn gaps every seed has the same requests.
        let seeds = match self.session_gap {
            Some(_) => plan.seeds,
            None => 1,
        };
        let mut runs = Vec::new();
        let (mut told, mut block_tokens) = (Vec::new(), BLOCK_TOKENS);
        for seed in 1..=seeds {
            let input = match self.session_gap {
                Some(gap_s) => TraceInput::of(file).spaced(gap_s, seed),
                None => TraceInput::of(file),
            };
            let progress = input.progress();
            let mut reader = input.open(&progress)?;
            // The trace may be longer than the run.
            let end = Nanos::from_secs_f64(plan.asked.seconds);
            let in_time = |request: &Result<TraceRequest, TraceError>| {
                // An error is passed on, so that the collection below reports it.
                request.as_ref().map_or(true, |request| request.arrival < end)
            };
            let requests = reader.by_ref().take_while(in_time);
            runs.push(requests.collect::<Result<Vec<_>, _>>()?);
            block_tokens = reader.info().block_tokens;
            // Remarks repeat for each seed.
            if seed == 1 {
                told = remarks(&reader);
            }
        }
        let name = file.display().to_string();
        check(&name, &runs[0], block_tokens)?;
        plan.check_blocks(&name, block_tokens)?;
        plan.end_with(&runs[0], shared)?;
        if let Some(gap_s) = self.session_gap {
            told.push(format!("sessions begin every {gap_s} s on average, at random"));
        }
        told.extend(plan.models.iter().map(|model| {
            let asks = asks(&runs[0], model, plan.asked.seconds, block_tokens);
            format!("{}: {asks}", model.shape.name)
        }));
        Ok(WildRequests { by_model: vec![runs], block_tokens, told })
    }
}

/// A trace that can be served: it has requests with times, and with blocks of a length that tells
/// them apart.
fn check(name: &str, requests: &[TraceRequest], block_tokens: u32) -> Result<()> {
    if requests.iter().all(|request| request.blocks.is_empty()) {
        bail!("{name} has no request with blocks within --minutes; raise --minutes");
    }
    // The run would have no length, and its load would be infinite.
    if requests.iter().all(|request| request.arrival == Nanos(0)) {
        bail!(
            "all requests of {name} arrive at 0 s, so it has no load; give a trace with times, or \
             --session-gap for agent sessions"
        );
    }
    if block_tokens < 4 {
        bail!("{name} has blocks of fewer than 4 tokens, too few to tell them apart");
    }
    Ok(())
}

fn asks(requests: &[TraceRequest], model: &WildModel, seconds: f64, block_tokens: u32) -> String {
    let each_s = load::prefill_s(requests, &model.engine(), block_tokens);
    let load = each_s * requests.len() as f64 / seconds;
    let number = counted(requests.len() as u64, "request");
    format!("{number} with the first seed, {load:.2} s of prefill per second without a cache")
}

impl WildPlan {
    /// Each device holds a block at least.
    fn check_blocks(&self, name: &str, block_tokens: u32) -> Result<()> {
        let is_small = |model: &&WildModel| model.engine().kv_tokens < block_tokens as usize;
        match self.models.iter().find(is_small) {
            None => Ok(()),
            Some(model) => bail!(
                "{name} has blocks of {block_tokens} tokens, more than {} has memory for",
                model.shape.name
            ),
        }
    }

    /// A trace that ends sooner is a shorter run.
    fn end_with(&mut self, requests: &[TraceRequest], shared: &SharedOptions<'_>) -> Result<()> {
        // Requests may be out of order.
        let last = requests.iter().map(|request| request.arrival).max();
        // Arrivals count nanoseconds.
        let last_s = last.unwrap_or_default().0 as f64 / 1e9;
        if last_s >= self.asked.seconds {
            return Ok(());
        }
        // The rates are per second of the run, so a shorter trace shortens it.
        self.asked.seconds = last_s;
        self.asked.warm_up_s = shared.warm_up.map_or(last_s / 2.0, |minutes| minutes * 60.0);
        if self.asked.warm_up_s > last_s {
            let minutes = last_s / 60.0;
            let message = format!("--warm-up: the trace has {minutes:.1} minutes");
            bail!(UsageError(message));
        }
        Ok(())
    }

    fn drawn(&self, traffic: WildTraffic, threads: usize) -> Result<WildRequests> {
        // Traffic depends on the model, because the load is given in its prefill time.
        let pairs: Vec<(WildModel, u64)> = (self.models.iter())
            .flat_map(|model| (1..=self.seeds).map(|seed| (*model, seed)))
            .collect();
        let progress = TaskProgress::steps("generating requests", pairs.len());
        let runs = parallel(&pairs, threads, |(model, seed)| {
            let drawn = traffic.draw(model, &self.asked, *seed);
            progress.inc(1);
            drawn
        });
        progress.end();
        // A short run may draw no request, which is no figure of zero.
        let Some(runs) = runs.into_iter().collect::<Option<Vec<_>>>() else {
            let message =
                "--minutes minus --warm-up is too short: no request arrives; raise --minutes";
            bail!(UsageError(message.to_owned()));
        };
        // Pairs are ordered by model, so each chunk holds the seeds of one.
        let by_model = runs.chunks(self.seeds as usize).map(<[_]>::to_vec);
        let by_model: Vec<_> = by_model.collect();
        let mut told = vec![format!(
            "{} ({}), {:?} s of prefill per second without a cache, after the warm-up",
            traffic.about,
            traffic.workload(),
            self.asked.load
        )];
        told.extend(self.models.iter().zip(&by_model).map(|(model, runs)| {
            let per_s = runs[0].len() as f64 / self.asked.seconds;
            let number = counted(runs[0].len() as u64, "request");
            format!("{}: {number} with the first seed, {per_s:.2} per second", model.shape.name)
        }));
        Ok(WildRequests { by_model, block_tokens: BLOCK_TOKENS, told })
    }

    /// All cells: models × host memory × policies, each with all seeds.
    fn measure(&self, requests: &WildRequests, threads: usize) -> Result<Vec<WildRow>> {
        let setting = WildSettings {
            block_tokens: requests.block_tokens,
            warm_up: Nanos::from_secs_f64(self.asked.warm_up_s),
        };
        let mut cells = Vec::new();
        for (number, &model) in self.models.iter().enumerate() {
            // A trace is the same for all models.
            let runs = requests.by_model.get(number).unwrap_or(&requests.by_model[0]);
            for &host_times in &self.host {
                for policy in &self.policies {
                    let cell = WildCell { model, policy, host_times };
                    cells.extend(runs.iter().map(|requests| (cell, requests)));
                }
            }
        }
        let progress = TaskProgress::steps("simulating", cells.len());
        let measured = parallel(&cells, threads, |(cell, requests)| {
            let measured = cell.run(requests, &setting);
            progress.inc(1);
            measured
        });
        progress.end();
        let measured: Vec<WildMeasurements> = measured.into_iter().collect::<Result<_, _>>()?;
        let seeds = requests.by_model[0].len();
        // The cells of one row differ in the seed only.
        let cells = cells.chunks(seeds).map(|cells| cells[0].0);
        let rows = cells.zip(measured.chunks(seeds)).map(|(cell, runs)| WildRow {
            model: cell.model,
            policy: cell.policy.to_owned(),
            host_times: cell.host_times,
            runs: runs.to_vec(),
        });
        Ok(rows.collect())
    }
}

/// The policies asked for, checked before anything runs.
fn policies(asked: Option<&[String]>) -> Result<Vec<String>> {
    let policies: Vec<String> = match asked {
        Some(asked) => asked.to_vec(),
        None => POLICIES.split(',').map(str::to_owned).collect(),
    };
    // The policies are checked by name before any traffic is drawn.
    let setting = policy::Setting { capacity: 1, block_tokens: BLOCK_TOKENS };
    for spec in &policies {
        policy::by_name(spec, setting)
            .map_err(|error| UsageError(format!("--policies: {error}")))?;
    }
    Ok(policies)
}

/// Returns a file's name without its folder, which stays private.
fn shown(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}
