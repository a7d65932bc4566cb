//! Disks that fail, come back, or are small.

use super::*;
use headstart_store::backend::Failure;

#[test]
fn fail_01_reads_that_fail_are_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let faults = Faults::default();
    let switch = faults.reads_fail.clone();
    let mut raw = Raw::open_faulty(options(folder.path(), 8 << 20), &faults);
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
        // Keeps storing until long after the folder is gone; another one takes its place.
        while raw.conditions.last() != Some(&Condition::Well) {
            assert!(started.elapsed() < Duration::from_secs(20), "it does not come back");
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
        assert!(gone.is_empty(), "seed {seed}: stored, not lost, not there: {gone:?}");
    }
}

#[test]
fn fail_03_closing_is_quick_after_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 0..6u64 {
        let faults = Faults { seed, ..Faults::default() };
        let switch = faults.writes_fail.clone();
        let mut raw = Raw::open_faulty(options(folder.path(), 12 << 20), &faults);
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
        assert!(took < Duration::from_secs(3), "seed {seed}: closing took {took:?}");
    }
}

#[test]
fn fail_04_few_open_files_are_enough() {
    const CHILD: &str = "HEADSTART_REVIEW_FEW_FILES";
    if std::env::var(CHILD).is_err() {
        let program = std::env::current_exe().expect("this program");
        let output = std::process::Command::new(program)
            .args(["--exact", "breaking::fail::fail_04_few_open_files_are_enough", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{text}");
        return;
    }
    // As with 1024 open files and a budget of 128 GiB, in small.
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: a valid struct; only this child process is affected.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let folder = tempfile::tempdir().expect("a folder");
    let mut raw = Raw::open(options(folder.path(), 33 << 20));
    let mut failed = Vec::new();
    for name in 0..3_000 {
        let outcome = raw.store(name, 1);
        if !matches!(outcome, CommandOutcome::Stored) {
            failed.push((name, outcome));
            if failed.len() > 2 {
                break;
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}, {:?}", raw.conditions);
}

/// Runs `work` in a thread with its own file system of `bytes` bytes.
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
                    libc::mount(none, path.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast())
                        == 0
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
            if matches!(raw.store(name, 1), CommandOutcome::Stored) {
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

#[test]
fn fail_06_a_disk_that_is_full_from_the_start_is_told_once_and_used_later() {
    on_small_disk(4 << 20, |place| {
        let ballast = place.join("ballast");
        let mut file = fs::File::create(&ballast).expect("a file");
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
        drop(file);
        let mut driver = Driver::open(options(&place.join("cache"), 12 << 20));
        for name in 0..20 {
            let outcome = driver.store(name);
            let is_right = matches!(outcome, CommandOutcome::Failed(Failure::Full));
            assert!(is_right, "{name}: {outcome:?}");
        }
        assert_eq!(driver.conditions, [Condition::WritesFail(Failure::Full)]);
        fs::remove_file(&ballast).expect("removed");
        driver.until(|driver| matches!(driver.store(99), CommandOutcome::Stored));
        driver.must_load(99);
        let well = [Condition::WritesFail(Failure::Full), Condition::Well];
        assert_eq!(driver.conditions, well);
    });
}
