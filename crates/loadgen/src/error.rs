//! Why a request brought no answer.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use headstart_trace::TraceError;

/// Errors of a load run, by what the caller can do about them.
#[derive(Debug, thiserror::Error)]
pub enum LoadgenError {
    /// The endpoint's address cannot be used.
    #[error("cannot use the address {url:?}: {reason}")]
    Address {
        /// As given.
        url: String,
        /// The fault and the expected form.
        reason: String,
    },
    /// The API key cannot be sent.
    #[error("the API key cannot be an HTTP header: it may hold visible ASCII characters only")]
    ApiKey,
    /// The conversations' file cannot be opened.
    #[error("cannot open {path:?}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The conversations' file cannot be used.
    #[error(transparent)]
    Conversations(#[from] TraceError),
    /// The server could not be reached.
    #[error("{url} did not answer: {}; is the server running there?", root(source))]
    Unreachable {
        /// The address called.
        url: String,
        /// The cause.
        source: hyper_util::client::legacy::Error,
    },
    /// The connection ended inside the answer.
    #[error("{url} broke off its answer: {}; its log may say why", root(source))]
    BrokenOff {
        /// The address called.
        url: String,
        /// The cause.
        source: hyper::Error,
    },
    /// No complete answer in time.
    #[error(
        "{url} had not finished its answer after {} s; send less at once or allow more time",
        after.as_secs_f64()
    )]
    TimedOut {
        /// The address called.
        url: String,
        /// The time allowed.
        after: Duration,
    },
    /// An HTTP error status.
    #[error("HTTP status {status}: {message}")]
    Refused {
        /// The status.
        status: u16,
        /// `error.code` of the body, where it is a word.
        code: Option<String>,
        /// `error.message` of the body, or the body itself.
        message: String,
    },
    /// The server reported an error in the middle of an answer.
    #[error("the server gave up during its answer: {message}")]
    GaveUp {
        /// `error.message` of the event.
        message: String,
    },
    /// An answer that is not what the API promises.
    #[error("not a streamed completion: {reason}")]
    Malformed {
        /// The content found and the content expected.
        reason: String,
    },
    /// No tokens of a prompt.
    #[error("no token ids of the prompt: {reason}")]
    NoTokens {
        /// The content found and the content expected.
        reason: String,
    },
    /// The fetched bytes cannot be written.
    #[error("cannot write what was read: {0}")]
    Output(std::io::Error),
    /// The probe could not make its prompt as long as it should be.
    #[error(
        "the probe's prompt stayed at {reached} of {wanted} tokens although its text grew; \
         does the server count prompt tokens?"
    )]
    Calibration {
        /// Tokens wanted.
        wanted: u32,
        /// Tokens that the server counted last.
        reached: u32,
    },
}

impl LoadgenError {
    /// Whether the prompt was too long for the model.
    ///
    /// OpenAI says so in `error.code`. Other engines only do in words, all of which name the
    /// context's length or size.
    #[must_use]
    pub fn is_context_overflow(&self) -> bool {
        match self {
            Self::Refused { status: 400, code, message } => {
                code.as_deref() == Some("context_length_exceeded")
                    || message.contains("context length")
                    || message.contains("context size")
            }
            _ => false,
        }
    }
}

/// The innermost cause: the outer ones of an HTTP client only say "client error".
fn root(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, code: Option<&str>, message: &str, expected: bool) {
        let error = LoadgenError::Refused {
            status,
            code: code.map(str::to_owned),
            message: message.to_owned(),
        };
        assert_eq!(error.is_context_overflow(), expected, "{error}");
    }

    #[test]
    fn an_overflow_is_told_by_code_or_words() {
        check(400, Some("context_length_exceeded"), "too long", true);
        check(400, None, "This model's maximum context length is 8", true);
        check(400, Some("invalid_value"), "temperature", false);
        check(503, Some("context_length_exceeded"), "busy", false);
    }
}
