//! One replica's part in a run, while it changes.

use std::ops::Range;

use super::overflow::More;
use super::standing::{BlockPlace, BlockStanding};
use super::view_change::HoldingChange;

/// One replica's part in a run, taken out of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding {
    /// Leading blocks in the usual place, confirmed; 0 where there is more to say.
    pub(super) lead: u32,
    pub(super) more: Option<Box<More>>,
}

impl Holding {
    /// Whether nothing is held or assumed.
    pub(super) fn is_vacant(&self) -> bool {
        self.lead == 0 && self.more.is_none()
    }

    /// Takes a change over.
    pub(super) fn apply(&mut self, change: &HoldingChange) {
        match change {
            HoldingChange::Set { offsets, place, standing } => {
                self.set(*place, offsets.clone(), *standing);
            }
            HoldingChange::Leave => *self = Self::default(),
            HoldingChange::Turn { from, to } => self.change(|more| more.turn(*from, *to)),
            HoldingChange::Assume { blocks, until } => {
                self.change(|more| more.assume(*blocks, *until));
            }
            // A lead is neither doubtful nor assumed.
            _ if self.more.is_none() => {}
            HoldingChange::ExpireDoubts { now } => self.change(|more| more.expire_doubts(*now)),
            HoldingChange::ExpireAssumptions { now } => {
                self.change(|more| more.expire_assumptions(*now));
            }
        }
    }

    /// Says of all blocks of `range` how they stand in `place`; `None`: they are not there.
    fn set(&mut self, place: BlockPlace, range: Range<u32>, standing: Option<BlockStanding>) {
        if self.more.is_none() && place == BlockPlace::USUAL {
            // Most changes prolong the lead or cut its end, which need no planes.
            match standing {
                Some(BlockStanding::Confirmed) if range.start <= self.lead => {
                    self.lead = self.lead.max(range.end);
                    return;
                }
                None if range.end >= self.lead => {
                    self.lead = self.lead.min(range.start);
                    return;
                }
                _ => {}
            }
        }
        self.change(|more| more.set(place, range, standing));
    }

    /// Changes it with all in planes.
    fn change(&mut self, change: impl FnOnce(&mut More)) {
        // As a plane the lead takes part in the change; `settle` turns it back where it can.
        let lead = std::mem::take(&mut self.lead);
        let more = self.more.get_or_insert_default();
        if lead > 0 {
            more.set(BlockPlace::USUAL, 0..lead, Some(BlockStanding::Confirmed));
        }
        change(more);
        if let Some(lead) = more.settle() {
            (self.lead, self.more) = (lead, None);
        }
    }
}
