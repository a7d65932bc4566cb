//! When each block was last released, by a counter that never repeats.

use headstart_core::BlockId;

/// The order of release over the slots of one cache.
#[derive(Debug)]
pub(crate) struct Recency {
    /// Per slot; 0 when not released since it became resident.
    released: Vec<u64>,
    clock: u64,
}

impl Recency {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { released: vec![0; capacity], clock: 0 }
    }

    /// The block is new: older than all that were released.
    #[inline]
    pub(crate) fn forget(&mut self, block: BlockId) {
        self.released[block.index()] = 0;
    }

    /// A request lets go of `blocks`, the last one first.
    #[inline]
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().rev() {
            self.clock += 1;
            self.released[block.index()] = self.clock;
        }
    }

    /// The same, the first one first.
    pub(crate) fn release_head_first(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            self.clock += 1;
            self.released[block.index()] = self.clock;
        }
    }

    /// The same as [`Self::release`]; `first` gets the slot of each block once, also where the
    /// chain repeats it.
    #[inline]
    pub(crate) fn release_once(&mut self, blocks: &[BlockId], mut first: impl FnMut(usize)) {
        let before = self.clock;
        for &block in blocks.iter().rev() {
            let is_repeated = self.of(block) > before;
            self.release(&[block]);
            if !is_repeated {
                first(block.index());
            }
        }
    }

    /// Larger is later.
    #[inline]
    pub(crate) fn of(&self, block: BlockId) -> u64 {
        self.released[block.index()]
    }
}
