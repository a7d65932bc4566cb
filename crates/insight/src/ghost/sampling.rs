//! Sampling of blocks: a hash of the key decides, so a block is followed always or never.

use crate::documents::mixed;

/// Halvings after which the rate falls no further.
const HALVINGS_MAX: u32 = 40;

/// The share of blocks that is followed: two to the power of minus something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleRate {
    halvings: u32,
}

impl SampleRate {
    pub(super) fn keeps(self, key: u64) -> bool {
        // The blocks of a lower rate are a subset of those of a higher one, so halving only drops
        // blocks.
        self.halvings == 0 || mixed(key).leading_zeros() >= self.halvings
    }

    /// The larger share of two.
    pub(super) fn larger(self, other: Self) -> Self {
        Self { halvings: self.halvings.min(other.halvings) }
    }

    /// Blocks that each followed one stands for.
    pub(super) fn weight(self) -> u64 {
        1 << self.halvings
    }

    /// Half of it; whether that was possible.
    pub(super) fn halve(&mut self) -> bool {
        // The limit keeps the shift in `weight` within 64 bits.
        self.halvings += u32::from(self.halvings < HALVINGS_MAX);
        self.halvings < HALVINGS_MAX
    }

    pub(super) fn share(self) -> f64 {
        1.0 / self.weight() as f64
    }
}

/// Another hash, for tables: the leading bits of the first are equal for all that is followed.
pub(super) fn table_hash(key: u64) -> u64 {
    let z = (key ^ (key >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 32)
}
