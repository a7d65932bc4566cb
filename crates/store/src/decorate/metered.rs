//! A backend that is measured: what was asked of it, what became of that, and how long it took.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Kind;
use crate::backend::{Backend, Command, CommandOutcome, Report, Ticket};

/// Classes of latencies; the last one begins at half an hour.
const CLASSES: usize = 32;

/// A measured backend.
pub struct MeteredBackend {
    inner: Box<dyn Backend>,
    asked: HashMap<Ticket, TimedCommand>,
    meter: Arc<Meter>,
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
struct TimedCommand {
    kind: Kind,
    at: Instant,
    bytes: u64,
}

/// Shared measurements, readable from any thread.
#[derive(Debug, Default)]
pub struct Meter(Mutex<MeterCounts>);

/// Measurements by kind of command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterCounts {
    /// Puts.
    pub puts: KindCounts,
    /// Gets.
    pub gets: KindCounts,
    /// Gets of parts.
    pub parts: KindCounts,
    /// Removes.
    pub removes: KindCounts,
    /// Purges.
    pub purges: KindCounts,
    /// Records that were reported as lost.
    pub lost_records: u64,
}

/// Measurements of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Commands that were taken.
    pub asked: u64,
    /// Commands that succeeded.
    pub done: u64,
    /// Commands that found nothing.
    pub missing: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Bytes of records that were stored or loaded, as they are stored; of parts, their own.
    pub bytes: u64,
    /// From asking to reporting, those that were done; summed.
    pub took: Duration,
    /// The same by length: class 0 is below a microsecond, class `n` from 2^(n-1) to 2^n of them.
    classes: [u64; CLASSES],
}

impl KindCounts {
    /// Returns the number of commands not answered yet.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        // Each answered command was counted as asked before.
        self.asked - self.done - self.missing - self.failed
    }

    /// Returns the mean duration of a done command; zero if there was none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        // A `Duration` can be divided by a `u32` only. For larger counts rounding does no harm.
        match u32::try_from(self.done) {
            Ok(0) => Duration::ZERO,
            Ok(done) => self.took / done,
            Err(_) => Duration::from_secs_f64(self.took.as_secs_f64() / self.done as f64),
        }
    }

    /// Returns an upper bound of the `share` quantile of the durations, at most twice the
    /// quantile: the end of its class.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (share.clamp(0.0, 1.0) * self.done as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, &count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(1 << class);
            }
        }
        Duration::ZERO
    }

    fn note(&mut self, outcome: &CommandOutcome, took: Duration, bytes: u64) {
        match outcome {
            CommandOutcome::Stored
            | CommandOutcome::Loaded(_)
            | CommandOutcome::Part(_)
            | CommandOutcome::Removed(_) => {
                self.done += 1;
                self.bytes += match outcome {
                    CommandOutcome::Loaded(record) => record.bytes().len() as u64,
                    CommandOutcome::Part(part) => part.bytes().len() as u64,
                    _ => bytes,
                };
                self.took += took;
                self.classes[class_of(took)] += 1;
            }
            CommandOutcome::Missing => self.missing += 1,
            CommandOutcome::Failed(_) => self.failed += 1,
        }
    }
}

fn class_of(took: Duration) -> usize {
    let micros = took.as_micros();
    let bits = u128::BITS - micros.leading_zeros();
    (bits as usize).min(CLASSES - 1)
}

impl MeterCounts {
    fn of(&mut self, kind: Kind) -> &mut KindCounts {
        match kind {
            Kind::Put => &mut self.puts,
            Kind::Get => &mut self.gets,
            Kind::GetPart => &mut self.parts,
            Kind::Remove => &mut self.removes,
            Kind::Purge => &mut self.purges,
        }
    }
}

impl Meter {
    /// Returns the measurements so far.
    #[must_use]
    pub fn counts(&self) -> MeterCounts {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, MeterCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeteredBackend {
    /// `inner`, measured. Times are those at which it is polled.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>) -> Self {
        Self { inner, asked: HashMap::new(), meter: Arc::default() }
    }

    /// Returns the shared measurements.
    #[must_use]
    pub fn meter(&self) -> Arc<Meter> {
        self.meter.clone()
    }
}

impl Backend for MeteredBackend {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        let (ticket, kind) = (command.ticket(), Kind::of(&command));
        let bytes = match &command {
            Command::Put { record, .. } => record.bytes().len() as u64,
            _ => 0,
        };
        // Before the call, because a backend may finish the command within it.
        let at = Instant::now();
        self.inner.submit(command)?;
        self.asked.insert(ticket, TimedCommand { kind, at, bytes });
        self.meter.lock().of(kind).asked += 1;
        Ok(())
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let first = reports.len();
        self.inner.poll(reports);
        // Most polls bring nothing and need no lock.
        if reports.len() == first {
            return;
        }
        let mut counts = self.meter.lock();
        for report in &reports[first..] {
            match report {
                Report::Done { ticket, outcome } => {
                    if let Some(TimedCommand { kind, at, bytes }) = self.asked.remove(ticket) {
                        counts.of(kind).note(outcome, at.elapsed(), bytes);
                    }
                }
                Report::Lost { names, .. } => counts.lost_records += names.len() as u64,
                Report::Found(_) | Report::Condition(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{BlockHash, TenantTag};

    use super::*;
    use crate::arena::Arena;
    use crate::conformance::{Trial, check, record_of, slot_bytes};
    use crate::reference::Map;

    #[test]
    fn it_conforms_and_everything_is_answered() {
        let mut metered = MeteredBackend::new(Box::new(Map::default()));
        let meter = metered.meter();
        let trial = Trial { seed: 3, commands: 2_000, names: 60, part_bytes: 300 };
        check(&mut metered, trial);
        let counts = meter.counts();
        let kinds = [counts.puts, counts.gets, counts.parts, counts.removes, counts.purges];
        assert!(kinds.iter().all(|kind| kind.under_way() == 0));
        assert!(counts.puts.done > 800 && counts.puts.failed == 0);
        assert!(counts.gets.done > 300 && counts.gets.missing > 100);
        assert!(counts.removes.done > 100 && counts.purges.done > 5);
        assert!(kinds.iter().all(|kind| kind.quantile(0.5) <= kind.quantile(1.0)));
        assert!(counts.gets.mean() <= counts.gets.quantile(1.0));
    }

    #[test]
    fn bytes_and_outcomes_are_told_apart() {
        let mut metered = MeteredBackend::new(Box::new(Map::default()));
        let arena = Arena::new(slot_bytes(900), 4).expect("memory");
        let slot = || arena.take().expect("a slot");
        let record = record_of(4, 900, slot());
        let bytes = record.bytes().len() as u64;
        let part_bytes = record.part(0).len() as u64;
        let get = |ticket, name| Command::Get {
            ticket: Ticket(ticket),
            name: BlockHash::from_u64(name),
            slot: slot(),
        };
        let ticket = Ticket(1);
        let commands = [
            Command::Put { ticket, record },
            get(2, 4),
            get(3, 5),
            Command::GetPart {
                ticket: Ticket(5),
                name: BlockHash::from_u64(4),
                part: 0,
                slot: slot(),
            },
            Command::Purge { ticket: Ticket(4), tenant: TenantTag(4) },
        ];
        let meter = metered.meter();
        for command in commands {
            metered.submit(command).expect("it is taken");
        }
        assert_eq!(meter.counts().gets.under_way(), 2);
        metered.poll(&mut Vec::new());
        let MeterCounts { puts, gets, parts, purges, .. } = meter.counts();
        assert_eq!((puts.done, puts.bytes), (1, bytes));
        assert_eq!((gets.done, gets.missing, gets.bytes), (1, 1, bytes));
        assert_eq!((parts.done, parts.bytes), (1, part_bytes));
        assert_eq!((purges.done, gets.under_way()), (1, 0));
    }

    #[test]
    fn quantiles_are_the_ends_of_classes() {
        let mut kind = KindCounts::default();
        assert_eq!((kind.quantile(0.5), kind.mean()), Default::default());
        for micros in [0, 1, 3, 900] {
            kind.note(&CommandOutcome::Stored, Duration::from_micros(micros), 0);
        }
        let micros = |share| kind.quantile(share).as_micros();
        assert_eq!([micros(0.25), micros(0.5), micros(0.75), micros(1.0)], [1, 2, 4, 1024]);
        assert_eq!(kind.mean(), Duration::from_micros(226));
        assert_eq!(class_of(Duration::MAX), CLASSES - 1);
    }
}
