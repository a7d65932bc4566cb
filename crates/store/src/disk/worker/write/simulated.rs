//! A disk for the tests: its operations end in any order, some of them fail, power is lost at any
//! step. One thread and one seed, so that a failure is the same each time.

mod purges;
mod trials;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use headstart_core::{IdentityDigest, Rng, TenantTag};

use super::super::*;
use crate::arena::Arena;
use crate::backend::{Condition, no_waker};
use crate::disk::io::{Bell, Buffer};
use crate::disk::recover::recover;
use crate::record::{Content, Draft, Exactness, Meta, Record};

const SLOT: usize = 64 << 10;
const SEGMENT: u64 = 256 << 10;

/// Takes operations and never ends one by itself.
struct ManualIo(Arc<Mutex<Vec<(u64, IoOperation)>>>);

impl Io for ManualIo {
    fn start(&mut self, id: u64, op: IoOperation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((id, op));
    }

    fn wait(&mut self, _: Duration, _: &mut Vec<IoCompletion>) {}

    fn bell(&self) -> Bell {
        Arc::new(|| {})
    }
}

type Page = Arc<Vec<u8>>;

/// An operation that was started and did not end.
struct InFlightOperation {
    id: u64,
    op: IoOperation,
    /// Of a sync: what it makes durable, which is what was written when it began.
    covers: Vec<(u64, Page)>,
}

#[derive(Clone, Copy, Debug)]
enum SimulatedCommand {
    Put(u64),
    Get(u64),
    Remove,
    Purge,
}

/// A disk that loses power, and what its worker said.
struct Sim {
    worker: Worker,
    held: Arc<Mutex<Vec<(u64, IoOperation)>>>,
    commands: SyncSender<Command>,
    reports: std::sync::mpsc::Receiver<Report>,
    arena: Arc<Arena>,
    flying: Vec<InFlightOperation>,
    /// Written and not durable, by inode and page.
    volatile: HashMap<u64, BTreeMap<u64, Page>>,
    /// Whether nothing is volatile, so that what is destroyed is ordered with what is written.
    writes_through: bool,
    next: u64,
    waiting: BTreeMap<Ticket, SimulatedCommand>,
    outcomes: BTreeMap<Ticket, CommandOutcome>,
    stored: BTreeSet<u64>,
    /// The last command that removes a name: what was put before it does not count.
    removed: BTreeMap<u64, Ticket>,
    lost: Vec<(u64, LossReason)>,
    conditions: Vec<Condition>,
    wrong: Vec<String>,
}

fn hash(name: u64) -> BlockHash {
    BlockHash::from_u64(name)
}

fn number_of(name: BlockHash) -> u64 {
    u128::from_be_bytes(name.0) as u64
}

fn bytes_of(name: u64) -> usize {
    2_000 + (name * 7_919 % 23_000) as usize
}

fn record_of(arena: &Arc<Arena>, name: u64, tenant: u64) -> Option<Record> {
    let meta = Meta {
        name: hash(name),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(tenant),
        tokens: 16,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s: None,
    };
    let mut draft = Draft::new(arena.take()?, meta, &[bytes_of(name)]).expect("it fits");
    draft.part_mut(0).fill(name as u8 ^ 0x5a);
    Some(draft.seal())
}

fn options(folder: &Path, budget_bytes: u64) -> DiskOptions {
    let mut options = DiskOptions::new(folder, budget_bytes);
    options.segment_bytes = Some(SEGMENT);
    options
}

/// In memory where there is such a place: nothing here needs a disk.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

impl Sim {
    fn open(folder: &Path, budget_bytes: u64) -> Self {
        let options = options(folder, budget_bytes);
        // As in `Disk::open`: the share of the lists goes off the budget first.
        let budget_bytes = budget_bytes - (1 << 20);
        let folder = DiskFolder::open(folder).expect("it is free");
        let mut recovered = recover(&folder, budget_bytes, SEGMENT, 0).expect("it is read");
        let found = std::mem::take(&mut recovered.residents);
        let held = Arc::new(Mutex::new(Vec::new()));
        let (commands, inbox) = sync_channel(4096);
        let (sender, reports) = channel();
        let edges = Edges {
            io: Box::new(ManualIo(held.clone())),
            inbox,
            reports: sender,
            waker: no_waker(),
            stop: Arc::new(AtomicBool::new(false)),
            stats: Arc::new(DiskStats::default()),
        };
        let worker = Worker::new(options, budget_bytes, folder, recovered, edges);
        Self {
            worker,
            held,
            commands,
            reports,
            arena: Arena::new(SLOT, 128).expect("memory"),
            flying: Vec::new(),
            volatile: HashMap::new(),
            writes_through: false,
            next: 0,
            waiting: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            stored: found.iter().map(|found| number_of(found.name)).collect(),
            removed: BTreeMap::new(),
            lost: Vec::new(),
            conditions: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Runs one iteration of the worker's loop, between two waits.
    fn step(&mut self) {
        self.worker.take_commands();
        self.worker.look_round();
        self.worker.pump();
        self.hear();
    }

    fn hear(&mut self) {
        let started = std::mem::take(&mut *self.held.lock().expect("no holder of the lock panics"));
        for (id, op) in started {
            let covers = match &op {
                IoOperation::Sync { file } => {
                    let pages = self.volatile.get(&inode(file));
                    let pages = pages.into_iter().flatten();
                    pages.map(|(&at, page)| (at, page.clone())).collect()
                }
                _ => Vec::new(),
            };
            self.flying.push(InFlightOperation { id, op, covers });
        }
        let reports: Vec<Report> = self.reports.try_iter().collect();
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => self.done(ticket, outcome),
                Report::Lost { names, loss } => {
                    for name in names {
                        self.stored.remove(&number_of(name));
                        self.lost.push((number_of(name), loss));
                    }
                }
                Report::Found(found) => {
                    self.stored.extend(found.iter().map(|found| number_of(found.name)));
                }
                Report::Condition(condition) => self.conditions.push(condition),
            }
        }
    }

    /// Notes a stored record, unless it was removed after the put.
    fn note_stored(&mut self, name: u64, ticket: Ticket) {
        let removed = self.removed.get(&name);
        if removed.is_none_or(|&removed| removed < ticket) {
            self.stored.insert(name);
        }
    }

    fn done(&mut self, ticket: Ticket, outcome: CommandOutcome) {
        match (self.waiting.remove(&ticket), &outcome) {
            (None, _) => self.wrong.push(format!("{ticket:?} is answered twice")),
            (Some(SimulatedCommand::Put(name)), CommandOutcome::Stored) => {
                self.note_stored(name, ticket);
            }
            (Some(SimulatedCommand::Get(name)), CommandOutcome::Loaded(record)) => {
                let byte = name as u8 ^ 0x5a;
                if record.meta().name != hash(name)
                    || record.part(0).len() != bytes_of(name)
                    || record.part(0).iter().any(|&found| found != byte)
                {
                    self.wrong.push(format!("{name} is wrong"));
                }
            }
            _ => {}
        }
        self.outcomes.insert(ticket, outcome);
    }

    fn give(&mut self, asked: SimulatedCommand, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.waiting.insert(ticket, asked);
        self.commands.try_send(command(ticket)).expect("there is room");
        ticket
    }

    fn put(&mut self, name: u64, tenant: u64) -> Option<Ticket> {
        let record = record_of(&self.arena, name, tenant)?;
        Some(self.give(SimulatedCommand::Put(name), |ticket| Command::Put { ticket, record }))
    }

    fn get(&mut self, name: u64) -> Option<Ticket> {
        let (slot, of) = (self.arena.take()?, hash(name));
        Some(self.give(SimulatedCommand::Get(name), |ticket| Command::Get {
            ticket,
            name: of,
            slot,
        }))
    }

    fn remove(&mut self, name: u64) {
        self.stored.remove(&name);
        let names = vec![hash(name)];
        let ticket =
            self.give(SimulatedCommand::Remove, |ticket| Command::Remove { ticket, names });
        self.removed.insert(name, ticket);
    }

    fn purge(&mut self, tenant: u64) -> Ticket {
        let tenant = TenantTag(tenant);
        self.give(SimulatedCommand::Purge, |ticket| Command::Purge { ticket, tenant })
    }

    /// Ends an operation; one that fails was carried out in part.
    fn end(&mut self, index: usize, errno: Option<i32>) {
        let mut flying = self.flying.swap_remove(index);
        let result = match errno {
            Some(errno) => {
                // As far as it was carried out; where writes are volatile, none of it need last.
                if self.writes_through {
                    let _ = self.carry_out(&mut flying);
                }
                Err(io_error(errno))
            }
            None => self.carry_out(&mut flying),
        };
        let (id, op) = (flying.id, flying.op);
        self.worker.finish(IoCompletion { id, op, result });
        self.hear();
    }

    fn carry_out(&mut self, flying: &mut InFlightOperation) -> std::io::Result<()> {
        match &mut flying.op {
            IoOperation::Read { file, offset, buffer, len } => {
                let room = &mut buffer.room()[..*len];
                file.read_exact_at(room, *offset)?;
                if let Some(pages) = self.volatile.get(&inode(file)) {
                    for (index, page) in room.chunks_mut(PAGE).enumerate() {
                        let at = *offset / PAGE as u64 + index as u64;
                        if let Some(written) = pages.get(&at) {
                            page.copy_from_slice(written);
                        }
                    }
                }
            }
            IoOperation::Write { file, .. } => {
                let file = file.clone();
                let written = pages_of(&flying.op);
                if self.writes_through {
                    written.for_each(|(at, page)| write_page(&file, at * PAGE as u64, &page));
                } else {
                    self.volatile.entry(inode(&file)).or_default().extend(written);
                }
            }
            IoOperation::Sync { file } => {
                let pages = self.volatile.entry(inode(file)).or_default();
                for (at, page) in std::mem::take(&mut flying.covers) {
                    write_page(file, at * PAGE as u64, &page);
                    // A page that was written again since the sync began is not durable yet.
                    if pages.get(&at).is_some_and(|now| Arc::ptr_eq(now, &page)) {
                        pages.remove(&at);
                    }
                }
            }
        }
        Ok(())
    }

    fn purpose(&self, id: u64) -> &Purpose {
        &self.worker.ops[&id]
    }

    fn find(&self, is_it: impl Fn(&Purpose) -> bool) -> Option<usize> {
        let mut all = self.flying.iter();
        all.position(|flying| is_it(self.purpose(flying.id)))
    }

    /// Ends everything, well, until nothing is under way.
    fn quiet(&mut self) {
        for _ in 0..20_000 {
            self.step();
            if self.flying.is_empty() {
                if self.waiting.is_empty() && self.worker.is_quiet() {
                    return;
                }
                self.later();
                continue;
            }
            self.end(0, None);
        }
        let waiting: Vec<_> = self.waiting.iter().take(5).collect();
        panic!("it is stuck: {waiting:?}, {:?}", self.conditions.last());
    }

    /// Two seconds go by.
    fn later(&mut self) {
        self.worker.started -= Duration::from_secs(2);
    }

    fn check_counts(&self) {
        let worker = &self.worker;
        let mut live: HashMap<SegmentId, u32> = HashMap::new();
        for (_, place) in worker.index.iter() {
            *live.entry(place.segment).or_default() += place.pages;
        }
        for id in (0..worker.space.count() as u32).map(SegmentId) {
            let expected = live.get(&id).copied().unwrap_or(0);
            assert_eq!(worker.space.live(id), expected, "pages of {id:?}");
        }
        assert!(!worker.space.has_readers(), "a reader never ends");
        assert!(worker.is_quiet());
    }

    /// Power is lost: of what is not durable, any part is on the disk.
    fn crash(self, rng: &mut Rng) -> BTreeSet<u64> {
        let keeps = [0.0, 0.2, 0.5, 0.9, 1.0][rng.below(5)];
        self.crash_keeping(keeps, rng)
    }

    fn crash_keeping(mut self, keeps: f64, rng: &mut Rng) -> BTreeSet<u64> {
        self.hear();
        let mut files: HashMap<u64, PathBuf> = HashMap::new();
        for entry in std::fs::read_dir(&self.worker.options.folder).expect("a folder") {
            let entry = entry.expect("an entry");
            files.insert(entry.metadata().expect("a file").ino(), entry.path());
        }
        let mut all: Vec<(u64, u64, Page)> = Vec::new();
        for (&inode, pages) in &self.volatile {
            all.extend(pages.iter().map(|(&at, page)| (inode, at, page.clone())));
        }
        // Writes that did not end may have reached the disk in any part.
        for flying in &self.flying {
            if let IoOperation::Write { file, .. } = &flying.op {
                let inode = inode(file);
                all.extend(pages_of(&flying.op).map(|(at, page)| (inode, at, page)));
            }
        }
        for (inode, at, page) in all {
            let Some(path) = files.get(&inode) else {
                continue;
            };
            let file = File::options().write(true).open(path).expect("a file");
            // A disk writes whole sectors and promises no more.
            for (index, sector) in page.chunks(512).enumerate() {
                if rng.next_f64() < keeps {
                    let offset = at * PAGE as u64 + index as u64 * 512;
                    file.write_all_at(sector, offset).expect("written");
                }
            }
        }
        assert!(self.wrong.is_empty(), "{:?}", self.wrong);
        self.stored
    }
}

fn io_error(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

fn inode(file: &File) -> u64 {
    file.metadata().expect("a file").ino()
}

fn pages_of(op: &IoOperation) -> impl Iterator<Item = (u64, Page)> + '_ {
    let IoOperation::Write { offset, pieces, .. } = op else {
        unreachable!("only writes have pages")
    };
    let pages = pieces.iter().flat_map(|piece| piece.bytes().chunks(PAGE));
    let first = offset / PAGE as u64;
    pages.enumerate().map(move |(index, page)| (first + index as u64, Arc::new(page.to_vec())))
}

fn write_page(file: &File, offset: u64, page: &[u8]) {
    let mut aligned = Buffer::pages(1).expect("memory");
    aligned.copy_from_slice(page);
    file.write_all_at(&aligned, offset).expect("written");
}
