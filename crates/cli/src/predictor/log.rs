//! The opt-in log: rows and outcomes for `headstart train`, never text.
//!
//! A file of its own, readable by its owner only: rows are no text, but they are made from it. It
//! is appended to, never rewritten. When it is full or cannot be written, logging ends with a
//! warning, and serving continues.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use headstart_predict::Definition;
use headstart_predict::log::{OutcomeRecord, header_line};
use headstart_server::prediction::{Became, TurnOutcome};

use super::pending::PendingTurn;
use crate::exit::usage;

/// Largest log, bytes: some 340,000 turns of two vectors each, many times the 20,000 that the
/// published classifier was trained on.
const MAX_LOG_BYTES: u64 = 1 << 30;

/// Longest first line that is looked at.
const MAX_HEADER_BYTES: u64 = 64 << 10;

pub(super) struct OutcomeLog {
    path: PathBuf,
    definition: Definition,
    /// `None` once logging has ended.
    file: Option<File>,
    bytes: u64,
    max_bytes: u64,
}

impl OutcomeLog {
    /// Opens the log at `path` for rows by `definition`; an existing one is continued.
    ///
    /// # Errors
    /// When it cannot be written, or holds something else.
    pub(super) fn open(path: PathBuf, definition: Definition) -> Result<Self> {
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options
            .open(&path)
            .map_err(|error| usage(format!("--prediction-log {name}: {error}")))?;
        let bytes = begin(&mut file, &header_line(&definition))
            .with_context(|| format!("--prediction-log {name}"))?;
        let Some(bytes) = bytes else {
            bail!(usage(format!(
                "--prediction-log {name} holds something else, or rows of another encoder or \
                 definition; name another file"
            )));
        };
        Ok(Self { path, definition, file: Some(file), bytes, max_bytes: MAX_LOG_BYTES })
    }

    /// Returns the definition of its rows.
    pub(super) fn definition(&self) -> &Definition {
        &self.definition
    }

    #[cfg(test)]
    pub(super) fn limit(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes;
    }

    /// Writes what became of a turn. False: nothing was written.
    pub(super) fn append(&mut self, waiting: PendingTurn, outcome: &TurnOutcome) -> bool {
        let (Some(file), Some(row)) = (&mut self.file, waiting.row) else {
            return false;
        };
        let record = OutcomeRecord {
            conversation: waiting.conversation,
            turn: outcome.turn,
            outcome: match outcome.became {
                Became::Continued => headstart_predict::ConversationOutcome::Continued,
                Became::Ended => headstart_predict::ConversationOutcome::Ended,
            },
            said: waiting.said,
            row,
        };
        let line = record.line();
        let name = self.path.display();
        if self.bytes + line.len() as u64 > self.max_bytes {
            let limit = self.max_bytes;
            tracing::warn!(%name, limit, "the prediction log is full; logging ends. Name another");
            self.file = None;
            return false;
        }
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%name, %error, "the prediction log cannot be written; logging ends");
            self.file = None;
            return false;
        }
        self.bytes += line.len() as u64;
        true
    }
}

/// Makes `file` a log that begins with `header` and ends with a whole line. Returns its length;
/// `None` where it begins with something else.
fn begin(file: &mut File, header: &str) -> std::io::Result<Option<u64>> {
    let mut first = String::new();
    let mut reader = BufReader::new(&mut *file).take(MAX_HEADER_BYTES);
    match reader.read_line(&mut first) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(error),
    }
    if first.is_empty() {
        file.write_all(header.as_bytes())?;
        return Ok(Some(header.len() as u64));
    }
    if first != header {
        return Ok(None);
    }
    let bytes = file.seek(SeekFrom::End(-1))? + 1;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        // A record that a crash cut off costs itself only.
        file.write_all(b"\n")?;
        return Ok(Some(bytes + 1));
    }
    Ok(Some(bytes))
}
