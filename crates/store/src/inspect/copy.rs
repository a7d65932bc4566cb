//! Verified records of one context cache, written to another place: so a second replica starts
//! warm, or a folder becomes object storage.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::arena::{Arena, Slot};
use crate::backend::{
    Backend, Command, CommandOutcome, Failure, LossReason, Report, Ticket, Waker,
};
use crate::inspect::{Cache, Item, RecordReadError, RecordTally, slot_bytes};
use crate::record::Record;

/// Records on their way: enough that both sides have something to do.
const SLOTS: usize = 48;

/// Longest wait for a wake-up, which may be lost where several come at once.
const WAIT: Duration = Duration::from_millis(50);

/// Counts of copied records, by result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// They can be read at their destination, also after a crash.
    pub stored: RecordTally,
    /// They were damaged, and are not copied.
    pub damaged: u64,
    /// They were gone when they were looked for.
    pub gone: u64,
    /// They could not be read.
    pub unreadable: u64,
    /// They could not be written, by reason.
    pub failed: HashMap<Failure, u64>,
    /// The destination gave them, or others, up: it is too small.
    pub evicted: u64,
}

/// Wakes the one who copies.
#[derive(Debug)]
pub struct Wakeups(Receiver<()>);

/// A waker for the destination, and what it wakes.
#[must_use]
pub fn wakeups() -> (Waker, Wakeups) {
    let (sender, receiver) = sync_channel(1);
    let waker: Waker = Arc::new(move || {
        // One that waits is enough.
        let _ = sender.try_send(());
    });
    (waker, Wakeups(receiver))
}

/// Records on their way to `to`.
struct RecordDelivery<'a> {
    to: &'a mut dyn Backend,
    wakeups: &'a Wakeups,
    under_way: HashMap<Ticket, u64>,
    last_ticket: u64,
    copied: CopyReport,
}

/// Copies records, each verified when it is read; `progress` is called with each one's bytes.
///
/// # Errors
/// When the system gives no memory.
pub fn copy(
    from: &Cache,
    items: &[Item],
    to: (&mut dyn Backend, &Wakeups),
    mut progress: impl FnMut(u64),
) -> std::io::Result<CopyReport> {
    let arena = Arena::new(slot_bytes(items), SLOTS)?;
    // The reader calls the closures by turns, never one within the other, so no borrow overlaps.
    let delivery = std::cell::RefCell::new(RecordDelivery {
        to: to.0,
        wakeups: to.1,
        under_way: HashMap::new(),
        last_ticket: 0,
        copied: CopyReport::default(),
    });
    let mut slot = || delivery.borrow_mut().slot(&arena);
    let mut visit = |item: &Item, read: Result<Record, RecordReadError>| {
        progress(item.resident.bytes);
        let mut delivery = delivery.borrow_mut();
        match read {
            Ok(record) => delivery.put(record),
            Err(RecordReadError::Wrong(_)) => delivery.copied.damaged += 1,
            Err(RecordReadError::Gone) => delivery.copied.gone += 1,
            Err(RecordReadError::Unreadable(_)) => delivery.copied.unreadable += 1,
        }
    };
    from.read(items, &mut slot, &mut visit);
    let mut delivery = delivery.into_inner();
    while !delivery.under_way.is_empty() {
        delivery.wait();
    }
    Ok(delivery.copied)
}

impl RecordDelivery<'_> {
    /// A free slot; those that are not free are on their way, and come back.
    fn slot(&mut self, arena: &Arc<Arena>) -> Slot {
        loop {
            if let Some(slot) = arena.take() {
                return slot;
            }
            self.wait();
        }
    }

    fn put(&mut self, record: Record) {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.under_way.insert(ticket, record.bytes().len() as u64);
        let mut command = Command::Put { ticket, record };
        while let Err(back) = self.to.submit(command) {
            command = back;
            self.wait();
        }
        self.take_reports();
    }

    fn wait(&mut self) {
        let _ = self.wakeups.0.recv_timeout(WAIT);
        self.take_reports();
    }

    fn take_reports(&mut self) {
        let mut reports = Vec::new();
        self.to.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => self.done(ticket, &outcome),
                Report::Lost { names, loss: LossReason::Evicted } => {
                    self.copied.evicted += names.len() as u64;
                }
                Report::Lost { .. } | Report::Found(_) | Report::Condition(_) => {}
            }
        }
    }

    fn done(&mut self, ticket: Ticket, outcome: &CommandOutcome) {
        let Some(bytes) = self.under_way.remove(&ticket) else {
            return;
        };
        match outcome {
            CommandOutcome::Stored => self.copied.stored.add(bytes),
            CommandOutcome::Failed(failure) => {
                *self.copied.failed.entry(*failure).or_default() += 1;
            }
            CommandOutcome::Loaded(_)
            | CommandOutcome::Part(_)
            | CommandOutcome::Missing
            | CommandOutcome::Removed(_) => {}
        }
    }
}
