//! Sets of tiers, and tiers as array positions.

use headstart_core::Tier;

/// All tiers, nearest first.
pub(super) const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];

/// Where `tier` stands in [`TIERS`] and in arrays of one value per tier.
pub(super) fn position(tier: Tier) -> usize {
    match tier {
        Tier::Device => 0,
        Tier::Host => 1,
        Tier::Disk => 2,
        Tier::Remote => 3,
    }
}

/// A set of tiers in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TierSet(u8);

impl TierSet {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it was not yet in.
    pub(super) fn insert(&mut self, tier: Tier) -> bool {
        let before = self.0;
        self.0 |= 1 << position(tier);
        self.0 != before
    }

    /// Whether it was in.
    pub(super) fn remove(&mut self, tier: Tier) -> bool {
        let before = self.0;
        self.0 &= !(1 << position(tier));
        self.0 != before
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Tier> {
        TIERS
            .into_iter()
            .filter(move |&tier| self.0 & (1 << position(tier)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_list() {
        for (index, &tier) in TIERS.iter().enumerate() {
            assert_eq!(position(tier), index);
        }
    }

    #[test]
    fn changes_tell_whether_they_changed_anything() {
        let mut set = TierSet::default();
        assert!(set.insert(Tier::Host) && !set.insert(Tier::Host) && set.insert(Tier::Device));
        assert!(set.iter().eq([Tier::Device, Tier::Host]));
        assert!(!set.remove(Tier::Disk) && set.remove(Tier::Host) && set.remove(Tier::Device));
        assert!(set.is_empty());
    }
}
