//! Changes of lower tiers, for events.

use headstart_core::{BlockHash, Tier};

use super::Tiers;

/// A change of a unit in a lower tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It can be read there.
    Stored {
        /// The tier.
        tier: Tier,
        /// The unit's name.
        name: BlockHash,
    },
    /// It cannot any more.
    Removed {
        /// The tier.
        tier: Tier,
        /// The unit's name.
        name: BlockHash,
    },
    /// It was on its way there, and did not arrive.
    NotStored {
        /// The tier.
        tier: Tier,
        /// The unit's name.
        name: BlockHash,
    },
}

impl Change {
    /// Of what it tells.
    #[must_use]
    pub fn name(&self) -> BlockHash {
        match *self {
            Self::Stored { name, .. }
            | Self::Removed { name, .. }
            | Self::NotStored { name, .. } => name,
        }
    }
}

impl Tiers {
    /// The tiers in which a unit can be read, the nearest first. O(tiers).
    pub fn holding(&self, name: BlockHash) -> impl Iterator<Item = Tier> {
        let shelves = self.shelves.iter();
        let holding = shelves.filter(move |shelf| shelf.level.holds(name));
        holding.map(|shelf| shelf.tier)
    }

    /// Whether a unit can be read in some tier, or soon. O(tiers).
    #[must_use]
    pub fn knows(&self, name: BlockHash) -> bool {
        self.shelves.iter().any(|shelf| shelf.level.knows(name))
    }
}
