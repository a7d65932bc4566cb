//! `headstart lint`: what in an application's prompts breaks the prefix that they could share,
//! and whether that prefix has become shorter. Made for CI.

mod baseline;
mod heaviest;
mod inputs;
mod stable;
mod unnamed;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use headstart_insight::Cause;
use headstart_insight::text::Finding;
use serde_json::{Value, json};

use crate::commands::why::remarks;
use crate::commands::why::walk::{LogWalk, WorstCase};
use crate::config::UsageError;
use crate::exit::CheckFailure;
use crate::input::counted;
use crate::logged::Rendering;
use crate::output::{self, colour};
use crate::report::thousands;
use baseline::{Baseline, Begins};
use stable::Stable;
use unnamed::{ChangeSite, UnnamedChanges};

/// Find what breaks prefix caching in your prompts.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart lint requests.jsonl
  headstart lint requests.jsonl --show-text
  zcat requests.jsonl.gz | grep support-bot | headstart lint -
  headstart lint prompts/ --write-baseline prefix.json     once; commit the file
  headstart lint prompts/ --baseline prefix.json           in CI

FILE is one of these; `headstart why --help` lists the fields of a log:
  - a request log (OpenAI, Anthropic, LiteLLM, Helicone, Langfuse, LangSmith or
    plain prompts), with one JSON object per line or one JSON array
  - conversations (ShareGPT)
  - a text file with one prompt
  - a folder of such text files (.txt, .md, .prompt), read in order of name
  - `-`, a log on standard input

Each prompt is compared with earlier prompts of the same model. The stable
prefix is the beginning that at least 90 % of the prompts share. A baseline
holds its length and keyed hashes, no text. The check fails if the prefix is
shorter than the baseline. A changed prefix of the same length passes with a
note: every cache recomputes it once. With both flags, the new baseline is
written only if the check passes.

Exit codes: 0 passed, 1 findings or a shorter stable prefix, 2 could not run.")]
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
const COUNTS: &str = "Counts compare texts. `headstart analyze` also replays a cache, so it may \
                      count fewer tokens.";

/// Results of the check.
struct LintReport {
    prompts: u64,
    findings: Vec<Finding<WorstCase>>,
    unnamed: Vec<ChangeSite>,
    stable_tokens: u64,
    baseline: Option<Baseline>,
    /// Against the baseline.
    begins: Option<Begins>,
}

/// Reads all prompts and tells.
pub(crate) fn run(lint: &Lint) -> Result<()> {
    if let Some(path) = &lint.write_baseline {
        let inputs: Vec<_> = lint.files.iter().map(PathBuf::as_path).collect();
        output::files(&[("--write-baseline", path)], &inputs)?;
    }
    let rendering = Rendering::of(lint.tokenizer.as_deref())?;
    let tokenizer = rendering.tokenizer_id();
    let baseline = lint.baseline.as_deref();
    let baseline = baseline.map(|path| Baseline::read(path, &tokenizer));
    let baseline = baseline.transpose()?;
    let mut walk = LogWalk::new(&rendering);
    let (mut stable, mut unnamed) = (Stable::default(), UnnamedChanges::default());
    let mut prompts = 0;
    let read = inputs::each(&lint.files, lint.skip_bad, |request| {
        let told = walk.add(request);
        stable.add(&told.prompt.body);
        unnamed.add(&told);
        prompts += 1;
    });
    // A check that could not look is not one that found something.
    read.map_err(|error| UsageError(format!("{error:#}")))?;
    if prompts == 0 {
        let message = "there are no prompts to look at; a request log has one JSON object a line";
        return Err(UsageError(message.to_owned()).into());
    }
    let prefix = stable.prefix();
    let verdict = LintReport {
        prompts,
        findings: walk.findings(),
        unnamed: unnamed.told(),
        stable_tokens: prefix.count(&rendering),
        begins: baseline.as_ref().map(|baseline| baseline.begins(&prefix)),
        baseline,
    };
    let complaint = verdict.complaint();
    // Against the old one all must be well before there is a new one.
    let is_kept = verdict.baseline.is_some() && complaint.is_some();
    if let Some(path) = lint.write_baseline.as_deref().filter(|_| !is_kept) {
        Baseline::of(&prefix, verdict.stable_tokens, tokenizer).write(path)?;
    }
    remarks(&rendering);
    output::line(&match lint.json {
        true => verdict.json(lint.show_text).to_string(),
        false => output::fitted(&verdict.text(lint.show_text)),
    })?;
    match (complaint, &lint.write_baseline) {
        (None, _) => Ok(()),
        (Some(complaint), Some(path)) if is_kept => bail!(CheckFailure(format!(
            "{complaint}; {} was not written (--write-baseline without --baseline accepts what \
             is there)",
            path.display()
        ))),
        (Some(complaint), _) => bail!(CheckFailure(complaint)),
    }
}

impl LintReport {
    fn shrank(&self) -> bool {
        let before = self.baseline.as_ref();
        before.is_some_and(|baseline| self.stable_tokens < baseline.stable_prefix_tokens)
    }

    /// Returns the number of findings.
    fn causes(&self) -> u64 {
        (self.findings.len() + self.unnamed.len()) as u64
    }

    /// Why the check fails; nothing where it does not.
    fn complaint(&self) -> Option<String> {
        let prefix = match self.shrank() {
            true => "the stable prefix has become shorter",
            false if self.causes() == 0 => return None,
            false => "the prompts could share more than they do",
        };
        Some(match self.causes() {
            0 => prefix.to_owned(),
            causes => format!("{prefix}: {}", counted(causes, "finding")),
        })
    }

    fn json(&self, show_text: bool) -> Value {
        let findings = self.all().map(|it| {
            json!({
                "cause": it.cause.map(Cause::name),
                "title": it.title(),
                "requests": it.requests,
                "tokens": it.tokens,
                "seconds": null,
                "money": null,
                "fix": it.fix(),
                "fix_saves_tokens": null,
                "example": it.example.json(show_text),
            })
        });
        let baseline = self.baseline.as_ref();
        json!({
            "requests": self.prompts,
            "findings": findings.collect::<Vec<_>>(),
            "stable_prefix_tokens": self.stable_tokens,
            "baseline_stable_prefix_tokens": baseline.map(|it| it.stable_prefix_tokens),
            "begins_as_baseline": self.begins.map(|it| it == Begins::AsBefore),
            "note": self.change_told(),
            "ok": self.complaint().is_none(),
        })
    }

    fn text(&self, show_text: bool) -> String {
        let prompts = counted(self.prompts, "prompt");
        let headline = match self.causes() {
            0 => format!("{prompts}: nothing breaks the shared prefix."),
            1 => format!("{prompts}: 1 cause breaks the shared prefix."),
            causes => format!("{prompts}: {causes} causes break the shared prefix."),
        };
        let mut lines = vec![colour::heading(&headline)];
        for (number, it) in self.all().enumerate() {
            lines.push(String::new());
            lines.extend(it.told(number + 1, show_text));
        }
        lines.push(String::new());
        if self.causes() > 0 {
            lines.push(COUNTS.to_owned());
        }
        lines.push(self.prefix_told());
        if !show_text && self.causes() > 0 {
            lines.push("(--show-text shows the text)".to_owned());
        }
        lines.join("\n")
    }

    /// Returns all findings, named causes first.
    fn all(&self) -> impl Iterator<Item = LintFinding<'_>> {
        let named = self.findings.iter().map(|finding| LintFinding {
            cause: Some(finding.cause),
            requests: finding.requests,
            tokens: finding.tokens,
            example: &finding.example,
        });
        let unnamed = self.unnamed.iter().map(|place| LintFinding {
            cause: None,
            requests: place.requests,
            tokens: place.tokens,
            example: &place.example,
        });
        named.chain(unnamed)
    }

    fn prefix_told(&self) -> String {
        let tokens = format!("stable prefix: {}", counted(self.stable_tokens, "token"));
        let Some(baseline) = &self.baseline else {
            return tokens;
        };
        let before = thousands(baseline.stable_prefix_tokens);
        match (self.shrank(), self.change_told()) {
            (true, _) => colour::loss(&format!("{tokens}, SHORTER than the baseline's {before}")),
            (false, None) => format!("{tokens} (baseline: {before})"),
            (false, Some(change)) => format!("{tokens} (baseline: {before})\nnote: {change}"),
        }
    }

    /// Explains a stable prefix of which the text differs from the baseline's.
    fn change_told(&self) -> Option<String> {
        let (baseline, begins) = (self.baseline.as_ref()?, self.begins?);
        let Begins::Otherwise { shared } = begins else {
            return None;
        };
        let alike = (baseline.stable_prefix_tokens as f64 * shared) as u64;
        let from = match alike {
            0 => "its text is not the baseline's".to_owned(),
            _ => format!(
                "its text is the baseline's for the first {} tokens or a few more, and then \
                 another one",
                thousands(alike)
            ),
        };
        (!self.shrank()).then(|| {
            format!(
                "{from}: every cache recomputes it once. If the change is intended, \
                 --write-baseline without --baseline records it"
            )
        })
    }
}

/// A finding, with a name or without.
struct LintFinding<'a> {
    cause: Option<Cause>,
    requests: u64,
    tokens: u64,
    example: &'a WorstCase,
}

impl LintFinding<'_> {
    fn title(&self) -> &'static str {
        self.cause.map_or(unnamed::TITLE, Cause::title)
    }

    fn fix(&self) -> &'static str {
        self.cause.map_or(unnamed::FIX, Cause::fix)
    }

    /// For people.
    fn told(&self, number: usize, show_text: bool) -> Vec<String> {
        let example = self.example;
        let name = self.cause.map_or("unnamed", Cause::name);
        let lost = format!("{} behind it", counted(self.tokens, "token"));
        let mut lines = vec![format!(
            "{number}. {name}: {}. {} in {} {} in an earlier prompt.",
            self.title(),
            colour::loss(&lost),
            counted(self.requests, "request"),
            if self.tokens == 1 { "was" } else { "were" },
        )];
        let shown = &example.shown;
        lines.extend(shown.side_by_side(&example.neighbour, &example.request, show_text));
        let fix = colour::fix(&format!("fix: {}", self.fix()));
        lines.push(format!("   {fix}"));
        lines
    }
}
