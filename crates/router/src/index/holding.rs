//! One replica's part in a run, while it changes.

use std::ops::Range;

use headstart_core::Nanos;

use super::overflow::More;
use super::standing::{BlockPlace, BlockStanding};

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

    /// Says of all blocks of `range` how they stand in `place`; `None`: they are not there.
    pub(super) fn set(
        &mut self,
        place: BlockPlace,
        range: Range<u32>,
        standing: Option<BlockStanding>,
    ) {
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

    /// Doubts what is confirmed.
    pub(super) fn doubt(&mut self, since: Nanos) {
        self.change(|more| more.turn(None, Some(since)));
    }

    /// Confirms what is doubtful since then.
    pub(super) fn trust(&mut self, since: Nanos) {
        self.change(|more| more.turn(Some(since), None));
    }

    /// Assumes the first `blocks` blocks until `until`.
    pub(super) fn assume(&mut self, blocks: u32, until: Nanos) {
        self.change(|more| more.assume(blocks, until));
    }

    /// Forgets doubts that have aged out.
    pub(super) fn expire_doubts(&mut self, now: Nanos) {
        if self.more.is_some() {
            self.change(|more| more.expire_doubts(now));
        }
    }

    /// Forgets assumptions that last until `now` at most.
    pub(super) fn expire_assumptions(&mut self, now: Nanos) {
        if self.more.is_some() {
            self.change(|more| more.expire_assumptions(now));
        }
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
