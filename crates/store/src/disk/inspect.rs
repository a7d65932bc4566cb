//! Inspection of a folder without opening the tier, and maintenance while no process uses it.
//!
//! The report shows what a server that starts now would find: records that a running one has
//! forgotten are found again after a restart, too. A folder in use changes while it is read. Data
//! that is read is verified, and a record that is no longer there counts as gone, not as damaged.

mod clear;

use std::collections::hash_map::Entry as Slotted;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use headstart_core::BlockHash;

use super::budget;
use super::folder::{DiskError, DiskFolder, io_at, segment_name};
use super::holder::{self, Holder};
use super::layout::TableEntry;
use super::recover::{RecoveryFilter, RecoveryVerdict, SortedFiles, sort};
use super::scan::{SegmentContents, SegmentHead, apart, head, scan};
use super::space::SegmentId;
use crate::arena::Slot;
use crate::backend::ResidentRecord;
use crate::inspect::{At, Files, Item, RecordReadError, Survey, Visit};
use crate::record::{Header, MAX_PARTS, PAGE, Record, Wrong};

/// Threads that read the beginnings of records: enough that a disk has several to do at once.
const READERS: usize = 8;

/// Pages that hold any header.
const HEADER_PAGES: u32 = (MAX_PARTS * 16 / PAGE + 2) as u32;

/// Bytes that a file system counts as one block.
const BLOCK_BYTES: u64 = 512;

/// A folder that holds a context cache.
#[derive(Debug)]
pub struct FolderInspector {
    folder: DiskFolder,
    is_ours: bool,
}

/// A segment and what is in it.
struct SegmentView {
    id: SegmentId,
    sequence: u64,
    /// Without the entries that recovery drops.
    contents: SegmentContents,
    /// One for each of its entries.
    states: Vec<RecordState>,
}

impl SegmentView {
    fn records(&self) -> impl Iterator<Item = (TableEntry, RecordState)> + '_ {
        self.contents.entries.iter().copied().zip(self.states.iter().copied())
    }
}

/// State of a record at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Kept,
    /// There is a younger copy.
    Replaced,
    Dropped(RecoveryVerdict),
}

/// All segments, oldest first.
struct Views {
    segments: Vec<SegmentView>,
    segment_bytes: u64,
    /// Files of which nothing says what they held.
    unknown: Vec<SegmentId>,
    /// Files that are no segments of this tier.
    strangers: Vec<SegmentId>,
    /// The highest sequence number that was ever used, as far as anybody knows.
    last_sequence: u64,
}

impl Views {
    fn harm(&self) -> Vec<String> {
        let mut harm = Vec::new();
        for view in &self.segments {
            let file = segment_name(view.id);
            for (entry, wrong) in &view.contents.damaged {
                harm.push(format!("{file}: {:?}: {wrong}", entry.resident.name));
            }
            for Range { start, end } in &view.contents.unknown {
                let what = "nothing says any more which records lay there";
                harm.push(format!("{file}: pages {start} to {end}: {what}"));
            }
        }
        for &id in &self.unknown {
            let what = "neither its first nor its last page says what it held";
            harm.push(format!("{}: {what}", segment_name(id)));
        }
        harm
    }
}

impl FolderInspector {
    /// Looks at a folder.
    ///
    /// # Errors
    /// When it holds no context cache, or cannot be read.
    pub fn look(path: &Path) -> Result<Self, DiskError> {
        Ok(Self { folder: DiskFolder::look(path)?, is_ours: false })
    }

    /// The same, to change it: locks it.
    ///
    /// # Errors
    /// As for [`Self::look`], and when another process uses the folder.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        // Without it, a folder would be made.
        DiskFolder::look(path)?;
        Ok(Self { folder: DiskFolder::open(path)?, is_ours: true })
    }

    /// Returns the user of the folder.
    #[must_use]
    pub fn holder(&self) -> Holder {
        let file = self.folder.lock_file();
        file.map_or(Holder::Unknown, holder::of_file)
    }

    /// Returns the budget of the last process that opened the tier, bytes; `None` if unknown.
    #[must_use]
    pub fn budget_bytes(&self) -> Option<u64> {
        budget::noted(self.folder.path())
    }

    /// Surveys the folder at `now_s`, seconds since 1970.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn survey(&self, now_s: u64) -> Result<Survey, DiskError> {
        let views = self.views(now_s)?;
        // Who uses it may be writing what is not whole yet.
        let is_still = self.is_ours || self.holder() == Holder::Nobody;
        let mut survey = Survey {
            harm: if is_still { views.harm() } else { Vec::new() },
            strangers: views.strangers.len() + views.unknown.len(),
            is_whole: true,
            ..Survey::default()
        };
        let mut files = Files {
            segments: views.segments.len(),
            segment_bytes: views.segment_bytes,
            allocated_bytes: 0,
        };
        for view in &views.segments {
            files.allocated_bytes += self.allocated_bytes(view.id)?;
            for (entry, state) in view.records() {
                let resident = entry.resident;
                let tally = match state {
                    RecordState::Kept => {
                        survey.items.push(Item {
                            resident,
                            created_s: None,
                            identity: None,
                            exactness: None,
                            at: At::Segment {
                                id: view.id.0,
                                sequence: view.sequence,
                                page: entry.page,
                            },
                        });
                        continue;
                    }
                    RecordState::Dropped(RecoveryVerdict::Expired) => &mut survey.expired,
                    RecordState::Dropped(RecoveryVerdict::Quarantined) => &mut survey.quarantined,
                    RecordState::Replaced
                    | RecordState::Dropped(RecoveryVerdict::Purged | RecoveryVerdict::Wanted) => {
                        &mut survey.garbage
                    }
                };
                tally.add(resident.bytes);
            }
        }
        survey.files = Some(files);
        Ok(survey)
    }

    /// Bytes that its segments take at most, whole or cut, and with those between that are not
    /// there: what a budget must have room for if all are to stay.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn file_bytes(&self) -> Result<u64, DiskError> {
        let files = self.folder.segments().map_err(io_at(self.folder.path()))?;
        let length = files.segments.values().max().copied().unwrap_or(0);
        let last = files.segments.keys().max();
        Ok(last.map_or(0, |last| (u64::from(last.0) + 1) * length))
    }

    fn views(&self, now_s: u64) -> Result<Views, DiskError> {
        let filter = RecoveryFilter::new(&self.folder, now_s)?;
        let files = self.folder.segments().map_err(io_at(self.folder.path()))?;
        // Without a budget: every segment is shown, also those that a
        // smaller budget would delete.
        let sorted = sort(&self.folder, &files, u64::MAX, PAGE as u64)?;
        let SortedFiles { segments, last_sequence, segment_bytes, unknown, unwanted, .. } = sorted;
        let pages = (segment_bytes / PAGE as u64) as u32;
        let mut views = Vec::with_capacity(segments.len());
        for (sequence, id) in segments {
            let scanned = scan(&self.folder, id, sequence, pages);
            let mut contents = scanned.map_err(io_at(self.folder.segment_path(id)))?;
            let damaged = contents.damaged.iter().map(|(entry, _)| entry.page);
            let damaged: HashSet<u32> = damaged.collect();
            let state = |entry: &TableEntry| match filter.verdict(sequence, entry) {
                // The next start will set these aside (`recover`).
                RecoveryVerdict::Wanted if damaged.contains(&entry.page) => {
                    RecordState::Dropped(RecoveryVerdict::Quarantined)
                }
                RecoveryVerdict::Wanted => RecordState::Kept,
                dropped => RecordState::Dropped(dropped),
            };
            // Recovery drops the same entries, so the report shows what a start would find.
            contents.entries = apart(contents.entries, pages);
            let states = contents.entries.iter().map(state).collect();
            views.push(SegmentView { id, sequence, contents, states });
        }
        mark_replaced(&mut views);
        Ok(Views {
            segments: views,
            segment_bytes,
            unknown,
            strangers: unwanted,
            last_sequence: last_sequence.max(filter.last_sequence()),
        })
    }

    fn allocated_bytes(&self, id: SegmentId) -> Result<u64, DiskError> {
        let path = self.folder.segment_path(id);
        let metadata = std::fs::metadata(&path).map_err(io_at(path))?;
        Ok(metadata.blocks() * BLOCK_BYTES)
    }

    /// Fills in what stands in the headers of records, and nothing where these are damaged.
    pub fn describe(&self, items: &mut [Item]) {
        let share = items.len().div_ceil(READERS).max(1);
        std::thread::scope(|scope| {
            for items in items.chunks_mut(share) {
                scope.spawn(move || {
                    let mut open = SegmentFileCache::default();
                    for item in items {
                        let header = self.header(&mut open, item);
                        item.created_s = header.as_ref().map(|header| header.meta.created_s);
                        item.identity = header.as_ref().map(|header| header.meta.identity);
                        item.exactness = header.map(|header| header.meta.exactness);
                    }
                });
            }
        });
    }

    fn header(&self, open: &mut SegmentFileCache, item: &Item) -> Option<Header> {
        let At::Segment { id, page, .. } = item.at else {
            return None;
        };
        // Through the page cache: most headers are shorter than what is read ahead.
        let path = self.folder.segment_path(SegmentId(id));
        let file = open.file(id, || File::open(path)).ok()?;
        let pages = (item.resident.bytes / PAGE as u64) as u32;
        let read = |pages: u32| {
            let mut bytes = vec![0; pages as usize * PAGE];
            file.read_exact_at(&mut bytes, u64::from(page) * PAGE as u64).ok()?;
            Header::read(&bytes, item.resident.bytes as usize).ok()
        };
        // One page holds most headers; only a longer one costs a second read.
        let header = read(1).or_else(|| read(pages.min(HEADER_PAGES)))?;
        // The segment may have begun another life since the survey.
        (header.meta.name == item.resident.name).then_some(header)
    }

    /// Reads and verifies records, one after the other.
    pub fn read(&self, items: &[Item], slot: &mut dyn FnMut() -> Slot, visit: &mut Visit<'_>) {
        let mut open = SegmentFileCache::default();
        for item in items {
            let read = self.read_one(&mut open, item, slot());
            visit(item, read);
        }
    }

    fn read_one(
        &self,
        open: &mut SegmentFileCache,
        item: &Item,
        mut slot: Slot,
    ) -> Result<Record, RecordReadError> {
        let At::Segment { id, sequence, page } = item.at else {
            return Err(RecordReadError::Gone);
        };
        let len = item.resident.bytes as usize;
        let file = open.file(id, || self.folder.read_segment(SegmentId(id)));
        let read = file.and_then(|file| {
            let room = slot.get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?;
            file.read_exact_at(room, u64::from(page) * PAGE as u64)
        });
        let checked = match read {
            Ok(()) => Record::verify(slot, item.resident.name).map_err(RecordReadError::Wrong),
            Err(error) => Err(RecordReadError::Unreadable(error.to_string())),
        };
        let checked = checked.and_then(|record| {
            let is_it = ResidentRecord::of_record(&record) == item.resident;
            let other = RecordReadError::Wrong(Wrong::Misplaced);
            is_it.then_some(record).ok_or(other)
        });
        match checked {
            // Under our lock nothing changes, so a failed check means damage.
            Err(_) if !self.is_ours && !self.is_life(id, sequence) => Err(RecordReadError::Gone),
            checked => checked,
        }
    }

    /// Whether a segment is still what it was.
    fn is_life(&self, id: u32, sequence: u64) -> bool {
        let path = self.folder.segment_path(SegmentId(id));
        let len = std::fs::metadata(path).map(|file| file.len());
        let head = len.and_then(|len| head(&self.folder, SegmentId(id), len));
        matches!(head, Ok(SegmentHead::Is { header, .. }) if header.sequence == sequence)
    }

    /// Notes that records are damaged.
    ///
    /// # Errors
    /// When that cannot be written.
    ///
    /// # Panics
    /// When the folder is not locked.
    pub fn set_aside(&self, items: &[(Item, Wrong)]) -> Result<(), DiskError> {
        self.assert_ours();
        for (item, wrong) in items {
            if let At::Segment { sequence, page, .. } = item.at {
                let name = item.resident.name;
                let noted = self.folder.quarantine(sequence, page, name, *wrong);
                noted.map_err(io_at(self.folder.path()))?;
            }
        }
        Ok(())
    }

    fn assert_ours(&self) {
        assert!(self.is_ours, "a folder is changed under its lock only");
    }
}

/// Of several copies the youngest counts.
fn mark_replaced(views: &mut [SegmentView]) {
    let mut kept: HashMap<BlockHash, (usize, usize)> = HashMap::new();
    for segment in 0..views.len() {
        for index in 0..views[segment].states.len() {
            if views[segment].states[index] != RecordState::Kept {
                continue;
            }
            let name = views[segment].contents.entries[index].resident.name;
            match kept.entry(name) {
                Slotted::Vacant(place) => drop(place.insert((segment, index))),
                Slotted::Occupied(mut place) => {
                    let (older, at) = place.insert((segment, index));
                    views[older].states[at] = RecordState::Replaced;
                }
            }
        }
    }
}

/// The file that was read last.
#[derive(Default)]
struct SegmentFileCache(Option<(u32, File)>);

impl SegmentFileCache {
    fn file(&mut self, id: u32, open: impl FnOnce() -> io::Result<File>) -> io::Result<&File> {
        // Items come segment by segment, so one open file is enough.
        if self.0.as_ref().is_none_or(|(known, _)| *known != id) {
            self.0 = Some((id, open()?));
        }
        let (_, file) = self.0.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(file)
    }
}
