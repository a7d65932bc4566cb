//! The blocks that one sequence holds.

use std::sync::{Arc, Mutex};

use headstart_core::BlockId;

/// Blocks pinned for one sequence, in the order of its tokens:
///
/// | range | state |
/// |---|---|
/// | `[0, matched)` | found in the cache by `acquire` |
/// | `[matched, committed)` | computed by the holder, committed: matchable, pinned |
/// | `[committed, len)` | allocated, private to the holder, in flight |
///
/// Give it back with [`crate::PrefixCache::release`], which records the use. A lease that is
/// dropped instead (a panic, a forgotten path) is given back when the cache is next asked for a
/// match or for room (`acquire`, `grow`, `clear`).
#[derive(Debug)]
pub struct Lease {
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) matched: usize,
    pub(crate) committed: usize,
    pub(crate) returns: Returns,
}

impl Lease {
    /// All blocks, in token order: the sequence's block table.
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the number of blocks that were already cached.
    #[must_use]
    pub fn matched(&self) -> usize {
        self.matched
    }

    /// Returns the number of leading blocks that other requests can match.
    #[must_use]
    pub fn committed(&self) -> usize {
        self.committed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // `release` and `give_back` empty the lease, so only a forgotten one has blocks left. The
        // cache cannot be reached from here: the list keeps them until its next call.
        if !self.blocks.is_empty() {
            let blocks = std::mem::take(&mut self.blocks);
            self.returns.push(DroppedLease { blocks, committed: self.committed });
        }
    }
}

/// The blocks of a dropped lease.
#[derive(Debug)]
pub(crate) struct DroppedLease {
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) committed: usize,
}

/// Blocks of dropped leases, until the cache takes them back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returns(Arc<Mutex<Vec<DroppedLease>>>);

impl Returns {
    fn push(&self, returned: DroppedLease) {
        self.lock().push(returned);
    }

    pub(crate) fn take(&self) -> Vec<DroppedLease> {
        // The lock ends with this statement: the cache works through the list without it.
        std::mem::take(&mut *self.lock())
    }

    /// A panic while the lock is held leaves a whole vector behind: poison means nothing here.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<DroppedLease>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
