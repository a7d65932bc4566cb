//! `headstart-lab prediction`: eviction policies with predictors, after Learned Prefix
//! Caching.

mod arms;
mod cells;
mod chat;
mod engine;
mod executor;
mod experiment;
mod grid;
mod noise;
mod quality;
mod record;
mod report;
mod saturation;
mod texts;
mod traffic;
mod workload;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::prediction::chat::{Pacing, Replica};
use crate::prediction::experiment::{PredictionSource, Traffic};
use crate::prediction::noise::NoiseChannel;
use crate::prediction::workload::Seeds;
use anyhow::{Context, Result};
use clap::Args;
use headstart_core::UsageError;
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::synth::Gap;

use self::arms::DEFAULT_ARMS;
use self::cells::SimulationCell;
use self::engine::EngineOptions;
use self::grid::{Axes, Grid, RunGroup, SweepAxis};
use self::report::{ExperimentFacts, ExperimentReport};
use self::traffic::{TrafficOptions, TrafficSource};
use crate::MINUTES_MAX;
use headstart::parts::{parallel, policy_option, threads};
use headstart_page::ReportProvenance;

/// Sizes of the study, tokens.
const DEFAULT_SIZES: &str = "60K,80K,100K,120K,140K,160K";

/// Qualities at which the noisy oracles are run.
const DEFAULT_MCCS: &str = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1";

/// Largest cache, tokens: what a replay holds in memory, in blocks of 16.
const TOKENS_MAX: u32 = 1 << 30;

/// Eviction policies with predictors, on one replica.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart-lab prediction --preset lpc-lmsys --minutes 5 --seeds 1
  headstart-lab prediction --preset lpc-sharegpt --sweep size,lambda \
    --html page.html
  headstart-lab prediction --preset lpc-arena --sweep mcc --policies lpc
  headstart-lab prediction --conversations chats.jsonl --sizes 4000 \
    --policies lru,wa
  headstart-lab prediction --record run.jsonl --sizes 9600 \
    --policies lru,lpc --engine overhead=0.001,weights=0.004,token=0.0002

Users in a closed loop talk to one replica in virtual time. The next prompt of a
conversation comes one gap after the answer's last token. A gain is relative to
lru. The gap closed is relative to an oracle that knows whether a conversation
continues, but not when. Figures are averages over the seeds; the spread is the
maximum minus the minimum. A full preset takes one to six minutes.")]
pub(crate) struct PredictionSimulation {
    #[command(flatten)]
    traffic: TrafficOptions,
    /// Parameters to vary
    #[arg(long, value_enum, value_delimiter = ',', default_value = "size")]
    #[arg(help_heading = "Experiment")]
    sweep: Vec<SweepAxis>,
    /// Policies with options, turn-only and oracle
    ///
    /// turn-only is lpc with the turn count as predictor, oracle is lpc with the truth.
    #[arg(long, value_name = "P[,P…]", value_delimiter = ',', default_value = DEFAULT_ARMS,
        value_parser = policy_option, help_heading = "Experiment")]
    policies: Vec<String>,
    /// Cache sizes, tokens
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_value = DEFAULT_SIZES,
        value_parser = tokens, help_heading = "Experiment")]
    sizes: Vec<u32>,
    /// Cache sizes of the other sweeps [default: maximum of --sizes]
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', value_parser = tokens,
        help_heading = "Experiment")]
    at: Vec<u32>,
    /// Mean gap from an answer to the next prompt, seconds
    ///
    /// Sweeps other than lambda use the first value. A record has its own gaps; there this is the
    /// mean that lpc assumes.
    #[arg(long, value_name = "S[,S…]", value_delimiter = ',', default_value = "100")]
    #[arg(help_heading = "Experiment")]
    lambda: Vec<f64>,
    /// Distribution of gaps: exponential or lognormal:SIGMA
    #[arg(long, value_name = "DIST", default_value = "exponential")]
    #[arg(conflicts_with = "record", help_heading = "Experiment")]
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
    #[arg(long, value_name = "KIND", default_value = "logit", hide = true)]
    oracle: String,
    /// Memory of lpc's predictor, taken off the cache, GB of 40
    ///
    /// 1 GB is 4,000 tokens. --sweep charge takes several values.
    #[arg(long, value_name = "X[,X…]", value_delimiter = ',')]
    #[arg(help_heading = "Prediction")]
    charge: Vec<f64>,
    /// Runs per point, with seeds from 1
    #[arg(long, value_name = "N", default_value = "5", conflicts_with = "record")]
    #[arg(help_heading = "Experiment")]
    seeds: NonZeroUsize,
    /// Seed of the conversations and of prediction errors
    ///
    /// --seeds changes neither.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    #[arg(help_heading = "Experiment")]
    corpus: u64,
    /// Length of a run
    #[arg(long, value_name = "MINUTES", default_value_t = 20.0)]
    #[arg(conflicts_with = "record", help_heading = "Experiment")]
    minutes: f64,
    /// Time to leave out of the figures, at the start
    #[arg(long, value_name = "MINUTES", default_value_t = 0.0)]
    #[arg(help_heading = "Experiment")]
    warm_up: f64,
    #[command(flatten)]
    engine: EngineOptions,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<NonZeroUsize>,
    /// Print JSON, one object per line
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Print CSV, one line per sweep, point, policy and seed
    #[arg(long, help_heading = "Output")]
    csv: bool,
    /// Also write an HTML page with curves
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

/// Runs the experiment and prints what came out.
pub(super) fn run(simulate: &PredictionSimulation) -> Result<()> {
    if let Some(page) = &simulate.html {
        output::files(&[("--html", page)], &simulate.traffic.files())?;
    }
    let source = simulate.traffic.source()?;
    let replica = simulate.replica()?;
    let axes = simulate.axes(&source)?;
    let grid = Grid::new(&axes, &simulate.sweep);
    let grid = grid.map_err(|error| UsageError(format!("--policies: {error}")))?;
    let seeds = source.seeds(simulate.seeds.get());
    let threads = threads(simulate.threads);

    let pairs: Vec<(usize, u64)> =
        (0..axes.gaps.len()).flat_map(|gap| seeds.iter().map(move |&seed| (gap, seed))).collect();
    let pacing = simulate.pacing();
    let progress = TaskProgress::steps("generating conversations", pairs.len());
    // Traffic depends on gap and seed only, so all arms and sizes share it.
    let traffics = parallel(&pairs, threads, |&(gap, seed)| {
        let corpus = simulate.corpus;
        let traffic = source.traffic(&axes.gaps[gap], pacing, Seeds { corpus, gaps: seed });
        progress.inc(1);
        traffic
    });
    progress.end();
    // A record has its own length, so the minutes are known only now.
    let minutes = traffics[0].script().seconds() / 60.0;
    if simulate.warm_up > 0.0 && simulate.warm_up >= minutes {
        let message = format!("--warm-up {:?}: the run has {minutes:.1} minutes", simulate.warm_up);
        return Err(UsageError(message).into());
    }
    let runs = GroupRuns { traffics: &traffics, num_seeds: seeds.len() };
    let measured = measure(&grid, &runs, |cells| {
        let progress = TaskProgress::steps("simulating", cells.len());
        let measured = cells::run_all(cells, &replica, threads, || progress.inc(1));
        progress.end();
        measured
    })?;
    let facts = ExperimentFacts {
        source: source.told(&traffics[0]),
        workload: source.workload(),
        replica,
        minutes,
        warm_up_minutes: simulate.warm_up,
        drawn: source.is_drawn().then_some((pacing.slots, seeds.len())),
        predictor: axes.predictor,
    };
    let report = ExperimentReport::new(facts, grid, measured);
    if let Some(file) = &simulate.html {
        let cannot_write = || format!("cannot write {}", file.display());
        std::fs::write(file, report::page(&report, &ReportProvenance::now("headstart-lab")))
            .with_context(cannot_write)?;
    }
    output::line(&match (simulate.json, simulate.csv) {
        (true, _) => report::json_lines(&report),
        (_, true) => report::csv(&report),
        _ => output::fitted(&report::table(&report)),
    })
}

/// The runs of each group.
struct GroupRuns<'a> {
    /// By gap, and of each gap one per seed.
    traffics: &'a [Traffic],
    num_seeds: usize,
}

impl GroupRuns<'_> {
    fn of<'a>(&'a self, group: &'a RunGroup) -> impl Iterator<Item = SimulationCell<'a>> {
        // Traffics are in the order of gaps, and each gap has one per seed.
        let traffics = self.traffics.iter().skip(group.gap * self.num_seeds);
        traffics.take(self.num_seeds).map(|traffic| SimulationCell {
            traffic,
            arm: &group.arm,
            size_tokens: group.size_tokens,
        })
    }
}

/// Runs each group with all seeds and returns the measurements by group, then by seed.
fn measure(
    grid: &Grid,
    runs: &GroupRuns<'_>,
    run: impl FnOnce(&[SimulationCell<'_>]) -> Result<Vec<report::RunMeasurements>>,
) -> Result<Vec<Vec<report::RunMeasurements>>> {
    let cells = grid.groups.iter().flat_map(|group| runs.of(group));
    let measured = run(&cells.collect::<Vec<_>>())?;
    // Cells of a group are neighbours, because they were made group by group.
    let by_group = measured.chunks(runs.num_seeds);
    Ok(by_group.map(<[_]>::to_vec).collect())
}

impl PredictionSimulation {
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
        Ok(Replica { warm_up: Duration::from_secs_f64(warm_up * 60.0), ..self.engine.replica()? })
    }

    fn pacing(&self) -> Pacing {
        Pacing { seconds: self.minutes * 60.0, ..self.traffic.pacing(self.lambda[0]) }
    }

    /// Everything that varies, checked.
    fn axes(&self, source: &TrafficSource) -> Result<Axes> {
        let charges = positive("--charge", &self.charge, 1_000.0)?;
        let mccs = positive("--mcc", &self.mcc, 1.0)?;
        let largest = self.sizes.iter().copied().max();
        let varies = |sweep| self.sweep.contains(&sweep);
        let mut gaps = positive("--lambda", &self.lambda, 1e6)?;
        // With a mean gap of zero all turns would come at once.
        if gaps.contains(&0.0) {
            return Err(UsageError("--lambda 0: users need time".to_owned()).into());
        }
        // Without that sweep further gaps would be generated and not shown.
        if !varies(SweepAxis::Lambda) {
            gaps.truncate(1);
        }
        let gaps = gaps.into_iter().map(|mean_s| self.gap(mean_s));
        Ok(Axes {
            sizes: self.sizes.clone(),
            // The other sweeps run at the largest size unless the user names others.
            at: if self.at.is_empty() { largest.into_iter().collect() } else { self.at.clone() },
            gaps: gaps.collect::<Result<_>>()?,
            predictor: self.predictor(source, mccs.first().copied())?,
            mccs: match mccs.len() {
                0 | 1 => numbers(DEFAULT_MCCS),
                _ => mccs,
            },
            // The sweep varies the multiple of one, so the base is 1 GB.
            charge: if varies(SweepAxis::Charge) {
                1.0
            } else {
                charges.first().copied().unwrap_or(source.charge())
            },
            charges: if charges.is_empty() { vec![0.0, 1.0, 2.0, 4.0] } else { charges },
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
            // The mean of the lognormal distribution is `exp(mu + sigma² / 2)`.
            Some(sigma) => Ok(Gap::LogNormal { mu: mean_s.ln() - sigma * sigma / 2.0, sigma }),
            None => {
                let known = "exponential, or lognormal:SIGMA with SIGMA from 0 to 5";
                Err(UsageError(format!("--gaps {}: expected {known}", self.gaps)).into())
            }
        }
    }

    fn predictor(&self, source: &TrafficSource, mcc: Option<f64>) -> Result<PredictionSource> {
        let default = if source.has_predictions() { "model" } else { "noisy" };
        let channel = NoiseChannel::ALL.into_iter().find(|channel| channel.name() == self.oracle);
        let channel = channel.ok_or_else(|| {
            let known = "flips, logit or confident";
            UsageError(format!("--oracle {}: expected {known}", self.oracle))
        })?;
        let named = self.predictor.as_deref().unwrap_or(default);
        // The option would have no effect on another predictor.
        if named != "noisy" && mcc.is_some() && !self.sweep.contains(&SweepAxis::Mcc) {
            let message = format!("--mcc is for --predictor noisy; here it is {named}");
            return Err(UsageError(message).into());
        }
        match named {
            "noisy" => Ok(PredictionSource::Noisy { channel, mcc: mcc.unwrap_or(source.mcc()) }),
            "model" if source.has_predictions() => Ok(PredictionSource::Model),
            "model" => {
                let message = "--predictor model: the conversations carry no predictions; name \
                               the model with --model, or a record that has them with --record";
                Err(UsageError(message.to_owned()).into())
            }
            "none" => Ok(PredictionSource::Nobody),
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
    // Thousands may have a fraction, such as 2.5K.
    let number = digits.parse::<f64>().ok().map(|number| number * factor);
    match number.filter(|number| (1.0..=f64::from(TOKENS_MAX)).contains(number)) {
        Some(number) => Ok(number as u32),
        None => Err(format!("expected tokens, as 160000 or 160K, up to {TOKENS_MAX}")),
    }
}

fn positive(name: &str, values: &[f64], most: f64) -> Result<Vec<f64>> {
    match values.iter().find(|value| !(0.0..=most).contains(*value)) {
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
