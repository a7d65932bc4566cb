//! `headstart demo`.

mod traffic;
mod words;

use std::path::Path;

use anyhow::Result;
use clap::Args;

use super::analyze::{self, Options, Source};
use crate::config::UsageError;
use crate::output;

/// Where the page goes unless somebody says.
const PAGE: &str = "headstart-demo.html";

/// What a replica of the demo holds unless somebody says: so little that something is evicted.
const CAPACITY: &str = "32Ktok";

/// What `analyze` says of a log that is made up, without any input.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart demo
  headstart demo --html /tmp/demo.html --gpu-hour 2.5
  headstart demo --log demo.jsonl                   also writes the log itself
  headstart analyze requests.jsonl --html report.html    the same with your own

An hour of four applications on four replicas, written by a seeded generator: an agent with the
time of day in its system prompt, questions on documents that come in changing order, a shop whose
tools are shuffled, and chats that are as they should be. Nothing is read, nothing leaves this
machine.")]
pub(crate) struct Demo {
    #[command(flatten)]
    options: Options,
    /// Also write the log that is analyzed
    #[arg(long, value_name = "FILE")]
    log: Option<std::path::PathBuf>,
    /// Another seed gives another hour
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

/// Makes the log up, analyzes it and tells.
pub(crate) fn run(mut demo: Demo) -> Result<()> {
    if demo.options.html().is_none() {
        let can_be = output::files(&[("the page", Path::new(PAGE))], &[]);
        can_be.map_err(|error| UsageError(format!("{error}; --html FILE puts it elsewhere")))?;
    }
    demo.options.settle(Path::new(PAGE), CAPACITY);
    let page = demo.options.html().unwrap_or(Path::new(PAGE)).to_owned();
    let mut outputs = vec![("--html", page.as_path())];
    outputs.extend(demo.log.as_deref().map(|log| ("--log", log)));
    output::files(&outputs, &[])?;
    let log = traffic::log(demo.seed);
    if let Some(path) = &demo.log {
        output::to(path, |out| Ok(out.write_all(&log)?))?;
    }
    analyze::tell(&demo.options, &[Source::Made("a made-up hour", log)])?;
    let hint = format!(
        "\nThe plots are in {}: open it in a browser, no network is needed.\n\
         With your own log (requests as OpenAI and Anthropic take them, or as LiteLLM, Helicone, \
         Langfuse\nand LangSmith log them):\n  \
         headstart analyze requests.jsonl --html report.html",
        page.display()
    );
    // Whoever reads JSON reads standard output.
    eprintln!("{hint}");
    Ok(())
}
