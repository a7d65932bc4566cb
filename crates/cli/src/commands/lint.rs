//! `headstart lint`: what in an application's prompts breaks the prefix that they could share,
//! and whether that prefix has become shorter. Made for CI.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use headstart_analysis::lint::{self, Begins, LintFinding, LintInputs, LintReport};
use headstart_analysis::rendering::Rendering;
use headstart_core::Progress;
use headstart_core::figures::{counted, thousands};
use headstart_insight::Cause;
use headstart_terminal::{self as output, TaskProgress, colour};
use serde_json::{Value, json};

use crate::commands::why::{remarks, shown};
use crate::exit::CheckFailure;

/// Find what breaks prefix caching in your prompts.
#[derive(Args, Debug)]
#[command(after_help = include_str!("lint.help.txt"))]
pub(crate) struct Lint {
    /// Logs, texts and folders of texts; `-` reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Fail if the stable prefix is shorter than in this file
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the length and keyed hashes of the stable prefix
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Show the texts that change
    #[arg(long)]
    show_text: bool,
    /// Folder of the tokenizer and chat template [default: toy's]
    ///
    /// Token counts of the built-in toy are approximate.
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// Skip bad lines, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The difference between these counts and those of `analyze`.
const COUNTS: &str = "Counts compare texts. `headstart analyze` also replays a cache, so its \
                      counts differ a little.";

/// Reads all prompts and tells.
pub(crate) fn run(command: &Lint) -> Result<()> {
    // The baseline must not overwrite a log that is still to be read.
    if let Some(path) = &command.write_baseline {
        let inputs: Vec<_> = command.files.iter().map(PathBuf::as_path).collect();
        output::files(&[("--write-baseline", path)], &inputs)?;
    }
    let rendering = Rendering::of(command.tokenizer.as_deref())?;
    let inputs = LintInputs {
        files: &command.files,
        skip_bad: command.skip_bad,
        baseline: command.baseline.as_deref(),
    };
    let report = lint::check(&inputs, &rendering, &progress)?;
    let complaint = report.complaint();
    // Against the old one all must be well before there is a new one.
    let is_kept = report.baseline.is_some() && complaint.is_some();
    if let Some(path) = command.write_baseline.as_deref().filter(|_| !is_kept) {
        output::save(path, report.new_baseline().json())?;
    }
    // Remarks go to standard error, so that the JSON stays one object.
    remarks(&rendering);
    output::line(&if command.json {
        report_json(&report, command.show_text).to_string()
    } else {
        output::fitted(&report_text(&report, command.show_text))
    })?;
    match (complaint, &command.write_baseline) {
        (None, _) => Ok(()),
        // The user asked for a file that was not written, so the error says why.
        (Some(complaint), Some(path)) if is_kept => bail!(CheckFailure(format!(
            "{complaint}; {} was not written (--write-baseline without --baseline accepts what \
             is there)",
            path.display()
        ))),
        (Some(complaint), _) => bail!(CheckFailure(complaint)),
    }
}

/// Progress of reading one input: of `files` text files, or of bytes.
fn progress(files: Option<usize>) -> Box<dyn Progress> {
    const WHAT: &str = "reading prompts";
    Box::new(match files {
        Some(files) => TaskProgress::steps(WHAT, files),
        None => TaskProgress::bytes(WHAT),
    })
}

fn report_json(report: &LintReport, show_text: bool) -> Value {
    let findings = report.all().map(|finding| {
        json!({
            "cause": finding.cause.map(Cause::name),
            "title": finding.title(),
            "requests": finding.requests,
            "tokens": finding.tokens,
            "seconds": null,
            "money": null,
            "fix": finding.fix(),
            "fix_saves_tokens": null,
            "example": shown::worst_case(finding.example, show_text),
        })
    });
    let baseline = report.baseline.as_ref();
    json!({
        "requests": report.prompts,
        "findings": findings.collect::<Vec<_>>(),
        "stable_prefix_tokens": report.stable_tokens,
        "baseline_stable_prefix_tokens": baseline.map(|baseline| baseline.stable_prefix_tokens),
        "begins_as_baseline": report.begins.map(|begins| begins == Begins::AsBefore),
        "note": report.change_told(),
        "ok": report.complaint().is_none(),
    })
}

fn report_text(report: &LintReport, show_text: bool) -> String {
    let prompts = counted(report.prompts, "prompt");
    let headline = match report.num_causes() {
        0 => format!("{prompts}: nothing breaks the shared prefix."),
        1 => format!("{prompts}: 1 cause breaks the shared prefix."),
        causes => format!("{prompts}: {causes} causes break the shared prefix."),
    };
    let mut lines = vec![colour::heading(&headline)];
    for (number, it) in report.all().enumerate() {
        lines.push(String::new());
        lines.extend(finding_told(&it, number + 1, show_text));
    }
    lines.push(String::new());
    if report.num_causes() > 0 {
        lines.push(COUNTS.to_owned());
    }
    lines.push(prefix_told(report));
    if !show_text && report.num_causes() > 0 {
        lines.push("(--show-text shows the text)".to_owned());
    }
    lines.join("\n")
}

fn prefix_told(report: &LintReport) -> String {
    let tokens = format!("stable prefix: {}", counted(report.stable_tokens, "token"));
    let Some(baseline) = &report.baseline else {
        return tokens;
    };
    let before = thousands(baseline.stable_prefix_tokens);
    match (report.shrank(), report.change_told()) {
        (true, _) => colour::loss(&format!("{tokens}, SHORTER than the baseline's {before}")),
        (false, None) => format!("{tokens} (baseline: {before})"),
        (false, Some(change)) => format!("{tokens} (baseline: {before})\nnote: {change}"),
    }
}

/// A finding for people.
fn finding_told(finding: &LintFinding<'_>, number: usize, show_text: bool) -> Vec<String> {
    let example = finding.example;
    let name = finding.cause.map_or("unnamed", Cause::name);
    let lost = format!("{} behind it", counted(finding.tokens, "token"));
    let mut lines = vec![format!(
        "{number}. {name}: {}. {} in {} {} in an earlier prompt.",
        finding.title(),
        colour::loss(&lost),
        counted(finding.requests, "request"),
        if finding.tokens == 1 { "was" } else { "were" },
    )];
    let (old, new) = (&example.neighbour, &example.request);
    lines.extend(shown::side_by_side(&example.shown, old, new, show_text));
    let fix = colour::fix(&format!("fix: {}", finding.fix()));
    lines.push(format!("   {fix}"));
    lines
}
