//! fio: the disk's speed for plain reads and writes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::clock::Clock;
use crate::figures::{Figures, Key, Point, What};
use crate::options::{FioBuffers, MIB, Options};
use crate::subject::sync_file_system;

/// Name in tables.
const NAME: &str = "fio";

/// KiB of a block where the size of records does not matter.
const LARGE_KIB: usize = 1024;

/// fio's version, as it says.
///
/// # Errors
/// When it cannot be started, with what installs it.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("fio").arg("--version").output();
    let output = output.context("fio cannot be started; `apt-get install fio` installs it")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The part of fio's output that is used.
#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    /// Share of `job_runtime`, percent.
    usr_cpu: f64,
    sys_cpu: f64,
    /// Of all its processes together, milliseconds.
    job_runtime: f64,
    read: Direction,
    write: Direction,
    sync: Sync,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: usize,
    bw_bytes: f64,
}

#[derive(Deserialize)]
struct Sync {
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(rename = "N", default)]
    count: u64,
}

/// One job.
struct Task {
    what: What,
    kib: usize,
    bytes: usize,
    arguments: Vec<String>,
}

/// Settings of the jobs of a run.
pub(crate) struct Run<'a> {
    /// The options of the benchmark.
    pub(crate) options: &'a Options,
    /// A folder of their own.
    pub(crate) dir: &'a Path,
    /// Their buffers.
    pub(crate) buffers: FioBuffers,
    /// Number of the round.
    pub(crate) round: usize,
}

impl FioBuffers {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => NAME,
            Self::Fixed => "fio, fixed buffers",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Fixed => &["--fixedbufs", "--registerfiles"],
        }
    }
}

/// All jobs, once.
pub(crate) fn measure(at: &Run<'_>, figures: &mut Figures) -> Result<()> {
    let (options, dir) = (at.options, at.dir);
    fs::create_dir_all(dir)?;
    let size = options.size_mib * MIB;
    let run = |task: Task, figures: &mut Figures| run(at, &task, figures);
    // Nothing is left of the file that was written in groups: a job that ran out of time leaves
    // holes, and reading those is reading nothing.
    run(groups(options), figures)?;
    fs::remove_file(dir.join(NAME))?;
    let written = run(plain(options, What::Write, LARGE_KIB, size), figures)?;
    let written = run(plain(options, What::WriteOver, LARGE_KIB, written), figures)?.min(written);
    for &kib in &options.record_kib {
        for what in [What::ReadRandom, What::ReadSequential] {
            run(plain(options, what, kib, written), figures)?;
        }
    }
    fs::remove_dir_all(dir).context("fio's file cannot be removed")
}

/// Each group is one write and one sync that is waited for; several at once.
fn groups(options: &Options) -> Task {
    let groups = options.groups;
    let group = options.group_mib * MIB;
    let bytes = (options.size_mib * MIB / groups / group) * group;
    Task {
        what: What::WriteDurable,
        kib: options.group_mib * 1024,
        bytes,
        arguments: vec![
            "--rw=write".to_owned(),
            "--iodepth=1".to_owned(),
            format!("--numjobs={groups}"),
            format!("--offset_increment={bytes}"),
            "--fdatasync=1".to_owned(),
        ],
    }
}

fn plain(options: &Options, what: What, kib: usize, bytes: usize) -> Task {
    let order = match what {
        What::ReadRandom => "randread",
        What::ReadSequential => "read",
        _ => "write",
    };
    Task {
        what,
        kib,
        bytes,
        arguments: vec![
            format!("--rw={order}"),
            format!("--iodepth={}", options.depth),
        ],
    }
}

/// Runs one job; the bytes that it moved.
fn run(run: &Run<'_>, task: &Task, figures: &mut Figures) -> Result<usize> {
    let (options, dir) = (run.options, run.dir);
    sync_file_system(dir)?;
    let clock = Clock::of_children()?;
    let output = Command::new("fio")
        .arg(format!("--name={NAME}"))
        // Before the file's name, which is looked up in it at once.
        .arg(format!("--directory={}", dir.display()))
        .arg(format!("--filename={NAME}"))
        .arg(format!("--bs={}k", task.kib))
        .arg(format!("--size={}", task.bytes))
        .arg(format!("--runtime={}", options.runtime_s))
        .arg(format!("--randseed={}", options.seed as usize + run.round))
        .args(["--ioengine=io_uring", "--direct=1", "--group_reporting"])
        .arg("--output-format=json")
        .args(&task.arguments)
        .args(run.buffers.arguments())
        .output()
        .context("fio cannot be started")?;
    let spent = clock.spent()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = || format!("fio: {text}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), said());
    let json = &text[text.find('{').with_context(said)?..];
    let output: Output = serde_json::from_str(json).with_context(said)?;
    let job = output.jobs.first().with_context(said)?;
    ensure!(job.error == 0, said());
    let moved = if job.read.io_bytes > 0 {
        &job.read
    } else {
        &job.write
    };
    ensure!(moved.io_bytes > 0, said());
    let gigabytes = moved.io_bytes as f64 / 1e9;
    let cpu_s = (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime / 1000.0;
    let point = Point {
        mb_per_s: moved.bw_bytes / 1e6,
        cpu_s_per_gb: cpu_s / gigabytes,
        hit_share: 1.0,
        syncs: job.sync.lat_ns.count,
        process_cpu_s_per_gb: Some(spent.cpu_s / gigabytes),
        ..Point::default()
    };
    let key = Key {
        subject: run.buffers.name().to_owned(),
        what: task.what,
        kib: task.kib,
    };
    figures.add(key, point);
    Ok(moved.io_bytes)
}
