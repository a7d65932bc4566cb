//! A folder read record by record, through the store itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::BlockHash;
use headstart_store::backend::{Failure, no_waker};
use headstart_store::{
    Arena, Backend, Command, Disk, DiskOptions, Outcome, Record, Report, Ticket,
};

use crate::BUDGET_BYTES;
use crate::faults::Excuse;
use crate::support::PATIENCE;

/// Room for a unit of the toy, bytes.
pub(crate) const SLOT_BYTES: usize = 640 << 10;

/// Copies of a record that were computed in pieces of other lengths differ by rounding, as a share
/// of the largest number; those of another prompt by about 1.
const ROUNDING: f32 = 1e-4;

/// What audits came to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    audits: usize,
    /// Units that could be read before the faults.
    published: usize,
    /// Of these, read after them, and the same.
    pub(crate) read: usize,
    /// Of these, read as an earlier copy, computed in other pieces: the later one is hidden.
    earlier: usize,
    /// How far numbers of such copies are apart, as a share of the largest one of their part.
    apart: f32,
    /// Of these, found damaged and set aside.
    pub(crate) set_aside: usize,
    /// Of these, not found, because a table, a header or a file was harmed.
    hidden: usize,
}

/// The bytes of every part of a record, or nothing where it was found damaged.
pub(crate) type Found = BTreeMap<BlockHash, Option<Vec<Vec<u8>>>>;

/// A tier that is asked one thing after the other.
pub(crate) struct Reader {
    pub(crate) disk: Disk,
    pub(crate) arena: Arc<Arena>,
    next: u64,
}

impl Reader {
    pub(crate) fn new(disk: Disk) -> Self {
        let arena = Arena::new(SLOT_BYTES, 4).expect("memory");
        Self {
            disk,
            arena,
            next: 0,
        }
    }

    pub(crate) fn ask(&mut self, command: impl FnOnce(Ticket) -> Command) -> Outcome {
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
            Outcome::Loaded(record) => Some(record),
            Outcome::Failed(Failure::Corrupt) => None,
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
    let mut found: Found = residents
        .iter()
        .map(|resident| read(resident.name))
        .collect();
    drop(reader);
    let list = |folder: &Path| fs::read_to_string(folder.join("quarantine")).unwrap_or_default();
    let known = list(folder).lines().count();
    let noted = list(&copy);
    let noted: BTreeSet<&str> = noted
        .lines()
        .skip(known)
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    for (name, record) in &found {
        let is_noted = noted.contains(&*format!("{name:?}"));
        assert!(record.is_some() || is_noted, "{name:?}: {noted:?}");
    }
    // Those that were found damaged before they were asked for.
    for name in noted {
        let name = u128::from_str_radix(name, 16).expect("a name");
        found.entry(BlockHash(name.to_be_bytes())).or_insert(None);
    }
    found
}

/// How far the numbers of two copies of a record are apart at most, as a share of the largest
/// number of their part.
fn apart(one: &[Vec<u8>], other: &[Vec<u8>]) -> f32 {
    let numbers = |part: &[u8]| -> Vec<f32> {
        let numbers = part.as_chunks().0.iter();
        numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    assert_eq!(one.len(), other.len());
    let parts = one.iter().zip(other).map(|(one, other)| {
        let (one, other) = (numbers(one), numbers(other));
        assert_eq!(one.len(), other.len());
        let largest = one
            .iter()
            .fold(0.0, |most: f32, number| most.max(number.abs()));
        let pairs = one.iter().zip(&other);
        let most = pairs.fold(0.0, |most: f32, (one, other)| most.max((one - other).abs()));
        most / largest
    });
    parts.fold(0.0, f32::max)
}

/// What could be read before faults is as it was, set aside, or hidden by one of them.
pub(crate) fn compare(
    whole: &Found,
    harmed: &Found,
    excuses: &BTreeMap<BlockHash, Excuse>,
    counts: &mut Counts,
    context: &str,
) {
    counts.audits += 1;
    for (name, parts) in whole {
        let Some(parts) = parts else { continue };
        counts.published += 1;
        let excuse = excuses.get(name);
        match harmed.get(name) {
            Some(Some(found)) if found == parts => counts.read += 1,
            Some(Some(found)) => {
                assert_eq!(
                    excuse,
                    Some(&Excuse::Hidden),
                    "{context}: {name:?} is another"
                );
                let apart = apart(found, parts);
                assert!(apart < ROUNDING, "{context}: {name:?} is wrong by {apart}");
                counts.earlier += 1;
                counts.apart = counts.apart.max(apart);
            }
            Some(None) => {
                assert!(excuse.is_some(), "{context}: {name:?} was unharmed");
                counts.set_aside += 1;
            }
            None => {
                assert_eq!(excuse, Some(&Excuse::Hidden), "{context}: {name:?} is gone");
                counts.hidden += 1;
            }
        }
    }
}
