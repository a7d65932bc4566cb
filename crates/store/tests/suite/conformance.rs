//! Conformance checks for any backend, on seeded random commands. Run them on yours.
//!
//! One rule above all: what is loaded is what was put under that name, to the byte. Beside it: each
//! command is answered once; what was stored and neither removed, purged nor reported as lost is
//! there; what was removed is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};

use headstart_store::arena::{Arena, Slot};
use headstart_store::backend::{Backend, Command, CommandOutcome, Report, Ticket};
use headstart_store::record::{Content, Draft, Exactness, Meta, Record};

/// Time that a backend may take to answer before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A trial of one backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Fixes all that is drawn.
    pub(crate) seed: u64,
    /// Commands to give.
    pub(crate) commands: usize,
    /// Names in use: fewer means that more of them meet again.
    pub(crate) names: u64,
    /// Largest part, bytes; records have up to four.
    pub(crate) part_bytes: usize,
}

/// The record called `name`: all of it follows from the name, so that anybody can say whether what
/// was loaded is right.
///
/// # Panics
/// When the slot is too small.
#[must_use]
pub(crate) fn record_of(name: u64, part_bytes: usize, slot: Slot) -> Record {
    let mut rng = Rng::new(name ^ 0x5eed);
    let parts: Vec<usize> = (0..=rng.below(4)).map(|_| rng.below(part_bytes + 1)).collect();
    let meta = Meta {
        name: BlockHash::from_u64(name),
        parent: (name > 0).then(|| BlockHash::from_u64(name - 1)),
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(name % 5),
        tokens: 16,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s: None,
    };
    let mut draft = Draft::new(slot, meta, &parts).expect("the slot has room");
    for part in 0..parts.len() {
        for piece in draft.part_mut(part).chunks_mut(8) {
            let bytes = rng.next_u64().to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }
    draft.seal()
}

/// Bytes that a slot needs for any record of a trial.
#[must_use]
pub(crate) fn slot_bytes(part_bytes: usize) -> usize {
    headstart_store::record::record_bytes(&[part_bytes; 4])
}

/// Gives random commands to `backend` and compares its answers with what it was given.
///
/// # Panics
/// When it breaks a rule, with the seed and the command's number.
pub(crate) fn check(backend: &mut dyn Backend, trial: Trial) {
    run(backend, trial, FaultExpectation::None);
}

/// The same for a backend of which puts and gets may fail. Everything else holds: what is loaded
/// is right, each command is answered once, and what is not there was reported as lost.
///
/// # Panics
/// When it breaks a rule, with the seed and the command's number.
pub(crate) fn check_faulty(backend: &mut dyn Backend, trial: Trial) {
    run(backend, trial, FaultExpectation::Expected);
}

/// Whether commands may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultExpectation {
    None,
    Expected,
}

fn run(backend: &mut dyn Backend, trial: Trial, faults: FaultExpectation) {
    let arena = Arena::new(slot_bytes(trial.part_bytes), 48).expect("memory");
    let mut run = ConformanceRun {
        backend,
        trial,
        faults,
        arena,
        waiting: BTreeMap::new(),
        stored: BTreeSet::new(),
        unsure: BTreeSet::new(),
        reports: Vec::new(),
    };
    let mut rng = Rng::new(trial.seed);
    for number in 0..trial.commands as u64 {
        let name = rng.below(trial.names as usize) as u64;
        match rng.below(100) {
            0..45 => run.put(number, name),
            45..75 => run.get(number, name, None),
            75..90 => run.get(number, name, Some(rng.below(6) as u16)),
            90..99 => run.remove(number, name),
            _ => run.purge(number, TenantTag(name % 5)),
        }
        if rng.below(4) == 0 {
            run.poll(number);
        }
    }
    run.finish();
    assert_eq!(run.arena.free(), run.arena.num_slots(), "every slot came back");
}

/// A command that was not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnansweredCommand {
    Put(u64),
    Get {
        name: u64,
        /// `None`: all of it.
        part: Option<u16>,
        /// It was stored when it was asked for, and not lost since.
        is_stored: bool,
        /// It may have been there when it was asked for.
        is_known: bool,
    },
    Remove,
    Purge,
}

struct ConformanceRun<'a> {
    backend: &'a mut dyn Backend,
    trial: Trial,
    faults: FaultExpectation,
    arena: Arc<Arena>,
    waiting: BTreeMap<Ticket, UnansweredCommand>,
    /// Must be there.
    stored: BTreeSet<u64>,
    /// May be there or not: a command on it was under way while another was given.
    unsure: BTreeSet<u64>,
    reports: Vec<Report>,
}

impl ConformanceRun<'_> {
    fn put(&mut self, number: u64, name: u64) {
        let slot = self.slot(number);
        let record = record_of(name, self.trial.part_bytes, slot);
        self.busy(name);
        let ticket = Ticket(number);
        self.give(number, Command::Put { ticket, record }, UnansweredCommand::Put(name));
    }

    /// Asks for a record, or for one part of it.
    fn get(&mut self, number: u64, name: u64, part: Option<u16>) {
        let slot = self.slot(number);
        let (ticket, hash) = (Ticket(number), BlockHash::from_u64(name));
        let command = match part {
            None => Command::Get { ticket, name: hash, slot },
            Some(part) => Command::GetPart { ticket, name: hash, part, slot },
        };
        let asked = UnansweredCommand::Get {
            name,
            part,
            is_stored: self.stored.contains(&name),
            is_known: self.is_known(name),
        };
        self.give(number, command, asked);
    }

    fn remove(&mut self, number: u64, name: u64) {
        // With nothing else under way, it is certain afterwards that the name is gone.
        self.quiet(number);
        let names = vec![BlockHash::from_u64(name)];
        let ticket = Ticket(number);
        self.give(number, Command::Remove { ticket, names }, UnansweredCommand::Remove);
        self.quiet(number);
        self.stored.remove(&name);
        self.unsure.remove(&name);
    }

    fn purge(&mut self, number: u64, tenant: TenantTag) {
        self.quiet(number);
        let ticket = Ticket(number);
        self.give(number, Command::Purge { ticket, tenant }, UnansweredCommand::Purge);
        self.quiet(number);
        let is_theirs = |name: &u64| TenantTag(name % 5) == tenant;
        self.stored.retain(|name| !is_theirs(name));
        self.unsure.retain(|name| !is_theirs(name));
    }

    /// A put of `name` is under way.
    fn busy(&mut self, name: u64) {
        if !self.stored.contains(&name) {
            self.unsure.insert(name);
        }
    }

    fn give(&mut self, number: u64, mut command: Command, asked: UnansweredCommand) {
        let started = Instant::now();
        self.waiting.insert(command.ticket(), asked);
        while let Err(back) = self.backend.submit(command) {
            command = back;
            self.pause(number, started);
        }
    }

    /// A free slot; answers are taken until there is one.
    fn slot(&mut self, number: u64) -> Slot {
        let started = Instant::now();
        loop {
            if let Some(slot) = self.arena.take() {
                return slot;
            }
            self.pause(number, started);
        }
    }

    /// Takes answers until nothing is under way.
    fn quiet(&mut self, number: u64) {
        let started = Instant::now();
        while !self.waiting.is_empty() {
            self.pause(number, started);
        }
    }

    fn pause(&mut self, number: u64, started: Instant) {
        let late = started.elapsed() > PATIENCE;
        let Self { trial, waiting, .. } = self;
        assert!(!late, "{trial:?}, command {number}: no answer for {waiting:?}");
        self.poll(number);
        std::thread::sleep(Duration::from_micros(50));
    }

    fn poll(&mut self, number: u64) {
        let mut reports = std::mem::take(&mut self.reports);
        self.backend.poll(&mut reports);
        for report in reports.drain(..) {
            match report {
                Report::Done { ticket, outcome } => self.done(number, ticket, outcome),
                Report::Lost { names, .. } => names.iter().for_each(|name| self.lost(*name)),
                Report::Found(_) | Report::Condition(_) => {}
            }
        }
        self.reports = reports;
    }

    fn is_known(&self, name: u64) -> bool {
        self.stored.contains(&name) || self.unsure.contains(&name)
    }

    fn lost(&mut self, lost: BlockHash) {
        let is_it = |name: u64| BlockHash::from_u64(name) == lost;
        self.stored.retain(|&name| !is_it(name));
        for asked in self.waiting.values_mut() {
            if let UnansweredCommand::Get { name, is_stored, .. } = asked
                && is_it(*name)
            {
                *is_stored = false;
            }
        }
    }

    fn done(&mut self, number: u64, ticket: Ticket, outcome: CommandOutcome) {
        let trial = self.trial;
        let asked = self.waiting.remove(&ticket);
        let asked = asked.unwrap_or_else(|| panic!("{trial:?}: {ticket:?} is answered twice"));
        match (asked, outcome) {
            (UnansweredCommand::Put(name), CommandOutcome::Stored) => {
                self.unsure.remove(&name);
                self.stored.insert(name);
            }
            (
                UnansweredCommand::Get { name, is_known, .. },
                outcome @ (CommandOutcome::Loaded(_) | CommandOutcome::Part(_)),
            ) => {
                // It may have been stored while the get was under way.
                let is_known = is_known || self.is_known(name);
                assert!(is_known, "{trial:?}, command {number}: {name} was removed");
                self.must_be(number, asked, outcome);
            }
            (UnansweredCommand::Get { name, part, is_stored, .. }, CommandOutcome::Missing) => {
                let has_it =
                    part.is_none_or(|part| usize::from(part) < self.right(name).num_parts());
                let is_wrong = is_stored && has_it;
                assert!(!is_wrong, "{trial:?}, command {number}: {name} is missing");
            }
            (
                UnansweredCommand::Put(_) | UnansweredCommand::Get { .. },
                CommandOutcome::Failed(_),
            ) if self.faults == FaultExpectation::Expected => {}
            (UnansweredCommand::Remove | UnansweredCommand::Purge, CommandOutcome::Removed(_)) => {}
            (asked, outcome) => panic!("{trial:?}: {asked:?} was answered by {outcome:?}"),
        }
    }

    /// The record of that name.
    fn right(&self, name: u64) -> Record {
        let Trial { part_bytes, .. } = self.trial;
        let room = Arena::new(slot_bytes(part_bytes), 1).expect("memory");
        record_of(name, part_bytes, room.take().expect("a slot"))
    }

    fn must_be(&self, number: u64, asked: UnansweredCommand, outcome: CommandOutcome) {
        let UnansweredCommand::Get { name, part, .. } = asked else {
            unreachable!("what is read was asked for")
        };
        let right = self.right(name);
        let is_right = match (part, outcome) {
            (None, CommandOutcome::Loaded(record)) => {
                let parts = (0..record.num_parts()).map(|part| record.part(part));
                parts.eq((0..right.num_parts()).map(|part| right.part(part)))
            }
            (Some(part), CommandOutcome::Part(read)) => {
                let index = usize::from(part);
                let is_it = read.part() == part && read.meta() == right.meta();
                is_it && index < right.num_parts() && read.bytes() == right.part(index)
            }
            _ => false,
        };
        let trial = self.trial;
        assert!(is_right, "{trial:?}, command {number}: {name} is wrong");
    }

    /// Everything that must be there is asked for, one by one.
    fn finish(&mut self) {
        let number = self.trial.commands as u64;
        self.quiet(number);
        let names: Vec<u64> = self.stored.iter().copied().collect();
        for (index, name) in names.into_iter().enumerate() {
            self.get(number + index as u64, name, None);
            self.quiet(number);
        }
    }
}
