//! The names of a prompt's blocks, computed once and outside of every lock.

use headstart_core::{RouteHasher, RouteKey};

use super::Prompt;

/// A prompt's keys for each block size in use. Its size is 8 bytes per block and size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptKeys {
    num_tokens: usize,
    chains: Vec<KeyChain>,
}

/// The keys of all full blocks of one size, each naming its block and all before it: where two
/// chains have equal keys at one place, they are equal up to there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChain {
    /// Tokens per block.
    pub block_size: u32,
    /// One key per full block.
    pub keys: Vec<RouteKey>,
}

impl PromptKeys {
    /// Hashes `prompt` once per hasher.
    #[must_use]
    pub fn new(prompt: Prompt<'_>, hashers: &[RouteHasher]) -> Self {
        let chains = hashers.iter().map(|hasher| KeyChain {
            block_size: hasher.block_size() as u32,
            keys: hasher.chain(prompt.namespace, prompt.tokens),
        });
        Self::from_chains(prompt.tokens.len(), chains.collect())
    }

    /// From keys that were computed elsewhere.
    ///
    /// # Panics
    /// When a chain has another number of keys than the prompt has full blocks.
    #[must_use]
    pub fn from_chains(num_tokens: usize, mut chains: Vec<KeyChain>) -> Self {
        for chain in &chains {
            let num_blocks = num_tokens / chain.block_size.max(1) as usize;
            assert_eq!(chain.keys.len(), num_blocks, "one key per full block");
        }
        chains.sort_by_key(|chain| chain.block_size);
        Self { num_tokens, chains }
    }

    /// Length of the prompt, tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// All chains, by ascending block size.
    #[must_use]
    pub fn chains(&self) -> &[KeyChain] {
        &self.chains
    }

    /// The keys of blocks of this size; none where nobody was known to use it.
    #[must_use]
    pub fn of_size(&self, block_size: u32) -> &[RouteKey] {
        let found = self
            .chains
            .binary_search_by_key(&block_size, |chain| chain.block_size);
        found.map_or(&[], |at| &self.chains[at].keys)
    }
}
