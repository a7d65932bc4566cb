//! Making room: what is wanted of a segment is moved, then the segment is free.

use std::collections::VecDeque;
use std::io;

use headstart_core::BlockHash;

use super::write::{Addition, AdditionOrigin};
use super::{IoOperation, PAGE, Purpose, RecordLocation, SegmentId, Worker};
use crate::backend::{LossReason, ResidentRecord};
use crate::disk::io::Buffer;
use crate::disk::layout::TableEntry;
use crate::disk::space::Make;
use crate::record::verify_bytes;

/// Records read or waiting to be written at once while a segment is cleaned.
const MOVES: usize = 16;

/// Segments cleaned one after the other without room for a single new record: then one is given up.
const IN_VAIN: usize = 8;

/// Segments that shall be free or nearly so: one to write to next, one to move records to.
const FREE_SEGMENTS: usize = 2;

/// A segment that is being cleaned.
pub(super) struct Cleaning {
    segment: SegmentId,
    /// Records that were not read yet.
    left: VecDeque<BlockHash>,
    /// Records read or about to be written.
    under_way: usize,
}

/// A read under way, of a record that is moved.
pub(super) struct Moving {
    name: BlockHash,
    place: RecordLocation,
}

impl Worker {
    pub(super) fn pump_cleaning(&mut self) {
        if self.cleaning.is_none() && self.needs_room() {
            match self.space.make_room(self.cleaned_in_vain >= IN_VAIN) {
                Some(Make::Clean(segment)) => {
                    self.cleaned_in_vain += 1;
                    let left = self.index.of_segment(segment).into();
                    self.cleaning = Some(Cleaning { segment, left, under_way: 0 });
                }
                Some(Make::Drop(segment)) => self.drop_segment(segment),
                None => {}
            }
        }
        self.pump_moves();
        self.end_cleaning();
        // Room that was made is used at once.
        if self.writes.wants_room() && self.cleaning.is_none() {
            self.pump_writes();
        }
    }

    fn needs_room(&self) -> bool {
        let is_refused = self.health.refuses_writes(self.now()).is_some();
        let free = self.space.num_free() + usize::from(self.segments.next.is_some());
        // What is only read of will be free soon: no reason to give up more.
        let soon = free + self.space.num_leaving();
        !is_refused && soon < FREE_SEGMENTS && self.writes.wants_room()
    }

    /// Reads more of what is to be moved.
    fn pump_moves(&mut self) {
        while let Some(cleaning) = &mut self.cleaning {
            if cleaning.under_way >= MOVES {
                return;
            }
            let segment = cleaning.segment;
            let Some(name) = cleaning.left.pop_front() else {
                return;
            };
            let place = self.index.get(name);
            // The record was removed or stored elsewhere since cleaning began.
            let Some(place) = place.filter(|place| place.segment == segment) else {
                continue;
            };
            let pages = Buffer::pages(place.pages as usize);
            let (Ok(file), Ok(pages)) = (self.open_file(segment), pages) else {
                self.give_up_cleaning();
                return;
            };
            let op = IoOperation::Read {
                file,
                offset: u64::from(place.page) * PAGE as u64,
                buffer: Buffer::Pages(pages),
                len: place.pages as usize * PAGE,
            };
            if let Some(cleaning) = &mut self.cleaning {
                cleaning.under_way += 1;
            }
            // Counts the segment as used until the read ends, even if all
            // its records are removed.
            self.space.add_reader(segment);
            self.start(Purpose::Move(Moving { name, place }), op);
        }
    }

    pub(super) fn read_to_move(&mut self, moving: Moving, op: IoOperation, result: io::Result<()>) {
        let Moving { name, place } = moving;
        self.space.remove_reader(place.segment);
        let IoOperation::Read { buffer: Buffer::Pages(pages), .. } = op else {
            unreachable!("what is moved is read into pages")
        };
        if result.is_err() {
            self.moved();
            self.give_up_cleaning();
            return;
        }
        match verify_bytes(&pages, name) {
            // Removed or purged meanwhile: it stays where it is.
            Ok(_) if self.index.get(name) != Some(place) => self.moved(),
            Ok(header) => {
                let bytes = u64::from(place.pages) * PAGE as u64;
                let resident = ResidentRecord::of(&header.meta, bytes);
                self.writes.push_move(Addition {
                    entry: TableEntry { resident, page: 0 },
                    buffer: Buffer::Pages(pages),
                    origin: AdditionOrigin::Moved(place),
                });
            }
            Err(wrong) => {
                self.moved();
                // No command asked for this record: the loss is reported, and
                // the outcome is not needed.
                let _ = self.set_aside(name, place, wrong);
            }
        }
    }

    /// A record was moved, or will not be.
    pub(super) fn moved(&mut self) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.under_way = cleaning.under_way.saturating_sub(1);
        }
    }

    /// Ends cleaning when it is done, or when nothing that is moved has a place to go.
    fn end_cleaning(&mut self) {
        let Some(cleaning) = &self.cleaning else {
            return;
        };
        if cleaning.left.is_empty() && cleaning.under_way == 0 {
            // After cleaning was given up, records remain, and the segment
            // is not counted as cleaned.
            let is_empty = self.index.of_segment(cleaning.segment).is_empty();
            self.edges.stats.cleaned.add(u64::from(is_empty));
            self.cleaning = None;
        // The moves need a segment, and none can become free: these records are evicted instead.
        } else if self.has_no_room_at_all() {
            let segment = cleaning.segment;
            self.give_up_cleaning();
            self.drop_segment(segment);
        }
    }

    fn has_no_room_at_all(&self) -> bool {
        let is_idle = self.writes.groups_under_way() == 0;
        let no_segment = self.segments.active.is_none() && self.segments.next.is_none();
        is_idle && no_segment && self.space.num_free() == 0 && self.space.num_leaving() == 0
    }

    pub(super) fn give_up_cleaning(&mut self) {
        let dropped = self.writes.drop_moves();
        // Each of them was counted as under way when it was read.
        (0..dropped).for_each(|_| self.moved());
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.left.clear();
        }
    }

    /// Gives up all that a segment holds.
    fn drop_segment(&mut self, segment: SegmentId) {
        let names = self.index.of_segment(segment);
        for &name in &names {
            if let Some(place) = self.index.remove(name) {
                self.space.remove_live(place.segment, place.pages);
            }
        }
        self.lost(names, LossReason::Evicted);
    }
}
