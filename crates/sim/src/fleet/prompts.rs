//! Prompts with their names, made once for all gateways and replicas.

use std::collections::HashMap;
use std::sync::Arc;

use headstart_core::TokenId;
use headstart_router::index::Prompt;
use headstart_router::{PrefixIndex, PromptKeys};

use super::workload::{Segment, tokens_of};

/// Tokens of the prompts that are remembered, as workloads ask the same again and again: 32 MiB.
const KNOWN_TOKENS: usize = 1 << 23;

/// A prompt and its names.
#[derive(Debug)]
pub struct KeyedPrompt {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Its names in the gateways' indexes.
    pub keys: PromptKeys,
}

/// Prompts that were asked lately.
#[derive(Debug, Default)]
pub struct Prompts {
    known: HashMap<Arc<[Segment]>, Arc<KeyedPrompt>>,
    /// Tokens of those.
    tokens: usize,
}

impl Prompts {
    /// The tokens of `prompt`, and its names in `index` and in all that track the same replicas.
    pub fn get(&mut self, prompt: &Arc<[Segment]>, index: &dyn PrefixIndex) -> Arc<KeyedPrompt> {
        if let Some(known) = self.known.get(prompt) {
            return known.clone();
        }
        let tokens = tokens_of(prompt);
        self.tokens += tokens.len();
        if self.tokens > KNOWN_TOKENS {
            // All at once: workloads repeat their prompts, so the useful ones come back soon.
            self.known.clear();
            self.tokens = tokens.len();
        }
        // Hashed once for all gateways: their indexes name blocks alike.
        let keys = index.hash(Prompt { tokens: &tokens, ..Prompt::default() });
        let known = Arc::new(KeyedPrompt { tokens, keys });
        self.known.insert(prompt.clone(), known.clone());
        known
    }
}
