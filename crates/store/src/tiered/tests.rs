use std::time::{Duration, Instant};

use headstart_core::{IdentityDigest, TenantTag};

use super::*;
mod packs;
mod parts;

use crate::backend::no_waker;
use crate::disk::{Disk, DiskOptions, unix_seconds};
use crate::record::Exactness;

const BLOCK_BYTES: usize = 500;

/// A part of blocks whose bytes are these numbers.
struct Part(Vec<u8>);

impl DevicePart for Part {
    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn read(&self, block: BlockId, bytes: &mut [u8]) {
        bytes.fill(self.0[block.index()]);
    }

    fn write(&mut self, _: BlockId, _: &[u8]) {}
}

fn config(host_units: usize) -> StoreConfig {
    StoreConfig {
        part_bytes: vec![BLOCK_BYTES; 2],
        exactness: Exactness::Exact,
        unit_blocks: 2,
        unit_tokens: 32,
        host_units,
        staging_units: 4,
        lifetimes: Lifetimes::default(),
        now_s: unix_seconds,
        notes: None,
        parts: None,
    }
}

fn disk(folder: &std::path::Path) -> Below {
    let options = DiskOptions::new(folder, 8 << 20);
    let (disk, found) = Disk::open(options, no_waker()).expect("it opens");
    Below { tier: Tier::Disk, backend: Box::new(disk), found }
}

fn unit(id: u64) -> Unit {
    Unit {
        name: BlockHash::from_u64(id),
        parent: None,
        identity: IdentityDigest::default(),
        tenant: TenantTag::default(),
    }
}

fn wait(store: &mut TieredStore, count: usize) -> Vec<TransferReport> {
    let started = Instant::now();
    let mut moved = Vec::new();
    while moved.len() < count {
        assert!(started.elapsed() < Duration::from_secs(30), "{moved:?}");
        store.poll(&mut moved);
        std::thread::sleep(Duration::from_micros(100));
    }
    moved
}

fn put(store: &mut TieredStore, id: u64, to: &[Tier], blocks: [u8; 2]) {
    let transfer = Transfer::Store {
        id: TransferId(id),
        unit: unit(id),
        blocks: vec![BlockId(0), BlockId(1)],
        to: to.to_vec(),
    };
    store.submit(transfer);
    read(store, blocks, 2);
}

/// The device comes to its first parts; bytes follow from the block and the part.
fn read(store: &mut TieredStore, blocks: [u8; 2], num_parts: usize) {
    for part in 0..num_parts {
        let bytes = blocks.map(|block| block.wrapping_add(part as u8 * 100));
        store.read(part, &Part(bytes.to_vec()));
    }
    store.end_reads();
}

fn load(store: &mut TieredStore, id: u64, from: Tier) -> TransferResult {
    let transfer = Transfer::Load { id: TransferId(100 + id), name: BlockHash::from_u64(id), from };
    store.submit(transfer);
    match wait(store, 1)[..] {
        [TransferReport::Loaded { id: told, result, .. }] if told == TransferId(100 + id) => result,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_unit_goes_down_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store =
        TieredStore::new(config(2), vec![disk(folder.path())], no_waker()).expect("a store");
    wait(&mut store, 1);
    put(&mut store, 1, &[Tier::Host, Tier::Disk], [7, 9]);
    let stored = wait(&mut store, 2);
    for tier in [Tier::Host, Tier::Disk] {
        let (id, result) = (TransferId(1), TransferResult::Done);
        assert!(stored.contains(&TransferReport::Stored { id, tier, result }), "{stored:?}");
        assert_eq!(load(&mut store, 1, tier), TransferResult::Done);
        for part in 0..2 {
            let bytes = store.part(BlockHash::from_u64(1), part).expect("at hand");
            let (one, other) = bytes.split_at(BLOCK_BYTES);
            assert!(one.iter().all(|&byte| byte == 7 + part as u8 * 100));
            assert!(other.iter().all(|&byte| byte == 9 + part as u8 * 100));
        }
        let name = BlockHash::from_u64(1);
        store.submit(Transfer::Release { name });
        assert_eq!(store.part(name, 0), None);
    }
    assert_eq!(load(&mut store, 2, Tier::Disk), TransferResult::Failed);
    drop(store);
    let mut store =
        TieredStore::new(config(2), vec![disk(folder.path())], no_waker()).expect("a store");
    let found =
        FoundUnit { name: BlockHash::from_u64(1), parent: None, tenant: TenantTag::default() };
    let units = vec![found];
    let tier = Tier::Disk;
    assert_eq!(wait(&mut store, 1), [TransferReport::Found { tier, units }]);
    assert_eq!(load(&mut store, 1, Tier::Disk), TransferResult::Done);
}

/// Of the same name and length, which never happens: it is computed instead.
#[test]
fn what_is_not_as_exact_is_not_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let kinds = [Exactness::Exact, Exactness::Lossy];
    for (number, exactness) in kinds.into_iter().enumerate() {
        let mut config = config(0);
        config.exactness = exactness;
        let below = vec![disk(folder.path())];
        let mut store = TieredStore::new(config, below, no_waker()).expect("a store");
        wait(&mut store, 1);
        let own = number as u64 + 1;
        put(&mut store, own, &[Tier::Disk], [7, 9]);
        wait(&mut store, 1);
        for id in 1..=own {
            let right = if id == own { TransferResult::Done } else { TransferResult::Failed };
            assert_eq!(load(&mut store, id, Tier::Disk), right, "{exactness:?}");
        }
        drop(store);
    }
    let mut store =
        TieredStore::new(config(0), vec![disk(folder.path())], no_waker()).expect("a store");
    wait(&mut store, 1);
    assert_eq!(load(&mut store, 1, Tier::Disk), TransferResult::Done);
    assert_eq!(load(&mut store, 2, Tier::Disk), TransferResult::Failed);
    assert_eq!(store.part(BlockHash::from_u64(2), 0), None);
}

#[test]
fn a_unit_that_was_not_read_to_its_end_is_not_stored() {
    let mut store = TieredStore::new(config(2), Vec::new(), no_waker()).expect("a store");
    let free = store.slots();
    let transfer = Transfer::Store {
        id: TransferId(1),
        unit: unit(1),
        blocks: vec![BlockId(0), BlockId(1)],
        to: vec![Tier::Host],
    };
    store.submit(transfer);
    read(&mut store, [7, 9], 1);
    let (id, tier) = (TransferId(1), Tier::Host);
    let result = TransferResult::Failed;
    assert_eq!(wait(&mut store, 1), [TransferReport::Stored { id, tier, result }]);
    assert_eq!(store.slots(), free);
    assert_eq!(load(&mut store, 1, Tier::Host), TransferResult::Failed);
}

/// A step in which something has only arrived.
#[test]
fn parts_that_nothing_was_read_of_do_not_count() {
    let mut store = TieredStore::new(config(2), Vec::new(), no_waker()).expect("a store");
    let device = Part(vec![0, 0]);
    (0..2).for_each(|part| store.read(part, &device));
    put(&mut store, 1, &[Tier::Host], [7, 9]);
    wait(&mut store, 1);
    assert_eq!(load(&mut store, 1, Tier::Host), TransferResult::Done);
}

#[test]
fn demotion_outlives_being_forgotten_above() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store =
        TieredStore::new(config(2), vec![disk(folder.path())], no_waker()).expect("a store");
    wait(&mut store, 1);
    put(&mut store, 1, &[Tier::Host], [1, 2]);
    wait(&mut store, 1);
    let name = BlockHash::from_u64(1);
    let (from, to) = (Tier::Host, Tier::Disk);
    let id = TransferId(5);
    store.submit(Transfer::Demote { id, name, from, to });
    let names = vec![name];
    store.submit(Transfer::Forget { tier: from, names });
    let result = TransferResult::Done;
    let tier = to;
    assert_eq!(wait(&mut store, 1), [TransferReport::Stored { id, tier, result }]);
    assert_eq!(load(&mut store, 1, Tier::Host), TransferResult::Failed);
    assert_eq!(load(&mut store, 1, Tier::Disk), TransferResult::Done);
}

#[test]
fn without_a_free_slot_stores_fail_and_loads_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut small = config(0);
    small.staging_units = 1;
    let mut store =
        TieredStore::new(small, vec![disk(folder.path())], no_waker()).expect("a store");
    wait(&mut store, 1);
    for id in [1, 2] {
        put(&mut store, id, &[Tier::Disk], [1, 2]);
        wait(&mut store, 1);
    }
    assert_eq!(load(&mut store, 1, Tier::Disk), TransferResult::Done);
    put(&mut store, 3, &[Tier::Disk], [1, 2]);
    let result = TransferResult::Failed;
    let (id, tier) = (TransferId(3), Tier::Disk);
    assert_eq!(wait(&mut store, 1), [TransferReport::Stored { id, tier, result }]);
    let second =
        Transfer::Load { id: TransferId(9), name: BlockHash::from_u64(2), from: Tier::Disk };
    store.submit(second);
    let mut moved = Vec::new();
    store.poll(&mut moved);
    assert!(moved.is_empty());
    let name = BlockHash::from_u64(1);
    store.submit(Transfer::Release { name });
    let told = wait(&mut store, 1);
    let is_it = |report: &TransferReport| match report {
        TransferReport::Loaded { id, result, .. } => {
            (*id, *result) == (TransferId(9), TransferResult::Done)
        }
        _ => false,
    };
    assert!(told.len() == 1 && is_it(&told[0]), "{told:?}");
}

#[test]
fn what_is_noted_is_told_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(2);
    config.notes = Some(folder.path().join("notes"));
    let tails: Vec<BlockHash> = (1..4).map(BlockHash::from_u64).collect();
    let note = Transfer::Note { tails: tails.clone() };
    let mut store = TieredStore::new(config.clone(), Vec::new(), no_waker()).expect("a store");
    assert_eq!(wait(&mut store, 1), [TransferReport::Noted { tails: Vec::new() }]);
    store.submit(note);
    drop(store);
    let mut store = TieredStore::new(config, Vec::new(), no_waker()).expect("a store");
    assert_eq!(wait(&mut store, 1), [TransferReport::Noted { tails }]);
}

/// A folder on a server that does not answer: a pipe without a reader.
#[test]
#[cfg(unix)]
fn notes_that_cannot_be_written_delay_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("notes.new");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|made| made.success()) {
        eprintln!("skipped: there is no mkfifo");
        return;
    }
    let mut config = config(2);
    config.notes = Some(folder.path().join("notes"));
    let mut store = TieredStore::new(config, Vec::new(), no_waker()).expect("a store");
    wait(&mut store, 1);
    for _ in 0..9 {
        let tails = vec![BlockHash::from_u64(1)];
        store.submit(Transfer::Note { tails });
    }
    put(&mut store, 1, &[Tier::Host], [7, 9]);
    wait(&mut store, 1);
    assert_eq!(load(&mut store, 1, Tier::Host), TransferResult::Done);
    let started = Instant::now();
    drop(store);
    assert!(started.elapsed() < Duration::from_secs(20), "it ends");
}
