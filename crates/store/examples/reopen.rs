//! Time that a disk tier takes to find its records again, after a clean end and after a kill.
//!
//! ```bash
//! cargo run --release -p headstart-store --example reopen -- [FOLDER [MIB [RECORD_KIB]]]
//! ```
//!
//! 64 MiB in the folder for temporary files unless told otherwise. The folder must be empty or not
//! there; what is written is deleted. Records are written past the page cache, so that footers come
//! from the disk.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest, TenantTag};
use headstart_store::backend::no_waker;
use headstart_store::record::{Content, Exactness};
use headstart_store::{
    Arena, Backend, Command, CommandOutcome, Disk, DiskOptions, Draft, Meta, Report, Slot, Ticket,
};

/// Set for the process that writes and is killed.
const WRITER: &str = "HEADSTART_REOPEN_WRITER";

/// Room for segments that are open, or to come, bytes.
const SPARE_BYTES: u64 = 512 << 20;

/// Openings that are timed; the median counts.
const OPENINGS: usize = 5;

/// Records on their way at once.
const WINDOW: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| {
        let given = arguments.get(at).map(|text| text.parse());
        given.map_or(default, |number| number.expect("a whole number"))
    };
    let given = arguments.get(1).map(PathBuf::from);
    let folder = given.unwrap_or_else(|| std::env::temp_dir().join("headstart-reopen"));
    let (mib, kib) = (number(2, 64), number(3, 64));
    let records = (mib << 10) / kib;
    let mut options = DiskOptions::new(&folder, (mib << 20) * 2 + SPARE_BYTES);
    options.segment_bytes = Some(64 << 20);
    if std::env::var(WRITER).is_ok() {
        return write(options, records..2 * records, kib);
    }
    assert!(
        !folder.exists() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_none())
    );
    write(options.clone(), 0..records, kib);
    println!("{mib} MiB in records of {kib} KiB, {records} of them");
    time("after a clean end", &options);
    kill_writer();
    time_once("after a kill, which leaves a segment open", &options);
    time("then", &options);
    std::fs::remove_dir_all(&folder).expect("it can be deleted");
}

/// Starts this program as a writer and kills it amid its work.
fn kill_writer() {
    let program = std::env::current_exe().expect("this program");
    let mut writer = Program::new(program)
        .args(std::env::args().skip(1))
        .env(WRITER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let stdout = writer.stdout.take().expect("it is piped");
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line);
    assert!(read.is_ok_and(|bytes| bytes > 0), "it says how far it is");
    writer.kill().expect("it runs");
    writer.wait().expect("it ran");
}

fn time_once(when: &str, options: &DiskOptions) {
    let started = Instant::now();
    let (_disk, found) = Disk::open(options.clone(), no_waker()).expect("it opens");
    let took = started.elapsed().as_secs_f64();
    println!("{when}: {} records in {took:.3} s", found.len());
}

fn time(when: &str, options: &DiskOptions) {
    let mut took: Vec<(f64, usize)> = (0..OPENINGS)
        .map(|_| {
            let started = Instant::now();
            let (_disk, found) = Disk::open(options.clone(), no_waker()).expect("it opens");
            (started.elapsed().as_secs_f64(), found.len())
        })
        .collect();
    took.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (seconds, found) = took[OPENINGS / 2];
    println!("{when}: {found} records in {seconds:.3} s (median of {OPENINGS})");
}

fn write(options: DiskOptions, numbers: std::ops::Range<u64>, kib: u64) {
    let bytes = (kib << 10) as usize - 4096;
    let arena = Arena::new(bytes + 4096, WINDOW).expect("memory");
    let (mut disk, _) = Disk::open(options, no_waker()).expect("it opens");
    let count = numbers.end - numbers.start;
    let half = numbers.start + count / 2;
    let mut stored = 0;
    for number in numbers {
        if number == half {
            println!("half of them");
        }
        let slot = loop {
            match arena.take() {
                Some(slot) => break slot,
                None => stored += poll(&mut disk),
            }
        };
        let record = draft(slot, number, bytes).seal();
        let ticket = Ticket(number);
        let mut command = Command::Put { ticket, record };
        while let Err(back) = disk.submit(command) {
            command = back;
            stored += poll(&mut disk);
        }
    }
    while stored < count {
        stored += poll(&mut disk);
    }
}

fn draft(slot: Slot, number: u64, bytes: usize) -> Draft {
    let meta = Meta {
        name: BlockHash::from_u64(number),
        parent: number.checked_sub(1).map(BlockHash::from_u64),
        identity: IdentityDigest::default(),
        tenant: TenantTag::default(),
        tokens: 64,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 0,
        expires_s: None,
    };
    let mut draft = Draft::new(slot, meta, &[bytes]).expect("it fits");
    draft.part_mut(0)[..8].copy_from_slice(&number.to_le_bytes());
    draft
}

/// Takes reports; how many records were stored.
fn poll(disk: &mut Disk) -> u64 {
    let mut reports = Vec::new();
    disk.poll(&mut reports);
    if reports.is_empty() {
        std::thread::sleep(Duration::from_micros(200));
    }
    let is_stored = |report: &&Report| {
        let Report::Done { outcome, .. } = report else { panic!("{report:?}") };
        matches!(outcome, CommandOutcome::Stored)
    };
    let stored = reports.iter().filter(is_stored).count();
    assert_eq!(stored, reports.len(), "all are stored");
    stored as u64
}
