//! Blocks as a router names them.
//!
//! ```text
//! root     r  = BLAKE3(secret; adapter, salt)          64 bits of it
//! block    k0 = XXH3(secret; r, t0 … t15)   k1 = XXH3(secret; k0, t16 … t31)   …
//! ```
//!
//! A router names every block of every prompt and of every event, so the chain is XXH3: BLAKE3
//! takes some ten times as long. A client without the secret cannot choose texts whose keys
//! collide, although XXH3 promises less there than BLAKE3. One with the secret can make the router
//! send a request to the wrong replica, which costs time and nothing else.
//!
//! Source: chained keys as in llm-d and Dynamo. Difference: the secret depends on the identity, and
//! a process that wants keys of its own adds something random to the model's name.

use twox_hash::XxHash3_64;

use super::media::{MediaOfBlocks, Medium};
use crate::TokenId;

/// Bytes of XXH3's secret, as its default one has.
const SECRET_BYTES: usize = 192;

/// Tokens per call: with the state before them they just stay an input of middle length, for which
/// XXH3 has a faster path (240 bytes).
const PIECE_TOKENS: usize = 58;

/// Ends what a lookahead adds.
const LOOKAHEAD_MARK: &[u8] = b"lookahead";

/// Name of a block as a router knows it: 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey(pub u64);

/// All that a router knows of what changes a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteIdentity<'a> {
    /// Model name as requested.
    pub model: &'a str,
    /// Tokens per block of the replicas asked about.
    pub block_size: u32,
}

/// Block size of a prompt, and the tokens that a block's name covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockShape {
    /// Tokens per block.
    pub size: u32,
    /// Tokens behind a block that its name covers too, 0 for most engines. A block is then held
    /// only for prompts that go on with these.
    ///
    /// Source: vLLM 0.33 `num_hash_lookahead_tokens`: the keys of a drafter (EAGLE, MTP) at a
    /// block's last position depend on the next tokens.
    pub lookahead: u32,
}

impl BlockShape {
    /// Blocks of this size that cover nothing else.
    #[must_use]
    pub fn of_size(size: u32) -> Self {
        Self { size, lookahead: 0 }
    }

    /// Blocks of a prompt that have a name.
    #[must_use]
    pub fn num_blocks(self, num_tokens: usize) -> usize {
        // The default shape has size 0, and nothing may divide by it.
        num_tokens.saturating_sub(self.lookahead as usize) / self.size.max(1) as usize
    }
}

/// Adapter and tenant salt, which separate a prompt from the same tokens in other requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespace<'a> {
    /// LoRA adapter.
    pub adapter: Option<&'a str>,
    /// Tenant salt.
    pub salt: Option<&'a str>,
}

/// Names blocks for the router. The namespace enters at the root only, because that is where
/// engines put it in their events. Cheap to clone, as far as a kilobyte is.
#[derive(Clone, Debug)]
pub struct RouteHasher {
    key: [u8; 32],
    secret: [u8; SECRET_BYTES],
    block_size: usize,
    lookahead: usize,
}

impl RouteHasher {
    /// A hasher for one model and block size.
    ///
    /// # Panics
    /// When the block size is 0.
    #[must_use]
    pub fn new(identity: &RouteIdentity<'_>) -> Self {
        assert!(identity.block_size > 0, "a block holds at least one token");
        let mut hasher = blake3::Hasher::new_derive_key("headstart 2026 RouteKey v2");
        hasher.update(&identity.block_size.to_le_bytes());
        super::absorb_fields(&mut hasher, &[Some(identity.model)]);
        // One extendable output gives both: the secret is longer than a plain BLAKE3 hash.
        let (mut key, mut secret) = ([0; 32], [0; SECRET_BYTES]);
        let mut bytes = hasher.finalize_xof();
        bytes.fill(&mut key);
        bytes.fill(&mut secret);
        Self { key, secret, block_size: identity.block_size as usize, lookahead: 0 }
    }

    /// The same for blocks whose names cover some tokens behind them.
    #[must_use]
    pub fn with_lookahead(self, tokens: u32) -> Self {
        let lookahead = tokens as usize;
        Self { lookahead, ..self }
    }

    /// The shape of the blocks that it names.
    #[must_use]
    pub fn shape(&self) -> BlockShape {
        BlockShape { size: self.block_size as u32, lookahead: self.lookahead as u32 }
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The key that the first block of a prompt in `namespace` follows.
    #[must_use]
    pub fn root(&self, namespace: Namespace<'_>) -> RouteKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        super::absorb_fields(&mut hasher, &[namespace.adapter, namespace.salt]);
        let hash = hasher.finalize();
        let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        RouteKey(u64::from_le_bytes(*first))
    }

    /// The key of the block `tokens` behind `parent`.
    #[must_use]
    pub fn next(&self, parent: RouteKey, tokens: &[TokenId]) -> RouteKey {
        self.next_with(parent, tokens, None)
    }

    /// The same for a block that more than its tokens sets apart, as [`super::media_extra`] and
    /// [`lookahead_extra`] write it.
    ///
    /// # Panics
    /// When the tokens are no full block.
    #[must_use]
    pub fn next_with(
        &self,
        parent: RouteKey,
        tokens: &[TokenId],
        extra: Option<&[u8]>,
    ) -> RouteKey {
        assert_eq!(tokens.len(), self.block_size, "only full blocks have a name");
        // The state starts with the parent's key, which covers the whole prefix.
        let mut state = parent.0;
        let mut bytes = [0; 8 + 4 * PIECE_TOKENS];
        for piece in tokens.chunks(PIECE_TOKENS) {
            let (before, behind) = bytes.split_at_mut(8);
            before.copy_from_slice(&state.to_le_bytes());
            for (slot, token) in behind.chunks_exact_mut(4).zip(piece) {
                slot.copy_from_slice(&token.to_le_bytes());
            }
            state = self.hash(&bytes[..8 + 4 * piece.len()]);
        }
        // One call more than a block without extra has.
        if let Some(extra) = extra.filter(|extra| !extra.is_empty()) {
            state = self.hash(&[&state.to_le_bytes(), extra, b"extra"].concat());
        }
        RouteKey(state)
    }

    /// The keys of all full blocks of `tokens`, as far as the tokens are known that they cover.
    #[must_use]
    pub fn chain(&self, namespace: Namespace<'_>, tokens: &[TokenId]) -> Vec<RouteKey> {
        self.chain_with_media(namespace, tokens, &[])
    }

    /// The same for a prompt with media, sorted by their start.
    #[must_use]
    pub fn chain_with_media(
        &self,
        namespace: Namespace<'_>,
        tokens: &[TokenId],
        media: &[Medium],
    ) -> Vec<RouteKey> {
        let mut parent = self.root(namespace);
        // Nearly all prompts; without `extra` the loop takes half the time.
        if media.is_empty() && self.lookahead == 0 {
            let blocks = tokens.chunks_exact(self.block_size).map(|block| {
                parent = self.next(parent, block);
                parent
            });
            return blocks.collect();
        }
        let blocks = self.blocks(tokens, media);
        blocks
            .map(|(block, extra)| {
                parent = self.next_with(parent, block, extra.as_deref());
                parent
            })
            .collect()
    }

    /// The blocks of a prompt, and what sets each apart besides its tokens.
    pub fn blocks<'a>(
        &self,
        tokens: &'a [TokenId],
        media: &'a [Medium],
    ) -> impl Iterator<Item = (&'a [TokenId], Option<Vec<u8>>)> {
        let Self { block_size, lookahead, .. } = *self;
        // The last blocks have no name while the tokens that they cover are not known.
        let covered = tokens.len().saturating_sub(lookahead);
        let mut media = MediaOfBlocks::new(media);
        let blocks = tokens[..covered].chunks_exact(block_size);
        blocks.enumerate().map(move |(index, block)| {
            let end = (index + 1) * block_size;
            let extra = media.extra(end - block_size, end);
            let extra = match lookahead {
                0 => extra,
                // In range: `covered` leaves `lookahead` tokens after the last block.
                _ => lookahead_extra(&extra, &tokens[end..end + lookahead]),
            };
            (block, (!extra.is_empty()).then_some(extra))
        })
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        let hash = XxHash3_64::oneshot_with_secret(&self.secret, bytes);
        hash.expect("the secret is longer than the 136 bytes that are wanted")
    }
}

/// Puts the tokens behind a block whose name covers them behind `media`, which has what else sets
/// the block apart.
#[must_use]
pub fn lookahead_extra(media: &[u8], tokens: &[TokenId]) -> Vec<u8> {
    let tokens = tokens.iter().flat_map(|token| token.to_le_bytes());
    let mut extra = media.to_vec();
    extra.extend(tokens);
    extra.extend(LOOKAHEAD_MARK);
    extra
}

/// Strips the lookahead tokens from `extra`, and so reverses [`lookahead_extra`].
#[must_use]
pub fn without_lookahead(extra: &[u8], lookahead: u32) -> &[u8] {
    let added = lookahead as usize * size_of::<TokenId>() + LOOKAHEAD_MARK.len();
    // Extras come from engines, too: one that is shorter than its mark promises leaves nothing.
    if extra.ends_with(LOOKAHEAD_MARK) {
        &extra[..extra.len().saturating_sub(added)]
    } else {
        extra
    }
}

#[cfg(test)]
mod tests {
    use super::super::media_extra;
    use super::*;

    #[test]
    fn a_name_covers_the_tokens_behind_its_block() {
        let plain = hasher(2);
        let ahead = hasher(2).with_lookahead(1);
        let chain = |tokens: &[TokenId]| ahead.chain(Namespace::default(), tokens);
        let whole = chain(&[1, 2, 3, 4, 5]);
        assert_eq!(whole.len(), 2);
        assert_eq!(chain(&[1, 2, 3, 4]), whole[..1], "the next token is not known");
        assert_eq!(chain(&[1, 2, 9, 4, 5])[0], chain(&[1, 2, 9])[0]);
        assert_ne!(chain(&[1, 2, 9])[0], whole[0]);
        assert!(!whole.contains(&plain.chain(Namespace::default(), &[1, 2])[0]));
        assert_eq!(chain(&[1, 2]), []);
        let extra = lookahead_extra(b"media", &[9]);
        assert_eq!(without_lookahead(&extra, 1), b"media");
        assert_eq!(without_lookahead(b"media", 1), b"media");
        assert_eq!(without_lookahead(b"lookahead", 9), b"");
        for length in 0..9 {
            let shape = ahead.shape();
            assert_eq!(chain(&vec![7; length]).len(), shape.num_blocks(length));
        }
    }

    fn hasher(block_size: u32) -> RouteHasher {
        RouteHasher::new(&RouteIdentity { model: "m", block_size })
    }

    #[test]
    fn the_namespace_sets_route_keys_apart_from_the_root_on() {
        let hasher = RouteHasher::new(&RouteIdentity { model: "m", block_size: 2 });
        let plain = hasher.chain(Namespace::default(), &[1, 2, 3, 4]);
        let salted = hasher.chain(Namespace { salt: Some("t"), adapter: None }, &[1, 2, 3, 4]);
        let adapted = hasher.chain(Namespace { salt: None, adapter: Some("t") }, &[1, 2, 3, 4]);
        assert!(plain[0] != salted[0] && plain[1] != salted[1] && salted[0] != adapted[0]);
    }

    #[test]
    fn an_extra_sets_a_block_and_all_behind_it_apart() {
        let hasher = RouteHasher::new(&RouteIdentity { model: "m", block_size: 2 });
        let root = hasher.root(Namespace::default());
        let extras = [
            None,
            Some(media_extra([])),
            Some(media_extra([(&b"cat"[..], 0)])),
            Some(media_extra([(&b"cat"[..], -1)])),
            Some(media_extra([(&b"dog"[..], 0)])),
        ];
        let keys: std::collections::HashSet<_> =
            extras.iter().map(|extra| hasher.next_with(root, &[1, 2], extra.as_deref())).collect();
        assert_eq!(keys.len(), extras.len() - 1, "nothing and an empty list are alike");
        assert!(keys.contains(&hasher.next(root, &[1, 2])));
    }

    #[test]
    fn every_token_of_a_block_counts_whatever_its_size() {
        for block_size in [1, 16, PIECE_TOKENS, PIECE_TOKENS + 1, 512] {
            let hasher = hasher(block_size as u32);
            let root = hasher.root(Namespace::default());
            let plain = vec![7; block_size];
            let mut keys = std::collections::HashSet::from([hasher.next(root, &plain)]);
            for changed in 0..block_size {
                let mut tokens = plain.clone();
                tokens[changed] = 8;
                assert!(keys.insert(hasher.next(root, &tokens)), "{changed} of {block_size}");
            }
            let other = hasher.next(RouteKey(root.0 ^ 1), &plain);
            assert!(keys.insert(other), "the parent counts");
        }
    }

    #[test]
    fn model_and_block_size_set_all_keys_apart() {
        let other = RouteHasher::new(&RouteIdentity { model: "n", block_size: 2 });
        let same_tokens = [hasher(2), other].map(|hasher| hasher.next(RouteKey(0), &[1, 2]));
        assert_ne!(same_tokens[0], same_tokens[1]);
        assert_ne!(hasher(1).root(Namespace::default()), hasher(2).root(Namespace::default()));
    }
}
