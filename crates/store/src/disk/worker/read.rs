//! Reading records.

use std::collections::VecDeque;
use std::io;

use headstart_core::BlockHash;

use super::{Op, Place, Purpose, Worker};
use crate::arena::Slot;
use crate::backend::{Failure, Loss, Outcome, Ticket};
use crate::disk::io::Buffer;
use crate::record::{PAGE, Record, Wrong};

/// Reads that wait for their turn, and those under way.
#[derive(Default)]
pub(super) struct Reads {
    queue: VecDeque<(Ticket, BlockHash, Slot)>,
    under_way: usize,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.under_way == 0
    }
}

/// A read under way.
pub(super) struct Getting {
    ticket: Ticket,
    name: BlockHash,
    place: Place,
}

impl Worker {
    pub(super) fn get(&mut self, ticket: Ticket, name: BlockHash, slot: Slot) {
        self.reads.queue.push_back((ticket, name, slot));
    }

    pub(super) fn pump_reads(&mut self) {
        while self.reads.under_way < self.options.depth {
            let Some((ticket, name, slot)) = self.reads.queue.pop_front() else {
                return;
            };
            if let Err(outcome) = self.start_read(ticket, name, slot) {
                self.done(ticket, outcome);
            }
        }
    }

    fn start_read(&mut self, ticket: Ticket, name: BlockHash, slot: Slot) -> Result<(), Outcome> {
        if let Some(failure) = self.health.refuses_reads() {
            return Err(Outcome::Failed(failure));
        }
        self.expire(name);
        let Some(place) = self.index.get(name) else {
            self.edges.stats.missing.add(1);
            return Err(Outcome::Missing);
        };
        let len = place.pages as usize * PAGE;
        if slot.len() < len {
            return Err(Outcome::Failed(Failure::TooLarge));
        }
        let opened = self.open_file(place.segment);
        let file = opened.map_err(|_| Outcome::Failed(Failure::Offline))?;
        let op = Op::Read {
            file,
            offset: u64::from(place.page) * PAGE as u64,
            buffer: Buffer::Slot(slot),
            len,
        };
        self.space.add_reader(place.segment);
        self.reads.under_way += 1;
        let getting = Getting {
            ticket,
            name,
            place,
        };
        self.start(Purpose::Get(getting), op);
        Ok(())
    }

    pub(super) fn got(&mut self, getting: Getting, op: Op, result: io::Result<()>) {
        let Getting {
            ticket,
            name,
            place,
        } = getting;
        self.reads.under_way -= 1;
        self.space.remove_reader(place.segment);
        let Op::Read {
            buffer: Buffer::Slot(slot),
            len,
            ..
        } = op
        else {
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
                        Outcome::Loaded(record)
                    }
                    Err(wrong) => self.set_aside(name, place, wrong),
                }
            }
        };
        self.done(ticket, outcome);
    }

    /// What was read is not what was written: it is not read again.
    pub(super) fn set_aside(&mut self, name: BlockHash, place: Place, wrong: Wrong) -> Outcome {
        if self.index.get(name) == Some(place) {
            let sequence = self.space.sequence(place.segment);
            if let Some(folder) = &self.folder {
                let _ = folder.quarantine(sequence, place.page, name, wrong);
            }
            self.forget(name);
            self.lost(vec![name], Loss::Corrupt);
        }
        Outcome::Failed(Failure::Corrupt)
    }

    fn read_failed(&mut self, name: BlockHash, place: Place) -> Outcome {
        let now = self.now();
        if self.health.read_failed(now) {
            self.went_away();
        }
        if self.health.refuses_reads().is_some() {
            return Outcome::Failed(Failure::Offline);
        }
        if self.index.get(name) == Some(place) {
            self.forget(name);
            self.lost(vec![name], Loss::Corrupt);
        }
        Outcome::Failed(Failure::Io)
    }

    /// Answers what waits to be read.
    pub(super) fn fail_reads(&mut self, failure: Failure) {
        for (ticket, _, slot) in std::mem::take(&mut self.reads.queue) {
            drop(slot);
            self.done(ticket, Outcome::Failed(failure));
        }
    }
}
