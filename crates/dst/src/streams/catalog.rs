//! Contents of blocks: their tokens, their whole prefix, and the router's name for them.
//!
//! This is the independent walk that an index is checked against: keys are computed here from a
//! prompt's tokens, never from an event or an engine's hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use headstart_core::block::{Namespace, media_extra};
use headstart_core::{RouteHasher, RouteIdentity, RouteKey, TokenId};

/// The model that everybody serves.
pub const MODEL: &str = "simulated";

/// The block sizes that engines may have, tokens.
pub const BLOCK_SIZES: [u32; 4] = [1, 2, 3, 4];

/// Stands for a block: for its tokens and for all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNo(pub u32);

/// The block of a [`BlockNo`].
#[derive(Clone, Debug)]
pub struct Block {
    /// The block before; `None` at the start of a prompt.
    pub parent: Option<BlockNo>,
    /// Blocks before it.
    pub depth: u32,
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Further bytes in its key, for an image.
    pub extra: Option<Arc<[u8]>>,
    /// Adapter and salt of its prompt.
    pub namespace: Namespace<'static>,
    /// The router's name for it.
    pub key: RouteKey,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptText {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Adapter and salt of the prompt.
    pub namespace: Namespace<'static>,
    /// The token at which there is an image, if there is one.
    pub image: Option<usize>,
}

/// All blocks of a simulation, of all sizes.
#[derive(Debug)]
pub struct Catalog {
    hashers: Vec<RouteHasher>,
    blocks: Vec<Block>,
    numbers: HashMap<RouteKey, BlockNo, BuildHasherDefault<KeyHasher>>,
}

/// Keys are hashes already.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        // A key is hashed as one `u64`; another way would mean that its type has changed.
        unreachable!("a key is one number");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl Default for Catalog {
    fn default() -> Self {
        let hashers = BLOCK_SIZES.map(|block_size| {
            let model = MODEL;
            RouteHasher::new(&RouteIdentity { model, block_size })
        });
        Self { hashers: hashers.into(), blocks: Vec::new(), numbers: HashMap::default() }
    }
}

impl Catalog {
    /// The full blocks of `text`.
    ///
    /// # Panics
    /// When `block_size` is not in [`BLOCK_SIZES`].
    pub fn chain(&mut self, text: &PromptText, block_size: u32) -> Vec<BlockNo> {
        let at = BLOCK_SIZES.iter().position(|&size| size == block_size);
        let hasher = self.hashers[at.expect("a listed block size")].clone();
        let mut key = hasher.root(text.namespace);
        let mut parent = None;
        let mut chain = Vec::new();
        let blocks = text.tokens.chunks_exact(block_size as usize);
        for (depth, tokens) in blocks.enumerate() {
            let start = depth * block_size as usize;
            let extra = extra(text.image, start..start + tokens.len());
            key = hasher.next_with(key, tokens, extra.as_deref());
            let number = self.number(key, || Block {
                parent,
                depth: depth as u32,
                tokens: tokens.to_vec(),
                extra: extra.clone(),
                namespace: text.namespace,
                key,
            });
            parent = Some(number);
            chain.push(number);
        }
        chain
    }

    /// Returns the block of a number.
    #[must_use]
    pub fn block(&self, number: BlockNo) -> &Block {
        &self.blocks[number.0 as usize]
    }

    /// The block that a router calls so.
    #[must_use]
    pub fn find(&self, key: RouteKey) -> Option<BlockNo> {
        self.numbers.get(&key).copied()
    }

    /// The block and all before it, from the last to the first.
    pub fn prefix(&self, number: BlockNo) -> impl Iterator<Item = BlockNo> {
        std::iter::successors(Some(number), |&number| self.block(number).parent)
    }

    fn number(&mut self, key: RouteKey, block: impl FnOnce() -> Block) -> BlockNo {
        let next = BlockNo(self.blocks.len() as u32);
        let blocks = &mut self.blocks;
        // Equal prefixes get equal numbers, whichever prompt names them first.
        *self.numbers.entry(key).or_insert_with(|| {
            blocks.push(block());
            next
        })
    }
}

/// The image belongs to the block that it begins in, and to all behind it through the chain.
fn extra(image: Option<usize>, tokens: std::ops::Range<usize>) -> Option<Arc<[u8]>> {
    let at = image.filter(|at| tokens.contains(at))?;
    let offset = (at - tokens.start) as i64;
    Some(media_extra([(&b"image"[..], offset)]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: &[TokenId], image: Option<usize>) -> PromptText {
        PromptText { tokens: tokens.to_vec(), namespace: Namespace::default(), image }
    }

    #[test]
    fn blocks_are_shared_up_to_where_texts_part() {
        let mut catalog = Catalog::default();
        let first = catalog.chain(&text(&[1, 2, 3, 4, 5], None), 2);
        let second = catalog.chain(&text(&[1, 2, 3, 9], None), 2);
        assert_eq!((first.len(), second.len()), (2, 2));
        assert!(first[0] == second[0] && first[1] != second[1]);
        assert!(catalog.prefix(first[1]).eq([first[1], first[0]]));
        let key = catalog.block(first[1]).key;
        assert_eq!(catalog.find(key), Some(first[1]));
        let pictured = catalog.chain(&text(&[1, 2, 3, 4], Some(2)), 2);
        assert!(pictured[0] == first[0] && pictured[1] != first[1]);
        assert_ne!(catalog.chain(&text(&[1], None), 1)[0], first[0]);
    }
}
