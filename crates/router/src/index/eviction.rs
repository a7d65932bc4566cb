//! Eviction: the runs that go when the memory of an index is above its
//! [`Budget`](super::budget::Budget).
//!
//! The runs that were neither stored to nor asked for the longest time go first, many at once: to
//! find everybody's names for them, all names are looked at, and that must pay.
//!
//! Source: least recently used, per run and not per block; a prompt that is asked for touches all
//! its runs, so what stands behind is never warmer than what stands before.

use headstart_core::Nanos;

use super::draft::ViewDraft;
use super::forest::Forest;
use super::view_change::HoldingChange;
use super::writer::IndexWriter;

/// Divisor of the limit: each eviction frees this part of it beyond the excess.
const EVICTED_PART: usize = 16;

impl IndexWriter {
    /// Gives up the coldest runs if the memory is above its limit.
    pub(super) fn keep_to_budget(&mut self, draft: &mut ViewDraft<'_>) {
        if !self.budget.is_due(self.size()) {
            return;
        }
        let limit = self.budget.limit_bytes();
        let mut bytes = self.bytes(draft.view);
        // More than once where tables did not shrink with what is in them.
        while bytes > limit && self.land.num_blocks() > 0 {
            self.evict(draft, bytes - limit + limit / EVICTED_PART);
            bytes = self.bytes(draft.view);
        }
        self.budget.note(self.size(), bytes);
    }

    /// A measure of memory that costs nothing to know.
    fn size(&self) -> usize {
        self.land.num_blocks() + self.land.total_names()
    }

    fn evict(&mut self, draft: &mut ViewDraft<'_>, bytes: usize) {
        let is_cold = self.coldest(draft, bytes);
        let mut forest = draft.forest(&mut self.land);
        for replica in self.replicas.iter_mut().flatten() {
            self.budget.count_evicted(replica.evict(&mut forest, &is_cold));
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
        forest.hold(run, slot, HoldingChange::ExpireAssumptions { now });
    }
    forest.trim(run);
}
