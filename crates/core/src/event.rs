//! Events that report cache residency to the outside.

use std::sync::Arc;

use crate::{BlockHash, RouteKey, Tier, TokenId};

/// A change of what one replica holds, in the order in which it happened.
///
/// The same type describes our own cache and a foreign engine's: there `BlockHash` is the
/// engine's hash, an opaque handle, widened to 128 bits.
#[derive(Clone, Debug, PartialEq)]
pub enum CacheEvent {
    /// Consecutive blocks of one sequence became matchable.
    Stored(StoredBlocks),
    /// Blocks are no longer matchable in a tier.
    Removed {
        /// The blocks, in the order of their removal.
        blocks: Vec<BlockHash>,
        /// The tier that they left.
        tier: Tier,
        /// The cache group that they left; see [`CacheGroup::index`].
        group: u8,
    },
    /// Everything is gone, in every tier.
    Cleared,
}

/// Changes by an event, per block, for consumers that know blocks by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockChange {
    /// A block is held in a tier.
    Stored(RouteKey, Tier),
    /// A block left a tier.
    Removed(RouteKey, Tier),
    /// Everything is gone, in every tier.
    Cleared,
}

/// Payload of [`CacheEvent::Stored`].
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBlocks {
    /// The blocks, each the child of the one before.
    pub blocks: Vec<BlockHash>,
    /// The block before the first; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// The blocks' tokens: `blocks.len() * block_size` of them, or none where the blocks are (or
    /// will be) introduced by another event: a change of tier, or a group that keeps only some.
    pub tokens: Vec<TokenId>,
    /// Tokens per block.
    pub block_size: u32,
    /// Content that sets a block apart besides its tokens, such as an image; see
    /// [`crate::block::media_extra`]. One element per block, or none at all.
    pub extras: Vec<Option<Arc<[u8]>>>,
    /// The tier that holds them.
    pub tier: Tier,
    /// The cache group that holds them.
    pub group: CacheGroup,
    /// Tenant salt; meaningful where `parent` is `None`.
    pub salt: Option<Arc<str>>,
    /// LoRA adapter; meaningful where `parent` is `None`.
    pub adapter: Option<Arc<str>>,
}

impl StoredBlocks {
    /// Whether the tokens fill the blocks.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        // A hostile event may have any block size; the product must not overflow.
        let num_tokens = self.blocks.len().checked_mul(self.block_size as usize);
        self.block_size > 0 && num_tokens == Some(self.tokens.len())
    }
}

/// One of the caches of a model whose layers keep different amounts of the past. The groups of a
/// replica name blocks alike; a prefix is held where each group has what it needs of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheGroup {
    /// Its number within the replica; 0 where there is only one.
    pub index: u8,
    /// Attention of its layers, which decides how much of a prefix it needs.
    pub attention: Attention,
    /// Tokens behind a block that its name covers too; see [`crate::block::BlockShape`].
    pub lookahead: u32,
}

/// Tokens that the layers of a group attend to, and so the blocks they need to continue a prefix.
///
/// Source: vLLM's kinds of KV cache specification. Kinds that we do not know are taken for
/// [`Attention::Full`], which may miss a prefix but never makes one up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// All tokens before: every block of the prefix.
    #[default]
    Full,
    /// The last `tokens` tokens, the next one included: the blocks that cover them.
    Window {
        /// Length of the window, tokens.
        tokens: u32,
    },
    /// A running state: the prefix's last block.
    State,
}
