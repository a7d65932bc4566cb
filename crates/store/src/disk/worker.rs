//! The thread of a disk tier: takes commands, keeps the disk busy, reports.
//!
//! One thread, so that the index, the segments and what is under way need no locks. It never waits
//! for the disk but in one place ([`Io::wait`]); only files are made and folders read on the side,
//! which takes milliseconds, seldom.

mod clean;
mod parts;
mod purge;
mod read;
mod segments;
mod trouble;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use headstart_core::BlockHash;

use super::condition::DiskHealth;
use super::folder::DiskFolder;
use super::index::{Index, RecordLocation};
use super::io::{Io, IoCompletion, IoOperation};
use super::layout::table_pages;
use super::recover::RecoveredState;
use super::space::{SegmentId, SegmentSpace};
use super::stats::DiskStats;
use super::{DiskOptions, FEWEST_SEGMENTS};
use crate::backend::{Command, CommandOutcome, LossReason, Report, Ticket, Waker};
use crate::record::PAGE;

use clean::Cleaning;
use purge::PendingPurge;
use read::{ReadQueue, ReadRequest};
use segments::SegmentFiles;
use write::Writes;

/// Longest wait for the disk or a command, which bounds the delay of changes without a signal.
const LOOK_ROUND: Duration = Duration::from_secs(1);

/// Pause between sweeps for records whose time is over; reads look for themselves.
const SWEEP: Duration = Duration::from_secs(30);

/// Longest that closing waits for what is under way.
const CLOSE: Duration = Duration::from_secs(10);

/// Ways in and out.
pub(super) struct Edges {
    pub(super) io: Box<dyn Io>,
    pub(super) inbox: Receiver<Command>,
    pub(super) reports: Sender<Report>,
    pub(super) waker: Waker,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) stats: Arc<DiskStats>,
}

/// The thread's state.
pub(super) struct Worker {
    options: DiskOptions,
    budget_bytes: u64,
    folder: Option<DiskFolder>,
    /// The file system that the folder was on at first.
    device: Option<u64>,
    edges: Edges,
    index: Index,
    space: SegmentSpace,
    segments: SegmentFiles,
    reads: ReadQueue,
    writes: Writes,
    /// Purges that wait for writes.
    purges: Vec<PendingPurge>,
    cleaning: Option<Cleaning>,
    /// Segments cleaned since a new record was added.
    cleaned_in_vain: usize,
    health: DiskHealth,
    ops: HashMap<u64, Purpose>,
    last_op: u64,
    started: Instant,
    next_look: Duration,
    /// When another segment may be opened.
    next_opening: Duration,
    /// When files that could not be made are tried again.
    next_unbar: Duration,
    next_sweep: Duration,
    has_news: bool,
}

/// Purpose of an operation with the disk.
enum Purpose {
    Get(read::RecordRead),
    GetPart(parts::Getting),
    Move(clean::Moving),
    Write { group: u64 },
    Commit { upto: u64 },
    Header { segment: SegmentId },
    HeaderCommit { segment: SegmentId },
    Footer { segment: SegmentId },
}

/// Creates the state of one life of a folder.
fn fresh(recovered: RecoveredState, folder: &DiskFolder) -> (Index, SegmentSpace, SegmentFiles) {
    let pages = (recovered.segment_bytes / PAGE as u64) as u32;
    let made = folder.segments().map_or(0, |files| files.segments.len());
    let segments = SegmentFiles::new(recovered.space.count(), pages, made);
    (recovered.index, recovered.space, segments)
}

impl Worker {
    pub(super) fn new(
        options: DiskOptions,
        budget_bytes: u64,
        folder: DiskFolder,
        recovered: RecoveredState,
        edges: Edges,
    ) -> Self {
        let (index, space, segments) = fresh(recovered, &folder);
        let device = folder.device();
        Self {
            options,
            budget_bytes,
            folder: Some(folder),
            device,
            edges,
            index,
            space,
            segments,
            reads: ReadQueue::default(),
            writes: Writes::default(),
            purges: Vec::new(),
            cleaning: None,
            cleaned_in_vain: 0,
            health: DiskHealth::new(),
            ops: HashMap::new(),
            last_op: 0,
            started: Instant::now(),
            next_look: LOOK_ROUND,
            next_opening: Duration::ZERO,
            next_unbar: Duration::ZERO,
            next_sweep: SWEEP,
            has_news: false,
        }
    }

    /// Runs until the tier is closed.
    pub(super) fn run(mut self) {
        let mut finished = Vec::new();
        let mut closing = None;
        self.show();
        loop {
            self.take_commands();
            self.look_round();
            self.pump();
            self.show();
            // Once per round: to wake the reader for each report costs more than it gains.
            self.tell();
            if self.edges.stop.load(Ordering::Acquire) {
                let since = *closing.get_or_insert_with(Instant::now);
                // The time limit: a disk that hangs must not keep the process from ending.
                if self.is_quiet() && self.segments.is_closed() || since.elapsed() > CLOSE {
                    return;
                }
                // Footers are operations as well, so the loop waits until they are written.
                self.close_active();
            }
            self.edges.io.wait(LOOK_ROUND, &mut finished);
            self.finish_all(&mut finished);
        }
    }

    /// Calls the waker if there are new reports.
    fn tell(&mut self) {
        if std::mem::take(&mut self.has_news) {
            (self.edges.waker)();
        }
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.edges.inbox.try_recv() {
            match command {
                Command::Put { ticket, record } => self.put(ticket, record),
                Command::Get { ticket, name, slot } => {
                    self.get(ReadRequest { ticket, name, part: None, slot });
                }
                Command::GetPart { ticket, name, part, slot } => {
                    self.get(ReadRequest { ticket, name, part: Some(part), slot });
                }
                Command::Remove { ticket, names } => {
                    let removed = names.iter().filter(|&&name| self.forget(name));
                    let outcome = CommandOutcome::Removed(removed.count());
                    self.done(ticket, outcome);
                }
                Command::Purge { ticket, tenant } => self.purge(ticket, tenant),
            }
        }
    }

    /// Starts whatever can be started.
    fn pump(&mut self) {
        self.pump_reads();
        self.pump_writes();
        self.pump_cleaning();
    }

    fn finish(&mut self, done: IoCompletion) {
        let IoCompletion { id, op, result } = done;
        // Only a probe has no purpose (`trouble`): its answer came after the limit.
        let Some(purpose) = self.ops.remove(&id) else {
            return;
        };
        match purpose {
            Purpose::Get(getting) => self.got(getting, op, result),
            Purpose::GetPart(getting) => self.got_part(getting, op, result),
            Purpose::Move(moving) => self.read_to_move(moving, op, result),
            Purpose::Write { group } => self.wrote(group, result),
            Purpose::Commit { upto } => self.committed(upto, result),
            Purpose::Header { segment } => self.wrote_header(segment, op, result),
            Purpose::HeaderCommit { segment } => self.opened(segment, result),
            Purpose::Footer { segment } => self.space.remove_reader(segment),
        }
    }

    /// Whether nothing is under way.
    fn is_quiet(&self) -> bool {
        self.ops.is_empty() && self.reads.is_empty() && self.writes.is_empty()
    }

    fn start(&mut self, purpose: Purpose, op: IoOperation) {
        if let IoOperation::Write { pieces, .. } = &op {
            let bytes: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
            self.edges.stats.written_bytes.add(bytes as u64);
        }
        self.last_op += 1;
        self.ops.insert(self.last_op, purpose);
        self.edges.io.start(self.last_op, op);
    }

    /// Since the thread began.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn now_s(&self) -> u64 {
        (self.options.now_s)()
    }

    fn report(&mut self, report: Report) {
        self.has_news = true;
        // Without a receiver the report is not needed.
        let _ = self.edges.reports.send(report);
    }

    fn done(&mut self, ticket: Ticket, outcome: CommandOutcome) {
        if matches!(outcome, CommandOutcome::Failed(_)) {
            self.edges.stats.failed.add(1);
        }
        self.report(Report::Done { ticket, outcome });
    }

    fn lost(&mut self, names: Vec<BlockHash>, loss: LossReason) {
        if !names.is_empty() {
            let stats = &self.edges.stats;
            match loss {
                LossReason::Expired => stats.expired.add(names.len() as u64),
                LossReason::Corrupt => stats.corrupt.add(names.len() as u64),
                LossReason::Evicted => stats.dropped.add(names.len() as u64),
                LossReason::Offline => {}
            }
            self.report(Report::Lost { names, loss });
        }
    }

    /// Takes a record out of the index. Whether it was there.
    fn forget(&mut self, name: BlockHash) -> bool {
        let was_waiting = self.cancel(name);
        let place = self.index.remove(name);
        if let Some(place) = place {
            self.space.remove_live(place.segment, place.pages);
        }
        place.is_some() || was_waiting
    }

    /// Forgets a record whose time is over.
    fn expire(&mut self, name: BlockHash) {
        let now_s = self.now_s();
        let expires_s = self.index.get(name).and_then(|place| place.expires_s);
        if expires_s.is_some_and(|at| at <= now_s) {
            self.forget(name);
            self.lost(vec![name], LossReason::Expired);
        }
    }

    /// Brings the gauges up to date.
    fn show(&self) {
        let stats = &self.edges.stats;
        stats.records.set(self.index.len() as u64);
        stats.live_bytes.set(self.space.all_live() * PAGE as u64);
        let file_bytes = self.segments.num_files() as u64 * self.segments.bytes();
        stats.file_bytes.set(file_bytes);
    }

    /// Largest record that a segment takes, pages.
    fn most_pages(&self) -> usize {
        // Header and trailer take a page each; a lone record has two tables and a footer.
        self.segments.pages() as usize - 2 - 3 * table_pages(1)
    }
}
