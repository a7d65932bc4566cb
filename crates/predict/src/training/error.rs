//! Errors of a training.

use std::io;

use headstart_core::UsageError;
use headstart_trace::TraceError;

use crate::TrainError;
use crate::log::LogError;

/// The step of a training that failed. Where there is a cause, [`std::error::Error::source`] is it.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// Other parameters avoid it.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// A file cannot be opened, read or written.
    #[error("{what}")]
    File {
        /// The failed step and the path.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A trace or a file of conversations is not what its format says.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A prediction log is not what its format says.
    #[error("{what}")]
    Log {
        /// The failed step and the path.
        what: String,
        /// The cause.
        source: LogError,
    },
    /// The classifier cannot be trained on these rows.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The inputs or the encoder are unsuitable. The message says what is needed.
    #[error("{0}")]
    Unsuitable(String),
}

impl TrainingError {
    /// A failed step on a file, for `map_err`.
    pub(super) fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::File { what, source }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn an_error_names_the_step_and_keeps_the_cause() {
        let cause = || io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = TrainingError::file("cannot open a.jsonl")(cause());
        assert_eq!(error.to_string(), "cannot open a.jsonl");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no such file"));
        let what = "cannot read the log a.log".to_owned();
        let error = TrainingError::Log { what, source: LogError::Read(cause()) };
        assert_eq!(error.to_string(), "cannot read the log a.log");
        let cause = error.source().map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("reading the outcome log: no such file"));
        let error = TrainingError::from(UsageError("--encoder absent".to_owned()));
        assert_eq!(error.to_string(), "--encoder absent");
        assert!(error.source().is_none());
    }
}
