//! One page of an unsealed segment is damaged, or its end is cut off: only what lay there is
//! hidden, and every missing record is in the list of damage.

use std::fs;
use std::path::{Path, PathBuf};

use crate::conformance::{record_of, slot_bytes};
use headstart_core::{BlockHash, Rng, TenantTag};
use headstart_store::disk::FolderInspector;

use crate::support::{self, Driver, PART_BYTES, options};

const PAGE: usize = 4096;
const BUDGET: u64 = 8 << 20;
const NAMES: u64 = 12;

/// A folder as a killed process left it, with one segment that is not sealed.
struct Left {
    place: tempfile::TempDir,
    segment: Vec<u8>,
}

impl Left {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("cache");
        let mut driver = Driver::open(options(&folder, BUDGET));
        (0..NAMES / 2).for_each(|name| driver.must_store(name));
        // Some together in one group.
        for name in NAMES / 2..NAMES {
            driver.put(name);
        }
        driver.quiet();
        let segment = fs::read(folder.join("segment-00000")).expect("a segment");
        drop(driver);
        Self { place, segment }
    }

    /// First pages of tables, before and behind records, in order.
    fn tables(&self) -> Vec<(usize, usize)> {
        let pages = |magic: &[u8; 8]| -> Vec<usize> {
            let pages = self.segment.chunks_exact(PAGE).enumerate();
            let begin = pages.filter(|(_, page)| page.starts_with(magic));
            begin.map(|(page, _)| page).collect()
        };
        let (before, behind) = (pages(b"HDST-GRP"), pages(b"HDST-GRE"));
        assert_eq!(before.len(), behind.len());
        assert!((3..NAMES as usize).contains(&before.len()));
        before.into_iter().zip(behind).collect()
    }

    /// A folder of its own with this segment.
    fn folder(&self, segment: &[u8]) -> PathBuf {
        let folder = self.place.path().join("harmed");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("segment-00000"), segment).expect("written");
        folder
    }

    /// Returns the records that can be read, and the list of damage.
    fn look(&self, segment: &[u8]) -> (Vec<u64>, String) {
        let folder = self.folder(segment);
        let mut driver = Driver::open(options(&folder, BUDGET));
        let there = (0..NAMES).filter(|&name| driver.loads(name)).collect();
        drop(driver);
        (there, notes(&folder))
    }
}

fn notes(folder: &Path) -> String {
    fs::read_to_string(folder.join("quarantine")).unwrap_or_default()
}

fn is_noted(notes: &str, name: u64) -> bool {
    notes.contains(&format!("{:?}", BlockHash::from_u64(name)))
}

fn missing(there: &[u64]) -> Vec<u64> {
    (0..NAMES).filter(|name| !there.contains(name)).collect()
}

#[test]
fn one_harmed_page_hides_nothing_but_what_lies_there() {
    let left = Left::new();
    let tables: Vec<usize> = left.tables().iter().flat_map(|&(a, b)| [a, b]).collect();
    let pages = left.segment.len() / PAGE;
    let mut rng = Rng::new(1);
    let mut hurt = 0;
    for page in 0..pages {
        let bytes = &left.segment[page * PAGE..][..PAGE];
        let used: Vec<usize> = (0..PAGE).filter(|&at| bytes[at] != 0).collect();
        if used.is_empty() {
            continue;
        }
        for _ in 0..4 {
            let mut harmed = left.segment.clone();
            harmed[page * PAGE + used[rng.below(used.len())]] ^= 1 << rng.below(8);
            let (there, notes) = left.look(&harmed);
            let gone = missing(&there);
            let is_list = page == 0 || page == pages - 1 || tables.contains(&page);
            assert!(gone.len() <= usize::from(!is_list), "{page}: {gone:?}");
            assert!(gone.iter().all(|&name| is_noted(&notes, name)), "{notes}");
            hurt += gone.len();
        }
    }
    assert!(hurt > NAMES as usize, "records were harmed, too: {hurt}");
}

#[test]
fn where_both_tables_of_a_group_are_harmed_its_pages_are_noted() {
    let left = Left::new();
    let tables = left.tables();
    for (number, &(before, behind)) in tables.iter().enumerate() {
        let mut harmed = left.segment.clone();
        for page in [before, behind] {
            harmed[page * PAGE + 40] ^= 1;
        }
        let folder = left.folder(&harmed);
        fs::write(folder.join("lock"), "").expect("written");
        let inspector = FolderInspector::look(&folder).expect("it is one");
        let told = inspector.survey(1).expect("it is read").harm;
        assert_eq!(told.len(), 1, "told before a start: {told:?}");
        let (there, notes) = left.look(&harmed);
        let gone = missing(&there);
        assert!(!gone.is_empty(), "group {number}");
        let is_last = number + 1 == tables.len();
        let end = if is_last { left.segment.len() / PAGE - 1 } else { behind + 1 };
        let right = format!("1 {before} - to page {end}: no table is left\n");
        assert_eq!(notes, right, "group {number}: {gone:?}");
    }
}

#[test]
fn without_its_first_page_a_segment_is_read_and_without_both_ends_it_is_noted() {
    let left = Left::new();
    let last = left.segment.len() - PAGE;
    for page in [0, last] {
        let mut harmed = left.segment.clone();
        harmed[page..][..PAGE].fill(0);
        let (there, notes) = left.look(&harmed);
        assert_eq!((missing(&there).len(), &*notes), (0, ""), "{page}");
    }
    for byte in [0, 1, 255] {
        let mut harmed = left.segment.clone();
        [0, last].iter().for_each(|&at| harmed[at..][..PAGE].fill(byte));
        let (there, notes) = left.look(&harmed);
        assert!(there.is_empty());
        assert!(notes.starts_with("- - segment-00000 "), "{notes}");
    }
}

#[test]
fn what_is_left_of_a_file_that_was_cut_is_read_and_the_rest_is_noted() {
    let left = Left::new();
    let pages = left.segment.len() / PAGE;
    let mut before = 0;
    for cut in 1..pages {
        let (there, notes) = left.look(&left.segment[..cut * PAGE]);
        assert!(there.len() >= before, "{cut}: {there:?}");
        before = there.len();
        let is_region = cut < pages - 1;
        assert_eq!(notes.contains(" - to page "), is_region, "{cut}: {notes}");
    }
    assert_eq!(before, NAMES as usize, "all of it, in the end");
}

/// A record's bytes, in a folder whose first group's tables are harmed.
fn with_hidden_record(left: &Left) -> (PathBuf, Vec<u8>) {
    let arena = headstart_store::Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
    let record = record_of(0, PART_BYTES, arena.take().expect("a slot"));
    let mut parts = (0..record.num_parts()).map(|part| record.part(part));
    let part = parts.find(|part| part.len() > 64).expect("a part");
    let (before, behind) = left.tables()[0];
    let mut harmed = left.segment.clone();
    for page in [before, behind] {
        harmed[page * PAGE..][..16].fill(9);
    }
    let folder = left.folder(&harmed);
    fs::write(folder.join("lock"), "").expect("written");
    assert!(support::contains(&folder, part));
    (folder, part.to_vec())
}

#[test]
fn what_nobody_knows_is_destroyed_with_whatever_is_purged() {
    let left = Left::new();
    let (folder, part) = with_hidden_record(&left);
    let inspector = FolderInspector::open(&folder).expect("nobody uses it");
    inspector.purge(TenantTag(u64::MAX)).expect("purged");
    assert!(!support::contains(&folder, &part));
    assert!(notes(&folder).contains(" - to page "), "and noted before");
}

#[test]
fn what_nobody_knows_is_destroyed_by_a_start_because_no_purge_would_find_it() {
    let left = Left::new();
    let (folder, part) = with_hidden_record(&left);
    drop(Driver::open(options(&folder, BUDGET)));
    assert!(!support::contains(&folder, &part));
    assert!(notes(&folder).contains(" - to page "), "and noted before");
}

#[test]
fn what_is_damaged_is_purged_also_after_a_start() {
    let left = Left::new();
    let arena = headstart_store::Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
    let record = record_of(0, PART_BYTES, arena.take().expect("a slot"));
    let mut parts = (0..record.num_parts()).map(|part| record.part(part));
    let part = parts.find(|part| part.len() > 64).expect("a part");
    let windows = left.segment.windows(part.len());
    let at = windows.enumerate().find(|(_, bytes)| *bytes == part);
    let mut harmed = left.segment.clone();
    harmed[at.expect("it is there").0] ^= 1;
    for starts in [0, 1] {
        let folder = left.folder(&harmed);
        fs::write(folder.join("lock"), "").expect("written");
        for _ in 0..starts {
            drop(Driver::open(options(&folder, BUDGET)));
        }
        assert!(support::contains(&folder, &part[1..]));
        let inspector = FolderInspector::open(&folder).expect("nobody uses it");
        inspector.purge(record.meta().tenant).expect("purged");
        assert!(!support::contains(&folder, &part[1..]), "{starts} starts");
        assert!(is_noted(&notes(&folder), 0));
    }
}

#[test]
fn a_segment_that_is_cleared_away_is_noted_before() {
    let left = Left::new();
    let mut harmed = left.segment.clone();
    for page in left.tables().iter().flat_map(|&(a, b)| [a, b]) {
        harmed[page * PAGE + 40] ^= 1;
    }
    let folder = left.folder(&harmed);
    fs::write(folder.join("lock"), "").expect("written");
    let inspector = FolderInspector::open(&folder).expect("nobody uses it");
    inspector.clear(1).expect("cleared");
    assert!(!folder.join("segment-00000").exists());
    assert!(notes(&folder).contains(" - to page "), "{}", notes(&folder));
}

/// A byte anywhere: what is read of any part is right, or nothing is.
#[test]
fn whatever_is_harmed_no_part_is_wrong() {
    let left = Left::new();
    let used = |at: &usize| left.segment[*at] != 0;
    let used: Vec<usize> = (0..left.segment.len()).filter(used).collect();
    let num_parts: Vec<u16> = (0..NAMES)
        .map(|name| {
            let arena = headstart_store::Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
            let record = record_of(name, PART_BYTES, arena.take().expect("a slot"));
            record.num_parts() as u16
        })
        .collect();
    let mut rng = Rng::new(3);
    let mut hurt = 0;
    for _ in 0..150 {
        let mut harmed = left.segment.clone();
        for _ in 0..8 {
            harmed[used[rng.below(used.len())]] ^= 1 << rng.below(8);
        }
        let folder = left.folder(&harmed);
        let mut driver = Driver::open(options(&folder, BUDGET));
        for name in 0..NAMES {
            for part in 0..num_parts[name as usize] {
                // Asserts that what is there is right.
                hurt += u64::from(!driver.loads_part(name, part));
            }
            // Where a part was harmed all of the record is gone, as if all had been read.
            if !driver.loads(name) {
                assert!(!driver.loads_part(name, 0), "{name}");
            }
        }
    }
    assert!(hurt > 100, "{hurt}");
}
