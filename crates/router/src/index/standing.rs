//! Places that can hold a block, and the certainty that they do.
//!
//! The time since which a block is doubtful tells the reason as well:
//!
//! | doubtful since | because | may be trusted again |
//! |---|---|---|
//! | an odd time | [`Update::Doubt`] came | those of the last one, by [`Update::Trust`] |
//! | an even time | it was removed once of twice, or restored from a dump | never |
//!
//! So times are up to a nanosecond off, or two per doubt where several come at once.
//!
//! [`Update::Doubt`]: super::Update::Doubt
//! [`Update::Trust`]: super::Update::Trust

use std::time::Duration;

use headstart_core::{Nanos, Tier};

use super::DOUBT_TTL;
use super::spot::Spot;

/// One of the places of a replica that may hold a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BlockPlace {
    pub(super) group: u8,
    pub(super) tier: Tier,
}

impl BlockPlace {
    /// The place of nearly all blocks.
    pub(super) const USUAL: Self = Self { group: 0, tier: Tier::Device };
}

/// A block in a place that holds it because of a handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedHandle {
    pub(super) handle: u64,
    pub(super) spot: Spot,
    pub(super) place: BlockPlace,
}

/// Certainty that a place holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockStanding {
    Confirmed,
    Doubtful { since: Nanos },
}

/// Whether what is doubtful since then has aged out.
pub(super) fn is_over(since: Nanos, now: Nanos) -> bool {
    now >= since + DOUBT_TTL
}

/// Since when what is confirmed at `now` is doubtful if everything is: unlike any time before it.
pub(super) fn since_doubt(now: Nanos, last: Option<Nanos>) -> Nanos {
    let since = Nanos(now.0 | 1);
    // Two more, so that the time stays odd.
    last.map_or(since, |last| since.max(Nanos(last.0 + 2)))
}

/// Since when a block is doubtful that alone becomes so at `now`.
pub(super) fn since_alone(now: Nanos) -> Nanos {
    Nanos(now.0 & !1)
}

/// Holdings of one handle, by place. They are kept separately for handles whose key is unknown, or
/// that share their key with another handle of the same replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records(Vec<(BlockPlace, HoldingRecord)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldingRecord {
    /// `again`: it was stored once more than it was removed.
    Confirmed {
        again: bool,
    },
    Doubtful {
        since: Nanos,
    },
}

impl HoldingRecord {
    /// The record of a place behind an event that stored the block there.
    pub(super) fn held_after(before: Option<Self>) -> Self {
        Self::Confirmed { again: matches!(before, Some(Self::Confirmed { .. })) }
    }

    /// The record behind a removal, if the block may still be there.
    pub(super) fn released(self, now: Nanos) -> Option<Self> {
        let since = since_alone(now);
        // A doubtful block is gone with its first removal: the doubt was whether it is there.
        (self == Self::Confirmed { again: true }).then_some(Self::Doubtful { since })
    }

    pub(super) fn doubt(&mut self, since: Nanos) {
        if matches!(self, Self::Confirmed { .. }) {
            *self = Self::Doubtful { since };
        }
    }

    /// Confirms it if it is doubtful since then. Returns whether it was.
    pub(super) fn trust(&mut self, since: Nanos) -> bool {
        let is_meant = *self == Self::Doubtful { since };
        if is_meant {
            *self = Self::Confirmed { again: false };
        }
        is_meant
    }

    /// Whether it has not aged out.
    pub(super) fn is_left(self, now: Nanos) -> bool {
        match self {
            Self::Confirmed { .. } => true,
            Self::Doubtful { since } => !is_over(since, now),
        }
    }
}

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockPlace, HoldingRecord)> {
        self.0.iter().copied()
    }

    pub(super) fn get(&self, place: BlockPlace) -> Option<HoldingRecord> {
        self.iter().find(|(known, _)| *known == place).map(|(_, record)| record)
    }

    pub(super) fn put(&mut self, place: BlockPlace, record: HoldingRecord) {
        match self.0.iter_mut().find(|(known, _)| *known == place) {
            Some((_, known)) => *known = record,
            None => self.0.push((place, record)),
        }
    }

    pub(super) fn hold(&mut self, place: BlockPlace) {
        self.put(place, HoldingRecord::held_after(self.get(place)));
    }

    /// Returns whether the place held it.
    pub(super) fn release(&mut self, place: BlockPlace, now: Nanos) -> bool {
        let before = self.get(place);
        match before.and_then(|record| record.released(now)) {
            Some(record) => self.put(place, record),
            None => self.0.retain(|(known, _)| *known != place),
        }
        before.is_some()
    }

    pub(super) fn doubt(&mut self, since: Nanos) {
        self.0.iter_mut().for_each(|(_, record)| record.doubt(since));
    }

    /// Confirms what is doubtful since then. Returns whether anything is.
    pub(super) fn trust(&mut self, since: Nanos) -> bool {
        let mut is_changed = false;
        for (_, record) in &mut self.0 {
            is_changed |= record.trust(since);
        }
        is_changed
    }

    /// Forgets what has aged out.
    pub(super) fn expire(&mut self, now: Nanos) {
        self.0.retain(|(_, record)| record.is_left(now));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(BlockPlace, HoldingRecord)>()
    }
}

impl From<HoldingRecord> for BlockStanding {
    fn from(record: HoldingRecord) -> Self {
        match record {
            HoldingRecord::Confirmed { .. } => Self::Confirmed,
            HoldingRecord::Doubtful { since } => Self::Doubtful { since },
        }
    }
}

impl BlockStanding {
    /// Combines the standings of two handles of one block: confirmed if either is, else the later
    /// doubt.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Doubtful { since: a }, Self::Doubtful { since: b }) => {
                Self::Doubtful { since: a.max(b) }
            }
            _ => Self::Confirmed,
        }
    }
}

/// Doubts are swept up this much later than they end, so that many end in one sweep.
pub(super) const SWEEP_SLACK: Duration = Duration::from_secs(30);
