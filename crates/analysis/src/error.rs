//! Errors of reading and analyzing logs.

use headstart_core::UsageError;
use headstart_trace::TraceError;

/// An input that cannot be analyzed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// Other arguments avoid it.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The input is not what its format says, or cannot be read to its end.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file or folder cannot be opened or read.
    #[error("{what}")]
    File {
        /// The failed step and the path.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The input holds nothing to analyze. The message says what to analyze instead.
    #[error("{0}")]
    Empty(String),
}

impl AnalysisError {
    /// A failed step on a file or folder, for `map_err`.
    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::File { what, source }
    }

    /// Returns the message and its causes, separated by colons.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        // The chain of causes is followed to the system's own message.
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }

    /// Of a trace: options that do not go with its format are a usage error.
    pub(crate) fn of_trace(error: TraceError) -> Self {
        match error {
            TraceError::Unsuitable { .. } => Self::Usage(UsageError(error.to_string())),
            other => Self::Trace(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_the_message() {
        let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let error = AnalysisError::file("cannot open a.jsonl")(cause);
        assert_eq!(error.to_string(), "cannot open a.jsonl");
        assert_eq!(error.with_causes(), "cannot open a.jsonl: no such file");
        let usage = AnalysisError::from(UsageError("--replicas 0".to_owned()));
        assert_eq!(usage.with_causes(), "--replicas 0");
    }
}
