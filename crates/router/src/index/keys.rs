//! The names of a prompt's blocks, computed once and outside of every lock.

use headstart_core::block::BlockShape;
use headstart_core::{RouteHasher, RouteKey};

use super::Prompt;

/// A prompt's keys for each shape of blocks in use. Its size is 8 bytes per block and shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptKeys {
    num_tokens: usize,
    chains: Vec<KeyChain>,
    are_past: bool,
}

/// The keys of all blocks of one shape, each naming its block and all before it: where two
/// chains have equal keys at one place, they are equal up to there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChain {
    /// Shape of the blocks that the prompt is cut into.
    pub shape: BlockShape,
    /// One key per full block whose name covers known tokens.
    pub keys: Vec<RouteKey>,
}

impl PromptKeys {
    /// Hashes `prompt` once per hasher.
    #[must_use]
    pub fn new(prompt: Prompt<'_>, hashers: &[RouteHasher]) -> Self {
        let chains = hashers.iter().map(|hasher| KeyChain {
            shape: hasher.shape(),
            keys: hasher.chain_with_media(prompt.namespace, prompt.tokens, prompt.media),
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
            let num_blocks = chain.shape.num_blocks(num_tokens);
            assert_eq!(chain.keys.len(), num_blocks, "one key per full block");
        }
        // `Self::of` searches by shape.
        chains.sort_by_key(|chain| chain.shape);
        Self { num_tokens, chains, are_past: false }
    }

    /// The same keys, where no replica uses their shapes any more.
    #[must_use]
    pub fn past(self) -> Self {
        Self { are_past: true, ..self }
    }

    /// Whether a replica may hold blocks of these shapes. Otherwise the keys only name the prompt:
    /// an index assumes nothing of them.
    #[must_use]
    pub fn are_in_use(&self) -> bool {
        !self.are_past && !self.chains.is_empty()
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

    /// The keys of blocks of this shape; none where no replica was known to use it.
    #[must_use]
    pub fn of(&self, shape: BlockShape) -> &[RouteKey] {
        let found = self.chains.binary_search_by_key(&shape, |chain| chain.shape);
        found.map_or(&[], |at| &self.chains[at].keys)
    }

    /// The keys of blocks of this size that cover nothing else.
    #[must_use]
    pub fn of_size(&self, block_size: u32) -> &[RouteKey] {
        self.of(BlockShape::of_size(block_size))
    }
}
