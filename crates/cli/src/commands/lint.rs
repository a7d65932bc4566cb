//! `headstart lint`: what in an application's prompts breaks the prefix that they could share,
//! and whether that prefix has become shorter. Made for CI.

mod baseline;
mod inputs;
mod stable;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use headstart_insight::text::Finding;
use serde_json::{Value, json};

use crate::commands::why::remarks;
use crate::commands::why::shown::kind;
use crate::commands::why::walk::{Example, Walk, count};
use crate::input::counted;
use crate::logged::Rendering;
use crate::output;
use crate::report::thousands;
use baseline::Baseline;
use stable::Stable;

/// What breaks the prefix that prompts could share.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart lint requests.jsonl
  headstart lint requests.jsonl --show-text
  headstart lint prompts/ --write-baseline prefix.json      # once, committed
  headstart lint prompts/ --baseline prefix.json            # in CI

FILE is a request log (one JSON object a line, as `headstart why` reads them), a text file with one
prompt, or a folder of such text files (.txt, .md, .prompt), which are taken in the order of their
names. Prompts are compared with those before them that ask the same model.

The stable prefix is what at least nine in ten prompts begin with. A baseline holds its length and
a keyed hash of it, no text.

Exit codes: 0 all is well, 1 there are findings or the stable prefix has become shorter, 2 wrong
arguments.")]
pub(crate) struct Lint {
    /// Logs, texts and folders of texts
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Fail when the stable prefix is shorter than this file says
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the stable prefix's length and keyed hash
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Show the texts that change
    #[arg(long)]
    show_text: bool,
    /// Folder of the tokenizer and chat template [default: the built-in toy's, so tokens are
    /// approximate]
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// Leave bad lines out, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
struct Verdict {
    prompts: u64,
    findings: Vec<Finding<Example>>,
    stable_tokens: u64,
    baseline: Option<Baseline>,
    is_same_prefix: Option<bool>,
}

/// Reads all prompts and tells.
pub(crate) fn run(lint: &Lint) -> Result<()> {
    if let Some(path) = &lint.write_baseline {
        let inputs: Vec<_> = lint.files.iter().map(PathBuf::as_path).collect();
        output::files(&[("--write-baseline", path)], &inputs)?;
    }
    let baseline = lint.baseline.as_deref().map(Baseline::read).transpose()?;
    let rendering = Rendering::of(lint.tokenizer.as_deref())?;
    let mut walk = Walk::new(&rendering);
    let mut stable = Stable::default();
    let mut prompts = 0;
    inputs::each(&lint.files, lint.skip_bad, |request| {
        stable.add(&walk.add(request).prompt.text);
        prompts += 1;
    })?;
    if prompts == 0 {
        bail!("there are no prompts to look at; a request log has one JSON object a line");
    }
    let prefix = stable.prefix();
    let verdict = Verdict {
        prompts,
        findings: walk.findings(),
        stable_tokens: count(&rendering, prefix),
        is_same_prefix: baseline.as_ref().map(|baseline| baseline.begins(prefix)),
        baseline,
    };
    if let Some(path) = &lint.write_baseline {
        Baseline::of(prefix, verdict.stable_tokens).write(path)?;
    }
    remarks(&rendering);
    output::line(&match lint.json {
        true => verdict.json(&rendering, lint.show_text).to_string(),
        false => verdict.text(lint.show_text),
    })?;
    match verdict.complaint() {
        Some(complaint) => bail!(complaint),
        None => Ok(()),
    }
}

impl Verdict {
    fn shrank(&self) -> bool {
        let before = self.baseline.as_ref();
        before.is_some_and(|baseline| self.stable_tokens < baseline.stable_prefix_tokens)
    }

    /// Why the check fails; nothing where it does not.
    fn complaint(&self) -> Option<String> {
        let prefix = match self.shrank() {
            true => "the stable prefix has become shorter",
            false if self.findings.is_empty() => return None,
            false => "the prompts could share more than they do",
        };
        Some(match self.findings.len() as u64 {
            0 => prefix.to_owned(),
            causes => format!("{prefix}: {}", counted(causes, "finding")),
        })
    }

    fn json(&self, rendering: &Rendering, show_text: bool) -> Value {
        let finding = |finding: &Finding<Example>| {
            json!({
                "cause": finding.cause.name(),
                "title": finding.cause.title(),
                "requests": finding.requests,
                "tokens": finding.tokens,
                "seconds": null,
                "money": null,
                "fix": finding.cause.fix(),
                "example": finding.example.json(rendering, show_text),
            })
        };
        let baseline = self.baseline.as_ref();
        json!({
            "requests": self.prompts,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "stable_prefix_tokens": self.stable_tokens,
            "baseline_stable_prefix_tokens": baseline.map(|it| it.stable_prefix_tokens),
            "begins_as_baseline": self.is_same_prefix,
            "ok": self.complaint().is_none(),
        })
    }

    fn text(&self, show_text: bool) -> String {
        let prompts = counted(self.prompts, "prompt");
        let mut lines = vec![match self.findings.len() {
            0 => format!("{prompts}: nothing found that breaks their prefix."),
            1 => format!("{prompts}: 1 cause breaks their prefix."),
            causes => format!("{prompts}: {causes} causes break their prefix."),
        }];
        for (number, finding) in self.findings.iter().enumerate() {
            lines.push(String::new());
            lines.extend(told(number + 1, finding, show_text));
        }
        lines.push(String::new());
        lines.push(self.prefix_told());
        if !show_text && !self.findings.is_empty() {
            lines.push("(--show-text shows the texts)".to_owned());
        }
        lines.join("\n")
    }

    fn prefix_told(&self) -> String {
        let tokens = format!("stable prefix: {} tokens", thousands(self.stable_tokens));
        let Some(baseline) = &self.baseline else {
            return tokens;
        };
        let before = thousands(baseline.stable_prefix_tokens);
        let text = match self.is_same_prefix {
            Some(false) => "; its text is another one",
            _ => "",
        };
        match self.shrank() {
            true => format!("{tokens}, SHORTER than the baseline's {before}{text}"),
            false => format!("{tokens} (baseline: {before}{text})"),
        }
    }
}

/// A finding for people.
fn told(number: usize, finding: &Finding<Example>, show_text: bool) -> Vec<String> {
    let (request, neighbour) = finding.example.names();
    let mut lines = vec![format!(
        "{number}. {}: {}. {} in {}.",
        finding.cause,
        finding.cause.title(),
        counted_tokens(finding.tokens),
        counted(finding.requests, "request")
    )];
    let shown = finding.example.shown();
    lines.extend(shown.side_by_side(neighbour, request, kind(Some(finding.cause)), show_text));
    lines.push(format!("   fix: {}", finding.cause.fix()));
    lines
}

fn counted_tokens(tokens: u64) -> String {
    format!("{} known tokens were computed again", thousands(tokens))
}
