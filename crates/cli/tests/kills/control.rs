//! A check that comparing texts detects wrong keys and values: a folder is filled with records that
//! have valid checksums and wrong contents.

use std::path::Path;

use headstart_core::BlockHash;
use headstart_store::backend::no_waker;
use headstart_store::record::Layout;
use headstart_store::{Command, CommandOutcome, Disk, DiskOptions, Draft, Meta};

use crate::audit::{Reader, parts};
use crate::pool::{Answers, Pool};
use crate::support::{Scratch, Served, eventually};
use crate::{BUDGET_BYTES, arguments};

/// Prompts of which all units fit the disk.
const CONVERSATIONS: usize = 4;

pub(crate) type Records = Vec<(Meta, Vec<Vec<u8>>)>;

fn open(folder: &Path) -> (Reader, Vec<BlockHash>) {
    let options = DiskOptions::new(folder, BUDGET_BYTES);
    let (disk, found) = Disk::open(options, no_waker()).expect("it opens");
    let names = found.iter().map(|resident| resident.name).collect();
    (Reader::new(disk), names)
}

pub(crate) fn read(folder: &Path) -> Records {
    let (mut reader, names) = open(folder);
    let record = |name| {
        let record = reader.get(name).expect("nothing is damaged");
        (*record.meta(), parts(&record))
    };
    names.into_iter().map(record).collect()
}

pub(crate) fn write(folder: &Path, records: &Records, layout: Layout) {
    let (mut writer, _) = open(folder);
    for (meta, parts) in records {
        let lens: Vec<usize> = parts.iter().map(Vec::len).collect();
        let slot = writer.arena.take().expect("a slot is free");
        let mut draft = Draft::laid_out(slot, *meta, &lens, layout).expect("it fits");
        for (part, bytes) in parts.iter().enumerate() {
            draft.part_mut(part).copy_from_slice(bytes);
        }
        let record = draft.seal();
        let stored = writer.ask(|ticket| Command::Put { ticket, record });
        assert!(matches!(stored, CommandOutcome::Stored), "{stored:?}");
    }
}

/// Returns the answers of a server whose context cache has these records.
fn answers(pool: &Pool, folder: &Path, records: &Records) -> Answers {
    write(folder, records, Layout::Dense);
    let server = Served::start(arguments(folder));
    pool.ask_all(&server.address)
}

#[test]
fn wrong_bytes_that_were_served_would_be_seen() {
    let scratch = Scratch::new("control");
    let folder = |name: &str| scratch.0.join(name);
    let pool = Pool::new(CONVERSATIONS, 7);
    let server = Served::start(arguments(&folder("filled")));
    pool.ask_all(&server.address).check("the first time");
    let is_stored = |line: &str| {
        let count = line.rsplit(' ').next().and_then(|count| count.parse().ok());
        let is_count =
            line.starts_with("headstart_tier_units_total") && line.contains("\"stored\"");
        is_count && count.is_some_and(|count: f64| count > CONVERSATIONS as f64)
    };
    let is_enough = || server.metrics().lines().any(is_stored);
    eventually("enough is stored", is_enough);
    drop(server);
    let records = read(&folder("filled"));
    assert!(records.len() > CONVERSATIONS, "{} records", records.len());

    let right = answers(&pool, &folder("right"), &records);
    right.check("the right records");
    assert!(right.hit_tokens > 0);

    let others = records.iter().cycle().skip(1);
    let swapped = records.iter().zip(others);
    let swapped = swapped.map(|((meta, _), (_, parts))| (*meta, parts.clone()));
    let swapped = answers(&pool, &folder("swapped"), &swapped.collect());
    assert!(swapped.hit_tokens > 0);
    assert!(!swapped.wrong.is_empty(), "other prompts' bytes are seen");

    let mut flipped = records;
    for (_, parts) in &mut flipped {
        // The exponent of the first number of the first layer.
        parts[0][3] ^= 0x40;
    }
    let flipped = answers(&pool, &folder("flipped"), &flipped);
    assert!(flipped.hit_tokens > 0);
    assert!(!flipped.wrong.is_empty(), "a single bit is seen");
}
