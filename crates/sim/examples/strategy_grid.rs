//! Compares two strategies on mean and p99 TTFT: llm-d's "73 %" run at 60 requests/s, a burst, a
//! hot prefix, a trace, and a grid of fleets.
//!
//! `cargo run --release -p headstart-sim --example strategy_grid -- STRATEGY BASE [SEEDS [TRACE
//! [N]]]`
//!
//! One line per cell: TTFT of both and the ratio, each the mean over the seeds: `SEEDS` is a count,
//! or `FROM..TO`. TRACE `-` leaves the trace out; of all cells the first N are compared. Without
//! arguments a few cells of `precise` against `load`.

#[path = "strategy_grid/grid.rs"]
mod grid;

use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use headstart_core::Rng;
use headstart_router::Profile;
use headstart_sim::fleet::{
    FleetConfig, FleetPreset, FleetRun, FleetWorkload, Order, RungOutcome, TraceArrivals,
    TraceConversion,
};
use headstart_trace::Reader;

use grid::Cell;

/// Replicas for the trace.
const TRACE_REPLICAS: usize = 8;

/// Cells when nothing is asked for.
const FEW: usize = 2;

const THREADS: usize = 2;

enum GridWorkload {
    Published60,
    Burst,
    HotPrefix,
    Trace(Box<dyn Fn(u64) -> FleetWorkload + Sync + Send>),
    Grid(Cell),
}

impl GridWorkload {
    fn name(&self) -> String {
        match self {
            Self::Published60 => "llm-d-73 at 60".to_owned(),
            Self::Burst => "burst".to_owned(),
            Self::HotPrefix => "hot prefix".to_owned(),
            Self::Trace(_) => format!("trace, {TRACE_REPLICAS} replicas"),
            Self::Grid(cell) => {
                let order = match cell.order {
                    Order::InTurn => "in turn",
                    Order::Zipf { .. } => "Zipf",
                };
                format!(
                    "{} replicas, {:.1}/s each, {:.1} of memory, {order}",
                    cell.replicas, cell.rate, cell.working_set
                )
            }
        }
    }

    fn workload(&self, seed: u64) -> FleetWorkload {
        match self {
            Self::Published60 => {
                let mut workload = FleetPreset::LlmD73.workload(seed);
                workload.rungs.drain(1..16);
                workload
            }
            Self::Burst => grid::burst(seed),
            Self::HotPrefix => grid::hot_prefix(seed),
            Self::Trace(draw) => draw(seed),
            Self::Grid(cell) => cell.workload(seed),
        }
    }

    fn fleet(&self, profile: Profile) -> FleetConfig {
        match self {
            Self::Published60 => FleetPreset::LlmD73.fleet(profile),
            Self::Burst | Self::HotPrefix => grid::hard_fleet(profile),
            Self::Trace(_) => {
                let mut fleet = FleetPreset::LlmD73.fleet(profile);
                for replica in &mut fleet.replicas {
                    replica.scheduler.max_context =
                        replica.capacity_blocks * replica.scheduler.block_size;
                }
                fleet
            }
            Self::Grid(cell) => cell.fleet(profile),
        }
    }

    fn run(&self, profile: &Profile, seed: u64) -> RungOutcome {
        let fleet = FleetConfig { seed, ..self.fleet(profile.clone()) };
        FleetRun::new(&fleet, &self.workload(seed)).finish().all
    }
}

/// Mean and p99 TTFT of both, seconds: means over the seeds.
struct Comparison {
    name: String,
    /// Of the strategy, then of the base.
    mean_s: [f64; 2],
    p99_s: [f64; 2],
    hit_rate: [f64; 2],
}

fn compare(workload: &GridWorkload, profiles: &[Profile; 2], seeds: &Range<u64>) -> Comparison {
    let outcomes = profiles.each_ref().map(|profile| {
        let runs = seeds.clone().map(|seed| workload.run(profile, seed));
        runs.collect::<Vec<_>>()
    });
    let mean = |of: fn(&RungOutcome) -> f64| {
        outcomes.each_ref().map(|runs| runs.iter().map(of).sum::<f64>() / runs.len() as f64)
    };
    Comparison {
        name: workload.name(),
        mean_s: mean(|rung| rung.ttft.mean),
        p99_s: mean(|rung| rung.ttft.p99),
        hit_rate: mean(|rung| rung.hits.rate()),
    }
}

fn row(compared: &Comparison) -> String {
    let ratio = |[ours, base]: [f64; 2]| ours / base;
    format!(
        "| {} | {:.4} | {:.4} | {:.3} | {:.4} | {:.4} | {:.3} | {:.1} | {:.1} |",
        compared.name,
        compared.mean_s[0],
        compared.mean_s[1],
        ratio(compared.mean_s),
        compared.p99_s[0],
        compared.p99_s[1],
        ratio(compared.p99_s),
        compared.hit_rate[0] * 100.0,
        compared.hit_rate[1] * 100.0,
    )
}

fn trace(file: &str) -> GridWorkload {
    let reader = File::open(file).expect("a trace");
    let reader = Reader::new(file.to_owned(), Box::new(reader)).expect("a trace");
    let block_tokens = reader.info().block_tokens;
    let requests: Vec<_> = reader.map(|request| request.expect("a request")).collect();
    let recorded = TraceConversion {
        block_tokens,
        arrivals: TraceArrivals::Recorded { speed: 1.0 },
        answer_tokens: 200,
    };
    GridWorkload::Trace(Box::new(move |seed| FleetWorkload {
        rungs: vec![recorded.rung(&requests, &mut Rng::new(seed))],
    }))
}

/// `8` or `101..117`.
fn seeds(text: &str) -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (number(from), number(to)),
        None => (1, number(text) + 1),
    };
    assert!(from < to, "at least one seed");
    from..to
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let profile = |at: usize, default: &str| -> Profile {
        let name = args.get(at).map_or(default, String::as_str);
        name.parse().expect("a strategy")
    };
    let profiles = [profile(0, "precise"), profile(1, "load")];
    let seeds = seeds(args.get(2).map_or("1", String::as_str));
    let mut all = vec![GridWorkload::Published60, GridWorkload::Burst, GridWorkload::HotPrefix];
    let file = args.get(3).filter(|file| *file != "-");
    all.extend(file.map(|file| trace(file)));
    all.extend(grid::cells().into_iter().map(GridWorkload::Grid));
    let first = args.get(4).map(|arg| arg.parse().expect("a number"));
    all.truncate(first.unwrap_or(if args.is_empty() { FEW } else { usize::MAX }));
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Relaxed)
                    && let Some(workload) = all.get(number)
                {
                    let compared = compare(workload, &profiles, &seeds);
                    rows.lock().expect("nobody panics").push((number, row(&compared)));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("nobody panics");
    rows.sort_unstable();
    let [ours, base] = profiles.map(|profile| profile.name);
    println!(
        "| | mean TTFT, s: {ours} | {base} | ratio | p99: {ours} | {base} | ratio | hit rate, %: \
         {ours} | {base} |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    rows.iter().for_each(|(_, row)| println!("{row}"));
}
