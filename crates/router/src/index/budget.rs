//! A limit for the memory of an index, and what goes when it is reached.
//!
//! The runs that were neither stored to nor asked for the longest time go first, many at once: to
//! find everybody's names for them, all names are looked at, and that must pay.
//!
//! Source: least recently used, per run and not per block; a prompt that is asked for touches all
//! its runs, so what stands behind is never warmer than what stands before.

use headstart_core::Nanos;

use super::draft::{ViewDraft, forest};
use super::forest::Forest;
use super::view_change::ViewChange;
use super::writer::IndexWriter;

/// Default memory limit of an index, bytes: room for some twenty million blocks, the KV caches of
/// hundreds of large engines.
const DEFAULT_BYTES: usize = 1 << 30;

/// The largest limit. A run takes some 180 bytes at least, and names know 2^28 of them.
const MAX_BYTES: usize = 32 << 30;

/// Divisor of the limit: each eviction frees this part of it beyond the excess.
const EVICTED_PART: usize = 16;

/// New blocks after which the memory is added up again, at least.
const MIN_NEW_BLOCKS: usize = 256;

/// The least that a block takes, bytes: so the limit cannot be reached by fewer new blocks.
const MAX_BLOCK_BYTES: usize = 256;

/// Handles of blocks that left, remembered per replica in any case: a few steps' demotions of a
/// small engine. Large ones remember more, see [`super::replica`].
const DEFAULT_MIN_DEPARTED: usize = 32;

/// Limits of an index's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory, about, bytes, at most 32 GiB. Beyond it, what was not used for the longest time is
    /// given up.
    pub max_bytes: usize,
    /// Handles of blocks that are nowhere any more, remembered per replica at least.
    pub min_departed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: DEFAULT_BYTES, min_departed: DEFAULT_MIN_DEPARTED }
    }
}

/// The limit, and when to look again.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: usize,
    /// The memory is below its limit while there are fewer names and blocks than this.
    look_at: usize,
    evicted: u64,
}

impl Budget {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes: limit_bytes.min(MAX_BYTES), look_at: MIN_NEW_BLOCKS, evicted: 0 }
    }

    /// Takes note of memory that was taken beside names and blocks, bytes.
    pub(super) fn spend(&mut self, bytes: usize) {
        let blocks = bytes.div_ceil(MAX_BLOCK_BYTES);
        self.look_at = self.look_at.saturating_sub(blocks);
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }
}

impl IndexWriter {
    /// Gives up the coldest runs if the memory is above its limit.
    pub(super) fn keep_to_budget(&mut self, draft: &mut ViewDraft<'_>, now: Nanos) {
        if self.size() < self.budget.look_at {
            return;
        }
        let limit = self.budget.limit_bytes;
        let mut bytes = self.bytes(draft.view);
        // More than once where tables did not shrink with what is in them.
        while bytes > limit && self.land.num_blocks() > 0 {
            self.evict(draft, bytes - limit + limit / EVICTED_PART, now);
            bytes = self.bytes(draft.view);
        }
        let left = limit.saturating_sub(bytes);
        // Fewer new blocks than this cannot reach the limit, since none takes more than
        // `MAX_BLOCK_BYTES`.
        self.budget.look_at = self.size() + (left / MAX_BLOCK_BYTES).max(MIN_NEW_BLOCKS);
    }

    /// A measure of memory that costs nothing to know.
    fn size(&self) -> usize {
        self.land.num_blocks() + self.land.total_names()
    }

    fn evict(&mut self, draft: &mut ViewDraft<'_>, bytes: usize, now: Nanos) {
        let is_cold = self.coldest(draft, bytes);
        let mut forest = forest(&mut self.land, draft, now);
        for replica in self.replicas.iter_mut().flatten() {
            self.budget.evicted += replica.evict(&mut forest, &is_cold);
        }
        // Assumed blocks have no names, so no replica's eviction found them.
        for (run, _) in is_cold.iter().enumerate().filter(|(_, is_cold)| **is_cold) {
            end_assumptions(&mut forest, run as u32);
        }
    }

    /// Marks the least recently used runs, until they have `bytes` bytes.
    fn coldest(&self, draft: &ViewDraft<'_>, bytes: usize) -> Vec<bool> {
        let runs = draft.view.runs().iter().enumerate().filter(|(_, run)| run.len() > 0);
        let mut order: Vec<(u64, usize)> = runs.map(|(id, run)| (run.last_used(), id)).collect();
        // Numbers break ties, so that equal histories evict alike.
        order.sort_unstable();
        let mut is_cold = vec![false; draft.view.runs().len()];
        let total = self.bytes(draft.view);
        // An average, because names and holders of a run lie in many tables. The loop in
        // `keep_to_budget` makes up for what it misses.
        let per_block = total / self.land.num_blocks().max(1);
        let mut found = 0;
        for (_, id) in order {
            if found >= bytes {
                break;
            }
            is_cold[id] = true;
            found += draft.view.run(id as u32).len() as usize * per_block;
        }
        is_cold
    }
}

fn end_assumptions(forest: &mut Forest<'_>, run: u32) {
    let holders = forest.view.run(run).holders().others();
    let slots: Vec<u32> = holders.map(|holder| holder.slot).collect();
    for slot in slots {
        // Later than any end, so that all of them expire and the run can be cut.
        let now = Nanos(u64::MAX);
        forest.apply(ViewChange::ExpireAssumptions { run, slot, now });
    }
    forest.trim(run);
}
