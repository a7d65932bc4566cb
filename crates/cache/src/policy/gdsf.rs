//! GDSF (greedy dual, size, frequency): the candidate of least worth goes first.
//!
//! `worth = clock + frequency · cost / size`, set at each use; the clock is the worth of the last
//! victim, so that worth fades. All blocks have one size. Cost is the time to compute a block
//! again at its depth: linear layers cost the same everywhere, attention grows with depth, so
//! `cost = 1 + depth / doubling_depth`.
//!
//! Source: Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency
//! Caching", HP Labs 1998; the WA study's GDFS baseline (USENIX ATC'25). Doubling depth of a
//! transformer: parameters / (2 · layers · hidden size), some 30,000 tokens at 8 B.
//!
//! As published, a newcomer competes, at the clock before its victim: one that is worth less than
//! every candidate is not admitted. As in libcachesim, the clock then moves to its worth (in the
//! report it stays, and a cache of popular blocks could stay closed). An engine, which must have
//! the room, never asks.
//!
//! Invariant: the clock never runs backwards.
//!
//! When not to use it: where reuse has no memory of frequency. Blocks of dead long conversations
//! have high counts and high cost, and fade only as fast as the clock runs.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::queues::{Queues, wide_key};
use crate::recency::Recency;

/// Worth, as the bits of a number that is not negative (they are in its order), then recency.
type Key = [u32; 4];

/// Greedy dual, size, frequency.
#[derive(Debug)]
pub struct Gdsf {
    doubling_blocks: f64,
    clock: f64,
    uses: Vec<u32>,
    worth: Vec<f64>,
    recency: Recency,
    candidates: Queues<Key>,
    competes: bool,
    /// The newcomer that the call before declined: asked again at once, it has not come again.
    declined: Option<(BlockHash, Access)>,
    /// The newcomer that room was made for, and the clock before that.
    admitted: Option<(BlockHash, f64)>,
}

impl Gdsf {
    /// For a cache of `capacity` slots; at a depth of `doubling_blocks` a block costs twice as
    /// much as the first one.
    #[must_use]
    pub fn new(capacity: usize, doubling_blocks: f64) -> Self {
        Self {
            doubling_blocks,
            clock: 0.0,
            uses: vec![0; capacity],
            worth: vec![0.0; capacity],
            recency: Recency::new(capacity),
            candidates: Queues::new(capacity, 1),
            competes: true,
            declined: None,
            admitted: None,
        }
    }

    /// The same, but every newcomer is admitted.
    #[must_use]
    pub fn admitting_all(self) -> Self {
        Self { competes: false, ..self }
    }

    fn cost(&self, depth: usize) -> f64 {
        1.0 + depth as f64 / self.doubling_blocks
    }

    /// Whether a newcomer is worth less than `least`; if so the clock moves, once.
    fn declines(&mut self, newcomer: &Newcomer, least: f64) -> bool {
        let name = Some((newcomer.hash, newcomer.access));
        if self.declined != name {
            let worth = self.clock + self.cost(newcomer.access.offset as usize);
            if !self.competes || worth >= least {
                return false;
            }
            self.declined = name;
            // As in libcachesim. Else a cache of popular blocks could decline newcomers for ever.
            self.clock = worth;
        }
        true
    }
}

impl Policy for Gdsf {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: &Access) {
        // Every call but another question ends the repetition: the next one is a new request.
        self.declined = None;
        // The newcomer competed at the clock before its victim went, so its worth starts there.
        let admitted = self.admitted.take().filter(|admitted| admitted.0 == hash);
        self.uses[block.index()] = 0;
        self.worth[block.index()] = admitted.map_or(self.clock, |(_, clock)| clock);
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        self.declined = None;
        self.recency.release(blocks);
        for (depth, block) in blocks.iter().enumerate() {
            let (cost, uses) = (self.cost(depth), &mut self.uses[block.index()]);
            let worth = &mut self.worth[block.index()];
            // The first use is the insertion's own.
            let clock = if *uses == 0 { *worth } else { self.clock };
            *uses = uses.saturating_add(1);
            *worth = clock + f64::from(*uses) * cost;
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.declined = None;
        let key = wide_key(self.worth[block.index()].to_bits(), self.recency.of(block));
        self.candidates.push(0, block, key);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.declined = None;
        self.candidates.remove(0, block);
    }

    fn victim(&mut self, _: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let (_, block) = self.candidates.first(0)?;
        let least = self.worth[block.index()];
        match newcomer {
            Some(newcomer) if self.declines(newcomer, least) => return None,
            Some(newcomer) => self.admitted = Some((newcomer.hash, self.clock)),
            None => {}
        }
        Some(block)
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.candidates.remove(0, block);
        self.declined = None;
        // A worth that was set long ago may lie below the clock, which never runs backwards.
        self.clock = self.clock.max(self.worth[block.index()]);
    }

    /// Clears the declined newcomer, which may take the freed slot.
    fn forget(&mut self, _: BlockId, _: BlockHash) {
        self.declined = None;
    }
}
