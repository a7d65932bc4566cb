//! What a folder holds, found out at start: sealed segments by their footers, others group by
//! group.
//!
//! A group that was being written when the process died is taken as far as its records verify: it
//! was never reported as stored, but what is whole is whole. Nothing is believed that a checksum
//! does not confirm, and records of sealed segments are verified when they are read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use headstart_core::BlockHash;

use super::folder::Folder;
use super::index::{Index, Place};
use super::layout::{
    Entry, Kind, SegmentHeader, Table, Trailer, claimed_entries, read_table, table_pages,
    write_table,
};
use super::space::{SegmentId, Space};
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
}

/// A segment that was found.
struct Found {
    id: SegmentId,
    sequence: u64,
    entries: Vec<Entry>,
}

/// Reads the folder. Segments are as long as the youngest one, or `segment_bytes` where there is
/// none; those of another length, and those that `budget_bytes` has no place for, are deleted.
pub(super) fn recover(
    folder: &Folder,
    budget_bytes: u64,
    segment_bytes: u64,
    now_s: u64,
) -> io::Result<Recovered> {
    let files = folder.segments()?;
    let mut headers = BTreeMap::new();
    for (&number, &len) in &files {
        match header(folder, SegmentId(number), len)? {
            Some(header) => {
                headers.insert(header.sequence, (SegmentId(number), header));
            }
            None => folder.remove_segment(number)?,
        }
    }
    let last = headers.last_key_value();
    let segment_bytes = last.map_or(segment_bytes, |(_, (_, header))| header.segment_bytes);
    let count = (budget_bytes / segment_bytes) as usize;
    let fits = |(id, header): &(SegmentId, SegmentHeader)| {
        id.index() < count && header.segment_bytes == segment_bytes
    };
    for (id, _) in headers.values().filter(|segment| !fits(segment)) {
        folder.remove_segment(id.0)?;
    }
    headers.retain(|_, segment| fits(segment));
    let pages = (segment_bytes / PAGE as u64) as u32;
    let mut recovered = Recovered {
        index: Index::new(count),
        space: Space::new(count, pages),
        residents: Vec::new(),
        segment_bytes,
    };
    let filter = Filter::new(folder, now_s);
    for (sequence, (id, _)) in headers {
        let entries = entries(folder, id, sequence, pages)?;
        let found = Found {
            id,
            sequence,
            entries,
        };
        recovered.add(found, &filter);
    }
    recovered.settle();
    Ok(recovered)
}

/// What must not come back.
struct Filter {
    quarantined: HashSet<(u64, u32)>,
    purged: BTreeMap<headstart_core::TenantTag, u64>,
    now_s: u64,
}

impl Filter {
    fn new(folder: &Folder, now_s: u64) -> Self {
        Self {
            quarantined: folder.quarantined().into_iter().collect(),
            purged: folder.purged(),
            now_s,
        }
    }

    fn passes(&self, sequence: u64, entry: &Entry) -> bool {
        let is_purged = self.purged.get(&entry.tenant);
        let is_purged = is_purged.is_some_and(|&upto| sequence <= upto);
        let is_expired = entry.expires_s.is_some_and(|at| at <= self.now_s);
        !is_purged && !is_expired && !self.quarantined.contains(&(sequence, entry.page))
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
    let file = File::open(folder.segment_path(id))?;
    let mut page = vec![0; PAGE];
    let is_read = len >= PAGE as u64 && file.read_exact_at(&mut page, 0).is_ok();
    let header = is_read.then(|| SegmentHeader::read(&page)).flatten();
    Ok(header.filter(|header| header.segment_bytes == len && len.is_multiple_of(PAGE as u64)))
}

/// The records of a segment, in the order in which they were added.
fn entries(folder: &Folder, id: SegmentId, sequence: u64, pages: u32) -> io::Result<Vec<Entry>> {
    let file = File::open(folder.segment_path(id))?;
    let listed = match footer(&file, sequence, pages) {
        Some(table) => table.entries,
        None => {
            let (entries, end) = groups(&file, sequence, pages);
            // So that the next start need not read all of it again; if it fails, it will.
            let _ = write_footer(folder, id, sequence, &entries, (end, pages));
            entries
        }
    };
    let lies_within = |entry: &Entry| {
        let end = u64::from(entry.page) + u64::from(entry.pages);
        entry.page > 0 && entry.pages > 0 && end < u64::from(pages)
    };
    Ok(listed.into_iter().filter(lies_within).collect())
}

fn read_pages(file: &File, page: u64, count: usize) -> Option<Vec<u8>> {
    let mut pages = vec![0; count * PAGE];
    file.read_exact_at(&mut pages, page * PAGE as u64).ok()?;
    Some(pages)
}

fn footer(file: &File, sequence: u64, pages: u32) -> Option<Table> {
    let last = read_pages(file, u64::from(pages) - 1, 1)?;
    let trailer = Trailer::read(&last)?;
    let end = trailer.footer_page.checked_add(trailer.footer_pages)?;
    if trailer.sequence != sequence || end > u64::from(pages) {
        return None;
    }
    let bytes = read_pages(file, trailer.footer_page, trailer.footer_pages as usize)?;
    read_table(Kind::Footer, sequence, &bytes)
}

/// What can be read of an unsealed segment, and the page behind its last group. Where a table is
/// damaged the next one is looked for, page by page.
fn groups(file: &File, sequence: u64, pages: u32) -> (Vec<Entry>, u32) {
    let mut entries = Vec::new();
    let mut end = 1;
    let mut at = 1;
    let mut least = 0;
    while at + 1 < pages {
        let found = group(file, sequence, at, pages);
        let Some((table, behind)) = found.filter(|(table, _)| table.number >= least) else {
            at += 1;
            continue;
        };
        let whole = table.entries.into_iter();
        entries.extend(whole.filter(|entry| is_whole(file, entry)));
        least = table.number + 1;
        end = behind;
        at = behind;
    }
    (entries, end)
}

/// The table of the group at page `at`, and the page behind the group.
fn group(file: &File, sequence: u64, at: u32, pages: u32) -> Option<(Table, u32)> {
    let first = read_pages(file, u64::from(at), 1)?;
    let count = claimed_entries(Kind::Group, sequence, &first)?;
    let own = table_pages(count);
    if u64::from(at) + own as u64 >= u64::from(pages) {
        return None;
    }
    let bytes = read_pages(file, u64::from(at), own)?;
    let table = read_table(Kind::Group, sequence, &bytes)?;
    let mut end = at + own as u32;
    for entry in &table.entries {
        end = (entry.page == end).then(|| end.checked_add(entry.pages))??;
    }
    (end < pages).then_some((table, end))
}

fn is_whole(file: &File, entry: &Entry) -> bool {
    let bytes = read_pages(file, u64::from(entry.page), entry.pages as usize);
    bytes.is_some_and(|bytes| verify_bytes(&bytes, entry.name).is_ok())
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
