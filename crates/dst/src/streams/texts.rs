//! Prompts for simulated engines, which share prefixes and part at every depth.

use headstart_core::block::Namespace;
use headstart_core::{Rng, TokenId};
use headstart_router::Prompt;

use super::catalog::PromptText;

/// Longest prompt, tokens.
pub const TOKENS_MAX: usize = 16;

/// Prompts that are remembered, to be continued.
const TEXTS_MAX: usize = 24;

/// Draws prompts, many of which continue earlier ones.
#[derive(Debug, Default)]
pub struct Texts {
    recent: Vec<PromptText>,
}

impl Texts {
    /// The next prompt.
    pub fn prompt(&mut self, rng: &mut Rng) -> PromptText {
        let mut text = match self.recent.len() {
            0 => new(rng),
            _ if rng.below(5) == 0 => new(rng),
            len => self.recent[rng.below(len)].clone(),
        };
        if rng.below(3) == 0 {
            text.tokens.truncate(1 + rng.below(text.tokens.len()));
        }
        let room = TOKENS_MAX - text.tokens.len();
        let num_new = rng.below(room.min(8) + 1);
        // Few different tokens, so that prompts share prefixes by chance as well.
        text.tokens.extend((0..num_new).map(|_| rng.below(3) as TokenId));
        match self.recent.len() {
            0..TEXTS_MAX => self.recent.push(text.clone()),
            // A random one makes room, so old prompts may come back late.
            len => self.recent[rng.below(len)] = text.clone(),
        }
        text
    }

    /// Returns the router's view of a prompt, which has no images.
    #[must_use]
    pub fn question(text: &PromptText) -> Prompt<'_> {
        Prompt { tokens: &text.tokens, namespace: text.namespace, ..Prompt::default() }
    }
}

fn new(rng: &mut Rng) -> PromptText {
    let len = 1 + rng.below(6);
    let (adapter, salt) = match rng.below(12) {
        0 => (Some("name"), None),
        1 => (None, Some("name")),
        2 => (Some("name"), Some("name")),
        _ => (None, None),
    };
    PromptText {
        tokens: (0..len).map(|_| rng.below(2) as TokenId).collect(),
        namespace: Namespace { adapter, salt },
        image: (rng.below(10) == 0).then(|| rng.below(TOKENS_MAX)),
    }
}
