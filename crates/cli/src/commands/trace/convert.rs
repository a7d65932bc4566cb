//! `headstart trace convert`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use headstart_core::SessionId;
use headstart_trace::Reader;
use headstart_trace::format::canonical::Writer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::config::UsageError;
use crate::input::{TraceInput, counted, remarks};

/// What takes less needs no progress bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests between two looks at the clock.
const LOOK_EVERY: u64 = 1024;

/// Sessions told apart for the summary, some 100 MiB; beyond, it says "more than".
const SESSIONS_MAX: usize = 4 << 20;

/// Rewrite a trace in Headstart's canonical form.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart trace convert conversation_trace.jsonl.zst -o conversation.jsonl.gz
  headstart trace convert traces.jsonl --arrivals 60 --arrivals-seed 1 -o agents.jsonl
  headstart trace convert chats.jsonl --tokenizer ./Qwen3-0.6B --block-tokens 64 > chats.trace
  zcat old.gz | headstart trace convert - --format mooncake --skip-bad > new.jsonl

The format is told by the first line, compression by the first bytes. The canonical form is JSON
lines: a header, then one request a line with its time in nanoseconds, type, session, turn, lengths
and blocks as runs [start, count]. Agent sessions follow one another in file order, each beginning
with the last request of the one before, unless --arrivals draws their starts. Sessions, turns and
types that a trace lacks are inferred, and the header says so.")]
pub(crate) struct Convert {
    #[command(flatten)]
    input: TraceInput,
    /// Where to write; `-` is standard output, and a name that ends in .gz is compressed
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

/// Converts, and sums up on standard error.
pub(crate) fn run(convert: &Convert) -> Result<()> {
    let extension = convert.output.extension().and_then(|name| name.to_str());
    if extension == Some("zst") {
        let message = format!(
            "--output {}: zstd is read here but not written; name it .gz, or pipe through `zstd`",
            convert.output.display()
        );
        return Err(UsageError(message).into());
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let mut reader = convert.input.open_counted(&bar)?;
    let mut summary = Summary::default();
    let written = if convert.output.as_os_str() == "-" {
        let out = BufWriter::new(io::stdout().lock());
        write(&mut reader, out, &bar, &mut summary).map(drop)
    } else {
        write_file(&mut reader, convert, &bar, &mut summary)
    };
    bar.finish_and_clear();
    match written {
        // Whoever reads the pipe has enough.
        Err(error) if is_closed_pipe(&error) => return Ok(()),
        written => written?,
    }
    eprintln!("{}", summary.text(&reader));
    for remark in remarks(&reader) {
        eprintln!("{remark}");
    }
    Ok(())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Writes beside the file wanted and moves the whole result there, so that a conversion that
/// fails leaves what was there before. The trace may thus be replaced by its own conversion.
fn write_file(
    reader: &mut Reader<'_>,
    convert: &Convert,
    bar: &ProgressBar,
    summary: &mut Summary,
) -> Result<()> {
    let path = &convert.output;
    let mut partial = path.clone().into_os_string();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let cannot_write = || format!("cannot write {}", path.display());
    let file = BufWriter::new(File::create(partial).with_context(cannot_write)?);
    let is_gzip = path.extension().is_some_and(|name| name == "gz");
    let written = if is_gzip {
        let packed = GzEncoder::new(file, Compression::default());
        write(reader, packed, bar, summary).and_then(|packed| Ok(packed.finish()?.flush()?))
    } else {
        write(reader, file, bar, summary).map(drop)
    };
    let moved = written.and_then(|()| Ok(std::fs::rename(partial, path)?));
    if moved.is_err() {
        // The error that stopped us is the one to report.
        let _ = std::fs::remove_file(partial);
    }
    moved.map_err(|error| match error.downcast::<io::Error>() {
        Ok(error) => anyhow::Error::from(error).context(cannot_write()),
        Err(error) => error,
    })
}

/// Writes all requests of `reader`, and gives the flushed output back.
fn write<W: Write>(
    reader: &mut Reader<'_>,
    out: W,
    bar: &ProgressBar,
    summary: &mut Summary,
) -> Result<W> {
    let mut writer = Writer::new(out, reader.info())?;
    let begin = Instant::now();
    while let Some(request) = reader.next() {
        let request = request?;
        writer.declare(&reader.info().types)?;
        writer.write(&request)?;
        summary.count(request.session);
        let is_look = reader.tally().requests.is_multiple_of(LOOK_EVERY);
        if is_look && bar.is_hidden() && begin.elapsed() > PATIENCE {
            show(bar);
        }
    }
    Ok(writer.finish()?)
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

/// What was written.
#[derive(Default)]
struct Summary {
    sessions: HashSet<SessionId>,
    is_more: bool,
}

impl Summary {
    fn count(&mut self, session: Option<SessionId>) {
        let Some(session) = session else {
            return;
        };
        if self.sessions.len() < SESSIONS_MAX {
            self.sessions.insert(session);
        } else if !self.sessions.contains(&session) {
            self.is_more = true;
        }
    }

    fn text(&self, reader: &Reader<'_>) -> String {
        let (tally, info) = (reader.tally(), reader.info());
        let more = if self.is_more { "more than " } else { "" };
        format!(
            "{}: {}, {} of {} tokens, {more}{} ({}), turns {}, {} ({})",
            reader.format(),
            counted(tally.requests, "request"),
            counted(tally.blocks, "block"),
            info.block_tokens,
            counted(self.sessions.len() as u64, "session"),
            info.sessions,
            info.turns,
            counted(info.types.len() as u64 - 1, "type"),
            info.types_from,
        )
    }
}
