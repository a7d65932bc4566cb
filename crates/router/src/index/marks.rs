//! Marks of blocks that are held once more than they were removed.

use super::extent::OffsetSet;
use super::spot::Spot;
use super::standing::BlockPlace;
use crate::lookup::StableMap;

/// Takes a mark away. Returns whether it was there.
pub(super) fn unmark(
    again: &mut StableMap<(u32, BlockPlace), OffsetSet>,
    spot: Spot,
    place: BlockPlace,
) -> bool {
    let Some(extent) = again.get_mut(&(spot.run, place)) else {
        return false;
    };
    let was_marked = extent.contains(spot.offset);
    extent.clear(spot.offset..spot.offset + 1);
    if extent.is_empty() {
        again.remove(&(spot.run, place));
    }
    was_marked
}
