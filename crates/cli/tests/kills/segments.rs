//! An independent reader of a disk tier's files: the places of its records, tables and footers.
//!
//! Knows the places of the format (`disk/layout.rs` of the store), and no checksums: what is whole
//! is for the store itself to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use headstart_core::BlockHash;

use crate::faults::Harm;

pub(crate) const PAGE: usize = 4096;
const ENTRY: usize = 64;
const TABLE_START: usize = 32;

const HEADER: &[u8; 8] = b"HDST-SG2";
const TRAILER: &[u8; 8] = b"HDST-EN2";
const FOOTER: &[u8; 8] = b"HDST-FTR";
const TABLES: [&[u8; 8]; 2] = [b"HDST-GRP", b"HDST-GRE"];

/// The segments of a folder, in memory, and its list of damaged records.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) segments: BTreeMap<PathBuf, (SystemTime, Vec<u8>)>,
    /// Bytes of all files, as long as they are or as much as they take, whichever is more.
    bytes: u64,
    noted: Vec<String>,
}

/// Contents of one segment and their places, in pages.
pub(crate) struct Layout {
    /// Its life, as the header says, or its copy.
    pub(crate) sequence: u64,
    pub(crate) records: Vec<Stored>,
    /// Footer and trailer, where there are any.
    pub(crate) footer: Option<[Range<usize>; 2]>,
    pub(crate) pages: usize,
}

/// A record, and what says where it is.
pub(crate) struct Stored {
    pub(crate) name: BlockHash,
    pub(crate) pages: Range<usize>,
    /// Tables before and behind its group.
    pub(crate) tables: Vec<Range<usize>>,
    pub(crate) is_in_footer: bool,
}

impl Stored {
    fn new(name: BlockHash, pages: Range<usize>) -> Self {
        Self { name, pages, tables: Vec::new(), is_in_footer: false }
    }
}

impl Files {
    /// Reads a folder, as far as it is not as it was.
    pub(crate) fn read(folder: &Path, before: &Self) -> Self {
        let mut files = Self::default();
        let Ok(entries) = fs::read_dir(folder) else {
            return files;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            let meta = fs::metadata(&path).expect("a file");
            files.bytes += meta.len().max(meta.blocks() * 512);
            let name = path.file_name().expect("a name").to_string_lossy();
            if name == "quarantine" {
                let noted = fs::read_to_string(&path).expect("a list");
                files.noted = noted.lines().map(str::to_owned).collect();
            }
            if name.starts_with("segment-") {
                let changed = meta.modified().expect("a time");
                let known = before.segments.get(&path);
                let known = known.filter(|(then, _)| *then == changed);
                let bytes = known.map(|(_, bytes)| bytes.clone());
                let bytes = bytes.unwrap_or_else(|| fs::read(&path).expect("a segment"));
                files.segments.insert(path, (changed, bytes));
            }
        }
        files
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts the records found damaged since `before`. A list that is too long is restarted.
    pub(crate) fn noted_since(&self, before: &Self) -> usize {
        if self.noted.starts_with(&before.noted) {
            self.noted.len() - before.noted.len()
        } else {
            self.noted.len()
        }
    }

    /// Bytes of all pages that are not what they were.
    pub(crate) fn changed_since(&self, before: &Self) -> u64 {
        let changed = self.changed_pages(before);
        changed.values().map(BTreeSet::len).sum::<usize>() as u64 * PAGE as u64
    }

    pub(crate) fn changed_pages(&self, before: &Self) -> BTreeMap<PathBuf, BTreeSet<usize>> {
        let changed = |(path, (_, bytes)): (&PathBuf, &(SystemTime, Vec<u8>))| {
            let pages = (0..bytes.len() / PAGE)
                .filter(|&page| bytes[page * PAGE..][..PAGE] != *before.page(path, page));
            (path.clone(), pages.collect())
        };
        self.segments.iter().map(changed).collect()
    }

    /// Returns a page, or zeros if it does not exist.
    pub(crate) fn page(&self, path: &Path, page: usize) -> &[u8] {
        static NOTHING: [u8; PAGE] = [0; PAGE];
        let bytes = self.segments.get(path).map(|(_, bytes)| bytes);
        let page = bytes.and_then(|bytes| bytes.get(page * PAGE..(page + 1) * PAGE));
        page.unwrap_or(&NOTHING)
    }

    pub(crate) fn layout(&self) -> BTreeMap<PathBuf, Layout> {
        let layouts = self.segments.iter();
        let layouts = layouts.map(|(path, (_, bytes))| (path.clone(), Layout::of(bytes)));
        layouts.collect()
    }

    /// Writes what was harmed, and remembers when.
    pub(crate) fn write_back(&mut self, harm: &Harm) {
        for (path, page) in &harm.pages {
            let file = fs::File::options().write(true).open(path).expect("a file");
            let written = file.write_all_at(self.page(path, *page), (page * PAGE) as u64);
            written.expect("it is written");
        }
        for (path, pages) in &harm.cut {
            let file = fs::File::options().write(true).open(path).expect("a file");
            file.set_len((pages * PAGE) as u64).expect("it is cut");
            let (_, bytes) = self.segments.get_mut(path).expect("it is there");
            bytes.truncate(pages * PAGE);
        }
        for (path, (changed, _)) in &mut self.segments {
            let meta = fs::metadata(path).expect("a file");
            *changed = meta.modified().expect("a time");
        }
    }
}

impl Layout {
    fn of(bytes: &[u8]) -> Self {
        let pages = bytes.len() / PAGE;
        let mut layout = Self { sequence: 0, records: Vec::new(), footer: None, pages };
        let Some(last) = pages.checked_sub(1).map(|last| &bytes[last * PAGE..]) else {
            return layout;
        };
        let headers = [bytes, last].into_iter();
        let headers = headers.filter(|page| page[..8] == *HEADER || page[..8] == *TRAILER);
        let sequences = headers.map(|page| number(page, 8) as u64);
        layout.sequence = sequences.max().unwrap_or(0);
        let mut records: BTreeMap<(usize, BlockHash), Stored> = BTreeMap::new();
        for page in 1..pages {
            let Some(table) = Table::at(bytes, page, layout.sequence) else {
                continue;
            };
            for (name, pages) in table.records {
                let record = records.entry((pages.start, name));
                let record = record.or_insert_with(|| Stored::new(name, pages));
                if table.is_footer {
                    record.is_in_footer = true;
                } else {
                    record.tables.push(table.pages.clone());
                }
            }
        }
        layout.records = records.into_values().collect();
        if last[..8] == *TRAILER {
            let start = number(last, 16);
            let footer = start..start.saturating_add(number(last, 24));
            if footer.start < footer.end && footer.end <= pages {
                layout.footer = Some([footer, pages - 1..pages]);
            }
        }
        layout
    }

    /// Whether a table of this life begins on a page, whole or not.
    pub(crate) fn is_table(&self, page: &[u8]) -> bool {
        let is_kind = TABLES.iter().any(|kind| page[..8] == **kind);
        is_kind && page[8..16] == self.sequence.to_le_bytes()
    }
}

/// A table, whole or not.
struct Table {
    is_footer: bool,
    pages: Range<usize>,
    records: Vec<(BlockHash, Range<usize>)>,
}

impl Table {
    fn at(bytes: &[u8], page: usize, sequence: u64) -> Option<Self> {
        let table = &bytes[page * PAGE..];
        let is_footer = table[..8] == *FOOTER;
        let is_kind = is_footer || TABLES.iter().any(|kind| table[..8] == **kind);
        if !is_kind || table[8..16] != sequence.to_le_bytes() {
            return None;
        }
        let (count, pages) = (number(table, 24), bytes.len() / PAGE);
        let end = TABLE_START.checked_add(count.checked_mul(ENTRY)?)?;
        let own_pages = (end.checked_add(8)?).div_ceil(PAGE);
        let entries = table.get(TABLE_START..end)?.chunks_exact(ENTRY);
        let records = entries.map(|entry| {
            let name = BlockHash(entry[..16].try_into().expect("16 bytes"));
            let start = number_of_32(entry, 40);
            (name, start..start + number_of_32(entry, 44))
        });
        let records = records.filter(|(_, record)| !record.is_empty() && record.end < pages);
        Some(Self { is_footer, pages: page..page + own_pages, records: records.collect() })
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize
}

fn number_of_32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}
