//! `headstart plan`: how many times device memory a trace is worth, on host and disk.

mod device;

use std::num::NonZeroUsize;

use anyhow::{Result, bail, ensure};
use clap::Args;
use headstart_cache::policy;
use headstart_cache::tiers::AssumedSpeed;
use headstart_core::TraceRequest;
use headstart_sim::sizing::{self, Lower, Sizing};
use headstart_sim::{Sweep, SweepConfig};
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::TraceError;
use headstart_trace::sample::Sample;

use self::device::{Device, DeviceOptions};
use crate::config::ablations::policy as policy_option;
use crate::exit::usage;
use crate::input::{SCALE_SEED, TraceInput, remarks};
use crate::parallel::{parallel, threads};
use headstart_report::TraceFacts;
use headstart_report::plan::{self as report, PlanReport, PlanRow};

/// More room than this, in blocks, is refused, as in replay.
const ROOM_MAX: u64 = 1 << 26;

/// Share of the ideal behind which no more sizes are shown; above what may be asked to be enough.
const ALL: f64 = 0.9999;

/// Seconds until the first byte: over PCIe, and of an NVMe drive.
const HOST_LATENCY_S: f64 = 20e-6;
const DISK_LATENCY_S: f64 = 100e-6;

/// Size a host-memory or disk KV cache for a trace.
#[derive(Args, Debug)]
#[command(after_help = include_str!("plan.help.txt"))]
pub(crate) struct PlanCommand {
    #[command(flatten)]
    input: TraceInput,
    #[command(flatten)]
    device: DeviceOptions,
    /// Eviction policy, with options
    #[arg(long, value_name = "P", default_value = "lru", help_heading = "Cache")]
    #[arg(value_parser = policy_option)]
    policy: String,
    /// Bandwidth of host memory, GB/s [default: PCIe of the GPUs]
    #[arg(long, value_name = "X", help_heading = "Cache")]
    host_gbps: Option<f64>,
    /// Bandwidth of the disk, GB/s
    #[arg(long, value_name = "X", default_value_t = 3.0)]
    #[arg(help_heading = "Cache")]
    disk_gbps: f64,
    /// Sufficient share of the maximum hit rate
    #[arg(long, value_name = "SHARE", default_value_t = 0.99)]
    #[arg(help_heading = "Cache")]
    enough: f64,
    /// Share of the requests to leave out at the start, as warm-up
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    #[arg(help_heading = "Cache")]
    cold: f64,
    /// Share of the sessions to keep, each as a whole
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    #[arg(help_heading = "Input")]
    scale: f64,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Output")]
    threads: Option<NonZeroUsize>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Replays the trace with several sizes, and tells what more room is worth.
pub(crate) fn run(plan: &PlanCommand) -> Result<()> {
    plan.check()?;
    let device = plan.device.device()?;
    let read = plan.read()?;
    let sizing = Sizing {
        requests: &read.requests,
        // The first requests meet an empty cache and say little about its size.
        cold_requests: read.trace.cold_requests as usize,
        block_tokens: read.trace.info.block_tokens,
        // Fractions of a block hold nothing, so the size is rounded down.
        device_blocks: (device.kv_tokens / f64::from(read.trace.info.block_tokens)) as u64,
    };
    ensure!(
        sizing.device_blocks != 0,
        usage("--device-gib: less than one block of the trace; raise it")
    );
    let report = plan.report(&sizing, &device, read.trace)?;
    output::line(&if plan.json {
        report::json(&report)
    } else {
        output::fitted(&report::table(&report))
    })
}

/// A trace in memory.
struct PlanInput {
    requests: Vec<TraceRequest>,
    trace: TraceFacts,
}

impl PlanCommand {
    fn check(&self) -> Result<()> {
        let share = |option: &str, value: f64| {
            let message = format!("{option} {value:?}: expected a share above 0, up to {ALL}");
            usage(message)
        };
        // The comparison fails for NaN as well.
        if !(self.enough > 0.0 && self.enough <= ALL) {
            bail!(share("--enough", self.enough));
        }
        ensure!(
            (0.0..1.0).contains(&self.cold),
            usage(format!("--cold {:?}: expected a share from 0 to below 1", self.cold))
        );
        let speeds = [("--host-gbps", self.host_gbps), ("--disk-gbps", Some(self.disk_gbps))];
        for (option, value) in speeds {
            let is_speed = |value: f64| value > 0.0 && value.is_finite();
            if let Some(value) = value.filter(|&value| !is_speed(value)) {
                bail!(usage(format!("{option} {value:?}: expected GB/s above 0")));
            }
        }
        // The name is checked before a long trace is read.
        let setting = policy::Setting { capacity: 1, block_tokens: 16 };
        let known = policy::by_name(&self.policy, setting);
        known.map_err(|error| usage(format!("--policy: {error}")))?;
        Ok(())
    }

    fn read(&self) -> Result<PlanInput> {
        let sample = Sample::new(self.scale, SCALE_SEED).ok_or_else(|| {
            let scale = self.scale;
            usage(format!("--scale {scale:?}: expected a share above 0, up to 1"))
        })?;
        let progress = self.input.progress();
        let mut reader = self.input.open(&progress)?;
        let requests: Result<Vec<_>, TraceError> = sample.thin(reader.by_ref()).collect();
        let requests = requests?;
        progress.end();
        let name = self.input.name();
        // Lengths alone cannot show a common prefix.
        if requests.iter().all(|request| request.blocks.is_empty()) {
            bail!("{name} has no request with blocks, so no prefix can be reused");
        }
        let info = reader.info().clone();
        ensure!(
            info.block_tokens != 0,
            usage(format!("{name} does not say how many tokens a block has; give --block-tokens"))
        );
        let ends = [requests.first(), requests.last()];
        let [first, last] =
            ends.map(|request| request.map_or_else(Default::default, |request| request.arrival));
        let file = self.input.path().file_name().unwrap_or_default();
        let trace = TraceFacts {
            name: file.to_string_lossy().into_owned(),
            remarks: remarks(&reader),
            info,
            requests: requests.len(),
            cold_requests: (requests.len() as f64 * self.cold).round() as u32,
            // The number of blocks is known after the sweep.
            distinct_blocks: 0,
            seconds: last.since(first).as_secs_f64(),
        };
        Ok(PlanInput { requests, trace })
    }

    fn report(
        &self,
        sizing: &Sizing<'_>,
        device: &Device,
        mut trace: TraceFacts,
    ) -> Result<PlanReport> {
        let config =
            SweepConfig { block_tokens: sizing.block_tokens, cold_requests: trace.cold_requests };
        let sweep = Sweep::new(sizing.requests, config, &[])?;
        trace.distinct_blocks = sweep.extent().distinct_blocks;
        // No size above this limit is replayed, and the ideal needs them all.
        if trace.distinct_blocks.min(ROOM_MAX) < trace.distinct_blocks {
            bail!(usage(format!(
                "the trace has {} different blocks, more than the {ROOM_MAX} that are held in \
                 memory; keep fewer sessions with --scale",
                trace.distinct_blocks
            )));
        }
        let ideal = sweep.extent().infinite.steady.tokens;
        // Multiples of the device's memory, up to one that holds every block.
        let times = sizing::grid(sizing.device_blocks, trace.distinct_blocks);
        let mut points = self.points(sizing, &times, &trace)?;
        let enough = ideal.rate() * self.enough;
        let rate = |point: &(u64, Vec<u32>)| sizing.tokens(&point.1).rate();
        let reached = points.iter().position(|point| rate(point) >= enough);
        // The last size holds everything.
        let high = reached.unwrap_or(points.len() - 1);
        if high > 0 {
            // The rate is below at the first bound and reached at the second, so the search has its
            // interval.
            let bounds = points[high - 1].0..points[high].0;
            let progress = TaskProgress::endless("searching the smallest sufficient size");
            let least = sizing::least(bounds, |times| {
                progress.inc(1);
                let point = (times, sizing.hits(&self.policy, self.room(sizing, times, &trace))?);
                let reaches = rate(&point) >= enough;
                points.push(point);
                anyhow::Ok(reaches)
            })?;
            progress.end();
            // The points of the search are dropped, except the one that was found.
            points.retain(|point| times.contains(&point.0) || point.0 == least);
        }
        points.sort_by_key(|point| point.0);
        // Rows beyond the ideal would all be the same.
        let all = points.iter().position(|point| rate(point) >= ideal.rate() * ALL);
        points.truncate(all.map_or(points.len(), |index| index + 1));
        let rows = self.rows(sizing, device, &points);
        Ok(PlanReport {
            device: device.told.clone(),
            block_bytes: device.token_bytes * f64::from(sizing.block_tokens),
            device_blocks: sizing.device_blocks,
            policy: self.policy.clone(),
            gbps: [self.host_bytes_per_s(device) / 1e9, self.disk_gbps],
            // The first row is the device alone, which every saving is measured against.
            computed_s: device.engine.map(|engine| sizing.computed_s(&points[0].1, &engine)),
            enough: self.enough,
            ideal,
            rows,
            trace,
        })
    }

    /// Returns the hits per request, for each multiple of device memory.
    fn points(
        &self,
        sizing: &Sizing<'_>,
        times: &[u64],
        trace: &TraceFacts,
    ) -> Result<Vec<(u64, Vec<u32>)>> {
        let progress = TaskProgress::steps("replaying with each size", times.len());
        // Replays of different sizes share nothing, so they run side by side.
        let hits = parallel(times, threads(self.threads), |&times| {
            let hits = sizing.hits(&self.policy, self.room(sizing, times, trace));
            progress.inc(1);
            hits
        });
        progress.end();
        let hits = hits.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(times.iter().copied().zip(hits).collect())
    }

    /// More than there are blocks would change nothing.
    fn room(&self, sizing: &Sizing<'_>, times: u64, trace: &TraceFacts) -> u64 {
        (sizing.device_blocks * times).min(trace.distinct_blocks)
    }

    fn host_bytes_per_s(&self, device: &Device) -> f64 {
        self.host_gbps.map_or(device.host_bytes_per_s, |gbps| gbps * 1e9)
    }

    fn rows(
        &self,
        sizing: &Sizing<'_>,
        device: &Device,
        points: &[(u64, Vec<u32>)],
    ) -> Vec<PlanRow> {
        let block_bytes = device.token_bytes * f64::from(sizing.block_tokens);
        let lower = |latency_s, bytes_per_s| Lower {
            speed: AssumedSpeed { latency_s, bytes_per_s },
            block_bytes,
        };
        let tiers = [
            lower(HOST_LATENCY_S, self.host_bytes_per_s(device)),
            lower(DISK_LATENCY_S, self.disk_gbps * 1e9),
        ];
        let device_hits = &points[0].1;
        let row = |(times, hits): &(u64, Vec<u32>)| PlanRow {
            times: *times,
            tokens: sizing.tokens(hits),
            saved_s: device
                .engine
                .map(|engine| tiers.map(|tier| sizing.saved_s(device_hits, hits, &engine, &tier))),
        };
        points.iter().map(row).collect()
    }
}
