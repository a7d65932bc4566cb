//! Drives a disk tier from tests, one command after the other.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::conformance::{record_of, slot_bytes};
use crate::faults::{Faults, FaultyIo};
use headstart_core::{BlockHash, Rng, TenantTag};
use headstart_store::backend::{Condition, LossReason, ResidentRecord, Waker};
use headstart_store::disk::{Disk, DiskOptions, io};
use headstart_store::record::record_bytes;
use headstart_store::{Arena, Backend, Command, CommandOutcome, Draft, Report, Slot, Ticket};

/// Largest part of the records of these tests, bytes.
pub(crate) const PART_BYTES: usize = 3_000;

const PATIENCE: Duration = Duration::from_secs(60);

/// Small segments, so that a few hundred records fill some.
pub(crate) fn options(folder: &Path, budget_bytes: u64) -> DiskOptions {
    let mut options = DiskOptions::new(folder, budget_bytes);
    options.segment_bytes = Some(256 << 10);
    options
}

pub(crate) fn no_waker() -> Waker {
    headstart_store::backend::no_waker()
}

/// Opens a tier over a disk with faults.
pub(crate) fn open_faulty(
    options: DiskOptions,
    faults: &Faults,
    waker: Waker,
) -> (Disk, Vec<ResidentRecord>) {
    let open_io = |kind, depth| {
        let (inner, name) = io::open(kind, depth)?;
        let faulty: Box<dyn io::Io> = Box::new(FaultyIo::new(inner, faults.clone()));
        Ok((faulty, name))
    };
    Disk::open_over(options, waker, open_io).expect("it opens")
}

/// Bytes of all files in a folder.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    let bytes = entries.map(|entry| entry.expect("an entry").metadata().expect("a file").len());
    bytes.sum()
}

fn segments(folder: &Path) -> Vec<fs::DirEntry> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let is_segment =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("segment-");
    let mut segments: Vec<_> = entries.filter(is_segment).collect();
    segments.sort_by_key(fs::DirEntry::file_name);
    segments
}

/// Flips bits in pages of segments that hold something; returns how many.
pub(crate) fn flip_bits(folder: &Path, count: usize, seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let segments = segments(folder);
    let mut flipped = 0;
    while flipped < count {
        let segment = &segments[rng.below(segments.len())];
        let bytes = segment.metadata().expect("a file").len();
        let mut options = fs::File::options();
        let file = options.read(true).write(true).open(segment.path()).expect("a file");
        // Not in the first page, of which the last one holds a copy.
        let at = 4096 + rng.below(bytes as usize - 4096) as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("in the file");
        if byte[0] != 0 {
            byte[0] ^= 1 << rng.below(8);
            file.write_all_at(&byte, at).expect("in the file");
            flipped += 1;
        }
    }
    flipped
}

/// Whether `bytes` stand in any file of a folder.
pub(crate) fn contains(folder: &Path, bytes: &[u8]) -> bool {
    let mut files = segments(folder).into_iter();
    files.any(|file| {
        let all = fs::read(file.path()).expect("a file");
        all.windows(bytes.len()).any(|window| window == bytes)
    })
}

/// Event in the life of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Stored(u64),
    Lost(BlockHash),
}

pub(crate) type Teller = Box<dyn FnMut(News)>;

/// Holds up a tier until its reports were taken, so that they are passed on before anything else
/// becomes durable.
#[derive(Clone, Default)]
pub(crate) struct Pace {
    reported: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
}

impl Pace {
    fn waker(&self) -> Waker {
        let Self { reported, taken } = self.clone();
        Arc::new(move || {
            let number = reported.fetch_add(1, SeqCst) + 1;
            while taken.load(SeqCst) < number {
                std::thread::sleep(Duration::from_micros(20));
            }
        })
    }
}

/// A tier and what is known of it.
pub(crate) struct Driver {
    pub(crate) disk: Disk,
    pub(crate) found: Vec<ResidentRecord>,
    pub(crate) stored: BTreeSet<u64>,
    pub(crate) lost: Vec<(BlockHash, LossReason)>,
    pub(crate) conditions: Vec<Condition>,
    /// When what is stored from now on ends.
    pub(crate) expires_s: Option<u64>,
    /// Callback for stored and lost records, called in order before the tier continues, which
    /// [`Pace`] holds up.
    teller: Option<(Pace, Teller)>,
    arena: Arc<Arena>,
    next: u64,
    puts: Vec<(Ticket, u64)>,
    answers: Vec<(Ticket, CommandOutcome)>,
}

impl Driver {
    pub(crate) fn open(options: DiskOptions) -> Self {
        let (disk, found) = Disk::open(options, no_waker()).expect("it opens");
        Self { found, ..Self::of(disk) }
    }

    pub(crate) fn open_faulty(options: DiskOptions, faults: &Faults) -> Self {
        let (disk, found) = open_faulty(options, faults, no_waker());
        Self { found, ..Self::of(disk) }
    }

    /// Opens a tier with faults that passes on each event as it happens. Must not be dropped: the
    /// tier's thread would wait for a poll that never comes.
    pub(crate) fn open_telling(options: DiskOptions, faults: &Faults, teller: Teller) -> Self {
        let pace = Pace::default();
        let (disk, found) = open_faulty(options, faults, pace.waker());
        Self { found, teller: Some((pace, teller)), ..Self::of(disk) }
    }

    pub(crate) fn of(disk: Disk) -> Self {
        Self {
            disk,
            teller: None,
            found: Vec::new(),
            stored: BTreeSet::new(),
            lost: Vec::new(),
            conditions: Vec::new(),
            expires_s: None,
            arena: Arena::new(slot_bytes(PART_BYTES), 64).expect("memory"),
            next: 0,
            puts: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(crate) fn has_found(&self, name: u64) -> bool {
        let name = BlockHash::from_u64(name);
        self.found.iter().any(|found| found.name == name)
    }

    /// Hands over a record and does not wait.
    pub(crate) fn put(&mut self, name: u64) -> Ticket {
        let slot = self.slot();
        let mut record = record_of(name, PART_BYTES, slot);
        if self.expires_s.is_some() {
            let mut meta = *record.meta();
            meta.expires_s = self.expires_s;
            let parts: Vec<Vec<u8>> =
                (0..record.num_parts()).map(|part| record.part(part).to_vec()).collect();
            let lens: Vec<usize> = parts.iter().map(Vec::len).collect();
            assert!(record_bytes(&lens) <= self.arena.slot_bytes());
            let mut draft = Draft::new(self.slot(), meta, &lens).expect("it fits");
            for (part, bytes) in parts.iter().enumerate() {
                draft.part_mut(part).copy_from_slice(bytes);
            }
            record = draft.seal();
        }
        let ticket = self.ticket();
        self.puts.push((ticket, name));
        self.give(Command::Put { ticket, record });
        ticket
    }

    pub(crate) fn store(&mut self, name: u64) -> CommandOutcome {
        let ticket = self.put(name);
        self.answer(ticket)
    }

    pub(crate) fn must_store(&mut self, name: u64) {
        let outcome = self.store(name);
        assert!(matches!(outcome, CommandOutcome::Stored), "{name}: {outcome:?}");
    }

    /// Whether it is there; if it is, it is right.
    pub(crate) fn loads(&mut self, name: u64) -> bool {
        let (ticket, slot) = (self.ticket(), self.slot());
        let hash = BlockHash::from_u64(name);
        self.give(Command::Get { ticket, name: hash, slot });
        let CommandOutcome::Loaded(record) = self.answer(ticket) else {
            return false;
        };
        let right = record_of(name, PART_BYTES, self.slot());
        assert_eq!(record.num_parts(), right.num_parts());
        for part in 0..right.num_parts() {
            assert!(record.part(part) == right.part(part), "{name} is wrong");
        }
        true
    }

    pub(crate) fn must_load(&mut self, name: u64) {
        assert!(self.loads(name), "{name} is missing");
    }

    /// Whether one part of it is there; if it is, it is right.
    pub(crate) fn loads_part(&mut self, name: u64, part: u16) -> bool {
        let (ticket, slot) = (self.ticket(), self.slot());
        let hash = BlockHash::from_u64(name);
        self.give(Command::GetPart { ticket, name: hash, part, slot });
        let CommandOutcome::Part(read) = self.answer(ticket) else {
            return false;
        };
        let right = record_of(name, PART_BYTES, self.slot());
        let is_right = read.bytes() == right.part(usize::from(part));
        assert!(is_right, "part {part} of {name} is wrong");
        true
    }

    pub(crate) fn remove(&mut self, name: u64) {
        let ticket = self.ticket();
        let names = vec![BlockHash::from_u64(name)];
        self.give(Command::Remove { ticket, names });
        self.answer(ticket);
        self.stored.remove(&name);
    }

    /// Returns how many there were.
    pub(crate) fn purge(&mut self, tenant: TenantTag) -> usize {
        let ticket = self.ticket();
        self.give(Command::Purge { ticket, tenant });
        match self.answer(ticket) {
            CommandOutcome::Removed(count) => count,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until all puts are answered.
    pub(crate) fn quiet(&mut self) {
        let started = Instant::now();
        while !self.puts.is_empty() {
            self.pause(started);
        }
        self.answers.clear();
    }

    /// Waits until something is so.
    pub(crate) fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let started = Instant::now();
        while !is_so(self) {
            self.pause(started);
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    fn slot(&mut self) -> Slot {
        let started = Instant::now();
        loop {
            if let Some(slot) = self.arena.take() {
                return slot;
            }
            self.pause(started);
        }
    }

    fn give(&mut self, mut command: Command) {
        let started = Instant::now();
        while let Err(back) = self.disk.submit(command) {
            command = back;
            self.pause(started);
        }
    }

    fn answer(&mut self, ticket: Ticket) -> CommandOutcome {
        let started = Instant::now();
        loop {
            let place = self.answers.iter().position(|(answered, _)| *answered == ticket);
            if let Some(place) = place {
                return self.answers.swap_remove(place).1;
            }
            self.pause(started);
        }
    }

    fn pause(&mut self, started: Instant) {
        assert!(started.elapsed() < PATIENCE, "no answer");
        self.poll();
        std::thread::sleep(Duration::from_micros(50));
    }

    fn poll(&mut self) {
        let mut reports = Vec::new();
        let reported = self.teller.as_ref();
        let reported = reported.map(|(pace, _)| pace.reported.load(SeqCst));
        self.disk.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => self.done(ticket, outcome),
                Report::Lost { names, loss } => {
                    for name in names {
                        self.tell(News::Lost(name));
                        self.stored.retain(|&stored| BlockHash::from_u64(stored) != name);
                        self.lost.push((name, loss));
                    }
                }
                Report::Found(found) => self.found.extend(found),
                Report::Condition(condition) => self.conditions.push(condition),
            }
        }
        if let (Some((pace, _)), Some(reported)) = (&self.teller, reported) {
            pace.taken.store(reported, SeqCst);
        }
    }

    fn tell(&mut self, news: News) {
        if let Some((_, teller)) = &mut self.teller {
            teller(news);
        }
    }

    fn done(&mut self, ticket: Ticket, outcome: CommandOutcome) {
        if let Some(at) = self.puts.iter().position(|(put, _)| *put == ticket) {
            let (_, name) = self.puts.swap_remove(at);
            if matches!(outcome, CommandOutcome::Stored) {
                self.stored.insert(name);
                self.tell(News::Stored(name));
            }
        }
        self.answers.push((ticket, outcome));
    }
}
