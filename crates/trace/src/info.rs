//! Facts about a whole trace, beside its requests.

use std::borrow::Cow;

use headstart_core::shown::is_hidden;
use serde::{Deserialize, Serialize};

/// Request types that a trace may name: each is a row of every table and a class of policies.
pub const TYPES_MAX: usize = 1024;

/// Longest name of a request type that is kept.
pub const TYPE_NAME_BYTES_MAX: usize = 256;

/// Facts about a whole trace. The list of types grows while a reader reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Tokens per block id; 0 where the trace has lengths only and no blocks.
    pub block_tokens: u32,
    /// Names of the request types; [`headstart_core::TraceRequest::request_type`] is an index.
    /// The first is always `unknown`.
    pub types: Vec<String>,
    /// Source of the sessions.
    pub sessions: Provenance,
    /// Source of the turns.
    pub turns: Provenance,
    /// Source of the request types.
    pub types_from: Provenance,
}

/// Source of a fact about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// The trace says it.
    Given,
    /// Derived from the blocks by prefix containment: plausible, not certain.
    Inferred,
    /// Not known.
    Absent,
}

impl TraceInfo {
    /// A trace of `block_tokens` tokens a block of which nothing else is known.
    #[must_use]
    pub fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens,
            types: vec!["unknown".to_owned()],
            sessions: Provenance::Absent,
            turns: Provenance::Absent,
            types_from: Provenance::Absent,
        }
    }

    /// The index of the type `name`, which is added when new. A name that is too long, or one
    /// new name too many, is `unknown`. Control characters become `?`, as names are printed.
    pub fn type_index(&mut self, name: &str) -> u16 {
        let name = &*printable(name);
        let known = self.types.iter().position(|known| known == name);
        let index = known.unwrap_or(self.types.len());
        if known.is_none() {
            if index >= TYPES_MAX || name.len() > TYPE_NAME_BYTES_MAX {
                // A trace with endless names must not fill the table; index 0 is `unknown`.
                return 0;
            }
            self.types.push(name.to_owned());
        }
        u16::try_from(index).unwrap_or(0)
    }
}

/// `name` with `?` for each letter that is an order: a terminal must not obey a trace.
pub(crate) fn printable(name: &str) -> Cow<'_, str> {
    if name.contains(is_hidden) {
        Cow::Owned(name.replace(is_hidden, "?"))
    } else {
        Cow::Borrowed(name)
    }
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Given => "given",
            Self::Inferred => "inferred",
            Self::Absent => "absent",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_type_names_do_not_reach_a_terminal() {
        let mut info = TraceInfo::new(16);
        assert_eq!(info.type_index("\u{1b}[2Jch\u{9b}at\n"), 1);
        assert_eq!(info.types[1], "?[2Jch?at?");
        // The same name again is the same type.
        assert_eq!(info.type_index("\u{1b}[2Jch\u{9b}at\n"), 1);
        assert_eq!(info.type_index("Übersetzung"), 2);
        assert_eq!(info.types[2], "Übersetzung");
    }
}
