//! LRU stack distances of a trace whose blocks come as runs: how many distinct blocks were used
//! since a block was used last, for whole pieces of chains at once.
//!
//! An id names a block and its whole prefix, so a request touches a prefix of everything it knows.
//! The blocks that an earlier request was the last to touch are the *tail* of its chain:
//!
//! ```text
//! earlier   0 1 2 3 4 5 6 7          uses 0…7; then a later one uses 0…3: the earlier one still is
//! later     0 1 2 3 a b              the last to have used 4…7, its tail, cut at 4
//! distance of block 6 = blocks of requests younger than `earlier` + (6 − cut)
//! ```
//!
//! So one age per request, not per block, orders everything: a Fenwick tree sums how many blocks
//! each age still has, and pieces (runs of ids with one record and one age) lie in a B-tree. A
//! request costs some operations per piece that it touches, however long the pieces are. Releases
//! tail first, as a prefix cache's: of one request the head is the younger.
//!
//! Under LRU a block is resident in a cache of C blocks iff its distance is below C (the replay of
//! a chain longer than the cache keeps its head, which is the same thing).
//!
//! Memory is bounded: beyond the largest number of pieces, ids are sampled in groups of
//! [`GROUP_IDS`], by a hash, at a rate that is halved as often as needed.
//!
//! Where a trace breaks the promise (an id behind two prefixes) nothing panics, and distances are
//! approximate.
//!
//! Source: Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage hierarchies",
//! IBM Systems Journal 1970; Bennett and Kruskal 1975 for the tree; Waldspurger et al., "Efficient
//! MRC Construction with SHARDS", FAST'15, for sampling. Runs instead of blocks are ours.

use std::collections::BTreeMap;

use headstart_core::{BlockRuns, Run};

use super::ages::Ages;

/// Consecutive ids that are sampled together: enough that runs stay runs.
pub const GROUP_IDS: u64 = 256;

/// Halvings after which the rate falls no further.
const HALVINGS_MAX: u32 = 40;

/// Every block ever used, ordered by last use, each with a record of the caller's.
#[derive(Clone, Debug)]
pub struct Stack<T> {
    /// By first id; pieces do not overlap.
    pieces: BTreeMap<u64, StackPiece<T>>,
    ages: Ages,
    pieces_max: usize,
    /// Distance in blocks from which on a block may be forgotten.
    depth_max: u64,
    /// The sampling rate is two to the power of minus this.
    halvings: u32,
    /// Blocks that the request under way uses for the first time.
    added: u64,
    /// Age, number and end of what it used again; kept for its memory, as the next.
    moved: Vec<(u32, u32, u64)>,
    fresh: Vec<(u64, StackPiece<T>)>,
}

#[derive(Clone, Copy, Debug)]
struct StackPiece<T> {
    count: u32,
    age: u32,
    record: T,
}

/// Consecutive blocks of a chain that a request uses, all alike until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<T> {
    /// Place of the first one in the chain, from 0.
    pub offset: u64,
    /// Number of blocks.
    pub count: u32,
    /// Their use before this one; `None` for blocks that were never used.
    pub before: Option<Before<T>>,
}

/// State of a piece before the touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before<T> {
    /// The caller's record of each of its blocks.
    pub record: T,
    /// Distinct blocks used since the first block of the piece was; of the following ones, one
    /// more each.
    pub distance: u64,
}

impl<T: Copy> Stack<T> {
    /// Nothing used yet; at most `pieces_max` pieces are kept.
    #[must_use]
    pub fn new(pieces_max: usize) -> Self {
        Self::with_depth(pieces_max, u64::MAX)
    }

    /// The same, for who asks about caches of up to `depth_max` blocks only: blocks at distances
    /// from there on are forgotten sooner or later, and then were never used.
    #[must_use]
    pub fn with_depth(pieces_max: usize, depth_max: u64) -> Self {
        Self {
            pieces: BTreeMap::new(),
            ages: Ages::default(),
            pieces_max: pieces_max.max(1),
            depth_max,
            halvings: 0,
            added: 0,
            moved: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// Returns the number of blocks that each tracked one stands for: 1 until the bound is met,
    /// then a power of two.
    #[must_use]
    pub fn weight(&self) -> u64 {
        1 << self.halvings
    }

    /// Pieces kept.
    #[must_use]
    pub fn num_pieces(&self) -> usize {
        self.pieces.len()
    }

    /// All pieces: how many blocks, and their record.
    pub fn pieces(&self) -> impl Iterator<Item = (u32, &T)> {
        let pieces = self.pieces.values();
        pieces.map(|piece| (piece.count, &piece.record))
    }

    /// Uses the blocks of one request. `visit` sees its (sampled) blocks in order, piece by
    /// piece, and says what to keep of each.
    pub fn touch(&mut self, blocks: &BlockRuns, mut visit: impl FnMut(Touch<T>) -> T) {
        // Renumbering keeps the order of ages, so no distance changes.
        if self.ages.is_full() {
            self.renumber();
        }
        let age = self.ages.open();
        let mut offset = 0;
        for run in blocks.runs() {
            for part in sampled(*run, self.halvings) {
                let place = offset + (part.start - run.start);
                self.touch_run(part, place, age, &mut visit);
            }
            // The whole run counts: places are those of the real chain, also under sampling.
            offset += u64::from(run.count);
        }
        // Only now do older ages lose blocks: all distances of a request are those from before it.
        let Self { moved, ages, added, .. } = self;
        let mut total = std::mem::take(added);
        for (from, count, end) in moved.drain(..) {
            // An id that stands twice in a chain is this request's already.
            if from != age {
                total += u64::from(count);
                ages.take(from, count, end);
            }
        }
        ages.close(age, total);
        // Last, so that one weight holds for all blocks of the request.
        self.shrink();
    }

    /// Returns the number of leading blocks of a request that an LRU cache of `capacity` blocks
    /// holds. Changes nothing. Under sampling, only the sampled blocks decide.
    #[must_use]
    pub fn matched(&self, blocks: &BlockRuns, capacity: u64) -> u64 {
        let mut offset = 0;
        for run in blocks.runs() {
            for part in sampled(*run, self.halvings) {
                let place = offset + (part.start - run.start);
                let matched = self.matched_run(part, place, capacity);
                // The first miss ends the prefix, and all before it matched.
                if matched < u64::from(part.count) {
                    return place + matched;
                }
            }
            offset += u64::from(run.count);
        }
        offset
    }

    fn matched_run(&self, run: Run, place: u64, capacity: u64) -> u64 {
        let end = run.start + u64::from(run.count);
        // A piece that begins before the run may reach into it.
        let before = self.pieces.range(..=run.start).next_back();
        let first = before.map_or(run.start, |(&start, _)| start);
        let mut next = run.start;
        for (&start, piece) in self.pieces.range(first..end) {
            let stop = start + u64::from(piece.count);
            if stop <= next {
                continue;
            }
            // Ages are sums of sampled blocks and are scaled up; a place in a chain is exact.
            let behind = place + (next - run.start);
            let distance = self.ages.younger(piece.age) * self.weight()
                + behind.saturating_sub(self.ages.cut(piece.age));
            // An id before this piece was never used, or the piece lies too deep for the cache.
            if start > next || distance >= capacity {
                break;
            }
            // Within a piece the distance grows by one per block.
            let held = capacity - distance;
            if held < stop.min(end) - next {
                return next - run.start + held;
            }
            next = stop.min(end);
        }
        next - run.start
    }

    fn touch_run(&mut self, run: Run, place: u64, age: u32, visit: &mut impl FnMut(Touch<T>) -> T) {
        let end = run.start + u64::from(run.count);
        // After both cuts, each piece lies within the run or outside of it.
        split(&mut self.pieces, run.start);
        split(&mut self.pieces, end);
        let weight = self.weight();
        let Self { pieces, ages, added, moved, fresh, .. } = self;
        // `visit` is an argument, because the loop below calls it as well.
        let mut new = |from: u64, until: u64, visit: &mut dyn FnMut(Touch<T>) -> T| {
            let count = (until - from) as u32;
            let record = visit(Touch { offset: place + (from - run.start), count, before: None });
            // The loop holds the map, so new pieces wait until it ends.
            fresh.push((from, StackPiece { count, age, record }));
            *added += until - from;
        };
        // Neighbours often have the same age, and its sum costs a walk through the tree.
        let mut known = None;
        let mut next = run.start;
        for (&start, piece) in pieces.range_mut(run.start..end) {
            if start > next {
                new(next, start, visit);
            }
            let offset = place + (start - run.start);
            let younger = match known {
                Some((of, younger)) if of == piece.age => younger,
                _ => ages.younger(piece.age),
            };
            known = Some((piece.age, younger));
            let behind = offset.saturating_sub(ages.cut(piece.age));
            let before = Before { record: piece.record, distance: younger * weight + behind };
            piece.record = visit(Touch { offset, count: piece.count, before: Some(before) });
            moved.push((piece.age, piece.count, offset + u64::from(piece.count)));
            piece.age = age;
            next = start + u64::from(piece.count);
        }
        if next < end {
            new(next, end, visit);
        }
        self.pieces.extend(self.fresh.drain(..));
    }

    /// Keeps the pieces within their bound: forgets what is too deep to be asked about, and if
    /// that is not a good part, samples less.
    fn shrink(&mut self) {
        if self.pieces.len() <= self.pieces_max {
            return;
        }
        let mut enough = self.pieces_max;
        if self.depth_max < u64::MAX {
            self.renumber();
            // Without some room to spare, the next requests would renumber all pieces again.
            enough -= self.pieces_max / 4;
        }
        while self.pieces.len() > enough && self.halvings < HALVINGS_MAX {
            self.halve();
        }
    }

    /// Samples half of what was sampled.
    fn halve(&mut self) {
        self.halvings += 1;
        let halvings = self.halvings;
        let pieces = std::mem::take(&mut self.pieces);
        // A piece may span several groups, and each of them is kept or dropped whole.
        let parts = pieces.into_iter().flat_map(|(start, piece)| {
            let run = Run { start, count: piece.count };
            sampled(run, halvings).map(move |part| {
                let count = part.count;
                (part.start, StackPiece { count, ..piece })
            })
        });
        self.pieces = parts.collect();
        self.renumber();
    }

    /// Renumbers the ages, without those that no block has any more or that are too deep.
    fn renumber(&mut self) {
        if self.depth_max < u64::MAX {
            // The sums are of sampled blocks, so the limit is scaled down to them.
            let depth_max = self.depth_max / self.weight();
            let ages = &self.ages;
            self.pieces.retain(|_, piece| ages.younger(piece.age) < depth_max);
        }
        let counts = self.pieces.values().map(|piece| (piece.age, piece.count));
        let new_ages = self.ages.renumber(counts);
        for piece in self.pieces.values_mut() {
            piece.age = new_ages[piece.age as usize];
        }
    }
}

/// Cuts the piece that holds both `at` and the id before it.
fn split<T: Copy>(pieces: &mut BTreeMap<u64, StackPiece<T>>, at: u64) {
    let Some((&start, piece)) = pieces.range_mut(..at).next_back() else {
        return;
    };
    let head = at - start;
    // The piece ends before `at`, so there is nothing to cut.
    if head >= u64::from(piece.count) {
        return;
    }
    let tail = StackPiece { count: piece.count - head as u32, ..*piece };
    piece.count = head as u32;
    pieces.insert(at, tail);
}

/// The parts of `run` that are tracked: all of it, or the groups that the hash keeps.
fn sampled(run: Run, halvings: u32) -> impl Iterator<Item = Run> {
    let end = run.start + u64::from(run.count);
    let mut next = run.start;
    std::iter::from_fn(move || {
        // Without sampling the run passes as it is, with no hash per group.
        if halvings == 0 {
            let whole = (next < end).then_some(run);
            next = end;
            return whole;
        }
        while next < end && !is_kept(next / GROUP_IDS, halvings) {
            next = group_end(next).min(end);
        }
        let start = next;
        // Groups that follow one another stay one run.
        while next < end && is_kept(next / GROUP_IDS, halvings) {
            next = group_end(next).min(end);
        }
        let count = (next - start) as u32;
        (count > 0).then_some(Run { start, count })
    })
}

fn group_end(id: u64) -> u64 {
    // The last group ends at 2^64, beyond the type.
    (id / GROUP_IDS + 1).saturating_mul(GROUP_IDS)
}

fn is_kept(group: u64, halvings: u32) -> bool {
    mix(group).leading_zeros() >= halvings
}

/// A hash whose leading bits are even: the finalizer of SplitMix64. Every bit of the result depends
/// on every bit of `key`.
#[must_use]
pub fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;
    use crate::characterize::testing;

    /// Blocks by last use, the youngest first.
    struct Slow(Vec<u64>);

    impl Slow {
        fn distances(&self, chain: &[u64]) -> Vec<Option<u64>> {
            let place = |id| self.0.iter().position(|&known| known == id);
            chain.iter().map(|&id| place(id).map(|d| d as u64)).collect()
        }

        fn touch(&mut self, chain: &[u64]) {
            self.0.retain(|id| !chain.contains(id));
            self.0.splice(0..0, chain.iter().copied());
        }
    }

    #[test]
    fn distances_and_matches_are_those_of_the_list() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let mut stack = Stack::new(usize::MAX);
            // Bounds that are met often, and change nothing within the depth.
            let mut shallow = Stack::with_depth(60, 40);
            let mut slow = Slow(Vec::new());
            let mut uses = BTreeMap::new();
            for request in testing::requests(&mut rng, 120) {
                let chain: Vec<u64> = request.blocks.iter().collect();
                let expected = slow.distances(&chain);
                for capacity in [0, 1, 7, 40, 1 << 20] {
                    let is_held = |d: &&Option<u64>| d.is_some_and(|d| d < capacity);
                    let held = expected.iter().take_while(is_held).count() as u64;
                    let matched = stack.matched(&request.blocks, capacity);
                    assert_eq!(matched, held, "seed {seed}");
                    if capacity <= 40 && shallow.weight() == 1 {
                        let matched = shallow.matched(&request.blocks, capacity);
                        assert_eq!(matched, held, "seed {seed}");
                    }
                }
                shallow.touch(&request.blocks, |_| ());
                assert!(shallow.num_pieces() <= 60);
                let mut got = Vec::new();
                stack.touch(&request.blocks, |touch: Touch<u32>| {
                    assert_eq!(touch.offset as usize, got.len());
                    for step in 0..u64::from(touch.count) {
                        got.push(touch.before.map(|before| before.distance + step));
                        let id = chain[(touch.offset + step) as usize];
                        let known = uses.entry(id).or_insert(0);
                        assert_eq!(touch.before.map_or(0, |before| before.record), *known);
                        *known += 1;
                    }
                    touch.before.map_or(0, |before| before.record) + 1
                });
                assert_eq!(got, expected, "seed {seed}");
                slow.touch(&chain);
            }
            let total: u64 = stack.pieces().map(|(count, _)| u64::from(count)).sum();
            assert_eq!(total, uses.len() as u64);
        }
    }

    #[test]
    fn pieces_are_bounded_and_what_is_sampled_stands_for_all() {
        let mut rng = Rng::new(5);
        let mut stack: Stack<()> = Stack::new(500);
        let mut distinct = 0;
        for _ in 0..2000 {
            let count = 100 + rng.below(3000) as u32;
            let start = distinct;
            distinct += u64::from(count);
            let mut blocks = BlockRuns::default();
            blocks.push_run(Run { start, count });
            stack.touch(&blocks, |_| ());
            assert!(stack.num_pieces() <= 500);
        }
        assert!(stack.weight() > 1);
        let tracked: u64 = stack.pieces().map(|(count, ())| u64::from(count)).sum();
        let ratio = (tracked * stack.weight()) as f64 / distinct as f64;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn chains_that_break_the_promise_do_not_break_the_counts() {
        let mut rng = Rng::new(9);
        let mut stack: Stack<()> = Stack::new(64);
        for _ in 0..3000 {
            let chain = (0..rng.below(20)).map(|_| rng.below(300) as u64);
            let blocks: BlockRuns = chain.collect();
            let mut seen = 0;
            stack.touch(&blocks, |touch| seen += u64::from(touch.count));
            assert!(seen <= blocks.len() as u64);
        }
    }
}
