//! Places of blocks: a run, and an offset or consecutive offsets in it.

use std::ops::Range;

/// Place of a block: a run and an offset in it. It stays as long as the block is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Spot {
    pub(super) run: u32,
    pub(super) offset: u32,
}

/// Consecutive blocks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) run: u32,
    pub(super) offsets: Range<u32>,
}

impl Span {
    pub(super) fn one(spot: Spot) -> Self {
        Self { run: spot.run, offsets: spot.offset..spot.offset + 1 }
    }
}
