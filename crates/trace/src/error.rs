//! Why a trace could not be read.

/// A trace input that cannot be used; says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that is not what its format says.
    #[error("{input}, line {line}: {reason}")]
    BadLine {
        /// The input, as the caller named it.
        input: String,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it and what is expected.
        reason: String,
    },
    /// The bytes could not be read or decompressed.
    #[error("cannot read {input} after line {line}: {source} (is the file complete?)")]
    Read {
        /// The input, as the caller named it.
        input: String,
        /// Lines read before.
        line: usize,
        /// The cause.
        source: std::io::Error,
    },
}

impl TraceError {
    /// A bad line of `input`.
    pub fn bad_line(input: &str, line: usize, reason: impl Into<String>) -> Self {
        Self::BadLine {
            input: input.to_owned(),
            line,
            reason: reason.into(),
        }
    }
}
