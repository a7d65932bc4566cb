//! Subjects that store records, and one round of each.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use headstart_core::Rng;

use crate::clock::Clock;
use crate::figures::{Figures, Key, Point, What};
use crate::options::{MIB, Options};
use crate::payload::Payload;

/// A place for records that is measured.
pub(crate) trait Subject {
    /// As tables have it.
    fn name(&self) -> String;

    /// Puts these records. Returns once all of them are where a read from disk finds them.
    fn fill(&mut self, records: Range<u32>) -> Result<()>;

    /// Makes what was filled outlive a loss of power.
    fn sync(&mut self) -> Result<Durable>;

    /// Forgets what it keeps in memory, so that reads come from disk.
    fn cool(&mut self);

    /// Reads whole records in this order, as many at once as it was opened for.
    fn read(&mut self, order: &[u32], check: Check) -> Result<Reads>;

    /// Ends all that it started; its files may be deleted then.
    fn close(self: Box<Self>) -> Result<()>;
}

/// When records were durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// When the fill returned.
    WithFill,
    /// Only after the sync.
    WithSync,
}

/// Thoroughness of the check of read records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Its first bytes: costs next to nothing.
    Begin,
    /// Every byte.
    Bytes,
}

/// Counts of read records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    /// Records that were found.
    pub(crate) found: usize,
    /// Found records that came from memory.
    pub(crate) from_memory: usize,
    /// Found records that are not what was put.
    pub(crate) wrong: usize,
}

/// A data set and the order in which it is read.
#[derive(Debug)]
pub(crate) struct Load {
    /// The contents of the records.
    pub(crate) payload: Payload,
    /// Bytes of a record's payload.
    pub(crate) record_bytes: usize,
    /// Records that are put, read and timed.
    pub(crate) num_records: u32,
    /// Records that are put before, untimed; their numbers follow the others'.
    pub(crate) num_warm_up: u32,
    /// The records in the order in which they are read.
    pub(crate) order: Vec<u32>,
}

/// One in this many records is compared byte by byte in each round; in the first round all are.
const COMPARED_ONE_IN: usize = 4;

/// Longest time for threads to end after a subject was closed.
const PATIENCE: Duration = Duration::from_secs(20);

impl Load {
    /// Contents and order of one round.
    pub(crate) fn new(options: &Options, kib: usize, round: usize) -> Self {
        let record_bytes = kib * 1024;
        let seed = options
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(round as u64);
        let num_records = (options.size_mib * MIB / record_bytes) as u32;
        let mut order: Vec<u32> = (0..num_records).collect();
        Rng::new(seed).shuffle(&mut order);
        Self {
            payload: Payload::new(seed, record_bytes),
            record_bytes,
            num_records,
            num_warm_up: (options.window_mib * MIB / record_bytes) as u32,
            order,
        }
    }

    /// Records that there are, with those put before.
    pub(crate) fn num_all(&self) -> u32 {
        self.num_records + self.num_warm_up
    }

    /// Whether `bytes`, which were read at byte `at` of `record`, are right.
    pub(crate) fn is_right(&self, check: Check, record: u32, at: usize, bytes: &[u8]) -> bool {
        match check {
            Check::Begin => self.payload.begins(record, at, bytes),
            Check::Bytes => self.payload.is(record, at, bytes),
        }
    }
}

/// Opens a subject in an empty folder.
pub(crate) type Open<'a> = dyn Fn(&Path, &Arc<Load>) -> Result<Opened> + 'a;

/// A subject that is ready.
pub(crate) struct Opened {
    /// It.
    pub(crate) subject: Box<dyn Subject>,
    /// Time that opening took.
    pub(crate) took: Duration,
}

/// One round of one subject with one size of records.
pub(crate) fn measure(
    open: &Open<'_>,
    dir: &Path,
    load: &Arc<Load>,
    figures: &mut Figures,
) -> Result<()> {
    fs::create_dir_all(dir)?;
    sync_file_system(dir)?;
    let Opened { mut subject, took } = open(dir, load)?;
    let name = subject.name();
    let key = |what| Key {
        subject: name.clone(),
        what,
        kib: load.record_bytes / 1024,
    };
    subject.fill(load.num_records..load.num_all())?;
    sync_file_system(dir)?;

    let clock = Clock::of_process()?;
    subject.fill(0..load.num_records)?;
    let written = clock.spent()?;
    let durable = subject.sync()?;
    let synced = clock.spent()?;
    let bytes = load.num_records as usize * load.record_bytes;
    let point = |spent| Point {
        open_s: took.as_secs_f64(),
        ..Point::of(bytes, spent)
    };
    match durable {
        Durable::WithFill => figures.add(key(What::WriteDurable), point(written)),
        Durable::WithSync => {
            figures.add(key(What::Write), point(written));
            figures.add(key(What::WriteDurable), point(synced));
        }
    }

    let is_first = !figures
        .series
        .iter()
        .any(|series| series.key == key(What::ReadRandom));
    figures.add(
        key(What::ReadRandom),
        read(&mut *subject, load, &load.order)?,
    );
    let as_put: Vec<u32> = (0..load.num_records).collect();
    figures.add(
        key(What::ReadSequential),
        read(&mut *subject, load, &as_put)?,
    );
    let share = if is_first { 1 } else { COMPARED_ONE_IN };
    subject.cool();
    let compared = subject.read(&load.order[..load.order.len() / share], Check::Bytes)?;
    ensure!(
        compared.wrong == 0,
        "{name}: {} records are not what was put",
        compared.wrong
    );
    subject.close()?;
    fs::remove_dir_all(dir).with_context(|| format!("{} cannot be removed", dir.display()))?;
    wait_for_threads(&name)
}

/// Reads records in that order.
fn read(subject: &mut dyn Subject, load: &Load, order: &[u32]) -> Result<Point> {
    subject.cool();
    let clock = Clock::of_process()?;
    let reads = subject.read(order, Check::Begin)?;
    let spent = clock.spent()?;
    let name = subject.name();
    ensure!(
        reads.wrong == 0,
        "{name}: {} records are not what was put",
        reads.wrong
    );
    Ok(Point {
        hit_share: reads.found as f64 / order.len() as f64,
        memory_share: reads.from_memory as f64 / reads.found.max(1) as f64,
        ..Point::of(reads.found * load.record_bytes, spent)
    })
}

/// Writes what the system still holds back, so that no subject pays for earlier writes.
pub(crate) fn sync_file_system(dir: &Path) -> Result<()> {
    let file = File::open(dir).with_context(|| format!("{} cannot be opened", dir.display()))?;
    nix::unistd::syncfs(file).context("the file system cannot be synced")
}

/// A thread that a subject left behind would run beside the next one.
fn wait_for_threads(name: &str) -> Result<()> {
    let start = Instant::now();
    while fs::read_dir("/proc/self/task")?.count() > 1 {
        ensure!(start.elapsed() < PATIENCE, "{name}: its threads do not end");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
