//! The names of what makes two prompts diverge that could have shared more.
//!
//! Each is a mistake that users of serving systems reported again and again, with a fix that is
//! theirs to make. Reports, JSON and the dashboard all use the same name for it.

use std::fmt;
use std::str::FromStr;

/// Why two prompts that agree in most of their text part early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A date or a time of day that moves on.
    Clock,
    /// A request id, a random number, a signature: new with every request.
    Nonce,
    /// The same tools in another order.
    ToolOrder,
    /// The same JSON object with its keys in another order.
    JsonKeys,
    /// Spaces, line ends or indentation, and nothing else.
    WhiteSpace,
    /// A thinking block that an earlier prompt or answer had, dropped or rewritten.
    Thinking,
    /// The same text in other tokens, or a marker more or less at a joint: an answer that was
    /// tokenized again, parts that were put together otherwise.
    Seam,
    /// The same documents in another order.
    DocumentOrder,
    /// The same messages in other markup, or instructions in other words: another template, or
    /// another version of it.
    Template,
    /// The front of a history cut off to make it fit.
    Trimmed,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Clock,
        Self::Nonce,
        Self::ToolOrder,
        Self::JsonKeys,
        Self::WhiteSpace,
        Self::Thinking,
        Self::Seam,
        Self::DocumentOrder,
        Self::Template,
        Self::Trimmed,
    ];

    /// Its name in JSON, metrics and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Nonce => "nonce",
            Self::ToolOrder => "tool-order",
            Self::JsonKeys => "json-keys",
            Self::WhiteSpace => "white-space",
            Self::Thinking => "thinking",
            Self::Seam => "seam",
            Self::DocumentOrder => "document-order",
            Self::Template => "template",
            Self::Trimmed => "trimmed",
        }
    }

    /// Returns a description that fits as the subject of a sentence.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Clock => "a date or time that changes",
            Self::Nonce => "an id that is new with every request",
            Self::ToolOrder => "tools in changing order",
            Self::JsonKeys => "JSON keys in changing order",
            Self::WhiteSpace => "white space that changes",
            Self::Thinking => "a thinking block dropped or rewritten",
            Self::Seam => "the same text in other tokens at a joint",
            Self::DocumentOrder => "documents in changing order",
            Self::Template => "a different prompt template or version of it",
            Self::Trimmed => "a history with its beginning cut off",
        }
    }

    /// Returns the suggested fix.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::Clock => "move the date or time into the last message, or round it to the day",
            Self::Nonce => {
                "send the id in a header or in metadata; if it must be in the prompt, put it last"
            }
            Self::ToolOrder => "sort the tools by name before each request",
            Self::JsonKeys => "serialize with sorted keys",
            Self::WhiteSpace => "build the prompt from one template, without trimming or padding",
            Self::Thinking => {
                "keep thinking blocks in the history as they were sent, or never send them"
            }
            Self::Seam => {
                "join the parts of a prompt in one way; send the answer's token ids back, or let \
                 the engine keep its tokens"
            }
            Self::DocumentOrder => "put documents in a fixed order, for example by their ids",
            Self::Template => {
                "use one version of the template for all requests of a kind; roll a new one out \
                 at once"
            }
            Self::Trimmed => {
                "cut more of the history and less often, or summarize it after a fixed beginning"
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cause {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|cause| cause.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no cause {name}; known: {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_found_by_their_names() {
        for cause in Cause::ALL {
            assert_eq!(cause.name().parse(), Ok(cause));
            assert!(!cause.fix().is_empty() && !cause.title().is_empty());
        }
        let error = "weather".parse::<Cause>().expect_err("no such cause");
        assert!(error.contains("clock, nonce"), "{error}");
    }
}
