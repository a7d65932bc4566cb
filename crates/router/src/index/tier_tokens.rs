//! Leading tokens of a prompt on one replica, tier by tier.

use headstart_core::Tier;

/// All tiers, nearest first.
pub(super) const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];

/// A number for each tier, nearest first.
pub(super) type ByTier = [u32; TIERS.len()];

/// Leading tokens of a prompt that one replica holds, counted up to each tier.
///
/// ```text
/// block      0       1       2       3
/// held in    device  host    disk    -          block size 16
/// within     device 16, host 32, disk 48, remote 48
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierTokens {
    /// Never less than for the tier before.
    within: ByTier,
}

impl TierTokens {
    /// From the leading tokens that each tier and those before it hold together, nearest first.
    #[must_use]
    pub fn new(within: [u32; 4]) -> Self {
        debug_assert!(within.is_sorted(), "a tier counts with those before it: {within:?}");
        Self { within }
    }

    /// All on the device.
    #[must_use]
    pub fn on_device(tokens: u32) -> Self {
        Self { within: [tokens; TIERS.len()] }
    }

    /// Leading tokens that `tier` and the nearer ones hold together.
    #[must_use]
    pub fn within(self, tier: Tier) -> u32 {
        // `TIERS` has the order of the declaration.
        self.within[tier as usize]
    }

    /// Splits the first `tokens` tokens of the prompt by tier, nearest first. Tokens beyond all
    /// that is known here count for the device.
    #[must_use]
    pub fn split(self, tokens: u32) -> [u32; 4] {
        let mut parts = [0; TIERS.len()];
        let mut before = 0;
        for (part, within) in parts.iter_mut().zip(self.within) {
            let end = within.min(tokens);
            *part = end - before;
            before = end;
        }
        parts[0] += tokens - before;
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_split_from_the_start_and_all_of_them() {
        let held = TierTokens::new([32, 32, 80, 96]);
        for (tokens, parts) in [
            (0, [0, 0, 0, 0]),
            (20, [20, 0, 0, 0]),
            (32, [32, 0, 0, 0]),
            (64, [32, 0, 32, 0]),
            (96, [32, 0, 48, 16]),
            (100, [36, 0, 48, 16]),
        ] {
            assert_eq!(held.split(tokens), parts, "{tokens}");
            assert_eq!(parts.iter().sum::<u32>(), tokens);
        }
        assert_eq!(held.within(Tier::Disk), 80);
        assert_eq!(TierTokens::on_device(32).split(48), [48, 0, 0, 0]);
        assert_eq!(TierTokens::default().split(48), [48, 0, 0, 0]);
    }
}
