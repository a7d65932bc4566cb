//! A request of a log: its prompt, and what the log says of it.

use std::time::Duration;

use headstart_core::{SessionId, TokenId};

/// Data of a logged request besides its blocks.
#[derive(Clone, Debug, Default)]
pub struct LoggedPrompt {
    /// Its id or line.
    pub name: String,
    /// Whether the log gave it that id.
    pub has_id: bool,
    /// Index of its input.
    pub source: u32,
    /// The whole prompt as text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Whether it came as token ids, so that its text is their numbers.
    pub is_ids: bool,
    /// Model that was asked.
    pub model: Option<String>,
    /// Salt that keeps its blocks apart from those of others.
    pub cache_salt: Option<String>,
    /// Name of the user.
    pub user: Option<String>,
    /// Its conversation or agent's run, as the log names it.
    pub session: Option<SessionId>,
    /// Prompt tokens as the server counted them.
    pub counted: Option<u32>,
    /// Prompt tokens and those of them that a cache served, as the server counted them.
    pub cached: Option<(u32, u32)>,
    /// Time to the first token.
    pub ttft: Option<Duration>,
    /// Settings that may decide which cache serves it, each with a hash of its value.
    pub settings: Vec<(&'static str, u64)>,
}
