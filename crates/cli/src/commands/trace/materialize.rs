//! `headstart trace materialize`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use headstart_core::TraceRequest;
use headstart_core::figures::counted;
use headstart_terminal::{self as output, Progress};
use headstart_trace::TraceError;
use headstart_trace::format::completions;
use headstart_trace::materialize::TokenPrompt;

use crate::input::{TraceInput, remarks};
use crate::prompts::{PromptOptions, PromptStream};

/// Convert block ids to prompts that a server can answer.
#[derive(Args, Debug)]
#[command(after_help = include_str!("materialize.help.txt"))]
pub(crate) struct Materialize {
    #[command(flatten)]
    input: TraceInput,
    /// Output file; `-` is standard output, .gz compresses
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    #[arg(help_heading = "Output")]
    output: PathBuf,
    /// Model name in the API
    #[arg(long, default_value = "toy", value_name = "NAME")]
    #[arg(help_heading = "Prompts")]
    model: String,
    #[command(flatten)]
    prompts: PromptOptions,
}

/// Writes a line per request, and sums up on standard error.
pub(crate) fn run(materialize: &Materialize) -> Result<()> {
    let path = &materialize.output;
    output::check(path, Some(materialize.input.path()))?;
    let progress = materialize.input.progress();
    let mut reader = materialize.input.open(&progress)?;
    let info = reader.info().clone();
    let mut prompts = materialize.prompts.prompts(&info, reader.by_ref())?;
    let model = &materialize.model;
    // The first prompt is made before the output is opened, so an error leaves the file as it was.
    let first = prompts.next().transpose()?;
    let Some((_, first)) = first else {
        bail!("no request is left: {}", prompts.altered());
    };
    let written = output::to(path, |out| write(&first, &mut prompts, model, out))?;
    progress.end();
    let Some(PromptCounts { lines, tokens }) = written else {
        return Ok(());
    };
    output::note(&format!(
        "{}, {}, {} an id; {}",
        counted(lines, "prompt"),
        counted(tokens, "token"),
        counted(prompts.id_tokens().into(), "token"),
        prompts.altered()
    ));
    // The stream borrows the reader, whose remarks are read below.
    drop(prompts);
    for remark in remarks(&reader) {
        output::note(&remark);
    }
    Ok(())
}

/// Counts of the written prompts.
struct PromptCounts {
    lines: u64,
    tokens: u64,
}

/// Writes `first` and all further prompts.
fn write<I>(
    first: &TokenPrompt,
    prompts: &mut PromptStream<I>,
    model: &str,
    out: &mut dyn Write,
) -> Result<PromptCounts>
where
    I: Iterator<Item = Result<TraceRequest, TraceError>>,
{
    let mut written = PromptCounts { lines: 0, tokens: 0 };
    let mut line = |prompt: &TokenPrompt| -> Result<()> {
        writeln!(out, "{}", completions::line(prompt, model))?;
        written.lines += 1;
        written.tokens += prompt.tokens.len() as u64;
        Ok(())
    };
    line(first)?;
    for prompt in prompts.by_ref() {
        line(&prompt?.1)?;
    }
    Ok(written)
}
