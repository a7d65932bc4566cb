//! Blocks for which one replica has several handles: an engine may know more than its events say,
//! and so tell apart what we cannot.
//!
//! The view says of such a block what is true of any of its handles, so what each one holds is
//! kept here. Rare: engines name in their events what sets blocks apart.
//!
//! Invariants: all handles that hold a crowd's block are in it; the view's standing of that block
//! is the surest of theirs.

use headstart_core::{Nanos, RouteKey};

use super::extent::OffsetSet;
use super::forest::Forest;
use super::marks::unmark;
use super::spot::{Span, Spot};
use super::standing::{BlockPlace, BlockStanding, HoldingRecord, PlacedHandle, Records};
use crate::lookup::StableMap;

/// All such blocks of one replica.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    /// The replica's.
    slot: u32,
    members: StableMap<RouteKey, Vec<CrowdMember>>,
}

#[derive(Debug)]
struct CrowdMember {
    handle: u64,
    records: Records,
}

impl Crowds {
    pub(super) fn new(slot: u32) -> Self {
        Self { slot, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Puts a handle into the block's crowd. Returns whether it has one.
    pub(super) fn join(&mut self, forest: &Forest<'_>, spot: Spot, handle: u64) -> bool {
        // Nearly always so, and it spares the look-up of the key.
        if self.is_empty() {
            return false;
        }
        let Some(members) = self.members.get_mut(&forest.key(spot)) else {
            return false;
        };
        if members.iter().all(|member| member.handle != handle) {
            let records = Records::default();
            members.push(CrowdMember { handle, records });
        }
        true
    }

    /// Makes a crowd of the only handle that holds the block so far, and of one that will.
    pub(super) fn gather(
        &mut self,
        forest: &Forest<'_>,
        spot: Spot,
        [holder, new]: [u64; 2],
        again: &mut StableMap<(u32, BlockPlace), OffsetSet>,
    ) {
        // One handle held the block so far, so all that the view says of it is that handle's.
        let known =
            CrowdMember { handle: holder, records: records(forest, self.slot, spot, again) };
        let new = CrowdMember { handle: new, records: Records::default() };
        self.members.insert(forest.key(spot), vec![known, new]);
    }

    /// Forgets a handle.
    pub(super) fn leave(&mut self, forest: &Forest<'_>, spot: Spot, handle: u64) {
        if self.is_empty() {
            return;
        }
        let key = forest.key(spot);
        if let Some(members) = self.members.get_mut(&key) {
            members.retain(|member| member.handle != handle);
            if members.is_empty() {
                self.members.remove(&key);
            }
        }
    }

    /// Returns the records of the handle; `None` if it is in no crowd of its block.
    pub(super) fn records(&self, key: RouteKey, handle: u64) -> Option<&Records> {
        let members = self.members.get(&key)?;
        let member = members.iter().find(|member| member.handle == handle)?;
        Some(&member.records)
    }

    /// Whether the handle holds anything; `None` where its block has no crowd.
    pub(super) fn is_held(&self, forest: &Forest<'_>, spot: Spot, handle: u64) -> Option<bool> {
        if self.is_empty() {
            return None;
        }
        self.records(forest.key(spot), handle).map(|records| !records.is_empty())
    }

    /// Whether any handle of the block's crowd holds it; `false` where it has none.
    pub(super) fn holds(&self, forest: &Forest<'_>, spot: Spot) -> bool {
        let members = self.members.get(&forest.key(spot));
        members.is_some_and(|members| members.iter().any(|member| !member.records.is_empty()))
    }

    /// Changes the holding of a handle, and the view with it. Returns `None` if its block has no
    /// crowd.
    pub(super) fn change<T>(
        &mut self,
        forest: &mut Forest<'_>,
        held: PlacedHandle,
        change: impl FnOnce(&mut Records) -> T,
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let members = self.members.get_mut(&forest.key(held.spot))?;
        let member = members.iter_mut().find(|member| member.handle == held.handle)?;
        let changed = change(&mut member.records);
        show(members, forest, self.slot, held.spot, held.place);
        Some(changed)
    }

    pub(super) fn doubt(&mut self, since: Nanos) {
        for member in self.members.values_mut().flatten() {
            member.records.doubt(since);
        }
    }

    /// Confirms what is doubtful since then. Returns the handles of which anything was:
    /// [`Self::show`] their blocks.
    pub(super) fn trust(&mut self, since: Nanos) -> Vec<u64> {
        let members = self.members.values_mut().flatten();
        let trusted = members.filter_map(|member| {
            let is_changed = member.records.trust(since);
            is_changed.then_some(member.handle)
        });
        trusted.collect()
    }

    /// Sees to it that the view says of the block what is true of its handles.
    pub(super) fn show(&self, forest: &mut Forest<'_>, spot: Spot) {
        let Some(members) = self.members.get(&forest.key(spot)) else {
            return;
        };
        let records = members.iter().flat_map(|member| member.records.iter());
        records.for_each(|(place, _)| show(members, forest, self.slot, spot, place));
    }

    /// Forgets doubts that have aged out. Returns the handles that hold nothing since.
    pub(super) fn expire(&mut self, now: Nanos) -> Vec<u64> {
        let mut over = Vec::new();
        for member in self.members.values_mut().flatten() {
            let was_empty = member.records.is_empty();
            member.records.expire(now);
            if member.records.is_empty() && !was_empty {
                over.push(member.handle);
            }
        }
        over
    }

    /// Asserts that the view says of the block what is true of its handles.
    pub(super) fn check(&self, forest: &Forest<'_>, spot: Spot) {
        let Some(members) = self.members.get(&forest.key(spot)) else {
            return;
        };
        for place in members.iter().flat_map(|member| member.records.iter()) {
            let standing = forest.view.standing(spot, self.slot, place.0);
            assert_eq!(standing, combined(members, place.0), "crowds are shown");
        }
    }
}

/// Sees to it that the view says of the block in this place what is true of its handles.
fn show(
    members: &[CrowdMember],
    forest: &mut Forest<'_>,
    slot: u32,
    spot: Spot,
    place: BlockPlace,
) {
    let standing = combined(members, place);
    // An unchanged standing needs no entry in the log.
    if forest.view.standing(spot, slot, place) != standing {
        forest.set(Span::one(spot), slot, place, standing);
    }
}

fn combined(members: &[CrowdMember], place: BlockPlace) -> Option<BlockStanding> {
    let records = members.iter().filter_map(|member| member.records.get(place));
    records.map(BlockStanding::from).reduce(BlockStanding::or)
}

/// Collects the records of a block's only handle, and removes its marks from `again`.
fn records(
    forest: &Forest<'_>,
    slot: u32,
    spot: Spot,
    again: &mut StableMap<(u32, BlockPlace), OffsetSet>,
) -> Records {
    let mut records = Records::default();
    if let Some(holder) = forest.view.run(spot.run).holder(slot) {
        holder.visit(|place, standing, extent| {
            if extent.contains(spot.offset) {
                let record = match standing {
                    BlockStanding::Doubtful { since } => HoldingRecord::Doubtful { since },
                    BlockStanding::Confirmed => {
                        HoldingRecord::Confirmed { again: unmark(again, spot, place) }
                    }
                };
                records.put(place, record);
            }
        });
    }
    records
}
