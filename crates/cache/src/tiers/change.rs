//! Changes of lower tiers, for events.

use headstart_core::{BlockHash, Tier};

use super::Tiers;

/// A change of a unit in a lower tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The tier.
    pub tier: Tier,
    /// The unit's name.
    pub name: BlockHash,
    /// The unit's state there from now on.
    pub kind: ChangeKind,
}

/// State of a unit in a lower tier after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It can be read there.
    Stored,
    /// It cannot any more.
    Removed,
    /// It was on its way there, and did not arrive.
    NotStored,
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
