//! The engine of a fleet, as a server emulates it and as the simulator does.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use headstart_page::ReportProvenance;
use headstart_report::fleet::{self as report, FleetReport};
use headstart_scheduler::{QueueOrder, SchedulerConfig};
use headstart_server::EmbeddedFleet;
use headstart_sim::fleet::replica::ReplicaSpec;
use headstart_sim::fleet::{FleetConfig, FleetPreset};
use headstart_terminal as output;

use crate::config::cost_model::ReplicaCostModel;
use crate::exit::usage;

/// Default tokens per block.
const BLOCK_SIZE: usize = 16;

/// No request is refused for the queue's length.
const MAX_WAITING: usize = 1 << 20;

/// The preset called `name`.
pub(crate) fn preset(name: &str) -> Result<FleetPreset> {
    FleetPreset::find(name).ok_or_else(|| {
        let known = FleetPreset::ALL.map(FleetPreset::name).join(", ");
        usage(format!("--preset {name}: known are {known}"))
    })
}

/// Prints `report` as JSON or as a table, after it has written the page to `html`.
pub(crate) fn tell(report: &FleetReport, json: bool, html: Option<&Path>) -> Result<()> {
    if let Some(file) = html {
        output::save(file, report::page(report, &ReportProvenance::now("headstart")))?;
    }
    output::line(&if json {
        report::json_lines(report)
    } else {
        output::fitted(&report::table(report))
    })
}

/// The fleet of `preset`, with any strategy.
pub(crate) fn fleet_of(preset: FleetPreset) -> FleetConfig {
    // The strategy changes nothing of the engines, so any will do.
    preset.fleet("random".parse().expect("a known profile"))
}

/// The engine of `preset`.
pub(crate) fn of_preset(preset: FleetPreset) -> ReplicaCostModel {
    let fleet = fleet_of(preset);
    ReplicaCostModel {
        engine: preset.engine(),
        max_sequences: fleet.replicas[0].scheduler.max_sequences,
        latency_s: fleet.network.request_latency.as_secs_f64(),
    }
}

/// Returns the specification of the replicas of `fleet`, with steps that cost as in `cost`.
pub(crate) fn of_server(cost: &ReplicaCostModel, fleet: &EmbeddedFleet) -> ReplicaSpec {
    let engine = &fleet.engine;
    let memory = engine.cache_blocks * engine.block_size;
    ReplicaSpec {
        cost: cost.engine.cost,
        scheduler: SchedulerConfig {
            max_batched_tokens: engine.max_batched_tokens,
            // The simulator's steps have a token for each.
            max_sequences: engine.max_sequences.min(engine.max_batched_tokens),
            max_waiting: engine.max_waiting,
            max_context: match fleet.emulated {
                Some(_) => memory,
                None => fleet.model.config.max_context,
            },
            block_size: engine.block_size,
            order: engine.order,
        },
        capacity_blocks: engine.cache_blocks,
    }
}

/// Returns the specification of external replicas, as far as the file describes them.
pub(crate) fn of_file(cost: &ReplicaCostModel, block_size: Option<usize>) -> ReplicaSpec {
    let block_size = block_size.unwrap_or(BLOCK_SIZE);
    // A memory below one block still gets one, because the simulator needs it.
    let capacity_blocks = (cost.engine.kv_tokens / block_size).max(1);
    ReplicaSpec {
        cost: cost.engine.cost,
        scheduler: SchedulerConfig {
            max_batched_tokens: cost.engine.max_batched_tokens,
            max_sequences: cost.max_sequences,
            max_waiting: MAX_WAITING,
            // An engine elsewhere has its own limit; the memory is the only one that is known.
            max_context: capacity_blocks * block_size,
            block_size,
            order: QueueOrder::FirstCome,
        },
        capacity_blocks,
    }
}

/// `fleet`, whose requests take so long beside the engine.
pub(crate) fn with_latency(mut fleet: FleetConfig, latency_s: f64) -> FleetConfig {
    fleet.network.request_latency = Duration::from_secs_f64(latency_s);
    fleet
}
