//! Records that are to be added, in the order in which they came, and the groups that they form.

use std::collections::{HashMap, VecDeque};

use headstart_core::{BlockHash, TenantTag};

use super::super::{RecordLocation, SegmentId};
use crate::backend::{Failure, Ticket};
use crate::disk::io::Buffer;
use crate::disk::layout::TableEntry;

/// Records that are to be added, and groups under way.
#[derive(Default)]
pub(in crate::disk::worker) struct Writes {
    pub(super) puts: VecDeque<Addition>,
    pub(super) moves: VecDeque<Addition>,
    pub(super) put_bytes: usize,
    /// Commands that wait for the records in `puts` and `groups`, by name.
    pub(super) waiting: HashMap<BlockHash, PutWaiters>,
    pub(super) last_put: u64,
    /// In the order in which they were written; the first has number `first_group`.
    pub(super) groups: VecDeque<CommitGroup>,
    pub(super) first_group: u64,
}

/// A record that is to be added.
pub(in crate::disk::worker) struct Addition {
    pub(in crate::disk::worker) entry: TableEntry,
    pub(in crate::disk::worker) buffer: Buffer,
    pub(in crate::disk::worker) origin: AdditionOrigin,
}

/// Why a record is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::disk::worker) enum AdditionOrigin {
    /// A put: its number, as [`PutWaiters`] has it unless it was cancelled.
    Put(u64),
    /// It is only moved, from there.
    Moved(RecordLocation),
}

/// Commands that wait for a pending record. A cancelled one is dropped, and another put of the same
/// name creates a new one, so that each command gets only its own answer.
pub(super) struct PutWaiters {
    pub(super) put: u64,
    pub(super) tenant: TenantTag,
    pub(super) tickets: Vec<Ticket>,
}

pub(super) struct CommitGroup {
    pub(super) segment: SegmentId,
    pub(super) entries: Vec<(TableEntry, AdditionOrigin)>,
    pub(super) writes_left: usize,
    pub(super) is_committing: bool,
    pub(super) failure: Option<Failure>,
}

/// Place of a group in a segment.
#[derive(Clone, Copy)]
pub(super) struct GroupPlace {
    pub(super) segment: SegmentId,
    /// The segment's sequence number.
    pub(super) sequence: u64,
    /// The group's number in its segment.
    pub(super) number: u64,
    pub(super) first_page: u32,
}

impl Writes {
    /// Whether nothing is to be added.
    pub(in crate::disk::worker) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.moves.is_empty() && self.groups.is_empty()
    }

    /// Groups written or committed now.
    pub(in crate::disk::worker) fn groups_under_way(&self) -> usize {
        self.groups.len()
    }

    /// Whether something wants room.
    pub(in crate::disk::worker) fn wants_room(&self) -> bool {
        !self.puts.is_empty()
    }

    pub(in crate::disk::worker) fn push_move(&mut self, addition: Addition) {
        self.moves.push_back(addition);
    }

    /// Gives up the moves that were not begun; returns how many.
    pub(in crate::disk::worker) fn drop_moves(&mut self) -> usize {
        std::mem::take(&mut self.moves).len()
    }

    /// Names of a tenant's records on their way.
    pub(in crate::disk::worker) fn of_tenant(&self, tenant: TenantTag) -> Vec<BlockHash> {
        let theirs = self.waiting.iter();
        let theirs = theirs.filter(|(_, waiting)| waiting.tenant == tenant);
        theirs.map(|(&name, _)| name).collect()
    }

    /// Numbers of the groups with records of a tenant whose writes have not ended.
    pub(in crate::disk::worker) fn groups_being_written(&self, tenant: TenantTag) -> Vec<u64> {
        let is_theirs = |group: &CommitGroup| {
            let mut entries = group.entries.iter();
            group.writes_left > 0 && entries.any(|(entry, _)| entry.resident.tenant == tenant)
        };
        let groups = (self.first_group..).zip(&self.groups);
        groups.filter(|(_, group)| is_theirs(group)).map(|(number, _)| number).collect()
    }

    /// An addition was taken off its queue.
    pub(in crate::disk::worker) fn leave_queue(&mut self, addition: &Addition) {
        if let AdditionOrigin::Put(_) = addition.origin {
            // `put` added the same bytes when it queued the record.
            self.put_bytes -= addition.buffer.bytes().len();
        }
    }

    pub(in crate::disk::worker) fn is_awaited(&self, name: BlockHash, put: u64) -> bool {
        let waiting = self.waiting.get(&name);
        waiting.is_some_and(|waiting| waiting.put == put)
    }
}
