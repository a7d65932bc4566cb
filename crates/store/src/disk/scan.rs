//! Scan of one segment's file: its life and its records.
//!
//! Everything that locates records exists twice, so that one damaged page hides nothing: the header
//! again in the last page (until a trailer, which says the same, takes its place), the table of a
//! group again behind its records, and all tables again in the footer. Where both copies are
//! damaged, the pages are reported as unknown, as far as they differ from pages that were never
//! written.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::folder::DiskFolder;
use super::layout::{
    MAX_ENTRIES, RecordTable, SEQUENCES, SegmentHeader, TableEntry, TableKind, Trailer,
    claimed_entries, is_segment_bytes, read_table, table_pages, write_table,
};
use super::space::SegmentId;
use crate::record::{PAGE, Wrong, verify_bytes};

/// Result of reading the first and the last page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentHead {
    /// A segment; it may be longer than the file is.
    Is {
        header: SegmentHeader,
        /// Whether its first page says so.
        is_first: bool,
    },
    /// Both pages are damaged, or the file is foreign.
    Unknown,
    /// Nothing was ever written there.
    Blank,
}

/// Reads the first and the last page of a file of `len` bytes. The later life counts: a page that
/// was not written may be left from an earlier one.
///
/// # Errors
/// When neither tells, and one of them could not be read.
pub(super) fn head(folder: &DiskFolder, id: SegmentId, len: u64) -> io::Result<SegmentHead> {
    let file = File::open(folder.segment_path(id))?;
    let first = read_pages(&file, 0, 1);
    let last = if is_segment_bytes(len) {
        read_pages(&file, (len / PAGE as u64 - 1) as u32, 1)
    } else {
        Ok(None)
    };
    let header = page_of(&first).and_then(SegmentHeader::read);
    // A file may be cut short, but no tier makes one longer than its header says.
    let header = header.filter(|header| len <= header.segment_bytes);
    let copy = page_of(&last).and_then(|page| header_in_last(page, len));
    let is_ours = |header: &SegmentHeader| {
        is_segment_bytes(header.segment_bytes) && header.sequence < SEQUENCES
    };
    let found = header.into_iter().chain(copy).filter(is_ours);
    if let Some(found) = found.max_by_key(|header| header.sequence) {
        let is_first = header == Some(found);
        let header = found;
        return Ok(SegmentHead::Is { header, is_first });
    }
    // Page 1 holds the first table. Zeros in the two header pages
    // alone do not prove that a file is unused.
    let pages = [first?, read_pages(&file, 1, 1)?, last?];
    let is_whole = pages.iter().all(Option::is_some);
    Ok(if is_whole && is_blank(&pages) { SegmentHead::Blank } else { SegmentHead::Unknown })
}

fn page_of(read: &io::Result<Option<Vec<u8>>>) -> Option<&[u8]> {
    read.as_ref().ok()?.as_deref()
}

/// Whether nothing but zeros stands on these pages.
fn is_blank(pages: &[Option<Vec<u8>>]) -> bool {
    pages.iter().flatten().flatten().all(|&byte| byte == 0)
}

/// Reads the header from the last page of a segment, which is a copy of the header or a trailer.
fn header_in_last(page: &[u8], len: u64) -> Option<SegmentHeader> {
    let of_trailer =
        |trailer: Trailer| SegmentHeader { sequence: trailer.sequence, segment_bytes: len };
    // Only in a file of full length is this page the last one of the segment.
    let copy = SegmentHeader::read(page).filter(|header| header.segment_bytes == len);
    copy.or_else(|| Trailer::read(page).map(of_trailer))
}

/// Contents of a segment.
pub(super) struct SegmentContents {
    /// Its records, in the order in which they were added; also damaged ones, so that what a tenant
    /// had can be found when it shall go.
    pub(super) entries: Vec<TableEntry>,
    /// The page behind its last group: where its footer is, or could be.
    pub(super) end: u32,
    /// Pages of its footer; none of one that is not sealed.
    pub(super) footer_pages: u32,
    /// Damaged records that the tables of an unsealed segment name.
    pub(super) damaged: Vec<(TableEntry, Wrong)>,
    /// Pages that held records of which no table is left; of one that is not sealed.
    pub(super) unknown: Vec<Range<u32>>,
}

impl SegmentContents {
    /// Whether it has a footer.
    pub(super) fn is_sealed(&self) -> bool {
        self.footer_pages > 0
    }
}

/// Notes what is damaged and what is hidden in a segment.
pub(super) fn set_aside(
    folder: &DiskFolder,
    sequence: u64,
    contents: &SegmentContents,
) -> io::Result<()> {
    for (entry, wrong) in &contents.damaged {
        folder.quarantine(sequence, entry.page, entry.resident.name, *wrong)?;
    }
    for pages in &contents.unknown {
        folder.quarantine_pages(sequence, pages.clone())?;
    }
    Ok(())
}

/// Reads what says which records a segment holds, and of an unsealed one the records as well.
pub(super) fn scan(
    folder: &DiskFolder,
    id: SegmentId,
    sequence: u64,
    pages: u32,
) -> io::Result<SegmentContents> {
    let file = File::open(folder.segment_path(id))?;
    let len = file.metadata()?.len();
    let mut scan = Scan {
        file: &file,
        sequence,
        pages,
        there: (len / PAGE as u64).min(u64::from(pages)) as u32,
        table_pages_left: 2 * u64::from(pages),
        damaged: Vec::new(),
        unknown: Vec::new(),
    };
    let trailer = scan.trailer()?;
    let (entries, end, footer_pages) = if let Some((page, count)) = trailer
        && let Some(table) = scan.footer(page, count)?
    {
        (table.entries, page, count as u32)
    } else {
        // A damaged footer loses nothing: the tables of the groups say the same.
        let (entries, end) = scan.groups()?;
        scan.note_end(end, trailer)?;
        (entries, end, 0)
    };
    let Scan { damaged, unknown, .. } = scan;
    Ok(SegmentContents { entries, end, footer_pages, damaged, unknown })
}

/// Keeps the entries that lie within a segment one behind the other, in the order added.
pub(super) fn apart(mut entries: Vec<TableEntry>, pages: u32) -> Vec<TableEntry> {
    // Page 0 holds the header.
    let mut free = 1;
    entries.retain(|entry| {
        let start = u64::from(entry.page);
        let end = start + u64::from(entry.pages());
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
        // The file was cut: that is no failure of the disk.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one segment.
struct Scan<'a> {
    file: &'a File,
    sequence: u64,
    pages: u32,
    /// Pages that the file has.
    there: u32,
    /// Pages of longer tables that may still be read: at first twice as many as the segment can
    /// hold. Without this limit, pages that only claim to be tables would cost quadratic time.
    table_pages_left: u64,
    /// Records that a table names and that are not whole: either not yet written when the process
    /// died, or damaged since.
    damaged: Vec<(TableEntry, Wrong)>,
    unknown: Vec<Range<u32>>,
}

impl Scan<'_> {
    /// Returns the first page and the number of pages of the footer.
    fn trailer(&self) -> io::Result<Option<(u32, usize)>> {
        let last = read_pages(self.file, self.pages - 1, 1)?;
        let trailer = last.as_deref().and_then(Trailer::read);
        Ok(trailer.and_then(|trailer| self.within(trailer)))
    }

    fn footer(&self, page: u32, count: usize) -> io::Result<Option<RecordTable>> {
        let bytes = read_pages(self.file, page, count)?;
        Ok(bytes.and_then(|bytes| read_table(TableKind::Footer, self.sequence, &bytes)))
    }

    /// Returns the first page and the number of pages of the footer, if the trailer is plausible.
    fn within(&self, trailer: Trailer) -> Option<(u32, usize)> {
        let (page, count) = (trailer.footer_page, trailer.footer_pages);
        // Bounds the read before the footer's checksum can be compared.
        let most = table_pages(MAX_ENTRIES.min(self.pages as usize)) as u64;
        let is_within = trailer.sequence == self.sequence
            && count <= most
            && page.checked_add(count)? <= u64::from(self.pages);
        is_within.then_some((page as u32, count as usize))
    }

    /// Reads the records of an unsealed segment, and returns them with the page behind its last
    /// group. If the table of a group is damaged, the scan continues page by page to its copy or to
    /// the next group.
    fn groups(&mut self) -> io::Result<(Vec<TableEntry>, u32)> {
        let mut entries = Vec::new();
        let (mut at, mut end, mut least) = (1, 1, 0);
        while at + 1 < self.pages && at < self.there {
            let found = match self.group(at)? {
                Some(found) => Some(found),
                None => self.group_behind(at)?,
            };
            // Groups do not overlap, and their numbers rise. u64::MAX is
            // excluded because of the `+ 1` below.
            let found = found.filter(|(table, pages)| {
                pages.start >= end && (least..u64::MAX).contains(&table.number)
            });
            let Some((table, pages)) = found else {
                at += 1;
                continue;
            };
            if end < pages.start {
                self.unknown.push(end..pages.start);
            }
            for entry in table.entries {
                // The process may have died after the table was written and
                // before the records were.
                if let Err(wrong) = self.verify(&entry)? {
                    self.damaged.push((entry, wrong));
                }
                entries.push(entry);
            }
            least = table.number + 1;
            end = pages.end;
            at = end;
        }
        Ok((entries, end))
    }

    /// Takes note of what lay behind the last group, as far as something says that there was more:
    /// the trailer, the beginning of a table of this life, or the file's length.
    fn note_end(&mut self, end: u32, trailer: Option<(u32, usize)>) -> io::Result<()> {
        let there = self.there;
        let more = match trailer {
            Some((footer, _)) => end..footer,
            None => self.begun(end..there)?.unwrap_or(there)..self.pages - 1,
        };
        if !more.is_empty() {
            self.unknown.push(more);
        }
        Ok(())
    }

    /// The first of these pages on which a table of this life begins, whole or not.
    fn begun(&self, pages: Range<u32>) -> io::Result<Option<u32>> {
        for page in pages {
            let bytes = read_pages(self.file, page, 1)?;
            let is_begun = |bytes: Vec<u8>| {
                let mut kinds = [TableKind::Group, TableKind::GroupEnd].into_iter();
                kinds.any(|kind| claimed_entries(kind, self.sequence, &bytes).is_some())
            };
            if bytes.is_some_and(is_begun) {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// The table of the group that begins with page `at`, and the group's pages.
    fn group(&mut self, at: u32) -> io::Result<Option<(RecordTable, Range<u32>)>> {
        let Some((table, own)) = self.table(TableKind::Group, at)? else {
            return Ok(None);
        };
        let end = behind(&table, at + own).and_then(|end| end.checked_add(own));
        let end = end.filter(|&end| end < self.pages);
        Ok(end.map(|end| (table, at..end)))
    }

    /// The group whose second table begins with page `at`, and its pages.
    fn group_behind(&mut self, at: u32) -> io::Result<Option<(RecordTable, Range<u32>)>> {
        let Some((table, own)) = self.table(TableKind::GroupEnd, at)? else {
            return Ok(None);
        };
        let first = table.entries.first().map(|entry| entry.page);
        // The records follow the first table, which is as long as this one.
        let start = first.and_then(|first| first.checked_sub(own));
        let is_before = first.and_then(|first| behind(&table, first)) == Some(at);
        let start = start.filter(|_| is_before);
        Ok(start.map(|start| (table, start..at + own)))
    }

    /// The table that begins with page `at`, and how many it takes.
    fn table(&mut self, kind: TableKind, at: u32) -> io::Result<Option<(RecordTable, u32)>> {
        let Some(first) = read_pages(self.file, at, 1)? else {
            return Ok(None);
        };
        let Some(count) = claimed_entries(kind, self.sequence, &first) else {
            return Ok(None);
        };
        // The last page is the trailer's, and each record has a page at least.
        let (own, at_page) = (table_pages(count), at as usize);
        let has_room = match kind {
            TableKind::GroupEnd => own + count < at_page && at_page + own < self.pages as usize,
            TableKind::Group | TableKind::Footer => at_page + own + count < self.pages as usize,
        };
        if !has_room {
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
        let table = bytes.and_then(|bytes| read_table(kind, self.sequence, &bytes));
        Ok(table.map(|table| (table, own as u32)))
    }

    fn verify(&self, entry: &TableEntry) -> io::Result<Result<(), Wrong>> {
        let bytes = read_pages(self.file, entry.page, entry.pages() as usize)?;
        let bytes = bytes.ok_or(Wrong::NoRecord);
        Ok(bytes.and_then(|bytes| verify_bytes(&bytes, entry.resident.name).map(drop)))
    }
}

/// The page behind the records of a table, which begin at page `start` without gaps.
fn behind(table: &RecordTable, start: u32) -> Option<u32> {
    let mut entries = table.entries.iter();
    entries.try_fold(start, |end, entry| {
        let is_next = entry.page == end && entry.pages() > 0;
        is_next.then(|| end.checked_add(entry.pages()))?
    })
}

/// Rewrites the first page of a segment whose header only its last page still had.
pub(super) fn write_header(
    folder: &DiskFolder,
    id: SegmentId,
    header: SegmentHeader,
) -> io::Result<()> {
    let file = File::options().write(true).open(folder.segment_path(id))?;
    let mut page = vec![0; PAGE];
    header.write(&mut page);
    file.write_all_at(&page, 0)?;
    file.sync_data()
}

/// Pages of a segment.
#[derive(Clone, Copy)]
pub(super) struct SegmentPages {
    /// The first page behind the last group.
    pub(super) end: u32,
    /// The number of all pages.
    pub(super) all: u32,
}

/// Seals a segment that the last process left open, or seals one again.
pub(super) fn write_footer(
    folder: &DiskFolder,
    id: SegmentId,
    sequence: u64,
    entries: &[TableEntry],
    pages: SegmentPages,
) -> io::Result<()> {
    let SegmentPages { end, all: pages } = pages;
    let footer_pages = table_pages(entries.len());
    // The worker reserves room for a footer. Where damage hides
    // that room, the segment stays unsealed.
    if u64::from(end) + footer_pages as u64 >= u64::from(pages) {
        return Ok(());
    }
    let file = File::options().write(true).open(folder.segment_path(id))?;
    let mut footer = vec![0; footer_pages * PAGE];
    write_table(TableKind::Footer, sequence, 0, entries, &mut footer);
    file.write_all_at(&footer, u64::from(end) * PAGE as u64)?;
    file.sync_data()?;
    let trailer =
        Trailer { sequence, footer_page: u64::from(end), footer_pages: footer_pages as u64 };
    let mut page = vec![0; PAGE];
    trailer.write(&mut page);
    file.write_all_at(&page, u64::from(pages - 1) * PAGE as u64)?;
    file.sync_data()
}
