//! One replica's part in a run, for readers.
//!
//! Nearly every replica holds the leading blocks of a run on its device, confirmed, in its only
//! cache group: a number. Anything else stands in [`More`].

use std::ops::Range;

use headstart_core::{Nanos, ReplicaId};

use super::extent::OffsetSet;
use super::lengths::Overlap;
use super::overflow::More;
use super::standing::{BlockPlace, BlockStanding};
use super::tier_tokens::{ByTier, TIERS};

/// One replica's part in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunHolder<'a> {
    pub(super) slot: u32,
    /// Leading blocks in the usual place, confirmed; 0 where there is more to say.
    pub(super) lead: u32,
    pub(super) more: Option<&'a More>,
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
pub(super) struct EntryTally {
    pub(super) entries: usize,
    pub(super) doubtful: usize,
}

impl Reach {
    /// As the overlap of a replica, in blocks of this size.
    pub(super) fn overlap(self, replica: ReplicaId, block_size: u32) -> Overlap {
        Overlap {
            replica,
            device_tokens: self.device * block_size,
            any_tier_tokens: self.any_tier * block_size,
            trusted_tokens: self.trusted * block_size,
        }
    }

    /// The same on all levels.
    pub(super) fn of(blocks: u32) -> Self {
        Self { device: blocks, any_tier: blocks, trusted: blocks }
    }
}

impl<'a> RunHolder<'a> {
    pub(super) fn standing(self, place: BlockPlace, offset: u32) -> Option<BlockStanding> {
        if offset < self.lead && place == BlockPlace::USUAL {
            return Some(BlockStanding::Confirmed);
        }
        self.more?.standing(place, offset)
    }

    /// Blocks of `range` that are confirmed in `place`.
    pub(super) fn count_confirmed(self, place: BlockPlace, range: Range<u32>) -> u32 {
        let more = |more: &More| more.count_confirmed(place, range.clone());
        // At most one of the two counts anything: a holder has a lead or more.
        self.count_usual(place, range.clone()) + self.more.map_or(0, more)
    }

    /// Blocks of `range` that `place` holds, for sure or not.
    pub(super) fn count_in(self, place: BlockPlace, range: Range<u32>) -> u32 {
        let more = |more: &More| more.count_in(place, range.clone());
        self.count_usual(place, range.clone()) + self.more.map_or(0, more)
    }

    fn count_usual(self, place: BlockPlace, range: Range<u32>) -> u32 {
        if place == BlockPlace::USUAL { OffsetSet::Lead(self.lead).count_in(range) } else { 0 }
    }

    /// Whether any place holds the block.
    pub(super) fn holds(self, offset: u32) -> bool {
        offset < self.lead || self.more.is_some_and(|more| more.holds(offset))
    }

    /// One more than the last block that is held.
    pub(super) fn held_end(self) -> u32 {
        self.more.map_or(self.lead, More::held_end)
    }

    /// One more than the last block that is assumed, at whatever time.
    pub(super) fn assumed_end(self) -> u32 {
        self.more.map_or(0, More::assumed_end)
    }

    /// All that is held, whatever its age.
    pub(super) fn tally(self) -> EntryTally {
        let plain = EntryTally { entries: self.lead as usize, doubtful: 0 };
        self.more.map_or(plain, More::tally)
    }

    /// Visits all that is held, whatever its age.
    pub(super) fn visit(self, mut visit: impl FnMut(BlockPlace, BlockStanding, &OffsetSet)) {
        if self.lead > 0 {
            visit(BlockPlace::USUAL, BlockStanding::Confirmed, &OffsetSet::Lead(self.lead));
        }
        if let Some(more) = self.more {
            more.visit(visit);
        }
    }

    /// Leading blocks, at most `limit`, that `group` can use.
    #[inline]
    pub(super) fn reach(self, group: u8, limit: u32, now: Nanos) -> Reach {
        if let Some(more) = self.more {
            return more.reach(group, limit, now);
        }
        let is_usual = group == BlockPlace::USUAL.group;
        Reach::of(self.lead.min(limit) * u32::from(is_usual))
    }

    /// The same up to each tier, doubtful blocks included.
    pub(super) fn reach_by_tier(self, group: u8, limit: u32, now: Nanos) -> ByTier {
        match self.more {
            Some(more) => more.reach_by_tier(group, limit, now),
            None => [self.reach(group, limit, now).device; TIERS.len()],
        }
    }

    /// Whether `group` can use the block, level by level: 1 where it can.
    pub(super) fn usable(self, group: u8, offset: u32, now: Nanos) -> Reach {
        let is_usual = offset < self.lead && group == BlockPlace::USUAL.group;
        let plain = Reach::of(u32::from(is_usual));
        self.more.map_or(plain, |more| more.usable(group, offset, now))
    }

    /// The same up to each tier, doubtful blocks included.
    pub(super) fn usable_by_tier(self, group: u8, offset: u32, now: Nanos) -> ByTier {
        match self.more {
            Some(more) => more.usable_by_tier(group, offset, now),
            None => [self.usable(group, offset, now).device; TIERS.len()],
        }
    }

    /// Whether doubts are held.
    pub(super) fn is_doubtful(self) -> bool {
        self.more.is_some_and(More::is_doubtful)
    }

    /// Whether anything is doubtful since then.
    pub(super) fn is_doubtful_since(self, since: Nanos) -> bool {
        self.more.is_some_and(|more| more.is_doubtful_since(since))
    }
}
