//! How residency becomes known outside the cache.

use std::sync::Arc;

use crate::{BlockHash, Tier, TokenId};

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
    },
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
    /// The blocks' tokens: `blocks.len() * block_size` of them, or none for a mere tier change.
    pub tokens: Vec<TokenId>,
    /// Tokens per block.
    pub block_size: u32,
    /// The tier that holds them.
    pub tier: Tier,
    /// Tenant salt; meaningful where `parent` is `None`.
    pub salt: Option<Arc<str>>,
    /// LoRA adapter; meaningful where `parent` is `None`.
    pub adapter: Option<Arc<str>>,
}
