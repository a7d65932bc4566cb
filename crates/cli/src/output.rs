//! Standard output, which may be a pipe that nobody reads any more.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints `text` and a line end. A closed pipe is no failure of ours: whoever reads has enough.
pub(crate) fn line(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
