//! A folder read record by record, through the store itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::BlockHash;
use headstart_store::backend::{Failure, no_waker};
use headstart_store::{
    Arena, Backend, Command, CommandOutcome, Disk, DiskOptions, Record, Report, Ticket,
};

use crate::BUDGET_BYTES;
use crate::faults::Excuse;
use crate::support::PATIENCE;

/// Room for a unit of the toy, bytes.
pub(crate) const SLOT_BYTES: usize = 640 << 10;

/// Copies of a record that were computed in pieces of other lengths differ by rounding, as a share
/// of the largest number; those of another prompt by about 1.
pub(crate) const ROUNDING: f32 = 1e-4;

/// Results of the audits.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    audits: usize,
    /// Units that could be read before the faults.
    published: usize,
    /// Of these, read after them, and the same.
    pub(crate) read: usize,
    /// Of these, read as an earlier copy, computed in other pieces: the later one is hidden.
    earlier: usize,
    /// Largest distance between numbers of such copies, as a share of their part's largest one.
    apart: f32,
    /// Of these, found damaged and set aside, by name.
    pub(crate) set_aside: usize,
    /// Of these, on pages or in a file set aside because nothing says what they held.
    set_aside_unknown: usize,
    /// Of these, taken back with all that says that they were ever written.
    taken_back: usize,
}

/// Contents of a folder as read.
pub(crate) struct Found {
    /// The bytes of every part of a record, or nothing where it was found damaged.
    pub(crate) records: BTreeMap<BlockHash, Option<Vec<Vec<u8>>>>,
    /// Lines that were added to the list of what is damaged.
    noted: Vec<String>,
}

impl Found {
    /// Whether the place of a record that is hidden is set aside.
    fn has_set_aside(&self, file: &str, sequence: u64, page: usize) -> bool {
        self.noted.iter().any(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| -> Option<u64> {
                let word = words.get(at)?.trim_end_matches(':');
                word.parse().ok()
            };
            let is_file = words.get(2) == Some(&file);
            let is_unknown = words.get(2) == Some(&"-") && number(0) == Some(sequence);
            let is_behind = number(1).is_some_and(|start| start <= page as u64);
            is_file || is_unknown && is_behind && number(5).is_some_and(|end| (page as u64) < end)
        })
    }
}

/// A tier that is asked one thing after the other.
pub(crate) struct Reader {
    pub(crate) disk: Disk,
    pub(crate) arena: Arc<Arena>,
    next: u64,
}

impl Reader {
    pub(crate) fn new(disk: Disk) -> Self {
        let arena = Arena::new(SLOT_BYTES, 4).expect("memory");
        Self { disk, arena, next: 0 }
    }

    pub(crate) fn ask(&mut self, command: impl FnOnce(Ticket) -> Command) -> CommandOutcome {
        self.next += 1;
        let given = self.disk.submit(command(Ticket(self.next)));
        given.expect("there is room");
        let started = Instant::now();
        let mut reports = Vec::new();
        loop {
            self.disk.poll(&mut reports);
            for report in reports.drain(..) {
                match report {
                    Report::Done { outcome, .. } => return outcome,
                    Report::Condition(condition) => panic!("{condition:?}"),
                    Report::Lost { .. } | Report::Found(_) => {}
                }
            }
            assert!(started.elapsed() < PATIENCE, "no answer");
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// The record, or nothing where it is damaged.
    pub(crate) fn get(&mut self, name: BlockHash) -> Option<Record> {
        let slot = self.arena.take().expect("a slot is free");
        match self.ask(|ticket| Command::Get { ticket, name, slot }) {
            CommandOutcome::Loaded(record) => Some(record),
            CommandOutcome::Failed(Failure::Corrupt) => None,
            other => panic!("{name:?} was found and is neither read nor damaged: {other:?}"),
        }
    }
}

/// The bytes of its parts.
pub(crate) fn parts(record: &Record) -> Vec<Vec<u8>> {
    let parts = (0..record.num_parts()).map(|part| record.part(part).to_vec());
    parts.collect()
}

/// Copies the folder of a stopped server, and reads the copy.
pub(crate) fn read_copy(folder: &Path, scratch: &Path) -> Found {
    let copy = scratch.join("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).expect("a folder");
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), copy.join(entry.file_name())).expect("copies");
    }
    let options = DiskOptions::new(&copy, BUDGET_BYTES);
    let (disk, residents) = Disk::open(options, no_waker()).expect("it opens");
    let mut reader = Reader::new(disk);
    let mut read = |name| (name, reader.get(name).as_ref().map(parts));
    let mut records: BTreeMap<_, _> =
        residents.iter().map(|resident| read(resident.name)).collect();
    drop(reader);
    let list = |folder: &Path| fs::read_to_string(folder.join("quarantine")).unwrap_or_default();
    let known = list(folder).lines().count();
    let noted: Vec<String> = list(&copy).lines().skip(known).map(str::to_owned).collect();
    let names: BTreeSet<&str> = noted.iter().filter_map(|line| line.split(' ').nth(2)).collect();
    for (name, record) in &records {
        let is_noted = names.contains(&*format!("{name:?}"));
        assert!(record.is_some() || is_noted, "{name:?}: {noted:?}");
    }
    // Those that were found damaged before they were asked for.
    for name in names {
        if let Ok(name) = u128::from_str_radix(name, 16) {
            let name = BlockHash(name.to_be_bytes());
            records.entry(name).or_insert(None);
        }
    }
    Found { records, noted }
}

/// Returns the largest distance between the numbers of two copies of a record, as a share of the
/// largest number of their part.
fn apart(one: &[Vec<u8>], other: &[Vec<u8>]) -> f32 {
    let numbers = |part: &[u8]| -> Vec<f32> {
        let numbers = part.as_chunks().0.iter();
        numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    assert_eq!(one.len(), other.len());
    let parts = one.iter().zip(other).map(|(one, other)| {
        let (one, other) = (numbers(one), numbers(other));
        assert_eq!(one.len(), other.len());
        let largest = one.iter().fold(0.0, |most: f32, number| most.max(number.abs()));
        let pairs = one.iter().zip(&other);
        let most = pairs.fold(0.0, |most: f32, (one, other)| most.max((one - other).abs()));
        most / largest
    });
    parts.fold(0.0, f32::max)
}

/// Checks that each readable record is as before the faults, an earlier copy, or excused.
pub(crate) fn compare(
    whole: &Found,
    harmed: &Found,
    excuses: &BTreeMap<BlockHash, Vec<Excuse>>,
    counts: &mut Counts,
    context: &str,
) {
    counts.audits += 1;
    for (name, parts) in &whole.records {
        let Some(parts) = parts else { continue };
        counts.published += 1;
        let excuses = excuses.get(name).map_or(&[][..], Vec::as_slice);
        match harmed.records.get(name) {
            Some(Some(found)) if found == parts => counts.read += 1,
            Some(Some(found)) => {
                assert!(!excuses.is_empty(), "{context}: {name:?} is another");
                let apart = apart(found, parts);
                assert!(apart < ROUNDING, "{context}: {name:?} is wrong by {apart}");
                counts.earlier += 1;
                counts.apart = counts.apart.max(apart);
            }
            Some(None) => {
                assert!(!excuses.is_empty(), "{context}: {name:?} was unharmed");
                counts.set_aside += 1;
            }
            None => counts.gone(harmed, excuses, &format!("{context}: {name:?}")),
        }
    }
}

impl Counts {
    /// A record is neither there nor in the list by its name.
    fn gone(&mut self, harmed: &Found, excuses: &[Excuse], context: &str) {
        let is_set_aside = |excuse: &Excuse| match excuse {
            Excuse::Damaged => false,
            Excuse::Hidden { file, sequence, page, .. } => {
                harmed.has_set_aside(file, *sequence, *page)
            }
        };
        let is_taken_back =
            |excuse: &Excuse| matches!(excuse, Excuse::Hidden { has_traces, .. } if !has_traces);
        if excuses.iter().any(is_set_aside) {
            self.set_aside_unknown += 1;
        } else {
            let noted = &harmed.noted;
            let is_excused = excuses.iter().any(is_taken_back);
            assert!(is_excused, "{context} is gone: {excuses:?}, {noted:?}");
            self.taken_back += 1;
        }
    }
}
