//! Reuse times of blocks, observed on a sample of them.
//!
//! A ring holds the last uses of sampled blocks: by which class, when, and after how long the
//! next use came, if it did. A use that waits is a *censored* observation: the block may yet be
//! used. Evicted blocks are followed by name, so that what the cache loses is seen as well.
//!
//! Blocks are sampled by name, so all uses of one block are seen or none (Waldspurger et al.,
//! "SHARDS", FAST'15; but a change of the rate may hide one), at a rate that gives a few uses a
//! request: the ring then covers thousands of requests whether prompts are short or long.

use hashbrown::HashTable;
use headstart_core::{BlockHash, BlockId, Nanos};

use super::ages::{self, BINS};
use crate::slots::spread;

/// Uses in the ring.
const WINDOW: usize = 16_384;
/// Sampled uses of a request that are aimed at.
const USES_PER_REQUEST: f64 = 4.0;
/// Weight of the newest request in the average chain length.
const LENGTH_WEIGHT: f64 = 1.0 / 256.0;

/// Not a place in the ring.
pub(super) const NONE: u32 = u32::MAX;
/// Owner of a use whose block is no longer resident.
const GHOST: u32 = u32::MAX;
/// Owner of a use that was followed by another.
const OVER: u32 = u32::MAX - 1;

/// The ring.
#[derive(Debug)]
pub(super) struct ReuseObserver {
    uses: Vec<Use>,
    next: usize,
    /// Evicted blocks by fingerprint: places in the ring.
    ghosts: HashTable<u32>,
    mean_length: f64,
    requests: u64,
    /// Number of low fingerprint bits that must be zero for a name to be sampled.
    sampled_bits: u32,
}

/// One use of a sampled block.
#[derive(Clone, Copy, Debug)]
struct Use {
    at: Nanos,
    /// Of the block, while it is a ghost.
    fingerprint: u64,
    /// Slot of the block, [`GHOST`] or [`OVER`].
    owner: u32,
    class: u16,
    /// Bin of the reuse time once it is over.
    bin: u8,
}

/// Reuse times of one class, in bins.
#[derive(Clone, Debug)]
pub(super) struct ReuseHistogram {
    /// Uses followed by another one after so long.
    pub(super) reused: [f32; BINS],
    /// Uses that have waited so long.
    pub(super) waiting: [f32; BINS],
}

impl Default for ReuseHistogram {
    fn default() -> Self {
        Self { reused: [0.0; BINS], waiting: [0.0; BINS] }
    }
}

impl ReuseHistogram {
    /// Uses recorded.
    pub(super) fn total(&self) -> f64 {
        let both = self.reused.iter().chain(&self.waiting);
        both.map(|&count| f64::from(count)).sum()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for bin in 0..BINS {
            self.reused[bin] += other.reused[bin];
            self.waiting[bin] += other.waiting[bin];
        }
    }
}

impl ReuseObserver {
    pub(super) fn new() -> Self {
        Self {
            uses: Vec::new(),
            next: 0,
            ghosts: HashTable::new(),
            mean_length: 0.0,
            requests: 0,
            sampled_bits: 0,
        }
    }

    /// Notes the length of a request's chain, which sets the sampling rate.
    pub(super) fn request(&mut self, len: usize) {
        self.requests += 1;
        // The plain mean of the first requests, which would otherwise be drawn towards 0.
        let weight = LENGTH_WEIGHT.max(1.0 / self.requests as f64);
        self.mean_length += weight * (len as f64 - self.mean_length);
        let ratio = (self.mean_length / USES_PER_REQUEST).max(1.0);
        // Each bit halves the sample, so it shrinks as chains grow.
        self.sampled_bits = (ratio as u64).ilog2();
    }

    /// Whether a block that becomes resident is sampled.
    pub(super) fn is_sampled(&self, hash: BlockHash) -> bool {
        spread(hash).trailing_zeros() >= self.sampled_bits
    }

    /// A sampled block became resident: its last use, if it was followed as a ghost.
    pub(super) fn came(&mut self, block: BlockId, hash: BlockHash) -> u32 {
        let fingerprint = spread(hash);
        let uses = &self.uses;
        let is_it = |&place: &u32| uses[place as usize].fingerprint == fingerprint;
        let Ok(entry) = self.ghosts.find_entry(fingerprint, is_it) else {
            return NONE;
        };
        let (place, _) = entry.remove();
        self.uses[place as usize].owner = block.0;
        place
    }

    /// A sampled block was evicted; `place` is its last use.
    pub(super) fn went(&mut self, block: BlockId, hash: BlockHash, place: u32) {
        // The ring has overwritten its last use: there is nothing left to follow.
        if !self.is_open(block, place) {
            return;
        }
        let fingerprint = spread(hash);
        let last = &mut self.uses[place as usize];
        last.owner = GHOST;
        last.fingerprint = fingerprint;
        let uses = &self.uses;
        let name = |&place: &u32| uses[place as usize].fingerprint;
        self.ghosts.insert_unique(fingerprint, place, name);
    }

    /// A sampled block is used; `place` is its use before. Returns the place of this one.
    pub(super) fn used(&mut self, block: BlockId, place: u32, class: u16, now: Nanos) -> u32 {
        if self.is_open(block, place) {
            let before = &mut self.uses[place as usize];
            before.owner = OVER;
            before.bin = ages::bin(now, before.at) as u8;
        }
        self.put(Use { at: now, fingerprint: 0, owner: block.0, class, bin: 0 })
    }

    /// Reuse times per class, as they stand at `now`.
    pub(super) fn histograms(&self, num_classes: usize, now: Nanos) -> Vec<ReuseHistogram> {
        let mut histograms = vec![ReuseHistogram::default(); num_classes];
        for one in &self.uses {
            let histogram = &mut histograms[one.class as usize];
            match one.owner {
                OVER => histogram.reused[one.bin as usize] += 1.0,
                // Neither residents nor ghosts have a next use yet: both are censored at `now`.
                _ => histogram.waiting[ages::bin(now, one.at)] += 1.0,
            }
        }
        histograms
    }

    fn is_open(&self, block: BlockId, place: u32) -> bool {
        let last = self.uses.get(place as usize);
        last.is_some_and(|last| last.owner == block.0)
    }

    fn put(&mut self, new: Use) -> u32 {
        if self.uses.len() < WINDOW {
            self.uses.push(new);
            return (self.uses.len() - 1) as u32;
        }
        let place = self.next;
        self.next = (self.next + 1) % WINDOW;
        let old = std::mem::replace(&mut self.uses[place], new);
        // The name must go with its use, or it would lead to the new one at this place.
        if old.owner == GHOST {
            let place = place as u32;
            let entry = self.ghosts.find_entry(old.fingerprint, |&found| found == place);
            entry.expect("a ghost's use has a name").remove();
        }
        place as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Against a list of all uses, while blocks come and go.
    #[test]
    fn agrees_with_a_list_of_all_uses() {
        for seed in 0..10 {
            let mut rng = Rng::new(seed);
            let mut observer = ReuseObserver::new();
            let mut places = [NONE; 12];
            let mut resident = [false; 12];
            let mut uses: Vec<(usize, u16, Nanos)> = Vec::new();
            for step in 0..WINDOW as u64 / 2 {
                let (index, class) = (rng.below(12), rng.below(3) as u16);
                let (block, hash) = (BlockId(index as u32), BlockHash::from_u64(index as u64));
                let now = Nanos(step * 10_000_000 + rng.below(9_000_000) as u64);
                if !resident[index] {
                    places[index] = observer.came(block, hash);
                    resident[index] = true;
                }
                places[index] = observer.used(block, places[index], class, now);
                uses.push((index, class, now));
                if rng.below(3) == 0 {
                    observer.went(block, hash, places[index]);
                    resident[index] = false;
                }
            }
            let now = Nanos(u64::MAX / 2);
            let mut expected = vec![ReuseHistogram::default(); 3];
            for (at, &(index, class, then)) in uses.iter().enumerate() {
                let next = uses[at + 1..].iter().find(|later| later.0 == index);
                let histogram = &mut expected[class as usize];
                match next {
                    Some(&(_, _, next)) => histogram.reused[ages::bin(next, then)] += 1.0,
                    None => histogram.waiting[ages::bin(now, then)] += 1.0,
                }
            }
            for (histogram, expected) in observer.histograms(3, now).iter().zip(expected) {
                assert_eq!(histogram.reused, expected.reused, "seed {seed}");
                assert_eq!(histogram.waiting, expected.waiting, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_ring_forgets_the_oldest_and_follows_no_name_for_ever() {
        let mut observer = ReuseObserver::new();
        for index in 0..3 * WINDOW as u64 {
            let (block, hash) = (BlockId(0), BlockHash::from_u64(index));
            assert_eq!(observer.came(block, hash), NONE);
            let place = observer.used(block, NONE, 0, Nanos(index));
            observer.went(block, hash, place);
        }
        assert_eq!((observer.uses.len(), observer.ghosts.len()), (WINDOW, WINDOW));
    }

    #[test]
    fn long_chains_are_sampled_more_thinly() {
        let mut observer = ReuseObserver::new();
        (0..100).for_each(|_| observer.request(1024));
        let sampled = (0..100_000).filter(|&id| observer.is_sampled(BlockHash::from_u64(id)));
        let share = sampled.count() as f64 / 100_000.0;
        assert!((share * 256.0 - 1.0).abs() < 0.2, "{share}");
    }
}
