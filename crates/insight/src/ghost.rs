//! Estimated hits at other cache sizes: LRU prefix caches of many sizes at once, none of which
//! stores a block.
//!
//! ```text
//! chain of keys ─┬─ Track: an LRU stack down to the largest size; depth of each block
//!                │          hit at size C  ⇔  depth < C
//!                └─ RecentKeySet: used before at all   (the cache without end)
//!                       both: by minute, for the last hour; and in all
//! ```
//!
//! The caches are those of replay: a request matches the longest resident prefix of its chain,
//! caches the rest, and releases tail first. A block then is resident under LRU iff fewer than C
//! distinct blocks were used since its last use: the victim is always the deepest one, a head is
//! never deeper than its tail, and a chain longer than the cache leaves its head. So one stack
//! tells all sizes, exactly, and each block apart from all others.
//!
//! Which makes sampling sound: only blocks whose key a hash picks are followed, depths and counts
//! are multiplied by what each stands for, and the rate is halved whenever there are more than
//! [`GhostConfig::blocks_max`]. The stack ends at the largest size, so a cache smaller than the
//! bound is followed exactly. What the sample has too much or too little of all look-ups is put
//! down to blocks that are used all the time (a shared head), and set right at the smallest size.
//!
//! It does not know who holds what in truth: one `Ghost` is one cache. For replicas keep one
//! each, fed with what was routed to it; for "one cache for all", feed one with everything.
//!
//! Memory: some 50 bytes a followed block of the stack, at most 36 of those seen, and 61 counts a
//! size: about 3 MiB at the defaults. Cost: a multiplication for a block that is not followed,
//! some tens of nanoseconds for one that is, and a millisecond once in [`GhostConfig::blocks_max`]
//! followed ones, when their places are moved together.
//!
//! Source: Mattson et al. 1970 for stack distances; Waldspurger, Park, Garthwaite and Ahmad,
//! "Efficient MRC Construction with SHARDS", FAST'15, for sampling, the falling rate and the
//! correction. Here the rate is a power of two, and the stack is cut at the largest size.

mod order;
mod sampling;
mod seen;
mod track;
mod window;

use std::time::Duration;

use headstart_core::Nanos;

use seen::RecentKeySet;
use track::{Depth, Track};
use window::{RequestCounts, Window, WindowCounts};

/// Followed blocks at the defaults: estimates are within a point of exact replay on the traces
/// that we know.
pub const BLOCKS_MAX: usize = 1 << 15;

/// Followed blocks that a live gateway looks up in five seconds, at most, of each ghost while it
/// follows more than a handful.
pub const LOOKUPS_MAX: u64 = 1 << 12;

/// The time for which look-ups are bounded.
const SLOT_NS: u64 = 5_000_000_000;

/// So few are followed however often they are looked up.
pub const FOLLOWED_MIN: usize = 32;

/// Sizes of the caches, and bounds on memory.
#[derive(Clone, Debug, PartialEq)]
pub struct GhostConfig {
    /// Sizes in blocks; sorted, and each once, by [`Ghost::new`].
    pub capacities: Vec<u64>,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Most blocks that are followed of the stack, and most that are remembered as seen.
    pub blocks_max: usize,
    /// Time since its last use after which the infinite cache may forget a block; after twice that,
    /// it does.
    pub memory: Duration,
}

impl GhostConfig {
    /// Returns settings for a running gateway: sizes from a quarter of `capacity` blocks to eight
    /// times it, 1.25 and 2 among them, and a memory of a day.
    #[must_use]
    pub fn around(capacity: u64, block_tokens: u32) -> Self {
        let quarters = [1, 2, 3, 4, 5, 6, 8, 12, 16, 32];
        Self {
            capacities: quarters.map(|quarter| capacity.saturating_mul(quarter) / 4).to_vec(),
            block_tokens,
            blocks_max: BLOCKS_MAX,
            memory: Duration::from_secs(24 * 3600),
        }
    }

    /// A whole curve for an analysis: every size that is a power of two or halfway between two
    /// (in ratio, nearly), up to `capacity`.
    #[must_use]
    pub fn curve(capacity: u64, block_tokens: u32) -> Self {
        // The range ends early enough that `size + size / 2` fits 64 bits.
        let powers = (0..u64::BITS - 2).map(|power| 1u64 << power);
        let sizes = powers.flat_map(|size| [size, size + size / 2]);
        let mut capacities: Vec<u64> = sizes.take_while(|&size| size < capacity).collect();
        capacities.push(capacity);
        Self { capacities, block_tokens, blocks_max: BLOCKS_MAX, memory: Duration::MAX }
    }
}

/// Caches of many sizes that hold nothing.
#[derive(Clone, Debug)]
pub struct Ghost {
    settings: GhostConfig,
    track: Track,
    seen: RecentKeySet,
    window: Window,
    total: WindowCounts,
    /// Counts of the current request, and its blocks that the stack or the infinite cache follows;
    /// both kept to reuse their memory.
    counts: RequestCounts,
    followed: Vec<u64>,
    /// Most followed blocks that are looked up in a slot of time.
    lookups_max: u64,
    /// Lookups in the current slot, or since the rate last fell in it.
    lookups: u64,
    slot: u64,
}

/// Estimated hits of all cache sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Requests counted.
    pub requests: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their prompt tokens.
    pub tokens: u64,
    /// Share of blocks that the stack follows now: 1 is exact.
    pub rate: f64,
    /// Share of blocks that the cache without end follows now: 1 is exact.
    pub infinite_rate: f64,
    /// Blocks followed now, of both.
    pub followed: u64,
    /// By size, the smallest first.
    pub points: Vec<Point>,
    /// Blocks used before of all blocks: no cache, of whatever size, could have hit more.
    pub infinite_block_hit_rate: f64,
    /// Tokens of these blocks of all prompt tokens.
    pub infinite_token_hit_rate: f64,
}

/// Estimated hits of one cache size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Its size in blocks.
    pub capacity_blocks: u64,
    /// Blocks hit, as far as the sample tells.
    pub hit_blocks: f64,
    /// Of all blocks of requests.
    pub block_hit_rate: f64,
    /// Tokens of blocks hit, of all prompt tokens.
    pub token_hit_rate: f64,
}

impl Estimate {
    /// The point of a size that was asked for.
    #[must_use]
    pub fn at(&self, capacity_blocks: u64) -> Option<&Point> {
        let is_it = |point: &&Point| point.capacity_blocks == capacity_blocks;
        self.points.iter().find(is_it)
    }
}

impl Ghost {
    /// Empty caches.
    #[must_use]
    pub fn new(mut settings: GhostConfig) -> Self {
        // `record` finds the smallest size that hits by binary search.
        settings.capacities.sort_unstable();
        settings.capacities.dedup();
        let sizes = settings.capacities.len();
        let largest = settings.capacities.last().copied().unwrap_or(0);
        Self {
            track: Track::new(largest, settings.blocks_max),
            seen: RecentKeySet::new(settings.blocks_max, settings.memory),
            window: Window::new(sizes),
            total: WindowCounts::new(sizes),
            counts: RequestCounts::default(),
            followed: Vec::new(),
            lookups_max: u64::MAX,
            lookups: 0,
            slot: 0,
            settings,
        }
    }

    /// Bounds the cost: the rate is halved whenever more followed blocks than this are looked up in
    /// five seconds, while at least [`FOLLOWED_MIN`] are left to follow. An hour at the bound of
    /// [`LOOKUPS_MAX`] still is three million look-ups.
    #[must_use]
    pub fn with_lookups_max(mut self, in_five_seconds: u64) -> Self {
        self.lookups_max = in_five_seconds;
        self
    }

    /// Serves a request: `chain` names its blocks in order, each key the block and all before it;
    /// the prompt has `prompt_tokens`. A block more or less in the chain (the partial last one)
    /// is the caller's choice; token hit rates count whole blocks.
    pub fn record(&mut self, chain: &[u64], prompt_tokens: u32, now: Nanos) {
        let counts = &mut self.counts;
        counts.hits.clear();
        counts.blocks = chain.len() as u64;
        counts.tokens = u64::from(prompt_tokens);
        (counts.near, counts.far, counts.seen) = (0, 0, 0);
        let capacities = &self.settings.capacities;
        let slot = now.0 / SLOT_NS;
        // Any other slot starts a new count, also an earlier one.
        if self.slot != slot {
            (self.slot, self.lookups) = (slot, 0);
        }
        // Most blocks cost no more than this.
        let rate = self.track.rate().larger(self.seen.rate());
        self.followed.clear();
        let followed = chain.iter().filter(|&&key| rate.keeps(key));
        self.followed.extend(followed);
        let lookups = &mut self.lookups;
        self.track.touch(&self.followed, |depth, weight| {
            *lookups += 1;
            counts.near += weight;
            if let Depth::At(depth) = depth {
                // A cache hits at a depth below its size: the first such size is noted, and the
                // larger ones hit too.
                let size = capacities.partition_point(|&capacity| capacity <= depth);
                // Deeper than the largest size: all sizes miss.
                if size < capacities.len() {
                    counts.hits.push((size, weight));
                }
            }
        });
        self.seen.touch(&self.followed, now, |is_seen, weight| {
            counts.far += weight;
            counts.seen += if is_seen { weight } else { 0 };
        });
        self.total.count(counts);
        self.window.add(counts, now);
        // Halving leaves about half of the blocks, so some `FOLLOWED_MIN` or more remain.
        if self.lookups > self.lookups_max && self.track.len() >= 2 * FOLLOWED_MIN {
            // Both are halved: the look-ups of a chain follow the larger of the two rates.
            self.track.halve();
            self.seen.halve();
            self.lookups = 0;
        }
    }

    /// Empties the caches, as a restart does; what was counted stays.
    pub fn clear(&mut self, now: Nanos) {
        self.track.clear();
        self.seen.clear(now);
    }

    /// Returns the estimate for the minute of `now` and the 59 before it.
    #[must_use]
    pub fn last_hour(&self, now: Nanos) -> Estimate {
        self.estimate(&self.window.last_hour(now))
    }

    /// Returns the estimate since the start.
    #[must_use]
    pub fn total(&self) -> Estimate {
        self.estimate(&self.total)
    }

    fn estimate(&self, counts: &WindowCounts) -> Estimate {
        let blocks = counts.blocks as f64;
        let rate = |hits: f64| if blocks > 0.0 { hits / blocks } else { 0.0 };
        let tokens = |hits: f64| {
            let hit = hits * f64::from(self.settings.block_tokens);
            let all = counts.tokens as f64;
            // A chain may include the partial last block, which counts as a whole one here.
            if all > 0.0 { (hit / all).min(1.0) } else { 0.0 }
        };
        // What the sample has too little of, or too much.
        let corrected = |hits: u64, sampled: u64| {
            let hits = hits as f64 + (blocks - sampled as f64);
            hits.clamp(0.0, blocks)
        };
        let mut below = 0;
        let sizes = self.settings.capacities.iter().zip(&counts.hits);
        let points = sizes.map(|(&capacity_blocks, hits)| {
            below += hits;
            // The correction would give a cache without room the hits that the sample lacks.
            let hit_blocks = if capacity_blocks == 0 { 0.0 } else { corrected(below, counts.near) };
            Point {
                capacity_blocks,
                hit_blocks,
                block_hit_rate: rate(hit_blocks),
                token_hit_rate: tokens(hit_blocks),
            }
        });
        let points = points.collect();
        let seen = corrected(counts.seen, counts.far);
        Estimate {
            requests: counts.requests,
            blocks: counts.blocks,
            tokens: counts.tokens,
            rate: self.track.rate().share(),
            infinite_rate: self.seen.rate().share(),
            followed: (self.track.len() + self.seen.len()) as u64,
            points,
            infinite_block_hit_rate: rate(seen),
            infinite_token_hit_rate: tokens(seen),
        }
    }
}
