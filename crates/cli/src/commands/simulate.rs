//! `headstart simulate`.

mod arms;
mod cells;
mod engine;
mod fleet;
mod grid;
mod kind;
mod record;
mod texts;
mod traffic;
mod wild;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use headstart_sim::chat::{Pacing, Replica};
use headstart_sim::experiment::{Predictor, Traffic};
use headstart_sim::fleet::Preset;
use headstart_sim::noise::Channel;
use headstart_sim::wild::Traffic as WildTraffic;
use headstart_sim::workload::Seeds;
use headstart_trace::synth::Gap;

use self::arms::DEFAULT_ARMS;
use self::cells::Cell;
pub(crate) use self::cells::parallel;
use self::engine::Engine;
use self::fleet::FleetOptions;
use self::grid::{Axes, Sweep};
use self::kind::Kind;
use self::traffic::{Source, TrafficOptions};
use self::wild::{Shared, WildOptions};
use super::replay::progress;
use crate::config::UsageError;
use crate::output;
use crate::report::Made;
use crate::report::fleet as fleet_report;
use crate::report::simulate::{self as report, Facts, Report};
use crate::report::wild as wild_report;

pub(crate) use self::fleet::SourceOptions;
pub(crate) use self::grid::{Grid, Group, Shown, Sweep as Swept, kilo};

/// Sizes of the study, tokens.
const DEFAULT_SIZES: &str = "60K,80K,100K,120K,140K,160K";

/// Qualities at which the noisy oracles are run.
const DEFAULT_MCCS: &str = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1";

/// Longest run, minutes: a day.
const MINUTES_MAX: f64 = 1_440.0;

/// Largest cache, tokens: what a replay holds in memory, in blocks of 16.
const TOKENS_MAX: u32 = 1 << 30;

/// Simulate a fleet (routing) or one replica (eviction).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart simulate --preset llm-d-73 --html fleet.html
  headstart simulate --preset llm-d-73 --strategies precise,cost --rates 20,60
  headstart simulate --fleet-trace trace.jsonl --fleet-replicas 4 --speed 2
  headstart simulate --fleet-trace trace.jsonl --cost-model engine.toml
  headstart simulate --preset lpc-lmsys
  headstart simulate --preset lpc-sharegpt --sweep size,lambda --html page.html
  headstart simulate --preset lpc-arena --sweep mcc --policies lpc --at 100K
  headstart simulate --conversations chats.jsonl --sizes 4000 --policies lru,wa
  headstart simulate --preset wild-consumer
  headstart simulate --wild-trace sessions.jsonl --models qwen2-7b --host 0,2
  headstart simulate --record run.jsonl --sizes 9600 --policies lru,lpc \\
    --engine overhead=0.001,weights=0.004,token=0.0002

There are three kinds of simulation. Each has its own options:
  Fleets        --preset llm-d-73, llm-d-37 or laptop, or --fleet-trace
  Host memory   --preset wild-consumer or wild-business, or --wild-trace
  One replica   --preset lpc-*, --conversations or --record
Host memory also takes --policies, --minutes, --warm-up and --seeds.
The simulation uses the router, scheduler and cache of `serve`, in virtual time.
A cost model gives the duration of each engine step.

One replica: the next prompt of a conversation comes one gap after the answer's
last token. A gain is relative to lru. The gap closed is relative to an oracle
that knows whether a conversation continues, but not when. Figures are averages
over the seeds; the spread is the maximum minus the minimum.

Host memory: device and host use the same policy. KV is loaded over PCIe if that
is faster than recomputing. Traffic follows the statistics of the ATC'25 study,
and the engines follow data sheets. The report prints the study's ranges next to
ours.")]
pub(crate) struct Simulate {
    #[command(flatten)]
    traffic: TrafficOptions,
    /// Parameters to vary
    #[arg(long, value_enum, value_delimiter = ',', default_value = "size")]
    #[arg(help_heading = "One replica")]
    sweep: Vec<Sweep>,
    /// Policies with options, turn-only and oracle
    ///
    /// turn-only is lpc with the turn count as predictor, oracle is lpc with the truth.
    #[arg(long, value_name = "P[,P…]", value_delimiter = ',', default_value = DEFAULT_ARMS,
        help_heading = "One replica")]
    policies: Vec<String>,
    /// Cache sizes, tokens
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_value = DEFAULT_SIZES,
        value_parser = tokens, help_heading = "One replica")]
    sizes: Vec<u32>,
    /// Cache sizes of the other sweeps [default: maximum of --sizes]
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', value_parser = tokens,
        help_heading = "One replica")]
    at: Vec<u32>,
    /// Mean gap from an answer to the next prompt, seconds
    ///
    /// Sweeps other than lambda use the first value. A record has its own gaps; there this is the
    /// mean that lpc assumes.
    #[arg(
        long,
        value_name = "S[,S…]",
        value_delimiter = ',',
        default_value = "100"
    )]
    #[arg(help_heading = "One replica")]
    lambda: Vec<f64>,
    /// Distribution of gaps: exponential or lognormal:SIGMA
    #[arg(long, value_name = "DIST", default_value = "exponential")]
    #[arg(conflicts_with = "record", help_heading = "One replica")]
    gaps: String,
    /// Predictor for lpc: noisy, model or none [default: by source]
    ///
    /// model if the conversations have predictions, otherwise noisy: the truth with errors.
    #[arg(long, value_name = "NAME", help_heading = "Prediction")]
    predictor: Option<String>,
    /// MCC of the noisy predictor [default: as published]
    ///
    /// --sweep mcc takes several values. [default there: 0 to 1]
    #[arg(long, value_name = "M[,M…]", value_delimiter = ',')]
    #[arg(help_heading = "Prediction")]
    mcc: Vec<f64>,
    /// Noise of the noisy predictor: flips, logit or confident
    #[arg(long, value_name = "KIND", default_value = "logit")]
    #[arg(help_heading = "Prediction")]
    oracle: String,
    /// Memory of lpc's predictor, taken off the cache, GB of 40
    ///
    /// 1 GB is 4,000 tokens. --sweep charge takes several values.
    #[arg(long, value_name = "X[,X…]", value_delimiter = ',')]
    #[arg(help_heading = "Prediction")]
    charge: Vec<f64>,
    /// Runs per point, with seeds from 1
    #[arg(long, value_name = "N", default_value = "5", conflicts_with = "record")]
    #[arg(help_heading = "One replica")]
    seeds: NonZeroUsize,
    /// Seed of the conversations and of prediction errors
    ///
    /// --seeds changes neither.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    #[arg(help_heading = "One replica")]
    corpus: u64,
    /// Length of a run
    #[arg(long, value_name = "MINUTES", default_value_t = 20.0)]
    #[arg(conflicts_with = "record", help_heading = "One replica")]
    minutes: f64,
    /// Time to leave out of the figures, at the start
    #[arg(long, value_name = "MINUTES", default_value_t = 0.0)]
    #[arg(help_heading = "One replica")]
    warm_up: f64,
    #[command(flatten)]
    engine: Engine,
    #[command(flatten)]
    fleet: FleetOptions,
    #[command(flatten)]
    wild: WildOptions,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<NonZeroUsize>,
    /// Print JSON, one object per line
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Print CSV, one line per sweep, point, policy and seed
    ///
    /// For one replica only.
    #[arg(long, help_heading = "Output")]
    csv: bool,
    /// Also write an HTML page with curves
    ///
    /// For fleets and one replica.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

/// Runs the fleet or the experiment and tells what came out. `given` is what the command line
/// names.
pub(crate) fn run(simulate: &Simulate, given: &[&str]) -> Result<()> {
    if let Some(page) = &simulate.html {
        let mut files = simulate.traffic.files();
        files.extend(simulate.fleet.files());
        output::files(&[("--html", page)], &files)?;
    }
    let kind = simulate.kind();
    kind::check(kind, given)?;
    match kind {
        Kind::Fleet(preset) => fleet(simulate, preset),
        Kind::Wild(traffic) => wild(simulate, traffic, given),
        Kind::Experiment => experiment(simulate),
    }
}

fn wild(simulate: &Simulate, traffic: Option<WildTraffic>, given: &[&str]) -> Result<()> {
    let is_given = |id| given.contains(&id);
    let shared = Shared {
        policies: is_given("policies").then_some(&simulate.policies),
        minutes: is_given("minutes").then_some(simulate.minutes),
        warm_up: is_given("warm_up").then_some(simulate.warm_up),
        seeds: is_given("seeds").then_some(simulate.seeds.get()),
        threads: simulate.threads(),
    };
    let report = simulate.wild.run(traffic, &shared)?;
    output::line(&match simulate.json {
        true => wild_report::json_lines(&report),
        false => wild_report::table(&report),
    })
}

fn fleet(simulate: &Simulate, preset: Preset) -> Result<()> {
    let report = simulate.fleet.run(preset, simulate.threads())?;
    if let Some(file) = &simulate.html {
        let cannot_write = || format!("cannot write {}", file.display());
        std::fs::write(file, fleet_report::page(&report, &Made::now()))
            .with_context(cannot_write)?;
    }
    output::line(&match simulate.json {
        true => fleet_report::json_lines(&report),
        false => fleet_report::table(&report),
    })
}

fn experiment(simulate: &Simulate) -> Result<()> {
    let source = simulate.traffic.source()?;
    let replica = simulate.replica()?;
    let axes = simulate.axes(&source)?;
    let grid = Grid::new(&axes, &simulate.sweep);
    let grid = grid.map_err(|error| UsageError(format!("--policies: {error}")))?;
    let seeds = source.seeds(simulate.seeds.get());
    let threads = simulate.threads();

    let pairs: Vec<(usize, u64)> = (0..axes.gaps.len())
        .flat_map(|gap| seeds.iter().map(move |&seed| (gap, seed)))
        .collect();
    let pacing = simulate.pacing();
    let traffics = cells::parallel(&pairs, threads, |&(gap, seed)| {
        let corpus = simulate.corpus;
        source.traffic(&axes.gaps[gap], pacing, Seeds { corpus, gaps: seed })
    });
    let minutes = traffics[0].script().seconds() / 60.0;
    if simulate.warm_up > 0.0 && simulate.warm_up >= minutes {
        let message = format!(
            "--warm-up {:?}: the run has {minutes:.1} minutes",
            simulate.warm_up
        );
        return Err(UsageError(message).into());
    }
    let runs = Runs {
        traffics: &traffics,
        num_seeds: seeds.len(),
    };
    let measured = measure(&grid, &runs, |cells| {
        let bar = progress(cells.len() as u64);
        let measured = cells::run_all(cells, &replica, threads, || bar.inc(1));
        bar.finish_and_clear();
        measured
    })?;
    let facts = Facts {
        source: source.told(&traffics[0]),
        workload: source.workload(),
        replica,
        minutes,
        warm_up_minutes: simulate.warm_up,
        drawn: source.is_drawn().then_some((pacing.slots, seeds.len())),
        predictor: axes.predictor,
    };
    let report = Report::new(facts, grid, measured);
    if let Some(file) = &simulate.html {
        let cannot_write = || format!("cannot write {}", file.display());
        std::fs::write(file, report::page(&report, &Made::now())).with_context(cannot_write)?;
    }
    output::line(&match (simulate.json, simulate.csv) {
        (true, _) => report::json_lines(&report),
        (_, true) => report::csv(&report),
        _ => report::table(&report),
    })
}

/// The runs of each group.
struct Runs<'a> {
    /// By gap, and of each gap one per seed.
    traffics: &'a [Traffic],
    num_seeds: usize,
}

impl Runs<'_> {
    fn of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = Cell<'a>> {
        let traffics = self.traffics.iter().skip(group.gap * self.num_seeds);
        traffics.take(self.num_seeds).map(|traffic| Cell {
            traffic,
            arm: &group.arm,
            size_tokens: group.size_tokens,
        })
    }
}

/// What was measured in each group, seed by seed.
fn measure(
    grid: &Grid,
    runs: &Runs<'_>,
    run: impl FnOnce(&[Cell<'_>]) -> Result<Vec<report::Measured>>,
) -> Result<Vec<Vec<report::Measured>>> {
    let cells = grid.groups.iter().flat_map(|group| runs.of(group));
    let measured = run(&cells.collect::<Vec<_>>())?;
    let by_group = measured.chunks(runs.num_seeds);
    Ok(by_group.map(<[_]>::to_vec).collect())
}

impl Simulate {
    fn kind(&self) -> Kind {
        let named = self.traffic.preset();
        let traffic = named.and_then(WildTraffic::find);
        let preset = match (named, self.fleet.is_of_trace()) {
            // Whose engine it is, unless another one is named.
            (None, true) => Some(Preset::LlmD73),
            (named, _) => named.and_then(Preset::find),
        };
        match preset {
            Some(preset) => Kind::Fleet(preset),
            None if traffic.is_some() || self.wild.is_of_trace() => Kind::Wild(traffic),
            None => Kind::Experiment,
        }
    }

    fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or(cores, usize::from)
    }

    fn replica(&self) -> Result<Replica> {
        let (minutes, warm_up) = (self.minutes, self.warm_up);
        if !(minutes > 0.0 && minutes <= MINUTES_MAX) {
            let message = format!("--minutes {minutes:?}: expected up to {MINUTES_MAX}");
            return Err(UsageError(message).into());
        }
        if !(0.0..=MINUTES_MAX).contains(&warm_up) {
            let message = format!("--warm-up {warm_up:?}: expected up to {MINUTES_MAX} minutes");
            return Err(UsageError(message).into());
        }
        Ok(Replica {
            warm_up: Duration::from_secs_f64(warm_up * 60.0),
            ..self.engine.replica()?
        })
    }

    fn pacing(&self) -> Pacing {
        Pacing {
            seconds: self.minutes * 60.0,
            ..self.traffic.pacing(self.lambda[0])
        }
    }

    /// Everything that varies, checked.
    fn axes(&self, source: &Source) -> Result<Axes> {
        let charges = positive("--charge", &self.charge, 1_000.0)?;
        let mccs = positive("--mcc", &self.mcc, 1.0)?;
        let largest = self.sizes.iter().copied().max();
        let varies = |sweep| self.sweep.contains(&sweep);
        let mut gaps = positive("--lambda", &self.lambda, 1e6)?;
        if gaps.contains(&0.0) {
            return Err(UsageError("--lambda 0: users need time".to_owned()).into());
        }
        if !varies(Sweep::Lambda) {
            gaps.truncate(1);
        }
        let gaps = gaps.into_iter().map(|mean_s| self.gap(mean_s));
        Ok(Axes {
            sizes: self.sizes.clone(),
            at: match self.at.is_empty() {
                true => largest.into_iter().collect(),
                false => self.at.clone(),
            },
            gaps: gaps.collect::<Result<_>>()?,
            predictor: self.predictor(source, mccs.first().copied())?,
            mccs: match mccs.len() {
                0 | 1 => numbers(DEFAULT_MCCS),
                _ => mccs,
            },
            charge: match varies(Sweep::Charge) {
                true => 1.0,
                false => charges.first().copied().unwrap_or(source.charge()),
            },
            charges: match charges.is_empty() {
                true => vec![0.0, 1.0, 2.0, 4.0],
                false => charges,
            },
            arms: self.policies.clone(),
        })
    }

    fn gap(&self, mean_s: f64) -> Result<Gap> {
        if self.gaps == "exponential" {
            return Ok(Gap::Exponential { mean_s });
        }
        let sigma = self.gaps.strip_prefix("lognormal:");
        let sigma = sigma.and_then(|text| text.parse::<f64>().ok());
        match sigma.filter(|sigma| (0.0..=5.0).contains(sigma)) {
            Some(sigma) => Ok(Gap::LogNormal {
                mu: mean_s.ln() - sigma * sigma / 2.0,
                sigma,
            }),
            None => {
                let known = "exponential, or lognormal:SIGMA with SIGMA from 0 to 5";
                Err(UsageError(format!("--gaps {}: expected {known}", self.gaps)).into())
            }
        }
    }

    fn predictor(&self, source: &Source, mcc: Option<f64>) -> Result<Predictor> {
        let default = match source.has_predictions() {
            true => "model",
            false => "noisy",
        };
        let channel = Channel::ALL.into_iter().find(|it| it.name() == self.oracle);
        let channel = channel.ok_or_else(|| {
            let known = "flips, logit or confident";
            UsageError(format!("--oracle {}: expected {known}", self.oracle))
        })?;
        let named = self.predictor.as_deref().unwrap_or(default);
        if named != "noisy" && mcc.is_some() && !self.sweep.contains(&Sweep::Mcc) {
            let message = format!("--mcc is for --predictor noisy; here it is {named}");
            return Err(UsageError(message).into());
        }
        match named {
            "noisy" => Ok(Predictor::Noisy {
                channel,
                mcc: mcc.unwrap_or(source.mcc()),
            }),
            "model" if source.has_predictions() => Ok(Predictor::Model),
            "model" => {
                let message = "--predictor model: the conversations carry no predictions; name \
                               the model with --model, or a record that has them with --record";
                Err(UsageError(message.to_owned()).into())
            }
            "none" => Ok(Predictor::Nobody),
            other => {
                let message = format!("--predictor {other}: expected noisy, model or none");
                Err(UsageError(message).into())
            }
        }
    }
}

/// `160K` or `160000`.
fn tokens(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000.0),
        None => (text, 1.0),
    };
    let number = digits.parse::<f64>().ok().map(|number| number * factor);
    match number.filter(|number| (1.0..=f64::from(TOKENS_MAX)).contains(number)) {
        Some(number) => Ok(number as u32),
        None => Err(format!(
            "expected tokens, as 160000 or 160K, up to {TOKENS_MAX}"
        )),
    }
}

fn positive(name: &str, values: &[f64], most: f64) -> Result<Vec<f64>> {
    match values.iter().find(|it| !(0.0..=most).contains(*it)) {
        Some(value) => {
            let message = format!("{name} {value:?}: expected a number from 0 to {most}");
            Err(UsageError(message).into())
        }
        None => Ok(values.to_vec()),
    }
}

fn numbers(list: &str) -> Vec<f64> {
    list.split(',').flat_map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_tokens_or_thousands_of_them() {
        let check = |text: &str, expected: Option<u32>| {
            assert_eq!(tokens(text).ok(), expected, "{text}");
        };
        check("160K", Some(160_000));
        check("62.5k", Some(62_500));
        check("4096", Some(4_096));
        check("0", None);
        check("many", None);
        check("9e99", None);
    }
}
