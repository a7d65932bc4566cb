//! One replica's part in a run when a number does not describe it: one plane per place and
//! standing.
//!
//! Invariants: an offset stands in at most one plane of a place; planes hold something; without
//! need there is no [`More`].

use std::ops::Range;

use headstart_core::{Nanos, Tier};

use super::extent::OffsetSet;
use super::holder::{EntryTally, Reach};
use super::standing::{BlockPlace, BlockStanding, is_over, since_alone};
use super::tier_tokens::{ByTier, TIERS};

/// Planes per holder. There are a handful, unless many blocks were reported twice and removed once
/// at different times; beyond it, the two oldest doubts of a place become one, never trusted again.
const MAX_PLANES: usize = 64;

/// All that is held, and all that is assumed.
#[derive(Clone, Debug, Default)]
pub(super) struct More {
    planes: Vec<Plane>,
    /// Each longer than the one before and ending earlier: all others say nothing.
    assumed: Vec<AssumedPrefix>,
}

/// Blocks of one place and of one standing.
#[derive(Clone, Debug)]
struct Plane {
    place: BlockPlace,
    /// Since when they are doubtful; confirmed otherwise.
    doubtful_since: Option<Nanos>,
    extent: OffsetSet,
}

/// The first `blocks` blocks are assumed until `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AssumedPrefix {
    blocks: u32,
    until: Nanos,
}

impl Plane {
    fn is_usual(&self) -> bool {
        self.place == BlockPlace::USUAL && self.doubtful_since.is_none()
    }

    fn is_there(&self, group: u8, now: Nanos) -> bool {
        self.place.group == group && self.doubtful_since.is_none_or(|since| !is_over(since, now))
    }

    fn standing(&self) -> BlockStanding {
        match self.doubtful_since {
            None => BlockStanding::Confirmed,
            Some(since) => BlockStanding::Doubtful { since },
        }
    }
}

impl More {
    pub(super) fn standing(&self, place: BlockPlace, offset: u32) -> Option<BlockStanding> {
        let mut planes = self.planes.iter().filter(|plane| plane.place == place);
        let plane = planes.find(|plane| plane.extent.contains(offset))?;
        Some(plane.standing())
    }

    pub(super) fn count_confirmed(&self, place: BlockPlace, range: Range<u32>) -> u32 {
        let is_meant = |plane: &&Plane| plane.place == place && plane.doubtful_since.is_none();
        let confirmed = self.planes.iter().find(is_meant);
        confirmed.map_or(0, |plane| plane.extent.count_in(range))
    }

    pub(super) fn count_in(&self, place: BlockPlace, range: Range<u32>) -> u32 {
        let planes = self.planes.iter().filter(|plane| plane.place == place);
        planes.map(|plane| plane.extent.count_in(range.clone())).sum()
    }

    pub(super) fn holds(&self, offset: u32) -> bool {
        let mut planes = self.planes.iter();
        planes.any(|plane| plane.extent.contains(offset))
    }

    pub(super) fn assumed_end(&self) -> u32 {
        self.assumed.last().map_or(0, |assumed| assumed.blocks)
    }

    pub(super) fn held_end(&self) -> u32 {
        let ends = self.planes.iter().map(|plane| plane.extent.end());
        ends.max().unwrap_or(0)
    }

    pub(super) fn tally(&self) -> EntryTally {
        let mut tally = EntryTally::default();
        for plane in &self.planes {
            let count = plane.extent.count() as usize;
            tally.entries += count;
            tally.doubtful += count * usize::from(plane.doubtful_since.is_some());
        }
        tally
    }

    pub(super) fn visit(&self, mut visit: impl FnMut(BlockPlace, BlockStanding, &OffsetSet)) {
        for plane in &self.planes {
            visit(plane.place, plane.standing(), &plane.extent);
        }
    }

    pub(super) fn is_doubtful(&self) -> bool {
        let mut planes = self.planes.iter();
        planes.any(|plane| plane.doubtful_since.is_some())
    }

    pub(super) fn is_doubtful_since(&self, since: Nanos) -> bool {
        let mut planes = self.planes.iter();
        planes.any(|plane| plane.doubtful_since == Some(since))
    }

    #[cold]
    pub(super) fn reach(&self, group: u8, limit: u32, now: Nanos) -> Reach {
        let from = self.assumed_at(now);
        let leading = |counts: fn(&Plane) -> bool| {
            self.leading(from, limit, |plane| counts(plane) && plane.is_there(group, now))
        };
        Reach {
            device: leading(|plane| plane.place.tier == Tier::Device),
            any_tier: leading(|_| true),
            trusted: leading(|plane| plane.doubtful_since.is_none()),
        }
    }

    pub(super) fn reach_by_tier(&self, group: u8, limit: u32, now: Nanos) -> ByTier {
        let from = self.assumed_at(now);
        TIERS.map(|tier| {
            let counts = |plane: &Plane| plane.place.tier <= tier && plane.is_there(group, now);
            self.leading(from, limit, counts)
        })
    }

    /// Blocks that are assumed at that time.
    fn assumed_at(&self, now: Nanos) -> u32 {
        // An assumption that is over stays until the writer ends it, so the time decides.
        let is_current = |assumed: &&AssumedPrefix| now < assumed.until;
        let current = self.assumed.iter().filter(is_current);
        current.map(|assumed| assumed.blocks).max().unwrap_or(0)
    }

    /// Leading blocks, at most `limit`, that the planes that count hold behind the first `from`.
    fn leading(&self, from: u32, limit: u32, counts: impl Fn(&Plane) -> bool) -> u32 {
        let mut end = from;
        // Planes take turns, because each may continue where another ends.
        loop {
            let before = end;
            for plane in self.planes.iter().filter(|plane| counts(plane)) {
                end += plane.extent.run_from(end);
            }
            if end == before || end >= limit {
                return end.min(limit);
            }
        }
    }

    pub(super) fn usable(&self, group: u8, offset: u32, now: Nanos) -> Reach {
        let mut usable = Reach::of(u32::from(offset < self.assumed_at(now)));
        for plane in &self.planes {
            if plane.is_there(group, now) && plane.extent.contains(offset) {
                usable.any_tier = 1;
                usable.device |= u32::from(plane.place.tier == Tier::Device);
                usable.trusted |= u32::from(plane.doubtful_since.is_none());
            }
        }
        usable
    }

    pub(super) fn usable_by_tier(&self, group: u8, offset: u32, now: Nanos) -> ByTier {
        let is_assumed = offset < self.assumed_at(now);
        let is_there = |plane: &&Plane| plane.is_there(group, now) && plane.extent.contains(offset);
        let planes = self.planes.iter().filter(is_there);
        let nearest = planes.map(|plane| plane.place.tier).min();
        TIERS.map(|tier| u32::from(is_assumed || nearest.is_some_and(|nearest| nearest <= tier)))
    }

    pub(super) fn set(
        &mut self,
        place: BlockPlace,
        range: Range<u32>,
        standing: Option<BlockStanding>,
    ) {
        for plane in self.planes.iter_mut().filter(|plane| plane.place == place) {
            plane.extent.clear(range.clone());
        }
        match standing {
            None => {}
            Some(BlockStanding::Confirmed) => self.plane(place, None).extent.fill(range),
            Some(BlockStanding::Doubtful { since }) => {
                self.plane(place, Some(since)).extent.fill(range);
            }
        }
    }

    /// Marks blocks doubtful since `from` as doubtful since `to`; `None` means confirmed.
    pub(super) fn turn(&mut self, from: Option<Nanos>, to: Option<Nanos>) {
        // `plane` may add planes at the end, which are as they should be.
        for at in 0..self.planes.len() {
            let plane = &mut self.planes[at];
            if plane.doubtful_since == from {
                let place = plane.place;
                let extent = std::mem::replace(&mut plane.extent, OffsetSet::EMPTY);
                self.plane(place, to).extent.join(&extent);
            }
        }
    }

    pub(super) fn assume(&mut self, blocks: u32, until: Nanos) {
        let new = AssumedPrefix { blocks, until };
        let covers =
            |a: &AssumedPrefix, b: &AssumedPrefix| a.blocks >= b.blocks && a.until >= b.until;
        if !self.assumed.iter().any(|known| covers(known, &new)) {
            // An assumption that is shorter and ends earlier says nothing beside this one.
            self.assumed.retain(|known| !covers(&new, known));
            let at = self.assumed.partition_point(|known| known.blocks < blocks);
            self.assumed.insert(at, new);
        }
    }

    pub(super) fn expire_doubts(&mut self, now: Nanos) {
        for plane in &mut self.planes {
            if plane.doubtful_since.is_some_and(|since| is_over(since, now)) {
                plane.extent = OffsetSet::EMPTY;
            }
        }
    }

    pub(super) fn expire_assumptions(&mut self, now: Nanos) {
        self.assumed.retain(|assumed| now < assumed.until);
    }

    /// Restores the invariants. Returns the leading blocks if there is nothing else to say.
    pub(super) fn settle(&mut self) -> Option<u32> {
        // Changes leave empty planes, which would count towards the limit.
        self.planes.retain(|plane| !plane.extent.is_empty());
        self.limit();
        match self.planes.as_slice() {
            _ if !self.assumed.is_empty() => None,
            [] => Some(0),
            [plane] if plane.is_usual() => match plane.extent {
                OffsetSet::Lead(lead) => Some(lead),
                OffsetSet::Bits(_) => None,
            },
            _ => None,
        }
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let bits = self.planes.iter().map(|plane| plane.extent.heap_bytes());
        size_of::<Self>()
            + self.planes.capacity() * size_of::<Plane>()
            + self.assumed.capacity() * size_of::<AssumedPrefix>()
            + bits.sum::<usize>()
    }

    /// Asserts the invariants.
    pub(super) fn check(&self) {
        for (at, plane) in self.planes.iter().enumerate() {
            assert!(!plane.extent.is_empty(), "planes hold something");
            for other in &self.planes[..at] {
                let is_shared = other.place == plane.place
                    && other.extent.iter().any(|offset| plane.extent.contains(offset));
                assert!(!is_shared, "one standing per block and place");
            }
        }
    }

    fn plane(&mut self, place: BlockPlace, doubtful_since: Option<Nanos>) -> &mut Plane {
        let is_meant =
            |plane: &Plane| plane.place == place && plane.doubtful_since == doubtful_since;
        let at = self.planes.iter().position(is_meant).unwrap_or_else(|| {
            self.planes.push(Plane { place, doubtful_since, extent: OffsetSet::EMPTY });
            self.planes.len() - 1
        });
        &mut self.planes[at]
    }

    /// Merges doubts while there are too many planes. Every place has one plane besides them, and
    /// there are fewer places than planes may be unless a replica has very many groups.
    fn limit(&mut self) {
        while self.planes.len() > MAX_PLANES {
            let oldest = |planes: &[Plane], place: Option<BlockPlace>| {
                let doubtful = planes.iter().enumerate().filter(|(_, plane)| {
                    plane.doubtful_since.is_some() && place.is_none_or(|place| plane.place == place)
                });
                doubtful.min_by_key(|(_, plane)| plane.doubtful_since).map(|(at, _)| at)
            };
            let Some(first) = oldest(&self.planes, None) else {
                return;
            };
            let first = self.planes.swap_remove(first);
            // The only doubt of its place is given up before its time.
            if let Some(next) = oldest(&self.planes, Some(first.place)) {
                // Not all of them are of one doubt any more.
                self.planes[next].doubtful_since = first.doubtful_since.map(since_alone);
                self.planes[next].extent.join(&first.extent);
            }
        }
    }
}
