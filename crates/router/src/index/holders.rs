//! Route key to holders: the shared half of the index.
//!
//! ```text
//! key ──► [ replica 3: handles per tier 1 0 0 0 │ replica 7: 0 2 0 0 │ replica 9: assumed ]
//! ```
//!
//! Several of an engine's hashes may stand for one key, because a router knows less than the
//! engine does (images, prompt embeddings). So a holder counts handles per tier, and holds the
//! block as long as one is left.
//!
//! Invariant: a holder is on record only while some count is above zero or it is assumed; what is
//! on the device is not assumed.

use headstart_core::{Nanos, ReplicaId, RouteKey, Tier};

use super::tiers::{TIERS, position};
use crate::lookup::Map;

/// Who holds which block.
#[derive(Debug, Default)]
pub(super) struct Holders {
    blocks: Map<RouteKey, Vec<Holder>>,
    num_resident: usize,
    num_assumed: usize,
}

/// One replica's share in one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) replica: ReplicaId,
    /// Handles per tier, in the order of [`TIERS`].
    pub(super) handles: [u32; TIERS.len()],
    pub(super) assumed_until: Option<Nanos>,
}

/// The leading blocks of a chain that one replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) replica: ReplicaId,
    pub(super) device_blocks: usize,
    pub(super) any_tier_blocks: usize,
}

impl Holders {
    /// One more handle of `replica` stands for `key` in `tier`.
    pub(super) fn gain(&mut self, replica: ReplicaId, key: RouteKey, tier: Tier) {
        self.update(replica, key, |holder| {
            holder.handles[position(tier)] += 1;
            if tier == Tier::Device {
                holder.assumed_until = None;
            }
        });
    }

    /// One handle fewer.
    pub(super) fn lose(&mut self, replica: ReplicaId, key: RouteKey, tier: Tier) {
        self.update(replica, key, |holder| holder.handles[position(tier)] -= 1);
    }

    /// Assumes that `replica` holds `key` until then. Returns whether there was need to: not when
    /// its device holds the block already.
    pub(super) fn assume(&mut self, replica: ReplicaId, key: RouteKey, until: Nanos) -> bool {
        let mut is_needed = false;
        self.update(replica, key, |holder| {
            is_needed = !holder.is_on_device();
            if is_needed {
                holder.assumed_until = holder.assumed_until.max(Some(until));
            }
        });
        is_needed
    }

    /// Ends an assumption, unless a later one of the same block goes on.
    pub(super) fn retire(&mut self, replica: ReplicaId, key: RouteKey, until: Nanos) {
        self.update(replica, key, |holder| {
            holder.assumed_until = holder.assumed_until.filter(|&end| end > until);
        });
    }

    /// The run of every replica that holds the first of `keys`, by ascending replica. Reads one
    /// key more than the longest run has.
    pub(super) fn runs(&self, keys: impl Iterator<Item = RouteKey>, now: Nanos) -> Vec<Run> {
        let mut runs = Vec::new();
        for (index, key) in keys.enumerate() {
            let holders = self.blocks.get(&key).map_or(&[][..], Vec::as_slice);
            let present = holders.iter().filter(|holder| holder.is_present(now));
            if index == 0 {
                runs = present
                    .clone()
                    .map(|holder| Run::of(holder.replica))
                    .collect();
            }
            let mut has_grown = false;
            for holder in present {
                let found = runs.binary_search_by_key(&holder.replica, |run| run.replica);
                has_grown |= found.is_ok_and(|at| runs[at].grow(index, holder, now));
            }
            if !has_grown {
                break;
            }
        }
        runs
    }

    /// Pairs of replica and block that some tier holds.
    pub(super) fn num_resident(&self) -> usize {
        self.num_resident
    }

    /// Pairs of replica and block under assumption.
    pub(super) fn num_assumed(&self) -> usize {
        self.num_assumed
    }

    /// All holders of all blocks, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RouteKey, &Holder)> {
        self.blocks
            .iter()
            .flat_map(|(&key, holders)| holders.iter().map(move |holder| (key, holder)))
    }

    /// Asserts the invariant. O(size).
    pub(super) fn check(&self) {
        let (mut num_resident, mut num_assumed) = (0, 0);
        for (_, holder) in self.iter() {
            num_resident += usize::from(holder.is_resident());
            num_assumed += usize::from(holder.assumed_until.is_some());
            assert!(!holder.is_void(), "holders hold something");
            let is_doubled = holder.is_on_device() && holder.assumed_until.is_some();
            assert!(!is_doubled, "what is on the device is not assumed");
        }
        assert_eq!(self.num_resident, num_resident, "residents are counted");
        assert_eq!(self.num_assumed, num_assumed, "assumptions are counted");
        for holders in self.blocks.values() {
            let is_sorted = holders.is_sorted_by(|a, b| a.replica < b.replica);
            assert!(is_sorted && !holders.is_empty(), "holders are sorted");
        }
    }

    /// Changes one holder, which comes and goes as it is needed.
    fn update(&mut self, replica: ReplicaId, key: RouteKey, change: impl FnOnce(&mut Holder)) {
        let holders = self.blocks.entry(key).or_default();
        let at = match holders.binary_search_by_key(&replica, |holder| holder.replica) {
            Ok(at) => at,
            Err(at) => {
                holders.insert(at, Holder::void(replica));
                at
            }
        };
        let before = holders[at];
        change(&mut holders[at]);
        let after = holders[at];
        self.num_resident += usize::from(after.is_resident());
        self.num_resident -= usize::from(before.is_resident());
        self.num_assumed += usize::from(after.assumed_until.is_some());
        self.num_assumed -= usize::from(before.assumed_until.is_some());
        if after.is_void() {
            holders.remove(at);
            if holders.is_empty() {
                self.blocks.remove(&key);
            }
        }
    }
}

impl Holder {
    fn void(replica: ReplicaId) -> Self {
        Self {
            replica,
            handles: [0; TIERS.len()],
            assumed_until: None,
        }
    }

    fn is_void(&self) -> bool {
        !self.is_resident() && self.assumed_until.is_none()
    }

    fn is_resident(&self) -> bool {
        self.handles.iter().any(|&count| count > 0)
    }

    fn is_on_device(&self) -> bool {
        self.handles[position(Tier::Device)] > 0
    }

    fn is_assumed(&self, now: Nanos) -> bool {
        self.assumed_until.is_some_and(|until| now < until)
    }

    fn is_present(&self, now: Nanos) -> bool {
        self.is_resident() || self.is_assumed(now)
    }
}

impl Run {
    fn of(replica: ReplicaId) -> Self {
        Self {
            replica,
            device_blocks: 0,
            any_tier_blocks: 0,
        }
    }

    /// Extends the run by block `index`, which `holder` has, if the run reaches up to it.
    fn grow(&mut self, index: usize, holder: &Holder, now: Nanos) -> bool {
        if self.any_tier_blocks < index {
            return false;
        }
        self.any_tier_blocks += 1;
        let is_ready = holder.is_on_device() || holder.is_assumed(now);
        if is_ready && self.device_blocks == index {
            self.device_blocks += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: ReplicaId = ReplicaId(1);

    fn holders(blocks: &[(u64, Tier)]) -> Holders {
        let mut holders = Holders::default();
        for &(key, tier) in blocks {
            holders.gain(REPLICA, RouteKey(key), tier);
        }
        holders
    }

    /// Asks for the chain 0, 1, 2, … and expects (device, any tier) blocks.
    fn check(holders: &Holders, now: Nanos, expected: (usize, usize)) {
        holders.check();
        let runs = holders.runs((0..9).map(RouteKey), now);
        let found = runs
            .first()
            .map_or((0, 0), |run| (run.device_blocks, run.any_tier_blocks));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_run_ends_at_the_first_hole() {
        let all = [
            (0, Tier::Device),
            (1, Tier::Host),
            (2, Tier::Device),
            (4, Tier::Device),
        ];
        check(&holders(&all), Nanos(0), (1, 3));
        check(&holders(&all[1..]), Nanos(0), (0, 0));
    }

    #[test]
    fn a_block_stays_while_one_handle_is_left() {
        let mut holders = holders(&[(0, Tier::Device), (0, Tier::Device)]);
        holders.lose(REPLICA, RouteKey(0), Tier::Device);
        check(&holders, Nanos(0), (1, 1));
        holders.lose(REPLICA, RouteKey(0), Tier::Device);
        check(&holders, Nanos(0), (0, 0));
        assert_eq!(holders.blocks.len(), 0);
    }

    #[test]
    fn an_assumption_ends_by_time_or_by_event() {
        let mut holders = holders(&[(0, Tier::Device), (1, Tier::Host)]);
        assert!(!holders.assume(REPLICA, RouteKey(0), Nanos(5)));
        assert!(holders.assume(REPLICA, RouteKey(1), Nanos(5)));
        check(&holders, Nanos(4), (2, 2));
        check(&holders, Nanos(5), (1, 2));
        holders.gain(REPLICA, RouteKey(1), Tier::Device);
        holders.lose(REPLICA, RouteKey(1), Tier::Device);
        check(&holders, Nanos(4), (1, 2));
    }

    #[test]
    fn a_later_assumption_outlives_an_earlier_one() {
        let mut holders = Holders::default();
        holders.assume(REPLICA, RouteKey(0), Nanos(5));
        holders.assume(REPLICA, RouteKey(0), Nanos(8));
        holders.retire(REPLICA, RouteKey(0), Nanos(5));
        check(&holders, Nanos(7), (1, 1));
        holders.retire(REPLICA, RouteKey(0), Nanos(8));
        check(&holders, Nanos(7), (0, 0));
    }
}
