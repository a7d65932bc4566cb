//! Who holds something of a run, by ascending slot.
//!
//! Most runs are one replica's own: such a holder stands in the run itself, which spares a piece
//! of memory and a step to it. Popular runs have a list of thousands.
//!
//! Invariant: a list has two holders at least; without any it takes no memory.

use super::holder::Holder;

/// The holders of one run.
#[derive(Debug)]
pub(super) enum Holders {
    One(Holder),
    /// Several, or none.
    Many(Vec<Holder>),
}

impl Default for Holders {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Holders {
    pub(super) fn as_slice(&self) -> &[Holder] {
        match self {
            Self::One(holder) => std::slice::from_ref(holder),
            Self::Many(holders) => holders,
        }
    }

    /// Where the replica in this slot is, or would be.
    pub(super) fn find(&self, slot: u32) -> Result<usize, usize> {
        let holders = self.as_slice();
        holders.binary_search_by_key(&slot, |holder| holder.slot)
    }

    pub(super) fn at(&mut self, at: usize) -> &mut Holder {
        match self {
            Self::One(holder) => holder,
            Self::Many(holders) => &mut holders[at],
        }
    }

    pub(super) fn insert(&mut self, at: usize, new: Holder) {
        match self {
            Self::Many(holders) if holders.is_empty() => *self = Self::One(new),
            Self::Many(holders) => {
                if holders.len() == holders.capacity() {
                    holders.reserve_exact(holders.len() / 2);
                }
                holders.insert(at, new);
            }
            Self::One(_) => {
                let Self::One(known) = std::mem::take(self) else {
                    return;
                };
                let pair = match at {
                    0 => [new, known],
                    _ => [known, new],
                };
                *self = Self::Many(Vec::from(pair));
            }
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        let Self::Many(holders) = self else {
            *self = Self::default();
            return;
        };
        holders.remove(at);
        if holders.len() == 1
            && let Some(last) = holders.pop()
        {
            *self = Self::One(last);
        } else if holders.capacity() > 4 * holders.len() {
            holders.shrink_to(2 * holders.len());
        }
    }

    /// Memory beyond the value itself, bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let list = match self {
            Self::One(_) => 0,
            Self::Many(holders) => holders.capacity() * size_of::<Holder>(),
        };
        let each = self.as_slice().iter().map(Holder::heap_bytes);
        list + each.sum::<usize>()
    }

    /// Asserts the invariants.
    pub(super) fn check(&self) {
        let is_sorted = self.as_slice().is_sorted_by(|a, b| a.slot < b.slot);
        assert!(is_sorted, "holders are sorted");
        if let Self::Many(holders) = self {
            assert_ne!(holders.len(), 1, "one holder needs no list");
        }
    }
}
