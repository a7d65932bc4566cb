//! Contents that a folder may have at start.

use super::*;

/// Reads that fail.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    All,
    OfFirstPages,
    BehindFirstPages,
}

/// Calls of pread64 from this thread, and those it starts, fail with EIO.
fn reads_fail_here(which: Reads) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let allow = libc::SECCOMP_RET_ALLOW;
    let fail = libc::SECCOMP_RET_ERRNO | libc::EIO as u32;
    let only = |is_allowed: bool| if is_allowed { allow } else { fail };
    let at_zero = only(which == Reads::BehindFirstPages);
    let behind = only(which == Reads::OfFirstPages);
    let filter = [
        statement(load, 0, 0, 0),
        statement(equal, 1, 0, libc::SYS_pread64 as u32),
        statement(ret, 0, 0, allow),
        // The low half of the offset, the fourth argument.
        statement(load, 0, 0, 16 + 3 * 8),
        statement(equal, 0, 1, 0),
        statement(ret, 0, 0, at_zero),
        statement(ret, 0, 0, behind),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: a valid program; it holds for this thread and those that it starts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn survives_failing_reads(which: Reads, cut_footers: bool) {
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
                let file = fs::File::options().write(true).open(entry.path()).expect("a file");
                file.write_all_at(&[0; PAGE], (256 << 10) - PAGE as u64).expect("written");
            }
        }
    }
    let there = path.clone();
    std::thread::spawn(move || {
        reads_fail_here(which);
        match Disk::open(options(&there, 8 << 20), support::no_waker()) {
            Ok((_disk, found)) => {
                assert!(which == Reads::OfFirstPages, "what it needs cannot be read");
                assert_eq!(found.len(), 200, "last pages say the same");
            }
            Err(error) => assert!(which != Reads::OfFirstPages, "{error}"),
        }
    })
    .join()
    .expect("it does not panic");
    // The cable sits again.
    let raw = Raw::open(options(&path, 8 << 20));
    assert_eq!(raw.found.len(), 200, "stored, never told as lost, gone for good");
}

#[test]
fn found_01_reads_that_fail_at_start_destroy_nothing() {
    survives_failing_reads(Reads::All, false);
}

#[test]
fn found_02_nor_where_only_some_fail() {
    survives_failing_reads(Reads::BehindFirstPages, false);
}

#[test]
fn found_02b_nor_in_segments_that_a_crash_left_open() {
    survives_failing_reads(Reads::BehindFirstPages, true);
}

#[test]
fn found_02c_first_pages_that_cannot_be_read_are_not_needed() {
    survives_failing_reads(Reads::OfFirstPages, false);
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
    let magic = u64::from_le_bytes(*b"HDST-SG2");
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
        file.write_all_at(bytes, page * PAGE as u64).expect("written");
    }
}

/// Opens a folder that holds strange files, and uses it.
fn opens_and_works(prepare: impl FnOnce(&Path)) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let path = folder.path().to_owned();
    no_panic(move || match Disk::open(options(&path, 8 << 20), support::no_waker()) {
        Ok((disk, _)) => {
            let mut driver = Driver::of(disk);
            (0..200).for_each(|name| driver.must_store(name));
            driver.quiet();
            drop(driver);
            assert!(support::folder_bytes(&path) <= 8 << 20, "the budget holds");
            let _ = Driver::open(options(&path, 8 << 20));
        }
        Err(error) => panic!("{error}"),
    })
}

#[test]
fn found_04_the_last_sequence_number() {
    let segment = 256 << 10;
    let page = header(u64::MAX, segment);
    assert!(opens_and_works(|folder| foreign_segment(folder, "00000", segment, &[(0, page)])));
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
    assert!(opens_and_works(|folder| foreign_segment(folder, "00000", 1 << 40, &[(0, page)])));
}

#[test]
fn found_07_a_number_written_another_way() {
    let segment = 256 << 10;
    let page = header(5, segment);
    assert!(opens_and_works(|folder| foreign_segment(folder, "+7", segment, &[(0, page)])));
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
    fs::copy(folder.path().join("segment-00000"), folder.path().join("segment-00900"))
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
    assert!(opens_and_works(|folder| foreign_segment(folder, "00000", segment, &pages)));
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
    let (_disk, _) = Disk::open(DiskOptions::new(folder.path(), 512 << 20), support::no_waker())
        .expect("it opens");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(2), "32 MiB took {took:?} to read");
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
    let error = Disk::open(second, support::no_waker()).err();
    assert!(matches!(error, Some(DiskError::TooSmall { .. })), "{error:?}");
    let mut third = options(folder.path(), 20 << 20);
    third.segment_bytes = Some(1 << 20);
    let mut raw = Raw::open(third);
    assert!(raw.loads(1), "nothing was deleted");
}
