//! The nine steps of SGLang's figure on radix-tree operations (Zheng et al., NeurIPS'24,
//! figure 3): empty; a first chat; its second turn; a second chat under the same system prompt;
//! eviction of a leaf by memory pressure; a few-shot batch; a split for the rest of the batch; the
//! first chat returns; self-consistency sampling evicts all else.
//!
//! Where block granularity differs from the paper: there a whole leaf *node* is evicted, here
//! its blocks one by one from the tail, so that what fits of a chat survives (steps 5 and 9).

use headstart_cache::policy::Lru;
use headstart_cache::{Grow, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos};

use crate::reference::RadixCache;

/// Both structures, driven alike.
struct Tree {
    hashed: PrefixCache,
    radix: RadixCache,
}

impl Tree {
    fn new(capacity: usize) -> Self {
        let hashed = PrefixCache::new(capacity, Box::new(Lru::new(capacity)));
        Self { hashed, radix: RadixCache::new(capacity) }
    }

    /// Serves one request from start to end; returns the matched blocks and the tree's picture.
    fn serve(&mut self, ids: &[u64]) -> (usize, String) {
        let chain: Vec<_> = ids.iter().map(|&id| BlockHash::from_u64(id)).collect();
        let mut lease = self.hashed.acquire(&chain);
        let matched = lease.matched();
        assert_eq!(matched, self.radix.acquire(&chain));
        for (position, &hash) in chain.iter().enumerate().skip(matched) {
            assert_eq!(self.hashed.grow(&mut lease, 1, Nanos(0)), Grow::Done);
            assert!(self.radix.grow());
            self.hashed.commit(&mut lease, hash, &Access::default());
            self.radix.commit(&chain, position);
        }
        self.hashed.release(lease, &Access::default());
        self.radix.release(&chain, chain.len(), 0);
        self.hashed.check();
        (matched, self.radix.picture())
    }
}

/// Blocks: 1 2 = system prompt; 10.. first chat; 20.. second chat; 50.. few-shot examples;
/// 60.. questions; 80.. sampled answers.
#[test]
fn the_nine_steps() {
    let mut tree = Tree::new(12);
    let step = |tree: &mut Tree, ids: &[u64], matched: usize, picture: &str| {
        assert_eq!(tree.serve(ids), (matched, picture.to_owned()));
    };
    // 1: empty. 2: the first chat arrives and is answered: one edge.
    assert_eq!(tree.radix.picture(), "");
    step(&mut tree, &[1, 2, 10], 0, "[1 2 10]");
    // 3: its second turn extends the edge.
    step(&mut tree, &[1, 2, 10, 11], 3, "[1 2 10 11]");
    // 4: a second chat under the same system prompt splits it.
    step(&mut tree, &[1, 2, 20, 21, 22], 2, "[1 2 [10 11] [20 21 22]]");
    // 5: more turns of the second chat until memory is short: the first chat gives way. The
    // paper drops its node whole; here block 10 survives.
    step(
        &mut tree,
        &[1, 2, 20, 21, 22, 23, 24, 25, 26, 27, 28],
        5,
        "[1 2 [10] [20 21 22 23 24 25 26 27 28]]",
    );
    // 6: a few-shot query shares nothing: a node of its own, room made from the oldest leaves.
    step(&mut tree, &[50, 51, 60], 0, "[1 2 [20 21 22 23 24 25 26]] [50 51 60]");
    // 7: the rest of the batch shares the examples: the node splits.
    step(&mut tree, &[50, 51, 61], 2, "[1 2 [20 21 22 23 24 25]] [50 51 [60] [61]]");
    // 8: the first chat returns: its system prompt is still there, its own blocks are not.
    step(&mut tree, &[1, 2, 10, 11], 2, "[1 2 [10 11] [20 21 22 23]] [50 51 [60] [61]]");
    // 9: self-consistency: several samples of one question; the second chat gives way.
    step(&mut tree, &[50, 51, 60, 80], 3, "[1 2 [10 11] [20 21 22]] [50 51 [60 80] [61]]");
    step(&mut tree, &[50, 51, 60, 81], 3, "[1 2 [10 11] [20 21]] [50 51 [60 [80] [81]] [61]]");
    step(&mut tree, &[50, 51, 60, 82], 3, "[1 2 [10 11] [20]] [50 51 [60 [80] [81] [82]] [61]]");
}
