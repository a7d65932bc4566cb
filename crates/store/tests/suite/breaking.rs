//! Attempts to break the disk tier, from outside. Each test states what should hold, and most of
//! them once did not.

mod fail;
mod found;
mod purge;
mod put;
mod stress;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};
use headstart_store::backend::{Condition, LossReason, ResidentRecord};
use headstart_store::disk::{Disk, DiskError, DiskOptions};
use headstart_store::record::{Content, Exactness, Meta, PAGE, record_bytes};
use headstart_store::{
    Arena, Backend, Command, CommandOutcome, Draft, Record, Report, Slot, Ticket,
};

use crate::faults::Faults;
use crate::support::{self, Driver, options};

/// Commands given and answers taken, without any waiting in between.
struct Raw {
    disk: Disk,
    found: Vec<ResidentRecord>,
    arena: Arc<Arena>,
    next: u64,
    waiting: BTreeMap<Ticket, Asked>,
    answers: BTreeMap<Ticket, CommandOutcome>,
    conditions: Vec<Condition>,
    /// Names that can be read as far as was told, with their sizes.
    stored: BTreeSet<u64>,
    /// The last command that removes a name: what was put before it does not count.
    removed: BTreeMap<u64, Ticket>,
    lost: Vec<(u64, LossReason)>,
    num_found: usize,
}

#[derive(Clone, Debug)]
enum Asked {
    Put(u64),
    Get(u64),
    Remove,
    Purge,
}

fn hash(name: u64) -> BlockHash {
    BlockHash::from_u64(name)
}

fn number_of(name: BlockHash) -> u64 {
    u128::from_be_bytes(name.0) as u64
}

/// A record whose bytes follow from its name.
fn record(slot: Slot, name: u64, tenant: u64, expires_s: Option<u64>, bytes: usize) -> Record {
    let meta = Meta {
        name: hash(name),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(tenant),
        tokens: 16,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s,
    };
    let mut draft = Draft::new(slot, meta, &[bytes]).expect("it fits");
    for (index, piece) in draft.part_mut(0).chunks_mut(8).enumerate() {
        let word = (name << 24 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
    draft.seal()
}

fn is_right(record: &Record, name: u64) -> bool {
    let mut pieces = record.part(0).chunks(8).enumerate();
    record.meta().name == hash(name)
        && pieces.all(|(index, piece)| {
            let word = (name << 24 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            piece == &word.to_le_bytes()[..piece.len()]
        })
}

const SLOT: usize = 128 << 10;

impl Raw {
    fn open(options: DiskOptions) -> Self {
        let (disk, found) = Disk::open(options, support::no_waker()).expect("it opens");
        Self::over(disk, found)
    }

    fn open_faulty(options: DiskOptions, faults: &Faults) -> Self {
        let (disk, found) = support::open_faulty(options, faults, support::no_waker());
        Self::over(disk, found)
    }

    fn over(disk: Disk, found: Vec<ResidentRecord>) -> Self {
        Self {
            disk,
            stored: found.iter().map(|found| number_of(found.name)).collect(),
            found,
            arena: Arena::new(SLOT, 4000).expect("memory"),
            next: 0,
            waiting: BTreeMap::new(),
            answers: BTreeMap::new(),
            conditions: Vec::new(),
            removed: BTreeMap::new(),
            lost: Vec::new(),
            num_found: 0,
        }
    }

    fn give(&mut self, asked: Asked, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.waiting.insert(ticket, asked);
        let mut command = command(ticket);
        let started = Instant::now();
        while let Err(back) = self.disk.submit(command) {
            command = back;
            assert!(started.elapsed() < Duration::from_secs(20), "it takes nothing any more");
            self.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
        ticket
    }

    fn slot(&mut self) -> Slot {
        let started = Instant::now();
        loop {
            if let Some(slot) = self.arena.take() {
                return slot;
            }
            assert!(started.elapsed() < Duration::from_secs(40), "no slot comes back");
            self.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn put_as(&mut self, name: u64, tenant: u64, expires_s: Option<u64>, bytes: usize) -> Ticket {
        let record = record(self.slot(), name, tenant, expires_s, bytes);
        self.give(Asked::Put(name), |ticket| Command::Put { ticket, record })
    }

    fn put(&mut self, name: u64, tenant: u64) -> Ticket {
        self.put_as(name, tenant, None, 3_000)
    }

    fn get(&mut self, name: u64) -> Ticket {
        let slot = self.slot();
        let of = hash(name);
        self.give(Asked::Get(name), |ticket| Command::Get { ticket, name: of, slot })
    }

    fn remove(&mut self, name: u64) -> Ticket {
        let names = vec![hash(name)];
        let ticket = self.give(Asked::Remove, |ticket| Command::Remove { ticket, names });
        self.stored.remove(&name);
        self.removed.insert(name, ticket);
        ticket
    }

    fn purge(&mut self, tenant: u64) -> Ticket {
        let tenant = TenantTag(tenant);
        self.give(Asked::Purge, |ticket| Command::Purge { ticket, tenant })
    }

    /// Notes a stored record, unless it was removed after the put.
    fn note_stored(&mut self, name: u64, ticket: Ticket) {
        let removed = self.removed.get(&name);
        if removed.is_none_or(|&removed| removed < ticket) {
            self.stored.insert(name);
        }
    }

    fn poll(&mut self) {
        let mut reports = Vec::new();
        self.disk.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => {
                    let asked = self.waiting.remove(&ticket).expect("answered once");
                    match (&asked, &outcome) {
                        (Asked::Put(name), CommandOutcome::Stored) => {
                            self.note_stored(*name, ticket);
                        }
                        (Asked::Get(name), CommandOutcome::Loaded(record)) => {
                            assert!(is_right(record, *name), "{name} is wrong");
                        }
                        _ => {}
                    }
                    self.answers.insert(ticket, outcome);
                }
                Report::Lost { names, loss } => {
                    for name in names {
                        self.stored.remove(&number_of(name));
                        self.lost.push((number_of(name), loss));
                    }
                }
                Report::Found(found) => {
                    self.num_found += 1;
                    for found in found {
                        self.stored.insert(number_of(found.name));
                    }
                }
                Report::Condition(condition) => self.conditions.push(condition),
            }
        }
    }

    fn answer(&mut self, ticket: Ticket) -> CommandOutcome {
        let started = Instant::now();
        loop {
            if let Some(outcome) = self.answers.remove(&ticket) {
                return outcome;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{ticket:?}: no answer");
            self.poll();
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn store(&mut self, name: u64, tenant: u64) -> CommandOutcome {
        let ticket = self.put(name, tenant);
        self.answer(ticket)
    }

    fn must_store(&mut self, name: u64, tenant: u64) {
        let outcome = self.store(name, tenant);
        assert!(matches!(outcome, CommandOutcome::Stored), "{name}: {outcome:?}");
    }

    fn loads(&mut self, name: u64) -> bool {
        let ticket = self.get(name);
        matches!(self.answer(ticket), CommandOutcome::Loaded(_))
    }

    fn must_purge(&mut self, tenant: u64) {
        let ticket = self.purge(tenant);
        let outcome = self.answer(ticket);
        assert!(matches!(outcome, CommandOutcome::Removed(_)), "purge: {outcome:?}");
    }

    fn quiet(&mut self) {
        let started = Instant::now();
        while !self.waiting.is_empty() {
            let waiting = self.waiting.len();
            assert!(started.elapsed() < Duration::from_secs(20), "{waiting} are not answered");
            self.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
        self.answers.clear();
    }

    fn has_found(&self, name: u64) -> bool {
        self.found.iter().any(|found| found.name == hash(name))
    }
}

/// Runs `work` on a thread; whether it came to an end in time.
fn ends(limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let _ = sender.send(());
    });
    ended.recv_timeout(limit).is_ok()
}

/// Whether a thread that runs `work` does not panic.
fn no_panic(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::spawn(work).join().is_ok()
}
