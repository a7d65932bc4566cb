//! Events and prompts without anything that could be read back.
//!
//! ```text
//! block's tokens  ──►  keyed digest, 64 bits  ──►  as many numbers: digest, 0, 0, …
//! engine's hash   ──►  keyed digest, 64 bits
//! salt, adapter   ──►  keyed digest, as text
//! ```
//!
//! An event with such replacements is still an event: an index derives keys from it as from any
//! other, and a prompt is named by the same replacement. So hiding an event's content needs no
//! knowledge of earlier events, and only the index interprets events.
//!
//! It does not know who reads the events. Invariant: two blocks with the same tokens and extras
//! have the same digest, others do not (up to collisions in 64 bits; 32 for blocks of one token,
//! which meet only behind the same prefix). Equal blocks can so be seen to be equal, wherever in
//! a prompt they stand; without the secret, what they are cannot.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use headstart_core::block::{BlockShape, Namespace, lookahead_extra};
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, RouteHasher, RouteIdentity, RouteKey, TokenId};
use headstart_router::index::{KeyChain, Prompt, PromptKeys};

/// Block sizes whose hashers are kept: a fleet has one or two, and the rest is nonsense.
const SIZES_MAX: usize = 64;

/// Fixed parent of all digests and handles, which form no chain.
const START: RouteKey = RouteKey(0);

/// Replaces what could be read back.
pub(super) struct Pseudonymizer {
    identity: String,
    handles: RouteHasher,
    sizes: RwLock<BTreeMap<u32, Arc<OfSize>>>,
}

/// For blocks of one size.
struct OfSize {
    /// From a block's tokens to its digest.
    digest: RouteHasher,
    /// From digests to an index's keys.
    chain: RouteHasher,
}

impl Pseudonymizer {
    /// For indexes that were made with `identity` as their model's name, the secret in it.
    pub(super) fn new(identity: &str) -> Self {
        let handles = RouteHasher::new(&RouteIdentity {
            model: &format!("{identity} handles"),
            // Four words of 32 bits are the 128 bits of a handle.
            block_size: 4,
        });
        Self { identity: identity.to_owned(), handles, sizes: RwLock::default() }
    }

    /// Converts an event to its shared form. Returns `None` for an event without content; an event
    /// that no index can use stays unusable.
    pub(super) fn event(&self, event: &CacheEvent) -> Option<CacheEvent> {
        match event {
            CacheEvent::Stored(stored) if stored.blocks.is_empty() => None,
            CacheEvent::Stored(stored) => Some(CacheEvent::Stored(self.stored(stored))),
            CacheEvent::Removed { blocks, tier, group } => Some(CacheEvent::Removed {
                blocks: blocks.iter().map(|&block| self.handle(block)).collect(),
                tier: *tier,
                group: *group,
            }),
            CacheEvent::Cleared => Some(CacheEvent::Cleared),
        }
    }

    fn stored(&self, stored: &StoredBlocks) -> StoredBlocks {
        let (block_size, tokens) = if is_well_formed(stored) {
            (stored.block_size, self.digests(stored))
        } else {
            // Tokens with a block size of 0 fit no index, so the event stays unusable without its
            // tokens.
            (0, vec![0])
        };
        let namespace =
            Namespace { adapter: stored.adapter.as_deref(), salt: stored.salt.as_deref() };
        let num_extras = match stored.group.lookahead {
            0 => 0,
            _ => stored.blocks.len(),
        };
        StoredBlocks {
            blocks: stored.blocks.iter().map(|&b| self.handle(b)).collect(),
            parent: stored.parent.map(|parent| self.handle(parent)),
            tokens,
            block_size,
            extras: vec![hidden_lookahead(stored.group.lookahead); num_extras],
            tier: stored.tier,
            group: stored.group,
            // The adapter's name is part of the hidden salt.
            salt: self.salt(namespace).map(Into::into),
            adapter: None,
        }
    }

    fn digests(&self, stored: &StoredBlocks) -> Vec<TokenId> {
        if stored.tokens.is_empty() {
            return Vec::new();
        }
        let of_size = self.of_size(stored.block_size);
        let mut digests = vec![0; stored.tokens.len()];
        let size = stored.block_size as usize;
        let blocks = stored.tokens.chunks_exact(size).enumerate();
        // Well-formed: the tokens fill the blocks, so no chunk is left over.
        for ((index, tokens), digest) in blocks.zip(digests.chunks_exact_mut(size)) {
            let extra = stored.extras.get(index).and_then(Option::as_deref);
            of_size.digest(tokens, extra, digest);
        }
        digests
    }

    /// An engine's hash behind a key.
    fn handle(&self, block: BlockHash) -> BlockHash {
        let wide = u128::from_be_bytes(block.0);
        let words = [0, 32, 64, 96].map(|shift| (wide >> shift) as u32);
        BlockHash::from_u64(self.handles.next(START, &words).0)
    }

    /// Adapter and salt as one salt.
    fn salt(&self, namespace: Namespace<'_>) -> Option<String> {
        let is_plain = namespace == Namespace::default();
        (!is_plain).then(|| format!("{:016x}", self.handles.root(namespace).0))
    }

    /// Names a prompt's blocks as an index does that is given such events.
    pub(super) fn keys(
        &self,
        prompt: Prompt<'_>,
        shapes: impl Iterator<Item = BlockShape>,
    ) -> PromptKeys {
        let salt = self.salt(prompt.namespace);
        let namespace = Namespace { adapter: None, salt: salt.as_deref() };
        let chains = shapes.map(|shape| {
            let of_size = self.of_size(shape.size);
            let keys = of_size.keys(prompt, namespace, shape.lookahead);
            KeyChain { shape, keys }
        });
        PromptKeys::from_chains(prompt.tokens.len(), chains.collect())
    }

    fn of_size(&self, block_size: u32) -> Arc<OfSize> {
        let sizes = self.sizes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sizes.get(&block_size) {
            return known.clone();
        }
        // The lock cannot be upgraded: a writer that still reads would wait for itself.
        drop(sizes);
        let hasher = |model: &str| RouteHasher::new(&RouteIdentity { model, block_size });
        let new = Arc::new(OfSize {
            digest: hasher(&format!("{} digests", self.identity)),
            chain: hasher(&self.identity),
        });
        let mut sizes = self.sizes.write().unwrap_or_else(PoisonError::into_inner);
        // Sizes come from engines. A hostile one gets answers, but no more memory.
        if sizes.len() < SIZES_MAX {
            sizes.insert(block_size, new.clone());
        }
        new
    }
}

impl OfSize {
    /// Writes a block's digest into as many numbers as it has tokens; the others are 0.
    fn digest(&self, tokens: &[TokenId], extra: Option<&[u8]>, digest: &mut [TokenId]) {
        let RouteKey(bits) = self.digest.next_with(START, tokens, extra);
        digest[0] = bits as u32;
        // A block of one token has room for half of the digest only.
        if let Some(high) = digest.get_mut(1) {
            *high = (bits >> 32) as u32;
        }
    }

    fn keys(&self, prompt: Prompt<'_>, namespace: Namespace<'_>, lookahead: u32) -> Vec<RouteKey> {
        let mut key = self.chain.root(namespace);
        let mut digest = vec![0; self.digest.block_size()];
        let hidden = hidden_lookahead(lookahead);
        let hasher = self.digest.clone().with_lookahead(lookahead);
        let blocks = hasher.blocks(prompt.tokens, prompt.media);
        let next = |(tokens, extra): (&[TokenId], Option<Vec<u8>>)| {
            self.digest(tokens, extra.as_deref(), &mut digest);
            key = self.chain.next_with(key, &digest, hidden.as_deref());
            key
        };
        blocks.map(next).collect()
    }
}

/// In place of the tokens that a block's name covers behind the block, which its digest covers: an
/// event says how many there are by having them.
fn hidden_lookahead(lookahead: u32) -> Option<Arc<[u8]>> {
    let tokens = vec![0; lookahead as usize];
    (lookahead > 0).then(|| lookahead_extra(&[], &tokens).into())
}

/// Whether the tokens fill the blocks, or come with another event.
pub(super) fn is_well_formed(stored: &StoredBlocks) -> bool {
    stored.tokens.is_empty() || stored.is_filled()
}
