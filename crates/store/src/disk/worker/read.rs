//! Reading records.

use std::collections::VecDeque;
use std::io;

use headstart_core::BlockHash;

use super::{IoCompletion, IoOperation, Purpose, RecordLocation, Worker, parts};
use crate::arena::Slot;
use crate::backend::{CommandOutcome, Failure, LossReason, Ticket};
use crate::disk::io::Buffer;
use crate::record::{PAGE, Record, Wrong};

/// Reads that wait for their turn, and those under way.
#[derive(Default)]
pub(super) struct ReadQueue {
    queue: VecDeque<ReadRequest>,
    pub(super) under_way: usize,
}

/// A record that is to be read, or one part of it.
pub(super) struct ReadRequest {
    pub(super) ticket: Ticket,
    pub(super) name: BlockHash,
    /// `None`: all of it.
    pub(super) part: Option<u16>,
    pub(super) slot: Slot,
}

impl ReadQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.under_way == 0
    }
}

/// A read under way.
pub(super) struct RecordRead {
    ticket: Ticket,
    name: BlockHash,
    place: RecordLocation,
}

impl Worker {
    pub(super) fn get(&mut self, wanted: ReadRequest) {
        self.reads.queue.push_back(wanted);
    }

    pub(super) fn pump_reads(&mut self) {
        while self.reads.under_way < self.options.depth {
            let Some(wanted) = self.reads.queue.pop_front() else {
                return;
            };
            let ticket = wanted.ticket;
            if let Err(outcome) = self.start_read(wanted) {
                self.done(ticket, outcome);
            }
        }
    }

    /// Finishes operations that ended together, and starts new reads between them: after the
    /// first, the second, the fourth and so on.
    ///
    /// Some disks end everything that they were given at once. To verify all of it before the first
    /// record is reported, and only then to hear what is wanted next, leaves them idle meanwhile;
    /// to wake the reader for each record costs more than it gains.
    pub(super) fn finish_all(&mut self, finished: &mut Vec<IoCompletion>) {
        for (index, done) in finished.drain(..).enumerate() {
            self.finish(done);
            if (index + 1).is_power_of_two() {
                self.tell();
                self.take_commands();
                self.pump_reads();
                self.edges.io.flush();
            }
        }
    }

    fn start_read(&mut self, wanted: ReadRequest) -> Result<(), CommandOutcome> {
        let ReadRequest { ticket, name, part, slot } = wanted;
        if let Some(failure) = self.health.refuses_reads() {
            return Err(CommandOutcome::Failed(failure));
        }
        // Sweeps are 30 s apart: until then an expired record is still in the index.
        self.expire(name);
        let Some(place) = self.index.get(name) else {
            self.edges.stats.missing.add(1);
            return Err(CommandOutcome::Missing);
        };
        if let Some(part) = part {
            let getting = parts::Getting::new(ticket, name, part, place);
            self.start_part(getting, slot);
            return Ok(());
        }
        let len = place.pages as usize * PAGE;
        if slot.len() < len {
            return Err(CommandOutcome::Failed(Failure::TooLarge));
        }
        let opened = self.open_file(place.segment);
        let file = opened.map_err(|_| CommandOutcome::Failed(Failure::Offline))?;
        let op = IoOperation::Read {
            file,
            offset: u64::from(place.page) * PAGE as u64,
            buffer: Buffer::Slot(slot),
            len,
        };
        // After the last early return: every reader that is added must be removed again.
        self.space.add_reader(place.segment);
        self.reads.under_way += 1;
        let getting = RecordRead { ticket, name, place };
        self.start(Purpose::Get(getting), op);
        Ok(())
    }

    pub(super) fn got(&mut self, getting: RecordRead, op: IoOperation, result: io::Result<()>) {
        let RecordRead { ticket, name, place } = getting;
        // The bytes are in the slot now, so the segment may be reused.
        self.reads.under_way -= 1;
        self.space.remove_reader(place.segment);
        let IoOperation::Read { buffer: Buffer::Slot(slot), len, .. } = op else {
            unreachable!("records are read into slots")
        };
        let outcome = match result {
            Err(_) => self.read_failed(name, place),
            Ok(()) => {
                self.health.read_worked();
                self.edges.stats.read_bytes.add(len as u64);
                match Record::verify(slot, name) {
                    Ok(record) => {
                        self.edges.stats.loaded.add(1);
                        CommandOutcome::Loaded(record)
                    }
                    Err(wrong) => self.set_aside(name, place, wrong),
                }
            }
        };
        self.done(ticket, outcome);
    }

    /// Quarantines a record whose bytes differ from those written, so that it is not read again.
    pub(super) fn set_aside(
        &mut self,
        name: BlockHash,
        place: RecordLocation,
        wrong: Wrong,
    ) -> CommandOutcome {
        // If the record was stored again meanwhile, the newer copy may be whole.
        if self.index.get(name) == Some(place) {
            let sequence = self.space.sequence(place.segment);
            if let Some(folder) = &self.folder {
                // Without the note the record is only read, and found damaged,
                // once more after a restart.
                let _ = folder.quarantine(sequence, place.page, name, wrong);
            }
            self.forget(name);
            self.lost(vec![name], LossReason::Corrupt);
        }
        CommandOutcome::Failed(Failure::Corrupt)
    }

    pub(super) fn read_failed(&mut self, name: BlockHash, place: RecordLocation) -> CommandOutcome {
        let now = self.now();
        if self.health.read_failed(now) {
            self.went_away();
        }
        // All records were reported as lost when the disk went away.
        if self.health.refuses_reads().is_some() {
            return CommandOutcome::Failed(Failure::Offline);
        }
        // One bad spot: each later read would fail as well. Without a note on disk, a restart
        // tries the record again.
        if self.index.get(name) == Some(place) {
            self.forget(name);
            self.lost(vec![name], LossReason::Corrupt);
        }
        CommandOutcome::Failed(Failure::Io)
    }

    /// Answers what waits to be read.
    pub(super) fn fail_reads(&mut self, failure: Failure) {
        for wanted in std::mem::take(&mut self.reads.queue) {
            // The slot is free before the answer, whose receiver may take one at once.
            drop(wanted.slot);
            self.done(wanted.ticket, CommandOutcome::Failed(failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, channel, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use headstart_core::{IdentityDigest, TenantTag};

    use super::*;
    use crate::arena::Arena;
    use crate::backend::{Command, Report};
    use crate::disk::folder::DiskFolder;
    use crate::disk::io::faults::{Faults, FaultyIo};
    use crate::disk::io::{self, Bell, Io, IoKind};
    use crate::disk::recover::recover;
    use crate::disk::worker::Edges;
    use crate::disk::{DiskOptions, DiskStats};
    use crate::record::{Content, Draft, Exactness, Meta};

    const SEGMENT: u64 = 256 << 10;
    const BUDGET: u64 = 8 << 20;

    /// Ends all that was started together, and notes for each read how many records had been
    /// loaded when it was started; then `None` for each flush.
    struct Together {
        inner: FaultyIo,
        stats: Arc<DiskStats>,
        noted: Arc<Mutex<Vec<Option<u64>>>>,
    }

    impl Io for Together {
        fn start(&mut self, id: u64, op: IoOperation) {
            if matches!(op, IoOperation::Read { .. }) {
                let loaded = self.stats.loaded.get();
                self.noted.lock().expect("notes").push(Some(loaded));
            }
            self.inner.start(id, op);
        }

        fn flush(&mut self) {
            self.noted.lock().expect("notes").push(None);
        }

        fn wait(&mut self, limit: Duration, finished: &mut Vec<IoCompletion>) {
            self.inner.wait(limit, finished);
        }

        fn bell(&self) -> Bell {
            self.inner.bell()
        }
    }

    fn record(arena: &Arc<Arena>, name: u64) -> Record {
        let meta = Meta {
            name: BlockHash::from_u64(name),
            parent: None,
            identity: IdentityDigest([1; 16]),
            tenant: TenantTag(1),
            tokens: 16,
            exactness: Exactness::Exact,
            content: Content::Unit,
            created_s: 1,
            expires_s: None,
        };
        let slot = arena.take().expect("a slot");
        Draft::new(slot, meta, &[100]).expect("it fits").seal()
    }

    fn get(arena: &Arc<Arena>, name: u64) -> Command {
        Command::Get {
            ticket: Ticket(100 + name),
            name: BlockHash::from_u64(name),
            slot: arena.take().expect("a slot"),
        }
    }

    /// Returns a waker that asks for the record called 4, once.
    fn asks(arena: Arc<Arena>, commands: SyncSender<Command>) -> impl Fn() + Send + Sync {
        let next = Mutex::new(None);
        move || {
            let asked = next.lock().expect("it").replace(());
            if asked.is_none() {
                commands.try_send(get(&arena, 4)).expect("there is room");
            }
        }
    }

    #[test]
    fn what_a_reader_asks_for_next_does_not_wait_for_the_other_reads() {
        let place = tempfile::tempdir().expect("a folder");
        let options = DiskOptions::new(place.path(), BUDGET);
        let folder = DiskFolder::open(place.path()).expect("it is free");
        let recovered = recover(&folder, BUDGET, SEGMENT, 0).expect("it is read");
        let (inner, _) = io::open(IoKind::Threads, 1).expect("threads");
        let (stats, noted) = (Arc::<DiskStats>::default(), Arc::default());
        let together = Together {
            inner: FaultyIo::new(inner, Faults::default()),
            stats: stats.clone(),
            noted: Arc::clone(&noted),
        };
        let arena = Arena::new(2 * PAGE, 16).expect("memory");
        let (commands, inbox) = sync_channel(16);
        let (sender, reports) = channel();
        let edges = Edges {
            io: Box::new(together),
            inbox,
            reports: sender,
            waker: Arc::new(asks(arena.clone(), commands.clone())),
            stop: Arc::default(),
            stats: stats.clone(),
        };
        let mut worker = Worker::new(options, BUDGET, folder, recovered, edges);
        let mut finished = Vec::new();
        for name in 0..5 {
            let (ticket, record) = (Ticket(name), record(&arena, name));
            let put = Command::Put { ticket, record };
            commands.try_send(put).expect("there is room");
        }
        let mut stored = 0;
        while stored < 5 {
            worker.take_commands();
            worker.look_round();
            worker.pump();
            worker.edges.io.wait(Duration::ZERO, &mut finished);
            finished.drain(..).for_each(|done| worker.finish(done));
            let is_stored = |report: &Report| {
                let Report::Done { outcome, .. } = report else {
                    return false;
                };
                matches!(outcome, CommandOutcome::Stored)
            };
            stored += reports.try_iter().filter(is_stored).count();
        }
        worker.has_news = false;
        (0..4).for_each(|name| commands.try_send(get(&arena, name)).expect("there is room"));
        worker.take_commands();
        worker.pump();
        worker.edges.io.wait(Duration::ZERO, &mut finished);
        assert_eq!(finished.len(), 4, "all end together");
        worker.finish_all(&mut finished);
        let noted = noted.lock().expect("notes").clone();
        let expected = [Some(0), Some(0), Some(0), Some(0), Some(1), None, None, None];
        assert_eq!(noted, expected, "after the first of them, and handed over");
        assert_eq!((stats.loaded.get(), reports.try_iter().count()), (4, 4));
    }
}
