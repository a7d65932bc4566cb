//! Blocks that an engine holds of a materialized request: the chain that a replay needs to count
//! the hits of a live engine.
//!
//! A replay of the trace itself counts every id as a block, finds whole prompts, and knows no
//! answers. An engine differs in five ways:
//!
//! 1. Its blocks have its own length. A trace's id of 512 tokens is 32 blocks of 16.
//! 2. Only full blocks are cached: the cut last block of a prompt is never found.
//! 3. A prompt's last token is always computed, because its logits choose the next. So a prompt
//!    of whole blocks never finds its last one: [`HeldRequest::matchable`] is at most
//!    (tokens − 1) / block size.
//! 4. The answer is computed too, all but its last token. Its full blocks are cached and take
//!    room, but no later prompt of a trace holds them: the next turn's ids name other tokens.
//! 5. The block that is full at no time (the end of prompt and answer) takes a slot while the
//!    request runs, which is free again behind it. So an engine of C blocks keeps C − 1 from one
//!    request to the next.
//!
//! A replay gets [`HeldRequest::chain`]s, a capacity of C − 1, and hits cut to `matchable`. It then
//! finds the same blocks as an engine that runs the requests one at a time, in order. This holds
//! where each request's last block is not full, under a policy that only orders blocks (LRU, FIFO,
//! LFU). It holds closely, but not exactly, when
//!
//! - prompt and answer end on a full block: whether that block is resident decides whether a slot
//!   more is needed;
//! - the policy learns from its capacity or from being asked for a victim (S3-FIFO, SIEVE, ARC,
//!   GDSF): an engine has a slot more and asks once more;
//! - requests overlap: they pin more, and release in another order.

use headstart_core::{BlockRuns, Rng, Run, TraceRequest};

use super::TokenPrompt;

/// Ids of blocks that only one request has count up from here; all others stay below.
const UNIQUE: u64 = 1 << 63;

/// One request as an engine holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRequest {
    /// The full blocks of prompt and answer.
    pub chain: BlockRuns,
    /// Leading blocks that the request can find, if all are resident.
    pub matchable: usize,
}

/// Names the blocks of one engine for one trace.
#[derive(Clone, Debug)]
pub struct HeldChains {
    block_tokens: u64,
    block_size: u64,
    unique: u64,
}

impl HeldChains {
    /// For prompts of `block_tokens` tokens an id, on an engine of `block_size` tokens a block.
    ///
    /// # Panics
    /// When one of them is 0.
    #[must_use]
    pub fn new(block_tokens: u32, block_size: u32) -> Self {
        assert!(block_tokens > 0 && block_size > 0, "blocks hold tokens");
        Self {
            block_tokens: u64::from(block_tokens),
            block_size: u64::from(block_size),
            unique: UNIQUE,
        }
    }

    /// `prompt`, made of `request`, as the engine holds it.
    pub fn of(&mut self, request: &TraceRequest, prompt: &TokenPrompt) -> HeldRequest {
        let tokens = prompt.tokens.len() as u64;
        // A block has a name only if ids cover all of its tokens.
        let named = tokens.min(request.blocks.len() as u64 * self.block_tokens);
        let num_named = (named / self.block_size) as usize;
        // The answer's last token is sampled, but no step computes its keys and values.
        let computed = tokens + u64::from(prompt.output_tokens) - 1;
        let num_blocks = (computed / self.block_size) as usize;
        let mut chain = self.named(&request.blocks, num_named);
        while chain.len() < num_blocks {
            // A run counts in 32 bits, so a loop covers any length.
            let room = u32::try_from(num_blocks - chain.len()).unwrap_or(u32::MAX);
            let start = self.unique;
            self.unique += u64::from(room);
            chain.push_run(Run { start, count: room });
        }
        HeldRequest { chain, matchable: ((tokens - 1) / self.block_size) as usize }
    }

    /// The first `count` blocks of the tokens that `ids` stand for. As an id names all tokens
    /// before it too, the id of a block's last token and its place in there name the block.
    fn named(&self, ids: &BlockRuns, count: usize) -> BlockRuns {
        let mut blocks = BlockRuns::default();
        let mut ids = ids.iter();
        let mut id = None;
        let mut taken = 0;
        for block in 1..=count as u64 {
            let last = block * self.block_size - 1;
            // An id may be shorter than a block, so a block can take several.
            while taken <= last / self.block_tokens {
                id = ids.next();
                taken += 1;
            }
            let Some(id) = id else { break };
            let place = last % self.block_tokens / self.block_size;
            blocks.push(self.name(id, place));
        }
        blocks
    }

    /// Consecutive places have consecutive names, so that runs stay runs.
    fn name(&self, id: u64, place: u64) -> u64 {
        let places = self.block_tokens.div_ceil(self.block_size);
        let dense = id.checked_mul(places).and_then(|name| name.checked_add(place));
        match dense {
            Some(name) if name < UNIQUE => name,
            // Ids this large are hashes already.
            _ => (Rng::new(id).next_u64() ^ place) % UNIQUE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(ids: &[u64], tokens: usize, output_tokens: u32, sizes: (u32, u32)) -> HeldRequest {
        let request =
            TraceRequest { blocks: ids.iter().copied().collect(), ..TraceRequest::default() };
        let prompt =
            TokenPrompt { tokens: vec![0; tokens], output_tokens, ..TokenPrompt::default() };
        HeldChains::new(sizes.0, sizes.1).of(&request, &prompt)
    }

    /// `sizes`: tokens of an id, tokens of the engine's block. Blocks of the request's own are
    /// written as 100 and up.
    fn check(
        (ids, tokens, output_tokens): (&[u64], usize, u32),
        sizes: (u32, u32),
        expected: (&[u64], usize),
    ) {
        let held = held(ids, tokens, output_tokens, sizes);
        let shown = held.chain.iter().map(|id| match id.checked_sub(UNIQUE) {
            Some(own) => 100 + own,
            None => id,
        });
        assert_eq!((&shown.collect::<Vec<_>>()[..], held.matchable), expected);
    }

    #[test]
    fn only_full_blocks_are_held_and_the_last_token_is_computed() {
        check((&[3, 4, 9], 40, 1), (16, 16), (&[3, 4], 2));
        check((&[3, 4, 9], 48, 1), (16, 16), (&[3, 4, 9], 2));
        check((&[3, 4, 9], 33, 1), (16, 16), (&[3, 4], 2));
        check((&[3], 5, 1), (16, 16), (&[], 0));
    }

    #[test]
    fn answers_and_tokens_without_an_id_fill_blocks_of_their_own() {
        check((&[3, 4], 30, 3), (16, 16), (&[3, 100], 1));
        check((&[3, 4], 30, 2), (16, 16), (&[3], 1));
        check((&[3], 60, 6), (16, 16), (&[3, 100, 101, 102], 3));
        check((&[], 20, 1), (16, 16), (&[100], 1));
    }

    #[test]
    fn blocks_of_an_engine_are_parts_of_ids_or_several() {
        check((&[2, 5], 100, 1), (64, 16), (&[8, 9, 10, 11, 20, 21], 6));
        check((&[2, 3, 5, 6], 64, 1), (16, 32), (&[3, 6], 1));
        // 24 tokens an id, blocks of 16: each block ends in another place.
        check((&[2, 5], 48, 1), (24, 16), (&[4, 10, 11], 2));
    }

    #[test]
    fn blocks_are_equal_when_their_tokens_are() {
        for sizes in [(16, 16), (24, 16), (16, 48), (64, 16)] {
            let tokens = 4 * sizes.0 as usize;
            let one = held(&[7, 8, u64::MAX - 1, 12], tokens, 1, sizes);
            let two = held(&[7, 8, u64::MAX - 1, 13], tokens, 1, sizes);
            let same = 3 * sizes.0 / sizes.1;
            let common = one.chain.iter().zip(two.chain.iter());
            let common = common.take_while(|(a, b)| a == b).count();
            assert_eq!(common, same as usize, "{sizes:?}");
        }
    }
}
