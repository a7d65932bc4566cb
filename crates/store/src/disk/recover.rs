//! Recovery of a folder's contents at start: sealed segments by their footers, others group by
//! group.
//!
//! A group that was being written when the process died is taken as far as its records verify: it
//! was never reported as stored, but what is whole is whole. Nothing is believed that a checksum
//! does not confirm, and records of sealed segments are verified when they are read.
//!
//! What cannot be read is not taken for missing: the first read that fails ends it, before any file
//! is deleted. Files may hold anything; that costs bounded time and memory, and no panic.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use headstart_core::{BlockHash, TenantTag};

use super::folder::{DiskError, DiskFolder, FolderListing, destroy, io_at};
use super::index::{Index, RecordLocation};
use super::layout::{SegmentHeader, TableEntry};
use super::scan::{
    SegmentContents, SegmentHead, SegmentPages, apart, head, scan, set_aside, write_footer,
    write_header,
};
use super::space::{SegmentId, SegmentSpace};
use super::{FEWEST_SEGMENTS, LISTS_BYTES};
use crate::backend::ResidentRecord;
use crate::record::PAGE;

/// Result of recovery.
#[derive(Debug)]
pub(super) struct RecoveredState {
    pub(super) index: Index,
    pub(super) space: SegmentSpace,
    /// Oldest first.
    pub(super) residents: Vec<ResidentRecord>,
    pub(super) segment_bytes: u64,
    /// Segments that can be written: nothing else is in their place.
    pub(super) num_usable: u64,
}

/// A segment that was found.
struct FoundSegment {
    id: SegmentId,
    sequence: u64,
    entries: Vec<TableEntry>,
}

/// Files of a folder, sorted into segments of this tier and files to delete.
pub(super) struct SortedFiles {
    /// By sequence number.
    pub(super) segments: BTreeMap<u64, SegmentId>,
    /// The highest number of any, also of those that go.
    pub(super) last_sequence: u64,
    pub(super) segment_bytes: u64,
    count: usize,
    /// Segments without a valid first page, with the header it should hold.
    headless: Vec<(SegmentId, SegmentHeader)>,
    /// Files of unknown contents.
    pub(super) unknown: Vec<SegmentId>,
    pub(super) unwanted: Vec<SegmentId>,
}

/// Reads the folder. Segments are as long as the youngest one, or `segment_bytes` in an empty
/// folder. Segments of another length, and those that exceed `budget_bytes`, are deleted.
pub(super) fn recover(
    folder: &DiskFolder,
    budget_bytes: u64,
    segment_bytes: u64,
    now_s: u64,
) -> Result<RecoveredState, DiskError> {
    // Before any file changes: without the list of purges, purged records could come back.
    let mut filter = RecoveryFilter::new(folder, now_s)?;
    let files = folder.segments().map_err(io_at(folder.path()))?;
    let sorted = sort(folder, &files, budget_bytes, segment_bytes)?;
    let is_blocked = |id: &&SegmentId| id.index() < sorted.count;
    let num_blocked = files.others.iter().filter(is_blocked).count();
    let num_usable = (sorted.count - num_blocked) as u64;
    if num_usable < FEWEST_SEGMENTS {
        let fewest = FEWEST_SEGMENTS + files.others.len() as u64;
        return Err(DiskError::TooSmall {
            budget: budget_bytes + LISTS_BYTES,
            least: fewest * sorted.segment_bytes + LISTS_BYTES,
        });
    }
    let pages = (sorted.segment_bytes / PAGE as u64) as u32;
    let mut recovered = RecoveredState {
        index: Index::new(sorted.count),
        space: SegmentSpace::new(sorted.count, pages),
        residents: Vec::new(),
        segment_bytes: sorted.segment_bytes,
        num_usable,
    };
    files.others.iter().filter(is_blocked).for_each(|&id| {
        recovered.space.block(id);
    });
    // Oldest first, so that a younger copy of a record replaces the older one.
    for (sequence, id) in sorted.segments {
        let scanned = scan(folder, id, sequence, pages);
        let scanned = scanned.map_err(io_at(folder.segment_path(id)))?;
        // Entered before `add`, which would otherwise take damaged records for good ones.
        for (entry, _) in &scanned.damaged {
            filter.quarantined.insert((sequence, entry.page));
        }
        if !scanned.is_sealed() {
            // So that the next start need not read all of it again; if it fails, it will.
            let _ = seal(folder, id, sequence, &scanned, pages);
        }
        let found = FoundSegment { id, sequence, entries: apart(scanned.entries, pages) };
        recovered.add(found, &filter);
    }
    for (id, header) in sorted.headless {
        // The copy is needed no less than before if that fails; where the file goes, it is gone.
        let _ = write_header(folder, id, header);
    }
    for id in sorted.unknown {
        // Nothing tells which tenants it holds, so that no later purge could find their records.
        let noted = folder.quarantine_segment(id);
        let removed = folder.remove_segment(id);
        removed.map_err(io_at(folder.segment_path(id)))?;
        if noted.is_err() {
            // There may have been no room for it.
            let _ = folder.quarantine_segment(id);
        }
    }
    for id in sorted.unwanted {
        let removed = folder.remove_segment(id);
        removed.map_err(io_at(folder.segment_path(id)))?;
    }
    recovered.settle();
    let last_sequence = sorted.last_sequence.max(filter.last_sequence());
    recovered.space.skip_to(last_sequence);
    Ok(recovered)
}

/// Seals a segment that the last process left open. Damaged and hidden records are noted first.
/// Pages of an unknown tenant are destroyed, since no later purge would find them.
fn seal(
    folder: &DiskFolder,
    id: SegmentId,
    sequence: u64,
    scanned: &SegmentContents,
    pages: u32,
) -> std::io::Result<()> {
    set_aside(folder, sequence, scanned)?;
    if !scanned.unknown.is_empty() {
        let path = folder.segment_path(id);
        let file = std::fs::File::options().write(true).open(path)?;
        for unknown in &scanned.unknown {
            destroy(&file, unknown.start, unknown.end - unknown.start)?;
        }
        // Durable before the footer: a sealed segment is not searched for unknown pages again.
        file.sync_data()?;
    }
    let pages = SegmentPages { end: scanned.end, all: pages };
    write_footer(folder, id, sequence, &scanned.entries, pages)
}

/// Reads the first and last pages; changes nothing.
pub(super) fn sort(
    folder: &DiskFolder,
    files: &FolderListing,
    budget_bytes: u64,
    segment_bytes: u64,
) -> Result<SortedFiles, DiskError> {
    let (mut headed, mut headless) = (Vec::new(), Vec::new());
    let (mut unknown, mut unwanted) = (Vec::new(), Vec::new());
    for (&id, &len) in &files.segments {
        let head = head(folder, id, len);
        match head.map_err(io_at(folder.segment_path(id)))? {
            SegmentHead::Is { header, is_first } => {
                headed.push((id, header));
                if !is_first {
                    headless.push((id, header));
                }
            }
            SegmentHead::Unknown => unknown.push(id),
            SegmentHead::Blank => unwanted.push(id),
        }
    }
    // Of two copies of one segment the lower id counts, as in the loop below.
    let youngest = headed.iter().max_by_key(|(id, header)| (header.sequence, Reverse(*id)));
    let last_sequence = youngest.map_or(0, |(_, header)| header.sequence);
    // The folder's own length wins, so that a start with another budget keeps the records.
    let segment_bytes = youngest.map_or(segment_bytes, |(_, header)| header.segment_bytes);
    let count = (budget_bytes / segment_bytes) as usize;
    let mut segments = BTreeMap::new();
    for (id, header) in headed {
        let fits = id.index() < count && header.segment_bytes == segment_bytes;
        // Of copies of one segment the first is kept.
        if fits && !segments.contains_key(&header.sequence) {
            segments.insert(header.sequence, id);
        } else {
            unwanted.push(id);
        }
    }
    Ok(SortedFiles { segments, last_sequence, segment_bytes, count, headless, unknown, unwanted })
}

/// Records that must not be recovered.
pub(super) struct RecoveryFilter {
    quarantined: HashSet<(u64, u32)>,
    purged: BTreeMap<TenantTag, u64>,
    now_s: u64,
}

/// Whether a record may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryVerdict {
    Wanted,
    Purged,
    Quarantined,
    Expired,
}

impl RecoveryFilter {
    pub(super) fn new(folder: &DiskFolder, now_s: u64) -> Result<Self, DiskError> {
        Ok(Self {
            quarantined: folder.quarantined()?.into_iter().collect(),
            purged: folder.purged()?,
            now_s,
        })
    }

    pub(super) fn verdict(&self, sequence: u64, entry: &TableEntry) -> RecoveryVerdict {
        let purged_upto = self.purged.get(&entry.resident.tenant);
        // Records that the tenant stored after the purge are in later segments.
        if purged_upto.is_some_and(|&upto| sequence <= upto) {
            RecoveryVerdict::Purged
        } else if self.quarantined.contains(&(sequence, entry.page)) {
            RecoveryVerdict::Quarantined
        } else if entry.resident.expires_s.is_some_and(|at| at <= self.now_s) {
            RecoveryVerdict::Expired
        } else {
            RecoveryVerdict::Wanted
        }
    }

    /// The highest sequence number that is named here: a new segment of that number would be taken
    /// for the old one.
    pub(super) fn last_sequence(&self) -> u64 {
        let quarantined = self.quarantined.iter().map(|&(sequence, _)| sequence);
        let named = quarantined.chain(self.purged.values().copied());
        named.max().unwrap_or(0)
    }
}

impl RecoveredState {
    /// Takes in a segment that is younger than those before it.
    fn add(&mut self, found: FoundSegment, filter: &RecoveryFilter) {
        let FoundSegment { id, sequence, entries } = found;
        self.space.found(id, sequence, 0);
        for entry in entries {
            // Unwanted records are noted as well: a purge has to overwrite their bytes, too.
            self.index.note(id, &entry);
            if filter.verdict(sequence, &entry) != RecoveryVerdict::Wanted {
                continue;
            }
            // Moved while segments were cleaned: the younger copy counts.
            self.index.insert(entry.resident.name, RecordLocation::of(id, &entry));
            self.residents.push(entry.resident);
        }
    }

    /// Counts what is wanted, now that every name has one place.
    fn settle(&mut self) {
        let mut live: HashMap<SegmentId, u32> = HashMap::new();
        for (_, place) in self.index.iter() {
            *live.entry(place.segment).or_default() += place.pages;
        }
        for (id, pages) in live {
            let sequence = self.space.sequence(id);
            self.space.found(id, sequence, pages);
        }
        let mut seen: HashSet<BlockHash> = HashSet::with_capacity(self.residents.len());
        // Reversed twice, to keep the youngest copy of each name at its own place in the order.
        self.residents.reverse();
        self.residents.retain(|resident| seen.insert(resident.name));
        self.residents.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::layout::{TableKind, write_table};
    use crate::record::Wrong;
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    const SEGMENT: u64 = 256 << 10;
    const PAGES: u32 = (SEGMENT / PAGE as u64) as u32;
    const BUDGET: u64 = 8 * SEGMENT;

    fn place() -> (tempfile::TempDir, DiskFolder) {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DiskFolder::open(place.path()).expect("it is free");
        (place, folder)
    }

    fn entry(number: u64, page: u32, pages: u32) -> TableEntry {
        let resident = ResidentRecord {
            name: BlockHash::from_u64(number),
            parent: None,
            tenant: TenantTag(1),
            bytes: u64::from(pages) * PAGE as u64,
            tokens: 16,
            expires_s: None,
            content: crate::record::Content::Unit,
        };
        TableEntry { resident, page }
    }

    /// A sealed segment whose footer says this.
    fn seal(
        folder: &DiskFolder,
        id: u32,
        (sequence, segment_bytes): (u64, u64),
        entries: &[TableEntry],
    ) {
        let header = SegmentHeader { sequence, segment_bytes };
        let mut page = vec![0; PAGE];
        header.write(&mut page);
        let file = File::create(folder.segment_path(SegmentId(id))).expect("a file");
        file.set_len(segment_bytes).expect("room");
        file.write_all_at(&page, 0).expect("written");
        let pages = (segment_bytes / PAGE as u64) as u32;
        let pages = SegmentPages { end: 20, all: pages };
        let written = write_footer(folder, SegmentId(id), sequence, entries, pages);
        written.expect("written");
    }

    fn num_files(place: &Path) -> usize {
        fs::read_dir(place).expect("a folder").count()
    }

    #[test]
    fn records_over_each_other_do_not_count() {
        let (_place, folder) = place();
        let over = [
            entry(1, 1, 3),
            entry(2, 3, 1),
            entry(3, 4, u32::MAX),
            entry(4, 4, 0),
            entry(5, 4, 2),
            entry(6, 6, PAGES - 7),
            entry(7, 6, PAGES - 6),
        ];
        seal(&folder, 0, (1, SEGMENT), &over);
        let recovered = recover(&folder, BUDGET, SEGMENT, 0).expect("it is read");
        let names = recovered.residents.iter().map(|resident| resident.name);
        let right = [1, 5, 6].map(BlockHash::from_u64);
        assert_eq!(names.collect::<Vec<_>>(), right);
        assert_eq!(recovered.space.live(SegmentId(0)), PAGES - 2);
    }

    #[test]
    fn what_is_not_whole_in_an_open_segment_is_noted_once() {
        let (_place, folder) = place();
        seal(&folder, 0, (3, SEGMENT), &[]);
        let mut table = vec![0; PAGE];
        let entries = [entry(1, 2, 1), entry(2, 3, 1)];
        write_table(TableKind::Group, 3, 0, &entries, &mut table);
        let path = folder.segment_path(SegmentId(0));
        let file = File::options().write(true).open(path).expect("a file");
        file.write_all_at(&table, PAGE as u64).expect("written");
        let trailer = SEGMENT - PAGE as u64;
        file.write_all_at(&[0; PAGE], trailer).expect("written");
        for start in 0..2 {
            let recovered = recover(&folder, BUDGET, SEGMENT, 0).expect("it is read");
            assert!(recovered.residents.is_empty());
            let noted = folder.quarantined().expect("a list");
            assert_eq!(noted, [(3, 2), (3, 3)], "start {start}");
        }
    }

    #[test]
    fn of_copies_the_first_is_kept_and_no_number_comes_twice() {
        let (place, folder) = place();
        for id in [5, 3, 900] {
            seal(&folder, id, (7, SEGMENT), &[entry(1, 1, 1)]);
        }
        seal(&folder, 901, (9, SEGMENT), &[]);
        let mut recovered = recover(&folder, BUDGET, SEGMENT, 0).expect("it is read");
        assert_eq!(recovered.residents.len(), 1);
        assert_eq!(recovered.space.sequence(SegmentId(3)), 7);
        assert_eq!(num_files(place.path()), 2, "the lock and one of them");
        let next = |recovered: &mut RecoveredState| recovered.space.open().expect("a free one").1;
        assert_eq!(next(&mut recovered), 10, "behind what was deleted");
        let check = |right| {
            let mut recovered = recover(&folder, BUDGET, SEGMENT, 0).expect("it is read");
            assert_eq!(next(&mut recovered), right);
        };
        check(8);
        folder.note_purge(TenantTag(2), 20, 0).expect("noted");
        check(21);
        let name = BlockHash::from_u64(1);
        let noted = folder.quarantine(30, 1, name, Wrong::Header);
        noted.expect("noted");
        check(31);
        let noted = folder.quarantine(u64::MAX, 1, name, Wrong::Header);
        noted.expect("noted");
        check(31);
    }

    #[test]
    fn nothing_is_deleted_where_it_does_not_open() {
        let (place, folder) = place();
        fs::write(folder.segment_path(SegmentId(1)), "not whole").expect("written");
        seal(&folder, 0, (7, SEGMENT), &[entry(1, 1, 1)]);
        seal(&folder, 900, (6, SEGMENT), &[]);
        let error = recover(&folder, 4 * SEGMENT - 1, SEGMENT, 0).expect_err("no room");
        let right = 4 * SEGMENT + LISTS_BYTES;
        let is_right = matches!(error, DiskError::TooSmall { least, .. } if least == right);
        assert!(is_right, "{error}");
        fs::write(place.path().join("purged"), "0 1").expect("written");
        recover(&folder, BUDGET, SEGMENT, 0).expect_err("a list that is not whole");
        assert_eq!(num_files(place.path()), 5);
        fs::remove_file(place.path().join("purged")).expect("removed");
        recover(&folder, BUDGET, SEGMENT, 0).expect("it is read");
        let what = "the lock, one of them, and what is said of the one nobody can read";
        assert_eq!(num_files(place.path()), 3, "{what}");
    }

    #[test]
    fn what_is_no_file_is_in_the_way_and_stays() {
        let (place, folder) = place();
        fs::create_dir(folder.segment_path(SegmentId(0))).expect("made");
        let recovered = recover(&folder, 5 * SEGMENT, SEGMENT, 0).expect("four are left");
        assert_eq!(recovered.num_usable, 4);
        let mut space = recovered.space;
        assert_eq!((space.num_free(), space.make_room(false)), (4, None));
        assert_eq!(space.open(), Some((SegmentId(1), 1)));
        assert_eq!(space.sequences(), (1, 1));
        recover(&folder, 4 * SEGMENT, SEGMENT, 0).expect_err("three are left");
        assert_eq!(num_files(place.path()), 2);
    }

    #[test]
    fn pages_that_claim_as_much_as_can_be_are_read_in_time() {
        let (_place, folder) = place();
        let bytes: u64 = 32 << 20;
        seal(&folder, 0, (5, bytes), &[]);
        let path = folder.segment_path(SegmentId(0));
        let file = File::options().write(true).open(path).expect("a file");
        let pages = bytes / PAGE as u64;
        for page in 1..pages {
            let left = (pages - page).saturating_sub(200);
            let kind = [TableKind::Group, TableKind::GroupEnd][page as usize % 2];
            let fields = [kind as u64, 5, 0, left];
            let claim: Vec<u8> = fields.into_iter().flat_map(u64::to_le_bytes).collect();
            let at = page * PAGE as u64;
            file.write_all_at(&claim, at).expect("written");
        }
        let started = Instant::now();
        let recovered = recover(&folder, 8 * bytes, bytes, 0).expect("it is read");
        let took = started.elapsed();
        assert!(recovered.residents.is_empty());
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}
