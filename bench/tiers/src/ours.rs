//! Our tier: records through `Backend`, slots from an arena.
//!
//! Commands are handed over as long as fewer than a limit are under way; the thread sleeps where
//! there is nothing to do until the backend wakes it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use headstart_core::{BlockHash, IdentityDigest, TenantTag};
use headstart_store::backend::{Condition, Waker};
use headstart_store::disk::{Disk, DiskOptions};
use headstart_store::record::{Content, Exactness, record_bytes};
use headstart_store::{
    Arena, Backend, Command, Draft, Meta, CommandOutcome, Record, Report, Slot, Ticket,
};

use crate::options::Options;
use crate::payload::{PAGE, mix};
use crate::subject::{Check, Durable, Load, Opened, Reads, Subject};

/// Longest sleep: a waker that is never called costs time then, and nothing else.
const NAP: Duration = Duration::from_millis(10);

/// Longest time without any report while commands are under way.
const PATIENCE: Duration = Duration::from_secs(60);

/// Inputs for opening a tier.
struct Site<'a> {
    /// An empty folder for its files.
    dir: &'a Path,
    /// Bytes of all records that it will hold at once, with room to spare.
    capacity_bytes: u64,
    /// Reads under way at once.
    depth: usize,
    /// Wakes the thread that polls.
    waker: Waker,
}

/// Segments that the tier keeps beside what it holds, bytes.
const SPARE_BYTES: u64 = 6 * (64 << 20);

/// The tier that is measured, and its name in tables.
fn open_tier(site: Site<'_>) -> Result<(&'static str, Box<dyn Backend>)> {
    // It holds four fifths of what its segments have room for.
    let budget_bytes = site.capacity_bytes / 4 * 5 + SPARE_BYTES;
    let mut options = DiskOptions::new(site.dir, budget_bytes);
    options.depth = site.depth;
    let (disk, _) = Disk::open(options, site.waker)?;
    let name = match disk.io_name() {
        "io_uring" => "ours (io_uring)",
        _ => "ours (threads)",
    };
    Ok((name, Box::new(disk)))
}

/// Our tier, driven.
pub(crate) struct Ours {
    name: &'static str,
    backend: Box<dyn Backend>,
    arena: Arc<Arena>,
    load: Arc<Load>,
    /// Bytes of each part of a record.
    parts: Vec<usize>,
    /// Puts under way at once.
    window: usize,
    /// Reads under way at once.
    depth: usize,
    /// Commands under way.
    under_way: usize,
    /// Records that the tier lost.
    lost: usize,
    reports: Vec<Report>,
}

impl Ours {
    /// Opens it in an empty folder, with an arena that was written to before.
    pub(crate) fn open(options: &Options, dir: &Path, load: &Arc<Load>) -> Result<Opened> {
        let num_parts = options.parts.min(load.record_bytes / PAGE);
        let parts = split(load.record_bytes, num_parts);
        let stored_bytes = record_bytes(&parts);
        let window = (load.num_warm_up as usize).max(options.depth);
        let arena = Arena::new(stored_bytes, window + options.depth)?;
        let mut slots: Vec<Slot> = std::iter::from_fn(|| arena.take()).collect();
        slots.iter_mut().for_each(|slot| slot.fill(1));
        drop(slots);
        let poller = thread::current();
        let all_bytes = load.num_all() as usize * stored_bytes;
        let start = Instant::now();
        let (name, backend) = open_tier(Site {
            dir,
            capacity_bytes: (all_bytes + all_bytes / 4) as u64,
            depth: options.depth,
            waker: Arc::new(move || poller.unpark()),
        })?;
        let took = start.elapsed();
        let subject = Box::new(Self {
            name,
            backend,
            arena,
            load: load.clone(),
            parts,
            window,
            depth: options.depth,
            under_way: 0,
            lost: 0,
            reports: Vec::new(),
        });
        Ok(Opened { subject, took })
    }

    /// A sealed record, made from the payload.
    fn record(&mut self, number: u32, reads: &mut Tally) -> Result<Record> {
        let slot = self.slot(reads)?;
        let mut draft = Draft::new(slot, meta(number), &self.parts).context("it fits the slot")?;
        let mut at = 0;
        for part in 0..self.parts.len() {
            let bytes = draft.part_mut(part);
            self.load.payload.fill(number, at, bytes);
            at += bytes.len();
        }
        Ok(draft.seal())
    }

    /// A free slot; waits for one.
    fn slot(&mut self, tally: &mut Tally) -> Result<Slot> {
        loop {
            if let Some(slot) = self.arena.take() {
                return Ok(slot);
            }
            ensure!(self.under_way > 0, "{} keeps slots for itself", self.name);
            self.wait(tally)?;
        }
    }

    /// Hands over a command, as soon as it is taken.
    fn submit(&mut self, command: Command, tally: &mut Tally) -> Result<()> {
        let mut command = command;
        while let Err(refused) = self.backend.submit(command) {
            command = refused;
            self.wait(tally)?;
        }
        self.under_way += 1;
        self.poll(tally)?;
        Ok(())
    }

    /// Waits until something was reported.
    fn wait(&mut self, tally: &mut Tally) -> Result<()> {
        let start = Instant::now();
        while self.poll(tally)? == 0 {
            ensure!(start.elapsed() < PATIENCE, "{} reports nothing", self.name);
            thread::park_timeout(NAP);
        }
        Ok(())
    }

    /// Waits until fewer than `limit` commands are under way.
    fn wait_below(&mut self, limit: usize, tally: &mut Tally) -> Result<()> {
        while self.under_way >= limit {
            self.wait(tally)?;
        }
        Ok(())
    }

    /// Takes what was reported; how many reports there were.
    fn poll(&mut self, tally: &mut Tally) -> Result<usize> {
        self.backend.poll(&mut self.reports);
        let count = self.reports.len();
        for report in self.reports.drain(..) {
            match report {
                Report::Done { ticket, outcome } => {
                    self.under_way -= 1;
                    tally.note(&self.load, ticket, outcome)?;
                }
                Report::Lost { names, .. } => self.lost += names.len(),
                Report::Found(_) | Report::Condition(Condition::Well) => {}
                Report::Condition(condition) => bail!("{}: {condition:?}", self.name),
            }
        }
        Ok(count)
    }
}

impl Subject for Ours {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn fill(&mut self, records: Range<u32>) -> Result<()> {
        let mut tally = Tally::new(Check::Begin);
        for number in records {
            self.wait_below(self.window, &mut tally)?;
            let record = self.record(number, &mut tally)?;
            let ticket = Ticket(u64::from(number));
            self.submit(Command::Put { ticket, record }, &mut tally)?;
        }
        self.wait_below(1, &mut tally)
    }

    fn sync(&mut self) -> Result<Durable> {
        Ok(Durable::WithFill)
    }

    fn cool(&mut self) {}

    fn read(&mut self, order: &[u32], check: Check) -> Result<Reads> {
        let mut tally = Tally::new(check);
        for &number in order {
            self.wait_below(self.depth, &mut tally)?;
            let (ticket, name) = (Ticket(u64::from(number)), name_of(number));
            let slot = self.slot(&mut tally)?;
            self.submit(Command::Get { ticket, name, slot }, &mut tally)?;
        }
        self.wait_below(1, &mut tally)?;
        Ok(tally.reads)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.lost > 0 {
            eprintln!("{}: {} records were lost", self.name, self.lost);
        }
        Ok(())
    }
}

/// Results of reads so far, and the check that they undergo.
struct Tally {
    check: Check,
    reads: Reads,
}

impl Tally {
    fn new(check: Check) -> Self {
        let reads = Reads::default();
        Self { check, reads }
    }

    fn note(&mut self, load: &Load, ticket: Ticket, outcome: CommandOutcome) -> Result<()> {
        match outcome {
            CommandOutcome::Stored | CommandOutcome::Missing | CommandOutcome::Removed(_) => {}
            CommandOutcome::Failed(failure) => bail!("record {}: {failure}", ticket.0),
            CommandOutcome::Part(_) => bail!("record {}: a part of it only", ticket.0),
            CommandOutcome::Loaded(record) => {
                self.reads.found += 1;
                let is_right = is_right(load, self.check, ticket.0 as u32, &record);
                self.reads.wrong += usize::from(!is_right);
            }
        }
        Ok(())
    }
}

/// Whether all parts of `record` are what was put as `number`.
fn is_right(load: &Load, check: Check, number: u32, record: &Record) -> bool {
    let mut at = 0;
    let all = (0..record.num_parts()).all(|part| {
        let bytes = record.part(part);
        let is_right = load.is_right(check, number, at, bytes);
        at += bytes.len();
        is_right
    });
    all && at == load.record_bytes
}

/// `num_parts` parts, as equal as whole pages allow.
pub(crate) fn split(record_bytes: usize, num_parts: usize) -> Vec<usize> {
    let pages = record_bytes / PAGE;
    let start = |part: usize| pages * part / num_parts;
    let pages_of = |part: usize| start(part + 1) - start(part);
    (0..num_parts).map(|part| pages_of(part) * PAGE).collect()
}

/// Names look like hashes, which they are.
fn name_of(number: u32) -> BlockHash {
    let number = u64::from(number);
    let mut name = [0; 16];
    name[..8].copy_from_slice(&mix(number).to_be_bytes());
    name[8..].copy_from_slice(&number.to_be_bytes());
    BlockHash(name)
}

/// Returns the metadata of record number `number`.
pub(crate) fn meta(number: u32) -> Meta {
    Meta {
        name: name_of(number),
        parent: number.checked_sub(1).map(name_of),
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(1),
        tokens: 16,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

    use clap::Parser;
    use super::*;
    use crate::reference::Map;

    /// A map in a thread of its own, which takes few commands at once and answers late.
    struct Late {
        commands: SyncSender<Command>,
        reports: Receiver<Report>,
    }

    impl Late {
        fn start(waker: Waker) -> Self {
            let (commands, taken) = sync_channel(3);
            let (made, reports) = sync_channel(1024);
            thread::spawn(move || {
                let mut map = Map::default();
                for command in taken {
                    map.submit(command).expect("a map takes all");
                    let mut reports = Vec::new();
                    map.poll(&mut reports);
                    thread::sleep(Duration::from_micros(50));
                    for report in reports {
                        made.send(report).expect("somebody polls");
                    }
                    waker();
                }
            });
            Self { commands, reports }
        }
    }

    impl Backend for Late {
        fn submit(&mut self, command: Command) -> Result<(), Command> {
            let sent = self.commands.try_send(command);
            sent.map_err(|refused| match refused {
                TrySendError::Full(command) | TrySendError::Disconnected(command) => command,
            })
        }

        fn poll(&mut self, reports: &mut Vec<Report>) {
            reports.extend(self.reports.try_iter());
        }
    }

    #[test]
    fn a_backend_that_is_slow_and_refuses_gets_everything() {
        let arguments = [
            "tiers",
            "--dir",
            ".",
            "--size-mib",
            "4",
            "--window-mib",
            "1",
        ];
        let options = Options::parse_from(arguments);
        let load = Arc::new(Load::new(&options, 64, 0));
        let parts = split(load.record_bytes, 4);
        let arena = Arena::new(record_bytes(&parts), 10).expect("memory");
        let poller = thread::current();
        let mut ours = Ours {
            name: "late",
            backend: Box::new(Late::start(Arc::new(move || poller.unpark()))),
            arena,
            load: load.clone(),
            parts,
            window: 16,
            depth: 8,
            under_way: 0,
            lost: 0,
            reports: Vec::new(),
        };
        ours.fill(0..load.num_records).expect("it stores all");
        let reads = ours.read(&load.order, Check::Bytes).expect("it reads all");
        assert_eq!((reads.found, reads.wrong), (64, 0));
        let missing = ours
            .read(&[load.num_records], Check::Bytes)
            .expect("it answers");
        assert_eq!(missing.found, 0);
        // What the next round would put is something else.
        ours.load = Arc::new(Load::new(&options, 64, 1));
        let reads = ours.read(&load.order, Check::Begin).expect("it reads all");
        assert_eq!((reads.found, reads.wrong), (64, 64));
    }

    #[test]
    fn parts_are_whole_pages_and_all_of_them() {
        for (pages, num_parts) in [(16, 16), (16, 1), (17, 16), (256, 16), (5, 2)] {
            let parts = split(pages * PAGE, num_parts);
            assert_eq!(parts.len(), num_parts);
            assert_eq!(parts.iter().sum::<usize>(), pages * PAGE);
            assert!(
                parts
                    .iter()
                    .all(|&bytes| bytes > 0 && bytes.is_multiple_of(PAGE))
            );
        }
    }
}
