//! `headstart trace convert`.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use headstart_core::TraceRequest;
use headstart_trace::Reader;
use headstart_trace::format::canonical::Writer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::sessions::Sessions;
use crate::input::{TraceInput, counted, remarks};
use crate::output;

/// Delay before the progress bar appears.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests between two looks at the clock.
const LOOK_EVERY: u64 = 1024;

/// Convert a trace to Headstart's canonical format.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart trace convert conversation_trace.jsonl.zst -o conversation.jsonl.gz
  headstart trace convert traces.jsonl --arrivals 60 --arrivals-seed 1 \\
    -o agents.jsonl
  headstart trace convert chats.jsonl --tokenizer ./Qwen3-0.6B \\
    --block-tokens 64 > chats.trace
  zcat old.gz | headstart trace convert - --format mooncake --skip-bad \\
    > new.jsonl

The first line determines the format, the first bytes the compression. The
canonical format is JSON lines: a header, then one request per line. A request
has its time in nanoseconds, type, session, turn, lengths, and blocks as runs
[start, count].

Without --arrivals each agent session starts with the last request of the one
before, in file order. Missing sessions, turns and types are inferred, and the
header says so.")]
pub(crate) struct Convert {
    #[command(flatten)]
    input: TraceInput,
    /// Output file; `-` is standard output, .gz compresses
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    #[arg(help_heading = "Output")]
    output: PathBuf,
}

/// Converts, and sums up on standard error.
pub(crate) fn run(convert: &Convert) -> Result<()> {
    output::check(&convert.output, Some(convert.input.path()))?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let mut reader = convert.input.open_counted(&bar)?;
    // The header as it is before the first request, which comes before the file is touched.
    let info = reader.info().clone();
    let first = reader.next().transpose()?;
    let first = first.ok_or_else(|| no_request(&convert.input.name(), &reader))?;
    let mut sessions = Sessions::default();
    let written = output::to(&convert.output, |out| {
        let mut writer = Writer::new(out, &info)?;
        write(first, &mut reader, &mut writer, &bar, &mut sessions)?;
        Ok(writer.finish().map(drop)?)
    });
    bar.finish_and_clear();
    if written?.is_none() {
        return Ok(());
    }
    eprintln!("{}", summary(&reader, &sessions));
    for remark in remarks(&reader) {
        output::note(&remark);
    }
    Ok(())
}

fn no_request(name: &str, reader: &Reader<'_>) -> anyhow::Error {
    match reader.skipped() {
        0 => anyhow!("{name} has no request"),
        bad => anyhow!(
            "{name} has no request: {} left out",
            counted(bad, "bad line")
        ),
    }
}

/// Writes `first` and all further requests of `reader`.
fn write(
    first: TraceRequest,
    reader: &mut Reader<'_>,
    writer: &mut Writer<impl Write>,
    bar: &ProgressBar,
    sessions: &mut Sessions,
) -> Result<()> {
    let begin = Instant::now();
    let mut next = Some(Ok(first));
    while let Some(request) = next {
        let request = request?;
        writer.declare(&reader.info().types)?;
        writer.write(&request)?;
        sessions.count(request.session);
        let is_look = reader.tally().requests.is_multiple_of(LOOK_EVERY);
        if is_look && bar.is_hidden() && begin.elapsed() > PATIENCE {
            show(bar);
        }
        next = reader.next();
    }
    Ok(())
}

/// Makes the bar visible; without a terminal it stays hidden.
fn show(bar: &ProgressBar) {
    let template = match bar.length() {
        Some(_) => "{wide_bar} {bytes}/{total_bytes} {elapsed} (eta {eta})",
        None => "{spinner} {bytes} {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.expect("the template is valid"));
    bar.set_draw_target(ProgressDrawTarget::stderr());
}

/// Summarizes the written trace.
fn summary(reader: &Reader<'_>, sessions: &Sessions) -> String {
    let (tally, info) = (reader.tally(), reader.info());
    format!(
        "{}: {}, {} of {} tokens, {sessions} ({}), turns {}, {} ({})",
        reader.format(),
        counted(tally.requests, "request"),
        counted(tally.blocks, "block"),
        info.block_tokens,
        info.sessions,
        info.turns,
        counted(info.types.len() as u64 - 1, "type"),
        info.types_from,
    )
}
