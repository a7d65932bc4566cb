//! A limit for the memory of an index, and when to add up the memory again.
//!
//! Adding up costs a look at all runs, so it waits until enough new blocks and names could have
//! reached the limit. [`super::eviction`] frees what is beyond it.

/// Default memory limit of an index, bytes: room for some twenty million blocks, the KV caches of
/// hundreds of large engines.
const DEFAULT_BYTES: usize = 1 << 30;

/// The largest limit. A run takes some 180 bytes at least, and names know 2^28 of them.
const MAX_BYTES: usize = 32 << 30;

/// New blocks after which the memory is added up again, at least.
const MIN_NEW_BLOCKS: usize = 256;

/// The least that a block takes, bytes: so the limit cannot be reached by fewer new blocks.
const MAX_BLOCK_BYTES: usize = 256;

/// Handles of blocks that left, remembered per replica in any case: a few steps' demotions of a
/// small engine. Large ones remember more, see [`super::replica`].
const DEFAULT_MIN_DEPARTED: usize = 32;

/// Limits of an index's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory, about, bytes, at most 32 GiB. Beyond it, what was not used for the longest time is
    /// given up.
    pub max_bytes: usize,
    /// Handles of blocks that are nowhere any more, remembered per replica at least.
    pub min_departed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: DEFAULT_BYTES, min_departed: DEFAULT_MIN_DEPARTED }
    }
}

/// The limit, and when to look again.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: usize,
    /// The memory is below its limit while there are fewer names and blocks than this.
    look_at: usize,
    evicted: u64,
}

impl Budget {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes: limit_bytes.min(MAX_BYTES), look_at: MIN_NEW_BLOCKS, evicted: 0 }
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Whether `size` names and blocks can have reached the limit.
    pub(super) fn is_due(&self, size: usize) -> bool {
        size >= self.look_at
    }

    /// Takes note that `size` names and blocks have `bytes` bytes.
    pub(super) fn note(&mut self, size: usize, bytes: usize) {
        let left = self.limit_bytes.saturating_sub(bytes);
        // Fewer new blocks than this cannot reach the limit, since none takes more than
        // `MAX_BLOCK_BYTES`.
        self.look_at = size + (left / MAX_BLOCK_BYTES).max(MIN_NEW_BLOCKS);
    }

    /// Takes note of memory that was taken beside names and blocks, bytes.
    pub(super) fn spend(&mut self, bytes: usize) {
        let blocks = bytes.div_ceil(MAX_BLOCK_BYTES);
        self.look_at = self.look_at.saturating_sub(blocks);
    }

    /// Counts blocks that were given up.
    pub(super) fn count_evicted(&mut self, blocks: u64) {
        self.evicted += blocks;
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }
}
