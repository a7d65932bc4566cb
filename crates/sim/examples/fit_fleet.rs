//! Fits an engine to a published fleet run: llm-d's "73 %" run, strategy precise, its rungs of 20
//! and 60 requests/s and no others.
//!
//! `cargo run --release -p headstart-sim --example fit_fleet -- [EVALUATIONS [MEMORY...]]`
//!
//! Four numbers are fitted for each given memory (a share of the published one), by a random
//! search that keeps what is better: the time of a token's layers, of a step's overhead, of
//! reading a token's keys and values, and the latency of a request. The error is the mean of the
//! absolute logarithms of seven ratios. Behind each fit stands what it predicts of the whole run's
//! KV usage, the one published figure by which the memory can be told.

use std::sync::Mutex;
use std::time::Duration;

use headstart_core::{CostModel, Rng};
use headstart_sim::fleet::{FleetOutcome, FleetPreset, FleetRun, FleetWorkload};

/// Published figures of a rung. The time per token is twice the published gap: the client that
/// measured it took two stamps per token, one of them for the blank line behind an event.
struct PublishedRung {
    rung: usize,
    /// Not of a rung whose slowest request lasted twice as long as the others.
    tokens_s: Option<f64>,
    ttft_mean_s: f64,
    ttft_p90_s: f64,
    tpot_mean_s: f64,
}

const PUBLISHED: [PublishedRung; 2] = [
    PublishedRung {
        rung: 4,
        tokens_s: Some(9_184.5),
        ttft_mean_s: 0.363,
        ttft_p90_s: 0.600,
        tpot_mean_s: 0.042,
    },
    PublishedRung {
        rung: 16,
        tokens_s: None,
        ttft_mean_s: 0.283,
        ttft_p90_s: 0.500,
        tpot_mean_s: 0.058,
    },
];

/// Token, overhead, keys and values of a token, latency: seconds.
type Numbers = [f64; 4];

const START: Numbers = [72e-6, 17.6e-3, 24.4e-9, 0.277];

/// Unless others are given.
const MEMORY: f64 = 1.1;

fn run(numbers: &Numbers, memory: f64, workload: &FleetWorkload) -> FleetOutcome {
    let [token_s, overhead_s, kv_token_s, latency_s] = *numbers;
    let cost = CostModel { token_s, overhead_s, kv_token_s, ..FleetPreset::LlmD73.roofline() };
    let profile = "llm-d-precise".parse().expect("a known profile");
    let mut fleet = FleetPreset::LlmD73.fleet(profile);
    fleet.network.request_latency = Duration::from_secs_f64(latency_s);
    for replica in &mut fleet.replicas {
        replica.cost = cost;
        let tokens = FleetPreset::LlmD73.published_kv_tokens() * memory;
        replica.capacity_blocks = tokens as usize / replica.scheduler.block_size;
    }
    FleetRun::new(&fleet, workload).finish()
}

/// Ours over theirs, figure by figure.
fn ratios(outcome: &FleetOutcome) -> Vec<f64> {
    let of = |(published, ours): (&PublishedRung, _)| {
        let ours: &headstart_sim::fleet::RungOutcome = ours;
        let tokens_s = published.tokens_s.map(|tokens_s| ours.tokens_s / tokens_s);
        let others = [
            ours.ttft.mean / published.ttft_mean_s,
            ours.ttft.p90 / published.ttft_p90_s,
            ours.tpot.mean / published.tpot_mean_s,
        ];
        tokens_s.into_iter().chain(others).collect::<Vec<_>>()
    };
    let pairs = PUBLISHED.iter().zip(&outcome.rungs[1..]);
    pairs.flat_map(of).collect()
}

/// The mean error over all workloads.
fn error(numbers: &Numbers, memory: f64, workloads: &[FleetWorkload]) -> f64 {
    let of = |workload: &FleetWorkload| {
        let ratios = ratios(&run(numbers, memory, workload));
        ratios.iter().map(|ratio| ratio.ln().abs()).sum::<f64>() / ratios.len() as f64
    };
    workloads.iter().map(of).sum::<f64>() / workloads.len() as f64
}

/// About normal: the sum of twelve uniform numbers.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0
}

fn search(memory: f64, evaluations: usize, workloads: &[FleetWorkload]) -> (f64, Numbers) {
    let mut rng = Rng::new(5);
    let mut best = (error(&START, memory, workloads), START);
    let mut step = 0.1;
    for _ in 0..evaluations {
        let numbers = best.1.map(|number| number * (step * normal(&mut rng)).exp());
        let error = error(&numbers, memory, workloads);
        if error < best.0 {
            best = (error, numbers);
            step *= 1.3;
        } else {
            step = f64::max(step * 0.95, 0.01);
        }
    }
    best
}

/// The workload with its first rung and the two that are fitted.
fn shortened(mut workload: FleetWorkload) -> FleetWorkload {
    let kept = [0, PUBLISHED[0].rung, PUBLISHED[1].rung];
    let mut number = 0..;
    workload.rungs.retain(|_| kept.contains(&number.next().expect("endless")));
    workload
}

fn main() {
    let mut args = std::env::args().skip(1);
    let evaluations = args.next().map_or(1, |arg| arg.parse().expect("a number"));
    let mut memories: Vec<f64> = args.map(|arg| arg.parse().expect("a number")).collect();
    if memories.is_empty() {
        memories.push(MEMORY);
    }
    let whole = FleetPreset::LlmD73.workload(1);
    let workloads = [1, 2].map(|seed| shortened(FleetPreset::LlmD73.workload(seed)));
    let left = Mutex::new(memories);
    println!("memory  error  token      overhead  KV token   latency  KV usage  ratios");
    let work = || {
        while let Some(memory) = { left.lock().expect("nobody panics").pop() } {
            let (error, numbers) = search(memory, evaluations, &workloads);
            let [token_s, overhead_s, kv_token_s, latency_s] = numbers;
            let all = run(&numbers, memory, &whole).all;
            let ratios = ratios(&run(&numbers, memory, &workloads[0]));
            println!(
                "{memory:6.2} {error:6.4}  {:6.2} µs  {:5.2} ms  {:6.2} ns  {latency_s:6.3} s  \
                 {:.3}     {ratios:.2?}",
                token_s * 1e6,
                overhead_s * 1e3,
                kv_token_s * 1e9,
                all.kv_usage.unwrap_or_default(),
            );
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(work)));
    });
}
