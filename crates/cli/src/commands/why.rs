//! `headstart why`: which earlier prompt came nearest to a request, where both part, what made
//! them part, what that cost and what to do about it.

mod live;
pub(crate) mod logs;
pub(crate) mod prompt;
mod shown;
pub(crate) mod walk;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use headstart_trace::format::request_log::LoggedRequest;
use serde_json::{Value, json};

use crate::config::UsageError;
use crate::logged::Rendering;
use crate::output;
use crate::report::thousands;
use crate::server::{Server, one_line};
use prompt::Body;
use shown::Shown;
use walk::{Outcome, Parted, Told, Walk};

/// Ids and lines that a message lists.
const TOLD_MAX: usize = 5;

/// Why a request's prompt was computed again: the nearest earlier prompt, and where they part.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart why req-17 requests.jsonl
  headstart why req-17 requests.jsonl --show-text
  headstart why 42 requests.jsonl.gz --tokenizer ./Qwen3-0.6B --json
  headstart why chatcmpl-5e3f --server http://127.0.0.1:8000

FILE is a request log, one JSON object a line or one JSON array: bodies as OpenAI's and Anthropic's
APIs take them (alone, in batch lines, or within a proxy's), logs and exports of LiteLLM, Helicone,
Langfuse and LangSmith, or a prompt as a text or as token ids (`prompt`, `input`,
`prompt_token_ids`); or a file of conversations (ShareGPT), which ask once for each user turn.
`-` is standard input. A request is named by its id, or by the number of its line where none has
that id; of several with one id the first is told, and the lines of the others. It is compared with
the requests before it in the file that asked the same model under the same salt.

No text of a prompt is shown without --show-text: only where it stands, how long it is, and what
kind of thing it is. A running server keeps no text: it tells where a request's tokens were found
or why not, and what the decision was.")]
pub(crate) struct Why {
    /// The request: its id, or the number of its line
    #[arg(value_name = "REQUEST")]
    request: String,
    /// The log: plain, gzip or zstd; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "server")]
    file: Option<PathBuf>,
    /// Ask a running server about a request that it answered, by the answer's id or its
    /// x-request-id
    #[arg(long, value_name = "URL", conflicts_with_all = ["file", "show_text", "tokenizer"])]
    server: Option<String>,
    /// File whose first line is that server's API key
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    api_key_file: Option<PathBuf>,
    /// Show the texts around the difference
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

/// Reads the log up to the request and tells.
pub(crate) fn run(why: &Why) -> Result<()> {
    if let Some(url) = &why.server {
        let server = Server::at(url, why.api_key_file.as_deref());
        return live::run(&server, &why.request, why.json);
    }
    let Some(path) = &why.file else {
        return Err(UsageError("name a FILE, or a --server".to_owned()).into());
    };
    let rendering = Rendering::of(why.tokenizer.as_deref())?;
    let (told, namesakes) = found(why, path, &rendering)?;
    remarks(&rendering);
    if let Some(remark) = namesakes.told() {
        eprintln!("{remark}");
    }
    output::line(&match why.json {
        true => told_json(&told, &rendering, why.show_text).to_string(),
        false => told_text(&told, &rendering, why.show_text),
    })
}

/// Other requests with the id that was asked for.
#[derive(Default)]
struct Namesakes {
    count: u64,
    lines: Vec<String>,
}

impl Namesakes {
    fn add(&mut self, request: &LoggedRequest) {
        self.count += 1;
        if self.lines.len() < TOLD_MAX {
            self.lines.push(request.line.to_string());
        }
    }

    /// What to say of them.
    fn told(&self) -> Option<String> {
        let more = match self.count > self.lines.len() as u64 {
            true => ", …",
            false => "",
        };
        (self.count > 0).then(|| {
            format!(
                "this is the first request with that id; {} more on line {}{more}: name one by \
                 its line",
                thousands(self.count),
                self.lines.join(", ")
            )
        })
    }
}

/// What there is to tell of the request: the first with that id, or else the one of that line.
fn found(why: &Why, path: &Path, rendering: &Rendering) -> Result<(Told, Namesakes)> {
    let mut walk = Walk::new(rendering);
    let (mut of_id, mut of_line, mut has_ids) = (None, None, false);
    let (mut ids, mut count) = (Vec::new(), 0u64);
    let mut namesakes = Namesakes::default();
    let read = logs::each(path, why.skip_bad, |request| {
        has_ids |= request.id.is_some();
        // As it stands in the log, or as it is shown.
        let is_asked = |id: &String| *id == why.request || request.name() == why.request;
        let is_asked = request.id.as_ref().is_some_and(is_asked);
        match (is_asked, &of_id) {
            (true, None) => of_id = Some(walk.tell(request)),
            (true, Some(_)) => namesakes.add(request),
            _ => {}
        }
        if of_id.is_some() {
            return ControlFlow::Continue(());
        }
        if request.line.to_string() == why.request {
            of_line = Some(walk.tell(request));
        }
        count += 1;
        if ids.len() < TOLD_MAX {
            ids.push(request.name());
        }
        walk.remember(request);
        match of_line.is_some() && !has_ids {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if let Some(told) = of_id {
        // What is wrong behind it is not about it.
        return Ok((told, namesakes));
    }
    read.map_err(|error| UsageError(format!("{error:#}")))?;
    if let Some(told) = of_line {
        return Ok((told, namesakes));
    }
    let name = logs::name(path);
    if count == 0 {
        bail!("{name} has no requests; a request log has one JSON object a line");
    }
    Err(UsageError(format!(
        "there is no request {} among the {} of {name}; the first are {}",
        why.request,
        thousands(count),
        ids.join(", ")
    ))
    .into())
}

/// What the user should know of how prompts were read.
pub(crate) fn remarks(rendering: &Rendering) {
    for remark in rendering.remarks() {
        eprintln!("{remark}");
    }
}

/// What is known of a request, as an object.
fn told_json(told: &Told, rendering: &Rendering, show_text: bool) -> Value {
    let parted = told.parted.as_ref();
    let evidence = parted.and_then(|parted| parted.evidence.as_ref());
    let shown = parted.map(|parted| shown(parted, told));
    let is_text = matches!(told.prompt.body, Body::Text(_));
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
        "cause": evidence.map(|it| it.cause.name()),
        "title": evidence.map(|it| it.cause.title()),
        "fix": evidence.map(|it| it.cause.fix()),
    });
    for (name, value) in Shown::fields_of(shown.as_ref(), show_text) {
        object[name] = value;
    }
    object
}

fn shown(parted: &Parted, told: &Told) -> Shown {
    Shown::of(&parted.old, &told.prompt, parted.spans(), parted.cause())
}

/// The same for people: one headline, both texts, cause, cost and fix.
fn told_text(told: &Told, rendering: &Rendering, show_text: bool) -> String {
    let mut lines = vec![told.outcome().headline(told, rendering)];
    let Some(parted) = &told.parted else {
        return lines.remove(0);
    };
    lines.push(String::new());
    let shown = shown(parted, told);
    lines.extend(shown.side_by_side(&parted.old.name, &told.prompt.name, show_text));
    lines.push(String::new());
    if let Some(evidence) = &parted.evidence {
        lines.push(format!(
            "cause  {}: {}",
            evidence.cause,
            evidence.cause.title()
        ));
        lines.push(format!("cost   {}", cost(parted.lost_tokens)));
        lines.push(format!("fix    {}", evidence.cause.fix()));
    } else if parted.divergence.is_loss() {
        lines.push("cause  none of those with a name explains this difference".to_owned());
        lines.push(format!("cost   {}", cost(parted.lost_tokens)));
    } else {
        lines.push("cost   nothing: what stands behind is new".to_owned());
    }
    if !show_text {
        lines.push("(--show-text shows the texts)".to_owned());
    }
    lines.join("\n")
}

/// What a difference cost.
pub(crate) fn cost(tokens: u64) -> String {
    let tokens = thousands(tokens);
    format!("{tokens} tokens behind it were known, and had to be computed again")
}

impl Outcome {
    fn headline(self, told: &Told, rendering: &Rendering) -> String {
        let name = one_line(&told.prompt.name);
        let all = thousands(told.prompt.tokens(rendering));
        let shared = thousands(told.shared_tokens);
        let near = told.near.as_ref().map_or("", |near| &near.name);
        let near = one_line(near);
        match self {
            Self::Alone => format!(
                "Request {name}: no earlier prompt of its model is like it; all of its {all} \
                 tokens are new."
            ),
            Self::GoesOn => format!(
                "Request {name} goes on from {near}: {shared} of its {all} tokens are shared, and \
                 nothing was lost."
            ),
            Self::Parts => format!("Request {name} parts from {near} at token {shared} of {all}."),
        }
    }
}
