//! Kind and bytes of an input.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use headstart_terminal::TaskProgress;
use headstart_trace::source;

/// Of the first line, as much as is looked at to tell what a file is.
const START_BYTES: u64 = 1 << 12;

/// Kind of training input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputKind {
    /// Text, as JSON lines.
    Conversations,
    /// Requests of sessions, without text.
    Trace,
    /// Rows that a gateway's predictor read, and their outcomes.
    Log,
}

impl InputKind {
    /// As the command line says it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conversations => "conversations",
            Self::Trace => "trace",
            Self::Log => "log",
        }
    }

    /// Detects the kind of a file from its first line, which may be truncated.
    fn of(start: &str) -> Self {
        let names = |field: &str| start.contains(&format!("\"{field}\""));
        // A log's header is the most specific, so it is looked for first.
        if names("headstart_outcomes") {
            Self::Log
        } else if names("headstart_trace") || names("hash_ids") || names("requests") {
            Self::Trace
        } else if start.trim_start().starts_with('{') {
            Self::Conversations
        } else {
            // A CSV table of a trace does not begin with a brace.
            Self::Trace
        }
    }
}

impl FromStr for InputKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Conversations, Self::Trace, Self::Log];
        let found = all.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| "expected conversations, trace or log".to_owned())
    }
}

/// A file to learn from.
#[derive(Clone, Debug)]
pub(super) struct TrainingFile {
    pub(super) path: PathBuf,
    pub(super) kind: InputKind,
}

impl TrainingFile {
    /// Looks at the start of `path`, unless `kind` is known.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn new(path: &Path, kind: Option<InputKind>) -> Result<Self> {
        let path = path.to_owned();
        if let Some(kind) = kind {
            return Ok(Self { path, kind });
        }
        let cannot_read = || format!("cannot read {}", path.display());
        let file = File::open(&path).with_context(cannot_read)?;
        let text = source::decompress(file).with_context(cannot_read)?;
        let mut start = Vec::new();
        // The first line may be a whole conversation, so only its start is read.
        text.take(START_BYTES).read_until(b'\n', &mut start).with_context(cannot_read)?;
        let kind = InputKind::of(&String::from_utf8_lossy(&start));
        Ok(Self { path, kind })
    }

    /// In messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the name for reports: without the folder, which stays private.
    pub(super) fn file(&self) -> String {
        let name = self.path.file_name();
        name.map_or_else(|| self.name(), |name| name.to_string_lossy().into_owned())
    }

    /// Opens the file and counts its bytes on `progress`, whose length grows by the file's.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn open(&self, progress: &TaskProgress) -> Result<impl Read + use<>> {
        let cannot_open = || format!("cannot open {}", self.name());
        let file = File::open(&self.path).with_context(cannot_open)?;
        progress.inc_length(file.metadata().with_context(cannot_open)?.len());
        Ok(progress.wrap_read(file))
    }
}
