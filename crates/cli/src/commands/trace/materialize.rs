//! `headstart trace materialize`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use headstart_core::TraceRequest;
use headstart_trace::TraceError;
use headstart_trace::format::completions;

use crate::config::UsageError;
use crate::input::{TraceInput, remarks};
use crate::prompts::{PromptOptions, Prompts};

/// Give each anonymous block tokens of its own, to drive a live server.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart trace materialize conversation_trace.jsonl.zst -o prompts.jsonl --id-tokens 16
  headstart trace materialize trace.jsonl --scale 0.1 --model Qwen3-0.6B --vocab 512..151643 \\
    -o prompts.jsonl
  head -1 prompts.jsonl | jq -c .body | curl http://127.0.0.1:8000/v1/completions \\
    -H 'content-type: application/json' -d @-

A line holds the body of a POST to /v1/completions in the envelope of OpenAI's batch files, and
beside it arrival_s (seconds from the start of the trace) and the session. Equal block ids get
equal tokens, different ids different ones. Answers are forced to the trace's length by
max_tokens, min_tokens and ignore_eos.

With --id-tokens 16 a trace of 512 tokens a block shrinks to a thirty-second: the same hits in
blocks, on prompts that a laptop can compute. `headstart bench trace` sends without a file.")]
pub(crate) struct Materialize {
    #[command(flatten)]
    input: TraceInput,
    /// Where to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The model's name in the API
    #[arg(long, default_value = "toy", value_name = "NAME")]
    model: String,
    #[command(flatten)]
    prompts: PromptOptions,
}

/// Writes a line per request, and sums up on standard error.
pub(crate) fn run(materialize: &Materialize) -> Result<()> {
    let path = &materialize.output;
    check_output(path, materialize.input.path())?;
    let mut reader = materialize.input.open()?;
    let info = reader.info().clone();
    let mut prompts = materialize.prompts.prompts(&info, reader.by_ref())?;
    let model = &materialize.model;
    let written = if path.as_os_str() == "-" {
        write(&mut prompts, model, BufWriter::new(io::stdout().lock()))
    } else {
        write_file(&mut prompts, model, path)
    };
    let Written { lines, tokens } = match written {
        // Whoever reads the pipe has enough.
        Err(error) if is_closed_pipe(&error) => return Ok(()),
        written => written?,
    };
    eprintln!(
        "{lines} prompts, {tokens} tokens, {} tokens an id; {}",
        prompts.id_tokens(),
        prompts.altered()
    );
    drop(prompts);
    for remark in remarks(&reader) {
        eprintln!("{remark}");
    }
    Ok(())
}

/// Prompts are no trace: the one that they are made of must not be lost to them.
fn check_output(path: &Path, trace: &Path) -> Result<()> {
    let extension = path.extension().and_then(|name| name.to_str());
    let is_packed = matches!(extension, Some("gz" | "zst"));
    let wrong = match (path.canonicalize(), trace.canonicalize()) {
        (Ok(path), Ok(trace)) if path == trace => "is the trace itself",
        _ if is_packed => {
            "would be written plain; leave --output out and pipe through gzip or zstd"
        }
        _ => return Ok(()),
    };
    Err(UsageError(format!("--output {} {wrong}", path.display())).into())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// How much was written.
struct Written {
    lines: u64,
    tokens: u64,
}

/// Writes beside `path` and moves the whole result there, so that what fails leaves nothing that
/// looks whole.
fn write_file<I>(prompts: &mut Prompts<I>, model: &str, path: &Path) -> Result<Written>
where
    I: Iterator<Item = Result<TraceRequest, TraceError>>,
{
    let mut partial = path.to_owned().into_os_string();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let cannot_write = || format!("cannot write {}", path.display());
    let file = File::create(partial).with_context(cannot_write)?;
    let moved = write(prompts, model, BufWriter::new(file)).and_then(|written| {
        std::fs::rename(partial, path).with_context(cannot_write)?;
        Ok(written)
    });
    if moved.is_err() {
        // The error that stopped us is the one to report.
        let _ = std::fs::remove_file(partial);
    }
    moved
}

fn write<I>(prompts: &mut Prompts<I>, model: &str, mut out: impl Write) -> Result<Written>
where
    I: Iterator<Item = Result<TraceRequest, TraceError>>,
{
    let mut written = Written {
        lines: 0,
        tokens: 0,
    };
    for prompt in prompts.by_ref() {
        let (_, prompt) = prompt?;
        writeln!(out, "{}", completions::line(&prompt, model))?;
        written.lines += 1;
        written.tokens += prompt.tokens.len() as u64;
    }
    out.flush()?;
    let altered = prompts.altered();
    ensure!(written.lines > 0, "no request is left: {altered}");
    Ok(written)
}
