//! Replicas that hold blocks of a run, by ascending slot.
//!
//! Most runs are one replica's own: its share stands in the run itself, which spares a piece of
//! memory and a step to it. Popular runs have a list of thousands, which a question reads from end
//! to end: so a share is 8 bytes, and what a number does not say stands aside.
//!
//! Invariants: a list of shares has two at least, and without any it takes no memory; a replica
//! has a lead, or it is among the others, never both and never neither.

use super::holder::{EntryTally, RunHolder};
use super::holding::Holding;
use super::overflow::More;

/// The holders of one run.
#[derive(Debug, Default)]
pub(super) struct Holders {
    shares: ShareList,
    others: Option<Box<Others>>,
}

/// One replica's part in a run, for nearly all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) slot: u32,
    /// Leading blocks in the usual place, confirmed; 0 where there is more to say.
    pub(super) lead: u32,
}

#[derive(Debug)]
enum ShareList {
    One(Share),
    /// Several, or none.
    Many(Vec<Share>),
}

/// Replicas whose part a lead does not describe, by ascending slot; never empty.
#[derive(Debug, Default)]
struct Others(Vec<Other>);

#[derive(Debug)]
struct Other {
    slot: u32,
    /// There, except while it is changed.
    more: Option<Box<More>>,
}

/// A holder's tally before and after a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct TallyChange {
    pub(super) before: EntryTally,
    pub(super) after: EntryTally,
}

impl Holders {
    pub(super) fn len(&self) -> usize {
        self.shares().len()
    }

    /// All of them, as far as a number says it.
    pub(super) fn shares(&self) -> &[Share] {
        self.shares.as_slice()
    }

    /// Whether there are replicas whose part a lead does not describe.
    pub(super) fn has_others(&self) -> bool {
        self.others.is_some()
    }

    /// Replicas whose part a lead does not describe, by ascending slot.
    pub(super) fn others(&self) -> impl Iterator<Item = RunHolder<'_>> {
        let others = self.others.iter().flat_map(|others| &others.0);
        others.map(|other| RunHolder { slot: other.slot, lead: 0, more: other.more.as_deref() })
    }

    /// All of them, by ascending slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = RunHolder<'_>> {
        let mut others = self.others();
        self.shares().iter().map(move |&Share { slot, lead }| {
            // Both lists are in the order of slots, so the next share without a lead is the next
            // other's.
            let more = match lead {
                0 => others.next().and_then(|other| other.more),
                _ => None,
            };
            RunHolder { slot, lead, more }
        })
    }

    /// The replica in this slot, if it is one of them.
    pub(super) fn get(&self, slot: u32) -> Option<RunHolder<'_>> {
        let Share { slot, lead } = self.shares()[self.find(slot).ok()?];
        let more = match lead {
            0 => self.others.as_deref().and_then(|others| others.get(slot)),
            _ => None,
        };
        Some(RunHolder { slot, lead, more })
    }

    /// Changes what the replica in this slot holds; who holds nothing comes and goes.
    pub(super) fn change(&mut self, slot: u32, change: impl FnOnce(&mut Holding)) -> TallyChange {
        let found = self.find(slot);
        let lead = found.map_or(0, |at| self.shares()[at].lead);
        let is_other = found.is_ok() && lead == 0;
        // The change may leave no more than a lead; the rest is put back below.
        let more = if is_other { self.other(slot).more.take() } else { None };
        let mut holding = Holding { lead, more };
        let tally = |holding: &Holding| {
            let Holding { lead, more } = holding;
            let (lead, more) = (*lead, more.as_deref());
            RunHolder { slot, lead, more }.tally()
        };
        let before = tally(&holding);
        change(&mut holding);
        let after = tally(&holding);
        let share = Share { slot, lead: holding.lead };
        match found {
            Ok(at) if holding.is_vacant() => self.shares.remove(at),
            Ok(at) => *self.shares.at(at) = share,
            Err(_) if holding.is_vacant() => {}
            Err(at) => self.shares.insert(at, share),
        }
        match holding.more {
            Some(more) => self.other(slot).more = Some(more),
            None if is_other => self.remove_other(slot),
            None => {}
        }
        TallyChange { before, after }
    }

    fn find(&self, slot: u32) -> Result<usize, usize> {
        self.shares().binary_search_by_key(&slot, |share| share.slot)
    }

    /// The other in this slot, new if need be.
    fn other(&mut self, slot: u32) -> &mut Other {
        let others = &mut self.others.get_or_insert_default().0;
        let at = others.partition_point(|other| other.slot < slot);
        if others.get(at).is_none_or(|other| other.slot != slot) {
            others.insert(at, Other { slot, more: None });
        }
        &mut others[at]
    }

    fn remove_other(&mut self, slot: u32) {
        let Some(others) = &mut self.others else {
            return;
        };
        if let Ok(at) = others.0.binary_search_by_key(&slot, |other| other.slot) {
            others.0.remove(at);
        }
        if others.0.is_empty() {
            self.others = None;
        }
    }

    /// Memory beyond the value itself, bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let list = match &self.shares {
            ShareList::One(_) => 0,
            ShareList::Many(shares) => shares.capacity() * size_of::<Share>(),
        };
        list + self.others.as_ref().map_or(0, |others| others.bytes())
    }

    /// Asserts the invariants, for a run of `len` blocks.
    pub(super) fn check(&self, len: u32) {
        let is_sorted = self.shares().is_sorted_by(|a, b| a.slot < b.slot);
        assert!(is_sorted, "holders are sorted");
        if let ShareList::Many(shares) = &self.shares {
            assert_ne!(shares.len(), 1, "one holder needs no list");
        }
        if let Some(others) = &self.others {
            assert!(!others.0.is_empty(), "without others there is no list");
        }
        let without_lead = self.shares().iter().filter(|share| share.lead == 0);
        let slots = without_lead.map(|share| share.slot);
        assert!(
            slots.eq(self.others().map(|other| other.slot)),
            "who has no lead is among the others"
        );
        for holder in self.iter() {
            assert!(
                holder.held_end() <= len && holder.assumed_end() <= len,
                "nothing is held behind the end"
            );
            let more = holder.more;
            assert!(holder.lead > 0 || more.is_some(), "holders hold something");
            more.into_iter().for_each(More::check);
        }
    }
}

impl Default for ShareList {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl ShareList {
    fn as_slice(&self) -> &[Share] {
        match self {
            Self::One(share) => std::slice::from_ref(share),
            Self::Many(shares) => shares,
        }
    }

    fn at(&mut self, at: usize) -> &mut Share {
        match self {
            Self::One(share) => share,
            Self::Many(shares) => &mut shares[at],
        }
    }

    fn insert(&mut self, at: usize, new: Share) {
        match self {
            Self::Many(shares) if shares.is_empty() => *self = Self::One(new),
            Self::Many(shares) => {
                if shares.len() == shares.capacity() {
                    // Half as much again: popular runs have thousands of shares. At least two, so
                    // this makes room.
                    shares.reserve_exact(shares.len() / 2);
                }
                shares.insert(at, new);
            }
            Self::One(known) => {
                let pair = match at {
                    0 => [new, *known],
                    _ => [*known, new],
                };
                *self = Self::Many(Vec::from(pair));
            }
        }
    }

    fn remove(&mut self, at: usize) {
        let Self::Many(shares) = self else {
            *self = Self::default();
            return;
        };
        shares.remove(at);
        if let [last] = shares[..] {
            *self = Self::One(last);
        } else if shares.capacity() > 4 * shares.len() {
            // Only a mostly empty list moves; a holder that comes and goes must not cost a copy
            // each time.
            shares.shrink_to(2 * shares.len());
        }
    }
}

impl Others {
    fn get(&self, slot: u32) -> Option<&More> {
        let at = self.0.binary_search_by_key(&slot, |other| other.slot);
        self.0[at.ok()?].more.as_deref()
    }

    /// Memory, bytes.
    fn bytes(&self) -> usize {
        let more = self.0.iter().filter_map(|other| other.more.as_deref());
        size_of::<Self>()
            + self.0.capacity() * size_of::<Other>()
            + more.map(More::bytes).sum::<usize>()
    }
}
