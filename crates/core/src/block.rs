//! The two names of a block.
//!
//! A *block* is `block_size` consecutive tokens; its name covers the block **and its whole
//! prefix**, because keys and values depend on every token before them:
//!
//! ```text
//! tokens   t0 … t15 │ t16 … t31 │ t32 …
//! name     h0 = H(root, t0…t15)   h1 = H(h0, t16…t31)   …
//! ```
//!
//! [`BlockHash`] names the bytes that one kind of engine would compute. Everything that
//! changes those bytes is part of its key, in one place: [`BlockIdentity`].
//!
//! [`RouteKey`] names the same tokens as far as a router can know them: it does not see an
//! upstream's weights revision or memory layout. A wrong route costs time, never correctness,
//! so 64 bits of a faster hash do.
//!
//! Source: vLLM's chained block hashes; keyed BLAKE3 instead of SHA-256 over pickled tuples, so
//! that a name cannot be forged without the identity and costs some 0.1 µs.

mod media;
mod route;

use crate::TokenId;

pub use media::{MediaOfBlocks, Medium, media_extra};
pub use route::{
    BlockShape, Namespace, RouteHasher, RouteIdentity, RouteKey, lookahead_extra, without_lookahead,
};

/// Name of a block and its whole prefix: keyed BLAKE3, 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub [u8; 16]);

impl BlockHash {
    /// A name from a number, for traces whose blocks are numbered.
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        // Big-endian, so that the name prints as the number.
        Self(u128::from(number).to_be_bytes())
    }
}

impl std::fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// All that changes a block's bytes besides its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockIdentity<'a> {
    /// Model name as served.
    pub model: &'a str,
    /// Content hash or hub revision of the weights.
    pub weights_revision: &'a str,
    /// Element type of keys and values.
    pub kv_dtype: &'a str,
    /// Order of the elements in a block.
    pub kv_layout: &'a str,
    /// LoRA adapter.
    pub adapter: Option<&'a str>,
    /// Tenant salt: equal prompts under different salts share nothing.
    pub salt: Option<&'a str>,
    /// Tokens per block.
    pub block_size: u32,
}

/// A [`BlockIdentity`] in 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdentityDigest(pub [u8; 16]);

/// A tenant in 64 bits: what its blocks are found by when all of them must go. Not its salt, and
/// not a secret: it sets blocks apart for keeping house, [`BlockHash`] does so for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantTag(pub u64);

impl TenantTag {
    /// The tag of the tenant of `salt`; 0 without one.
    #[must_use]
    pub fn of(salt: Option<&str>) -> Self {
        let Some(salt) = salt else {
            return Self::default();
        };
        let digest = blake3::derive_key("headstart 2026 TenantTag v1", salt.as_bytes());
        let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
        // 0 is the tag of requests without a salt, so no tenant gets it.
        Self(u64::from_le_bytes(*first).max(1))
    }
}

/// Names the blocks of one identity, by a chained keyed hash.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    key: [u8; 32],
    block_size: usize,
}

impl BlockHasher {
    /// A hasher keyed by `identity`.
    ///
    /// # Panics
    /// When the block size is 0.
    #[must_use]
    pub fn new(identity: &BlockIdentity<'_>) -> Self {
        assert!(identity.block_size > 0, "a block holds at least one token");
        // All of these change the bytes. Without one of them, a name would match blocks of another
        // kind.
        let fields = [
            Some(identity.model),
            Some(identity.weights_revision),
            Some(identity.kv_dtype),
            Some(identity.kv_layout),
            identity.adapter,
            identity.salt,
        ];
        // The context string separates the kinds of names: equal fields give other keys elsewhere.
        let mut hasher = blake3::Hasher::new_derive_key("headstart 2026 BlockHash v1");
        hasher.update(&identity.block_size.to_le_bytes());
        absorb_fields(&mut hasher, &fields);
        Self { key: *hasher.finalize().as_bytes(), block_size: identity.block_size as usize }
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// A digest of the whole identity, for stored bytes: bytes under another digest were computed
    /// differently.
    #[must_use]
    pub fn identity(&self) -> IdentityDigest {
        let digest = blake3::keyed_hash(&self.key, b"identity");
        IdentityDigest(first_16(&digest))
    }

    /// The name of the block `tokens` behind `parent` (`None`: at the start of the prompt).
    #[must_use]
    pub fn next(&self, parent: Option<BlockHash>, tokens: &[TokenId]) -> BlockHash {
        // With another length, a child could be read as a block at the start of a prompt.
        assert_eq!(tokens.len(), self.block_size, "only full blocks have a name");
        // A root block differs from every child by the length of what is hashed.
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        if let Some(parent) = parent {
            hasher.update(&parent.0);
        }
        // 64 tokens a piece: one call per block of usual size, no allocation.
        let mut bytes = [0u8; 256];
        for piece in tokens.chunks(64) {
            for (slot, token) in bytes.chunks_exact_mut(4).zip(piece) {
                slot.copy_from_slice(&token.to_le_bytes());
            }
            hasher.update(&bytes[..piece.len() * 4]);
        }
        BlockHash(first_16(&hasher.finalize()))
    }

    /// The names of all full blocks of `tokens`.
    #[must_use]
    pub fn chain(&self, tokens: &[TokenId]) -> Vec<BlockHash> {
        let mut parent = None;
        let blocks = tokens.chunks_exact(self.block_size());
        // One name follows from the one before, so the blocks cannot be hashed in parallel.
        blocks.map(|block| *parent.insert(self.next(parent, block))).collect()
    }
}

/// Lengths before contents, absence unlike emptiness: two field lists never collide.
fn absorb_fields(hasher: &mut blake3::Hasher, fields: &[Option<&str>]) {
    for field in fields {
        match field {
            None => hasher.update(&[0]),
            Some(text) => hasher
                .update(&[1])
                .update(&(text.len() as u64).to_le_bytes())
                .update(text.as_bytes()),
        };
    }
}

fn first_16(hash: &blake3::Hash) -> [u8; 16] {
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    *first
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: BlockIdentity<'static> = BlockIdentity {
        model: "m",
        weights_revision: "r",
        kv_dtype: "f32",
        kv_layout: "l",
        adapter: None,
        salt: None,
        block_size: 4,
    };

    #[test]
    fn a_name_covers_its_whole_prefix() {
        let hasher = BlockHasher::new(&IDENTITY);
        let a = hasher.chain(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let b = hasher.chain(&[0, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(a.len(), 2, "the tail of one token is no block");
        assert_ne!(a[0], b[0]);
        assert_ne!(a[1], b[1], "equal tokens behind another prefix");
        assert_eq!(hasher.chain(&[1, 2, 3, 4, 9, 9, 9, 9])[0], a[0]);
    }

    #[test]
    fn every_identity_field_changes_the_name() {
        let variants = [
            IDENTITY,
            BlockIdentity { model: "n", ..IDENTITY },
            BlockIdentity { weights_revision: "s", ..IDENTITY },
            BlockIdentity { kv_dtype: "bf16", ..IDENTITY },
            BlockIdentity { kv_layout: "k", ..IDENTITY },
            BlockIdentity { adapter: Some("a"), ..IDENTITY },
            BlockIdentity { salt: Some("a"), ..IDENTITY },
            BlockIdentity { salt: Some(""), ..IDENTITY },
            BlockIdentity { model: "mr", weights_revision: "", ..IDENTITY },
        ];
        let names: std::collections::HashSet<_> = variants
            .iter()
            .map(|identity| BlockHasher::new(identity).next(None, &[1, 2, 3, 4]))
            .collect();
        assert_eq!(names.len(), variants.len());
        let wider = BlockHasher::new(&BlockIdentity { block_size: 8, ..IDENTITY });
        let first = wider.chain(&[1, 2, 3, 4, 5, 6, 7, 8])[0];
        assert!(!BlockHasher::new(&IDENTITY).chain(&[1, 2, 3, 4, 5, 6, 7, 8]).contains(&first));
    }

    /// Pins the encoding: a change would orphan every stored block.
    #[test]
    fn names_are_stable() {
        let name = BlockHasher::new(&IDENTITY).next(None, &[1, 2, 3, 4]);
        let child = BlockHasher::new(&IDENTITY).next(Some(name), &[5, 6, 7, 8]);
        assert_eq!(format!("{name:?} {child:?}"), PINNED);
    }

    const PINNED: &str = "a4a386d07d80e67bc72821a87e733e5d bce51f9e822193829b4694cd9d508b1b";
}
