//! What a folder holds, found out at start: sealed segments by their footers, others group by
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
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use headstart_core::{BlockHash, TenantTag};

use super::folder::{DiskError, Files, Folder, io_at};
use super::index::{Index, Place};
use super::layout::{
    Entry, Kind, MAX_ENTRIES, SEQUENCES, SegmentHeader, Table, Trailer, claimed_entries,
    is_segment_bytes, read_table, table_pages, write_table,
};
use super::space::{SegmentId, Space};
use super::{FEWEST_SEGMENTS, LISTS_BYTES};
use crate::backend::Resident;
use crate::record::{PAGE, verify_bytes};

/// What was found.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) index: Index,
    pub(super) space: Space,
    /// Oldest first.
    pub(super) residents: Vec<Resident>,
    pub(super) segment_bytes: u64,
    /// Segments that can be written: nothing else is in their place.
    pub(super) num_usable: u64,
}

/// A segment that was found.
struct Found {
    id: SegmentId,
    sequence: u64,
    entries: Vec<Entry>,
}

/// Which files are segments of this tier, and which go.
struct Sorted {
    /// By sequence number.
    segments: BTreeMap<u64, SegmentId>,
    segment_bytes: u64,
    count: usize,
    unwanted: Vec<SegmentId>,
}

/// Reads the folder. Segments are as long as the youngest one, or `segment_bytes` where there is
/// none; those of another length, and those that `budget_bytes` has no place for, are deleted.
pub(super) fn recover(
    folder: &Folder,
    budget_bytes: u64,
    segment_bytes: u64,
    now_s: u64,
) -> Result<Recovered, DiskError> {
    let filter = Filter::new(folder, now_s)?;
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
    let mut recovered = Recovered {
        index: Index::new(sorted.count),
        space: Space::new(sorted.count, pages),
        residents: Vec::new(),
        segment_bytes: sorted.segment_bytes,
        num_usable,
    };
    files.others.iter().filter(is_blocked).for_each(|&id| {
        recovered.space.block(id);
    });
    for (sequence, id) in sorted.segments {
        let entries = entries(folder, id, sequence, pages);
        let entries = entries.map_err(io_at(folder.segment_path(id)))?;
        let found = Found {
            id,
            sequence,
            entries,
        };
        recovered.add(found, &filter);
    }
    for id in sorted.unwanted {
        let removed = folder.remove_segment(id);
        removed.map_err(io_at(folder.segment_path(id)))?;
    }
    recovered.settle();
    recovered.space.skip_to(filter.last_sequence());
    Ok(recovered)
}

/// Reads the first pages; changes nothing.
fn sort(
    folder: &Folder,
    files: &Files,
    budget_bytes: u64,
    segment_bytes: u64,
) -> Result<Sorted, DiskError> {
    let mut headed = Vec::new();
    let mut unwanted = Vec::new();
    for (&id, &len) in &files.segments {
        let header = header(folder, id, len);
        match header.map_err(io_at(folder.segment_path(id)))? {
            Some(header) => headed.push((id, header)),
            None => unwanted.push(id),
        }
    }
    let youngest = headed
        .iter()
        .max_by_key(|(id, header)| (header.sequence, Reverse(*id)));
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
    Ok(Sorted {
        segments,
        segment_bytes,
        count,
        unwanted,
    })
}

/// What must not come back.
struct Filter {
    quarantined: HashSet<(u64, u32)>,
    purged: BTreeMap<TenantTag, u64>,
    now_s: u64,
}

impl Filter {
    fn new(folder: &Folder, now_s: u64) -> Result<Self, DiskError> {
        Ok(Self {
            quarantined: folder.quarantined()?.into_iter().collect(),
            purged: folder.purged()?,
            now_s,
        })
    }

    fn passes(&self, sequence: u64, entry: &Entry) -> bool {
        let is_purged = self.purged.get(&entry.tenant);
        let is_purged = is_purged.is_some_and(|&upto| sequence <= upto);
        let is_expired = entry.expires_s.is_some_and(|at| at <= self.now_s);
        !is_purged && !is_expired && !self.quarantined.contains(&(sequence, entry.page))
    }

    /// The highest sequence number that is named here: a new segment of that number would be taken
    /// for the old one.
    fn last_sequence(&self) -> u64 {
        let quarantined = self.quarantined.iter().map(|&(sequence, _)| sequence);
        let named = quarantined.chain(self.purged.values().copied());
        named.max().unwrap_or(0)
    }
}

impl Recovered {
    /// Takes in a segment that is younger than those before it.
    fn add(&mut self, found: Found, filter: &Filter) {
        let Found {
            id,
            sequence,
            entries,
        } = found;
        self.space.found(id, sequence, 0);
        for entry in entries {
            self.index.note(id, &entry);
            if !filter.passes(sequence, &entry) {
                continue;
            }
            // Moved while segments were cleaned: the younger copy counts.
            self.index.insert(entry.name, Place::of(id, &entry));
            self.residents.push(entry.resident());
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
        self.residents.reverse();
        self.residents.retain(|resident| seen.insert(resident.name));
        self.residents.reverse();
    }
}

fn header(folder: &Folder, id: SegmentId, len: u64) -> io::Result<Option<SegmentHeader>> {
    if !is_segment_bytes(len) {
        return Ok(None);
    }
    let file = File::open(folder.segment_path(id))?;
    let page = read_pages(&file, 0, 1)?;
    let header = page.and_then(|page| SegmentHeader::read(&page));
    let is_ours =
        |header: &SegmentHeader| header.segment_bytes == len && header.sequence < SEQUENCES;
    Ok(header.filter(is_ours))
}

/// The records of a segment, in the order in which they were added.
fn entries(folder: &Folder, id: SegmentId, sequence: u64, pages: u32) -> io::Result<Vec<Entry>> {
    let file = File::open(folder.segment_path(id))?;
    let mut scan = Scan {
        file: &file,
        sequence,
        pages,
        table_pages_left: 2 * u64::from(pages),
    };
    if let Some(table) = scan.footer()? {
        return Ok(apart(table.entries, pages));
    }
    let (entries, end) = scan.groups()?;
    // So that the next start need not read all of it again; if it fails, it will.
    let _ = write_footer(folder, id, sequence, &entries, (end, pages));
    Ok(apart(entries, pages))
}

/// Those that lie within a segment, one behind the other, as they were added.
fn apart(mut entries: Vec<Entry>, pages: u32) -> Vec<Entry> {
    let mut free = 1;
    entries.retain(|entry| {
        let start = u64::from(entry.page);
        let end = start + u64::from(entry.pages);
        let is_right = free <= start && start < end && end < u64::from(pages);
        if is_right {
            free = end;
        }
        is_right
    });
    entries
}

/// Nothing where the file ends before.
fn read_pages(file: &File, page: u32, count: usize) -> io::Result<Option<Vec<u8>>> {
    let mut pages = vec![0; count * PAGE];
    match file.read_exact_at(&mut pages, u64::from(page) * PAGE as u64) {
        Ok(()) => Ok(Some(pages)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one segment.
struct Scan<'a> {
    file: &'a File,
    sequence: u64,
    pages: u32,
    /// How much of tables longer than a page may still be read: twice what the segment can hold.
    /// Without this limit pages that only claim to be tables would cost quadratic time.
    table_pages_left: u64,
}

impl Scan<'_> {
    fn footer(&self) -> io::Result<Option<Table>> {
        let Some(last) = read_pages(self.file, self.pages - 1, 1)? else {
            return Ok(None);
        };
        let Some((page, count)) = Trailer::read(&last).and_then(|trailer| self.within(trailer))
        else {
            return Ok(None);
        };
        let bytes = read_pages(self.file, page, count)?;
        Ok(bytes.and_then(|bytes| read_table(Kind::Footer, self.sequence, &bytes)))
    }

    /// Where the footer is, and how long, if this can be so.
    fn within(&self, trailer: Trailer) -> Option<(u32, usize)> {
        let (page, count) = (trailer.footer_page, trailer.footer_pages);
        let most = table_pages(MAX_ENTRIES.min(self.pages as usize)) as u64;
        let is_within = trailer.sequence == self.sequence
            && count <= most
            && page.checked_add(count)? <= u64::from(self.pages);
        is_within.then_some((page as u32, count as usize))
    }

    /// What can be read of an unsealed segment, and the page behind its last group. Where a table
    /// is damaged the next one is looked for, page by page.
    fn groups(&mut self) -> io::Result<(Vec<Entry>, u32)> {
        let mut entries = Vec::new();
        let (mut at, mut end, mut least) = (1, 1, 0);
        while at + 1 < self.pages {
            let found = self.group(at)?;
            let found = found.filter(|(table, _)| (least..u64::MAX).contains(&table.number));
            let Some((table, behind)) = found else {
                at += 1;
                continue;
            };
            for entry in table.entries {
                if self.is_whole(&entry)? {
                    entries.push(entry);
                }
            }
            least = table.number + 1;
            end = behind;
            at = behind;
        }
        Ok((entries, end))
    }

    /// The table of the group at page `at`, and the page behind the group.
    fn group(&mut self, at: u32) -> io::Result<Option<(Table, u32)>> {
        let Some(first) = read_pages(self.file, at, 1)? else {
            return Ok(None);
        };
        let Some(count) = claimed_entries(Kind::Group, self.sequence, &first) else {
            return Ok(None);
        };
        // Each of its records has a page at least, and the last page is the trailer's.
        let own = table_pages(count);
        if at as usize + own + count >= self.pages as usize {
            return Ok(None);
        }
        let bytes = match own {
            1 => Some(first),
            _ if own as u64 > self.table_pages_left => None,
            _ => {
                self.table_pages_left -= own as u64;
                read_pages(self.file, at, own)?
            }
        };
        let table = bytes.and_then(|bytes| read_table(Kind::Group, self.sequence, &bytes));
        Ok(table.and_then(|table| {
            let end = behind(&table, at + own as u32)?;
            (end < self.pages).then_some((table, end))
        }))
    }

    fn is_whole(&self, entry: &Entry) -> io::Result<bool> {
        let bytes = read_pages(self.file, entry.page, entry.pages as usize)?;
        Ok(bytes.is_some_and(|bytes| verify_bytes(&bytes, entry.name).is_ok()))
    }
}

/// The page behind the records of a table, which begin at page `start` without gaps.
fn behind(table: &Table, start: u32) -> Option<u32> {
    let mut entries = table.entries.iter();
    entries.try_fold(start, |end, entry| {
        let is_next = entry.page == end;
        is_next.then(|| end.checked_add(entry.pages))?
    })
}

/// Seals a segment that the last process left open: its last group ends before page `end`.
fn write_footer(
    folder: &Folder,
    id: SegmentId,
    sequence: u64,
    entries: &[Entry],
    (end, pages): (u32, u32),
) -> io::Result<()> {
    let footer_pages = table_pages(entries.len());
    if u64::from(end) + footer_pages as u64 >= u64::from(pages) {
        return Ok(());
    }
    let file = File::options().write(true).open(folder.segment_path(id))?;
    let mut footer = vec![0; footer_pages * PAGE];
    write_table(Kind::Footer, sequence, 0, entries, &mut footer);
    file.write_all_at(&footer, u64::from(end) * PAGE as u64)?;
    file.sync_data()?;
    let trailer = Trailer {
        sequence,
        footer_page: u64::from(end),
        footer_pages: footer_pages as u64,
    };
    let mut page = vec![0; PAGE];
    trailer.write(&mut page);
    file.write_all_at(&page, u64::from(pages - 1) * PAGE as u64)?;
    file.sync_data()
}
