//! Kind and bytes of an input.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use headstart_core::{Progress, UsageError};
use headstart_trace::source::{self, CountedBytes};

use super::{TrainingError, TrainingParameters};

/// Of the first line, as much as is looked at to tell what a file is.
const START_BYTES: u64 = 1 << 12;

/// Kind of training input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Text, as JSON lines.
    Conversations,
    /// Requests of sessions, without text.
    Trace,
    /// Rows that a gateway's predictor read, and their outcomes.
    Log,
}

impl InputKind {
    /// As the command line says it.
    #[must_use]
    pub fn name(self) -> &'static str {
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
        } else if start.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
            // An object a line, or an array of them.
            Self::Conversations
        } else {
            // A CSV table of a trace does not begin with a brace or a bracket.
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

/// All files of a training, of one kind.
#[derive(Clone, Debug)]
pub(super) struct TrainingFiles {
    /// Files to learn from; there is at least one.
    pub(super) inputs: Vec<TrainingFile>,
    /// Files to evaluate on besides.
    pub(super) others: Vec<TrainingFile>,
    pub(super) kind: InputKind,
}

impl TrainingFiles {
    /// Looks at the start of each file, unless the kind is known.
    ///
    /// # Errors
    /// When a file cannot be read, and a usage error for files of several kinds.
    pub(super) fn open(parameters: &TrainingParameters) -> Result<Self, TrainingError> {
        let open = |paths: &[PathBuf]| -> Result<Vec<TrainingFile>, TrainingError> {
            paths.iter().map(|path| TrainingFile::new(path, parameters.kind)).collect()
        };
        let (inputs, others) = (open(&parameters.inputs)?, open(&parameters.test_on)?);
        let Some(first) = inputs.first() else {
            let message = "there is no file to train on; name one".to_owned();
            return Err(UsageError(message).into());
        };
        for other in inputs.iter().chain(&others) {
            // Rows of different kinds cannot be trained together.
            if other.kind != first.kind {
                let message = format!(
                    "{} is taken for a {} and {} for a {}; give inputs of one kind, or name it \
                     (--from)",
                    first.name(),
                    first.kind.name(),
                    other.name(),
                    other.kind.name()
                );
                return Err(UsageError(message).into());
            }
        }
        let kind = first.kind;
        Ok(Self { inputs, others, kind })
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
    fn new(path: &Path, kind: Option<InputKind>) -> Result<Self, TrainingError> {
        let path = path.to_owned();
        if let Some(kind) = kind {
            return Ok(Self { path, kind });
        }
        let cannot_read = || TrainingError::file(format!("cannot read {}", path.display()));
        let file = File::open(&path).map_err(cannot_read())?;
        let text = source::decompress(file).map_err(cannot_read())?;
        let mut start = Vec::new();
        // The first line may be a whole conversation, so only its start is read.
        text.take(START_BYTES).read_until(b'\n', &mut start).map_err(cannot_read())?;
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
    pub(super) fn open<'p>(
        &self,
        progress: &'p dyn Progress,
    ) -> Result<CountedBytes<'p, File>, TrainingError> {
        let cannot_open = || TrainingError::file(format!("cannot open {}", self.name()));
        let file = File::open(&self.path).map_err(cannot_open())?;
        progress.inc_length(file.metadata().map_err(cannot_open())?.len());
        Ok(CountedBytes::new(file, progress))
    }
}
