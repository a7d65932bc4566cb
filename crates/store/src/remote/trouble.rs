//! What went wrong with a request, by what can be done about it.
//!
//! `object_store` tells what is not there, what is there already and what is not allowed; all else
//! is one kind of error, whose HTTP status it keeps to itself. Such a request is tried again, and
//! the few that no repetition helps fail a little later than they could.

use std::error::Error as _;
use std::io::ErrorKind;

use object_store::Error;

use crate::backend::Failure;

/// A request that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct Trouble {
    pub(super) kind: Kind,
    /// In the store's own words.
    pub(super) text: String,
}

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no such object.
    Missing,
    /// There is one already.
    There,
    /// It is not allowed.
    Denied,
    /// There is no room.
    Full,
    /// The object is larger than where it should go.
    TooLarge,
    /// It will never work.
    Refused,
    /// The store was not reached, or did not finish its answer.
    Unreachable,
    /// It took longer than it may.
    Late,
}

impl Kind {
    /// Whether another attempt may go better.
    pub(super) fn is_passing(self) -> bool {
        matches!(self, Self::Unreachable | Self::Late)
    }

    /// What a command is answered by.
    pub(super) fn failure(self, is_write: bool) -> Failure {
        match self {
            Self::Denied if is_write => Failure::ReadOnly,
            Self::Full => Failure::Full,
            Self::TooLarge => Failure::TooLarge,
            Self::Unreachable => Failure::Offline,
            Self::Late => Failure::Aborted,
            Self::Missing | Self::There | Self::Denied | Self::Refused => Failure::Io,
        }
    }
}

impl Trouble {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound { .. } => Kind::Missing,
            Error::AlreadyExists { .. } => Kind::There,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Kind::Denied,
            Error::Generic { .. } => of_system(&error).unwrap_or(Kind::Unreachable),
            _ => Kind::Refused,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        let kind = of_kind(error.kind()).unwrap_or(Kind::Unreachable);
        Self::new(kind, error.to_string())
    }
}

/// What the operating system said, where that is what failed: folders.
fn of_system(error: &Error) -> Option<Kind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return of_kind(error.kind());
        }
        source = error.source();
    }
    None
}

fn of_kind(kind: ErrorKind) -> Option<Kind> {
    match kind {
        ErrorKind::NotFound => Some(Kind::Missing),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Some(Kind::Denied),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(Kind::Full),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let source = source.into();
        Error::Generic {
            store: "test",
            source,
        }
    }

    #[test]
    fn errors_are_told_apart_by_what_can_be_done() {
        let system = |kind: ErrorKind| generic(std::io::Error::from(kind));
        let path = || "x".to_owned();
        let source = || "why".into();
        for (error, kind) in [
            (generic("status 503"), Kind::Unreachable),
            (system(ErrorKind::ConnectionReset), Kind::Unreachable),
            (system(ErrorKind::StorageFull), Kind::Full),
            (system(ErrorKind::ReadOnlyFilesystem), Kind::Denied),
            (
                Error::NotFound {
                    path: path(),
                    source: source(),
                },
                Kind::Missing,
            ),
            (
                Error::PermissionDenied {
                    path: path(),
                    source: source(),
                },
                Kind::Denied,
            ),
            (Error::NotSupported { source: source() }, Kind::Refused),
        ] {
            assert_eq!(Trouble::from(error).kind, kind);
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        assert!(Kind::Unreachable.is_passing() && Kind::Late.is_passing());
        for kind in [Kind::Missing, Kind::There, Kind::Denied, Kind::Full] {
            assert!(!kind.is_passing());
        }
        assert_eq!(Kind::Denied.failure(true), Failure::ReadOnly);
        assert_eq!(Kind::Denied.failure(false), Failure::Io);
    }
}
