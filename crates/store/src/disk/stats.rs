//! Counters and gauges of a disk tier, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter or gauge that one thread writes and any reads.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

/// Counters since the tier was opened, and gauges.
#[derive(Debug, Default)]
pub struct DiskStats {
    /// Records stored.
    pub stored: Count,
    /// Records read and verified.
    pub loaded: Count,
    /// Parts of units read and verified.
    pub unit_parts: Count,
    /// The same of packs: their chunks, and what describes them.
    pub pack_parts: Count,
    /// Reads of names that are not there.
    pub missing: Count,
    /// Records found damaged.
    pub corrupt: Count,
    /// Records gone because their time was over.
    pub expired: Count,
    /// Records given up to make room.
    pub dropped: Count,
    /// Commands that failed.
    pub failed: Count,
    /// Commits: each made a group of records durable.
    pub commits: Count,
    /// Bytes written, all together: what wears the disk.
    pub written_bytes: Count,
    /// Bytes of records stored by puts.
    pub put_bytes: Count,
    /// Bytes of records that were moved to make room.
    pub moved_bytes: Count,
    /// Segments that were emptied to make room.
    pub cleaned: Count,
    /// Bytes read to answer.
    pub read_bytes: Count,
    /// Gauge: records that can be read.
    pub records: Count,
    /// Gauge: bytes of these.
    pub live_bytes: Count,
    /// Gauge: bytes of all segments' files.
    pub file_bytes: Count,
}
