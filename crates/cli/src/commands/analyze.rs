//! `headstart analyze`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use headstart_analysis::analysis::{self, AnalysisParameters};
use headstart_analysis::capacity::ReplicaCapacity;
use headstart_analysis::cost::{EngineSource, Money, PromptCostModel};
use headstart_analysis::export;
use headstart_analysis::fleet::UniformFleet;
use headstart_analysis::kv_bytes::KvBytes;
use headstart_analysis::memory::Bounds;
use headstart_analysis::results::Analysis;
use headstart_analysis::traffic::{LogReaderSettings, LogSource, LoggedTraffic, Renderings};
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::Arrivals;

use crate::config::{cost_model, kv_bytes, parsed, prices};
use crate::exit::usage;
use headstart_page::ReportProvenance;
use headstart_report::analyze as report;

/// Default number of replicas.
const REPLICAS: usize = 4;

/// Most replicas: each is a cache of its own.
const REPLICAS_MAX: usize = 1024;

/// Explain why prompts were recomputed, and the cost.
#[derive(Args, Debug)]
#[command(after_help = include_str!("analyze.help.txt"))]
pub(crate) struct Analyze {
    /// Request logs, conversations or traces
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: AnalyzeOptions,
    /// Also write the requests as an anonymous trace
    ///
    /// `analyze` and `replay` read it.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    export: Option<PathBuf>,
    /// Format of the files [default: by the first line of each]
    ///
    /// mooncake, bailian, agent, azure, conversation, requests or canonical.
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    format: Option<String>,
    /// Skip and count bad lines, instead of stopping at the first
    #[arg(long, help_heading = "Input")]
    skip_bad: bool,
    /// Tokens per block [default: by format]
    ///
    /// 512 for mooncake, the trace's own size for agent, 16 for other formats.
    #[arg(long, value_name = "N", help_heading = "Input")]
    block_tokens: Option<u32>,
    /// Draw starts of agent sessions at random, with this mean gap
    #[arg(long, value_name = "SECONDS", help_heading = "Input")]
    arrivals: Option<f64>,
}

/// Options shared with `demo`.
#[derive(Args, Debug, Default)]
pub(crate) struct AnalyzeOptions {
    /// Replicas that share the traffic [default: 4]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = replicas,
        help_heading = "Cache")]
    replicas: Option<usize>,
    /// KV capacity of one replica, such as 160Ktok [default: by cost model]
    ///
    /// 6000 or 6k (blocks), 160Ktok (tokens), 1% (of the distinct blocks), or 40GiB (with --model
    /// or --kv-bytes).
    #[arg(long, value_name = "N", help_heading = "Cache")]
    pub(super) capacity: Option<String>,
    /// Model folder or config.json, for the KV bytes per token
    #[arg(long, value_name = "PATH", help_heading = "Cache")]
    model: Option<PathBuf>,
    /// KV bytes per token, in place of --model
    #[arg(long, value_name = "N", conflicts_with = "model")]
    #[arg(help_heading = "Cache")]
    kv_bytes: Option<u64>,
    /// Type of the KV cache [default: of the model]
    ///
    /// f32, f16, bf16, fp8 or int8.
    #[arg(long, value_name = "DTYPE", requires = "model")]
    #[arg(help_heading = "Cache")]
    kv_dtype: Option<String>,
    /// Cost model of the engine [default: Llama 3.1 8B on one H100]
    ///
    /// `headstart calibrate` writes such a file.
    #[arg(long, value_name = "FILE", help_heading = "Prices")]
    cost_model: Option<PathBuf>,
    /// Price of one replica per hour
    #[arg(
        long,
        value_name = "DOLLARS",
        conflicts_with = "price_table",
        allow_negative_numbers = true,
        help_heading = "Prices"
    )]
    gpu_hour: Option<f64>,
    /// Prices of tokens: a TOML file, or `builtin`
    ///
    /// `headstart savings --help` shows the format. `builtin` has relative prices.
    #[arg(long, value_name = "FILE|builtin", help_heading = "Prices")]
    price_table: Option<String>,
    /// Folder of the tokenizer and chat template [default: toy's]
    ///
    /// Token counts of the built-in toy are approximate.
    #[arg(long, value_name = "FOLDER", help_heading = "Input")]
    tokenizer: Option<PathBuf>,
    /// Show prompt text in examples
    #[arg(long, help_heading = "Output")]
    show_text: bool,
    /// Also show cache sizes, routing and the shape of the traffic
    #[arg(long)]
    full: bool,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Also write an HTML report; `-` prints it instead of the text
    ///
    /// The page needs no network.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,
}

/// Reads, analyzes and tells.
pub(crate) fn run(analyze: &Analyze) -> Result<()> {
    // Outputs are checked first: reading and replaying may take minutes.
    check_outputs(analyze)?;
    let sources: Vec<_> = analyze.files.iter().cloned().map(LogSource::File).collect();
    let progress = TaskProgress::bytes("reading");
    let rendering = Renderings::of(analyze.options.tokenizer.as_deref())?;
    let traffic = LoggedTraffic::read(&sources, &analyze.reading(&rendering)?, &progress)?;
    // The export needs no analysis, so it is written even if the analysis fails.
    if let Some(path) = &analyze.export {
        let progress = TaskProgress::steps("writing the trace", traffic.requests.len());
        output::to(path, |out| Ok(export::write(out, &traffic, &progress)?))?;
    }
    let analysis = analyze.options.analyze(&traffic, &rendering, &progress)?;
    progress.end();
    analyze.options.tell(&analysis)
}

/// Reads `sources` as texts or traces, analyzes them and tells.
pub(crate) fn tell(options: &AnalyzeOptions, sources: &[LogSource]) -> Result<()> {
    let progress = TaskProgress::bytes("reading");
    let rendering = Renderings::of(options.tokenizer.as_deref())?;
    let traffic = LoggedTraffic::read(sources, &reading(&rendering, false), &progress)?;
    let analysis = options.analyze(&traffic, &rendering, &progress)?;
    progress.end();
    options.tell(&analysis)
}

/// Settings for reading a log without options.
pub(super) fn reading(rendering: &Renderings, skip_bad: bool) -> LogReaderSettings<'_> {
    LogReaderSettings {
        format: None,
        skip_bad,
        block_tokens: None,
        arrivals: Arrivals::FileOrder,
        rendering,
        held_bytes: Bounds::default().held_bytes,
    }
}

/// No file that is written is one that is read, and standard output is written once.
fn check_outputs(analyze: &Analyze) -> Result<()> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_stdout_path);
    // The report already goes to standard output.
    ensure!(
        !is_stdout(&analyze.export),
        usage("--export -: standard output is for the report; name a file")
    );
    if analyze.options.json && is_stdout(&analyze.options.html) {
        bail!(usage("--html - --json: both would go to standard output; name a file for the page"));
    }
    let outputs = [("--html", &analyze.options.html), ("--export", &analyze.export)];
    let given = outputs
        .iter()
        .filter_map(|(name, path)| Some((*name, path.as_deref()?)))
        // `-` names no file, so it is neither an input nor in the way of another output.
        .filter(|(_, path)| !is_stdout_path(path));
    let inputs: Vec<&Path> = analyze.files.iter().map(PathBuf::as_path).collect();
    output::files(&given.collect::<Vec<_>>(), &inputs)
}

/// Parses the number of replicas from the command line.
pub(super) fn replicas(text: &str) -> Result<usize, String> {
    let replicas = text.parse().ok();
    replicas
        .filter(|replicas| (1..=REPLICAS_MAX).contains(replicas))
        .ok_or_else(|| format!("expected 1 to {REPLICAS_MAX}"))
}

/// `-`, which stands for standard output.
pub(crate) fn is_stdout_path(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Analyze {
    fn reading<'r>(&self, rendering: &'r Renderings) -> Result<LogReaderSettings<'r>> {
        let format = self.format.as_deref();
        let format = format.map(|name| parsed(name, "--format")).transpose()?;
        ensure!(
            self.block_tokens != Some(0),
            usage("--block-tokens 0: a block holds at least one token")
        );
        let arrivals = match self.arrivals.map(Duration::try_from_secs_f64) {
            None => Arrivals::FileOrder,
            // The seed is fixed, so two runs on one log give the same report.
            Some(Ok(mean_gap)) if !mean_gap.is_zero() => Arrivals::Poisson { mean_gap, seed: 0 },
            Some(_) => {
                bail!(usage("--arrivals: expected seconds above 0"));
            }
        };
        Ok(LogReaderSettings {
            format,
            skip_bad: self.skip_bad,
            block_tokens: self.block_tokens,
            arrivals,
            rendering,
            held_bytes: Bounds::default().held_bytes,
        })
    }
}

impl AnalyzeOptions {
    /// Fills in the defaults of `demo`. Its texts are generated, so they may be shown.
    pub(crate) fn settle(&mut self, page: &Path, capacity: &str) {
        self.html.get_or_insert_with(|| page.to_owned());
        self.capacity.get_or_insert_with(|| capacity.to_owned());
        self.show_text = true;
    }

    /// Options of a fleet, everything else as usual.
    pub(super) fn of_fleet(
        replicas: Option<usize>,
        capacity: Option<String>,
        tokenizer: Option<PathBuf>,
    ) -> Self {
        Self { replicas, capacity, tokenizer, ..Self::default() }
    }

    pub(super) fn analyze(
        &self,
        traffic: &LoggedTraffic,
        rendering: &Renderings,
        progress: &TaskProgress,
    ) -> Result<Analysis> {
        let cost = self.prompt_cost()?;
        let kv = self.kv_bytes()?;
        let capacity = match &self.capacity {
            Some(text) => ReplicaCapacity::asked(text, traffic, kv.as_ref())?,
            None => ReplicaCapacity::of_engine(traffic, &cost),
        };
        let setting = AnalysisParameters {
            fleet: UniformFleet {
                replicas: self.replicas.unwrap_or(REPLICAS),
                capacity_blocks: capacity.blocks,
            },
            capacity_from: capacity.from,
            cost: &cost,
            kv: kv.as_ref(),
            rendering: rendering.used(),
            show_text: self.show_text,
            bounds: Bounds::default(),
        };
        Ok(analysis::of(traffic, &setting, progress))
    }

    fn prompt_cost(&self) -> Result<PromptCostModel> {
        let engine = match self.cost_model.as_deref() {
            Some(path) => EngineSource::CostModel {
                model: cost_model::read(path)?.engine,
                name: path.display().to_string(),
            },
            None => EngineSource::DataSheet,
        };
        let money = match (self.gpu_hour, self.price_table.as_deref()) {
            // Clap refuses both options together, so the order of these arms decides nothing.
            (Some(hour), _) => Money::per_hour(hour)?,
            (None, Some(name)) => {
                Money::Table { table: prices::read(name)?, meaning: prices::explained(Some(name)) }
            }
            (None, None) => Money::Unknown,
        };
        Ok(PromptCostModel::new(engine, money))
    }

    fn kv_bytes(&self) -> Result<Option<KvBytes>> {
        // The number wins: a model's file is not read if the bytes are given.
        if let Some(per_token) = self.kv_bytes {
            let shape = "--kv-bytes".to_owned();
            return Ok(Some(KvBytes { per_token, shape }));
        }
        kv_bytes(self.model.as_deref(), self.kv_dtype.as_deref())
    }

    fn tell(&self, analysis: &Analysis) -> Result<()> {
        // The page is built on demand, because most calls write text only.
        let page = || report::page(analysis, &ReportProvenance::now("headstart"));
        if let Some(file) = &self.html {
            if is_stdout_path(file) {
                return output::line(&page());
            }
            output::save(file, page())?;
        }
        output::line(&if self.json {
            report::json(analysis).to_string()
        } else {
            let sections = if self.full { report::Sections::All } else { report::Sections::Main };
            output::fitted(&report::text(analysis, sections))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// Names of files and requests are strangers': no order of theirs reaches a terminal.
    #[test]
    fn names_are_shown_without_what_a_terminal_would_obey() {
        let rules = (0..80).map(|rule| format!("Rule {rule}: the keeper of {rule} answers."));
        let rules = rules.collect::<Vec<_>>().join(" ");
        let mut log = String::new();
        for number in 1..=3 {
            let _ = writeln!(
                log,
                "{{\"id\": \"a\u{202e}{number}\", \"prompt\": \
                 \"It is 2026-03-02 09:0{number}:17 now. {rules}\"}}"
            );
        }
        let source = LogSource::Made("lo\u{202e}g", log.into_bytes());
        let options = AnalyzeOptions::default();
        let progress = TaskProgress::bytes("reading");
        let rendering = Renderings::of(None).expect("the toy");
        let traffic = LoggedTraffic::read(&[source], &reading(&rendering, false), &progress);
        let traffic = traffic.expect("a log");
        let analysis = options.analyze(&traffic, &rendering, &progress);
        let analysis = analysis.expect("valid options");
        let text = report::text(&analysis, report::Sections::All);
        assert!(text.starts_with("lo\\u{202e}g: 3 requests"), "{text}");
        assert!(text.contains("example: request a\\u{202e}"), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
    }
}
