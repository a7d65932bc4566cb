//! Linked lists through the slots of one cache: O(1) to append, and to remove from any place.

use headstart_core::BlockId;

const NONE: u32 = u32::MAX;

/// A few lists; a block is in at most one of them.
#[derive(Debug)]
pub(crate) struct LinkedLists {
    ends: Vec<ListEnds>,
    /// Per slot: the block behind it in its list, and the one before it.
    behind: Vec<u32>,
    before: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct ListEnds {
    first: u32,
    last: u32,
}

impl LinkedLists {
    /// `num_lists` empty lists for a cache of `capacity` slots.
    pub(crate) fn new(capacity: usize, num_lists: usize) -> Self {
        Self {
            ends: vec![ListEnds { first: NONE, last: NONE }; num_lists],
            behind: vec![NONE; capacity],
            before: vec![NONE; capacity],
        }
    }

    #[inline]
    pub(crate) fn first(&self, list: usize) -> Option<BlockId> {
        let first = self.ends[list].first;
        (first != NONE).then_some(BlockId(first))
    }

    #[inline]
    pub(crate) fn last(&self, list: usize) -> Option<BlockId> {
        let last = self.ends[list].last;
        (last != NONE).then_some(BlockId(last))
    }

    /// Puts a block at the end.
    pub(crate) fn append(&mut self, list: usize, block: BlockId) {
        self.behind[block.index()] = NONE;
        let ends = &mut self.ends[list];
        self.before[block.index()] = ends.last;
        match ends.last {
            NONE => ends.first = block.0,
            last => self.behind[last as usize] = block.0,
        }
        ends.last = block.0;
    }

    /// Takes a block out of its list, wherever it stands.
    pub(crate) fn remove(&mut self, list: usize, block: BlockId) {
        let ends = &mut self.ends[list];
        let (before, behind) = (self.before[block.index()], self.behind[block.index()]);
        match before {
            NONE => ends.first = behind,
            before => self.behind[before as usize] = behind,
        }
        match behind {
            NONE => ends.last = before,
            behind => self.before[behind as usize] = before,
        }
    }

    /// Exchanges two lists.
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        self.ends.swap(one, other);
    }
}
