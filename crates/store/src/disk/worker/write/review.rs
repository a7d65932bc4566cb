//! A review's attempts to break the worker: its operations end in any order, some of them fail,
//! power is lost at any step. One thread and one seed, so that a failure is the same each time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use headstart_core::{IdentityDigest, Rng};

use super::super::*;
use crate::arena::Arena;
use crate::backend::{Condition, no_waker};
use crate::disk::io::{Bell, Buffer};
use crate::disk::recover::recover;
use crate::record::{Draft, Exactness, Meta};

const SLOT: usize = 64 << 10;
const SEGMENT: u64 = 256 << 10;

/// Takes operations and never ends one by itself.
struct Held(Arc<Mutex<Vec<(u64, Op)>>>);

impl Io for Held {
    fn start(&mut self, id: u64, op: Op) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((id, op));
    }

    fn wait(&mut self, _: Duration, _: &mut Vec<Finished>) {}

    fn bell(&self) -> Bell {
        Arc::new(|| {})
    }
}

type Page = Arc<Vec<u8>>;

/// An operation that was started and did not end.
struct Flying {
    id: u64,
    op: Op,
    /// Of a sync: what it makes durable, which is what was written when it began.
    covers: Vec<(u64, Page)>,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Put(u64),
    Get(u64),
    Remove,
    Purge,
}

/// A disk that loses power, and what its worker said.
struct Sim {
    worker: Worker,
    held: Arc<Mutex<Vec<(u64, Op)>>>,
    commands: SyncSender<Command>,
    reports: std::sync::mpsc::Receiver<Report>,
    arena: Arc<Arena>,
    flying: Vec<Flying>,
    /// Written and not durable, by inode and page.
    volatile: HashMap<u64, BTreeMap<u64, Page>>,
    next: u64,
    waiting: BTreeMap<Ticket, Asked>,
    outcomes: BTreeMap<Ticket, Outcome>,
    stored: BTreeSet<u64>,
    /// The last command that removes a name: what was put before it does not count.
    removed: BTreeMap<u64, Ticket>,
    lost: Vec<(u64, Loss)>,
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
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

impl Sim {
    fn open(folder: &Path, budget_bytes: u64) -> Self {
        let options = options(folder, budget_bytes);
        let budget_bytes = budget_bytes - (1 << 20);
        let folder = Folder::open(folder).expect("it is free");
        let mut recovered = recover(&folder, budget_bytes, SEGMENT, 0).expect("it is read");
        let found = std::mem::take(&mut recovered.residents);
        let held = Arc::new(Mutex::new(Vec::new()));
        let (commands, inbox) = sync_channel(4096);
        let (sender, reports) = channel();
        let edges = Edges {
            io: Box::new(Held(held.clone())),
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

    /// What the loop of the worker does between two waits.
    fn step(&mut self) {
        self.worker.take_commands();
        self.worker.look_round();
        self.worker.pump();
        self.hear();
    }

    fn hear(&mut self) {
        let started = std::mem::take(&mut *self.held.lock().expect("nobody panics"));
        for (id, op) in started {
            let covers = match &op {
                Op::Sync { file } => {
                    let pages = self.volatile.get(&inode(file));
                    let pages = pages.into_iter().flatten();
                    pages.map(|(&at, page)| (at, page.clone())).collect()
                }
                _ => Vec::new(),
            };
            self.flying.push(Flying { id, op, covers });
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
                    self.stored
                        .extend(found.iter().map(|found| number_of(found.name)));
                }
                Report::Condition(condition) => self.conditions.push(condition),
            }
        }
    }

    fn done(&mut self, ticket: Ticket, outcome: Outcome) {
        match (self.waiting.remove(&ticket), &outcome) {
            (None, _) => self.wrong.push(format!("{ticket:?} is answered twice")),
            (Some(Asked::Put(name)), Outcome::Stored) => {
                if self
                    .removed
                    .get(&name)
                    .is_none_or(|&removed| removed < ticket)
                {
                    self.stored.insert(name);
                }
            }
            (Some(Asked::Get(name)), Outcome::Loaded(record)) => {
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

    fn give(&mut self, asked: Asked, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.waiting.insert(ticket, asked);
        self.commands
            .try_send(command(ticket))
            .expect("there is room");
        ticket
    }

    fn put(&mut self, name: u64, tenant: u64) -> Option<Ticket> {
        let record = record_of(&self.arena, name, tenant)?;
        Some(self.give(Asked::Put(name), |ticket| Command::Put { ticket, record }))
    }

    fn get(&mut self, name: u64) -> Option<Ticket> {
        let (slot, of) = (self.arena.take()?, hash(name));
        Some(self.give(Asked::Get(name), |ticket| Command::Get {
            ticket,
            name: of,
            slot,
        }))
    }

    fn remove(&mut self, name: u64) {
        self.stored.remove(&name);
        let names = vec![hash(name)];
        let ticket = self.give(Asked::Remove, |ticket| Command::Remove { ticket, names });
        self.removed.insert(name, ticket);
    }

    fn purge(&mut self, tenant: u64) -> Ticket {
        let tenant = TenantTag(tenant);
        self.give(Asked::Purge, |ticket| Command::Purge { ticket, tenant })
    }

    /// Ends an operation; one that fails was carried out in part.
    fn end(&mut self, index: usize, errno: Option<i32>) {
        let mut flying = self.flying.swap_remove(index);
        let result = match errno {
            Some(errno) => Err(io_error(errno)),
            None => self.carry_out(&mut flying),
        };
        let (id, op) = (flying.id, flying.op);
        self.worker.finish(Finished { id, op, result });
        self.hear();
    }

    fn carry_out(&mut self, flying: &mut Flying) -> std::io::Result<()> {
        match &mut flying.op {
            Op::Read {
                file,
                offset,
                buffer,
                len,
            } => {
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
            Op::Write { file, .. } => {
                let inode = inode(file);
                let pages = self.volatile.entry(inode).or_default();
                pages.extend(pages_of(&flying.op));
            }
            Op::Sync { file } => {
                let pages = self.volatile.entry(inode(file)).or_default();
                for (at, page) in std::mem::take(&mut flying.covers) {
                    write_page(file, at * PAGE as u64, &page);
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
        assert!(!worker.space.has_readers(), "somebody reads for ever");
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
        for flying in &self.flying {
            if let Op::Write { file, .. } = &flying.op {
                let inode = inode(file);
                all.extend(pages_of(&flying.op).map(|(at, page)| (inode, at, page)));
            }
        }
        for (inode, at, page) in all {
            let Some(path) = files.get(&inode) else {
                continue;
            };
            let file = File::options().write(true).open(path).expect("a file");
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

fn pages_of(op: &Op) -> impl Iterator<Item = (u64, Page)> + '_ {
    let Op::Write { offset, pieces, .. } = op else {
        unreachable!("only writes have pages")
    };
    let pages = pieces.iter().flat_map(|piece| piece.bytes().chunks(PAGE));
    let first = offset / PAGE as u64;
    pages
        .enumerate()
        .map(move |(index, page)| (first + index as u64, Arc::new(page.to_vec())))
}

fn write_page(file: &File, offset: u64, page: &[u8]) {
    let mut aligned = Buffer::pages(1).expect("memory");
    aligned.copy_from_slice(page);
    file.write_all_at(&aligned, offset).expect("written");
}

/// What a trial does.
#[derive(Clone, Copy, Debug)]
struct Trial {
    seed: u64,
    steps: usize,
    lives: usize,
    names: usize,
    budget_bytes: u64,
    /// Shares of operations that fail.
    failing_writes: f64,
    failing_reads: f64,
    /// Loads and looks at all records that must be there before each crash.
    looks: bool,
}

fn run(trial: Trial) -> Result<usize, String> {
    let place = place();
    let mut rng = Rng::new(trial.seed);
    let mut expected: BTreeSet<u64> = BTreeSet::new();
    let mut moved = 0;
    for life in 0..trial.lives {
        let mut sim = Sim::open(place.path(), trial.budget_bytes);
        let gone: Vec<u64> = expected.difference(&sim.stored).copied().collect();
        if !gone.is_empty() {
            return Err(format!(
                "{trial:?}, life {life}: not found after a crash: {gone:?}"
            ));
        }
        // What is found is right, too.
        let missing = load_all(&mut sim, &expected);
        if !missing.is_empty() {
            return Err(format!(
                "{trial:?}, life {life}: found and not there: {missing:?}"
            ));
        }
        let steps = 1 + rng.below(trial.steps);
        for _ in 0..steps {
            random_step(&mut sim, trial, &mut rng);
        }
        if trial.looks && rng.below(2) == 0 {
            sim.quiet();
            sim.check_counts();
            let stored = sim.stored.clone();
            let missing = load_all(&mut sim, &stored);
            if !missing.is_empty() {
                return Err(format!(
                    "{trial:?}, life {life}: stored, not there: {missing:?}"
                ));
            }
            // Nothing is stuck.
            for name in 0..5 {
                let name = 1_000_000 + (life as u64) * 10 + name;
                let mut outcome = None;
                for _ in 0..20 {
                    // The pause after a failure is 30 s at most.
                    sim.later();
                    let ticket = sim.put(name, 1).expect("a slot");
                    sim.quiet();
                    outcome = sim.outcomes.remove(&ticket);
                    if matches!(outcome, Some(Outcome::Stored)) {
                        break;
                    }
                }
                if !matches!(outcome, Some(Outcome::Stored)) {
                    return Err(format!("{trial:?}, life {life}: stuck: {outcome:?}"));
                }
            }
        }
        moved += sim.worker.edges.stats.moved_bytes.get() as usize;
        if !sim.wrong.is_empty() {
            return Err(format!("{trial:?}, life {life}: {:?}", sim.wrong));
        }
        expected = sim.crash(&mut rng);
    }
    Ok(moved)
}

fn load_all(sim: &mut Sim, names: &BTreeSet<u64>) -> Vec<u64> {
    let mut missing = Vec::new();
    for &name in names {
        let ticket = sim.get(name).expect("a slot");
        sim.quiet();
        if !matches!(sim.outcomes.remove(&ticket), Some(Outcome::Loaded(_))) {
            missing.push(name);
        }
        sim.outcomes.clear();
    }
    missing
}

fn random_step(sim: &mut Sim, trial: Trial, rng: &mut Rng) {
    match rng.below(100) {
        0..30 => {
            let name = rng.below(trial.names) as u64;
            sim.put(name, name % 5);
        }
        30..40 => {
            let name = rng.below(trial.names) as u64;
            sim.remove(name);
        }
        40..50 => {
            let name = rng.below(trial.names) as u64;
            sim.get(name);
        }
        50 => sim.later(),
        _ => {}
    }
    sim.outcomes.clear();
    if rng.below(3) > 0 {
        sim.step();
    }
    // As fast as puts come, so that sometimes much and sometimes little is under way.
    for _ in 0..rng.below(4) {
        if sim.flying.is_empty() {
            break;
        }
        let index = rng.below(sim.flying.len());
        let is_read = matches!(sim.flying[index].op, Op::Read { .. });
        let failing = if is_read {
            trial.failing_reads
        } else {
            trial.failing_writes
        };
        let errno = (rng.next_f64() < failing).then_some(libc::EIO);
        sim.end(index, errno);
        if rng.below(2) == 0 {
            sim.step();
        }
    }
}

fn check(trial: Trial, seeds: std::ops::Range<u64>) {
    let mut failures = Vec::new();
    let mut moved = 0;
    let count = seeds.end - seeds.start;
    for seed in seeds {
        match run(Trial { seed, ..trial }) {
            Ok(bytes) => moved += bytes,
            Err(error) => failures.push(error),
        }
    }
    eprintln!("{moved} bytes moved, {} of {count} failed", failures.len());
    assert!(
        failures.is_empty(),
        "{} failed, the first: {}",
        failures.len(),
        failures[0]
    );
}

const CROWDED: Trial = Trial {
    seed: 0,
    steps: 3_000,
    lives: 4,
    names: 400,
    budget_bytes: 3 << 20,
    failing_writes: 0.0,
    failing_reads: 0.0,
    looks: true,
};

#[test]
fn any_order_and_lost_power_while_segments_are_cleaned() {
    check(CROWDED, 0..60);
}

#[test]
fn the_same_with_failing_writes() {
    let trial = Trial {
        failing_writes: 0.02,
        ..CROWDED
    };
    check(trial, 0..60);
}

#[test]
fn the_same_with_failing_writes_and_reads() {
    let trial = Trial {
        failing_writes: 0.005,
        failing_reads: 0.01,
        ..CROWDED
    };
    check(trial, 0..60);
}

/// A write of records that are moved fails, in a segment that takes no more groups. The records
/// are where they were; the segment's footer must not say otherwise.
#[test]
fn a_move_that_failed_is_not_in_the_footer() {
    let mut tried = 0;
    let mut failures = Vec::new();
    for seed in 0..40 {
        let place = place();
        let mut rng = Rng::new(seed);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let mut failed = None;
        for _ in 0..6_000 {
            random_step(&mut sim, CROWDED, &mut rng);
            let worker = &mut sim.worker;
            let groups = worker.writes.groups.iter().enumerate();
            let moves = groups.filter(|(_, group)| {
                group
                    .entries
                    .iter()
                    .all(|(_, from)| matches!(from, super::Origin::Moved(_)))
                    && group.writes_left > 0
            });
            let moves: Vec<(u64, SegmentId)> = moves
                .map(|(index, group)| (worker.writes.first_group + index as u64, group.segment))
                .collect();
            let active = worker.segments.active.as_ref().map(|active| active.segment);
            let ended = moves
                .into_iter()
                .find(|&(_, segment)| active != Some(segment));
            let Some((group, segment)) = ended else {
                continue;
            };
            let write =
                sim.find(|purpose| matches!(purpose, Purpose::Write { group: of } if *of == group));
            sim.end(write.expect("it is under way"), Some(libc::EIO));
            failed = Some(segment);
            break;
        }
        let Some(segment) = failed else { continue };
        tried += 1;
        // Power is lost once its footer is on the disk.
        let mut name = 2_000_000;
        for _ in 0..2_000 {
            let is_open = sim.worker.segments.open_mut(segment).is_some();
            let is_footer = |purpose: &Purpose| matches!(purpose, Purpose::Footer { .. });
            if !is_open && sim.find(is_footer).is_none() {
                break;
            }
            if sim.flying.is_empty() {
                sim.later();
                sim.put(name, 1);
                name += 1;
            } else {
                sim.end(0, None);
            }
            sim.step();
        }
        let expected = sim.crash_keeping(1.0, &mut rng);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let missing = load_all(&mut sim, &expected);
        if !missing.is_empty() {
            failures.push((seed, missing));
        }
    }
    assert!(tried > 0, "nothing was tried");
    assert!(
        failures.is_empty(),
        "{tried} tried; (seed, missing): {failures:?}"
    );
}

/// Records that are moved when their tenant is purged stay purged.
#[test]
fn what_is_moved_while_it_is_purged_does_not_come_back() {
    let mut tried = 0;
    let mut failures = Vec::new();
    for seed in 0..40 {
        let place = place();
        let mut rng = Rng::new(seed);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let mut moving = Vec::new();
        for _ in 0..6_000 {
            random_step(&mut sim, CROWDED, &mut rng);
            let moves = sim.worker.writes.moves.iter();
            let moves = moves.filter(|addition| addition.entry.tenant == TenantTag(2));
            moving = moves
                .map(|addition| number_of(addition.entry.name))
                .collect();
            let is_put = |name: &u64| sim.worker.writes.waiting.contains_key(&hash(*name));
            moving.retain(|name| !is_put(name));
            if !moving.is_empty() {
                break;
            }
        }
        if moving.is_empty() {
            continue;
        }
        tried += 1;
        let purge = sim.purge(2);
        sim.step();
        let outcome = sim.outcomes.remove(&purge);
        assert!(matches!(outcome, Some(Outcome::Removed(_))), "{outcome:?}");
        sim.quiet();
        sim.crash_keeping(1.0, &mut rng);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let moving: BTreeSet<u64> = moving.into_iter().collect();
        let missing = load_all(&mut sim, &moving);
        if missing.len() < moving.len() {
            failures.push((seed, moving.len() - missing.len()));
        }
    }
    assert!(tried > 0, "nothing was tried");
    assert!(
        failures.is_empty(),
        "{tried} tried; (seed, purged and readable): {failures:?}"
    );
}

/// Reads that follow each other, so that some are under way at any time, do not keep puts waiting,
/// and cost no more than the room that the puts need.
#[test]
fn reads_do_not_keep_puts_waiting() {
    let mut failures = Vec::new();
    for (seed, budget_bytes) in (0..8).map(|seed| (seed, [3 << 20, 9 << 20][seed as usize % 2])) {
        let place = place();
        let mut rng = Rng::new(seed);
        let mut sim = Sim::open(place.path(), budget_bytes);
        // Full of wanted records: now and then the oldest segment is given up.
        let mut name = 0;
        while sim.lost.len() < 30 {
            sim.put(name, 1);
            name += 1;
            sim.quiet();
        }
        let (before, full) = (sim.lost.len(), sim.stored.len());
        let mut fewest = full;
        let mut puts = 0;
        let mut longest = 0;
        let mut waits = 0;
        let mut reads = 0;
        while reads < 3_000 {
            let is_read = |op: &Op| {
                matches!(
                    op,
                    Op::Read {
                        buffer: Buffer::Slot(_),
                        ..
                    }
                )
            };
            let under_way = sim
                .flying
                .iter()
                .filter(|flying| is_read(&flying.op))
                .count();
            if under_way < 24 {
                let all: Vec<u64> = sim.stored.iter().copied().collect();
                if all.is_empty() {
                    break;
                }
                sim.get(all[rng.below(all.len())]);
            }
            let put_waits = sim
                .waiting
                .values()
                .any(|asked| matches!(asked, Asked::Put(_)));
            if !put_waits {
                sim.put(name, 1);
                name += 1;
                puts += 1;
                waits = 0;
            }
            sim.step();
            waits += 1;
            longest = longest.max(waits);
            // Writes and moves are quick, reads end one at a time, the oldest first.
            while let Some(index) = sim.flying.iter().position(|flying| !is_read(&flying.op)) {
                sim.end(index, None);
                sim.step();
            }
            if under_way >= 24 {
                let ids = sim
                    .flying
                    .iter()
                    .enumerate()
                    .map(|(index, flying)| (flying.id, index));
                let (_, oldest) = ids.min().expect("there are some");
                sim.end(oldest, None);
                reads += 1;
            }
            sim.outcomes.clear();
            fewest = fewest.min(sim.stored.len());
        }
        let worker = &sim.worker;
        let lost = sim.lost.len() - before;
        eprintln!(
            "seed {seed}: {full} there, {fewest} at times; {puts} puts, the longest waited for {longest} reads, {lost} lost of {}; cleaning {}, \
             active {}, next {}, free {}",
            lost + sim.stored.len(),
            worker.cleaning.is_some(),
            worker.segments.active.is_some(),
            worker.segments.next.is_some(),
            worker.space.num_free(),
        );
        if longest > 400 || fewest < full / 2 {
            failures.push((seed, full, fewest, longest));
        }
        sim.quiet();
        sim.check_counts();
    }
    assert!(
        failures.is_empty(),
        "(seed, there, there at times, longest wait): {failures:?}"
    );
}
