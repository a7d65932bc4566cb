//! A review's attempts to break the disk tier. Each test states what should hold.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};
use headstart_store::backend::{Condition, Loss, Resident};
use headstart_store::disk::{Disk, DiskOptions, Faults};
use headstart_store::record::{Exactness, Meta, PAGE, record_bytes};
use headstart_store::{Arena, Backend, Command, Draft, Outcome, Record, Report, Slot, Ticket};

use support::{Driver, options};

/// Commands given and answers taken, without any waiting in between.
struct Raw {
    disk: Disk,
    found: Vec<Resident>,
    arena: Arc<Arena>,
    next: u64,
    waiting: BTreeMap<Ticket, Asked>,
    answers: BTreeMap<Ticket, Outcome>,
    conditions: Vec<Condition>,
    /// Names that can be read as far as was told, with their sizes.
    stored: BTreeSet<u64>,
    /// The last command that removes a name: what was put before it does not count.
    removed: BTreeMap<u64, Ticket>,
    lost: Vec<(u64, Loss)>,
    num_found: usize,
}

#[derive(Clone, Debug)]
enum Asked {
    Put(u64),
    Get(u64),
    Remove,
    Purge,
}

fn hash(name: u64) -> BlockHash {
    BlockHash::from_u64(name)
}

fn number_of(name: BlockHash) -> u64 {
    u128::from_be_bytes(name.0) as u64
}

/// A record whose bytes follow from its name.
fn record(slot: Slot, name: u64, tenant: u64, expires_s: Option<u64>, bytes: usize) -> Record {
    let meta = Meta {
        name: hash(name),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(tenant),
        tokens: 16,
        exactness: Exactness::Exact,
        created_s: 1,
        expires_s,
    };
    let mut draft = Draft::new(slot, meta, &[bytes]).expect("it fits");
    for (index, piece) in draft.part_mut(0).chunks_mut(8).enumerate() {
        let word = (name << 24 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
    draft.seal()
}

fn is_right(record: &Record, name: u64) -> bool {
    let mut pieces = record.part(0).chunks(8).enumerate();
    record.meta().name == hash(name)
        && pieces.all(|(index, piece)| {
            let word = (name << 24 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            piece == &word.to_le_bytes()[..piece.len()]
        })
}

const SLOT: usize = 64 << 10;

impl Raw {
    fn open(options: DiskOptions) -> Self {
        let (disk, found) = Disk::open(options, support::no_waker()).expect("it opens");
        Self {
            disk,
            stored: found.iter().map(|found| number_of(found.name)).collect(),
            found,
            arena: Arena::new(SLOT, 4000).expect("memory"),
            next: 0,
            waiting: BTreeMap::new(),
            answers: BTreeMap::new(),
            conditions: Vec::new(),
            removed: BTreeMap::new(),
            lost: Vec::new(),
            num_found: 0,
        }
    }

    fn give(&mut self, asked: Asked, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.waiting.insert(ticket, asked);
        let mut command = command(ticket);
        let started = Instant::now();
        while let Err(back) = self.disk.submit(command) {
            command = back;
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "it takes nothing any more"
            );
            self.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
        ticket
    }

    fn slot(&mut self) -> Slot {
        let started = Instant::now();
        loop {
            if let Some(slot) = self.arena.take() {
                return slot;
            }
            assert!(
                started.elapsed() < Duration::from_secs(40),
                "no slot comes back"
            );
            self.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn put_as(&mut self, name: u64, tenant: u64, expires_s: Option<u64>, bytes: usize) -> Ticket {
        let record = record(self.slot(), name, tenant, expires_s, bytes);
        self.give(Asked::Put(name), |ticket| Command::Put { ticket, record })
    }

    fn put(&mut self, name: u64, tenant: u64) -> Ticket {
        self.put_as(name, tenant, None, 3_000)
    }

    fn get(&mut self, name: u64) -> Ticket {
        let slot = self.slot();
        let of = hash(name);
        self.give(Asked::Get(name), |ticket| Command::Get {
            ticket,
            name: of,
            slot,
        })
    }

    fn remove(&mut self, name: u64) -> Ticket {
        let names = vec![hash(name)];
        let ticket = self.give(Asked::Remove, |ticket| Command::Remove { ticket, names });
        self.stored.remove(&name);
        self.removed.insert(name, ticket);
        ticket
    }

    fn purge(&mut self, tenant: u64) -> Ticket {
        let tenant = TenantTag(tenant);
        self.give(Asked::Purge, |ticket| Command::Purge { ticket, tenant })
    }

    fn poll(&mut self) {
        let mut reports = Vec::new();
        self.disk.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => {
                    let asked = self.waiting.remove(&ticket).expect("answered once");
                    match (&asked, &outcome) {
                        (Asked::Put(name), Outcome::Stored) => {
                            if self
                                .removed
                                .get(name)
                                .is_none_or(|&removed| removed < ticket)
                            {
                                self.stored.insert(*name);
                            }
                        }
                        (Asked::Get(name), Outcome::Loaded(record)) => {
                            assert!(is_right(record, *name), "{name} is wrong");
                        }
                        _ => {}
                    }
                    self.answers.insert(ticket, outcome);
                }
                Report::Lost { names, loss } => {
                    for name in names {
                        self.stored.remove(&number_of(name));
                        self.lost.push((number_of(name), loss));
                    }
                }
                Report::Found(found) => {
                    self.num_found += 1;
                    for found in found {
                        self.stored.insert(number_of(found.name));
                    }
                }
                Report::Condition(condition) => self.conditions.push(condition),
            }
        }
    }

    fn answer(&mut self, ticket: Ticket) -> Outcome {
        let started = Instant::now();
        loop {
            if let Some(outcome) = self.answers.remove(&ticket) {
                return outcome;
            }
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{ticket:?}: no answer"
            );
            self.poll();
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn store(&mut self, name: u64, tenant: u64) -> Outcome {
        let ticket = self.put(name, tenant);
        self.answer(ticket)
    }

    fn must_store(&mut self, name: u64, tenant: u64) {
        let outcome = self.store(name, tenant);
        assert!(matches!(outcome, Outcome::Stored), "{name}: {outcome:?}");
    }

    fn loads(&mut self, name: u64) -> bool {
        let ticket = self.get(name);
        matches!(self.answer(ticket), Outcome::Loaded(_))
    }

    fn must_purge(&mut self, tenant: u64) {
        let ticket = self.purge(tenant);
        let outcome = self.answer(ticket);
        assert!(matches!(outcome, Outcome::Removed(_)), "purge: {outcome:?}");
    }

    fn quiet(&mut self) {
        let started = Instant::now();
        while !self.waiting.is_empty() {
            let waiting = self.waiting.len();
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{waiting} are not answered"
            );
            self.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
        self.answers.clear();
    }

    fn has_found(&self, name: u64) -> bool {
        self.found.iter().any(|found| found.name == hash(name))
    }
}

/// Runs `work` on a thread; whether it came to an end in time.
fn ends(limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let _ = sender.send(());
    });
    ended.recv_timeout(limit).is_ok()
}

/// Whether a thread that runs `work` does not panic.
fn no_panic(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::spawn(work).join().is_ok()
}

// ---------------------------------------------------------------------------- purge

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
    assert!(matches!(raw.answer(purge), Outcome::Removed(_)));
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
        matches!(outcome, Outcome::Removed(20)) && !is_on_disk,
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
    assert!(
        !support::contains(folder.path(), &bytes_of(8)),
        "a tenant's bytes outlive its purge"
    );
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
    let mut faulty = options(folder.path(), 8 << 20);
    faulty.faults = Some(faults);
    let mut raw = Raw::open(faulty);
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
    assert!(
        raw.has_found(3),
        "stored after the purge, gone after a restart"
    );
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
    assert!(
        raw.has_found(3),
        "stored after the purge, gone after a restart"
    );
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
        assert!(matches!(outcome, Outcome::Stored), "{outcome:?}");
    }
    raw.quiet();
    let stored = raw.stored.clone();
    drop(raw);
    let raw = Raw::open(options(folder.path(), 24 << 20));
    let gone: Vec<u64> = stored
        .into_iter()
        .filter(|&name| !raw.has_found(name))
        .collect();
    assert!(
        gone.is_empty(),
        "{} stored, gone after a restart: {gone:?}",
        gone.len()
    );
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
            let back = found
                .iter()
                .filter(|found| found.tenant == TenantTag(7))
                .count();
            assert_eq!(back, 0, "purged, and found again");
        }
    }
}

// ---------------------------------------------------------------------------- putting

#[test]
fn put_01_what_is_stored_again_after_its_time_is_stored() {
    static NOW_S: AtomicU64 = AtomicU64::new(1_000);
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), 8 << 20);
    options.now_s = || NOW_S.load(Relaxed);
    let mut raw = Raw::open(options);
    let ticket = raw.put_as(1, 1, Some(1_010), 3_000);
    assert!(matches!(raw.answer(ticket), Outcome::Stored));
    NOW_S.store(1_020, Relaxed);
    let ticket = raw.put_as(1, 1, Some(2_000), 3_000);
    let outcome = raw.answer(ticket);
    assert!(matches!(outcome, Outcome::Stored), "{outcome:?}");
    assert!(raw.loads(1), "reported as stored a moment ago");
}

#[test]
fn put_02_writing_is_tried_again_without_being_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let faults = Faults::default();
    let switch = faults.writes_fail.clone();
    let mut options = options(folder.path(), 8 << 20);
    options.faults = Some(faults);
    let mut raw = Raw::open(options);
    raw.must_store(1, 1);
    switch.store(libc::ENOSPC as u64, Relaxed);
    raw.store(2, 1);
    switch.store(0, Relaxed);
    // A caller that waits until it is well again before it gives more.
    let started = Instant::now();
    while raw.conditions.last() != Some(&Condition::Well) {
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "it is never well again"
        );
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

/// Keeps so many bytes of records, replacing random ones, and says what was given up.
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
    for bytes in [3_000, 11_000, 60_000] {
        for one_by_one in [false, true] {
            let (most, lost) = keep(bytes, one_by_one, 4);
            eprintln!("{bytes} bytes, one by one {one_by_one}: {most} kept, {lost} lost");
            assert_eq!(lost, 0, "{bytes} bytes, one by one: {one_by_one}");
        }
    }
}

// ---------------------------------------------------------------------------- failures

#[test]
fn fail_01_reads_that_fail_are_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let faults = Faults::default();
    let switch = faults.reads_fail.clone();
    let mut options = options(folder.path(), 8 << 20);
    options.faults = Some(faults);
    let mut raw = Raw::open(options);
    for name in 0..50 {
        raw.must_store(name, 1);
    }
    switch.store(libc::EIO as u64, Relaxed);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(8) {
        for name in 0..50 {
            raw.loads(name);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (conditions, found, lost) = (raw.conditions.len(), raw.num_found, raw.lost.len());
    assert!(
        conditions <= 1,
        "8 s of EIO: {conditions} conditions, {found} times found, {lost} names lost"
    );
}

#[test]
fn fail_02_what_is_stored_while_the_folder_goes_is_told_as_lost() {
    for seed in 0..4 {
        let place = tempfile::tempdir().expect("a folder");
        let (folder, away) = (place.path().join("cache"), place.path().join("away"));
        let mut raw = Raw::open(DiskOptions::new(&folder, 256 << 20));
        let mut name = 0;
        let started = Instant::now();
        let mut is_away = false;
        // Goes on storing until long after the folder is gone; another one takes its place.
        while raw.conditions.last() != Some(&Condition::Well) {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "it does not come back"
            );
            if !is_away && started.elapsed() > Duration::from_millis(300 + seed * 61) {
                fs::rename(&folder, &away).expect("moved");
                is_away = true;
            }
            if raw.waiting.len() < 600 {
                // Some groups are under way all the time.
                raw.put_as(name, 1, None, 60_000);
                name += 1;
            }
            raw.poll();
        }
        raw.quiet();
        let there: Vec<u64> = raw.stored.iter().copied().collect();
        let gone: Vec<u64> = there.into_iter().filter(|&name| !raw.loads(name)).collect();
        assert!(
            gone.is_empty(),
            "seed {seed}: stored, not lost, not there: {gone:?}"
        );
    }
}

#[test]
fn fail_03_closing_is_quick_after_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 0..6u64 {
        let faults = Faults {
            seed,
            ..Faults::default()
        };
        let switch = faults.writes_fail.clone();
        let mut options = options(folder.path(), 12 << 20);
        options.faults = Some(faults);
        let mut raw = Raw::open(options);
        let mut rng = Rng::new(seed);
        // Much at once, so that segments end with groups under way.
        for name in 0..1_500 {
            raw.put_as(seed << 32 | name, 1, None, 14_000);
        }
        std::thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
        switch.store(libc::EIO as u64, Relaxed);
        raw.quiet();
        let started = Instant::now();
        drop(raw);
        let took = started.elapsed();
        assert!(
            took < Duration::from_secs(3),
            "seed {seed}: closing took {took:?}"
        );
    }
}

#[test]
fn fail_04_few_open_files_are_enough() {
    const CHILD: &str = "HEADSTART_REVIEW_FEW_FILES";
    if std::env::var(CHILD).is_err() {
        let program = std::env::current_exe().expect("this program");
        let output = std::process::Command::new(program)
            .args([
                "--exact",
                "fail_04_few_open_files_are_enough",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        return;
    }
    // As with 1024 open files and a budget of 128 GiB, in small.
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: a valid struct; only this child process is affected.
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) },
        0
    );
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 33 << 20));
    let mut failed = Vec::new();
    for name in 0..3_000 {
        let outcome = raw.store(name, 1);
        if !matches!(outcome, Outcome::Stored) {
            failed.push((name, outcome));
            if failed.len() > 2 {
                break;
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}, {:?}", raw.conditions);
}

/// In a thread with a file system of its own, of so many bytes.
fn on_small_disk(bytes: u64, work: impl FnOnce(&Path) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let place = tempfile::tempdir().expect("a folder");
        let path = std::ffi::CString::new(place.path().to_str().expect("text")).expect("text");
        let none = c"none".as_ptr();
        // SAFETY: valid strings; the mount is seen by this thread and those that it starts only.
        let is_mounted = unsafe {
            libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) == 0
                && libc::mount(
                    none,
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
                && {
                    let size = std::ffi::CString::new(format!("size={bytes}")).expect("text");
                    libc::mount(
                        none,
                        path.as_ptr(),
                        c"tmpfs".as_ptr(),
                        0,
                        size.as_ptr().cast(),
                    ) == 0
                }
        };
        if !is_mounted {
            eprintln!("SKIPPED: this user may not mount");
            return;
        }
        work(place.path());
        // SAFETY: a valid string.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn fail_05_a_disk_smaller_than_the_budget_is_used_again() {
    on_small_disk(4 << 20, |place| {
        let folder = place.join("cache");
        let mut raw = Raw::open(options(&folder, 12 << 20));
        let mut last_stored = 0;
        let started = Instant::now();
        let mut name = 0;
        while started.elapsed() < Duration::from_secs(8) {
            if matches!(raw.store(name, 1), Outcome::Stored) {
                last_stored = name;
            } else {
                std::thread::sleep(Duration::from_millis(10));
            }
            name += 1;
            if last_stored > 2_000 {
                break;
            }
        }
        let there = raw.stored.len();
        assert!(
            last_stored > 2_000,
            "the last one stored was {last_stored} of {name}; {there} there; {:?}",
            raw.conditions
        );
    });
}

// ---------------------------------------------------------------------------- what is found

/// Calls of pread64 from this thread, and those it starts, fail with EIO, at all offsets or only
/// behind the first page.
fn reads_fail_here(behind_first_page: bool) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, equal, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let allow = libc::SECCOMP_RET_ALLOW;
    let fail = libc::SECCOMP_RET_ERRNO | libc::EIO as u32;
    let at_zero = if behind_first_page { allow } else { fail };
    let filter = [
        statement(load, 0, 0, 0),
        statement(equal, 1, 0, libc::SYS_pread64 as u32),
        statement(ret, 0, 0, allow),
        // The low half of the offset, the fourth argument.
        statement(load, 0, 0, 16 + 3 * 8),
        statement(equal, 0, 1, 0),
        statement(ret, 0, 0, at_zero),
        statement(ret, 0, 0, fail),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: a valid program; it holds for this thread and those that it starts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        );
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn survives_failing_reads(behind_first_page: bool, cut_footers: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let mut raw = Raw::open(options(&path, 8 << 20));
    for name in 0..200 {
        raw.must_store(name, 1);
    }
    drop(raw);
    if cut_footers {
        // As a crash leaves them: no trailer.
        for entry in fs::read_dir(&path).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.file_name().to_string_lossy().starts_with("segment-") {
                let file = fs::File::options()
                    .write(true)
                    .open(entry.path())
                    .expect("a file");
                file.write_all_at(&[0; PAGE], (256 << 10) - PAGE as u64)
                    .expect("written");
            }
        }
    }
    let there = path.clone();
    std::thread::spawn(move || {
        reads_fail_here(behind_first_page);
        match Disk::open(options(&there, 8 << 20), support::no_waker()) {
            Ok((_disk, found)) => eprintln!("opened, {} found", found.len()),
            Err(error) => eprintln!("{error}"),
        }
    })
    .join()
    .expect("it does not panic");
    // The cable sits again.
    let raw = Raw::open(options(&path, 8 << 20));
    assert_eq!(
        raw.found.len(),
        200,
        "stored, never told as lost, gone for good"
    );
}

#[test]
fn found_01_reads_that_fail_at_start_destroy_nothing() {
    survives_failing_reads(false, false);
}

#[test]
fn found_02_nor_where_only_some_fail() {
    survives_failing_reads(true, false);
}

#[test]
fn found_02b_nor_in_segments_that_a_crash_left_open() {
    survives_failing_reads(true, true);
}

#[test]
fn found_03_a_smaller_budget_opens_or_says_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(DiskOptions::new(folder.path(), 512 << 20));
    raw.must_store(1, 1);
    drop(raw);
    let path = folder.path().to_owned();
    let is_well = no_panic(move || {
        if let Ok((disk, _)) = Disk::open(DiskOptions::new(&path, 24 << 20), support::no_waker()) {
            let mut driver = Driver::of(disk);
            driver.must_store(2);
        }
    });
    assert!(is_well, "it panics or does not answer");
}

/// A valid first page of a segment.
fn header(sequence: u64, segment_bytes: u64) -> Vec<u8> {
    let magic = u64::from_le_bytes(*b"HDST-SEG");
    sealed_fields(magic, &[sequence, segment_bytes])
}

fn sealed_fields(magic: u64, fields: &[u64]) -> Vec<u8> {
    let mut page = magic.to_le_bytes().to_vec();
    for field in fields {
        page.extend(field.to_le_bytes());
    }
    let sum = twox_hash::XxHash3_64::oneshot_with_seed(magic, &page);
    page.extend(sum.to_le_bytes());
    page.resize(PAGE, 0);
    page
}

fn foreign_segment(folder: &Path, number: &str, len: u64, pages: &[(u64, Vec<u8>)]) {
    let file = fs::File::create(folder.join(format!("segment-{number}"))).expect("a file");
    file.set_len(len).expect("sparse");
    for (page, bytes) in pages {
        file.write_all_at(bytes, page * PAGE as u64)
            .expect("written");
    }
}

/// Opens a folder that holds strange files, and uses it.
fn opens_and_works(prepare: impl FnOnce(&Path)) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let path = folder.path().to_owned();
    no_panic(
        move || match Disk::open(options(&path, 8 << 20), support::no_waker()) {
            Ok((disk, _)) => {
                let mut driver = Driver::of(disk);
                (0..200).for_each(|name| driver.must_store(name));
                driver.quiet();
                drop(driver);
                assert!(support::folder_bytes(&path) <= 8 << 20, "the budget holds");
                let _ = Driver::open(options(&path, 8 << 20));
            }
            Err(error) => panic!("{error}"),
        },
    )
}

#[test]
fn found_04_the_last_sequence_number() {
    let segment = 256 << 10;
    let page = header(u64::MAX, segment);
    assert!(opens_and_works(|folder| foreign_segment(
        folder,
        "00000",
        segment,
        &[(0, page)]
    )));
}

#[test]
fn found_05_a_segment_of_one_page() {
    let page = header(5, PAGE as u64);
    assert!(opens_and_works(|folder| {
        foreign_segment(folder, "00000", PAGE as u64, &[(0, page)]);
    }));
}

#[test]
fn found_06_a_segment_larger_than_the_budget() {
    let page = header(5, 1 << 40);
    assert!(opens_and_works(|folder| foreign_segment(
        folder,
        "00000",
        1 << 40,
        &[(0, page)]
    )));
}

#[test]
fn found_07_a_number_written_another_way() {
    let segment = 256 << 10;
    let page = header(5, segment);
    assert!(opens_and_works(|folder| foreign_segment(
        folder,
        "+7",
        segment,
        &[(0, page)]
    )));
}

#[test]
fn found_08_a_folder_that_is_called_like_a_segment() {
    assert!(opens_and_works(|folder| {
        fs::create_dir(folder.join("segment-00001")).expect("made");
    }));
}

#[test]
fn found_09_a_pipe_that_is_called_like_a_segment() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment-00001");
    let path = std::ffi::CString::new(path.to_str().expect("text")).expect("text");
    // SAFETY: a valid string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let options = options(folder.path(), 8 << 20);
    let ended = ends(Duration::from_secs(3), move || {
        let _ = Disk::open(options, support::no_waker());
    });
    assert!(ended, "opening hangs");
}

#[test]
fn found_10_a_copy_of_a_segment_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 8 << 20));
    for name in 0..40 {
        raw.must_store(name, 1);
    }
    drop(raw);
    fs::copy(
        folder.path().join("segment-00000"),
        folder.path().join("segment-00900"),
    )
    .expect("copied");
    let raw = Raw::open(options(folder.path(), 8 << 20));
    let len = raw.found.len();
    drop(raw);
    let bytes = support::folder_bytes(folder.path());
    assert!(len == 40 && bytes <= 8 << 20, "{len} found, {bytes} bytes");
}

#[test]
fn found_11_a_table_with_the_last_number() {
    let segment = 256 << 10;
    let kind = u64::from_le_bytes(*b"HDST-GRP");
    let table = sealed_fields(kind, &[5, u64::MAX, 0]);
    let pages = [(0, header(5, segment)), (1, table)];
    assert!(opens_and_works(|folder| foreign_segment(
        folder, "00000", segment, &pages
    )));
}

#[test]
fn found_12_a_segment_that_claims_much_on_every_page_is_read_in_time() {
    // 32 MiB, each page of which claims to be a table of 64 K entries (4 MiB), without any sum.
    let segment: u64 = 32 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let mut claim = Vec::new();
    for field in [u64::from_le_bytes(*b"HDST-GRP"), 5, 0, 1 << 18] {
        claim.extend(field.to_le_bytes());
    }
    let mut pages = vec![(0, header(5, segment))];
    pages.extend((1..segment / PAGE as u64).map(|page| (page, claim.clone())));
    foreign_segment(folder.path(), "00000", segment, &pages);
    let started = Instant::now();
    let (_disk, _) = Disk::open(
        DiskOptions::new(folder.path(), 512 << 20),
        support::no_waker(),
    )
    .expect("it opens");
    let took = started.elapsed();
    assert!(
        took < Duration::from_secs(2),
        "32 MiB took {took:?} to read"
    );
}

#[test]
fn found_13_empty_options_are_refused() {
    for segment_bytes in [0, 4096, 8192] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(folder.path(), 16 << 20);
        options.segment_bytes = Some(segment_bytes);
        let is_well = no_panic(move || {
            if let Ok((disk, _)) = Disk::open(options, support::no_waker()) {
                let mut raw = Driver::of(disk);
                let _ = raw.store(1);
            }
        });
        assert!(is_well, "segments of {segment_bytes} bytes");
    }
}

// ---------------------------------------------------------------------------- all of it

/// Names of a stress; the tenant of a name is its rest by five.
const NAMES: usize = 1_500;

fn random_command(raw: &mut Raw, rng: &mut Rng) {
    let name = rng.below(NAMES) as u64;
    match rng.below(1_000) {
        0..450 => {
            let bytes = 500 + (name * 7_919 % 20_000) as usize;
            raw.put_as(name, name % 5, None, bytes);
        }
        450..850 => {
            raw.get(name);
        }
        850..997 => {
            raw.remove(name);
        }
        _ => {
            let tenant = name % 5;
            let ticket = raw.purge(tenant);
            for name in (0..NAMES as u64).filter(|name| name % 5 == tenant) {
                raw.stored.remove(&name);
                raw.removed.insert(name, ticket);
            }
        }
    }
}

/// All commands in any order while writes and reads fail for a while, and the folder goes away and
/// comes back.
fn stress(seed: u64, has_faults: bool, seconds: u64) {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, away) = (place.path().join("cache"), place.path().join("away"));
    let faults = Faults {
        seed,
        ..Faults::default()
    };
    let (writes, reads) = (faults.writes_fail.clone(), faults.reads_fail.clone());
    let mut of = options(&folder, 8 << 20);
    of.faults = has_faults.then_some(faults);
    let mut raw = Raw::open(of);
    let mut rng = Rng::new(seed);
    let started = Instant::now();
    let mut change = Instant::now();
    let mut trouble = 0;
    let mut commands = 0u64;
    while started.elapsed() < Duration::from_secs(seconds) {
        if change.elapsed() > Duration::from_millis(50 + rng.below(1_500) as u64) {
            change = Instant::now();
            // One trouble ends before the next begins.
            match trouble {
                1 => writes.store(0, Relaxed),
                2 => reads.store(0, Relaxed),
                3 => {
                    // What was made in its place meanwhile goes.
                    let _ = fs::remove_dir_all(&folder);
                    let _ = fs::remove_dir_all(&folder);
                    let _ = fs::rename(&away, &folder);
                }
                _ => {}
            }
            trouble = match (trouble, has_faults) {
                (0, true) => 1 + rng.below(3),
                (0, false) => 3,
                _ => 0,
            };
            match trouble {
                1 => {
                    let errno = [libc::ENOSPC, libc::EROFS, libc::EIO][rng.below(3)];
                    writes.store(errno as u64, Relaxed);
                }
                2 => reads.store(libc::EIO as u64, Relaxed),
                3 => {
                    let _ = fs::remove_dir_all(&away);
                    let _ = fs::rename(&folder, &away);
                }
                _ => {}
            }
        }
        if raw.waiting.len() < 300 {
            random_command(&mut raw, &mut rng);
            commands += 1;
        }
        raw.poll();
        let oldest = raw.waiting.keys().next().copied();
        if let Some(oldest) = oldest {
            // Each is answered, and soon.
            assert!(
                oldest.0 + 200_000 > raw.next,
                "{:?} is not answered",
                raw.waiting[&oldest]
            );
        }
        raw.answers.clear();
    }
    writes.store(0, Relaxed);
    reads.store(0, Relaxed);
    if !folder.exists() {
        let _ = fs::rename(&away, &folder);
    }
    raw.quiet();
    eprintln!("seed {seed}: {:?}", raw.conditions);
    // It works again by itself.
    let waits = Instant::now();
    let mut name = 1_000_000;
    loop {
        name += 1;
        if matches!(raw.store(name, 1), Outcome::Stored) && raw.loads(name) {
            // Not a moment before it notices that the folder is another one.
            std::thread::sleep(Duration::from_millis(1_500));
            raw.poll();
            if raw.stored.contains(&name) {
                break;
            }
        }
        assert!(
            waits.elapsed() < Duration::from_secs(70),
            "seed {seed}: nothing can be stored any more: {:?}",
            raw.conditions.last()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    raw.quiet();
    let there: Vec<u64> = raw.stored.iter().copied().collect();
    let count = there.len();
    // Unless it is told as lost now.
    let is_gone = |&name: &u64| !raw.loads(name) && raw.stored.contains(&name);
    let gone: Vec<u64> = there.into_iter().filter(is_gone).collect();
    let spread = raw.conditions.len();
    eprintln!("seed {seed}: {commands} commands, {spread} conditions, {count} there at the end");
    assert_eq!(
        raw.arena.free(),
        raw.arena.num_slots(),
        "every slot came back"
    );
    let closing = Instant::now();
    let stored: BTreeSet<u64> = raw
        .stored
        .difference(&gone.iter().copied().collect())
        .copied()
        .collect();
    drop(raw);
    let closed = closing.elapsed();
    assert!(
        support::folder_bytes(&folder) <= 8 << 20,
        "the budget holds"
    );
    let mut raw = Raw::open(options(&folder, 8 << 20));
    let later: Vec<u64> = stored
        .into_iter()
        .filter(|&name| !raw.loads(name))
        .collect();
    assert!(
        gone.is_empty() && later.is_empty() && closed < Duration::from_secs(3),
        "seed {seed}: stored and not there: {gone:?}; not after a restart: {later:?}; \
         closing took {closed:?}"
    );
}

#[test]
fn stress_01_with_faults() {
    stress(1, true, 12);
}

#[test]
fn stress_02_the_folder_goes_and_comes() {
    stress(2, false, 8);
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
    assert!(
        took < Duration::from_millis(500),
        "a read behind a purge of 20000 took {took:?}"
    );
}

#[test]
fn found_14_room_for_three_of_its_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = options(folder.path(), 64 << 20);
    first.segment_bytes = Some(4 << 20);
    let mut raw = Raw::open(first);
    raw.must_store(1, 1);
    drop(raw);
    // Enough for four of one mebibyte, as the options ask; there are three of four.
    let mut second = options(folder.path(), 14 << 20);
    second.segment_bytes = Some(1 << 20);
    let mut raw = Raw::open(second);
    let bytes = raw.disk.capacity_records(4096);
    for name in 2..3_000 {
        raw.must_store(name, 1);
    }
    assert!(raw.loads(2_999) && bytes > 0, "capacity {bytes}");
}
