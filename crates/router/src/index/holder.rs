//! What one replica holds of one run.
//!
//! Nearly every replica holds the leading blocks of a run on its device, confirmed, in its only
//! cache group: a number. Anything else stands in [`More`], one plane per place and standing.
//!
//! Invariants: an offset stands in at most one plane of a place; planes hold something; without
//! need there is no [`More`].

use std::ops::Range;

use headstart_core::{Nanos, Tier};

use super::extent::Extent;
use super::standing::{Place, Standing, is_over, since_alone};

/// Planes per holder. There are a handful, unless many blocks were reported twice and removed once
/// at different times; beyond it, the two oldest doubts of a place become one, never trusted again.
const MAX_PLANES: usize = 64;

/// One replica's share in a run. 16 bytes, since popular runs have one per replica.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) slot: u32,
    /// Leading blocks in the usual place, confirmed; 0 where there is more to say.
    lead: u32,
    more: Option<Box<More>>,
}

#[derive(Clone, Debug, Default)]
struct More {
    planes: Vec<Plane>,
    /// Each longer than the one before and ending earlier: all others say nothing.
    assumed: Vec<Assumed>,
}

/// Blocks of one place and of one standing.
#[derive(Clone, Debug)]
struct Plane {
    place: Place,
    /// Since when they are doubtful; confirmed otherwise.
    doubtful_since: Option<Nanos>,
    extent: Extent,
}

/// So many leading blocks are assumed until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Assumed {
    blocks: u32,
    until: Nanos,
}

/// Leading blocks of a run, level by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) device: u32,
    pub(super) any_tier: u32,
    pub(super) trusted: u32,
}

/// Blocks that are held, and those of them that are doubtful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) entries: usize,
    pub(super) doubtful: usize,
}

impl Plane {
    fn is_usual(&self) -> bool {
        self.place == Place::USUAL && self.doubtful_since.is_none()
    }

    fn is_there(&self, group: u8, now: Nanos) -> bool {
        self.place.group == group && self.doubtful_since.is_none_or(|since| !is_over(since, now))
    }
}

impl Holder {
    pub(super) fn new(slot: u32) -> Self {
        Self {
            slot,
            lead: 0,
            more: None,
        }
    }

    /// Whether nothing is held or assumed.
    pub(super) fn is_vacant(&self) -> bool {
        self.lead == 0 && self.more.is_none()
    }

    pub(super) fn standing(&self, place: Place, offset: u32) -> Option<Standing> {
        if offset < self.lead && place == Place::USUAL {
            return Some(Standing::Confirmed);
        }
        let mut planes = self.planes().iter().filter(|plane| plane.place == place);
        let plane = planes.find(|plane| plane.extent.contains(offset))?;
        Some(match plane.doubtful_since {
            None => Standing::Confirmed,
            Some(since) => Standing::Doubtful { since },
        })
    }

    /// Blocks of `range` that are confirmed in `place`.
    pub(super) fn count_confirmed(&self, place: Place, range: Range<u32>) -> u32 {
        let usual = match place == Place::USUAL {
            true => Extent::Lead(self.lead).count_in(range.clone()),
            false => 0,
        };
        let is_meant = |plane: &&Plane| plane.place == place && plane.doubtful_since.is_none();
        let mut planes = self.planes().iter().filter(is_meant);
        usual
            + planes
                .next()
                .map_or(0, |plane| plane.extent.count_in(range))
    }

    /// Blocks of `range` that `place` holds, for sure or not.
    pub(super) fn count_in(&self, place: Place, range: Range<u32>) -> u32 {
        let planes = self.planes().iter().filter(|plane| plane.place == place);
        let counts = planes.map(|plane| plane.extent.count_in(range.clone()));
        let usual = match place == Place::USUAL {
            true => Extent::Lead(self.lead).count_in(range.clone()),
            false => 0,
        };
        usual + counts.sum::<u32>()
    }

    /// Whether nothing is to be said but [`Self::lead`].
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.more.is_none()
    }

    /// Leading blocks in the usual place; 0 where more is to be said.
    #[inline]
    pub(super) fn lead(&self) -> u32 {
        self.lead
    }

    /// Whether any place holds the block.
    pub(super) fn holds(&self, offset: u32) -> bool {
        let mut planes = self.planes().iter();
        offset < self.lead || planes.any(|plane| plane.extent.contains(offset))
    }

    /// One more than the last block that is assumed, at whatever time.
    pub(super) fn assumed_end(&self) -> u32 {
        self.assumed().last().map_or(0, |assumed| assumed.blocks)
    }

    /// One more than the last block that is held.
    pub(super) fn held_end(&self) -> u32 {
        let ends = self.planes().iter().map(|plane| plane.extent.end());
        ends.fold(self.lead, u32::max)
    }

    /// All that is held, whatever its age.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally {
            entries: self.lead as usize,
            doubtful: 0,
        };
        for plane in self.planes() {
            let count = plane.extent.count() as usize;
            tally.entries += count;
            tally.doubtful += count * usize::from(plane.doubtful_since.is_some());
        }
        tally
    }

    /// Visits all that is held, whatever its age.
    pub(super) fn visit(&self, mut visit: impl FnMut(Place, Standing, &Extent)) {
        if self.lead > 0 {
            visit(Place::USUAL, Standing::Confirmed, &Extent::Lead(self.lead));
        }
        for plane in self.planes() {
            let standing = match plane.doubtful_since {
                None => Standing::Confirmed,
                Some(since) => Standing::Doubtful { since },
            };
            visit(plane.place, standing, &plane.extent);
        }
    }

    /// Leading blocks, at most `limit`, that `group` can use.
    #[inline]
    pub(super) fn reach(&self, group: u8, limit: u32, now: Nanos) -> Reach {
        if let Some(more) = &self.more {
            return more.reach(group, limit, now);
        }
        let is_usual = group == Place::USUAL.group;
        let usual = self.lead.min(limit) * u32::from(is_usual);
        Reach {
            device: usual,
            any_tier: usual,
            trusted: usual,
        }
    }

    /// Whether `group` can use the block, level by level: 1 where it can.
    pub(super) fn usable(&self, group: u8, offset: u32, now: Nanos) -> Reach {
        let mut assumed = self.assumed().iter();
        let is_assumed = assumed.any(|assumed| now < assumed.until && offset < assumed.blocks);
        let is_usual = offset < self.lead && group == Place::USUAL.group;
        let all = u32::from(is_assumed || is_usual);
        let mut usable = Reach {
            device: all,
            any_tier: all,
            trusted: all,
        };
        for plane in self.planes() {
            if plane.is_there(group, now) && plane.extent.contains(offset) {
                usable.any_tier = 1;
                usable.device |= u32::from(plane.place.tier == Tier::Device);
                usable.trusted |= u32::from(plane.doubtful_since.is_none());
            }
        }
        usable
    }

    /// Says of all blocks of `range` how they stand in `place`; `None`: they are not there.
    pub(super) fn set(&mut self, place: Place, range: Range<u32>, standing: Option<Standing>) {
        if self.more.is_none() && place == Place::USUAL {
            match standing {
                Some(Standing::Confirmed) if range.start <= self.lead => {
                    self.lead = self.lead.max(range.end);
                    return;
                }
                None if range.end >= self.lead => {
                    self.lead = self.lead.min(range.start);
                    return;
                }
                _ => {}
            }
        }
        let more = self.open();
        for plane in more.planes.iter_mut().filter(|plane| plane.place == place) {
            plane.extent.clear(range.clone());
        }
        match standing {
            None => {}
            Some(Standing::Confirmed) => more.plane(place, None).extent.fill(range),
            Some(Standing::Doubtful { since }) => {
                more.plane(place, Some(since)).extent.fill(range);
            }
        }
        self.close();
    }

    /// Doubts what is confirmed.
    pub(super) fn doubt(&mut self, since: Nanos) {
        let more = self.open();
        for at in 0..more.planes.len() {
            let plane = &mut more.planes[at];
            if plane.doubtful_since.is_none() {
                let place = plane.place;
                let extent = std::mem::replace(&mut plane.extent, Extent::EMPTY);
                more.plane(place, Some(since)).extent.join(&extent);
            }
        }
        self.close();
    }

    /// Confirms what is doubtful since then.
    pub(super) fn trust(&mut self, since: Nanos) {
        let more = self.open();
        for at in 0..more.planes.len() {
            let plane = &mut more.planes[at];
            if plane.doubtful_since == Some(since) {
                let place = plane.place;
                let extent = std::mem::replace(&mut plane.extent, Extent::EMPTY);
                more.plane(place, None).extent.join(&extent);
            }
        }
        self.close();
    }

    /// Whether anything is doubtful since then.
    pub(super) fn is_doubtful_since(&self, since: Nanos) -> bool {
        let mut planes = self.planes().iter();
        planes.any(|plane| plane.doubtful_since == Some(since))
    }

    /// Assumes so many leading blocks until then.
    pub(super) fn assume(&mut self, blocks: u32, until: Nanos) {
        let more = self.open();
        let new = Assumed { blocks, until };
        let covers = |a: &Assumed, b: &Assumed| a.blocks >= b.blocks && a.until >= b.until;
        if !more.assumed.iter().any(|known| covers(known, &new)) {
            more.assumed.retain(|known| !covers(&new, known));
            let at = more.assumed.partition_point(|known| known.blocks < blocks);
            more.assumed.insert(at, new);
        }
        self.close();
    }

    /// Forgets doubts that have aged out.
    pub(super) fn expire_doubts(&mut self, now: Nanos) {
        if let Some(more) = &mut self.more {
            for plane in &mut more.planes {
                if plane
                    .doubtful_since
                    .is_some_and(|since| is_over(since, now))
                {
                    plane.extent = Extent::EMPTY;
                }
            }
            self.close();
        }
    }

    /// Forgets assumptions that last until `now` at most.
    pub(super) fn expire_assumptions(&mut self, now: Nanos) {
        if let Some(more) = &mut self.more {
            more.assumed.retain(|assumed| now < assumed.until);
            self.close();
        }
    }

    /// Whether doubts are held.
    pub(super) fn is_doubtful(&self) -> bool {
        self.planes()
            .iter()
            .any(|plane| plane.doubtful_since.is_some())
    }

    /// Memory beyond the value itself, bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let Some(more) = &self.more else {
            return 0;
        };
        let bits: usize = more
            .planes
            .iter()
            .map(|plane| plane.extent.heap_bytes())
            .sum();
        size_of::<More>()
            + more.planes.capacity() * size_of::<Plane>()
            + more.assumed.capacity() * size_of::<Assumed>()
            + bits
    }

    /// Asserts the invariants, for a run of so many blocks.
    pub(super) fn check(&self, len: u32) {
        assert!(!self.is_vacant(), "holders hold something");
        assert!(
            self.held_end() <= len && self.assumed_end() <= len,
            "nothing is held behind the end"
        );
        let Some(more) = &self.more else {
            return;
        };
        assert_eq!(self.lead, 0, "planes hold it all");
        for (at, plane) in more.planes.iter().enumerate() {
            assert!(!plane.extent.is_empty(), "planes hold something");
            for other in &more.planes[..at] {
                let is_shared = other.place == plane.place
                    && other
                        .extent
                        .iter()
                        .any(|offset| plane.extent.contains(offset));
                assert!(!is_shared, "one standing per block and place");
            }
        }
    }

    fn planes(&self) -> &[Plane] {
        self.more.as_ref().map_or(&[], |more| &more.planes)
    }

    fn assumed(&self) -> &[Assumed] {
        self.more.as_ref().map_or(&[], |more| &more.assumed)
    }

    /// Moves all into planes.
    fn open(&mut self) -> &mut More {
        let lead = std::mem::take(&mut self.lead);
        let more = self.more.get_or_insert_default();
        if lead > 0 {
            more.plane(Place::USUAL, None).extent.fill(0..lead);
        }
        more
    }

    /// Restores the invariants.
    fn close(&mut self) {
        let Some(more) = &mut self.more else {
            return;
        };
        more.planes.retain(|plane| !plane.extent.is_empty());
        more.limit();
        if !more.assumed.is_empty() {
            return;
        }
        let lead = match more.planes.as_slice() {
            [] => 0,
            [plane] if plane.is_usual() => match plane.extent {
                Extent::Lead(lead) => lead,
                Extent::Bits(_) => return,
            },
            _ => return,
        };
        self.lead = lead;
        self.more = None;
    }
}

impl More {
    #[cold]
    fn reach(&self, group: u8, limit: u32, now: Nanos) -> Reach {
        let is_current = |assumed: &&Assumed| now < assumed.until;
        let current = self.assumed.iter().filter(is_current);
        let assumed = current.map(|assumed| assumed.blocks).max().unwrap_or(0);
        let leading = |counts: fn(&Plane) -> bool| {
            let mut end = assumed;
            loop {
                let before = end;
                for plane in self.planes.iter().filter(|plane| counts(plane)) {
                    if plane.is_there(group, now) {
                        end += plane.extent.run_from(end);
                    }
                }
                if end == before || end >= limit {
                    return end.min(limit);
                }
            }
        };
        Reach {
            device: leading(|plane| plane.place.tier == Tier::Device),
            any_tier: leading(|_| true),
            trusted: leading(|plane| plane.doubtful_since.is_none()),
        }
    }

    fn plane(&mut self, place: Place, doubtful_since: Option<Nanos>) -> &mut Plane {
        let is_meant =
            |plane: &Plane| plane.place == place && plane.doubtful_since == doubtful_since;
        let at = self.planes.iter().position(is_meant).unwrap_or_else(|| {
            self.planes.push(Plane {
                place,
                doubtful_since,
                extent: Extent::EMPTY,
            });
            self.planes.len() - 1
        });
        &mut self.planes[at]
    }

    /// Merges doubts while there are too many planes. Every place has one plane besides them, and
    /// there are fewer places than planes may be unless a replica has very many groups.
    fn limit(&mut self) {
        while self.planes.len() > MAX_PLANES {
            let oldest = |planes: &[Plane], place: Option<Place>| {
                let doubtful = planes.iter().enumerate().filter(|(_, plane)| {
                    plane.doubtful_since.is_some() && place.is_none_or(|place| plane.place == place)
                });
                doubtful
                    .min_by_key(|(_, plane)| plane.doubtful_since)
                    .map(|(at, _)| at)
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
