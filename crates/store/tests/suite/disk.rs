//! The disk tier from outside: what is stored is there after a restart, what is damaged is a miss,
//! and the budget holds.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::conformance::{Trial, check, record_of, slot_bytes};
use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};
use headstart_store::backend::{
    Backend, Command, Condition, Failure, LossReason, Report, Ticket, no_waker,
};
use headstart_store::disk::{Disk, DiskError, DiskOptions, IoKind};
use headstart_store::record::{Content, Exactness, Layout, PAGE};
use headstart_store::{Arena, CommandOutcome, Draft, Meta, Record};

use crate::faults::Faults;
use crate::support::{self, Driver, PART_BYTES, options};

#[test]
fn it_conforms_both_ways() {
    for (seed, io) in [(1, IoKind::Auto), (2, IoKind::Threads), (3, IoKind::Auto)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(folder.path(), 6 << 20);
        options.io = io;
        let (mut disk, found) = Disk::open(options, support::no_waker()).expect("it opens");
        assert!(found.is_empty());
        let trial = Trial { seed, commands: 3_000, names: 400, part_bytes: PART_BYTES };
        check(&mut disk, trial);
    }
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut names = Vec::new();
    for life in 0..4u64 {
        let mut driver = Driver::open(options(folder.path(), 32 << 20));
        let mut found: Vec<BlockHash> = driver.found.iter().map(|found| found.name).collect();
        found.sort_unstable();
        let mut expected: Vec<BlockHash> = names.iter().copied().map(BlockHash::from_u64).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "life {life}");
        for &name in &names {
            driver.must_load(name);
        }
        for name in life * 100..life * 100 + 100 {
            driver.must_store(name);
            names.push(name);
        }
    }
}

#[test]
fn found_records_say_who_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut driver = Driver::open(options(folder.path(), 8 << 20));
    driver.must_store(7);
    drop(driver);
    let driver = Driver::open(options(folder.path(), 8 << 20));
    let arena = Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
    let record = record_of(7, PART_BYTES, arena.take().expect("a slot"));
    let found = driver.found[0];
    assert_eq!(driver.found.len(), 1);
    assert_eq!(found.name, record.meta().name);
    assert_eq!(found.parent, record.meta().parent);
    assert_eq!((found.tenant, found.tokens), (TenantTag(2), 16));
    assert_eq!(found.bytes, record.bytes().len() as u64);
}

#[test]
fn the_budget_holds_under_churn_and_what_went_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let budget = 6 << 20;
    let mut driver = Driver::open(options(folder.path(), budget));
    let mut rng = Rng::new(5);
    for round in 0..4_000u64 {
        driver.put(round);
        if round % 3 > 0 {
            // The caller forgets at random, so that segments must be cleaned.
            let name = rng.below(round as usize + 1) as u64;
            driver.remove(name);
        }
        if round % 100 == 0 {
            driver.quiet();
            assert!(support::folder_bytes(folder.path()) <= budget, "round {round}");
        }
    }
    driver.quiet();
    let there: Vec<u64> = driver.stored.iter().copied().collect();
    assert!(there.len() > 100, "{} are left", there.len());
    for name in there {
        driver.must_load(name);
    }
    let stats = driver.disk.stats();
    assert!(stats.moved_bytes.get() > 0, "segments were cleaned");
    assert_eq!(stats.corrupt.get(), 0);
    assert!(driver.lost.iter().all(|(_, loss)| *loss == LossReason::Evicted));
}

#[test]
fn damage_is_a_miss_and_stays_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut driver = Driver::open(options(folder.path(), 8 << 20));
    (0..200).for_each(|name| driver.must_store(name));
    drop(driver);
    let flipped = support::flip_bits(folder.path(), 30, 11);
    assert_eq!(flipped, 30);
    let mut lost = Vec::new();
    for life in 0..2 {
        let mut driver = Driver::open(options(folder.path(), 8 << 20));
        let found: Vec<u64> = (0..200).filter(|&name| driver.has_found(name)).collect();
        let unharmed: Vec<u64> = found.into_iter().filter(|&name| driver.loads(name)).collect();
        if life == 0 {
            lost = (0..200).filter(|name| !unharmed.contains(name)).collect();
            assert!((1..=30).contains(&lost.len()), "{lost:?}");
            assert_eq!(driver.disk.stats().corrupt.get(), driver.lost.len() as u64);
        } else {
            assert_eq!(driver.disk.stats().corrupt.get(), 0, "it was set aside");
            let still: Vec<u64> = (0..200).filter(|name| !unharmed.contains(name)).collect();
            assert_eq!(still, lost);
        }
    }
}

#[test]
fn a_purge_is_for_good() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut driver = Driver::open(options(folder.path(), 8 << 20));
    (0..100).for_each(|name| driver.must_store(name));
    assert_eq!(driver.purge(TenantTag(3)), 20);
    assert!(!driver.loads(3) && !driver.loads(98));
    assert!(driver.loads(4));
    driver.must_store(3);
    let bytes = record_bytes_of(8);
    drop(driver);
    assert!(!support::contains(folder.path(), &bytes), "the bytes are gone");
    let mut driver = Driver::open(options(folder.path(), 8 << 20));
    assert!(driver.loads(3), "stored again later");
    assert!(!driver.has_found(8) && !driver.loads(8));
    assert!(driver.loads(9));
}

fn record_bytes_of(name: u64) -> Vec<u8> {
    let arena = Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
    let record = record_of(name, PART_BYTES, arena.take().expect("a slot"));
    let parts = (0..record.num_parts()).map(|part| record.part(part));
    let longest = parts.max_by_key(|part| part.len()).expect("it has parts");
    longest[..64.min(longest.len())].to_vec()
}

#[test]
fn times_to_live_end() {
    static NOW_S: AtomicU64 = AtomicU64::new(1_000);
    let folder = tempfile::tempdir().expect("a folder");
    let open = || {
        let mut options = options(folder.path(), 8 << 20);
        options.now_s = || NOW_S.load(Relaxed);
        Driver::open(options)
    };
    let mut driver = open();
    driver.expires_s = Some(1_010);
    (0..10).for_each(|name| driver.must_store(name));
    driver.expires_s = None;
    driver.must_store(10);
    NOW_S.store(1_009, Relaxed);
    assert!(driver.loads(0));
    NOW_S.store(1_010, Relaxed);
    assert!(!driver.loads(0));
    assert_eq!(driver.lost, [(BlockHash::from_u64(0), LossReason::Expired)]);
    drop(driver);
    let mut driver = open();
    assert_eq!(driver.found.len(), 1);
    driver.must_load(10);
}

#[test]
fn one_process_at_a_time_and_room_for_some_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let _driver = Driver::open(options(folder.path(), 8 << 20));
    let second = Disk::open(options(folder.path(), 8 << 20), support::no_waker());
    assert!(matches!(second.err(), Some(DiskError::InUse { .. })));
    let small = Disk::open(DiskOptions::new(folder.path(), 1 << 20), support::no_waker());
    let error = small.err().expect("too small").to_string();
    assert!(error.contains("at least 5242880 bytes"), "{error}");
}

#[test]
fn a_full_disk_is_told_once_and_recovers() {
    fails_and_recovers(libc::ENOSPC, Failure::Full);
}

#[test]
fn a_read_only_disk_is_told_once_and_recovers() {
    fails_and_recovers(libc::EROFS, Failure::ReadOnly);
}

fn fails_and_recovers(errno: i32, failure: Failure) {
    let folder = tempfile::tempdir().expect("a folder");
    let faults = Faults::default();
    let switch = faults.writes_fail.clone();
    let mut driver = Driver::open_faulty(options(folder.path(), 8 << 20), &faults);
    driver.must_store(1);
    switch.store(errno as u64, Relaxed);
    for name in 2..40 {
        let outcome = driver.store(name);
        assert!(matches!(outcome, CommandOutcome::Failed(told) if told == failure), "{outcome:?}");
        driver.must_load(1);
    }
    assert_eq!(driver.conditions, [Condition::WritesFail(failure)]);
    switch.store(0, Relaxed);
    driver.until(|driver| matches!(driver.store(99), CommandOutcome::Stored));
    driver.quiet();
    let well = [Condition::WritesFail(failure), Condition::Well];
    assert_eq!(driver.conditions, well);
    driver.must_load(99);
}

#[test]
fn a_folder_that_vanishes_is_a_miss_and_comes_back() {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, away) = (place.path().join("cache"), place.path().join("away"));
    let mut driver = Driver::open(options(&folder, 8 << 20));
    (0..50).for_each(|name| driver.must_store(name));
    fs::rename(&folder, &away).expect("moved");
    let gone = Condition::Gone(Failure::Offline);
    driver.until(|driver| driver.conditions.first() == Some(&gone));
    assert!(!driver.loads(1));
    assert!(matches!(driver.store(60), CommandOutcome::Failed(Failure::Offline)));
    assert_eq!(driver.lost.len(), 50);
    fs::rename(&away, &folder).expect("moved back");
    driver.until(|driver| driver.conditions.last() == Some(&Condition::Well));
    driver.must_load(1);
    driver.must_store(60);
    assert_eq!(driver.conditions.len(), 2);
}

#[test]
fn what_it_has_at_hand_is_finished_before_it_closes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut driver = Driver::open(options(folder.path(), 16 << 20));
    for name in 0..40 {
        driver.put(name);
    }
    drop(driver);
    let driver = Driver::open(options(folder.path(), 16 << 20));
    assert_eq!(driver.found.len(), 40);
}

#[test]
fn the_waker_is_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sender, woken) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let waker = std::sync::Arc::new(move || {
        let _ = sender.lock().expect("nobody panics").send(());
    });
    let (disk, _) = Disk::open(options(folder.path(), 8 << 20), waker).expect("it opens");
    let mut driver = Driver::of(disk);
    driver.put(1);
    woken.recv_timeout(Duration::from_secs(30)).expect("woken");
    let mut reports = Vec::new();
    headstart_store::Backend::poll(&mut driver.disk, &mut reports);
    assert!(matches!(reports[..], [Report::Done { .. }]));
}

/// A record of these parts, each filled with its number.
fn record_of_parts(arena: &Arc<Arena>, name: u64, parts: &[usize]) -> Record {
    let slot = arena.take().expect("a slot");
    let meta = Meta {
        name: BlockHash::from_u64(name),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(1),
        tokens: 16,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s: None,
    };
    let mut draft = Draft::laid_out(slot, meta, parts, Layout::Paged).expect("it fits");
    for part in 0..parts.len() {
        draft.part_mut(part).fill(part as u8);
    }
    draft.seal()
}

fn ask(disk: &mut Disk, command: Command) -> CommandOutcome {
    let asked = command.ticket();
    disk.submit(command).expect("there is room");
    let started = Instant::now();
    loop {
        let mut reports = Vec::new();
        disk.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } if ticket == asked => return outcome,
                _ => {}
            }
        }
        assert!(started.elapsed() < Duration::from_secs(30), "no answer");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Reads a part; its bytes must be right. How many bytes that took.
fn cost(disk: &mut Disk, arena: &Arc<Arena>, part: u16, len: usize) -> u64 {
    let before = disk.stats().read_bytes.get();
    let slot = arena.take().expect("a slot");
    let (ticket, name) = (Ticket(9), BlockHash::from_u64(1));
    let outcome = ask(disk, Command::GetPart { ticket, name, part, slot });
    let CommandOutcome::Part(read) = outcome else {
        panic!("{part}: {outcome:?}");
    };
    assert_eq!(read.bytes(), vec![part as u8; len], "{part}");
    disk.stats().read_bytes.get() - before
}

#[test]
fn a_part_costs_its_own_pages_and_the_header_once() {
    let place = tempfile::tempdir().expect("a folder");
    let arena = Arena::new(96 * PAGE, 2).expect("memory");
    let parts = [PAGE, 5 * PAGE, 7 * PAGE + 1, 0, 100, 100];
    let record = record_of_parts(&arena, 1, &parts);
    let options = || DiskOptions::new(place.path(), 8 << 20);
    let (mut disk, _) = Disk::open(options(), no_waker()).expect("it opens");
    let ticket = Ticket(1);
    let stored = ask(&mut disk, Command::Put { ticket, record });
    assert!(matches!(stored, CommandOutcome::Stored));
    let pages = |count: usize| (count * PAGE) as u64;
    let cost_of = |disk: &mut Disk, part: usize| cost(disk, &arena, part as u16, parts[part]);
    assert_eq!(cost_of(&mut disk, 2), pages(8 + 8), "the front, then it");
    assert_eq!(cost_of(&mut disk, 2), pages(8));
    assert_eq!(cost_of(&mut disk, 1), pages(5));
    assert_eq!(cost_of(&mut disk, 3), 0, "it is empty");
    assert_eq!(cost_of(&mut disk, 5), pages(1));
    drop(disk);
    let (mut disk, _) = Disk::open(options(), no_waker()).expect("it opens");
    assert_eq!(cost_of(&mut disk, 1), pages(8), "it lies in the front");
    assert_eq!(disk.stats().unit_parts.get(), 1);
}

/// An empty part lies nowhere, also behind what a small slot holds of a record whose header is not
/// known: it is read, and the record is not taken for a damaged one.
#[test]
fn an_empty_part_is_read_wherever_it_would_begin() {
    let place = tempfile::tempdir().expect("a folder");
    let options = DiskOptions::new(place.path(), 8 << 20);
    for len in [0, 100, PAGE - 200, PAGE - 100, PAGE, 20 * PAGE] {
        let (mut disk, _) = Disk::open(options.clone(), no_waker()).expect("a folder");
        let arena = Arena::new(30 * PAGE, 2).expect("memory");
        let record = record_of_parts(&arena, len as u64, &[len, 0, 64]);
        let ticket = Ticket(1);
        let put = ask(&mut disk, Command::Put { ticket, record });
        assert!(matches!(put, CommandOutcome::Stored), "{put:?}");
        // Reopened, so that the header is not known.
        drop(disk);
        let (mut disk, _) = Disk::open(options.clone(), no_waker()).expect("a folder");
        let small = Arena::new(PAGE, 1).expect("memory");
        let ticket = Ticket(2);
        let (name, slot) = (BlockHash::from_u64(len as u64), small.take().expect("a slot"));
        let get = Command::GetPart { ticket, name, part: 1, slot };
        match ask(&mut disk, get) {
            CommandOutcome::Part(part) => assert!(part.bytes().is_empty()),
            other => panic!("{len}: {other:?}"),
        }
        assert_eq!(disk.stats().corrupt.get(), 0);
    }
}

#[test]
fn a_part_behind_a_long_header_is_read() {
    let place = tempfile::tempdir().expect("a folder");
    let arena = Arena::new(96 * PAGE, 2).expect("memory");
    let parts = vec![8; 4096];
    let record = record_of_parts(&arena, 1, &parts);
    let options = DiskOptions::new(place.path(), 8 << 20);
    let (mut disk, _) = Disk::open(options, no_waker()).expect("it opens");
    let ticket = Ticket(1);
    let stored = ask(&mut disk, Command::Put { ticket, record });
    assert!(matches!(stored, CommandOutcome::Stored));
    let pages = |count: usize| (count * PAGE) as u64;
    assert_eq!(cost(&mut disk, &arena, 4000, 8), pages(8 + 17 + 1));
    assert_eq!(cost(&mut disk, &arena, 7, 8), pages(1));
    let slot = arena.take().expect("a slot");
    let (ticket, name) = (Ticket(2), BlockHash::from_u64(1));
    let part = 4096;
    let beyond = Command::GetPart { ticket, name, part, slot };
    assert!(matches!(ask(&mut disk, beyond), CommandOutcome::Missing));
}
