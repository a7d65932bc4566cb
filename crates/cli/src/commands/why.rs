//! `headstart why`: which earlier prompt came nearest to a request, where both part, what made
//! them part, what that cost and what to do about it.

mod live;
pub(crate) mod shown;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use headstart_analysis::change::ChangeContext;
use headstart_analysis::prompt::PromptBody;
use headstart_analysis::rendering::Rendering;
use headstart_analysis::walk::{DivergentPrompts, PromptComparison, PromptRelation};
use headstart_analysis::why::{self, FoundRequest, WhyQuestion};
use headstart_core::figures::{counted, thousands};
use headstart_terminal::{self as output, TaskProgress, colour};
use serde_json::{Value, json};

use crate::exit::usage;
use crate::server::{ServerOptions, one_line};

/// Explain why one request's prompt was recomputed.
#[derive(Args, Debug)]
#[command(after_help = include_str!("why.help.txt"))]
pub(crate) struct WhyCommand {
    /// Id of the request, or its line number
    #[arg(value_name = "REQUEST")]
    request: String,
    /// Request log, plain, gzip or zstd; `-` reads standard input
    ///
    /// Without FILE the command asks a running server. REQUEST is then the id of the answer, or
    /// its x-request-id.
    #[arg(value_name = "FILE", conflicts_with = "api_key_file")]
    file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
    /// Show prompt text around the difference
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

/// Reads the log up to the request and tells.
pub(crate) fn run(why: &WhyCommand) -> Result<()> {
    let Some(path) = &why.file else {
        refuse_options_of_logs(why)?;
        return live::run(&why.server, &why.request, why.json);
    };
    let rendering = Rendering::of(why.tokenizer.as_deref())?;
    let found = found(why, path, &rendering)?;
    remarks(&rendering);
    if let Some(remark) = found.namesakes.told() {
        output::note(&remark);
    }
    output::line(&if why.json {
        told_json(&found, &rendering, why.show_text).to_string()
    } else {
        output::fitted(&told_text(&found, &rendering, why.show_text))
    })
}

/// Options of logs say nothing to a server.
fn refuse_options_of_logs(why: &WhyCommand) -> Result<()> {
    let given = [
        ("--show-text", why.show_text, "keeps no prompt text"),
        ("--tokenizer", why.tokenizer.is_some(), "counts its own tokens"),
        ("--skip-bad", why.skip_bad, "has no lines to skip"),
    ];
    match given.iter().find(|(_, is_given, _)| *is_given) {
        Some((name, _, reason)) => Err(usage(format!(
            "{name}: a running server {reason}; name a request log: headstart why REQUEST FILE"
        ))),
        None => Ok(()),
    }
}

/// Finds the request and explains it.
fn found(command: &WhyCommand, path: &Path, rendering: &Rendering) -> Result<FoundRequest> {
    let question = WhyQuestion { log: path, request: &command.request, skip_bad: command.skip_bad };
    let progress = TaskProgress::bytes("reading prompts");
    Ok(why::find(&question, rendering, &progress)?)
}

/// Prints notes on how prompts were read.
pub(crate) fn remarks(rendering: &Rendering) {
    for remark in rendering.remarks() {
        output::note(&remark);
    }
}

/// Renders the explanation of a request as a JSON object.
fn told_json(found: &FoundRequest, rendering: &Rendering, show_text: bool) -> Value {
    let (told, cause) = (&found.told, found.cause.as_ref());
    let parted = told.parted.as_ref();
    let evidence = parted.and_then(|parted| parted.evidence.as_ref());
    let evidence = evidence.filter(|_| cause.is_some_and(|cause| cause.word.is_some()));
    let changed = parted.map(|parted| changed(parted, found));
    let is_text = matches!(told.prompt.body, PromptBody::Text(_));
    let mut object = json!({
        "request": told.prompt.name,
        "prompt_tokens": told.prompt.tokens(rendering),
        "shared_tokens": told.shared_tokens,
        "lost_tokens": parted.map_or(0, |parted| parted.lost_tokens),
        "neighbour": told.near.as_ref().map(|near| json!({
            "request": near.name,
            "prompt_tokens": near.tokens(rendering),
        })),
        "diverged_at": parted.map(|parted| json!({
            "token": told.shared_tokens,
            "byte": is_text.then_some(parted.divergence.new_byte),
        })),
        "cause": cause.map(|cause| cause.name),
        "title": cause.map(|cause| &cause.title),
        "fix": cause.map(|cause| &cause.fix),
        "place": cause.and_then(|cause| cause.place.as_ref()),
        "also": evidence.and_then(|evidence| evidence.also).map(|cause| cause.name()),
    });
    for (name, value) in shown::fields(changed.as_ref(), show_text) {
        object[name] = value;
    }
    object
}

fn changed(parted: &DivergentPrompts, found: &FoundRequest) -> ChangeContext {
    let word = found.cause.as_ref().and_then(|cause| cause.word);
    ChangeContext::of(&parted.old, &found.told.prompt, parted.spans(), word)
}

/// The same for people: one headline, both texts, cause, cost and fix.
fn told_text(found: &FoundRequest, rendering: &Rendering, show_text: bool) -> String {
    let told = &found.told;
    let headline = headline(told, rendering);
    let mut lines = vec![colour::heading(&headline)];
    let Some(parted) = &told.parted else {
        return lines.remove(0);
    };
    lines.push(String::new());
    let changed = changed(parted, found);
    let (old, new) = (&parted.old.name, &told.prompt.name);
    lines.extend(shown::side_by_side(&changed, old, new, show_text));
    lines.push(String::new());
    if let Some(cause) = &found.cause {
        lines.push(format!("cause  {}: {}", cause.name, cause.title));
        lines.extend(cause.place.as_ref().map(|place| format!("place  {place}")));
        let lost = colour::loss(&cost(parted.lost_tokens));
        lines.push(format!("cost   {lost}"));
        lines.push(format!("fix    {}", colour::fix(&cause.fix)));
        let evidence = parted.evidence.as_ref().filter(|_| cause.word.is_some());
        if let Some(also) = evidence.and_then(|evidence| evidence.also) {
            lines.push(format!("also   {also}: {}", also.title()));
            lines.push(format!("fix    {}", colour::fix(also.fix())));
        }
    } else if parted.divergence.is_loss() {
        lines.push("cause  unknown: no known cause explains this difference".to_owned());
        let lost = colour::loss(&cost(parted.lost_tokens));
        lines.push(format!("cost   {lost}"));
    } else {
        lines.push("cost   none: the tokens after it are new".to_owned());
    }
    if !show_text {
        lines.push("(--show-text shows the text)".to_owned());
    }
    lines.join("\n")
}

/// Describes the cost of a difference in recomputed tokens.
pub(crate) fn cost(tokens: u64) -> String {
    let verb = if tokens == 1 { "was" } else { "were" };
    format!("{} after it {verb} recomputed", counted(tokens, "cached token"))
}

/// One sentence: the relation of the request to the earlier prompts.
fn headline(told: &PromptComparison, rendering: &Rendering) -> String {
    let name = one_line(&told.prompt.name);
    let all = thousands(told.prompt.tokens(rendering));
    let shared = thousands(told.shared_tokens);
    let near = told.near.as_ref().map_or("", |near| &near.name);
    let near = one_line(near);
    match told.outcome() {
        PromptRelation::Alone => format!(
            "Request {name}: no earlier prompt of its model is similar; all of its {all} tokens \
             are new."
        ),
        PromptRelation::GoesOn => format!(
            "Request {name} continues {near}: they share {shared} of its {all} tokens, and \
             nothing was lost."
        ),
        PromptRelation::Parts => {
            format!("Request {name} differs from {near} at token {shared} of {all}.")
        }
    }
}
