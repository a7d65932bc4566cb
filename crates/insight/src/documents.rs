//! Reuse without order: which tokens of a prompt stood in an earlier one, wherever that was.
//!
//! A prefix cache serves what is equal from the front. Documents that are retrieved in another
//! order are equal further in; schemes that reuse keys and values out of place (CacheBlend,
//! EuroSys'25; EPIC, ICML'25) would serve them at some loss. This counts what there would be to
//! serve: a bound from above, because not every repeated run of tokens is a document.
//!
//! Tokens are cut into chunks where a rolling hash over the last 16 tokens says so, so that equal
//! texts are cut alike wherever they stand. Source: content-defined chunking as in LBFS (SOSP'01),
//! with the gear hash of FastCDC (ATC'16), here over tokens.
//!
//! Memory: [`CHUNKS_MAX`] keyed hashes of chunks; the older half is forgotten when it is full.

use std::collections::HashSet;

use headstart_core::TokenId;

/// Chunks that are remembered: some 300 million tokens that are all different; 64 MiB.
pub const CHUNKS_MAX: usize = 1 << 22;

/// Least tokens of a chunk: shorter runs repeat by chance.
const CHUNK_MIN: usize = 16;

/// Most tokens of a chunk.
const CHUNK_MAX: usize = 256;

/// Beyond the least length, one token in 2 to this power is a boundary on average.
const BOUNDARY_BITS: u32 = 5;

/// Bits by which a token moves the rolling hash: 16 tokens move it out.
const STEP: u32 = 4;

/// A bounded set of the chunks of earlier prompts, by hash.
#[derive(Clone, Debug)]
pub struct Documents {
    key: u64,
    younger: HashSet<u64>,
    older: HashSet<u64>,
    chunks_max: usize,
    forgotten: u64,
}

impl Documents {
    /// Nothing yet; `key` sets its hashes apart from another's.
    #[must_use]
    pub fn new(key: u64) -> Self {
        Self::with_chunks_max(key, CHUNKS_MAX)
    }

    /// The same with another bound on the chunks.
    #[must_use]
    pub fn with_chunks_max(key: u64, chunks_max: usize) -> Self {
        Self { key, younger: HashSet::new(), older: HashSet::new(), chunks_max, forgotten: 0 }
    }

    /// Chunks that are remembered now.
    #[must_use]
    pub fn num_chunks(&self) -> usize {
        self.younger.len() + self.older.len()
    }

    /// Chunks that went because there was no more room; one that came again and went again counts
    /// twice. While there are none, nothing was missed.
    #[must_use]
    pub fn num_forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Adds a prompt, of which a prefix cache serves the first `prefix` tokens, and returns how
    /// many of the others are in chunks that an earlier prompt of the same `namespace` (salt,
    /// adapter and model) held.
    pub fn add(&mut self, namespace: u64, tokens: &[TokenId], prefix: usize) -> u64 {
        // The namespace is part of the key, so that equal texts of two tenants get different
        // hashes.
        let key = self.key ^ mixed(namespace);
        let chunks: Vec<(usize, usize, u64)> = chunks(key, tokens).collect();
        let mut again = 0;
        // All look-ups come before the first insertion: a prompt that repeats itself reuses
        // nothing.
        for &(start, end, hash) in &chunks {
            // A chunk that starts inside the cached prefix does not count, even where it ends after
            // it.
            if start >= prefix && (self.younger.contains(&hash) || self.older.contains(&hash)) {
                again += (end - start) as u64;
            }
        }
        for (_, _, hash) in chunks {
            self.remember(hash);
        }
        again
    }

    fn remember(&mut self, hash: u64) {
        let mut gone = HashSet::new();
        // Two halves bound the memory without a time per chunk: the older half goes as a whole.
        if self.younger.len() >= self.chunks_max / 2 {
            gone = std::mem::replace(&mut self.older, std::mem::take(&mut self.younger));
        }
        self.younger.insert(hash);
        // What came again meanwhile is remembered all the same.
        let is_lost = |hash: u64| !self.younger.contains(&hash) && !self.older.contains(&hash);
        let lost = gone.into_iter().filter(|&hash| is_lost(hash)).count();
        self.forgotten += lost as u64;
    }
}

/// Start, end and hash of each chunk. The last one, which ends with the prompt and not with its
/// content, counts where it is long enough.
fn chunks(key: u64, tokens: &[TokenId]) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        // The end of a prompt is too short to be a chunk: it would repeat by chance.
        if tokens.len() - start < CHUNK_MIN {
            return None;
        }
        let (mut rolling, mut hash) = (0u64, key);
        while at < tokens.len() {
            // Ids have few bits: unmixed, only a few of the last 16 tokens would reach the boundary
            // bits.
            let token = mixed(u64::from(tokens[at]) ^ key);
            rolling = (rolling << STEP).wrapping_add(token);
            hash = mixed(hash ^ token);
            at += 1;
            // The uppermost bits depend on all of the last 16 tokens, the lowest ones on the last
            // token only.
            let is_boundary = rolling >> (u64::BITS - BOUNDARY_BITS) == 0;
            let length = at - start;
            // Text that repeats one token may never have a boundary; the limit still ends its
            // chunks.
            if (length >= CHUNK_MIN && is_boundary) || length == CHUNK_MAX {
                break;
            }
        }
        Some((start, at, hash))
    })
}

/// A permutation of 64-bit numbers, whose leading bits are even, also of small numbers. Source:
/// the finalizer of SplitMix64 (Steele et al., OOPSLA'14).
pub(crate) fn mixed(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn text(rng: &mut Rng, tokens: usize) -> Vec<TokenId> {
        (0..tokens).map(|_| rng.below(4000) as TokenId).collect()
    }

    #[test]
    fn documents_in_another_order_are_found_again() {
        let mut rng = Rng::new(1);
        let documents: Vec<_> = (0..6).map(|_| text(&mut rng, 1000)).collect();
        let system = text(&mut rng, 200);
        let mut known = Documents::new(7);
        let prompt = |order: &[usize]| {
            let parts = order.iter().map(|&index| documents[index].as_slice());
            [&[&system[..]], &parts.collect::<Vec<_>>()[..]].concat().concat()
        };
        assert_eq!(known.add(1, &prompt(&[0, 1, 2]), 0), 0, "nothing came before");
        // Behind the shared front all of documents 2 and 0 but what is cut at their ends.
        let again = known.add(1, &prompt(&[2, 0, 5]), 200);
        assert!((1700..=2000).contains(&again), "{again}");
        assert_eq!(known.add(1, &prompt(&[2, 0, 5]), 3200), 0, "all of it is served in order");
        let again = known.add(1, &prompt(&[5, 2]), 200);
        assert!((1700..=2000).contains(&again), "{again}");
    }

    #[test]
    fn another_namespace_shares_nothing() {
        let mut known = Documents::new(7);
        let prompt = text(&mut Rng::new(6), 1000);
        assert_eq!(known.add(1, &prompt, 0), 0);
        assert_eq!(known.add(2, &prompt, 0), 0, "of another tenant");
        assert!(known.add(1, &prompt, 0) > 900);
    }

    #[test]
    fn what_never_came_is_not_found() {
        let mut rng = Rng::new(2);
        let mut known = Documents::new(7);
        let again: u64 = (0..50).map(|_| known.add(1, &text(&mut rng, 2000), 0)).sum();
        assert_eq!(again, 0);
        assert_eq!(known.add(1, &[1; CHUNK_MIN - 1], 0), 0, "too short to say");
    }

    /// Against a look at every earlier prompt for every chunk.
    #[test]
    fn it_counts_what_a_search_through_all_prompts_counts() {
        let mut rng = Rng::new(3);
        let pieces: Vec<_> = (0..12).map(|_| text(&mut rng, 60)).collect();
        let mut known = Documents::new(9);
        let key = 9 ^ mixed(1);
        let mut prompts: Vec<Vec<TokenId>> = Vec::new();
        for round in 0..120 {
            let count = 1 + rng.below(9);
            let parts: Vec<_> = (0..count).map(|_| &pieces[rng.below(12)][..]).collect();
            let prompt = parts.concat();
            let prefix = rng.below(prompt.len());
            let held = |chunk: &[TokenId]| {
                prompts.iter().any(|earlier| {
                    let mut chunks = chunks(key, earlier);
                    chunks.any(|(start, end, _)| &earlier[start..end] == chunk)
                })
            };
            let chunks = chunks(key, &prompt).filter(|&(start, _, _)| start >= prefix);
            let again = chunks.filter(|&(start, end, _)| held(&prompt[start..end]));
            let expected: u64 = again.map(|(start, end, _)| (end - start) as u64).sum();
            assert_eq!(known.add(1, &prompt, prefix), expected, "round {round}");
            prompts.push(prompt);
        }
    }

    #[test]
    fn nothing_is_forgotten_before_the_memory_is_full() {
        let mut known = Documents::with_chunks_max(7, 64);
        (0..64).for_each(|hash| known.remember(hash));
        assert_eq!((known.num_chunks(), known.num_forgotten()), (64, 0));
        known.remember(64);
        assert_eq!((known.num_chunks(), known.num_forgotten()), (33, 32));
    }

    /// Against the difference between what was held before and after.
    #[test]
    fn what_is_forgotten_is_counted() {
        let mut rng = Rng::new(5);
        let mut known = Documents::with_chunks_max(7, 64);
        let held = |known: &Documents| -> HashSet<u64> {
            known.younger.union(&known.older).copied().collect()
        };
        let mut expected = 0;
        for _ in 0..2000 {
            let before = held(&known);
            known.remember(rng.below(100) as u64);
            expected += before.difference(&held(&known)).count() as u64;
            assert_eq!(known.num_forgotten(), expected);
        }
        assert!(expected > 100, "{expected}");
    }

    #[test]
    fn memory_is_bounded_and_what_is_recent_stays() {
        let mut rng = Rng::new(4);
        let mut known = Documents::with_chunks_max(7, 64);
        let first = text(&mut rng, 400);
        known.add(1, &first, 0);
        assert!(known.add(1, &first, 0) > 300);
        for _ in 0..40 {
            known.add(1, &text(&mut rng, 400), 0);
            assert!(known.younger.len() + known.older.len() <= 64);
        }
        assert_eq!(known.add(1, &first, 0), 0, "forgotten");
    }
}
