//! Reading one part of a record: its pages alone, and the header before where it is not known.
//!
//! ```text
//! header known ─────────────────────────────────► the part's pages ─► verified
//! else  front of the record ─┬─ the part is in it ─────────────────► verified
//!                            ├─ header known now ─► the part's pages ─► verified
//!                            └─ a long header ─► all of it ─► the part's pages ─► verified
//! ```

use std::io;

use headstart_core::BlockHash;

use super::{IoOperation, Purpose, RecordLocation, Worker};
use crate::arena::Slot;
use crate::backend::{CommandOutcome, Failure, Ticket};
use crate::disk::io::Buffer;
use crate::record::{Content, Header, PAGE, PartBytes, VerifiedHeader, Wrong};

/// Most bytes read of a record with an unknown header: the header, and small parts that lie behind
/// it.
const FRONT: usize = 8 * PAGE;

/// A read of a part under way.
pub(super) struct Getting {
    ticket: Ticket,
    name: BlockHash,
    part: u16,
    place: RecordLocation,
    step: PartReadStep,
    /// Bytes that were read for it so far.
    read_bytes: usize,
}

/// Current read.
enum PartReadStep {
    /// The front of the record.
    Front,
    /// A header that is longer than that; the slot waits.
    Header(Slot),
    /// The pages of the part, which begin there within the record.
    Pages { header: VerifiedHeader, from: usize },
}

impl Getting {
    pub(super) fn new(ticket: Ticket, name: BlockHash, part: u16, place: RecordLocation) -> Self {
        Self { ticket, name, part, place, step: PartReadStep::Front, read_bytes: 0 }
    }

    fn room(&self) -> usize {
        self.place.pages as usize * PAGE
    }
}

impl Worker {
    pub(super) fn start_part(&mut self, getting: Getting, slot: Slot) {
        // Kept until the answer, so that no page is reused between two reads of one part.
        self.space.add_reader(getting.place.segment);
        self.reads.under_way += 1;
        if let Some(header) = self.index.header(getting.name) {
            return self.read_pages(getting, header, slot);
        }
        let len = slot.len().min(FRONT).min(getting.room());
        self.read_at(getting, 0, Buffer::Slot(slot), len);
    }

    pub(super) fn got_part(
        &mut self,
        mut getting: Getting,
        op: IoOperation,
        result: io::Result<()>,
    ) {
        let IoOperation::Read { buffer, len, .. } = op else { unreachable!("parts are read") };
        if result.is_err() {
            let outcome = self.read_failed(getting.name, getting.place);
            return self.end_part(getting, outcome);
        }
        // The disk has answered, whatever the bytes are.
        self.health.read_worked();
        self.edges.stats.read_bytes.add(len as u64);
        getting.read_bytes += len;
        let step = std::mem::replace(&mut getting.step, PartReadStep::Front);
        match (step, buffer) {
            (PartReadStep::Front, Buffer::Slot(slot)) => self.got_front(getting, slot, len),
            (PartReadStep::Header(slot), Buffer::Pages(pages)) => {
                match self.know(&getting, &pages) {
                    Ok(header) => self.read_pages(getting, header, slot),
                    Err(wrong) => self.end_damaged(getting, wrong),
                };
            }
            (PartReadStep::Pages { header, from }, Buffer::Slot(slot)) => {
                self.verify(getting, &header, from, slot);
            }
            _ => unreachable!("each step has its buffer"),
        }
    }

    fn got_front(&mut self, mut getting: Getting, slot: Slot, len: usize) {
        let claimed = Header::claimed_bytes(&slot[..len]).unwrap_or(0);
        // The length is not verified yet: a damaged one must not lead past the record.
        if claimed > len && claimed <= getting.room() {
            let Ok(pages) = Buffer::pages(claimed.div_ceil(PAGE)) else {
                return self.end_part(getting, CommandOutcome::Failed(Failure::Io));
            };
            let len = pages.len();
            getting.step = PartReadStep::Header(slot);
            return self.read_at(getting, 0, Buffer::Pages(pages), len);
        }
        let header = match self.know(&getting, &slot[..len]) {
            Ok(header) => header,
            Err(wrong) => return self.end_damaged(getting, wrong),
        };
        // An empty part is not anywhere: it may begin behind all that was read.
        let is_here = header
            .pages_of(getting.part)
            .is_some_and(|pages| !pages.is_empty() && pages.end <= len);
        if is_here {
            self.verify(getting, &header, 0, slot);
        } else {
            self.read_pages(getting, header, slot);
        }
    }

    /// Reads the header at the front of these bytes and remembers it if it is valid.
    fn know(&mut self, getting: &Getting, bytes: &[u8]) -> Result<VerifiedHeader, Wrong> {
        let header = VerifiedHeader::read(bytes, getting.room(), getting.name)?;
        self.index.know(getting.name, getting.place, &header);
        Ok(header)
    }

    fn read_pages(&mut self, mut getting: Getting, header: VerifiedHeader, slot: Slot) {
        let Some(pages) = header.pages_of(getting.part) else {
            return self.end_part(getting, CommandOutcome::Missing);
        };
        if pages.is_empty() {
            let start = header.header().parts[usize::from(getting.part)].offset;
            return self.verify(getting, &header, start as usize, slot);
        }
        if pages.len() > slot.len() {
            return self.end_part(getting, CommandOutcome::Failed(Failure::TooLarge));
        }
        let from = pages.start;
        getting.step = PartReadStep::Pages { header, from };
        self.read_at(getting, from, Buffer::Slot(slot), pages.len());
    }

    fn verify(&mut self, getting: Getting, header: &VerifiedHeader, from: usize, slot: Slot) {
        match PartBytes::verify(slot, from, header, getting.part) {
            Ok(part) => {
                let stats = &self.edges.stats;
                match part.meta().content {
                    Content::Unit => stats.unit_parts.add(1),
                    Content::Pack => stats.pack_parts.add(1),
                }
                let part = part.with_read_bytes(getting.read_bytes);
                self.end_part(getting, CommandOutcome::Part(part));
            }
            Err(wrong) => self.end_damaged(getting, wrong),
        }
    }

    fn read_at(&mut self, getting: Getting, from: usize, buffer: Buffer, len: usize) {
        let Ok(file) = self.open_file(getting.place.segment) else {
            return self.end_part(getting, CommandOutcome::Failed(Failure::Offline));
        };
        let op = IoOperation::Read {
            file,
            offset: u64::from(getting.place.page) * PAGE as u64 + from as u64,
            buffer,
            len,
        };
        self.start(Purpose::GetPart(getting), op);
    }

    fn end_damaged(&mut self, getting: Getting, wrong: Wrong) {
        let outcome = self.set_aside(getting.name, getting.place, wrong);
        self.end_part(getting, outcome);
    }

    fn end_part(&mut self, getting: Getting, outcome: CommandOutcome) {
        self.reads.under_way -= 1;
        self.space.remove_reader(getting.place.segment);
        if let CommandOutcome::Missing = outcome {
            self.edges.stats.missing.add(1);
        }
        self.done(getting.ticket, outcome);
    }
}
