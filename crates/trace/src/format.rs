//! One file per trace format, and what tells them apart.
//!
//! A format turns one line into one request, or into a session that makes several. It does not
//! know the lines before (beyond what it must, within named limits), nor what became of its
//! requests: order and time are the [`crate::schedule`]'s.

pub mod agent;
pub mod azure;
pub mod bailian;
pub mod canonical;
mod chain;
pub mod completions;
pub mod conversation;
pub mod export;
pub(crate) mod line_format;
pub mod mooncake;
pub mod request_log;
mod sniff;

use std::fmt;
use std::str::FromStr;

pub use chain::BLOCKS_MAX;
use line_format::OpenTrace;
pub(crate) use sniff::sniff;

use crate::TraceError;
use crate::reader::Options;
use crate::source::Lines;

/// The file format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Mooncake's JSONL, see [`mooncake`].
    Mooncake,
    /// Qwen-Bailian's JSONL, see [`bailian`].
    Bailian,
    /// kv-cache-tester's agent sessions, see [`agent`].
    Agent,
    /// Azure's CSV, see [`azure`].
    Azure,
    /// Conversations as text, see [`conversation`].
    Conversation,
    /// Requests as text, one a line, see [`request_log`].
    Requests,
    /// Headstart's own form, see [`canonical`].
    Canonical,
}

/// Facts about a format.
struct FormatFacts {
    format: Format,
    name: &'static str,
    /// The contents of its lines.
    about: &'static str,
    /// The fields by which it is recognised.
    fields: &'static str,
    is_text: bool,
    has_sessions_without_start: bool,
}

const fn ids(
    format: Format,
    name: &'static str,
    about: &'static str,
    fields: &'static str,
) -> FormatFacts {
    let (is_text, has_sessions_without_start) = (false, false);
    FormatFacts { format, name, about, fields, is_text, has_sessions_without_start }
}

/// All formats, in the order of [`Format`].
const FACTS: &[FormatFacts] = &[
    ids(Format::Mooncake, "mooncake", "block ids, times and lengths", "`hash_ids`"),
    ids(
        Format::Bailian,
        "bailian",
        "block ids, times, lengths, request types and turns",
        "`hash_ids` with `chat_id`",
    ),
    FormatFacts {
        has_sessions_without_start: true,
        ..ids(Format::Agent, "agent", "agent sessions with block ids", "`requests`")
    },
    ids(
        Format::Azure,
        "azure",
        "times and lengths; no prefix can match",
        "the CSV header `TIMESTAMP,ContextTokens,GeneratedTokens`, or BurstGPT's",
    ),
    FormatFacts {
        format: Format::Conversation,
        name: "conversation",
        about: "conversations as text",
        fields: "`turns`, `conversations`, or `messages` alone",
        is_text: true,
        has_sessions_without_start: true,
    },
    FormatFacts {
        format: Format::Requests,
        name: "requests",
        about: "requests as text, one per line",
        fields: "`prompt`, `messages` with `model` or `usage`, or a nested body",
        is_text: true,
        has_sessions_without_start: false,
    },
    ids(
        Format::Canonical,
        "canonical",
        "the form that `trace convert` writes",
        "`headstart_trace`",
    ),
];

impl Format {
    /// Every format there is.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.format)
    }

    fn facts(self) -> &'static FormatFacts {
        FACTS.iter().find(|facts| facts.format == self).expect("each format has a row")
    }

    /// Detects the format from the first of `lines`, which stays the next one.
    ///
    /// # Errors
    /// [`TraceError::BadLine`] when that line fits no format or the trace is empty, and
    /// [`TraceError::Read`].
    pub fn of(lines: &mut Lines<'_>) -> Result<Self, TraceError> {
        lines.peek_with(sniff).unwrap_or_else(|| {
            let reason = match lines.passed_over() {
                0 => format!("the input is empty; expected one of the formats {}", Self::names()),
                count => format!(
                    "none of its {count} records holds a request with its prompt; \
                     docs/reference/formats.md has what is read of each tool, and how each is \
                     made to log prompts"
                ),
            };
            Err(TraceError::bad_line(lines.name(), 1, reason))
        })
    }

    /// The name by which a command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the contents of its lines, and the fields by which it is recognised.
    #[must_use]
    pub fn about(self) -> (&'static str, &'static str) {
        (self.facts().about, self.facts().fields)
    }

    /// All names, for a message.
    #[must_use]
    pub fn names() -> String {
        Self::all().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// Whether it holds texts, which a tokenizing function must make tokens of.
    #[must_use]
    pub fn is_text(self) -> bool {
        self.facts().is_text
    }

    /// Whether a line is a session without a start, for which one may be drawn.
    #[must_use]
    pub fn has_sessions_without_start(self) -> bool {
        self.facts().has_sessions_without_start
    }
}

/// Fields that tell a format: a line has at least one of each list. In the order of precedence;
/// Azure's CSV has none.
const BY_FIELDS: &[(Format, &[&[&str]])] = &[
    (Format::Canonical, &[&["headstart_trace"]]),
    (Format::Agent, &[&["requests"]]),
    // Before Mooncake, because both have `hash_ids`.
    (Format::Bailian, &[&["hash_ids"], &["chat_id", "parent_chat_id"]]),
    (Format::Mooncake, &[&["hash_ids"]]),
    // Before requests: `turns` and `conversations` belong to dialogues, whatever else a line has.
    (Format::Conversation, &[&["turns", "conversations"]]),
    (Format::Requests, &[&["prompt", "prompt_token_ids", "proxy_server_request"]]),
    (Format::Requests, &[request_log::BODIES]),
    // Messages with something that a request says and a recorded dialogue does not.
    (Format::Requests, &[&["messages"], &["model", "usage", "request_id", "startTime", "ttft_ms"]]),
    // After requests: `messages` alone is a dialogue.
    (Format::Conversation, &[&["messages"]]),
];

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::all().find(|format| format.name() == name);
        found.ok_or_else(|| format!("there is no format {name}; known: {}", Self::names()))
    }
}

/// Prepares to read a trace in `format` that begins with the line `first`.
///
/// # Errors
/// What is wrong with the first line or, with it, the options.
pub(crate) fn open<'a>(
    format: Format,
    first: Option<&str>,
    options: &Options<'a>,
) -> Result<OpenTrace<'a>, String> {
    match format {
        Format::Mooncake => Ok(mooncake::open(first, options.block_tokens)),
        Format::Bailian => Ok(bailian::open(options.block_tokens)),
        Format::Agent => Ok(agent::open(first, options.drop_duplicates, options.block_tokens)),
        Format::Azure => azure::open(first),
        Format::Conversation => conversation::open(
            options.tokenize.clone(),
            options.block_tokens,
            options.arrivals,
            options.turn_gap,
        ),
        Format::Requests => {
            request_log::open(first, options.tokenize.clone(), options.block_tokens)
        }
        Format::Canonical => canonical::open(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_their_names() {
        for format in Format::all() {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let error = "parquet".parse::<Format>().expect_err("not read here");
        assert!(error.contains("known: mooncake, bailian"), "{error}");
    }
}
