//! `headstart fix`: rewrites a log by the remedies of its findings, and says what each is worth.

mod diff;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use headstart_analysis::logs;
use headstart_analysis::remedy::{LogRewriter, Remedy};
use headstart_analysis::repair::{self, Repair, RepairStep, ReplayedTokens};
use headstart_analysis::results::Analysis;
use headstart_analysis::traffic::{LogReaderSettings, LogSource, LoggedTraffic, Renderings};
use headstart_core::figures::{counted, thousands};
use headstart_core::shown::one_line;
use headstart_terminal::{self as output, Progress, TaskProgress, colour};
use headstart_trace::format::request_log::LoggedRequest;
use serde_json::{Value, json};

use super::analyze::{AnalyzeOptions, replicas};
use crate::exit::usage;

/// Rewrite a log so that its prompts share prefixes, and measure the gain.
#[derive(Args, Debug)]
#[command(after_help = include_str!("fix.help.txt"))]
pub(crate) struct Fix {
    /// Request log, plain, gzip or zstd
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the rewritten requests as a log
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    write: Option<PathBuf>,
    /// Show the first rewritten request as a diff
    #[arg(long, help_heading = "Output")]
    diff: bool,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Skip bad lines, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    /// Replicas that share the traffic [default: 4]
    #[arg(long, value_name = "N", value_parser = replicas)]
    replicas: Option<usize>,
    /// KV capacity of one replica, as for `analyze` [default: by cost model]
    #[arg(long, value_name = "N")]
    capacity: Option<String>,
    /// Tokens per block [default: 16]
    #[arg(long, value_name = "N")]
    block_tokens: Option<u32>,
    /// Folder of the tokenizer and chat template [default: toy's]
    ///
    /// Token counts of the built-in toy are approximate.
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
}

/// Analyzes, tries the remedies and tells.
pub(crate) fn run(fix: &Fix) -> Result<()> {
    if fix.file.as_os_str() == "-" {
        return Err(usage("the log is read twice; name a file, not standard input"));
    }
    if fix.block_tokens == Some(0) {
        return Err(usage("--block-tokens must be at least 1"));
    }
    if let Some(path) = &fix.write {
        output::files(&[("--write", path)], &[&fix.file])?;
    }
    let (capacity, tokenizer) = (fix.capacity.clone(), fix.tokenizer.clone());
    let options = AnalyzeOptions::of_fleet(fix.replicas, capacity, tokenizer);
    let progress = TaskProgress::bytes("reading");
    let rendering = Renderings::of(fix.tokenizer.as_deref())?;
    let reading = LogReaderSettings {
        block_tokens: fix.block_tokens,
        ..super::analyze::reading(&rendering, fix.skip_bad)
    };
    let sources = [LogSource::File(fix.file.clone())];
    let traffic = LoggedTraffic::read(&sources, &reading, &progress)?;
    let analysis = options.analyze(&traffic, &rendering, &progress)?;
    let requests = requests(&fix.file, fix.skip_bad)?;
    let repair = Repair::of(&analysis, &traffic, &requests, &reading, &progress)?;
    progress.end();
    if let Some(path) = &fix.write {
        output::save(path, repair::rewritten(repair.remedies(), &requests))?;
        let count = counted(requests.len() as u64, "request");
        output::note(&format!("wrote {count} to {}", one_line(&path.display().to_string())));
    }
    output::line(&if fix.json {
        shown_json(&analysis, &repair).to_string()
    } else {
        let diff = fix.diff.then(|| first_diff(&repair, &requests)).flatten();
        output::fitted(&shown_text(&analysis, &repair)) + &diff.unwrap_or_default()
    })
}

/// All requests of a log, in order of time.
fn requests(path: &Path, skip_bad: bool) -> Result<Vec<LoggedRequest>> {
    let progress = TaskProgress::bytes("reading requests");
    let mut requests = Vec::new();
    logs::each(path, skip_bad, &progress, |request| {
        requests.push(request.clone());
        ControlFlow::Continue(())
    })?;
    progress.end();
    // A stable sort: requests without a time keep their order.
    requests.sort_by_key(|request| request.arrival);
    Ok(requests)
}

fn shown_text(analysis: &Analysis, repair: &Repair) -> String {
    let rate = |tokens: ReplayedTokens| format!("{:.1} %", 100.0 * tokens.hit_rate());
    let mut text = String::new();
    let mut before = repair.before;
    for (number, step) in (1..).zip(&repair.steps) {
        let finding = &analysis.findings[step.finding];
        text += &colour::heading(&format!("{number}. {}", finding.title));
        if let Some(place) = &finding.place {
            text += &format!(" ({place})");
        }
        text += &format!("\n   {} {}", colour::fix("fix:"), step.remedy.sentence());
        if let Some(option) = step.remedy.live() {
            text += &format!("; for live requests `headstart serve {option}`");
        }
        if step.is_applied {
            let (tokens, seconds, money) = saved(analysis, step, before);
            text += &format!(
                "\n   hit rate {} → {}: {} fewer tokens computed, {seconds:.1} s",
                rate(before),
                rate(step.after),
                thousands(tokens),
            );
            if let Some(money) = money {
                let currency = analysis.currency.as_deref().unwrap_or_default();
                text += &format!(", {money:.2} {currency}");
            }
            before = step.after;
        } else {
            text += "\n   This rewriting saves nothing in the replay and is not applied.";
            text += &format!("\n   By hand: {}", finding.fix);
        }
        text += "\n\n";
    }
    for &finding in &repair.without_remedy {
        let finding = &analysis.findings[finding];
        text += &format!("By hand: {}: {}\n\n", finding.title, finding.fix);
    }
    if repair.steps.is_empty() && repair.without_remedy.is_empty() {
        text += "No finding of this log has a remedy. `headstart analyze` has its headlines.\n\n";
    }
    text + &format!(
        "Hit rate {} → {} in a replay on {}, {} of {} prompt tokens computed.",
        rate(repair.before),
        rate(repair.after()),
        counted(analysis.replicas as u64, "replica"),
        thousands(repair.after().computed),
        thousands(repair.after().prompt),
    )
}

/// Fewer computed tokens by one step, and what they cost by the finding's own rates.
fn saved(
    analysis: &Analysis,
    step: &RepairStep,
    before: ReplayedTokens,
) -> (u64, f64, Option<f64>) {
    let tokens = before.computed.saturating_sub(step.after.computed);
    let amount = &analysis.findings[step.finding].amount;
    let share = tokens as f64 / amount.tokens.max(1) as f64;
    (tokens, amount.seconds * share, amount.money.map(|money| money * share))
}

fn shown_json(analysis: &Analysis, repair: &Repair) -> Value {
    let mut before = repair.before;
    let steps = repair.steps.iter().map(|step| {
        let finding = &analysis.findings[step.finding];
        let (tokens, seconds, money) = saved(analysis, step, before);
        let worth = json!({
            "cause": finding.cause,
            "title": finding.title,
            "place": finding.place,
            "remedy": step.remedy.name(),
            "is_applied": step.is_applied,
            "hit_rate_before": before.hit_rate(),
            "hit_rate_after": step.after.hit_rate(),
            "saved_tokens": tokens,
            "saved_seconds": seconds,
            "saved_money": money,
        });
        if step.is_applied {
            before = step.after;
        }
        worth
    });
    let steps: Vec<_> = steps.collect();
    let by_hand = repair.without_remedy.iter().map(|&finding| {
        let finding = &analysis.findings[finding];
        json!({"cause": finding.cause, "title": finding.title, "fix": finding.fix})
    });
    json!({
        "replicas": analysis.replicas,
        "capacity_blocks": analysis.capacity_blocks,
        "hit_rate_before": repair.before.hit_rate(),
        "hit_rate_after": repair.after().hit_rate(),
        "computed_before": repair.before.computed,
        "computed_after": repair.after().computed,
        "steps": steps,
        "by_hand": by_hand.collect::<Vec<_>>(),
    })
}

/// The first request that the remedies change, before and after.
fn first_diff(repair: &Repair, requests: &[LoggedRequest]) -> Option<String> {
    let remedies: Vec<Remedy> = repair.remedies();
    let mut as_sent = LogRewriter::new(Vec::new(), requests);
    let mut fixed = LogRewriter::new(remedies, requests);
    let pairs = requests.iter().map(|request| (as_sent.line(request), fixed.line(request)));
    let (before, after) = { pairs }.find(|(before, after)| before != after)?;
    let name = before["request_id"].as_str().unwrap_or_default();
    Some(format!("\n\nRequest {name}:\n{}", diff::of(&readable(&before), &readable(&after))))
}

/// A request as lines: its tools, and its messages under their roles.
fn readable(line: &Value) -> String {
    let mut text = String::new();
    for tool in line["tools"].as_array().into_iter().flatten() {
        text += &format!("[tool] {tool}\n");
    }
    for message in line["messages"].as_array().into_iter().flatten() {
        text += &format!("[{}]\n", message["role"].as_str().unwrap_or_default());
        text += &match &message["content"] {
            Value::String(content) => content.clone(),
            other => other.to_string(),
        };
        text += "\n";
    }
    text
}
