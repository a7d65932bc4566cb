//! A disk tier in fast motion: records come, end, are removed, purged and given up, and the tier is
//! closed and opened again with more room and with less, while another thread adds up its files.
//!
//! ```bash
//! HEADSTART_CHURN_MINUTES=20 cargo run -p headstart-store --example churn -- [FOLDER]
//! ```
//!
//! Two seconds in the folder for temporary files unless told otherwise. The folder must be empty or
//! not there; what is written is deleted. Two minutes of times to live pass in a second, and at
//! most 40 MB/s are put. Ends with an error when the budget was exceeded once, or something wrong
//! was read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};
use headstart_store::backend::{LossReason, no_waker};
use headstart_store::record::{Content, Exactness, record_bytes};
use headstart_store::{
    Arena, Backend, Command, CommandOutcome, Disk, DiskOptions, Draft, Meta, Report, Slot, Ticket,
};

/// Budgets, one after the other, bytes: full of records within a second or two.
const BUDGETS: [u64; 3] = [48 << 20, 24 << 20, 36 << 20];
const SEGMENT_BYTES: u64 = 1 << 20;

/// Largest record without its header, bytes, and room for any.
const MOST_BYTES: usize = 64 << 10;
const SLOT_BYTES: usize = MOST_BYTES + (8 << 10);

/// Commands under way at once.
const WINDOW: usize = 64;

/// Names in use, and whose they are.
const NAMES: usize = 4_000;
const TENANTS: u64 = 7;

/// Most that is put, bytes per second.
const BYTES_PER_S: f64 = 40e6;

/// Between two openings.
const LIFE: Duration = Duration::from_millis(700);

/// Seconds of times to live in one second.
const FAST: f64 = 120.0;

fn now_s() -> u64 {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let started = STARTED.get_or_init(Instant::now);
    1_000_000 + (started.elapsed().as_secs_f64() * FAST) as u64
}

fn main() {
    let minutes = std::env::var("HEADSTART_CHURN_MINUTES");
    let minutes = minutes.map_or(2.0 / 60.0, |text| text.parse().expect("a number"));
    let given = std::env::args().nth(1).map(PathBuf::from);
    let name = format!("headstart-churn-{}", std::process::id());
    let folder = given.unwrap_or_else(|| std::env::temp_dir().join(name));
    assert!(
        !folder.exists() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_none())
    );
    let watch = Arc::new(Watch::default());
    let watcher = {
        let (watch, folder) = (watch.clone(), folder.clone());
        std::thread::spawn(move || watch.run(&folder))
    };
    let mut churn = Churn::new(watch.clone());
    let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    while Instant::now() < end {
        churn.live(&folder, end.min(Instant::now() + LIFE));
    }
    watch.stop.store(true, SeqCst);
    watcher.join().expect("it only looks");
    fs::remove_dir_all(&folder).expect("it can be deleted");
    println!("{minutes:.2} minutes: {:#?}", churn.tally);
    println!("budgets {BUDGETS:?}: {watch:#?}");
    let over = watch.over.load(SeqCst);
    assert_eq!(over, 0, "the budget was exceeded {over} times");
    churn.tally.check();
}

/// Adds up the files, over and over.
#[derive(Debug, Default)]
struct Watch {
    /// Current limit on the total size of the files, bytes.
    limit: AtomicU64,
    looks: AtomicU64,
    over: AtomicU64,
    most_bytes: AtomicU64,
    /// Largest share of the limit at that time, in thousandths.
    most_permille: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    fn run(&self, folder: &Path) {
        while !self.stop.load(SeqCst) {
            // Lowered after what must go is gone, raised before: the higher one of both counts.
            let before = self.limit.load(SeqCst);
            let bytes = bytes_in(folder);
            let limit = before.max(self.limit.load(SeqCst));
            if limit > 0 {
                self.looks.fetch_add(1, SeqCst);
                self.over.fetch_add(u64::from(bytes > limit), SeqCst);
                self.most_bytes.fetch_max(bytes, SeqCst);
                self.most_permille.fetch_max(bytes * 1_000 / limit, SeqCst);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// As long as the files are or as much as they take, whichever is more.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files.map(|file| file.len().max(file.blocks() * 512)).sum()
}

/// Counters of the run.
#[derive(Debug, Default)]
struct Tally {
    openings: u64,
    stored: u64,
    stored_bytes: u64,
    read_right: u64,
    missing: u64,
    removed: u64,
    purged: u64,
    expired: u64,
    given_up: u64,
    found_again: u64,
    /// Of the disk: also what was moved to make room.
    written_bytes: u64,
}

impl Tally {
    fn check(&self) {
        let all = [
            self.stored,
            self.read_right,
            self.removed,
            self.purged,
            self.expired,
            self.given_up,
            self.found_again,
        ];
        assert!(all.iter().all(|&count| count > 0), "all of it happened");
    }
}

/// A command that awaits its answer.
enum PendingCommand {
    Put(usize),
    Get(u64),
    Remove,
    Purge,
}

struct Churn {
    rng: Rng,
    arena: Arc<Arena>,
    asked: BTreeMap<Ticket, PendingCommand>,
    next: u64,
    started: Instant,
    watch: Arc<Watch>,
    tally: Tally,
}

impl Churn {
    fn new(watch: Arc<Watch>) -> Self {
        Self {
            rng: Rng::new(1),
            arena: Arena::new(SLOT_BYTES, WINDOW).expect("memory"),
            asked: BTreeMap::new(),
            next: 0,
            started: Instant::now(),
            watch,
            tally: Tally::default(),
        }
    }

    /// Opens the tier, uses it until `end` and closes it.
    fn live(&mut self, folder: &Path, end: Instant) {
        let budget = BUDGETS[self.tally.openings as usize % BUDGETS.len()];
        let mut options = DiskOptions::new(folder, budget);
        options.segment_bytes = Some(SEGMENT_BYTES);
        options.now_s = now_s;
        self.watch.limit.fetch_max(budget, SeqCst);
        let (mut disk, found) = Disk::open(options, no_waker()).expect("it opens");
        self.watch.limit.store(budget, SeqCst);
        self.tally.openings += 1;
        self.tally.found_again += found.len() as u64;
        while Instant::now() < end {
            // What was removed while it was written holds its slot a little longer.
            let is_free = self.asked.len() < WINDOW && !self.is_ahead();
            match is_free.then(|| self.arena.take()).flatten() {
                Some(slot) => self.act(&mut disk, slot),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
            self.listen(&mut disk);
        }
        while !self.asked.is_empty() {
            std::thread::sleep(Duration::from_micros(200));
            self.listen(&mut disk);
        }
        self.tally.written_bytes += disk.stats().written_bytes.get();
    }

    fn is_ahead(&self) -> bool {
        self.tally.stored_bytes as f64 > BYTES_PER_S * self.started.elapsed().as_secs_f64()
    }

    fn act(&mut self, disk: &mut Disk, slot: Slot) {
        self.next += 1;
        let ticket = Ticket(self.next);
        let number = self.rng.below(NAMES) as u64;
        let name = BlockHash::from_u64(number);
        let (asked, command) = match self.rng.below(1_000) {
            0..550 => {
                let (draft, bytes) = draft(number, slot, &mut self.rng);
                let record = draft.seal();
                (PendingCommand::Put(bytes), Command::Put { ticket, record })
            }
            550..900 => (PendingCommand::Get(number), Command::Get { ticket, name, slot }),
            900..999 => {
                let names = vec![name];
                (PendingCommand::Remove, Command::Remove { ticket, names })
            }
            _ => {
                let tenant = TenantTag(number % TENANTS);
                (PendingCommand::Purge, Command::Purge { ticket, tenant })
            }
        };
        self.asked.insert(ticket, asked);
        disk.submit(command).expect("its queue is longer");
    }

    fn listen(&mut self, disk: &mut Disk) {
        let mut reports = Vec::new();
        disk.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => {
                    let asked = self.asked.remove(&ticket).expect("it was asked");
                    self.hear(asked, outcome);
                }
                Report::Lost { names, loss } => {
                    let count = names.len() as u64;
                    match loss {
                        LossReason::Expired => self.tally.expired += count,
                        LossReason::Evicted => self.tally.given_up += count,
                        LossReason::Corrupt | LossReason::Offline => panic!("{loss:?}: {names:?}"),
                    }
                }
                Report::Found(_) | Report::Condition(_) => panic!("{report:?}"),
            }
        }
    }

    fn hear(&mut self, asked: PendingCommand, outcome: CommandOutcome) {
        let tally = &mut self.tally;
        match (asked, outcome) {
            (PendingCommand::Put(bytes), CommandOutcome::Stored) => {
                tally.stored += 1;
                tally.stored_bytes += bytes as u64;
            }
            // Removed or purged before it was durable.
            (PendingCommand::Put(_), CommandOutcome::Failed(_)) => {}
            (PendingCommand::Get(number), CommandOutcome::Loaded(record)) => {
                let mut right = Rng::new(number);
                let bytes = record.part(0);
                let is_long = bytes.len() == bytes_of(&mut right);
                let is_right =
                    is_long && bytes.chunks(8).all(|chunk| chunk == word(&mut right, chunk.len()));
                assert!(is_right, "{number} is wrong");
                tally.read_right += 1;
            }
            (PendingCommand::Get(_), CommandOutcome::Missing) => tally.missing += 1,
            (PendingCommand::Remove, CommandOutcome::Removed(count)) => {
                tally.removed += count as u64;
            }
            (PendingCommand::Purge, CommandOutcome::Removed(count)) => tally.purged += count as u64,
            (_, outcome) => panic!("{outcome:?}"),
        }
    }
}

/// Bytes of a record, the first that its name's generator draws.
fn bytes_of(rng: &mut Rng) -> usize {
    1 + rng.below(MOST_BYTES)
}

fn word(rng: &mut Rng, len: usize) -> Vec<u8> {
    rng.next_u64().to_le_bytes()[..len].to_vec()
}

/// The record of a number: all of its bytes follow from it. Half of them end.
fn draft(number: u64, slot: Slot, rng: &mut Rng) -> (Draft, usize) {
    let mut own = Rng::new(number);
    let bytes = bytes_of(&mut own);
    let ends = rng.below(2) == 0;
    let meta = Meta {
        name: BlockHash::from_u64(number),
        parent: None,
        identity: IdentityDigest::default(),
        tenant: TenantTag(number % TENANTS),
        tokens: 64,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: now_s(),
        expires_s: ends.then(|| now_s() + 1 + rng.below(120) as u64),
    };
    let mut draft = Draft::new(slot, meta, &[bytes]).expect("it fits");
    for piece in draft.part_mut(0).chunks_mut(8) {
        let word = word(&mut own, piece.len());
        piece.copy_from_slice(&word);
    }
    (draft, record_bytes(&[bytes]))
}
