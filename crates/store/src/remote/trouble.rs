//! Errors of requests, by the possible reaction.
//!
//! `object_store` tells what is not there, what is there already and what is not allowed, if one
//! object was asked for; all else is one kind of error, whose HTTP status stands in its text only.
//! So the text is read. Should it be worded differently one day, such a request is tried again: it
//! fails a little later than it could, and the test against a real server fails as well.

use std::error::Error as _;
use std::io::ErrorKind;

use object_store::Error;

use crate::backend::Failure;

/// Start of the `object_store` error that has a status.
const STATUS: &str = "Server returned non-2xx status code: ";

/// Start of the error for an object that ends before the requested range, where no server reports
/// it: S3 and the like answer 416.
const BEHIND: &str = "Wanted range starting at ";

/// A request that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct Trouble {
    pub(super) kind: TroubleKind,
    /// In the store's own words.
    pub(super) text: String,
}

/// Kind of trouble, by the possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TroubleKind {
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

impl TroubleKind {
    /// Whether another attempt may go better.
    pub(super) fn is_passing(self) -> bool {
        matches!(self, Self::Unreachable | Self::Late)
    }

    /// Returns the failure that answers a command.
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
    pub(super) fn new(kind: TroubleKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound { .. } => TroubleKind::Missing,
            Error::AlreadyExists { .. } => TroubleKind::There,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => TroubleKind::Denied,
            // Another attempt may go better if the cause is not known.
            Error::Generic { .. } => of_cause(&error).unwrap_or(TroubleKind::Unreachable),
            _ => TroubleKind::Refused,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        let kind = of_kind(error.kind()).unwrap_or(TroubleKind::Unreachable);
        Self::new(kind, error.to_string())
    }
}

/// Classifies an error by the server's or the operating system's answer, if there is one.
fn of_cause(error: &Error) -> Option<TroubleKind> {
    // The cause may be wrapped several times, by the store's client and by the HTTP library.
    let mut source = error.source();
    while let Some(error) = source {
        // Errors of a folder carry the kind that the system gave.
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return of_kind(error.kind());
        }
        let text = error.to_string();
        if let Some(status) = status(&text) {
            return of_status(status);
        }
        if text.starts_with(BEHIND) {
            return Some(TroubleKind::Refused);
        }
        source = error.source();
    }
    None
}

/// The HTTP status in an error's text.
fn status(text: &str) -> Option<u16> {
    text.strip_prefix(STATUS)?.get(..3)?.parse().ok()
}

fn of_status(status: u16) -> Option<TroubleKind> {
    match status {
        401 | 403 => Some(TroubleKind::Denied),
        404 => Some(TroubleKind::Missing),
        // Too slow, two at once, too many: another attempt may go better.
        408 | 409 | 429 => None,
        400..500 => Some(TroubleKind::Refused),
        // Errors within the server (5xx) may pass.
        _ => None,
    }
}

fn of_kind(kind: ErrorKind) -> Option<TroubleKind> {
    match kind {
        ErrorKind::NotFound => Some(TroubleKind::Missing),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Some(TroubleKind::Denied),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(TroubleKind::Full),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let source = source.into();
        Error::Generic { store: "test", source }
    }

    #[test]
    fn errors_are_told_apart_by_what_can_be_done() {
        let system = |kind: ErrorKind| generic(std::io::Error::from(kind));
        let path = || "x".to_owned();
        let source = || "why".into();
        for (error, kind) in [
            (generic("what is this?"), TroubleKind::Unreachable),
            (generic(format!("{STATUS}503 Slow Down: ")), TroubleKind::Unreachable),
            (generic(format!("{STATUS}429 Wait: ")), TroubleKind::Unreachable),
            (generic(format!("{STATUS}403 Forbidden: ")), TroubleKind::Denied),
            (generic(format!("{STATUS}404 Not Found: x")), TroubleKind::Missing),
            (generic(format!("{STATUS}400 No")), TroubleKind::Refused),
            (generic(format!("{STATUS}416 Range")), TroubleKind::Refused),
            (generic(format!("{STATUS}4\u{e9}")), TroubleKind::Unreachable),
            (system(ErrorKind::ConnectionReset), TroubleKind::Unreachable),
            (system(ErrorKind::StorageFull), TroubleKind::Full),
            (system(ErrorKind::ReadOnlyFilesystem), TroubleKind::Denied),
            (Error::NotFound { path: path(), source: source() }, TroubleKind::Missing),
            (Error::PermissionDenied { path: path(), source: source() }, TroubleKind::Denied),
            (Error::NotSupported { source: source() }, TroubleKind::Refused),
        ] {
            assert_eq!(Trouble::from(error).kind, kind);
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        assert!(TroubleKind::Unreachable.is_passing() && TroubleKind::Late.is_passing());
        for kind in
            [TroubleKind::Missing, TroubleKind::There, TroubleKind::Denied, TroubleKind::Full]
        {
            assert!(!kind.is_passing());
        }
        assert_eq!(TroubleKind::Denied.failure(true), Failure::ReadOnly);
        assert_eq!(TroubleKind::Denied.failure(false), Failure::Io);
    }
}
