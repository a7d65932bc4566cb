//! A disk that does what disks do when they fail, on purpose and from a seed.
//!
//! *Power can fail at any time*: what was written but not yet made durable is kept in this
//! process's memory, so that killing the process loses it, and some of it reaches the file early,
//! whole or torn, as a disk's own cache would have it. Beside that: bits that flip on their way to
//! the file, reads and writes that fail, and a disk that is full.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use headstart_core::Rng;

use headstart_store::disk::io::{Bell, Buffer, Io, IoCompletion, IoOperation};
use headstart_store::record::PAGE;

/// The smallest piece that a disk writes whole, bytes.
const SECTOR: usize = 512;

/// Faults to inject, as shares of operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Fixes all that is drawn.
    pub(crate) seed: u64,
    /// Writes stay in memory until they are made durable; a killed process loses them.
    pub(crate) loses_power: bool,
    /// Of such writes, those of which a part reaches the file before.
    pub(crate) torn: f64,
    /// Writes in which one bit flips, unseen.
    pub(crate) flipped: f64,
    /// Reads that fail.
    pub(crate) failing_reads: f64,
    /// Switched from outside: what all writes fail with (an `errno`), 0 for none.
    pub(crate) writes_fail: Arc<AtomicU64>,
    /// Likewise for reads.
    pub(crate) reads_fail: Arc<AtomicU64>,
    /// Flipped bits so far, counted here.
    pub(crate) flips: Arc<AtomicU64>,
    /// Torn writes so far.
    pub(crate) tears: Arc<AtomicU64>,
}

/// The pages of one file that are not durable, by number.
type Pages = HashMap<u64, Vec<u8>>;

/// Another way to the disk, with faults.
pub(crate) struct FaultyIo {
    inner: Box<dyn Io>,
    faults: Faults,
    rng: Rng,
    /// Written, not durable, by inode.
    pending: HashMap<u64, Pages>,
    finished: Vec<IoCompletion>,
}

impl FaultyIo {
    pub(crate) fn new(inner: Box<dyn Io>, faults: Faults) -> Self {
        let rng = Rng::new(faults.seed);
        Self { inner, faults, rng, pending: HashMap::new(), finished: Vec::new() }
    }

    fn is_drawn(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.next_f64() < share
    }

    fn carry_out(&mut self, op: &mut IoOperation) -> std::io::Result<()> {
        match op {
            IoOperation::Read { file, offset, buffer, len } => {
                self.fail(&self.faults.reads_fail.clone())?;
                if self.is_drawn(self.faults.failing_reads) {
                    return Err(std::io::Error::from_raw_os_error(libc::EIO));
                }
                let room = buffer.room();
                file.read_exact_at(&mut room[..*len], *offset)?;
                // The process sees its own writes before they are durable, as
                // through a page cache.
                self.read_pending(file, *offset, &mut room[..*len])
            }
            IoOperation::Write { file, offset, pieces } => {
                self.fail(&self.faults.writes_fail.clone())?;
                let bytes = pieces.iter().flat_map(|piece| piece.bytes());
                let mut bytes: Vec<u8> = bytes.copied().collect();
                if self.is_drawn(self.faults.flipped) {
                    let at = self.rng.below(bytes.len());
                    bytes[at] ^= 1 << self.rng.below(8);
                    self.faults.flips.fetch_add(1, Relaxed);
                }
                self.write(file, *offset, &bytes)
            }
            IoOperation::Sync { file } => {
                self.fail(&self.faults.writes_fail.clone())?;
                self.sync(file)
            }
        }
    }

    fn fail(&self, with: &AtomicU64) -> std::io::Result<()> {
        match with.load(Relaxed) {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno as i32)),
        }
    }

    fn write(&mut self, file: &File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        if !self.faults.loses_power {
            return write_aligned(file, offset, bytes);
        }
        if self.is_drawn(self.faults.torn) {
            // Some sectors, in no order, are on the disk already.
            self.faults.tears.fetch_add(1, Relaxed);
            let first = self.rng.below(bytes.len() / SECTOR);
            let count = 1 + self.rng.below(bytes.len() / SECTOR - first);
            let torn = &bytes[first * SECTOR..(first + count) * SECTOR];
            write_aligned(file, offset + (first * SECTOR) as u64, torn)?;
        }
        let inode = file.metadata()?.ino();
        let pages = self.pending.entry(inode).or_default();
        for (index, page) in bytes.chunks(PAGE).enumerate() {
            pages.insert(offset / PAGE as u64 + index as u64, page.to_vec());
        }
        Ok(())
    }

    fn read_pending(&self, file: &File, offset: u64, room: &mut [u8]) -> std::io::Result<()> {
        if let Some(pages) = self.pending.get(&file.metadata()?.ino()) {
            for (index, page) in room.chunks_mut(PAGE).enumerate() {
                if let Some(written) = pages.get(&(offset / PAGE as u64 + index as u64)) {
                    page.copy_from_slice(written);
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self, file: &File) -> std::io::Result<()> {
        let inode = file.metadata()?.ino();
        for (page, bytes) in self.pending.remove(&inode).unwrap_or_default() {
            write_aligned(file, page * PAGE as u64, &bytes)?;
        }
        Ok(())
    }
}

/// Writes through a page-aligned copy, as a file opened for direct I/O wants it.
fn write_aligned(file: &File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut pages = Buffer::pages(bytes.len().div_ceil(PAGE))?;
    pages[..bytes.len()].copy_from_slice(bytes);
    file.write_all_at(&pages[..bytes.len()], offset)
}

impl Io for FaultyIo {
    fn start(&mut self, id: u64, mut op: IoOperation) {
        let result = self.carry_out(&mut op);
        self.finished.push(IoCompletion { id, op, result });
        self.inner.bell()();
    }

    fn wait(&mut self, limit: Duration, finished: &mut Vec<IoCompletion>) {
        if self.finished.is_empty() {
            self.inner.wait(limit, finished);
        }
        // In any order, as a disk would.
        self.rng.shuffle(&mut self.finished);
        finished.append(&mut self.finished);
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }
}
