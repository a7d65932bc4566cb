//! Pages of a segment other than records.
//!
//! ```text
//! page 0     1                                                                  last
//! ├ header ┼ table │ records … │ table ┼ table │ records … ┼ … ┼ footer (all tables) ┼ trailer ┤
//!          └───────── group 0 ─────────┴───── group 1 …
//! ```
//!
//! A *group* is what one commit makes durable; its table says where its records are, so that
//! groups are found one behind the other, and stands there twice, before and behind them, so that
//! no page alone can hide any. A sealed segment is read by its footer alone; until it is sealed
//! its header stands in the last page as well. Every table carries the segment's sequence number,
//! which no two lives of a file share: what an earlier life left behind is not taken for this
//! one's.

use headstart_core::{BlockHash, TenantTag};

use crate::backend::ResidentRecord;
use crate::checksum;
use crate::record::{Content, PAGE};
use crate::wire::{FieldReader, FieldWriter};

/// An entry of a table, bytes.
const ENTRY_BYTES: usize = 64;

/// Bytes of the header of a table, before the entries.
const TABLE_START: usize = 32;

/// Most entries of a table: bounds what a damaged one can make us allocate.
pub(crate) const MAX_ENTRIES: usize = 1 << 22;

/// Sequence numbers are below this: none is reached by counting, and the next one always exists.
pub(crate) const SEQUENCES: u64 = 1 << 63;

/// Shortest segment, bytes: a header, a trailer, a table, a footer and some records.
pub(crate) const SHORTEST_SEGMENT_BYTES: u64 = 16 * PAGE as u64;

/// Longest segment, bytes: bounds what a damaged one can make us read, and its pages have 32 bits.
pub(crate) const LONGEST_SEGMENT_BYTES: u64 = 1 << 30;

const HEADER: u64 = u64::from_le_bytes(*b"HDST-SG2");
const TRAILER: u64 = u64::from_le_bytes(*b"HDST-EN2");

/// The kinds of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum TableKind {
    /// Of one group, before its records.
    Group = u64::from_le_bytes(*b"HDST-GRP"),
    /// The same again, behind its records.
    GroupEnd = u64::from_le_bytes(*b"HDST-GRE"),
    /// Of a whole segment, at its end.
    Footer = u64::from_le_bytes(*b"HDST-FTR"),
}

/// Position of a record and the data needed without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    /// The record; its bytes are whole pages.
    pub(crate) resident: ResidentRecord,
    /// Its first page within the segment.
    pub(crate) page: u32,
}

impl TableEntry {
    /// Pages that the record takes.
    pub(crate) fn pages(&self) -> u32 {
        (self.resident.bytes / PAGE as u64) as u32
    }
}

/// A table, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordTable {
    /// Number of the group within its segment; of a footer, the number of groups.
    pub(crate) number: u64,
    pub(crate) entries: Vec<TableEntry>,
}

/// Whether a segment can be so long.
pub(crate) fn is_segment_bytes(bytes: u64) -> bool {
    (SHORTEST_SEGMENT_BYTES..=LONGEST_SEGMENT_BYTES).contains(&bytes)
        && bytes.is_multiple_of(PAGE as u64)
}

/// Pages that a table of `entries` entries takes.
pub(crate) fn table_pages(entries: usize) -> usize {
    // The checksum takes the last 8 bytes.
    (TABLE_START + entries * ENTRY_BYTES + 8).div_ceil(PAGE)
}

/// Writes a table to the front of `pages`.
pub(crate) fn write_table(
    kind: TableKind,
    sequence: u64,
    number: u64,
    entries: &[TableEntry],
    pages: &mut [u8],
) {
    let mut out = FieldWriter::new(pages);
    out.u64(kind as u64);
    out.u64(sequence);
    out.u64(number);
    out.u64(entries.len() as u64);
    for entry in entries {
        let record = &entry.resident;
        out.bytes(&record.name.0);
        // The flag below says whether there is a parent, because zeros could be a hash as well.
        out.bytes(&record.parent.map_or([0; 16], |parent| parent.0));
        out.u64(record.tenant.0);
        out.u32(entry.page);
        out.u32(entry.pages());
        out.u32(record.tokens);
        out.u16(record.content.flags(record.parent.is_some()));
        // Unused. It keeps `expires_s` on a multiple of eight bytes.
        out.u16(0);
        // 0 means no limit: no record expires in 1970.
        out.u64(record.expires_s.unwrap_or(0));
    }
    let sum = checksum::of_fields(kind as u64, out.written());
    out.u64(sum);
}

/// Returns the number of entries that the table that begins with `page` claims, if it has this kind
/// and segment.
pub(crate) fn claimed_entries(kind: TableKind, sequence: u64, page: &[u8]) -> Option<usize> {
    let mut from = FieldReader::new(page);
    let is_it = from.u64()? == kind as u64 && from.u64()? == sequence;
    let _number = from.u64()?;
    // The checksum was not compared yet, so the count may be anything.
    let entries = usize::try_from(from.u64()?).ok()?;
    (is_it && entries <= MAX_ENTRIES).then_some(entries)
}

/// The table at the front of `pages`, if it is whole and of this kind and segment.
pub(crate) fn read_table(kind: TableKind, sequence: u64, pages: &[u8]) -> Option<RecordTable> {
    let entries = claimed_entries(kind, sequence, pages)?;
    let end = TABLE_START + entries * ENTRY_BYTES;
    // No entry is used before the checksum has confirmed all of them.
    let sum = pages.get(end..end + 8)?;
    if checksum::of_fields(kind as u64, &pages[..end]).to_le_bytes() != *sum {
        return None;
    }
    // Kind and sequence come first: `claimed_entries` has compared them.
    let mut from = FieldReader::new(&pages[16..]);
    let number = from.u64()?;
    let entries = pages[TABLE_START..end].chunks_exact(ENTRY_BYTES);
    let entries = entries.map(entry).collect::<Option<_>>()?;
    Some(RecordTable { number, entries })
}

fn entry(bytes: &[u8]) -> Option<TableEntry> {
    let mut from = FieldReader::new(bytes);
    let name = BlockHash(from.array()?);
    let parent = BlockHash(from.array()?);
    let tenant = TenantTag(from.u64()?);
    let (page, pages, tokens) = (from.u32()?, from.u32()?, from.u32()?);
    let (has_parent, content) = Content::of_flags(from.u16()?);
    let _unused = from.u16()?;
    let expires_s = from.u64()?;
    let resident = ResidentRecord {
        name,
        parent: has_parent.then_some(parent),
        tenant,
        bytes: u64::from(pages) * PAGE as u64,
        tokens,
        expires_s: (expires_s != 0).then_some(expires_s),
        content,
    };
    Some(TableEntry { resident, page })
}

/// Page 0 of a segment, and its last one until there is a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Number of this life of the segment: one more than any earlier life in the folder.
    pub(crate) sequence: u64,
    /// Length of the file, bytes.
    pub(crate) segment_bytes: u64,
}

impl SegmentHeader {
    pub(crate) fn write(self, page: &mut [u8]) {
        write_fields(HEADER, &[self.sequence, self.segment_bytes], page);
    }

    pub(crate) fn read(page: &[u8]) -> Option<Self> {
        let [sequence, segment_bytes] = read_fields(HEADER, page)?;
        Some(Self { sequence, segment_bytes })
    }
}

/// The last page of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) sequence: u64,
    /// First page of the footer.
    pub(crate) footer_page: u64,
    pub(crate) footer_pages: u64,
}

impl Trailer {
    pub(crate) fn write(self, page: &mut [u8]) {
        let fields = [self.sequence, self.footer_page, self.footer_pages];
        write_fields(TRAILER, &fields, page);
    }

    pub(crate) fn read(page: &[u8]) -> Option<Self> {
        let [sequence, footer_page, footer_pages] = read_fields(TRAILER, page)?;
        Some(Self { sequence, footer_page, footer_pages })
    }
}

fn write_fields(magic: u64, fields: &[u64], page: &mut [u8]) {
    let mut out = FieldWriter::new(page);
    out.u64(magic);
    fields.iter().for_each(|&field| out.u64(field));
    let sum = checksum::of_fields(magic, out.written());
    out.u64(sum);
}

fn read_fields<const N: usize>(magic: u64, page: &[u8]) -> Option<[u64; N]> {
    let mut from = FieldReader::new(page);
    if from.u64()? != magic {
        return None;
    }
    let mut fields = [0; N];
    for field in &mut fields {
        *field = from.u64()?;
    }
    // The magic number and the fields: the checksum covers both.
    let checked = page.get(..8 * (N + 1))?;
    (from.u64()? == checksum::of_fields(magic, checked)).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn entries(count: u64) -> Vec<TableEntry> {
        let resident = |number| ResidentRecord {
            name: BlockHash::from_u64(number),
            parent: (number % 3 > 0).then(|| BlockHash::from_u64(number - 1)),
            tenant: TenantTag(number % 2),
            bytes: 3 * PAGE as u64,
            tokens: 16,
            expires_s: (number % 5 > 0).then_some(number),
            content: match number % 7 {
                0 => Content::Pack,
                _ => Content::Unit,
            },
        };
        let entry = |number| TableEntry { resident: resident(number), page: number as u32 * 3 };
        (0..count).map(entry).collect()
    }

    #[test]
    fn tables_are_read_back_and_belong_to_one_life() {
        for count in [0, 1, 63, 64, 1000] {
            let entries = entries(count);
            let mut pages = vec![0xee; table_pages(entries.len()) * PAGE];
            write_table(TableKind::Group, 7, 3, &entries, &mut pages);
            let table = RecordTable { number: 3, entries };
            assert_eq!(read_table(TableKind::Group, 7, &pages), Some(table));
            assert_eq!(read_table(TableKind::Group, 8, &pages), None);
            assert_eq!(read_table(TableKind::GroupEnd, 7, &pages), None);
            assert_eq!(read_table(TableKind::Footer, 7, &pages), None);
        }
    }

    #[test]
    fn damaged_and_cut_pages_are_none() {
        let entries = entries(100);
        let mut pages = vec![0; table_pages(entries.len()) * PAGE];
        write_table(TableKind::Footer, 7, 3, &entries, &mut pages);
        let end = TABLE_START + entries.len() * ENTRY_BYTES + 8;
        let mut rng = Rng::new(3);
        for _ in 0..2_000 {
            let mut wrong = pages.clone();
            wrong[rng.below(end)] ^= 1 << rng.below(8);
            assert_eq!(read_table(TableKind::Footer, 7, &wrong), None);
            assert_eq!(read_table(TableKind::Footer, 7, &pages[..rng.below(end)]), None);
        }
        let header = SegmentHeader { sequence: 1, segment_bytes: 2 };
        let mut page = vec![0; PAGE];
        header.write(&mut page);
        assert_eq!(SegmentHeader::read(&page), Some(header));
        assert_eq!(Trailer::read(&page), None);
        for at in 0..32 {
            let mut wrong = page.clone();
            wrong[at] ^= 1;
            assert_eq!(SegmentHeader::read(&wrong), None);
            assert_eq!(SegmentHeader::read(&page[..at]), None);
        }
    }
}
