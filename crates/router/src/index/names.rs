//! One replica's handles: which block each stands for, and whether it holds that block.
//!
//! A handle is *idle* when no place of the replica holds its block on its account: new, or
//! departed. Idle ones are remembered for a while, see [`super::tombstones`]; the number of a
//! handle's remembered departures stands beside it, which spares a search. They have a table of
//! their own, small enough for the processor's cache. Of a block that comes and goes, only its
//! coming and its going wait for memory, and its end does not.
//!
//! Invariants: a handle has one name at most; every name is counted at its block.

use super::forest::Land;
use super::spot::Spot;
use super::table::{HANDLE_BITS, MANY_DEPARTURES, MAX_HANDLE, Name, Table};
use super::tombstones::DepartureQueue;
use crate::lookup::StableMap;
use headstart_core::BlockHash;

/// All names of one replica.
#[derive(Debug, Default)]
pub(super) struct Names {
    awake: Table,
    idle: Table,
    /// The first handle that holds each block. Made when it is first asked for: most replicas never
    /// have two handles for one block.
    holding: Option<StableMap<Spot, u64>>,
}

/// Block of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResolvedHandle {
    pub(super) spot: Spot,
    /// Whether it holds nothing.
    pub(super) is_idle: bool,
}

/// An engine's hash in `HANDLE_BITS` well mixed bits. With a hundred thousand handles, two of one
/// replica meet once in fifty thousand fleets; then a block is taken for another, which costs a
/// wrong route at most.
pub(super) fn handle(block: BlockHash) -> u64 {
    let wide = u128::from_be_bytes(block.0);
    // Only one half is multiplied, so hashes with swapped halves differ.
    let mut bits = (wide as u64) ^ ((wide >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finalizer of SplitMix64: the same bits for the same number, others for others.
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // The number above is a gap's.
    (bits >> (u64::BITS - HANDLE_BITS)).min(MAX_HANDLE)
}

impl Name {
    /// Returns how many departures are left; `left` counts them where there are many.
    fn end_departure(&mut self, left: impl FnOnce() -> usize) -> u32 {
        self.set_departures(match self.departures() {
            // A full count is only a lower bound, so the queue is counted.
            MANY_DEPARTURES => left().min(MANY_DEPARTURES as usize) as u32,
            few => few.saturating_sub(1),
        });
        self.departures()
    }
}

impl Names {
    /// Finds the block of `handle`.
    pub(super) fn find(&self, handle: u64) -> Option<ResolvedHandle> {
        let known = |table: &Table, is_idle| {
            let spot = table.get(handle)?.spot();
            Some(ResolvedHandle { spot, is_idle })
        };
        known(&self.awake, false).or_else(|| known(&self.idle, true))
    }

    /// The block of a handle that holds it.
    pub(super) fn find_awake(&self, handle: u64) -> Option<Spot> {
        self.awake.get(handle).map(Name::spot)
    }

    /// A handle that holds the block, other than `new`; asked while it has no crowd.
    pub(super) fn holder_but(&mut self, spot: Spot, new: u64) -> Option<u64> {
        let awake = &self.awake;
        // `new` is awake already, but it is the other holder that is asked for.
        let holding = self.holding.get_or_insert_with(|| {
            let others = awake.iter().filter(|name| name.handle() != new);
            others.map(|name| (name.spot(), name.handle())).collect()
        });
        holding.get(&spot).copied()
    }

    /// Lets `handle`, which stands for nothing yet, stand for the block, which it will hold.
    pub(super) fn insert(&mut self, land: &mut Land, handle: u64, spot: Spot) {
        land.name(spot);
        self.put(Name::new(handle, spot));
    }

    /// The same for one that holds nothing, and departs at once.
    pub(super) fn insert_idle(&mut self, land: &mut Land, handle: u64, spot: Spot) {
        land.name(spot);
        let mut name = Name::new(handle, spot);
        name.set_departures(1);
        self.idle.insert(name);
    }

    fn put(&mut self, name: Name) {
        self.awake.insert(name);
        if let Some(holding) = &mut self.holding {
            holding.entry(name.spot()).or_insert(name.handle());
        }
    }

    /// Notes that `handle` will hold its block. Returns what it stood for before that.
    pub(super) fn wake(&mut self, handle: u64) -> Option<ResolvedHandle> {
        if let Some(spot) = self.find_awake(handle) {
            let is_idle = false;
            return Some(ResolvedHandle { spot, is_idle });
        }
        // Its departures stay counted in the name, since the queue still has them.
        let idle = self.idle.remove(handle)?;
        self.put(idle);
        Some(ResolvedHandle { spot: idle.spot(), is_idle: true })
    }

    /// Notes that `handle` holds its block no more, and that this is remembered once more.
    pub(super) fn depart(&mut self, handle: u64) {
        if let Some(mut name) = self.awake.remove(handle) {
            name.set_departures(name.departures() + 1);
            self.idle.insert(name);
            self.hold_no_more(name.spot(), handle);
        }
    }

    /// Notes that a departure is remembered no more, nor the handle if it was the last one and
    /// the handle is idle: returns its block then. The end of its run may go:
    /// [`super::forest::Forest::trim`]. `left` counts departures where there are many.
    pub(super) fn forget_departure(
        &mut self,
        land: &mut Land,
        handle: u64,
        left: impl FnOnce() -> usize,
    ) -> Option<Spot> {
        if let Some(idle) = self.idle.get_mut(handle) {
            if idle.end_departure(left) > 0 {
                return None;
            }
            let spot = idle.spot();
            self.idle.remove(handle);
            land.unname(spot);
            return Some(spot);
        }
        // It came back since this departure, so only the count changes.
        if let Some(awake) = self.awake.get_mut(handle) {
            awake.end_departure(left);
        }
        None
    }

    /// Forgets `handle`. The end of its block's run may go then: [`super::forest::Forest::trim`].
    pub(super) fn remove(&mut self, land: &mut Land, handle: u64) {
        if let Some(name) = self.awake.remove(handle) {
            self.hold_no_more(name.spot(), handle);
            land.unname(name.spot());
        } else if let Some(name) = self.idle.remove(handle) {
            land.unname(name.spot());
        }
    }

    fn hold_no_more(&mut self, spot: Spot, handle: u64) {
        if let Some(holding) = &mut self.holding
            && holding.get(&spot) == Some(&handle)
        {
            holding.remove(&spot);
        }
    }

    /// All names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Spot)> + '_ {
        let idle = self.idle.iter().map(|name| (name.handle(), name.spot()));
        self.awake().chain(idle)
    }

    /// Handles that hold their block, each with the block's spot.
    pub(super) fn awake(&self) -> impl Iterator<Item = (u64, Spot)> + '_ {
        self.awake.iter().map(|name| (name.handle(), name.spot()))
    }

    pub(super) fn len(&self) -> usize {
        self.awake.len() + self.idle.len()
    }

    /// The runs that are named, each once, ascending.
    pub(super) fn runs(&self) -> Vec<u32> {
        let mut runs: Vec<u32> = self.iter().map(|(_, spot)| spot.run).collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let entry = size_of::<(Spot, u64)>() + 1;
        let capacity = self.holding.as_ref().map_or(0, StableMap::capacity);
        self.awake.bytes() + self.idle.bytes() + capacity * entry
    }

    /// Gives back memory that half-empty tables take.
    pub(super) fn shrink(&mut self) {
        self.awake.shrink();
        self.idle.shrink();
        if let Some(holding) = &mut self.holding {
            holding.shrink_to_fit();
        }
    }

    /// Asserts the invariants, and counts every name at its block. O(size).
    pub(super) fn check(&self, departed: &DepartureQueue, counts: &mut StableMap<Spot, u16>) {
        self.awake.check();
        self.idle.check();
        let mut handles = std::collections::HashSet::new();
        let awake = self.awake.iter().map(|name| (name, false));
        for (name, is_idle) in awake.chain(self.idle.iter().map(|name| (name, true))) {
            let (handle, spot) = (name.handle(), name.spot());
            assert!(handles.insert(handle), "a handle has one name");
            let known = Some(ResolvedHandle { spot, is_idle });
            assert_eq!(self.find(handle), known, "names are found again");
            let departures = departed.count(handle).min(MANY_DEPARTURES as usize);
            assert_eq!(name.departures() as usize, departures, "they are counted");
            assert!(!is_idle || departures > 0, "idle ones departed");
            *counts.entry(spot).or_default() += 1;
        }
        for (&spot, &handle) in self.holding.iter().flatten() {
            let expected = ResolvedHandle { spot, is_idle: false };
            assert_eq!(self.find(handle), Some(expected), "holders are awake");
        }
    }
}
