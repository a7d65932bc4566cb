//! The files of a disk tier, read by somebody else: where its records, tables and footers lie.
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

/// The segments of a folder, in memory, and its list of damaged records.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) segments: BTreeMap<PathBuf, (SystemTime, Vec<u8>)>,
    /// Bytes of all files, as long as they are or as much as they take, whichever is more.
    bytes: u64,
    noted: Vec<String>,
}

/// Where things are in one segment, in pages.
pub(crate) struct Layout {
    pub(crate) groups: Vec<Group>,
    /// Footer and trailer, where there are any.
    pub(crate) footer: Option<[Range<usize>; 2]>,
    pub(crate) pages: usize,
}

/// A table and its records.
pub(crate) struct Group {
    pub(crate) table: Range<usize>,
    pub(crate) records: Vec<(BlockHash, Range<usize>)>,
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

    /// Records found damaged since then. The list is begun anew when it is long.
    pub(crate) fn noted_since(&self, before: &Self) -> usize {
        match self.noted.starts_with(&before.noted) {
            true => self.noted.len() - before.noted.len(),
            false => self.noted.len(),
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

    /// A page, zeros where there is none.
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
        let mut layout = Self {
            groups: Vec::new(),
            footer: None,
            pages,
        };
        if pages == 0 || bytes[..8] != *b"HDST-SG2" {
            return layout;
        }
        let sequence = &bytes[8..16];
        let mut at = 1;
        while at + 1 < pages {
            match Group::at(bytes, at, sequence) {
                Some(group) => {
                    let last = group.records.last();
                    at = last.map_or(group.table.end, |(_, record)| record.end);
                    layout.groups.push(group);
                }
                None => at += 1,
            }
        }
        let trailer = &bytes[(pages - 1) * PAGE..];
        if trailer[..8] == *b"HDST-END" && trailer[8..16] == *sequence {
            let footer = number(trailer, 16)..number(trailer, 16) + number(trailer, 24);
            if footer.start < footer.end && footer.end <= pages {
                layout.footer = Some([footer, pages - 1..pages]);
            }
        }
        layout
    }
}

impl Group {
    fn at(bytes: &[u8], page: usize, sequence: &[u8]) -> Option<Self> {
        let table = &bytes[page * PAGE..];
        if table[..8] != *b"HDST-GRP" || table[8..16] != *sequence {
            return None;
        }
        let (count, pages) = (number(table, 24), bytes.len() / PAGE);
        let end = TABLE_START.checked_add(count.checked_mul(ENTRY)?)?;
        let own_pages = (end.checked_add(8)?).div_ceil(PAGE);
        let entries = table.get(TABLE_START..end)?.chunks_exact(ENTRY);
        let mut free = page + own_pages;
        let mut records = Vec::new();
        for entry in entries {
            let name = BlockHash(entry[..16].try_into().ok()?);
            let start = number_of_32(entry, 40);
            let record = start..start + number_of_32(entry, 44);
            if record.start < free || record.is_empty() || record.end >= pages {
                return None;
            }
            free = record.end;
            records.push((name, record));
        }
        let table = page..page + own_pages;
        Some(Self { table, records })
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize
}

fn number_of_32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}
