//! In-memory index of the records and their positions.

use std::collections::HashMap;

use headstart_core::{BlockHash, TenantTag};

use super::layout::TableEntry;
use super::space::SegmentId;
use crate::record::{Headers, VerifiedHeader};

/// Position of a record, with its tenant and end of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLocation {
    pub(super) segment: SegmentId,
    pub(super) page: u32,
    pub(super) pages: u32,
    pub(super) tenant: TenantTag,
    pub(super) expires_s: Option<u64>,
}

impl RecordLocation {
    pub(super) fn of(segment: SegmentId, entry: &TableEntry) -> Self {
        Self {
            segment,
            page: entry.page,
            pages: entry.pages(),
            tenant: entry.resident.tenant,
            expires_s: entry.resident.expires_s,
        }
    }
}

/// All records that can be read, and per segment the names of all that were ever added to it.
#[derive(Debug)]
pub(super) struct Index {
    places: HashMap<BlockHash, RecordLocation>,
    /// Of records that can be read, as they were read at their places.
    headers: Headers,
    added: Vec<Vec<AddedRecord>>,
}

/// A record that was added to a segment in its present life.
#[derive(Clone, Copy, Debug)]
struct AddedRecord {
    name: BlockHash,
    tenant: TenantTag,
    page: u32,
    pages: u32,
}

impl Index {
    pub(super) fn new(segments: usize) -> Self {
        Self {
            places: HashMap::new(),
            headers: Headers::default(),
            added: vec![Vec::new(); segments],
        }
    }

    pub(super) fn get(&self, name: BlockHash) -> Option<RecordLocation> {
        self.places.get(&name).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The record can be read there; where it was before is returned.
    pub(super) fn insert(
        &mut self,
        name: BlockHash,
        place: RecordLocation,
    ) -> Option<RecordLocation> {
        // The known header is that of the previous place.
        self.headers.remove(name);
        self.places.insert(name, place)
    }

    pub(super) fn remove(&mut self, name: BlockHash) -> Option<RecordLocation> {
        self.headers.remove(name);
        self.places.remove(&name)
    }

    /// The header of a record, where it was read since the record came to its place.
    pub(super) fn header(&self, name: BlockHash) -> Option<VerifiedHeader> {
        self.headers.get(name).cloned()
    }

    /// Remembers the verified header of a record that is still at `place`.
    pub(super) fn know(&mut self, name: BlockHash, place: RecordLocation, header: &VerifiedHeader) {
        // The record may have been moved or removed while its header was read.
        if self.get(name) == Some(place) {
            self.headers.insert(name, header.clone());
        }
    }

    /// A record was added to a segment.
    pub(super) fn note(&mut self, segment: SegmentId, entry: &TableEntry) {
        self.added[segment.index()].push(AddedRecord {
            name: entry.resident.name,
            tenant: entry.resident.tenant,
            page: entry.page,
            pages: entry.pages(),
        });
    }

    /// Returns the pages of all records ever added for a tenant, as runs: first page, number of
    /// pages.
    pub(super) fn of_tenant(&self, segment: SegmentId, tenant: TenantTag) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let theirs = self.added[segment.index()].iter();
        for added in theirs.filter(|added| added.tenant == tenant) {
            match runs.last_mut() {
                // Adjacent records form one run, so that one system call destroys them all.
                Some((page, pages)) if *page + *pages == added.page => *pages += added.pages,
                _ => runs.push((added.page, added.pages)),
            }
        }
        runs
    }

    /// A segment begins a new life.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        self.added[segment.index()] = Vec::new();
    }

    /// The records of a segment that can be read, in the order in which they were added.
    pub(super) fn of_segment(&self, segment: SegmentId) -> Vec<BlockHash> {
        let added = self.added[segment.index()].iter();
        let is_there = |added: &&AddedRecord| {
            let place = self.places.get(&added.name);
            // A record that was moved or stored again is still listed
            // here, but its place is elsewhere.
            place.is_some_and(|place| place.segment == segment && place.page == added.page)
        };
        added.filter(is_there).map(|added| added.name).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockHash, RecordLocation)> + '_ {
        self.places.iter().map(|(&name, &place)| (name, place))
    }
}
