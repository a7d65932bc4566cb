//! Remedies: rewritings of requests that undo a cause of recomputed tokens.
//!
//! | remedy | undoes |
//! |---|---|
//! | [`Remedy::Normalize`] | another order of tools or keys, white space, thinking |
//! | [`Remedy::Move`] | a text that changes in front of others |
//! | [`Remedy::KeepHistory`] | earlier messages that were rewritten |
//! | [`Remedy::AllTools`] | tools that come and go |
//! | [`Remedy::FirstDefinitions`] | definitions of tools that change |
//!
//! Other causes have no remedy that a program can apply: a text that was cut off is gone.

mod moved;
mod rewriter;

use headstart_prompt::normalize::Normalizer;

pub(crate) use moved::MovedText;
pub use rewriter::LogRewriter;

/// A rewriting of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A normalizer of the gateway.
    Normalize(Normalizer),
    /// Moves a text into the newest message.
    Move(MovedText),
    /// Sends earlier messages as they were sent first.
    KeepHistory,
    /// Sends all tools of a conversation in each of its requests.
    AllTools,
    /// Sends the first definition of each tool.
    FirstDefinitions,
}

/// One place at which a prompt changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeSample<'a> {
    /// The rendered prompt.
    pub(crate) text: &'a str,
    /// The first byte that changed.
    pub(crate) start: usize,
    /// The end of the change.
    pub(crate) end: usize,
}

impl Remedy {
    /// The remedy of a cause, by its name and some places at which prompts changed.
    pub(crate) fn of(cause: &str, samples: &[ChangeSample<'_>]) -> Option<Self> {
        Some(match cause {
            "tool-order" => Self::Normalize(Normalizer::Tools),
            "json-keys" => Self::Normalize(Normalizer::JsonKeys),
            "white-space" => Self::Normalize(Normalizer::WhiteSpace),
            "thinking" => Self::Normalize(Normalizer::Thinking),
            "tool-set" => Self::AllTools,
            "tool-definition" => Self::FirstDefinitions,
            "rewritten-history" | "image-bytes" | "signed-link" | "pseudonyms" => Self::KeepHistory,
            "clock" | "nonce" | "changing-value" | "changing-list" | "changing-text"
            | "prompt-variants" | "list-order" | "field-order" | "character-form"
            | "document-order" | "unnamed" => Self::Move(MovedText::of(samples)?),
            _ => return None,
        })
    }

    /// Its name for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Normalize(normalizer) => normalizer.name(),
            Self::Move(_) => "move",
            Self::KeepHistory => "keep-history",
            Self::AllTools => "all-tools",
            Self::FirstDefinitions => "first-definitions",
        }
    }

    /// The rewriting as a sentence without a subject. It holds no text of a prompt.
    #[must_use]
    pub fn sentence(&self) -> &'static str {
        match self {
            Self::Normalize(Normalizer::Tools) => "sort the tools by name",
            Self::Normalize(Normalizer::JsonKeys) => "sort the keys of JSON",
            Self::Normalize(Normalizer::WhiteSpace) => "write white space one way",
            Self::Normalize(Normalizer::Thinking) => "drop thinking from all earlier answers",
            Self::Normalize(_) => "drop what changes",
            Self::Move(_) => {
                "move the text into the newest message, and leave it there in later requests"
            }
            Self::KeepHistory => "send earlier messages as they were sent first",
            Self::AllTools => "send all tools of a conversation in each of its requests",
            Self::FirstDefinitions => "send the first definition of each tool",
        }
    }

    /// The option of `headstart serve` that does the same to live requests, if there is one.
    #[must_use]
    pub fn live(&self) -> Option<String> {
        match self {
            Self::Normalize(normalizer) => Some(format!("--normalize {}", normalizer.name())),
            _ => None,
        }
    }
}
