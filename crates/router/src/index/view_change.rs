//! The changes of a [`super::view::View`], as values: what is done to one copy is repeated on the
//! other.

use std::ops::Range;
use std::sync::Arc;

use headstart_core::{Nanos, RouteHasher};

use super::buffer::Keys;
use super::slot_profile::SlotProfile;
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
    /// Changes what the replica in this slot holds of the run.
    Hold { run: u32, slot: u32, change: HoldingChange },
}

/// A change of one replica's part in a run.
#[derive(Clone, Debug)]
pub(super) enum HoldingChange {
    /// Sets the standing of blocks in a place; `None` means not held.
    Set { offsets: Range<u32>, place: BlockPlace, standing: Option<BlockStanding> },
    /// Turns all that is doubtful since `from` into doubtful since `to`; `None` means confirmed.
    Turn { from: Option<Nanos>, to: Option<Nanos> },
    /// Assumes the first `blocks` blocks.
    Assume { blocks: u32, until: Nanos },
    /// Doubts that have aged out go.
    ExpireDoubts { now: Nanos },
    /// Assumptions that last until now at most go.
    ExpireAssumptions { now: Nanos },
    /// The replica holds nothing of the run any more.
    Leave,
}

impl ViewChange {
    /// Makes this the same as itself and then `next`, if that is one change. Returns whether.
    pub(super) fn extend(&mut self, next: &Self) -> bool {
        use HoldingChange::Set;
        let (
            Self::Hold { run, slot, change: Set { offsets, place, standing } },
            Self::Hold {
                run: new_run,
                slot: new_slot,
                change: Set { offsets: new, place: new_place, standing: new_standing },
            },
        ) = (self, next)
        else {
            return false;
        };
        let is_same =
            (*run, *slot, *place, *standing) == (*new_run, *new_slot, *new_place, *new_standing);
        if is_same && offsets.end == new.start {
            offsets.end = new.end;
            return true;
        }
        // A removal may name a prompt's blocks from its end to its start.
        if is_same && offsets.start == new.end {
            offsets.start = new.start;
            return true;
        }
        false
    }
}
