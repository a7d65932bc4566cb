//! `headstart index`: what a running server knows of its replicas' caches.
//!
//! | module | does |
//! |---|---|
//! | `answer` | tells a gateway's answers from everybody else's |
//! | `table` | the summary, for people |
//!
//! Nothing is printed as a gateway's word that is not shaped like one, and nothing that a server
//! says reaches the terminal with control characters in it, except where it is passed on as data.

mod answer;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use headstart_loadgen::LoadgenError;
use headstart_terminal as output;

use crate::server::ServerOptions;
use answer::FirstLine;

/// Largest summary that is read: a few thousand replicas with a thousand bytes each, many times.
const SUMMARY_BYTES_MAX: usize = 64 << 20;

/// Show what a running server knows of its replicas' caches.
#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Print sizes, counters and the event stream of each replica.
    #[command(after_help = include_str!("index/show.help.txt"))]
    Show {
        #[command(flatten)]
        server: ServerOptions,
        /// Print the server's JSON unchanged
        #[arg(long)]
        json: bool,
    },
    /// Print each block that a replica holds, as JSON lines.
    #[command(after_help = include_str!("index/dump.help.txt"))]
    Dump {
        #[command(flatten)]
        server: ServerOptions,
        /// Dump this replica only
        #[arg(long, value_name = "ID")]
        replica: Option<u32>,
        /// Maximum number of blocks
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Output file; `-` is standard output
        #[arg(short, long, alias = "out", value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
}

/// Asks the server.
pub(crate) fn run(index: &IndexCommand) -> Result<()> {
    match index {
        IndexCommand::Show { server, json } => show(server, *json),
        IndexCommand::Dump { server, replica, limit, output } => {
            let limits = [("replica", replica.map(u64::from)), ("limit", limit.map(|n| n as u64))];
            let limits = limits.iter().filter_map(|(name, n)| n.map(|n| format!("{name}={n}")));
            let query: Vec<String> = limits.collect();
            dump(server, &query.join("&"), output)
        }
    }
}

fn show(server: &ServerOptions, json: bool) -> Result<()> {
    let asked = server.asked("/debug/index");
    let body = server.document(&asked, SUMMARY_BYTES_MAX)?;
    // A proxy or another server may answer as well; only the shape of the answer tells.
    let index = answer::summary(&body).ok_or_else(|| asked.foreign(&body))?;
    if json {
        return output::line(&String::from_utf8_lossy(&body));
    }
    output::line(&output::fitted(&table::of(&index)))
}

fn dump(server: &ServerOptions, query: &str, path: &Path) -> Result<()> {
    // A dump may be large, so a bad path fails before the server is asked.
    if path.as_os_str() != "-" {
        output::files(&[("--output", path)], &[])?;
    }
    let asked = server.asked("/debug/index/entries");
    let mut first = FirstLine::default();
    let mut out = DumpDestination::of(path);
    let got =
        // Nothing is written until the first line is known to be an entry.
        server.get(&format!("{}?{query}", asked.path), |bytes| out.write(first.take(bytes)?))?;
    // A foreign answer explains more than the error of the write that it caused.
    if let Some(body) = first.foreign() {
        return Err(asked.foreign(body));
    }
    match got.and_then(|()| out.finish().map_err(LoadgenError::Output)) {
        // The reader has seen enough and closed the pipe.
        Err(LoadgenError::Output(error)) if out.is_closed_pipe(&error) => Ok(()),
        Err(LoadgenError::Output(error)) => Err(error).with_context(|| out.failure()),
        Err(error) => {
            let error = asked.explained(error);
            Err(if out.has_begun() {
                // Some lines may be in the file already, and a reader would take them for all.
                error.context(format!("{} is incomplete", path.display()))
            } else {
                error
            })
        }
        Ok(()) => Ok(()),
    }
}

/// Destination of a dump. A file is created or truncated only when there is something to write.
enum DumpDestination<'a> {
    Standard,
    Later(&'a Path),
    Now(&'a Path, BufWriter<File>),
}

impl<'a> DumpDestination<'a> {
    fn of(path: &'a Path) -> Self {
        if path.as_os_str() == "-" { Self::Standard } else { Self::Later(path) }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Self::Later(path) = *self {
            if bytes.is_empty() {
                return Ok(());
            }
            // A file that exists keeps its contents until there is something to replace them.
            *self = Self::Now(path, BufWriter::new(File::create(path)?));
        }
        match self {
            Self::Now(_, file) => file.write_all(bytes),
            _ => io::stdout().lock().write_all(bytes),
        }
    }

    /// All is written. What holds nothing is an empty file.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Standard => io::stdout().lock().flush(),
            Self::Later(path) => File::create(path).map(drop),
            Self::Now(_, file) => file.flush(),
        }
    }

    fn has_begun(&self) -> bool {
        matches!(self, Self::Now(..))
    }

    fn is_closed_pipe(&self, error: &io::Error) -> bool {
        // Only standard output has a reader that may leave.
        matches!(self, Self::Standard) && error.kind() == io::ErrorKind::BrokenPipe
    }

    fn failure(&self) -> String {
        match self {
            Self::Standard => "cannot write to standard output".to_owned(),
            Self::Later(path) | Self::Now(path, _) => format!("cannot write {}", path.display()),
        }
    }
}
