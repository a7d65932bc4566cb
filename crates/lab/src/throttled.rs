//! A backend that delays its reports as if its bytes came through a line of limited bandwidth
//! behind a latency, with one line for reads and one for writes.
//!
//! ```text
//! asked ──► waits for those before it ──► its bytes, at the rate ──► latency ──► reported
//! ```
//!
//! Of a part these are all that were read for it: whole pages, and the header before where it was
//! not known.
//!
//! The place below works at full speed meanwhile; its reports are withheld until they are due. A
//! place slower than its line is not slowed down further.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use headstart_core::Nanos;
use headstart_store::backend::{Backend, Command, CommandOutcome, Report, Ticket, Waker};
use headstart_store::line::{Alarm, Rate, ThroughputLine};

/// Commands at once; each may hold a slot, so that an arena is exhausted sooner.
const MOST_COMMANDS: usize = 4096;

/// Rates of a throttled backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ThrottleRates {
    /// Gets, also of parts.
    pub(crate) reads: Rate,
    /// Puts, and whatever else changes what is there.
    pub(crate) writes: Rate,
}

/// A slower backend.
pub(crate) struct ThrottledBackend {
    inner: Box<dyn Backend>,
    reads: ThroughputLine,
    writes: ThroughputLine,
    asked: HashMap<Ticket, ThrottledCommand>,
    /// When it is due, and what came before it.
    withheld: BTreeMap<(Nanos, u64), Report>,
    num_withheld: u64,
    began: Instant,
    alarm: Alarm,
    is_lifted: Arc<AtomicBool>,
}

/// A command under way below, or withheld.
#[derive(Clone, Copy, Debug)]
struct ThrottledCommand {
    kind: CommandKind,
    at: Nanos,
    /// Of what a put carries.
    bytes: usize,
}

/// Kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandKind {
    Get,
    GetPart,
    Change,
}

impl CommandKind {
    fn of(command: &Command) -> Self {
        match command {
            Command::Get { .. } => Self::Get,
            Command::GetPart { .. } => Self::GetPart,
            Command::Put { .. } | Command::Remove { .. } | Command::Purge { .. } => Self::Change,
        }
    }
}

impl ThrottledBackend {
    /// `inner`, no faster than `limits`. `waker`, which is also `inner`'s, is called when a report
    /// is due.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// When a rate is not above 0.
    pub(crate) fn new(
        inner: Box<dyn Backend>,
        limits: ThrottleRates,
        waker: Waker,
    ) -> std::io::Result<Self> {
        Ok(Self {
            inner,
            reads: ThroughputLine::new(limits.reads),
            writes: ThroughputLine::new(limits.writes),
            asked: HashMap::new(),
            withheld: BTreeMap::new(),
            num_withheld: 0,
            began: Instant::now(),
            alarm: Alarm::start(waker)?,
            is_lifted: Arc::default(),
        })
    }

    /// Returns a flag that lifts the limits; it may be set from any thread. Reports are then not
    /// withheld and use none of the line's bandwidth, for phases that are not measured.
    #[must_use]
    pub(crate) fn is_lifted(&self) -> Arc<AtomicBool> {
        self.is_lifted.clone()
    }

    fn now(&self) -> Nanos {
        Nanos::default() + self.began.elapsed()
    }

    fn withhold(&mut self, report: Report, now: Nanos) {
        let due = match &report {
            Report::Done { ticket, outcome } => self.done(*ticket, outcome, now),
            // Never before what was reported before it: what was lost was stored first.
            _ => match self.withheld.last_key_value() {
                Some(((last, _), _)) => now.max(*last),
                None => now,
            },
        };
        // The number keeps the order of reports that are due at the same time.
        self.num_withheld += 1;
        self.withheld.insert((due, self.num_withheld), report);
    }

    /// When the answer to a command is due.
    fn done(&mut self, ticket: Ticket, outcome: &CommandOutcome, now: Nanos) -> Nanos {
        let Some(asked) = self.asked.remove(&ticket) else {
            return now;
        };
        if self.is_lifted.load(Ordering::Relaxed) {
            return now;
        }
        match (asked.kind, outcome) {
            (CommandKind::Get, CommandOutcome::Loaded(record)) => {
                self.reads.due(asked.at, record.bytes().len())
            }
            (CommandKind::GetPart, CommandOutcome::Part(part)) => {
                self.reads.due(asked.at, part.read_bytes())
            }
            // An answer without bytes still waits for the line and for the latency.
            (CommandKind::Get | CommandKind::GetPart, _) => self.reads.due(asked.at, 0),
            (CommandKind::Change, _) => self.writes.due(asked.at, asked.bytes),
        }
    }
}

impl Backend for ThrottledBackend {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        // Withheld reports count as well: each may hold a slot.
        if self.asked.len() + self.withheld.len() >= MOST_COMMANDS {
            return Err(command);
        }
        let bytes = match &command {
            Command::Put { record, .. } => record.bytes().len(),
            _ => 0,
        };
        let asked = ThrottledCommand { kind: CommandKind::of(&command), at: self.now(), bytes };
        let ticket = command.ticket();
        self.inner.submit(command)?;
        self.asked.insert(ticket, asked);
        Ok(())
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let mut new = Vec::new();
        self.inner.poll(&mut new);
        let now = self.now();
        new.into_iter().for_each(|report| self.withhold(report, now));
        while let Some(first) = self.withheld.first_entry() {
            if first.key().0 > now {
                break;
            }
            let due = self.began + first.key().0.since(Nanos::default());
            reports.push(let_go(first.remove(), due));
        }
        let next = self.withheld.first_key_value();
        let next = next.map(|((due, _), _)| self.began + due.since(Nanos::default()));
        self.alarm.set(next);
    }
}

/// Stamps a report with the time when it was due.
fn let_go(report: Report, due: Instant) -> Report {
    match report {
        Report::Done { ticket, outcome: CommandOutcome::Loaded(record) } => {
            // The place below may be slower than the line.
            let since = due.max(record.since());
            let outcome = CommandOutcome::Loaded(record.with_since(since));
            Report::Done { ticket, outcome }
        }
        Report::Done { ticket, outcome: CommandOutcome::Part(part) } => {
            let since = due.max(part.since());
            let outcome = CommandOutcome::Part(part.with_since(since));
            Report::Done { ticket, outcome }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use std::time::Duration;

    use headstart_core::BlockHash;
    use headstart_store::backend::{LossReason, no_waker};
    use headstart_store::record::PartBytes;
    use headstart_store::{Arena, Disk, DiskOptions};

    use super::*;
    use crate::backend_conformance::{Trial, check, record_of, slot_bytes};
    use crate::backend_reference::Map;

    const PART_BYTES: usize = 3_000;

    fn rate(millis: u64, bytes_per_s: f64) -> Rate {
        Rate { latency: Duration::from_millis(millis), bytes_per_s }
    }

    /// A backend that conforms does so throttled, whichever direction is the slower one.
    #[test]
    fn it_conforms() {
        for (reads, writes) in [
            (Rate::UNLIMITED, Rate::UNLIMITED),
            (rate(1, 4e7), Rate::UNLIMITED),
            (Rate::UNLIMITED, rate(1, 4e7)),
            (rate(0, 2e7), rate(1, 3e7)),
        ] {
            let trial = Trial { seed: 7, commands: 600, names: 40, part_bytes: PART_BYTES };
            let map = Box::new(Map::default());
            let limits = ThrottleRates { reads, writes };
            let throttled = ThrottledBackend::new(map, limits, no_waker());
            check(&mut throttled.expect("a thread"), trial);
        }
    }

    /// A caller that waits for the waker alone gets every answer, and none before it is due.
    #[test]
    fn a_part_takes_the_time_of_its_own_bytes() {
        let limits = ThrottleRates { reads: rate(5, 1e6), writes: Rate::UNLIMITED };
        let map = Box::new(Map::default());
        let mut throttled = ThrottledBackend::new(map, limits, no_waker()).expect("a thread");
        let arena = Arena::new(slot_bytes(PART_BYTES), 2).expect("memory");
        let record = record_of(3, PART_BYTES, arena.take().expect("a slot"));
        let (at, ticket) = (Nanos(7), Ticket(1));
        for part in 0..record.num_parts() as u16 {
            let slot = arena.take().expect("a slot");
            let part = PartBytes::copied(&record, part, slot).expect("it is unharmed");
            let mut line = throttled.reads;
            assert_eq!(part.read_bytes(), part.bytes().len());
            let due = line.due(at, part.bytes().len());
            let (kind, bytes) = (CommandKind::GetPart, 0);
            throttled.asked.insert(ticket, ThrottledCommand { kind, at, bytes });
            assert_eq!(throttled.done(ticket, &CommandOutcome::Part(part), at), due);
        }
    }

    /// Of a real disk: what it counts as read is what the line is charged for, header or none.
    #[test]
    fn a_part_of_a_disk_takes_the_time_of_all_that_was_read_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = DiskOptions::new(folder.path(), 64 << 20);
        let (disk, _) = Disk::open(options, no_waker()).expect("it opens");
        let stats = disk.stats().clone();
        let limits = ThrottleRates { reads: rate(0, 1e9), writes: Rate::UNLIMITED };
        let mut throttled =
            ThrottledBackend::new(Box::new(disk), limits, no_waker()).expect("a thread");
        let arena = Arena::new(slot_bytes(PART_BYTES), 2).expect("memory");
        let record = record_of(3, PART_BYTES, arena.take().expect("a slot"));
        let num_parts = record.num_parts() as u16;
        let ticket = Ticket(0);
        answer(&mut throttled, Command::Put { ticket, record });
        for part in 0..num_parts {
            let get = Command::GetPart {
                ticket: Ticket(u64::from(part) + 1),
                name: BlockHash::from_u64(3),
                part,
                slot: arena.take().expect("a slot"),
            };
            let (busy, read) = (busy_until(&throttled), stats.read_bytes.get());
            let outcome = answer(&mut throttled, get);
            let CommandOutcome::Part(part) = outcome else { panic!("{outcome:?}") };
            let read = stats.read_bytes.get() - read;
            assert_eq!(part.read_bytes() as u64, read, "pages and headers");
            assert!(read as usize > part.bytes().len(), "no part fills its pages");
            // Nanoseconds are bytes here; it asked for nothing before the line was free.
            let took = busy_until(&throttled).since(busy);
            assert!(took >= Duration::from_nanos(read), "{took:?}, {read} bytes");
        }
        throttled.is_lifted().store(true, Ordering::Relaxed);
        let busy = busy_until(&throttled);
        let get = Command::GetPart {
            ticket: Ticket(0),
            name: BlockHash::from_u64(3),
            part: 0,
            slot: arena.take().expect("a slot"),
        };
        assert!(matches!(answer(&mut throttled, get), CommandOutcome::Part(_)));
        assert_eq!(busy_until(&throttled), busy, "nothing while it is lifted");
    }

    /// Of the line of reads, which has no latency.
    fn busy_until(throttled: &ThrottledBackend) -> Nanos {
        let mut line = throttled.reads;
        line.due(Nanos::default(), 0)
    }

    fn answer(throttled: &mut ThrottledBackend, command: Command) -> CommandOutcome {
        assert!(throttled.submit(command).is_ok(), "it is taken");
        let (mut reports, started) = (Vec::new(), Instant::now());
        loop {
            throttled.poll(&mut reports);
            match reports.pop() {
                Some(Report::Done { outcome, .. }) => return outcome,
                Some(other) => panic!("{other:?}"),
                None => std::thread::sleep(Duration::from_micros(100)),
            }
            assert!(started.elapsed() < Duration::from_secs(60), "no answer");
        }
    }

    #[test]
    fn the_waker_is_called_when_something_is_due() {
        let (wakes, woken) = channel();
        let waker: Waker = Arc::new(move || wakes.send(()).unwrap_or_default());
        let limits =
            ThrottleRates { reads: rate(20, f64::INFINITY), writes: rate(10, f64::INFINITY) };
        let map = Box::new(Map::default());
        let mut throttled = ThrottledBackend::new(map, limits, waker).expect("a thread");
        let arena = Arena::new(slot_bytes(PART_BYTES), 2).expect("memory");
        let record = record_of(3, PART_BYTES, arena.take().expect("a slot"));
        let put = Command::Put { ticket: Ticket(1), record };
        let get = Command::Get {
            ticket: Ticket(2),
            name: BlockHash::from_u64(3),
            slot: arena.take().expect("a slot"),
        };
        let asked = Instant::now();
        throttled.submit(put).expect("it is taken");
        throttled.submit(get).expect("it is taken");
        let mut reports = Vec::new();
        throttled.poll(&mut reports);
        assert!(reports.is_empty(), "{reports:?}");
        let mut after = Vec::new();
        while after.len() < 2 {
            woken.recv_timeout(Duration::from_secs(60)).expect("it wakes");
            throttled.poll(&mut reports);
            after.extend(reports.drain(..).map(|report| (asked.elapsed(), report)));
        }
        let is = |index: usize, ticket: u64, millis: u64| {
            let (elapsed, Report::Done { ticket: told, .. }) = &after[index] else {
                panic!("{after:?}")
            };
            assert_eq!(*told, Ticket(ticket));
            assert!(*elapsed >= Duration::from_millis(millis), "{after:?}");
        };
        is(0, 1, 10);
        is(1, 2, 20);
    }

    /// A loss is reported after the put of the lost record.
    #[test]
    fn a_loss_does_not_overtake() {
        struct Losing(Vec<Report>);
        impl Backend for Losing {
            fn submit(&mut self, command: Command) -> Result<(), Command> {
                let (ticket, outcome) = (command.ticket(), CommandOutcome::Stored);
                self.0.push(Report::Done { ticket, outcome });
                self.0.push(Report::Lost {
                    names: vec![BlockHash::from_u64(1)],
                    loss: LossReason::Evicted,
                });
                Ok(())
            }
            fn poll(&mut self, reports: &mut Vec<Report>) {
                reports.append(&mut self.0);
            }
        }
        let limits = ThrottleRates { reads: Rate::UNLIMITED, writes: rate(3, 1e6) };
        let inner = Box::new(Losing(Vec::new()));
        let mut throttled = ThrottledBackend::new(inner, limits, no_waker()).expect("a thread");
        let arena = Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
        let record = record_of(1, PART_BYTES, arena.take().expect("a slot"));
        let ticket = Ticket(1);
        throttled.submit(Command::Put { ticket, record }).expect("it is taken");
        let mut reports = Vec::new();
        let started = Instant::now();
        while reports.len() < 2 {
            assert!(started.elapsed() < Duration::from_secs(60), "{reports:?}");
            throttled.poll(&mut reports);
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(matches!(reports[0], Report::Done { .. }), "{reports:?}");
    }
}
