//! Adding records: groups are formed, written, committed and only then there.

mod queues;
#[cfg(test)]
mod simulated;

use std::collections::VecDeque;
use std::io;

use headstart_core::BlockHash;

use super::{IoOperation, PAGE, Purpose, RecordLocation, SegmentId, Worker};
use crate::backend::{CommandOutcome, Failure, ResidentRecord, Ticket};
use crate::disk::condition::failure_of;
use crate::disk::io::Buffer;
use crate::disk::layout::{TableEntry, TableKind, table_pages, write_table};
use crate::record::Record;

pub(super) use queues::{Addition, AdditionOrigin, Writes};
use queues::{CommitGroup, GroupPlace, PutWaiters};

/// Bytes that complete a group: enough that a commit costs little beside them.
const GROUP_BYTES: usize = 8 << 20;

/// Groups under way at once: while one is committed the next ones are written.
const GROUPS: usize = 4;

/// Bytes of one write, unless a single record is longer: as large as disks take at once.
const WRITE_BYTES: usize = 1 << 20;

/// Pieces of one write, below what the system takes (1024).
const WRITE_PIECES: usize = 256;

impl Worker {
    pub(super) fn put(&mut self, ticket: Ticket, record: Record) {
        let name = record.meta().name;
        // The page is assigned when its group is written (`write_group`).
        let entry = TableEntry { resident: ResidentRecord::of_record(&record), page: 0 };
        if entry.pages() as usize > self.most_pages() {
            return self.done(ticket, CommandOutcome::Failed(Failure::TooLarge));
        }
        if let Some(failure) = self.health.refuses_writes(self.now()) {
            return self.done(ticket, CommandOutcome::Failed(failure));
        }
        // An expired record of this name must not answer for the new one.
        self.expire(name);
        if self.index.get(name).is_some() {
            return self.done(ticket, CommandOutcome::Stored);
        }
        // The same record is on its way, and one write answers both commands.
        if let Some(waiting) = self.writes.waiting.get_mut(&name) {
            return waiting.tickets.push(ticket);
        }
        // The number tells this put from a cancelled one of the same name that is still queued.
        self.writes.last_put += 1;
        let put = self.writes.last_put;
        let waiting = PutWaiters { put, tenant: entry.resident.tenant, tickets: vec![ticket] };
        self.writes.waiting.insert(name, waiting);
        self.writes.put_bytes += record.bytes().len();
        self.writes.puts.push_back(Addition {
            entry,
            buffer: Buffer::Record(record),
            origin: AdditionOrigin::Put(put),
        });
    }

    /// A record on its way shall not arrive. Whether there was one.
    pub(super) fn cancel(&mut self, name: BlockHash) -> bool {
        let waiting = self.writes.waiting.remove(&name);
        let was_waiting = waiting.is_some();
        for ticket in waiting.map_or_else(Vec::new, |waiting| waiting.tickets) {
            self.done(ticket, CommandOutcome::Failed(Failure::Aborted));
        }
        was_waiting
    }

    /// Whether a record that is to be added is still wanted.
    fn is_wanted(&self, name: BlockHash, origin: AdditionOrigin) -> bool {
        match origin {
            AdditionOrigin::Put(put) => self.writes.is_awaited(name, put),
            AdditionOrigin::Moved(from) => self.index.get(name) == Some(from),
        }
    }

    pub(super) fn pump_writes(&mut self) {
        while self.writes.groups.len() < GROUPS {
            let is_busy = !self.writes.groups.is_empty();
            let is_little = self.writes.put_bytes < GROUP_BYTES && self.writes.moves.is_empty();
            let nothing = self.writes.puts.is_empty() && self.writes.moves.is_empty();
            // While a group is under way more may come to share the next commit.
            if nothing || is_busy && is_little {
                return;
            }
            if self.segments.active.is_none() && !self.activate_next() {
                // The last free segment is for what is moved.
                let keep = usize::from(self.writes.moves.is_empty());
                self.open_next(keep);
                return;
            }
            let group = self.take_group();
            if group.is_empty() {
                // Not full: the rest is cancelled, or new records wait until
                // cleaning has freed a segment.
                if !self.is_full() {
                    return;
                }
                self.end_active();
                continue;
            }
            self.write_group(group);
            self.open_ahead();
        }
    }

    /// Opens the next segment while the active one still has room.
    fn open_ahead(&mut self) {
        let half = self.segments.pages() / 2;
        if self.segments.active.as_ref().is_some_and(|active| active.page > half) {
            self.open_next(1);
        }
    }

    /// Whether the record that is next does not fit the active segment.
    fn is_full(&self) -> bool {
        let next = self.writes.moves.front().or(self.writes.puts.front());
        let (Some(next), Some(active)) = (next, &self.segments.active) else {
            return false;
        };
        !active.has_room(1, next.entry.pages() as usize, self.segments.pages())
    }

    /// Whether new records may be added: a segment is left for what is moved to make room.
    fn may_put(&self) -> bool {
        self.segments.next.is_some() || self.space.num_free() > 0
    }

    /// The records of the next group, as far as the active segment has room for them.
    fn take_group(&mut self) -> Vec<Addition> {
        let may_put = self.may_put();
        let mut group = Vec::new();
        let mut pages = 0;
        while pages * PAGE < GROUP_BYTES {
            self.drop_unwanted();
            let of = self.segments.pages();
            let Some(active) = &self.segments.active else {
                return Vec::new();
            };
            // Moves come first: new records wait for the segments that moves free.
            let queue = match self.writes.moves.is_empty() {
                false => &mut self.writes.moves,
                true if may_put => &mut self.writes.puts,
                true => break,
            };
            let Some(next) = queue.front() else { break };
            let more = pages + next.entry.pages() as usize;
            if !active.has_room(group.len() + 1, more, of) {
                break;
            }
            pages = more;
            let addition = queue.pop_front().expect("it is at the front");
            self.writes.leave_queue(&addition);
            if let AdditionOrigin::Put(_) = addition.origin {
                // A new record found room, so cleaning was not in vain.
                self.cleaned_in_vain = 0;
            }
            group.push(addition);
        }
        group
    }

    /// Removes unwanted records from the fronts of the queues.
    fn drop_unwanted(&mut self) {
        while let Some(next) = self.writes.moves.front()
            && !self.is_wanted(next.entry.resident.name, next.origin)
        {
            self.writes.moves.pop_front();
            self.moved();
        }
        while let Some(next) = self.writes.puts.front()
            && !self.is_wanted(next.entry.resident.name, next.origin)
            && let Some(dropped) = self.writes.puts.pop_front()
        {
            self.writes.leave_queue(&dropped);
        }
    }

    pub(super) fn write_group(&mut self, additions: Vec<Addition>) {
        let active = self.segments.active.as_mut().expect("groups have a segment");
        let (segment, number) = (active.segment, active.num_groups);
        let first_page = active.page;
        let own_pages = table_pages(additions.len());
        let mut page = first_page + own_pages as u32;
        let mut entries = Vec::with_capacity(additions.len());
        let mut buffers = VecDeque::with_capacity(additions.len() + 1);
        for addition in additions {
            // The page was 0 until here: the place is known only now.
            let entry = TableEntry { page, ..addition.entry };
            page += entry.pages();
            entries.push((entry, addition.origin));
            buffers.push_back(addition.buffer);
        }
        // The second copy of the table follows the records.
        active.page = page + own_pages as u32;
        active.num_groups += 1;
        active.groups_under_way += 1;
        active.entries.extend(entries.iter().map(|(entry, _)| *entry));
        let sequence = active.sequence;
        for (entry, _) in &entries {
            self.index.note(segment, entry);
            // Counted from now on, so that the segment is not taken for an empty one.
            self.space.add_live(segment, entry.pages());
        }
        // Keeps the segment from being reopened before the last write to it has ended.
        self.space.add_reader(segment);
        let group = self.writes.first_group + self.writes.groups.len() as u64;
        self.writes.groups.push_back(CommitGroup {
            segment,
            entries,
            writes_left: 0,
            is_committing: false,
            failure: None,
        });
        let place = GroupPlace { segment, sequence, number, first_page };
        let started = self.start_writes(group, place, buffers);
        if let Err(error) = started {
            // Nothing of it may count; what was started is waited for.
            self.group_mut(group).failure = Some(failure_of(&error));
            self.settle_groups();
        }
    }

    /// Starts the writes of a group: its table, its records and its table again, a megabyte at a
    /// time.
    fn start_writes(
        &mut self,
        group: u64,
        place: GroupPlace,
        mut buffers: VecDeque<Buffer>,
    ) -> io::Result<()> {
        let GroupPlace { segment, sequence, number, first_page } = place;
        let file = self.open_file(segment)?;
        let entries = self.group_mut(group).entries.iter();
        let entries: Vec<TableEntry> = entries.map(|(entry, _)| *entry).collect();
        let table = |kind| {
            let mut table = Buffer::pages(table_pages(entries.len()))?;
            write_table(kind, sequence, number, &entries, &mut table);
            io::Result::Ok(Buffer::Pages(table))
        };
        buffers.push_front(table(TableKind::Group)?);
        buffers.push_back(table(TableKind::GroupEnd)?);
        let mut offset = u64::from(first_page) * PAGE as u64;
        while !buffers.is_empty() {
            let mut pieces = Vec::new();
            let mut bytes = 0;
            while let Some(next) = buffers.front() {
                let more = bytes + next.bytes().len();
                // A record that is longer than the limit goes alone: each
                // write has at least one piece.
                let is_full = more > WRITE_BYTES || pieces.len() == WRITE_PIECES;
                if is_full && !pieces.is_empty() {
                    break;
                }
                bytes = more;
                pieces.extend(buffers.pop_front());
            }
            let op = IoOperation::Write { file: file.clone(), offset, pieces };
            offset += bytes as u64;
            self.group_mut(group).writes_left += 1;
            self.start(Purpose::Write { group }, op);
        }
        Ok(())
    }

    fn group_mut(&mut self, group: u64) -> &mut CommitGroup {
        // Groups leave from the front only, so number and position differ by `first_group`.
        let index = (group - self.writes.first_group) as usize;
        &mut self.writes.groups[index]
    }

    pub(super) fn wrote(&mut self, group: u64, result: io::Result<()>) {
        let written = self.group_mut(group);
        written.writes_left -= 1;
        if let Err(error) = result {
            // Given up only after its other writes have ended, because
            // they still change these pages.
            written.failure = Some(failure_of(&error));
        }
        if written.writes_left == 0 {
            let segment = written.segment;
            // Before anything else: the segment may be free once the group has ended.
            self.destroy_written(group, segment);
        }
        self.settle_groups();
    }

    pub(super) fn committed(&mut self, upto: u64, result: io::Result<()>) {
        // A failed sync is not repeated: the system may report lost pages only once.
        if let Err(error) = result {
            for group in self.writes.first_group..=upto {
                let group = self.group_mut(group);
                group.failure = Some(failure_of(&error));
                group.is_committing = false;
            }
        } else {
            while self.writes.first_group <= upto {
                let group = self.writes.groups.pop_front().expect("it is under way");
                self.writes.first_group += 1;
                self.publish(group);
            }
            self.write_worked();
        }
        self.settle_groups();
    }

    /// Fails what failed, begins to commit what is written, from the front on, and seals segments
    /// that are complete.
    fn settle_groups(&mut self) {
        self.commit_groups();
        self.seal_ended();
    }

    fn commit_groups(&mut self) {
        while let Some(group) = self.writes.groups.front() {
            // One commit at a time, in order: groups that are written
            // meanwhile share the next one.
            if group.writes_left > 0 || group.is_committing {
                return;
            }
            let Some(failure) = group.failure else { break };
            let group = self.writes.groups.pop_front().expect("it is at the front");
            self.writes.first_group += 1;
            // Later groups of this segment would not be found after a crash.
            let later = self.writes.groups.iter_mut();
            for later in later.filter(|later| later.segment == group.segment) {
                later.failure.get_or_insert(failure);
            }
            self.give_up(group, failure);
        }
        let Some(first) = self.writes.groups.front() else {
            return;
        };
        let segment = first.segment;
        // A sync covers one file, so the commit ends where the next segment begins.
        let is_ready = |group: &&mut CommitGroup| {
            group.segment == segment && group.writes_left == 0 && group.failure.is_none()
        };
        let ready = self.writes.groups.iter_mut().take_while(is_ready);
        let count = ready.map(|group| group.is_committing = true).count() as u64;
        if count == 0 {
            return;
        }
        let upto = self.writes.first_group + count - 1;
        match self.open_file(segment) {
            Ok(file) => self.start(Purpose::Commit { upto }, IoOperation::Sync { file }),
            Err(error) => self.committed(upto, Err(error)),
        }
    }

    /// The records of a committed group are there.
    fn publish(&mut self, group: CommitGroup) {
        self.edges.stats.commits.add(1);
        let CommitGroup { segment, entries, .. } = group;
        self.group_ended(segment);
        for (entry, origin) in entries {
            let bytes = u64::from(entry.pages()) * PAGE as u64;
            // Asked before `end_put`, which ends the wait by which a put is wanted.
            let is_wanted = self.is_wanted(entry.resident.name, origin);
            match origin {
                AdditionOrigin::Moved(_) => {
                    self.edges.stats.moved_bytes.add(bytes);
                    self.moved();
                }
                AdditionOrigin::Put(put) => {
                    self.edges.stats.put_bytes.add(bytes);
                    self.end_put(entry.resident.name, put, Ok(()));
                }
            }
            if !is_wanted {
                // Cancelled while it was written: its pages are garbage from the start.
                self.space.remove_live(segment, entry.pages());
                continue;
            }
            // The old copy counts until here: after a crash before the commit it is the only one.
            if let Some(before) =
                self.index.insert(entry.resident.name, RecordLocation::of(segment, &entry))
            {
                self.space.remove_live(before.segment, before.pages);
            }
        }
    }

    /// Answers those who wait for a put, which is durable now or failed.
    fn end_put(&mut self, name: BlockHash, put: u64, result: Result<(), Failure>) {
        if !self.writes.is_awaited(name, put) {
            return;
        }
        let waiting = self.writes.waiting.remove(&name);
        for ticket in waiting.map_or_else(Vec::new, |waiting| waiting.tickets) {
            self.edges.stats.stored.add(u64::from(result.is_ok()));
            self.done(
                ticket,
                result.map_or_else(CommandOutcome::Failed, |()| CommandOutcome::Stored),
            );
        }
    }

    /// A group that could not be written.
    fn give_up(&mut self, group: CommitGroup, failure: Failure) {
        let CommitGroup { segment, entries, .. } = group;
        if self.segments.active.as_ref().is_some_and(|active| active.segment == segment) {
            self.abandon_active();
        } else if let Some(ending) = self.segments.open_mut(segment) {
            // Its footer would list what is not there.
            ending.has_failed = true;
        }
        self.group_ended(segment);
        for (entry, origin) in entries {
            self.space.remove_live(segment, entry.pages());
            match origin {
                AdditionOrigin::Moved(_) => self.moved(),
                AdditionOrigin::Put(put) => self.end_put(entry.resident.name, put, Err(failure)),
            }
        }
        self.write_failed(failure);
    }

    fn group_ended(&mut self, segment: SegmentId) {
        self.space.remove_reader(segment);
        if let Some(open) = self.segments.open_mut(segment) {
            open.groups_under_way -= 1;
        }
    }

    /// Answers what waits to be written.
    pub(super) fn fail_puts(&mut self, failure: Failure) {
        self.writes.put_bytes = 0;
        for addition in std::mem::take(&mut self.writes.puts) {
            if let AdditionOrigin::Put(put) = addition.origin {
                self.end_put(addition.entry.resident.name, put, Err(failure));
            }
        }
    }
}
