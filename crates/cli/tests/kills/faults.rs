//! Harm done to the files of a stopped server, and what it excuses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use headstart_core::{BlockHash, Rng};

use crate::segments::{Files, Layout, PAGE, Stored};

/// The smallest piece that a disk writes whole, bytes.
const SECTOR: usize = 512;

/// Most pages of a write that is lost: more than a unit has.
const LOST_PAGES: usize = 200;

/// Counts of injected faults.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    bits_in_records: usize,
    bits_in_tables: usize,
    bits_in_footers: usize,
    bits_in_headers: usize,
    /// Pages of the last life of which sectors are as they were before it, zero or noise.
    torn_pages: usize,
    /// Writes of the last life that never came.
    lost_writes: usize,
    cut_files: usize,
    /// Restarts without any.
    none: usize,
    /// Units that lie where harm was done, or whose table or file does.
    pub(crate) units_in_harm: usize,
}

impl Counts {
    pub(crate) fn all(&self) -> usize {
        let bits = self.bits_in_records + self.bits_in_tables + self.bits_in_footers;
        let rest = self.torn_pages + self.lost_writes + self.cut_files;
        bits + rest + self.bits_in_headers
    }
}

/// Pages and files that were changed.
#[derive(Default)]
pub(crate) struct Harm {
    pub(crate) pages: BTreeSet<(PathBuf, usize)>,
    /// Files that were cut, with the pages that remain.
    pub(crate) cut: BTreeMap<PathBuf, usize>,
}

/// Why a record need not be readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// Its own bytes were changed.
    Damaged,
    /// All that says where it is was changed.
    Hidden {
        /// The segment's file.
        file: String,
        /// The segment's life.
        sequence: u64,
        page: usize,
        /// Something still says that there was a group. If not, all looks as if it had never been
        /// written.
        has_traces: bool,
    },
}

/// Does some harm, or none.
pub(crate) fn inject(
    files: &mut Files,
    layout: &BTreeMap<PathBuf, Layout>,
    before: &Files,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Harm {
    let mut harm = Harm::default();
    if files.segments.is_empty() || rng.below(100) < 15 {
        counts.none += 1;
        return harm;
    }
    let changed: Vec<(PathBuf, usize)> = files
        .changed_pages(before)
        .into_iter()
        .flat_map(|(path, pages)| pages.into_iter().map(move |page| (path.clone(), page)))
        .collect();
    for _ in 0..1 + rng.below(4) {
        match rng.below(100) {
            0..40 => {
                let places = ranges(layout, |segment| {
                    segment.records.iter().map(|record| record.pages.clone()).collect()
                });
                counts.bits_in_records += harm.flip(files, &places, rng);
            }
            40..50 => {
                let places = ranges(layout, |segment| {
                    let tables = segment.records.iter().flat_map(|record| record.tables.clone());
                    tables.collect()
                });
                counts.bits_in_tables += harm.flip(files, &places, rng);
            }
            50..60 => {
                let places =
                    ranges(layout, |segment| segment.footer.iter().flatten().cloned().collect());
                counts.bits_in_footers += harm.flip(files, &places, rng);
            }
            60..62 => {
                let places =
                    ranges(layout, |segment| vec![0..1, segment.pages.max(1) - 1..segment.pages]);
                counts.bits_in_headers += harm.flip(files, &places, rng);
            }
            62..85 => counts.torn_pages += harm.tear(files, before, &changed, rng),
            85..97 => counts.lost_writes += harm.lose(files, before, &changed, rng),
            _ => counts.cut_files += harm.cut(layout, rng),
        }
    }
    harm
}

/// Places of one kind, all segments together.
fn ranges(
    layout: &BTreeMap<PathBuf, Layout>,
    of: impl Fn(&Layout) -> Vec<Range<usize>>,
) -> Vec<(PathBuf, Range<usize>)> {
    let all = layout
        .iter()
        .flat_map(|(path, segment)| of(segment).into_iter().map(|range| (path.clone(), range)));
    all.collect()
}

impl Harm {
    /// Flips a bit that stands for something, in one of `places`.
    fn flip(
        &mut self,
        files: &mut Files,
        places: &[(PathBuf, Range<usize>)],
        rng: &mut Rng,
    ) -> usize {
        if places.is_empty() {
            return 0;
        }
        let (path, range) = &places[rng.below(places.len())];
        let page = range.start + rng.below(range.len());
        let used: Vec<usize> =
            files.page(path, page).iter().enumerate().fold(Vec::new(), |mut used, (at, &byte)| {
                if byte != 0 {
                    used.push(at);
                }
                used
            });
        if used.is_empty() {
            return 0;
        }
        let at = page * PAGE + used[rng.below(used.len())];
        let (_, bytes) = files.segments.get_mut(path).expect("it is there");
        bytes[at] ^= 1 << rng.below(8);
        self.pages.insert((path.clone(), page));
        1
    }

    /// Of some pages written last, sectors did not arrive.
    fn tear(
        &mut self,
        files: &mut Files,
        before: &Files,
        changed: &[(PathBuf, usize)],
        rng: &mut Rng,
    ) -> usize {
        if changed.is_empty() {
            return 0;
        }
        let count = 1 + rng.below(4);
        for _ in 0..count {
            let (path, page) = &changed[rng.below(changed.len())];
            let old = before.page(path, *page).to_vec();
            let (_, bytes) = files.segments.get_mut(path).expect("it is there");
            let first = rng.below(PAGE / SECTOR);
            let last = first + 1 + rng.below(PAGE / SECTOR - first);
            let sectors = &mut bytes[page * PAGE..][first * SECTOR..last * SECTOR];
            match rng.below(3) {
                0 => sectors.copy_from_slice(&old[first * SECTOR..last * SECTOR]),
                1 => sectors.fill(0),
                _ => sectors.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8),
            }
            self.pages.insert((path.clone(), *page));
        }
        count
    }

    /// A write, or the end of one, never arrived: there is what was there before.
    fn lose(
        &mut self,
        files: &mut Files,
        before: &Files,
        changed: &[(PathBuf, usize)],
        rng: &mut Rng,
    ) -> usize {
        if changed.is_empty() {
            return 0;
        }
        let first = rng.below(changed.len());
        let most = 1 + rng.below(LOST_PAGES);
        let mut next = changed[first].clone();
        for (path, page) in changed[first..].iter().take(most) {
            if (path, *page) != (&next.0, next.1) {
                break;
            }
            let old = before.page(path, *page).to_vec();
            let (_, bytes) = files.segments.get_mut(path).expect("it is there");
            bytes[page * PAGE..][..PAGE].copy_from_slice(&old);
            self.pages.insert((path.clone(), *page));
            next.1 += 1;
        }
        1
    }

    fn cut(&mut self, layout: &BTreeMap<PathBuf, Layout>, rng: &mut Rng) -> usize {
        let (path, segment) = layout.iter().nth(rng.below(layout.len())).expect("there is one");
        self.cut.insert(path.clone(), rng.below(segment.pages.max(1)));
        1
    }

    fn is_in(&self, path: &Path, pages: &Range<usize>) -> bool {
        let start = (path.to_owned(), pages.start);
        let end = (path.to_owned(), pages.end);
        let is_cut = self.cut.get(path).is_some_and(|&cut| pages.end > cut);
        is_cut || self.pages.range(start..end).next().is_some()
    }

    /// Every record that need not be readable any more, and why, once for each of its copies.
    /// `harmed` are the files after the harm.
    pub(crate) fn excuses(
        &self,
        layout: &BTreeMap<PathBuf, Layout>,
        harmed: &Files,
    ) -> BTreeMap<BlockHash, Vec<Excuse>> {
        let mut excuses: BTreeMap<BlockHash, Vec<Excuse>> = BTreeMap::new();
        for (path, segment) in layout {
            for record in &segment.records {
                let excuse = if self.is_hidden(path, segment, record) {
                    Some(Excuse::Hidden {
                        file: path.file_name().expect("a name").display().to_string(),
                        sequence: segment.sequence,
                        page: record.pages.start,
                        has_traces: self.has_traces(path, segment, record, harmed),
                    })
                } else {
                    self.is_in(path, &record.pages).then_some(Excuse::Damaged)
                };
                if let Some(excuse) = excuse {
                    excuses.entry(record.name).or_default().push(excuse);
                }
            }
        }
        excuses
    }

    /// Whether nothing is left that says where a record is: neither a table nor the footer, or
    /// neither the header nor its copy.
    fn is_hidden(&self, path: &Path, segment: &Layout, record: &Stored) -> bool {
        let is_harmed = |pages: &Range<usize>| self.is_in(path, pages);
        let mut heads = [0..1, segment.pages - 1..segment.pages].into_iter();
        if heads.all(|page| is_harmed(&page)) {
            return true;
        }
        let mut footer = segment.footer.iter().flatten();
        let has_footer = segment.footer.is_some() && !footer.any(is_harmed);
        let is_in_footer = has_footer && record.is_in_footer;
        !is_in_footer && record.tables.iter().all(is_harmed)
    }

    fn has_traces(&self, path: &Path, segment: &Layout, record: &Stored, harmed: &Files) -> bool {
        let is_table = |page: usize| segment.is_table(harmed.page(path, page));
        self.cut.contains_key(path) || record.tables.iter().any(|pages| is_table(pages.start))
    }
}
