//! Names of the prompts that came lately, so that what the next ones begin with alike is not hashed
//! again.
//!
//! Nothing is taken on trust: names are used again only where the tokens are equal, and the first
//! block's name, which is always computed, covers model, adapter and tenant.

use std::collections::HashMap;

use headstart_core::{BlockHash, BlockHasher, TokenId};

/// Most memory for the prompts that are remembered, in bytes.
const KNOWN_BYTES: usize = 4 << 20;

/// Approximate memory of a prompt without its tokens and names, bytes.
const ENTRY_BYTES: usize = 100;

/// The last prompt with each first block.
#[derive(Debug, Default)]
pub(crate) struct BlockNameCache {
    known: HashMap<BlockHash, RememberedPrompt>,
    /// Memory for those.
    bytes: usize,
}

#[derive(Debug)]
struct RememberedPrompt {
    tokens: Box<[TokenId]>,
    names: Box<[BlockHash]>,
}

impl BlockNameCache {
    /// The names of all full blocks of `tokens`, as [`BlockHasher::chain`] computes them.
    pub(crate) fn of(&mut self, hasher: &BlockHasher, tokens: &[TokenId]) -> Vec<BlockHash> {
        let size = hasher.block_size();
        // The first block's name is always computed, so remembering a single block saves nothing.
        if tokens.len() < 2 * size {
            return hasher.chain(tokens);
        }
        let first = hasher.next(None, &tokens[..size]);
        let mut names = Vec::with_capacity(tokens.len() / size);
        names.push(first);
        if let Some(known) = self.known.get(&first) {
            names.extend_from_slice(&known.names[1..known.shared(size, tokens)]);
        }
        for block in tokens.chunks_exact(size).skip(names.len()) {
            names.push(hasher.next(names.last().copied(), block));
        }
        self.note(first, tokens, &names);
        names
    }

    fn note(&mut self, first: BlockHash, tokens: &[TokenId], names: &[BlockHash]) {
        let bytes = ENTRY_BYTES + size_of_val(tokens) + size_of_val(names);
        if let Some(before) = self.known.remove(&first) {
            self.bytes -= before.bytes();
        }
        if self.bytes + bytes > KNOWN_BYTES {
            // All at once, without an order of use: prompts in use come back with the next request.
            *self = Self::default();
        }
        // A prompt that alone exceeds the limit is not remembered.
        if bytes <= KNOWN_BYTES {
            self.bytes += bytes;
            let (tokens, names) = (tokens.into(), names.into());
            self.known.insert(first, RememberedPrompt { tokens, names });
        }
    }
}

impl RememberedPrompt {
    /// Leading full blocks that it has in common with `tokens`, whose first block is the same.
    fn shared(&self, size: usize, tokens: &[TokenId]) -> usize {
        let ours = self.tokens.chunks_exact(size);
        let pairs = ours.zip(tokens.chunks_exact(size));
        let same = pairs.take_while(|(one, other)| one == other).count();
        // The first blocks have one name. The bound keeps the caller's slice valid if that is a
        // collision.
        same.max(1)
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + size_of_val(&*self.tokens) + size_of_val(&*self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::{BlockIdentity, Rng};

    fn hasher(salt: Option<&str>) -> BlockHasher {
        BlockHasher::new(&BlockIdentity {
            model: "m",
            weights_revision: "",
            kv_dtype: "",
            kv_layout: "",
            adapter: None,
            salt,
            block_size: 4,
        })
    }

    #[test]
    fn names_are_those_of_the_hasher_whatever_came_before() {
        let hashers = [hasher(None), hasher(Some("a"))];
        let mut names = BlockNameCache::default();
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            // Few different tokens, so that prompts share beginnings and differ everywhere.
            let tokens: Vec<TokenId> =
                (0..rng.below(40)).map(|_| rng.below(8) as u32 / 7).collect();
            let hasher = &hashers[rng.below(2)];
            assert_eq!(names.of(hasher, &tokens), hasher.chain(&tokens));
        }
        names.check();
    }

    impl BlockNameCache {
        fn check(&self) {
            let bytes: usize = self.known.values().map(RememberedPrompt::bytes).sum();
            assert_eq!(self.bytes, bytes);
            assert!(bytes <= KNOWN_BYTES);
        }
    }

    #[test]
    fn what_prompts_share_is_found() {
        let hasher = hasher(None);
        let mut names = BlockNameCache::default();
        let first: Vec<TokenId> = (0..20).collect();
        let known = |names: &BlockNameCache, tokens: &[TokenId]| {
            let known = names.known.values().next().expect("one is known");
            known.shared(4, tokens)
        };
        names.of(&hasher, &first);
        assert_eq!(known(&names, &first), 5);
        assert_eq!(known(&names, &first[..11]), 2);
        let mut other = first.clone();
        other[9] = 0;
        assert_eq!(known(&names, &other), 2);
        // What is known is used: a name put there is found again.
        let known = names.known.values_mut().next().expect("one is known");
        known.names[1] = BlockHash([7; 16]);
        assert_eq!(names.of(&hasher, &other)[1], BlockHash([7; 16]));
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let hasher = hasher(None);
        let mut names = BlockNameCache::default();
        let most = KNOWN_BYTES / size_of::<TokenId>();
        let mut largest = 0;
        for number in 0..60 {
            for length in [most / 30, 9, most / 30] {
                let tokens = vec![number; length];
                assert_eq!(names.of(&hasher, &tokens), hasher.chain(&tokens));
                names.check();
                largest = largest.max(names.bytes);
            }
        }
        assert!(largest > KNOWN_BYTES / 10);
        let long = vec![7; most];
        assert_eq!(names.of(&hasher, &long), hasher.chain(&long));
        names.check();
    }
}
