//! Units on their way from the device: drafts that are filled part by part, all of them side by
//! side, as the device comes to its parts.

use headstart_core::transfer::{DevicePart, TransferId};
use headstart_core::{BlockId, Tier};

use crate::record::Draft;

/// A unit that is to be stored.
pub(super) struct UnitDraft {
    pub(super) id: TransferId,
    /// Holds a slot, so that the arena bounds how many there are.
    pub(super) draft: Draft,
    /// Its blocks on the device.
    pub(super) blocks: Vec<BlockId>,
    pub(super) to: Vec<Tier>,
}

/// All that are being filled.
#[derive(Default)]
pub(super) struct Filling {
    opened: Vec<UnitDraft>,
    parts_read: usize,
}

impl Filling {
    pub(super) fn add(&mut self, opened: UnitDraft) {
        self.opened.push(opened);
    }

    /// Reads a part of all of them.
    pub(super) fn read(&mut self, part: usize, device: &dyn DevicePart) {
        if self.opened.is_empty() {
            return;
        }
        // The length of a chunk must not be zero, or the call below panics.
        let block_bytes = device.block_bytes().max(1);
        for UnitDraft { draft, blocks, .. } in &mut self.opened {
            let bytes = draft.part_mut(part);
            // What is not written holds what was there before, of whomever.
            let is_all = bytes.len() == blocks.len() * device.block_bytes();
            assert!(is_all, "blocks are as long as the store was told");
            let pieces = bytes.chunks_exact_mut(block_bytes);
            for (piece, &block) in pieces.zip(&*blocks) {
                device.read(block, piece);
            }
        }
        self.parts_read += 1;
    }

    /// Takes them out, and says how many parts of them were read.
    pub(super) fn take(&mut self) -> (usize, Vec<UnitDraft>) {
        let parts_read = std::mem::take(&mut self.parts_read);
        (parts_read, std::mem::take(&mut self.opened))
    }
}
