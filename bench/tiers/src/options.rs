//! The command line.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

/// Times a disk tier beside fio, foyer and memcpy, interleaved, in one run.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// A folder on the disk that is measured; what is written there is deleted afterwards.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Entrants to measure.
    #[arg(long, value_delimiter = ',', default_value = "fio,ours,foyer,memory")]
    pub(crate) only: Vec<Entrant>,
    /// Reads under way at once, for everybody.
    #[arg(long, default_value_t = 16)]
    pub(crate) depth: usize,
    /// Bytes of a data set, MiB.
    #[arg(long, default_value_t = 2048)]
    pub(crate) size_mib: usize,
    /// Bytes of a record's payload, KiB.
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    pub(crate) record_kib: Vec<usize>,
    /// Parts of a record at most; each has at least a page.
    #[arg(long, default_value_t = 16)]
    pub(crate) parts: usize,
    /// Bytes that are made durable together, MiB: what fio writes between two syncs.
    #[arg(long, default_value_t = 8)]
    pub(crate) group_mib: usize,
    /// Groups of fio's under way at once.
    #[arg(long, default_value_t = 2)]
    pub(crate) groups: usize,
    /// Bytes that were put and are not written yet at most, for ours and for foyer, MiB.
    #[arg(long, default_value_t = 64)]
    pub(crate) window_mib: usize,
    /// foyer's engines for input and output; the faster one is compared with.
    #[arg(long, value_delimiter = ',', default_value = "uring,psync")]
    pub(crate) foyer_io: Vec<FoyerIo>,
    /// foyer's flushers: more than its default, which is slower here.
    #[arg(long, default_value_t = 4)]
    pub(crate) foyer_flushers: usize,
    /// The memory part of foyer's cache, MiB.
    #[arg(long, default_value_t = 64)]
    pub(crate) foyer_memory_mib: usize,
    /// Bytes that are copied from, and as many that are copied to, MiB.
    #[arg(long, default_value_t = 1024)]
    pub(crate) memory_mib: usize,
    /// Times that everything is timed; tables have the medians.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Longest time of one job of fio's, seconds.
    #[arg(long, default_value_t = 20)]
    pub(crate) runtime_s: usize,
    /// fio's buffers; the faster ones are compared with.
    #[arg(long, value_delimiter = ',', default_value = "plain,fixed")]
    pub(crate) fio_buffers: Vec<FioBuffers>,
    /// Seed of contents and orders.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// About a minute: data sets of 256 MiB.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Writes all figures there, as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// An entrant of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Entrant {
    /// The disk alone, measured by fio.
    Fio,
    /// Our tier.
    Ours,
    /// foyer's hybrid cache.
    Foyer,
    /// Copies in host memory.
    Memory,
}

/// Buffers that fio's requests read into and write from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FioBuffers {
    /// Memory that the kernel looks up for each request.
    Plain,
    /// Memory, and files, that the ring was told of before.
    Fixed,
}

/// I/O engine of foyer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FoyerIo {
    /// A thread with an io_uring.
    Uring,
    /// `pread` and `pwrite` on a pool of threads.
    Psync,
}

/// Bytes of a MiB.
pub(crate) const MIB: usize = 1 << 20;

/// Data set, and memory that is copied, of a quick run, MiB.
const QUICK_MIB: usize = 256;

impl Options {
    /// Parses the command line, with `--quick` resolved.
    ///
    /// # Errors
    /// Names what cannot be measured.
    pub(crate) fn resolved() -> Result<Self> {
        let mut options = Self::parse();
        if options.quick {
            options.size_mib = options.size_mib.min(QUICK_MIB);
            options.memory_mib = options.memory_mib.min(QUICK_MIB);
        }
        let counts = [
            ("--depth", options.depth),
            ("--parts", options.parts),
            ("--group-mib", options.group_mib),
            ("--groups", options.groups),
            ("--window-mib", options.window_mib),
            ("--foyer-flushers", options.foyer_flushers),
            ("--rounds", options.rounds),
            ("--runtime-s", options.runtime_s),
        ];
        for (name, value) in counts {
            ensure!(value > 0, "{name} must be at least 1");
        }
        let least = (options.group_mib * options.groups).max(options.window_mib);
        ensure!(
            options.size_mib >= least,
            "--size-mib must be at least {least}: a window, and all groups that are under way"
        );
        for &kib in &options.record_kib {
            let fits = kib > 0 && kib.is_multiple_of(4) && kib * 1024 <= options.window_mib * MIB;
            ensure!(
                fits,
                "--record-kib {kib}: whole pages, and at most a window"
            );
        }
        Ok(options)
    }
}
