//! Names of the prompts that came lately, so that what prompts begin with alike is hashed once.
//!
//! Nothing is taken on trust: names are used again only where the tokens are equal, and the first
//! block's name, which is always computed, covers model, adapter and tenant.

use std::collections::HashMap;

use headstart_core::{BlockHash, BlockHasher, TokenId};

/// Tokens of the prompts that are remembered: 2 MiB.
const KNOWN_TOKENS: usize = 1 << 19;

/// The last prompt with each first block.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<BlockHash, Known>,
    /// Tokens of those.
    tokens: usize,
}

#[derive(Debug, Default)]
struct Known {
    tokens: Vec<TokenId>,
    names: Vec<BlockHash>,
}

impl Names {
    /// The names of all full blocks of `tokens`, as [`BlockHasher::chain`] computes them.
    pub(crate) fn of(&mut self, hasher: &BlockHasher, tokens: &[TokenId]) -> Vec<BlockHash> {
        let size = hasher.block_size();
        if tokens.len() < 2 * size || tokens.len() > KNOWN_TOKENS {
            return hasher.chain(tokens);
        }
        let first = hasher.next(None, &tokens[..size]);
        let mut names = Vec::with_capacity(tokens.len() / size);
        names.push(first);
        if let Some(known) = self.known.get(&first) {
            let shared = known.shared(size, tokens).max(1);
            names.extend_from_slice(&known.names[1..shared]);
        }
        for block in tokens.chunks_exact(size).skip(names.len()) {
            names.push(hasher.next(names.last().copied(), block));
        }
        self.note(first, tokens, &names);
        names
    }

    fn note(&mut self, first: BlockHash, tokens: &[TokenId], names: &[BlockHash]) {
        self.tokens += tokens.len();
        if self.tokens > KNOWN_TOKENS {
            self.known.clear();
            self.tokens = tokens.len();
        }
        let known = self.known.entry(first).or_default();
        self.tokens -= known.tokens.len();
        known.tokens.clear();
        known.tokens.extend_from_slice(tokens);
        known.names.clear();
        known.names.extend_from_slice(names);
    }
}

impl Known {
    /// Leading full blocks that it has in common with `tokens`, whose first block is the same.
    fn shared(&self, size: usize, tokens: &[TokenId]) -> usize {
        let ours = self.tokens.chunks_exact(size);
        let pairs = ours.zip(tokens.chunks_exact(size));
        pairs.take_while(|(one, other)| one == other).count()
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
        let mut names = Names::default();
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            // Few different tokens, so that prompts share beginnings and differ everywhere.
            let tokens: Vec<TokenId> = (0..rng.below(40))
                .map(|_| rng.below(8) as u32 / 7)
                .collect();
            let hasher = &hashers[rng.below(2)];
            assert_eq!(names.of(hasher, &tokens), hasher.chain(&tokens));
        }
        let known: usize = names.known.values().map(|known| known.tokens.len()).sum();
        assert_eq!(names.tokens, known);
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let hasher = hasher(None);
        let mut names = Names::default();
        for number in 0..60 {
            let tokens = vec![number; KNOWN_TOKENS / 50];
            assert_eq!(names.of(&hasher, &tokens), hasher.chain(&tokens));
            assert!(names.tokens <= KNOWN_TOKENS);
        }
        assert!(names.known.len() < 20);
        let long = vec![7; KNOWN_TOKENS + 1];
        assert_eq!(names.of(&hasher, &long), hasher.chain(&long));
        assert!(names.known.len() < 20);
    }
}
