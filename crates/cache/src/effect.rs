//! Effects of a call on residency, in the order in which they happened.

use headstart_core::{BlockHash, BlockId};

/// A change of residency. The cache returns them; callers announce or execute them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The block became matchable.
    Stored {
        /// Its slot.
        block: BlockId,
        /// Its name.
        hash: BlockHash,
    },
    /// The block is gone; its slot will be reused.
    Evicted {
        /// Its former slot.
        block: BlockId,
        /// Its name.
        hash: BlockHash,
    },
}
