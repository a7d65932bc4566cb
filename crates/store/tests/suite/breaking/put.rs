//! Putting, capacity and limits.

use super::*;

#[test]
fn put_01_what_is_stored_again_after_its_time_is_stored() {
    static NOW_S: AtomicU64 = AtomicU64::new(1_000);
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), 8 << 20);
    options.now_s = || NOW_S.load(Relaxed);
    let mut raw = Raw::open(options);
    let ticket = raw.put_as(1, 1, Some(1_010), 3_000);
    assert!(matches!(raw.answer(ticket), CommandOutcome::Stored));
    NOW_S.store(1_020, Relaxed);
    let ticket = raw.put_as(1, 1, Some(2_000), 3_000);
    let outcome = raw.answer(ticket);
    assert!(matches!(outcome, CommandOutcome::Stored), "{outcome:?}");
    assert!(raw.loads(1), "reported as stored a moment ago");
}

#[test]
fn put_02_writing_is_tried_again_without_being_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let faults = Faults::default();
    let switch = faults.writes_fail.clone();
    let mut raw = Raw::open_faulty(options(folder.path(), 8 << 20), &faults);
    raw.must_store(1, 1);
    switch.store(libc::ENOSPC as u64, Relaxed);
    raw.store(2, 1);
    switch.store(0, Relaxed);
    // A caller that waits until it is well again before it gives more.
    let started = Instant::now();
    while raw.conditions.last() != Some(&Condition::Well) {
        assert!(started.elapsed() < Duration::from_secs(5), "it is never well again");
        raw.poll();
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn put_03_a_depth_of_none_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), 8 << 20);
    options.depth = 0;
    let mut raw = Raw::open(options);
    raw.must_store(1, 1);
    let ticket = raw.get(1);
    let started = Instant::now();
    while !raw.answers.contains_key(&ticket) {
        assert!(started.elapsed() < Duration::from_secs(4), "no answer");
        raw.poll();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fills a tier with records of `bytes` bytes, replacing random ones; returns its capacity in
/// records and the number lost.
fn keep(bytes: usize, one_by_one: bool, seed: u64) -> (usize, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 12 << 20));
    let mut rng = Rng::new(seed);
    let size = record_bytes(&[bytes]);
    let most = raw.disk.capacity_records(size as u64);
    for name in 0..8_000u64 {
        while raw.stored.len() + raw.waiting.len() >= most {
            raw.poll();
            let index = rng.below(raw.stored.len().max(1));
            if let Some(&victim) = raw.stored.iter().nth(index) {
                raw.remove(victim);
            }
        }
        let ticket = raw.put_as(name, 1, None, bytes);
        if one_by_one {
            raw.answer(ticket);
        }
    }
    raw.quiet();
    (most, raw.lost.len())
}

#[test]
fn put_04_the_capacity_is_kept() {
    for bytes in [3_000, 11_000, 60_000, 118_000] {
        for one_by_one in [false, true] {
            let (most, lost) = keep(bytes, one_by_one, 4);
            eprintln!("{bytes} bytes, one by one {one_by_one}: {most} kept, {lost} lost");
            assert_eq!(lost, 0, "{bytes} bytes, one by one: {one_by_one}");
        }
    }
}
