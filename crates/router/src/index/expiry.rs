//! Aging of a replica's blocks: the part of [`TrackedReplica`] that doubts, trusts, clears, sweeps
//! and evicts, and that restores a dump.

use headstart_core::Nanos;

use super::DOUBT_TTL;
use super::aliases::Crowds;
use super::forest::Forest;
use super::replica::TrackedReplica;
use super::spot::Spot;
use super::standing::{
    BlockPlace, BlockStanding, HoldingRecord, PlacedHandle, SWEEP_SLACK, is_over, since_alone,
    since_doubt,
};
use super::view::View;
use super::view_change::HoldingChange;
use super::waiting::Waiting;

impl TrackedReplica {
    /// Doubts all that is confirmed. Costs the replica's own blocks.
    pub(super) fn doubt(&mut self, forest: &mut Forest<'_>) {
        let slot = self.slot;
        let since = since_doubt(forest.now, self.doubted);
        self.doubted = Some(since);
        // Marks belong to confirmed blocks.
        self.again.clear();
        self.crowds.doubt(since);
        self.waiting.change_all(|records| records.doubt(since));
        for run in self.names.runs() {
            if forest.view.run(run).holder(slot).is_some() {
                forest.hold(run, slot, HoldingChange::Turn { from: None, to: Some(since) });
            }
        }
        self.plan_sweep(since);
    }

    /// Takes the last doubt back: confirms what is left of what became doubtful by it. Costs the
    /// replica's own blocks.
    pub(super) fn trust(&mut self, forest: &mut Forest<'_>) {
        let slot = self.slot;
        let doubted = self.doubted.take();
        // A doubt that has aged out is not taken back: blocks may have been swept in between.
        let Some(since) = doubted.filter(|&since| !is_over(since, forest.now)) else {
            return;
        };
        self.waiting.change_all(|records| {
            records.trust(since);
        });
        for run in self.names.runs() {
            let holder = forest.view.run(run).holder(slot);
            if holder.is_some_and(|holder| holder.is_doubtful_since(since)) {
                forest.hold(run, slot, HoldingChange::Turn { from: Some(since), to: None });
            }
        }
        // A block with several handles may have been doubtful for longer because of another one.
        for block in self.crowds.trust(since) {
            if let Some(known) = self.names.find(block) {
                self.crowds.show(forest, known.spot);
            }
        }
    }

    /// Forgets all that is held, assumptions of what was never reported aside. Costs the
    /// replica's own blocks.
    pub(super) fn clear(&mut self, forest: &mut Forest<'_>) {
        let slot = self.slot;
        let runs = self.names.runs();
        for &run in &runs {
            if forest.view.run(run).holder(slot).is_some() {
                forest.hold(run, slot, HoldingChange::Leave);
            }
        }
        let names = std::mem::take(&mut self.names);
        // All names go before the first cut: a run is cut from its end, up to a block with a name.
        for (_, spot) in names.iter() {
            forest.land.unname(spot);
        }
        for run in runs {
            forest.trim(run);
        }
        // The meaning of a handle ends with the clear, so none of them survives.
        self.waiting = Waiting::default();
        self.crowds = Crowds::new(slot);
        self.departed.clear();
        self.again.clear();
        self.doubted = None;
        self.sweep_at = None;
    }

    /// Forgets doubts that have aged out. Costs the replica's own blocks.
    pub(super) fn sweep(&mut self, forest: &mut Forest<'_>) {
        let (slot, now) = (self.slot, forest.now);
        self.sweep_at = None;
        for block in self.crowds.expire(now) {
            self.depart(block);
        }
        self.waiting.change_all(|records| records.expire(now));
        let mut is_left = false;
        // Collected before doubts expire; afterwards the view no longer shows who held what.
        let held: Vec<(u64, Spot)> = self
            .names
            .awake()
            .filter(|(_, spot)| {
                let holder = forest.view.run(spot.run).holder(slot);
                holder.is_some_and(|holder| holder.is_doubtful() && holder.holds(spot.offset))
            })
            .collect();
        for run in self.names.runs() {
            let holder = forest.view.run(run).holder(slot);
            if holder.is_some_and(|holder| holder.is_doubtful()) {
                forest.hold(run, slot, HoldingChange::ExpireDoubts { now });
                let holder = forest.view.run(run).holder(slot);
                is_left |= holder.is_some_and(|holder| holder.is_doubtful());
            }
        }
        // A block in several places departs only when the last of them has expired.
        for (block, spot) in held {
            if !self.is_held(forest, block, spot) {
                self.depart(block);
            }
        }
        if is_left {
            self.sweep_at = Some(now + SWEEP_SLACK);
        }
    }

    /// Has doubts since then swept up when they are over.
    pub(super) fn plan_sweep(&mut self, since: Nanos) {
        let due = since + DOUBT_TTL + SWEEP_SLACK;
        self.sweep_at = Some(self.sweep_at.map_or(due, |before| before.min(due)));
    }

    /// Forgets everything of the runs that are to go.
    pub(super) fn evict(&mut self, forest: &mut Forest<'_>, is_cold: &[bool]) -> u64 {
        let slot = self.slot;
        let is_cold = |run: u32| is_cold.get(run as usize).copied().unwrap_or(false);
        self.again.retain(|(run, _), _| !is_cold(*run));
        let mut held = 0;
        let mut runs = self.names.runs();
        runs.retain(|&run| is_cold(run));
        for &run in &runs {
            if let Some(holder) = forest.view.run(run).holder(slot) {
                held += holder.tally().entries as u64;
                forest.hold(run, slot, HoldingChange::Leave);
            }
        }
        let names = self.names.iter();
        let cold: Vec<(u64, Spot)> = names.filter(|(_, spot)| is_cold(spot.run)).collect();
        for (block, spot) in cold {
            self.crowds.leave(forest, spot, block);
            self.names.remove(forest.land, block);
        }
        // The queue counts departures by handle, and these handles are unknown from now on.
        self.departed.keep_named(&self.names);
        for run in runs {
            forest.trim(run);
        }
        self.names.shrink();
        held
    }

    /// Takes over from a dump that a place may hold a block.
    pub(super) fn restore(&mut self, forest: &mut Forest<'_>, held: PlacedHandle) {
        let since = since_alone(forest.now);
        match self.names.find(held.handle) {
            None => self.name(forest, held.handle, held.spot),
            Some(_) => self.wake(forest, held.handle),
        }
        self.put(forest, held, HoldingRecord::Doubtful { since });
        self.plan_sweep(since);
    }

    /// Visits where a handle's block is, because of that handle.
    pub(super) fn visit(
        &self,
        view: &View,
        block: u64,
        spot: Spot,
        mut visit: impl FnMut(BlockPlace, BlockStanding),
    ) {
        let run = view.run(spot.run);
        if let Some(records) = self.crowds.records(run.key(spot.offset), block) {
            records.iter().for_each(|(place, record)| visit(place, record.into()));
        } else if let Some(holder) = run.holder(self.slot) {
            holder.visit(|place, standing, extent| {
                if extent.contains(spot.offset) {
                    visit(place, standing);
                }
            });
        }
    }
}
