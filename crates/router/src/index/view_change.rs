//! The changes of a [`super::view::View`], as values: what is done to one copy is repeated on the
//! other.

use std::sync::Arc;

use headstart_core::{Nanos, RouteHasher};

use super::buffer::Keys;
use super::slot_profile::SlotProfile;
use super::spot::Span;
use super::standing::{BlockPlace, BlockStanding};

/// A change of the view.
#[derive(Clone, Debug)]
pub(super) enum ViewChange {
    /// Sets the profile of this slot, of a replica or of a free slot.
    Profile { slot: u32, profile: SlotProfile },
    /// One for each block size in use.
    Hashers(Arc<[RouteHasher]>),
    /// A new run, with a first key.
    Begin { run: u32, block_size: u32, keys: Keys },
    /// The run has `len` keys now; `keys` is set where they had to move.
    Grow { run: u32, keys: Option<Keys>, len: u32 },
    /// Cuts the run to `len` keys; no replica holds the blocks behind them. At 0 the run is gone.
    Cut { run: u32, keys: Option<Keys>, len: u32 },
    /// Sets the standing of blocks in a place; `None` means not held.
    Set { spots: Span, slot: u32, place: BlockPlace, standing: Option<BlockStanding> },
    /// All that is confirmed becomes doubtful.
    Doubt { run: u32, slot: u32, since: Nanos },
    /// Confirms the blocks that have been doubtful since then.
    Trust { run: u32, slot: u32, since: Nanos },
    /// Assumes the first `blocks` blocks.
    Assume { run: u32, slot: u32, blocks: u32, until: Nanos },
    /// Doubts that have aged out go.
    ExpireDoubts { run: u32, slot: u32, now: Nanos },
    /// Assumptions that last until now at most go.
    ExpireAssumptions { run: u32, slot: u32, now: Nanos },
    /// The replica holds nothing of the run any more.
    Leave { run: u32, slot: u32 },
}

impl ViewChange {
    /// Makes this the same as itself and then `next`, if that is one change. Returns whether.
    pub(super) fn extend(&mut self, next: &Self) -> bool {
        let (
            Self::Set { spots, slot, place, standing },
            Self::Set { spots: new, slot: new_slot, place: new_place, standing: new_standing },
        ) = (self, next)
        else {
            return false;
        };
        let is_same = (spots.run, *slot, *place, *standing)
            == (new.run, *new_slot, *new_place, *new_standing);
        let offsets = &mut spots.offsets;
        if is_same && offsets.end == new.offsets.start {
            offsets.end = new.offsets.end;
            return true;
        }
        // A removal may name a prompt's blocks from its end to its start.
        if is_same && offsets.start == new.offsets.end {
            offsets.start = new.offsets.start;
            return true;
        }
        false
    }
}
