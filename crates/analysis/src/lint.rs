//! A check of an application's prompts: what breaks the prefix that they could share, and whether
//! that prefix is shorter than a baseline's.

mod baseline;
mod heaviest;
mod inputs;
mod stable;
mod unnamed;

use std::path::{Path, PathBuf};

use headstart_core::figures::{counted, thousands};
use headstart_core::{Progress, UsageError};
use headstart_insight::Cause;
use headstart_insight::text::Finding;

use crate::error::AnalysisError;
use crate::prompt::PromptBody;
use crate::rendering::Rendering;
use crate::walk::{LogWalk, WorstCase};
pub use baseline::{Baseline, Begins};
use stable::Stable;
pub use unnamed::ChangeSite;
use unnamed::UnnamedChanges;

/// Prompts to check.
#[derive(Clone, Copy, Debug)]
pub struct LintInputs<'a> {
    /// Logs, texts and folders of texts; `-` is a log on standard input.
    pub files: &'a [PathBuf],
    /// Skips bad lines, instead of stopping at the first.
    pub skip_bad: bool,
    /// File with the baseline of the stable prefix.
    pub baseline: Option<&'a Path>,
}

/// Results of the check.
#[derive(Debug)]
pub struct LintReport {
    /// Number of prompts.
    pub prompts: u64,
    /// Named causes, most tokens lost first.
    pub findings: Vec<Finding<WorstCase>>,
    /// Changes without a named cause, most tokens lost first.
    pub unnamed: Vec<ChangeSite>,
    /// Length of the stable prefix, tokens.
    pub stable_tokens: u64,
    /// The baseline, if one was given.
    pub baseline: Option<Baseline>,
    /// The stable prefix beside the baseline's.
    pub begins: Option<Begins>,
    prefix: PromptBody,
    tokenizer: String,
}

/// Reads all prompts and checks them. `begin` shows the progress of one input: of that number of
/// files, or of bytes.
///
/// # Errors
/// When an input or the baseline cannot be read, or there are no prompts.
pub fn check(
    asked: &LintInputs<'_>,
    rendering: &Rendering,
    begin: &dyn Fn(Option<usize>) -> Box<dyn Progress>,
) -> Result<LintReport, AnalysisError> {
    // The baseline is checked before the prompts are read: a wrong one fails at once.
    let tokenizer = rendering.tokenizer_id();
    let baseline = asked.baseline;
    let baseline = baseline.map(|path| Baseline::read(path, &tokenizer));
    let baseline = baseline.transpose()?;
    let mut walk = LogWalk::new(rendering);
    let (mut stable, mut unnamed) = (Stable::default(), UnnamedChanges::default());
    let mut prompts = 0;
    // The prefix and the findings come from one pass: standard input cannot be read twice.
    let read = inputs::each(asked.files, asked.skip_bad, begin, |request| {
        let told = walk.add(request);
        stable.add(&told.prompt.body);
        unnamed.add(&told);
        prompts += 1;
    });
    // A check that could not look is not one that found something.
    read.map_err(|error| UsageError(error.with_causes()))?;
    // No prompts would mean no findings, and a wrong path would pass as a clean check.
    if prompts == 0 {
        let message = "there are no prompts to look at; a request log has one JSON object a line";
        return Err(UsageError(message.to_owned()).into());
    }
    let prefix = stable.prefix();
    Ok(LintReport {
        prompts,
        findings: walk.findings(),
        unnamed: unnamed.told(),
        // The prefix is cut in bytes, so its tokens are counted again.
        stable_tokens: prefix.count(rendering),
        begins: baseline.as_ref().map(|baseline| baseline.begins(&prefix)),
        baseline,
        prefix,
        tokenizer,
    })
}

impl LintReport {
    /// Returns the baseline of the stable prefix that was found.
    #[must_use]
    pub fn new_baseline(&self) -> Baseline {
        Baseline::of(&self.prefix, self.stable_tokens, self.tokenizer.clone())
    }

    /// Whether the stable prefix is shorter than the baseline's.
    #[must_use]
    pub fn shrank(&self) -> bool {
        let before = self.baseline.as_ref();
        before.is_some_and(|baseline| self.stable_tokens < baseline.stable_prefix_tokens)
    }

    /// Returns the number of findings.
    #[must_use]
    pub fn num_causes(&self) -> u64 {
        (self.findings.len() + self.unnamed.len()) as u64
    }

    /// Says why the check fails; `None` where it does not.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let prefix = match self.shrank() {
            true => "the stable prefix has become shorter",
            // A finding fails the check even if the prefix kept its length.
            false if self.num_causes() == 0 => return None,
            false => "the prompts could share more than they do",
        };
        Some(match self.num_causes() {
            0 => prefix.to_owned(),
            causes => format!("{prefix}: {}", counted(causes, "finding")),
        })
    }

    /// Returns all findings, named causes first.
    pub fn all(&self) -> impl Iterator<Item = LintFinding<'_>> {
        let named = self.findings.iter().map(|finding| LintFinding {
            cause: Some(finding.cause),
            site: None,
            requests: finding.requests,
            tokens: finding.tokens,
            example: &finding.example,
        });
        let unnamed = self.unnamed.iter().map(|place| LintFinding {
            cause: None,
            site: Some(place),
            requests: place.requests,
            tokens: place.tokens,
            example: &place.example,
        });
        named.chain(unnamed)
    }

    /// Explains a stable prefix of which the text differs from the baseline's.
    #[must_use]
    pub fn change_told(&self) -> Option<String> {
        let (baseline, begins) = (self.baseline.as_ref()?, self.begins?);
        let Begins::Otherwise { shared } = begins else {
            return None;
        };
        // The hashes show a share of the prefix; its tokens are estimated from the baseline's
        // count.
        let alike = (baseline.stable_prefix_tokens as f64 * shared) as u64;
        let from = match alike {
            0 => "its text is not the baseline's".to_owned(),
            _ => format!(
                "its text is the baseline's for the first {} tokens or a few more, and then \
                 another one",
                thousands(alike)
            ),
        };
        // A shorter prefix is a failure with its own words.
        (!self.shrank()).then(|| {
            format!(
                "{from}: every cache recomputes it once. If the change is intended, \
                 --write-baseline without --baseline records it"
            )
        })
    }
}

/// A finding, with a named cause or without.
#[derive(Clone, Copy, Debug)]
pub struct LintFinding<'a> {
    /// The cause, if it has a name.
    pub cause: Option<Cause>,
    site: Option<&'a ChangeSite>,
    /// Requests that lost tokens by it.
    pub requests: u64,
    /// Their lost tokens.
    pub tokens: u64,
    /// The request that lost most.
    pub example: &'a WorstCase,
}

impl LintFinding<'_> {
    /// The cause in words.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.cause, self.site) {
            (Some(cause), _) => cause.title().to_owned(),
            (None, site) => site.map_or_else(String::new, ChangeSite::title),
        }
    }

    /// The suggested fix.
    #[must_use]
    pub fn fix(&self) -> String {
        match (self.cause, self.site) {
            (Some(cause), _) => cause.fix().to_owned(),
            (None, site) => site.map_or_else(String::new, ChangeSite::fix),
        }
    }
}
