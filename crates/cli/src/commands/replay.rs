//! `headstart replay`.

mod cells;
mod predictors;
mod texts;
mod turns;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use headstart_analysis::capacity::{self, CapacitySpec, Scale};
use headstart_analysis::kv_bytes::KvBytes;
use headstart_cache::policy;
use headstart_core::figures::{counted, thousands};
use headstart_core::{SessionId, TraceRequest};
use headstart_sim::{Sweep, SweepConfig};
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::sample::Sample;
use headstart_trace::{Format, Reader, TraceError};

use self::cells::ReplayCell;
use self::predictors::{NamedPredictor, TracePredictions};
use crate::config::ablations::policy as policy_option;
use crate::config::{kv_bytes, parsed};
use crate::exit::usage;
use crate::input::{self, TraceInput};
use crate::parallel::threads;
use headstart_page::ReportProvenance;
use headstart_report::TraceFacts;
use headstart_report::replay::{self as report, ReplayReport, ReplayRow};

/// Policies where none is named: that of most engines, ours, and the yardstick.
const DEFAULT_POLICIES: &str = "lru,hazard,belady";

/// More room than this, in blocks, is refused: a replay takes about 100 bytes for each, and as
/// many again on every other thread.
const ROOM_MAX: u64 = 1 << 26;

/// Compare eviction policies and cache sizes on a trace.
#[derive(Args, Debug)]
#[command(after_help = include_str!("replay.help.txt"))]
pub(crate) struct ReplayCommand {
    #[command(flatten)]
    input: TraceInput,
    /// Eviction policies, or `all`
    ///
    /// Options follow the name: s3fifo:small=0.2:ghost=1. docs/guide/policies.md lists them.
    #[arg(long, value_name = "P[,P…]", value_delimiter = ',', default_value = DEFAULT_POLICIES,
        value_parser = policy_option, help_heading = "Policies")]
    policy: Vec<String>,
    /// Cache sizes of one replica, in blocks [default: 12, 0.1% to 100%]
    ///
    /// 6000 or 6k (blocks), 160Ktok (tokens), 1% (of the distinct blocks), or 40GiB (with --model).
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',')]
    #[arg(help_heading = "Cache")]
    capacity: Vec<String>,
    /// Model folder or config.json, for the KV bytes per token
    #[arg(long, value_name = "PATH", help_heading = "Cache")]
    model: Option<PathBuf>,
    /// Type of the KV cache [default: of the model]
    ///
    /// f32, f16, bf16, fp8 or int8.
    #[arg(long, value_name = "DTYPE", requires = "model", help_heading = "Cache")]
    kv_dtype: Option<String>,
    /// Predictor for lpc; repeatable [default: trace]
    ///
    /// trace: predictions in the trace. turns: the share of conversations that continued after
    /// that many turns. truth: the probabilities in a generated corpus. Or a file of `headstart
    /// train`, for traces with text.
    #[arg(long, value_name = "NAME|FILE", help_heading = "Policies")]
    predictor: Vec<String>,
    /// Folder of the model's encoder [default: built in]
    #[arg(long, value_name = "FOLDER", requires = "predictor")]
    #[arg(help_heading = "Policies")]
    encoder: Vec<PathBuf>,
    /// Share of the requests to report apart, as warm-up
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    #[arg(help_heading = "Cache")]
    cold: f64,
    /// Share of the sessions to keep, each as a whole
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    #[arg(help_heading = "Input")]
    scale: f64,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<NonZeroUsize>,
    /// Also report each request type and turn
    ///
    /// Turn 10 includes all later ones. With --csv, in place of the totals.
    #[arg(long, help_heading = "Output")]
    per_class: bool,
    /// Print JSON, one object per line
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    json: bool,
    /// Print CSV
    #[arg(long, help_heading = "Output")]
    csv: bool,
    /// Also write an HTML page with interactive curves
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

/// Checked options of the command line.
struct ReplayPlan {
    policies: Vec<String>,
    /// Empty for what the trace carries.
    predictors: Vec<NamedPredictor>,
    /// Empty for the default sizes.
    capacities: Vec<(String, CapacitySpec)>,
    kv: Option<KvBytes>,
    sample: Sample,
    threads: usize,
}

/// Replays the trace once per policy and capacity, and tells what was hit.
pub(crate) fn run(replay: &ReplayCommand) -> Result<()> {
    // The page is written last, after a replay that may take minutes.
    check_output(replay)?;
    let plan = ReplayPlan::of(replay)?;
    let ReplayInput { requests, sessions, mut trace } = ReplayInput::of(replay, &plan)?;
    let predictions = TracePredictions::all(&plan.predictors, &replay.input, &requests, &sessions)?;
    let remarks = plan.remarks(&predictions, &requests, trace.seconds);
    // JSON lines have no place for sentences, so they go to standard error.
    if replay.json {
        remarks.iter().for_each(|remark| output::note(remark));
    }
    trace.remarks.extend(remarks);
    let config =
        SweepConfig { block_tokens: trace.info.block_tokens, cold_requests: trace.cold_requests };
    let sweep = Sweep::new(&requests, config, &plan.policies).map_err(policy_error)?;
    // Sizes in per cent need the distinct blocks, which the sweep counts.
    trace.distinct_blocks = sweep.extent().distinct_blocks;
    let cells = plan.cells(&trace, &predictions)?;
    let progress = TaskProgress::steps("replaying", cells.len() * requests.len());
    let outcomes = cells::replay_all(&sweep, &cells, plan.threads, |served| {
        progress.inc(served as u64);
    })?;
    progress.end();
    let rows = cells.into_iter().zip(outcomes).map(|(cell, outcome)| ReplayRow {
        policy: cell.policy,
        asked: cell.asked,
        blocks: cell.blocks,
        outcome,
    });
    let report = ReplayReport {
        trace,
        kv: plan.kv,
        infinite: sweep.extent().infinite.clone(),
        rows: rows.collect(),
    };
    if let Some(file) = &replay.html {
        output::save(file, report::page(&report, &ReportProvenance::now("headstart")))?;
    }
    output::line(&told(replay, &report))
}

/// Checks that the page is not one of the input files, and can be written.
fn check_output(replay: &ReplayCommand) -> Result<()> {
    let Some(page) = &replay.html else {
        return Ok(());
    };
    let mut inputs = vec![replay.input.path()];
    inputs.extend(replay.model.as_deref());
    // Names that are no file's are no file.
    inputs.extend(replay.predictor.iter().map(Path::new));
    output::files(&[("--html", page)], &inputs)
}

/// The report in the form that was asked for, without the last line's end.
fn told(replay: &ReplayCommand, report: &ReplayReport) -> String {
    if replay.json {
        return report::json_lines(report);
    }
    if replay.csv {
        report.trace.remarks.iter().for_each(|remark| output::note(remark));
        return report::csv(report, replay.per_class);
    }
    let mut text = report::table(report);
    if replay.per_class {
        text += &format!("\n{}", report::per_class(report));
    }
    for sentence in report::words(report) {
        text += &format!("\n{sentence}");
    }
    output::fitted(&text)
}

impl ReplayPlan {
    fn of(replay: &ReplayCommand) -> Result<Self> {
        let capacity = |text: &String| Ok((text.clone(), parsed(text, "--capacity")?));
        let capacities: Vec<(String, CapacitySpec)> =
            replay.capacity.iter().map(capacity).collect::<Result<_>>()?;
        let kv = kv_bytes(replay.model.as_deref(), replay.kv_dtype.as_deref())?;
        let in_bytes = capacities.iter().find(|(_, capacity)| capacity.needs_model());
        // Bytes become blocks only with a model's bytes per token.
        if let (Some((text, _)), None) = (in_bytes, &kv) {
            bail!(usage(format!("--capacity {text}: bytes need --model, a folder or config.json")));
        }
        ensure!(
            (0.0..1.0).contains(&replay.cold),
            usage(format!("--cold {}: expected a share from 0 to below 1", replay.cold))
        );
        let sample = input::sample(replay.scale)?;
        let policies = policies(&replay.policy)?;
        let predictors = NamedPredictor::all(&replay.predictor, &replay.encoder)?;
        // A predictor that no policy reads would be computed for nothing.
        if !predictors.is_empty() && !policies.iter().any(|spec| policy::reads_predictions(spec)) {
            bail!(usage("--predictor: none of the policies reads predictions; lpc does"));
        }
        let threads = threads(replay.threads);
        Ok(Self { policies, predictors, capacities, kv, sample, threads })
    }

    /// Returns the remarks about the predictions, if a policy reads them.
    fn remarks(
        &self,
        predictions: &[TracePredictions],
        requests: &[TraceRequest],
        seconds: f64,
    ) -> Vec<String> {
        let mut specs = self.policies.iter();
        if !specs.any(|spec| policy::reads_predictions(spec)) {
            return Vec::new();
        }
        let remarks = predictions.iter().filter_map(|said| said.remark(requests, seconds));
        remarks.collect()
    }

    /// The policies by the names of the table, each as often as there are predictors that it reads.
    fn arms<'a>(&self, predictions: &'a [TracePredictions]) -> Vec<ReplayCell<'a>> {
        let arm = |spec: &String, said: Option<&'a TracePredictions>| ReplayCell {
            spec: spec.clone(),
            policy: match said.and_then(|said| said.name.as_deref()) {
                Some(name) => format!("{spec}[{name}]"),
                None => spec.clone(),
            },
            predictions: said.and_then(|said| said.values.as_deref()),
            asked: None,
            blocks: 0,
        };
        let mut arms = Vec::new();
        // A policy that reads predictions is replayed once for each predictor.
        for spec in &self.policies {
            if policy::reads_predictions(spec) {
                arms.extend(predictions.iter().map(|said| arm(spec, Some(said))));
            } else {
                arms.push(arm(spec, None));
            }
        }
        arms
    }

    /// Policies × capacities, policy by policy.
    fn cells<'a>(
        &self,
        trace: &TraceFacts,
        predictions: &'a [TracePredictions],
    ) -> Result<Vec<ReplayCell<'a>>> {
        let sizes = self.sizes(trace)?;
        // A cache larger than the trace takes no more memory than the trace.
        let too_large = |blocks: u64| blocks.min(trace.distinct_blocks) > ROOM_MAX;
        if let Some((_, blocks)) = sizes.iter().find(|(_, blocks)| too_large(*blocks)) {
            bail!(usage(format!(
                "--capacity: {blocks} blocks are more than the {ROOM_MAX} that a replay holds in \
                 memory; ask for less, or keep fewer sessions with --scale"
            )));
        }
        let arms = self.arms(predictions);
        // One cell per policy and size: cells are independent and run in parallel.
        let cells = arms.iter().flat_map(|arm| {
            sizes.iter().map(|(asked, blocks)| ReplayCell {
                asked: asked.clone(),
                blocks: *blocks,
                ..arm.clone()
            })
        });
        Ok(cells.collect())
    }

    /// The capacities as asked, and in blocks.
    fn sizes(&self, trace: &TraceFacts) -> Result<Vec<(Option<String>, u64)>> {
        if self.capacities.is_empty() {
            // The default sizes stop at the limit instead of failing there.
            let grid = capacity::grid(trace.distinct_blocks.min(ROOM_MAX));
            return Ok(grid.into_iter().map(|blocks| (None, blocks)).collect());
        }
        let scale = Scale {
            block_tokens: trace.info.block_tokens,
            distinct_blocks: trace.distinct_blocks,
            kv: self.kv.as_ref(),
        };
        let size = |(text, capacity): &(String, CapacitySpec)| {
            let blocks = capacity.blocks(&scale);
            let blocks = blocks.map_err(|error| usage(format!("--capacity {text}: {error}")))?;
            Ok((Some(text.clone()), blocks))
        };
        self.capacities.iter().map(size).collect()
    }
}

/// The policies asked for, each once, checked before a long trace is read.
fn policies(asked: &[String]) -> Result<Vec<String>> {
    let mut policies: Vec<String> = Vec::new();
    for spec in asked {
        let specs = match spec.as_str() {
            "all" => [policy::NAMES, policy::OFFLINE_NAMES].concat(),
            spec => vec![spec],
        };
        for spec in specs {
            // `all` may follow a name that it contains.
            if !policies.iter().any(|known| known == spec) {
                policies.push(spec.to_owned());
            }
        }
    }
    Sweep::new(&[], SweepConfig::default(), &policies).map_err(policy_error)?;
    Ok(policies)
}

fn policy_error(error: policy::PolicyError) -> anyhow::Error {
    usage(format!("--policy: {error}"))
}

/// A trace in memory.
struct ReplayInput {
    requests: Vec<TraceRequest>,
    /// All of the trace, also those that --scale leaves out, where a predictor reads text.
    sessions: BTreeSet<SessionId>,
    /// Facts about the trace, except its distinct blocks.
    trace: TraceFacts,
}

impl ReplayInput {
    fn of(replay: &ReplayCommand, plan: &ReplayPlan) -> Result<Self> {
        let progress = replay.input.progress();
        let mut reader = replay.input.open(&progress)?;
        // Sessions are collected only for models: the set holds every session of the trace.
        let reads_text = plan.predictors.iter().any(NamedPredictor::reads_text);
        if reads_text {
            refuse_textless(&replay.input, &reader)?;
        }
        let mut sessions = BTreeSet::new();
        // The sessions of the whole trace are needed, also of requests that the sample leaves out.
        let all = reader.by_ref().inspect(|request| {
            let session = request.as_ref().ok().and_then(|request| request.session);
            sessions.extend(session.filter(|_| reads_text));
        });
        let requests: Result<Vec<_>, TraceError> = plan.sample.thin(all).collect();
        let requests = requests?;
        progress.end();
        refuse_empty(&replay.input.name(), &requests, &reader)?;
        let trace = facts(replay, &reader, &requests);
        Ok(Self { requests, sessions, trace })
    }
}

/// A predictor that reads text needs a trace that has some, and has it still.
fn refuse_textless(input: &TraceInput, reader: &Reader<'_>) -> Result<()> {
    let format = reader.format();
    // Only conversations have the texts that a model reads.
    if format != Format::Conversation {
        bail!(usage(format!(
            "--predictor: a model reads what is said, and this trace is {format}, without text; \
             `turns` needs none"
        )));
    }
    if input.path().as_os_str() == "-" {
        bail!(usage(
            "--predictor: a model reads the texts a second time, which standard input does not \
             allow; give the conversations as a file"
        ));
    }
    Ok(())
}

fn facts(replay: &ReplayCommand, reader: &Reader<'_>, requests: &[TraceRequest]) -> TraceFacts {
    let mut remarks = input::remarks(reader);
    if replay.scale < 1.0 {
        let all = counted(reader.tally().requests, "request");
        let kept = thousands(requests.len() as u64);
        remarks.push(format!("--scale {}: {kept} of {all} left", replay.scale));
    }
    let arrivals =
        [requests.first(), requests.last()].map(|end| end.map(|request| request.arrival));
    let [first, last] = arrivals.map(Option::unwrap_or_default);
    TraceFacts {
        name: shown_name(replay.input.path()),
        info: reader.info().clone(),
        remarks,
        requests: requests.len(),
        cold_requests: (requests.len() as f64 * replay.cold).round() as u32,
        seconds: last.since(first).as_secs_f64(),
        distinct_blocks: 0,
    }
}

fn refuse_empty(name: &str, requests: &[TraceRequest], reader: &Reader<'_>) -> Result<()> {
    if requests.is_empty() {
        match reader.tally().requests {
            0 => bail!("{name} has no request"),
            all => bail!(
                "{name}: --scale leaves no request of {}; give a larger --scale",
                thousands(all)
            ),
        }
    }
    if requests.iter().all(|request| request.blocks.is_empty()) {
        bail!(
            "{name} has lengths only and no blocks, so no prefix can be reused; replay a \
             trace with block ids (mooncake, bailian, agent or canonical) or with text \
             (conversation)"
        );
    }
    Ok(())
}

/// Returns a file's name without its folder, which stays private.
fn shown_name(file: &Path) -> String {
    match file.file_name() {
        Some(name) if name != "-" => name.to_string_lossy().into_owned(),
        _ => "standard input".to_owned(),
    }
}
