//! A backend that goes wrong on purpose, from a seed: for tests of what stands above it.
//!
//! What it does is what places do: commands fail, answers come late, records that were stored are
//! lost, and bits flip where they are kept. A flipped bit is flipped in the bytes that were read,
//! and then verified as ever, so that it is the checksum that finds it.

use std::collections::{BTreeSet, HashMap};

use headstart_core::{BlockHash, Rng};

use crate::backend::{
    Backend, Command, CommandOutcome, Failure, LossReason, Report, Ticket, Waker,
};
use crate::record::{PartBytes, Record};

/// Most polls by which an answer comes late.
const LATEST: usize = 8;

/// Shares of commands or records that fail, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FaultShares {
    /// Fixes what goes wrong.
    pub(crate) seed: u64,
    /// Puts that fail; nothing is stored.
    pub(crate) failed_puts: f64,
    /// Gets that fail; the record stays.
    pub(crate) failed_gets: f64,
    /// Answers that come late, by up to eight polls.
    pub(crate) late: f64,
    /// Records that are lost after they were stored.
    pub(crate) lost: f64,
    /// Records in which a bit flips after they were stored.
    pub(crate) damaged: f64,
}

/// Counts of injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InjectedFaults {
    /// Commands that failed.
    pub(crate) failed: u64,
    /// Answers that came late.
    pub(crate) late: u64,
    /// Records that were lost.
    pub(crate) lost: u64,
    /// Flipped bits that were read, and found.
    pub(crate) found: u64,
    /// Flipped bits that were read but lie outside the checked bytes.
    pub(crate) harmless: u64,
}

/// A faulty backend.
pub(crate) struct Faulty {
    inner: Box<dyn Backend>,
    shares: FaultShares,
    rng: Rng,
    waker: Waker,
    asked: HashMap<Ticket, CommandSubject>,
    late: Vec<DelayedReports>,
    /// Not there any more, though the place below has them.
    gone: BTreeSet<BlockHash>,
    damaged: BTreeSet<BlockHash>,
    injected: InjectedFaults,
}

/// Reports that wait.
struct DelayedReports {
    /// Polls until they are handed on.
    polls: usize,
    order: ReportOrdering,
    told: Vec<Report>,
}

/// Whether reports may change places with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportOrdering {
    /// They say nothing of what is there.
    Any,
    /// They do.
    Kept,
}

/// Subject of a command.
#[derive(Clone, Copy, Debug)]
enum CommandSubject {
    Put(BlockHash),
    Get(BlockHash),
    Other,
}

impl Faulty {
    /// `inner`, made faulty. `waker`, which is also `inner`'s, is called while answers are late.
    #[must_use]
    pub(crate) fn new(inner: Box<dyn Backend>, shares: FaultShares, waker: Waker) -> Self {
        Self {
            inner,
            shares,
            rng: Rng::new(shares.seed),
            waker,
            asked: HashMap::new(),
            late: Vec::new(),
            gone: BTreeSet::new(),
            damaged: BTreeSet::new(),
            injected: InjectedFaults::default(),
        }
    }

    /// Returns the counts of injected faults.
    #[must_use]
    pub(crate) fn injected(&self) -> InjectedFaults {
        self.injected
    }

    fn draws(&mut self, share: f64) -> bool {
        self.rng.next_f64() < share
    }

    /// Returns the outcome of a command that is not passed on, or `None`.
    fn refused(&mut self, command: &Command) -> Option<CommandOutcome> {
        let fails = match command {
            Command::Put { .. } => self.draws(self.shares.failed_puts),
            Command::Get { name, .. } | Command::GetPart { name, .. }
                if self.gone.contains(name) =>
            {
                return Some(CommandOutcome::Missing);
            }
            Command::Get { .. } | Command::GetPart { .. } => self.draws(self.shares.failed_gets),
            Command::Remove { .. } | Command::Purge { .. } => false,
        };
        self.injected.failed += u64::from(fails);
        fails.then_some(CommandOutcome::Failed(Failure::Io))
    }

    /// Returns the reports in place of an answer: damaged or lost where a fault is drawn.
    fn told(&mut self, ticket: Ticket, outcome: CommandOutcome) -> Vec<Report> {
        let about = self.asked.remove(&ticket).unwrap_or(CommandSubject::Other);
        let (outcome, lost) = match (about, outcome) {
            (CommandSubject::Put(name), CommandOutcome::Stored) => {
                (CommandOutcome::Stored, self.stored(name))
            }
            (CommandSubject::Get(name), CommandOutcome::Loaded(record))
                if self.damaged.contains(&name) =>
            {
                self.flipped(name, record)
            }
            (CommandSubject::Get(name), CommandOutcome::Part(part))
                if self.damaged.contains(&name) =>
            {
                self.flipped_part(name, part)
            }
            (_, outcome) => (outcome, None),
        };
        let done = Report::Done { ticket, outcome };
        std::iter::once(done).chain(lost).collect()
    }

    fn stored(&mut self, name: BlockHash) -> Option<Report> {
        // A record that was stored again is a new and whole copy.
        self.gone.remove(&name);
        self.damaged.remove(&name);
        if self.draws(self.shares.lost) {
            self.injected.lost += 1;
            self.gone.insert(name);
            return Some(lost(name, LossReason::Evicted));
        }
        if self.draws(self.shares.damaged) {
            self.damaged.insert(name);
        }
        None
    }

    /// A record of which a bit has flipped.
    fn flipped(&mut self, name: BlockHash, record: Record) -> (CommandOutcome, Option<Report>) {
        let at = self.rng.below(record.bytes().len());
        // A clone that is in use must not change.
        let mut slot = match record.into_slot() {
            Ok(slot) => slot,
            Err(record) => return (CommandOutcome::Loaded(record), None),
        };
        slot[at] ^= 1 << self.rng.below(8);
        match Record::verify(slot, name) {
            Ok(record) => {
                self.injected.harmless += 1;
                (CommandOutcome::Loaded(record), None)
            }
            Err(_) => self.found(name),
        }
    }

    /// A part of a record in which a bit has flipped: just there.
    fn flipped_part(
        &mut self,
        name: BlockHash,
        part: PartBytes,
    ) -> (CommandOutcome, Option<Report>) {
        let bit = self.rng.below(part.bytes().len().max(1) * 8);
        match part.with_flipped(bit) {
            Ok(part) => {
                self.injected.harmless += 1;
                (CommandOutcome::Part(part), None)
            }
            Err(_) => self.found(name),
        }
    }

    /// A flipped bit was found: the record is gone.
    fn found(&mut self, name: BlockHash) -> (CommandOutcome, Option<Report>) {
        self.injected.found += 1;
        self.damaged.remove(&name);
        self.gone.insert(name);
        let outcome = CommandOutcome::Failed(Failure::Corrupt);
        (outcome, Some(lost(name, LossReason::Corrupt)))
    }

    /// Hands reports on, now or later, but never those that say what is there before others that
    /// did so sooner.
    fn tell(&mut self, told: Vec<Report>, order: ReportOrdering) {
        let late = self.draws(self.shares.late);
        self.injected.late += u64::from(late);
        let polls = if late { 1 + self.rng.below(LATEST) } else { 0 };
        let polls = match order {
            ReportOrdering::Any => polls,
            ReportOrdering::Kept => polls.max(self.latest()),
        };
        self.late.push(DelayedReports { polls, order, told });
    }

    /// Polls until all that says what is there was told.
    fn latest(&self) -> usize {
        let kept = self.late.iter().filter(|late| late.order == ReportOrdering::Kept);
        kept.map(|late| late.polls).max().unwrap_or(0)
    }
}

fn lost(name: BlockHash, loss: LossReason) -> Report {
    let names = vec![name];
    Report::Lost { names, loss }
}

impl Backend for Faulty {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        let ticket = command.ticket();
        if let Some(outcome) = self.refused(&command) {
            let done = Report::Done { ticket, outcome };
            self.tell(vec![done], ReportOrdering::Kept);
            (self.waker)();
            return Ok(());
        }
        let about = match &command {
            Command::Put { record, .. } => CommandSubject::Put(record.meta().name),
            Command::Get { name, .. } | Command::GetPart { name, .. } => CommandSubject::Get(*name),
            Command::Remove { .. } | Command::Purge { .. } => CommandSubject::Other,
        };
        self.inner.submit(command)?;
        self.asked.insert(ticket, about);
        Ok(())
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let mut new = Vec::new();
        self.inner.poll(&mut new);
        for report in new {
            match report {
                Report::Done { ticket, outcome } => {
                    let is_loaded =
                        matches!(outcome, CommandOutcome::Loaded(_) | CommandOutcome::Part(_));
                    let told = self.told(ticket, outcome);
                    let order = if is_loaded && told.len() == 1 {
                        ReportOrdering::Any
                    } else {
                        ReportOrdering::Kept
                    };
                    self.tell(told, order);
                }
                other => {
                    let (polls, order) = (self.latest(), ReportOrdering::Kept);
                    let told = vec![other];
                    self.late.push(DelayedReports { polls, order, told });
                }
            }
        }
        let late = std::mem::take(&mut self.late).into_iter();
        // Taken out before the counts go down, so that none goes below zero.
        let (due, late): (Vec<_>, Vec<_>) = late.partition(|late| late.polls == 0);
        self.late = late;
        self.late.iter_mut().for_each(|late| late.polls -= 1);
        reports.extend(due.into_iter().flat_map(|late| late.told));
        // Late answers need further polls, so the caller is woken for them.
        if !self.late.is_empty() {
            (self.waker)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::no_waker;
    use crate::conformance::{Trial, check, check_faulty};
    use crate::reference::Map;

    const TRIAL: Trial = Trial { seed: 5, commands: 3_000, names: 60, part_bytes: 3_000 };

    #[test]
    fn without_faults_it_conforms() {
        let map = Box::new(Map::default());
        let mut faulty = Faulty::new(map, FaultShares::default(), no_waker());
        check(&mut faulty, TRIAL);
        assert_eq!(faulty.injected(), InjectedFaults::default());
    }

    /// Whatever goes wrong: nothing wrong is loaded, everything is answered once, no slot stays
    /// away, and what is not there any more was said to be lost.
    #[test]
    fn faults_are_misses_and_nothing_worse() {
        for seed in 0..4 {
            let shares = FaultShares {
                seed,
                failed_puts: 0.1,
                failed_gets: 0.1,
                late: 0.3,
                lost: 0.1,
                damaged: 0.2,
            };
            let mut faulty = Faulty::new(Box::new(Map::default()), shares, no_waker());
            check_faulty(&mut faulty, Trial { seed, ..TRIAL });
            let injected = faulty.injected();
            let InjectedFaults { failed, late, lost, found, .. } = injected;
            let is_enough = failed > 100 && late > 300 && lost > 50 && found > 50;
            assert!(is_enough, "{injected:?}");
        }
    }
}
