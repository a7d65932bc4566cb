//! `headstart validate`: plays a log or a trace against a live engine, and compares the hits that
//! it reports with the predicted ones.

mod prediction;
mod prompts;
mod report;

use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use clap::Args;
use headstart_loadgen::{ApiClient, LoadgenError, ValidatedRequest, Validation};
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::Format;
use headstart_trace::materialize::TokenPrompt;
use tokio::runtime::Runtime;

use crate::commands::serve::runtime;
use crate::config::first_line;
use crate::engine::{EngineFacts, EngineKind, EnginePages};
use crate::exit::{CheckFailure, usage};
use crate::input::{TraceInput, remarks};
use crate::prompts::{PromptOptions, unseen_seed};
use crate::server::ServerOptions;
use prediction::{CacheModel, HitPrediction, SentPrompt};
use prompts::{PromptTokenSource, ValidatedPrompt};
use report::ValidationReport;

/// Tokens per block of an engine that does not say.
const BLOCK_SIZE: u32 = 16;

/// Failures without any answer before it that end a run.
const FAILURES_MAX: usize = 3;

/// Compare the hits that a live engine reports with predicted ones.
#[derive(Args, Debug)]
#[command(after_help = include_str!("validate.help.txt"))]
pub(crate) struct Validate {
    #[command(flatten)]
    input: TraceInput,
    #[command(flatten)]
    server: ServerOptions,
    /// Model to ask for [default: the engine's first]
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    served_model_name: Option<String>,
    /// KV blocks of the engine [default: as it says]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    cache_blocks: Option<usize>,
    /// Tokens per KV block [default: as the engine says, or 16]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    block_size: Option<u32>,
    /// Eviction policy of the engine [default: by engine]
    ///
    /// vLLM's own order for vLLM, lru for others, hazard for Headstart.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    policy: Option<String>,
    /// Requests to send [default: all]
    #[arg(long, value_name = "N", help_heading = "Load")]
    requests: Option<usize>,
    /// Greatest difference of the hit rates, percentage points
    #[arg(long, default_value_t = 0.5, value_name = "POINTS", allow_negative_numbers = true)]
    tolerance: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompts: PromptOptions,
}

/// A run in progress.
struct ValidationRun<'a> {
    runtime: &'a Runtime,
    client: &'a ApiClient,
    prediction: HitPrediction,
    /// Keeps the run apart from earlier ones.
    salt: String,
    max_model_len: Option<u32>,
    limit: usize,
    rows: Vec<ValidatedRequest>,
    left_out: LeftOut,
    progress: TaskProgress,
}

/// Requests that were not compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    /// Longer than the engine's context.
    pub(crate) too_long: usize,
    /// Without tokens, or refused.
    pub(crate) failed: usize,
    /// The first reason of those.
    pub(crate) first: Option<String>,
}

/// Plays the requests and reports.
pub(crate) fn run(validate: &Validate) -> Result<()> {
    if validate.requests == Some(0) {
        return Err(usage("--requests must be at least 1"));
    }
    if !(0.0..=100.0).contains(&validate.tolerance) {
        return Err(usage("--tolerance must be between 0 and 100 percentage points"));
    }
    let mut reader = validate.input.open_uncounted()?;
    let is_log = matches!(reader.format(), Format::Requests | Format::Conversation);
    if is_log && validate.input.path().as_os_str() == "-" {
        return Err(usage("a request log is read from a file here, not from standard input"));
    }
    let runtime = runtime()?;
    let key = validate.server.api_key_file.as_deref().map(first_line).transpose()?;
    let url = &validate.server.url;
    let read = || runtime.block_on(EnginePages::read(url, key.as_deref()));
    let before = read()?;
    let facts = before.facts();
    let model = model(validate, &facts)?;
    let asked = validate.served_model_name.clone().or_else(|| facts.model.clone());
    let asked = asked.context("the engine names no model; pass --served-model-name")?;
    let client = ApiClient::new(url, &asked, key.as_deref())?;
    let progress = match validate.requests {
        Some(requests) => TaskProgress::steps("validating requests", requests),
        None => TaskProgress::endless("validating requests"),
    };
    let mut run = ValidationRun {
        runtime: &runtime,
        client: &client,
        prediction: HitPrediction::new(model)?,
        salt: format!("validate-{:x}", unseen_seed()),
        max_model_len: facts.max_model_len,
        limit: validate.requests.unwrap_or(usize::MAX),
        rows: Vec::new(),
        left_out: LeftOut::default(),
        progress,
    };
    if is_log {
        let tokens = match validate.input.rendering()? {
            Some(rendering) => PromptTokenSource::Local(Box::new(rendering)),
            None => PromptTokenSource::Engine(&client, &runtime),
        };
        let (path, skip_bad) = (validate.input.path(), validate.input.skips_bad());
        prompts::of_log(path, skip_bad, &tokens, |prompt| run.take(prompt))?;
    } else {
        let info = reader.info().clone();
        for prompt in validate.prompts.prompts(&info, reader.by_ref())? {
            let (request, prompt) = prompt?;
            if run.take(Ok(of_trace(request, prompt)))?.is_break() {
                break;
            }
        }
        remarks(&reader).iter().for_each(|remark| output::note(remark));
    }
    run.progress.end();
    let after = read()?;
    // Some engines show a counter only once it counted something.
    let at_first = before.counters().unwrap_or_default();
    let counted = after.counters().map(|counters| counters.since(at_first));
    let report = ValidationReport {
        engine: facts.kind,
        asked,
        model: run.prediction.model().clone(),
        validation: Validation::of(&run.rows, run.prediction.model().block_size),
        counted,
        left_out: run.left_out,
        tolerance: validate.tolerance,
    };
    finish(validate, &report)
}

fn finish(validate: &Validate, report: &ValidationReport) -> Result<()> {
    output::line(&if validate.json {
        report.to_json().to_string()
    } else {
        output::fitted(&report.to_text())
    })?;
    if report.validation.requests == 0 {
        let first = report.left_out.first.as_deref().unwrap_or("the file has none");
        bail!("no request was compared: {first}");
    }
    match report.complaint() {
        Some(complaint) => bail!(CheckFailure(complaint)),
        None => Ok(()),
    }
}

/// The cache that is predicted: as the options say, else as the engine does.
fn model(validate: &Validate, facts: &EngineFacts) -> Result<CacheModel> {
    if facts.caches > 1 {
        return Err(usage(format!(
            "{} has {} caches, and routing decides between them; pass the address of one engine, \
             or start `headstart serve --replicas 1`",
            validate.server.url, facts.caches
        )));
    }
    let policy = validate.policy.clone().or_else(|| match facts.kind {
        EngineKind::Vllm => None,
        EngineKind::Headstart => Some("hazard".to_owned()),
        EngineKind::Sglang | EngineKind::Other => Some("lru".to_owned()),
    });
    Ok(CacheModel {
        block_size: validate.block_size.or(facts.block_size).unwrap_or(BLOCK_SIZE),
        blocks: validate.cache_blocks.or(facts.blocks),
        policy,
    })
}

fn of_trace(request: headstart_core::TraceRequest, prompt: TokenPrompt) -> ValidatedPrompt {
    ValidatedPrompt {
        name: prompt.number.to_string(),
        tokens: prompt.tokens,
        output_tokens: prompt.output_tokens,
        salt: None,
        request,
    }
}

impl ValidationRun<'_> {
    /// Sends a prompt, and keeps its hits beside the predicted ones.
    fn take(&mut self, prompt: Result<ValidatedPrompt, String>) -> Result<ControlFlow<()>> {
        match prompt {
            Err(reason) => self.fail(reason)?,
            Ok(prompt) if self.is_too_long(&prompt) => self.left_out.too_long += 1,
            Ok(prompt) if prompt.tokens.is_empty() => {
                self.fail("a prompt without tokens".into())?;
            }
            Ok(prompt) => match self.send(&prompt) {
                Ok(row) => self.rows.extend(row),
                Err(error) => self.fail(error.to_string())?,
            },
        }
        let ended = self.rows.len() + self.left_out.too_long + self.left_out.failed;
        self.progress.set_position(ended as u64);
        Ok(if ended >= self.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn is_too_long(&self, prompt: &ValidatedPrompt) -> bool {
        let tokens = prompt.tokens.len() as u64 + u64::from(prompt.output_tokens);
        self.max_model_len.is_some_and(|most| tokens > u64::from(most))
    }

    /// Counts a failure.
    ///
    /// # Errors
    /// When nothing but failures came so far.
    fn fail(&mut self, reason: String) -> Result<()> {
        self.left_out.failed += 1;
        let first = self.left_out.first.get_or_insert(reason);
        if self.rows.is_empty() && self.left_out.failed >= FAILURES_MAX {
            bail!("the first {FAILURES_MAX} requests failed: {first}");
        }
        Ok(())
    }

    /// One request and its hits; `None` where the predicted cache is too small for it.
    fn send(&mut self, prompt: &ValidatedPrompt) -> Result<Option<ValidatedRequest>, LoadgenError> {
        let salt = match &prompt.salt {
            Some(salt) => format!("{}-{salt}", self.salt),
            None => self.salt.clone(),
        };
        let sent = TokenPrompt {
            session: prompt.request.session,
            tokens: prompt.tokens.clone(),
            output_tokens: prompt.output_tokens,
            finish: prompt.request.finish,
            tool: prompt.request.tool,
            ..TokenPrompt::default()
        };
        let answer = self.client.complete_salted(&sent, Some(&salt));
        let answer = self.runtime.block_on(answer)?;
        // The prediction serves what the engine has served.
        let predicted = self.prediction.serve(&SentPrompt {
            tokens: &prompt.tokens,
            output_tokens: prompt.output_tokens,
            salt: prompt.salt.as_deref(),
            request: &prompt.request,
        });
        Ok(predicted.map(|row| ValidatedRequest {
            name: prompt.name.clone(),
            prompt_tokens: answer.prompt_tokens,
            reported: answer.cached_tokens,
            ..row
        }))
    }
}
