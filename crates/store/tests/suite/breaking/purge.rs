//! Purges that must reach everything and nothing else.

use super::*;

#[test]
fn purge_01_a_put_that_was_waiting_stays_purged_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    raw.must_store(1, 1);
    // All in one go, so that the purge finds them waiting.
    for name in 10..40 {
        raw.put(name, 7);
    }
    let purge = raw.purge(7);
    assert!(matches!(raw.answer(purge), CommandOutcome::Removed(_)));
    raw.quiet();
    for name in 10..40 {
        assert!(!raw.loads(name));
    }
    drop(raw);
    let raw = Raw::open(options(folder.path(), 8 << 20));
    let back: Vec<u64> = (10..40).filter(|&name| raw.has_found(name)).collect();
    assert!(back.is_empty(), "purged, and found again: {back:?}");
}

#[test]
fn purge_02_works_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    for name in 0..20 {
        raw.must_store(name, 7);
    }
    drop(raw);
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    let ticket = raw.purge(7);
    let outcome = raw.answer(ticket);
    let is_on_disk = support::contains(folder.path(), &bytes_of(8));
    assert!(
        matches!(outcome, CommandOutcome::Removed(20)) && !is_on_disk,
        "{outcome:?}, bytes still there: {is_on_disk}"
    );
}

fn bytes_of(name: u64) -> Vec<u8> {
    let arena = Arena::new(SLOT, 1).expect("memory");
    let record = record(arena.take().expect("a slot"), name, 7, None, 3_000);
    record.part(0)[..256].to_vec()
}

#[test]
fn purge_03_destroys_what_was_removed_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    raw.must_store(8, 7);
    let ticket = raw.remove(8);
    raw.answer(ticket);
    raw.must_purge(7);
    drop(raw);
    assert!(!support::contains(folder.path(), &bytes_of(8)), "a tenant's bytes outlive its purge");
}

#[test]
fn purge_04_is_not_forgotten_because_another_tenant_is_purged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    for name in 0..20 {
        raw.must_store(name, 7);
    }
    for name in 0..20 {
        let ticket = raw.remove(name);
        raw.answer(ticket);
    }
    // Now every segment is free: but their files say what was in them.
    raw.must_purge(7);
    raw.must_purge(8);
    drop(raw);
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    let back: Vec<u64> = (0..20).filter(|&name| raw.loads(name)).collect();
    assert!(back.is_empty(), "purged, and read again: {back:?}");
}

#[test]
fn purge_05_does_not_reach_what_is_stored_after_it_and_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let faults = Faults::default();
    let switch = faults.writes_fail.clone();
    let mut raw = Raw::open_faulty(options(folder.path(), 8 << 20), &faults);
    raw.must_store(1, 7);
    // Numbers of segments are used up whose headers never reach the disk.
    switch.store(libc::ENOSPC as u64, Relaxed);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2_500) {
        raw.store(2, 7);
        std::thread::sleep(Duration::from_millis(20));
    }
    let ticket = raw.purge(7);
    raw.answer(ticket);
    drop(raw);
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    raw.must_store(3, 7);
    assert!(raw.loads(3));
    drop(raw);
    let raw = Raw::open(options(folder.path(), 8 << 20));
    assert!(raw.has_found(3), "stored after the purge, gone after a restart");
}

#[test]
fn purge_05b_nor_where_the_segments_were_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    for name in 0..200 {
        raw.must_store(name, 7);
    }
    raw.must_purge(7);
    drop(raw);
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().contains("segment-") {
            fs::remove_file(path).expect("deleted");
        }
    }
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    raw.must_store(3, 7);
    drop(raw);
    let raw = Raw::open(options(folder.path(), 8 << 20));
    assert!(raw.has_found(3), "stored after the purge, gone after a restart");
}

#[test]
fn purge_06_what_is_stored_again_after_it_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 24 << 20));
    let mut rng = Rng::new(6);
    let mut again = Vec::new();
    for round in 0..400u64 {
        let (name, tenant) = (round, 1_000 + round);
        raw.put(name, tenant);
        // So that the purge meets it while it is written or committed.
        let pause = Duration::from_micros(rng.below(600) as u64);
        let started = Instant::now();
        while started.elapsed() < pause {
            std::hint::spin_loop();
        }
        raw.purge(tenant);
        again.push((name, raw.put(name, tenant)));
        let outcome = raw.answer(again[round as usize].1);
        assert!(matches!(outcome, CommandOutcome::Stored), "{outcome:?}");
    }
    raw.quiet();
    let stored = raw.stored.clone();
    drop(raw);
    let raw = Raw::open(options(folder.path(), 24 << 20));
    let gone: Vec<u64> = stored.into_iter().filter(|&name| !raw.has_found(name)).collect();
    assert!(gone.is_empty(), "{} stored, gone after a restart: {gone:?}", gone.len());
}

#[test]
fn purge_07_a_flipped_bit_in_the_list_brings_nothing_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    for name in 0..20 {
        raw.must_store(name, 7);
        let ticket = raw.remove(name);
        raw.answer(ticket);
    }
    raw.must_store(100, 1);
    raw.must_purge(7);
    drop(raw);
    let path = folder.path().join("purged");
    let mut list = fs::read(&path).expect("it is there");
    let list_len = list.len();
    list[list_len / 2] ^= 0x80;
    fs::write(&path, list).expect("written");
    match Disk::open(options(folder.path(), 8 << 20), support::no_waker()) {
        Err(_) => {}
        Ok((_, found)) => {
            let back = found.iter().filter(|found| found.tenant == TenantTag(7)).count();
            assert_eq!(back, 0, "purged, and found again");
        }
    }
}

#[test]
fn purge_08_others_are_answered_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(DiskOptions::new(folder.path(), 256 << 20));
    for name in 0..20_000 {
        raw.put_as(name, 7, None, 3_000);
    }
    raw.put(1_000_000, 1);
    raw.quiet();
    raw.purge(7);
    let started = Instant::now();
    assert!(raw.loads(1_000_000));
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500), "a read behind a purge of 20000 took {took:?}");
}
