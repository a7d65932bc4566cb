//! `headstart trace convert`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use headstart_core::TraceRequest;
use headstart_core::figures::counted;
use headstart_terminal::{self as output, Progress};
use headstart_trace::Reader;
use headstart_trace::format::canonical::Writer;

use super::sessions::SessionCounter;
use crate::input::{TraceInput, remarks};

/// Convert a trace to Headstart's canonical format.
#[derive(Args, Debug)]
#[command(after_help = include_str!("convert.help.txt"))]
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
    // The trace itself as output would be empty before its first request is read.
    output::check(&convert.output, Some(convert.input.path()))?;
    let progress = convert.input.progress();
    let mut reader = convert.input.open(&progress)?;
    // The header as it is before the first request, which comes before the file is touched.
    let info = reader.info().clone();
    let first = reader.next().transpose()?;
    // A file without a request is an error and leaves the output untouched.
    let first = first.ok_or_else(|| no_request(&convert.input.name(), &reader))?;
    let mut sessions = SessionCounter::default();
    let written = output::to(&convert.output, |out| {
        let mut writer = Writer::new(out, &info)?;
        write(first, &mut reader, &mut writer, &mut sessions)?;
        Ok(writer.finish().map(drop)?)
    });
    progress.end();
    if written?.is_none() {
        return Ok(());
    }
    output::note(&summary(&reader, &sessions));
    for remark in remarks(&reader) {
        output::note(&remark);
    }
    Ok(())
}

fn no_request(name: &str, reader: &Reader<'_>) -> anyhow::Error {
    match reader.skipped() {
        0 => anyhow!("{name} has no request"),
        bad => anyhow!("{name} has no request: {} left out", counted(bad, "bad line")),
    }
}

/// Writes `first` and all further requests of `reader`.
fn write(
    first: TraceRequest,
    reader: &mut Reader<'_>,
    writer: &mut Writer<impl Write>,
    sessions: &mut SessionCounter,
) -> Result<()> {
    let mut next = Some(Ok(first));
    while let Some(request) = next {
        let request = request?;
        // Types may appear late in a trace, so each is declared before its first request.
        writer.declare(&reader.info().types)?;
        writer.write(&request)?;
        sessions.count(request.session);
        next = reader.next();
    }
    Ok(())
}

/// Summarizes the written trace.
fn summary(reader: &Reader<'_>, sessions: &SessionCounter) -> String {
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
