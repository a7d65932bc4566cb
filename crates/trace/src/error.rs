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
        /// The error in the line, and the expected input.
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
    /// Options that do not go with the format of the input.
    #[error("{input}: {reason}")]
    Unsuitable {
        /// The input, as the caller named it.
        input: String,
        /// The unsuitable option, and what to do instead.
        reason: String,
    },
}

/// Longest reason that is kept: parsers quote what they did not expect, whole.
const REASON_BYTES_MAX: usize = 500;

impl TraceError {
    /// A bad line of `input`; a reason longer than anybody reads is cut.
    pub fn bad_line(input: &str, line: usize, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > REASON_BYTES_MAX {
            // `truncate` panics in the middle of a character.
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            // The parser's quote may be as long as the line, and errors may be kept.
            reason.shrink_to_fit();
            reason.push('…');
        }
        Self::BadLine { input: input.to_owned(), line, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_megabyte_is_cut() {
        let error = TraceError::bad_line("t", 1, "ä".repeat(1 << 20)).to_string();
        assert!(error.starts_with("t, line 1: ä") && error.ends_with("ä…"));
        assert!(error.len() < REASON_BYTES_MAX + 20);
        let short = TraceError::bad_line("t", 1, "short").to_string();
        assert_eq!(short, "t, line 1: short");
    }
}
