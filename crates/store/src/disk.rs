//! The disk tier: records in log-structured segments, past the page cache.
//!
//! Records are added to the end of an open segment in *groups*; a group and its records are durable
//! once its commit is. Segments are never changed, only rewritten from the start once nothing in
//! them is wanted, so that wear is even and room never fragments. One thread does it all: it starts
//! operations with the kernel, verifies what was read, and waits.
//!
//! Limits: the files' lengths together never exceed the budget, and are allocated whole. A crash
//! loses what was not committed, and nothing else (`recover`). Whatever fails is a miss
//! ([`Condition`](crate::backend::Condition)), and is tried again.
//!
//! The caller decides what is worth keeping and which records to forget. If it lets the tier fill
//! up, the tier gives up its oldest segment and reports the loss.
//!
//! Source: LFS (Rosenblum and Ousterhout, SOSP'91) for segments and their cleaning; group commit
//! after Gawlick and Kinkade (1985). Unlike LFS no checkpoint is kept: footers say all that it
//! would.

mod budget;
mod condition;
mod folder;
mod holder;
mod index;
mod inspect;
pub mod io;
mod layout;
mod recover;
mod scan;
mod space;
mod stats;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use crate::backend::{Backend, Command, CommandOutcome, Failure, Report, ResidentRecord, Waker};
use crate::record::PAGE;

pub use folder::DiskError;
pub use holder::Holder;
pub use inspect::FolderInspector;
pub use io::IoKind;
pub use stats::{Count, DiskStats};

pub(crate) use folder::{LOCK, replace};

use folder::DiskFolder;
use io::{Bell, Io};
use layout::{LONGEST_SEGMENT_BYTES, SHORTEST_SEGMENT_BYTES, is_segment_bytes};
use worker::Worker;

/// Commands that wait for the thread; each holds a slot, so that an arena is exhausted sooner.
const QUEUE: usize = 4096;

/// Fewest segments: one open, one about to be, one to move records to, one to read from.
const FEWEST_SEGMENTS: u64 = 4;

/// Largest segment, bytes: tens of milliseconds of a fast disk, so that opening one costs little.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Smallest segment, bytes.
const LEAST_SEGMENT_BYTES: u64 = 1 << 20;

/// Kept of the budget for the lists beside the segments, bytes.
const LISTS_BYTES: u64 = 1 << 20;

/// Options of a disk tier.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Its folder; made if need be.
    pub folder: PathBuf,
    /// Most that its files take together, bytes.
    pub budget_bytes: u64,
    /// Length of a segment, bytes; `None`: a sixteenth of the budget, 64 MiB at most. A folder that
    /// has segments keeps their length, and needs a budget for four of them. From 64 KiB to
    /// 1 GiB.
    pub segment_bytes: Option<u64>,
    /// Operations with the disk at once; at least one.
    pub depth: usize,
    /// Kind of disk I/O.
    pub io: IoKind,
    /// Seconds since 1970, for times to live.
    pub now_s: fn() -> u64,
}

impl DiskOptions {
    /// The defaults for a folder and a budget.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, budget_bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            budget_bytes,
            segment_bytes: None,
            depth: 32,
            io: IoKind::Auto,
            now_s: unix_seconds,
        }
    }

    /// Whether segments can be so long, and the budget has room for enough.
    fn check(&self) -> Result<(), DiskError> {
        let given = self.segment_bytes();
        if !is_segment_bytes(given) {
            return Err(DiskError::SegmentBytes {
                given: self.segment_bytes.unwrap_or(given),
                least: SHORTEST_SEGMENT_BYTES,
                most: LONGEST_SEGMENT_BYTES,
            });
        }
        // A segment has at most 1 GiB here, so the product does not overflow.
        let least = self.segment_bytes().max(LEAST_SEGMENT_BYTES) * FEWEST_SEGMENTS + LISTS_BYTES;
        if self.budget_bytes >= least {
            Ok(())
        } else {
            Err(DiskError::TooSmall { budget: self.budget_bytes, least })
        }
    }

    fn segment_bytes(&self) -> u64 {
        let page = crate::record::PAGE as u64;
        let usual = self.budget_bytes / 16;
        let usual = usual.clamp(LEAST_SEGMENT_BYTES, SEGMENT_BYTES);
        // Whole pages only: direct I/O and the layout require them.
        self.segment_bytes.unwrap_or(usual) / page * page
    }
}

/// Seconds since 1970 by the system's clock.
#[must_use]
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// An open disk tier. Dropped, it finishes what was begun and lets go of the folder.
pub struct Disk {
    commands: SyncSender<Command>,
    reports: Receiver<Report>,
    /// Answers to what the thread cannot take any more; not more than were given.
    refused: Vec<Report>,
    waker: Waker,
    bell: Bell,
    stop: Arc<AtomicBool>,
    stats: Arc<DiskStats>,
    io_name: &'static str,
    usable_segments: usize,
    segment_pages: usize,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// Opens the tier in a folder and returns what is there already, oldest first. Reads the
    /// footers of all segments, and all of those that a crash left open.
    ///
    /// # Errors
    /// When the folder cannot be used, is in use, or the budget is too small.
    pub fn open(
        options: DiskOptions,
        waker: Waker,
    ) -> Result<(Self, Vec<ResidentRecord>), DiskError> {
        Self::open_over(options, waker, io::open)
    }

    /// Opens the tier over another kind of disk I/O. `open_io` stands for [`io::open`]: it is given
    /// the options' kind and depth, and returns the I/O and its name.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_over(
        mut options: DiskOptions,
        waker: Waker,
        open_io: impl FnOnce(IoKind, usize) -> std::io::Result<(Box<dyn Io>, &'static str)>,
    ) -> Result<(Self, Vec<ResidentRecord>), DiskError> {
        options.check()?;
        options.depth = options.depth.max(1);
        // `check` has made sure that the budget is larger than this.
        let budget_bytes = options.budget_bytes - LISTS_BYTES;
        let segment_bytes = options.segment_bytes();
        // Locked before anything is read, because recovery also writes and deletes.
        let folder = DiskFolder::open(&options.folder)?;
        let io = |source| DiskError::Io { path: options.folder.clone(), source };
        let now_s = (options.now_s)();
        let mut recovered = recover::recover(&folder, budget_bytes, segment_bytes, now_s)?;
        // If that fails only a report lacks it.
        let _ = budget::note(folder.path(), options.budget_bytes);
        let (way, io_name) = open_io(options.io, options.depth).map_err(io)?;
        let bell = way.bell();
        let stats = Arc::new(DiskStats::default());
        let (commands, inbox) = sync_channel(QUEUE);
        let (sender, reports) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let residents = std::mem::take(&mut recovered.residents);
        // One is open, one is opened ahead, one is left to move records to.
        let usable_segments = (recovered.num_usable - (FEWEST_SEGMENTS - 1)) as usize;
        let segment_pages = (recovered.segment_bytes / PAGE as u64) as usize;
        let edges = worker::Edges {
            io: way,
            inbox,
            reports: sender,
            waker: waker.clone(),
            stop: stop.clone(),
            stats: stats.clone(),
        };
        let worker = Worker::new(options.clone(), budget_bytes, folder, recovered, edges);
        let thread = std::thread::Builder::new()
            .name("headstart-disk".to_owned())
            .spawn(move || worker.run())
            .map_err(io)?;
        let disk = Self {
            commands,
            reports,
            refused: Vec::new(),
            waker,
            bell,
            stop,
            stats,
            io_name,
            usable_segments,
            segment_pages,
            thread: Some(thread),
        };
        Ok((disk, residents))
    }

    /// Returns its counters.
    #[must_use]
    pub fn stats(&self) -> &Arc<DiskStats> {
        &self.stats
    }

    /// Returns the number of records of `bytes` bytes that fit without an unrequested eviction,
    /// even if each comes alone and needs tables of its own.
    #[must_use]
    pub fn capacity_records(&self, bytes: u64) -> usize {
        let pages = bytes.div_ceil(PAGE as u64).max(1) as usize;
        // Header and trailer take a page each.
        let room = self.segment_pages - 2;
        let each = pages + 2 * layout::table_pages(1);
        let mut counts = (1..=room / each).rev();
        // Tried from the top: the footer grows with the count, so a division does not give it.
        let fits = counts.find(|&count| count * each + layout::table_pages(count) <= room);
        self.usable_segments * fits.unwrap_or(0) * space::FILL_PERCENT / 100
    }

    /// Returns the name of its disk I/O: `io_uring` or `threads`.
    #[must_use]
    pub fn io_name(&self) -> &'static str {
        self.io_name
    }
}

impl Backend for Disk {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        match self.commands.try_send(command) {
            Ok(()) => {
                (self.bell)();
                Ok(())
            }
            Err(TrySendError::Full(command)) => Err(command),
            // Its thread has come to an end: to try again later would be for ever.
            Err(TrySendError::Disconnected(command)) => {
                self.refused.push(Report::Done {
                    ticket: command.ticket(),
                    outcome: CommandOutcome::Failed(Failure::Aborted),
                });
                (self.waker)();
                Ok(())
            }
        }
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        reports.extend(self.reports.try_iter());
        reports.append(&mut self.refused);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Set before the bell, so that the thread that wakes up sees it.
        self.stop.store(true, Ordering::Release);
        (self.bell)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Ticket, no_waker};

    #[test]
    fn a_tier_whose_thread_is_gone_answers() {
        let place = tempfile::tempdir().expect("a folder");
        let options = DiskOptions::new(place.path(), 8 << 20);
        let (mut disk, _) = Disk::open(options, no_waker()).expect("it opens");
        disk.stop.store(true, Ordering::Release);
        (disk.bell)();
        let thread = disk.thread.take().expect("it runs");
        thread.join().expect("it does not panic");
        let names = Vec::new();
        let ticket = Ticket(7);
        let given = disk.submit(Command::Remove { ticket, names });
        given.expect("it is taken");
        let mut reports = Vec::new();
        disk.poll(&mut reports);
        let outcome = CommandOutcome::Failed(Failure::Aborted);
        let right = Report::Done { ticket, outcome };
        assert_eq!(format!("{reports:?}"), format!("{:?}", [right]));
    }

    #[test]
    fn segments_of_impossible_lengths_are_refused() {
        let place = tempfile::tempdir().expect("a folder");
        for segment_bytes in [0, 4096, 15 * 4096, (1 << 30) + 4096, u64::MAX] {
            let mut options = DiskOptions::new(place.path(), u64::MAX);
            options.segment_bytes = Some(segment_bytes);
            let error = Disk::open(options, no_waker()).map(drop);
            let error = error.expect_err("it cannot be so long");
            assert!(matches!(error, DiskError::SegmentBytes { .. }), "{error}");
        }
    }
}
